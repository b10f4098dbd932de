"""NPY and NPZ: plain and structured arrays, read in blocks of rows and never unpickled."""

from __future__ import annotations

import ast
import math
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.readers.naming import listed, reason, shown
from clustersplit_cli.data.readers.source import BLOCK_BYTES
from clustersplit_cli.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 1 << 24


@dataclass(frozen=True)
class NpyArray:
    """An array in NPY format that has not been read yet: a file, or a member of an NPZ."""

    label: str  # how messages call it
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool
    offset: int
    opener: Callable[[], IO[bytes]]

    def blocks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield (position along the slowest axis, block): rows, or columns of a Fortran-ordered array.

        Blocks of columns come transposed: shape (columns, rows).
        """
        shape = self.shape[::-1] if self.fortran_order else self.shape
        per_item = max(1, self.dtype.itemsize * math.prod(shape[1:]))
        step = max(1, BLOCK_BYTES // per_item)
        with reading(self.label), self.opener() as file:
            _skip(file, self.offset)
            for start in range(0, shape[0], step):
                block = np.empty((min(step, shape[0] - start), *shape[1:]), self.dtype)
                _read_exactly(file, block, self.label)
                yield start, block

    def whole(self) -> NDArray[Any]:
        """Read everything; for arrays that are small beside the features."""
        blocks = [block for _, block in self.blocks()]
        array = np.concatenate(blocks) if blocks else np.empty(self.shape, self.dtype)
        return array.T if self.fortran_order else array


@contextmanager
def reading(label: str) -> Iterator[None]:
    """Turn what the libraries raise on a damaged file into one line."""
    try:
        yield
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise InputError(
            f"{label} cannot be read as a NumPy array: {reason(error)}",
            hint="the file may be truncated or damaged; save it again with numpy.save or numpy.savez",
        ) from error


def open_npy(path: Path) -> NpyArray:
    """Read the header of a `.npy` file and check that the data it promises is there."""
    label = shown(path)
    with reading(label):
        with path.open("rb") as file:
            array = _header(file, label, lambda: path.open("rb"))
        _check_complete(array, path.stat().st_size)
    return array


def open_npz(path: Path) -> dict[str, NpyArray]:
    """Read the headers of all arrays in an `.npz` file."""
    arrays: dict[str, NpyArray] = {}
    with reading(shown(path)), zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.filename.endswith(".npy"):
                key = info.filename.removesuffix(".npy")
                label = f"array {key!r} of {shown(path)}"
                with archive.open(info) as member:
                    arrays[key] = _header(member, label, _member_opener(path, info.filename))
                _check_complete(arrays[key], info.file_size)
    if not arrays:
        raise InputError(
            f"{shown(path)} is a zip file without NumPy arrays", hint="save the arrays with numpy.savez"
        )
    return arrays


def as_arrow(values: NDArray[Any], label: str) -> pa.Array:
    """Return a 1-D array as an Arrow column; bytes are taken as UTF-8."""
    import pyarrow as pa

    if values.dtype.kind == "S":
        with reading(label):
            values = np.char.decode(values, "utf-8")
    if values.dtype.kind in "biufUM":
        return pa.array(values.astype(values.dtype.newbyteorder("=")))
    raise InputError(
        f"{label} holds values of type {values.dtype}, which cannot name groups",
        hint="save them as text or integers",
    )


def _header(file: IO[bytes], label: str, opener: Callable[[], IO[bytes]]) -> NpyArray:
    """Parse the header that starts an array, whatever its version."""
    magic = file.read(8)
    if magic[:6] != MAGIC or len(magic) < 8:
        raise InputError(f"{label} is not a NumPy array", hint="save it with numpy.save")
    size_bytes = file.read(2 if magic[6] == 1 else 4)
    size = int.from_bytes(size_bytes, "little")
    if size > _LONGEST_HEADER:
        raise ValueError("its header is too long")
    text = file.read(size)
    if len(text) < size:
        raise ValueError("its header is incomplete")
    try:
        header = ast.literal_eval(text.decode("utf-8" if magic[6] >= 3 else "latin-1"))
        dtype = np.lib.format.descr_to_dtype(header["descr"])
        shape = tuple(int(length) for length in header["shape"])
        fortran_order = bool(header["fortran_order"])
    except (SyntaxError, KeyError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("its header is malformed") from error
    if dtype.hasobject:
        raise InputError(
            f"{label} holds pickled Python objects, which are never loaded",
            hint="save numbers or fixed-width text: array.astype(float) or array.astype(str)",
        )
    offset = len(magic) + len(size_bytes) + size
    # In one dimension both orders are the same.
    return NpyArray(label, shape, dtype, fortran_order and len(shape) > 1, offset, opener)


def _check_complete(array: NpyArray, found: int) -> None:
    """Raise if the data that the header promises is not there."""
    expected = array.offset + array.dtype.itemsize * math.prod(array.shape)
    if found < expected:
        raise InputError(
            f"{array.label} is truncated: shape {array.shape} takes {expected} bytes, there are {found}",
            hint="copy or save the file again",
        )


def _member_opener(path: Path, name: str) -> Callable[[], IO[bytes]]:
    """Open an archive's member as a file that closes the archive with it."""

    def opener() -> IO[bytes]:
        with zipfile.ZipFile(path) as archive:
            return archive.open(name)  # the member keeps the archive's file open for itself

    return opener


def _skip(file: IO[bytes], count: int) -> None:
    """Move past the header; zip members cannot always seek."""
    while count:
        piece = file.read(count)
        if not piece:
            raise EOFError("its header is incomplete")
        count -= len(piece)


def _read_exactly(file: IO[bytes], block: NDArray[Any], label: str) -> None:
    """Fill a block from the file, or say that the file ended."""
    if not block.nbytes:
        return
    view = memoryview(block.reshape(-1).view(np.uint8).data)
    done = 0
    while done < len(view):
        count = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not count:
            raise InputError(
                f"{label} is truncated: it ends before the last of its rows",
                hint="copy or save the file again",
            )
        done += count


def describe_shape(array: NpyArray) -> str:
    """Return an array's type and shape in one phrase."""
    kind = (
        f"structured with fields {listed(list(array.dtype.names))}" if array.dtype.names else str(array.dtype)
    )
    return f"{kind}, shape {array.shape}"
