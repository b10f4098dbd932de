"""NumPy arrays as sources of named columns."""

from __future__ import annotations

import ast
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.readers.fingerprint import stamp
from clustersplit_cli.data.readers.naming import listed, shown
from clustersplit_cli.data.readers.source import BLOCK_BYTES, Column, Source, reading
from clustersplit_cli.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

FEATURE_KEYS = ("X", "features", "embeddings")
USUAL_KEYS = {"label": "y", "domain": "groups"}
"""What labels and domains are called beside X, where there is no array of the word itself."""


@dataclass(frozen=True)
class ArrayChunk:
    """A rectangle held in a numpy array of shape (rows, features)."""

    start: int
    first: int
    block: NDArray[Any]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.block)

    @property
    def width(self) -> int:
        """Number of features it covers."""
        return int(self.block.shape[1])

    def values(self, keep: NDArray[np.bool_] | None, width: int | None) -> NDArray[Any]:
        """Return the rectangle, without the rows where `keep` is false."""
        return self.block if keep is None else self.block[keep]


class PlainArraySource:
    """A 2-D array; its columns are called by their index, which may count from the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stamps = (stamp(path),)
        self.notes: tuple[tuple[str, str], ...] = ()
        self.default_features: str | None = None
        self._array = open_npy(path)
        if len(self._array.shape) != 2:
            raise InputError(
                f"{shown(path)} holds an array of shape {self._array.shape}, features need two dimensions",
                hint="save a 2-D array: numpy.save(file, array.reshape(len(array), -1))",
            )
        self.n_rows: int | None = self._array.shape[0]
        if not self.n_rows:  # of no rows, a damaged header may promise any number of columns
            raise InputError(f"{shown(path)} has no rows", hint="a split needs at least two rows")
        dtype = _number_dtype(self._array.dtype)
        self.columns: Mapping[str, Column] = {
            str(index): Column(str(index), str(self._array.dtype), dtype)
            for index in range(self._array.shape[1])
        }

    def find(self, word: str) -> str | None:
        """Return the column at an index; an index that is out of range is an error, not an absence."""
        try:
            index = int(word)
        except ValueError:
            return None
        width = len(self.columns)
        if not -width <= index < width:
            raise InputError(
                f"column {index} is outside {shown(self.path)}, which has {width} columns",
                hint=f"use an index from {-width} to {width - 1}",
            )
        return str(index % width)

    def read(self, names: Sequence[str]) -> pa.Table:
        """Read whole columns."""
        import pyarrow as pa

        if not names:
            return pa.table({})
        chosen = np.array([int(name) for name in names])
        picked = np.empty((self._array.shape[0], len(names)), self._array.dtype)
        for chunk in self._rectangles(chosen):
            picked[
                chunk.start : chunk.start + chunk.n_rows, chunk.first : chunk.first + chunk.block.shape[1]
            ] = chunk.block
        return pa.table({name: as_arrow(picked[:, i], shown(self.path)) for i, name in enumerate(names)})

    def scan(self, names: Sequence[str]) -> Iterator[ArrayChunk]:
        """Read feature columns in blocks."""
        return self._rectangles(np.array([int(name) for name in names]))

    def _rectangles(self, chosen: NDArray[np.int64]) -> Iterator[ArrayChunk]:
        """Yield the chosen columns block by block, in their own numbering."""
        everything = len(chosen) == len(self.columns) and bool((np.diff(chosen) == 1).all())
        for start, block in self._array.blocks():
            if not self._array.fortran_order:
                yield ArrayChunk(start, 0, block if everything else block[:, chosen])
                continue
            for i in np.flatnonzero((chosen >= start) & (chosen < start + len(block))):
                yield ArrayChunk(0, int(i), block[chosen[i] - start][:, None])


class StructuredSource:
    """A structured array: its fields are the columns, a field of small vectors is a list column."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stamps = (stamp(path),)
        self.notes: tuple[tuple[str, str], ...] = ()
        self.default_features: str | None = None
        self._array = open_npy(path)
        if len(self._array.shape) != 1:
            raise InputError(
                f"{shown(path)} is {describe_shape(self._array)}, but records need one dimension",
                hint="save it with numpy.save(file, array.ravel())",
            )
        self.n_rows: int | None = self._array.shape[0]
        fields = {name: self._array.dtype[name] for name in self._array.dtype.names or ()}
        self.columns: Mapping[str, Column] = {
            name: _describe(name, dtype.base, dtype.shape) for name, dtype in fields.items()
        }

    def find(self, word: str) -> str | None:
        """Return the name of the column the user means, or None."""
        return word if word in self.columns else None

    def read(self, names: Sequence[str]) -> pa.Table:
        """Read whole columns."""
        import pyarrow as pa

        nothing = np.empty(0, self._array.dtype)
        parts: dict[str, list[NDArray[Any]]] = {name: [nothing[name]] for name in names}
        for _, block in self._array.blocks() if names else ():
            for name in names:
                parts[name].append(block[name].copy())  # a view would keep all other fields alive
        return pa.table(
            {
                name: as_arrow(np.concatenate(pieces), f"field {name!r} of {shown(self.path)}")
                for name, pieces in parts.items()
            }
        )

    def scan(self, names: Sequence[str]) -> Iterator[ArrayChunk]:
        """Read feature columns in blocks of records."""
        for start, block in self._array.blocks():
            if self.columns[names[0]].is_list:
                yield ArrayChunk(start, 0, block[names[0]])
            else:
                yield ArrayChunk(start, 0, np.stack([block[name] for name in names]).T)


class ArchiveSource:
    """An NPZ: its 1-D arrays are scalar columns, its 2-D arrays are list columns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stamps = (stamp(path),)
        self.notes: tuple[tuple[str, str], ...] = ()
        self._arrays = open_npz(path)
        self.columns: Mapping[str, Column] = {
            key: _describe(key, array.dtype, array.shape[1:] if array.shape else (0, 0))
            for key, array in self._arrays.items()
        }
        matrices = [key for key, column in self.columns.items() if column.is_list]
        known = [key for key in FEATURE_KEYS if key in matrices]
        only = matrices[0] if len(matrices) == 1 else None
        self.default_features: str | None = known[0] if known else only
        lengths = [array.shape[0] for array in self._arrays.values() if array.shape]
        self.n_rows: int | None = (
            self._arrays[self.default_features].shape[0] if self.default_features else max(lengths, default=0)
        )

    def find(self, word: str) -> str | None:
        """Return the name of the column the user means, or None."""
        if word in self.columns:
            return word
        usual = USUAL_KEYS.get(word)
        return usual if usual in self.columns else None

    def read(self, names: Sequence[str]) -> pa.Table:
        """Read whole columns."""
        import pyarrow as pa

        return pa.table(
            {name: as_arrow(self._aligned(name).whole(), self._arrays[name].label) for name in names}
        )

    def scan(self, names: Sequence[str]) -> Iterator[ArrayChunk]:
        """Read the one matrix in blocks, or 1-D arrays one after the other."""
        for first, name in enumerate(names):
            array = self._aligned(name)
            for start, block in array.blocks():
                if not self.columns[name].is_list:
                    yield ArrayChunk(start, first, block[:, None])
                elif array.fortran_order:
                    yield ArrayChunk(0, start, block.T)
                else:
                    yield ArrayChunk(start, 0, block)

    def _aligned(self, name: str) -> NpyArray:
        """Return an array that has one entry per row, or say that it has not."""
        array = self._arrays[name]
        if array.shape[:1] != (self.n_rows,):
            raise InputError(
                f"{array.label} has shape {array.shape}, but the features have {self.n_rows} rows",
                hint="save arrays of one length",
            )
        return array


class CompanionSource:
    """A 1-D array with one value per row of another file."""

    def __init__(self, path: Path, role: str) -> None:
        self.path = path
        self.stamps = (stamp(path),)
        self.notes: tuple[tuple[str, str], ...] = ()
        self.default_features: str | None = None
        self._array = open_npy(path)
        shape = self._array.shape
        if self._array.dtype.names or not (len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)):
            raise InputError(
                f"{shown(path)} is {describe_shape(self._array)}, but a {role} file needs one value per row",
                hint="save a 1-D array: numpy.save(file, array.ravel())",
            )
        self.n_rows: int | None = shape[0]
        self.columns: Mapping[str, Column] = {role: _describe(role, self._array.dtype, ())}

    def find(self, word: str) -> str | None:
        """Return the one column there is."""
        return next(iter(self.columns))

    def read(self, names: Sequence[str]) -> pa.Table:
        """Read the values."""
        import pyarrow as pa

        return pa.table({name: as_arrow(self._array.whole().reshape(-1), shown(self.path)) for name in names})

    def scan(self, names: Sequence[str]) -> Iterator[ArrayChunk]:
        """Refuse: companions hold no features."""
        raise InputError(f"{shown(self.path)} holds no features")


def open_array(path: Path) -> Source:
    """Open a `.npy` file of features, plain or structured."""
    return StructuredSource(path) if open_npy(path).dtype.names else PlainArraySource(path)


def _describe(name: str, dtype: np.dtype[Any], row_shape: tuple[int, ...]) -> Column:
    """Describe a column by the type and the shape of one row of it."""
    type_name = f"{dtype}{list(row_shape) if row_shape else ''}"
    numbers = _number_dtype(dtype) if len(row_shape) <= 1 else None
    if len(row_shape) == 1:
        return Column(name, type_name, numbers, is_list=True, width=row_shape[0])
    return Column(name, type_name, numbers)


def _number_dtype(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """The native type of numbers and booleans, None for anything else."""
    return dtype.newbyteorder("=") if dtype.kind in "biuf" else None


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
        with _reading(self.label), self.opener() as file:
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


def _reading(label: str) -> AbstractContextManager[None]:
    return reading(
        label,
        "a NumPy array",
        "the file may be truncated or damaged; save it again with numpy.save or numpy.savez",
    )


def open_npy(path: Path) -> NpyArray:
    """Read the header of a `.npy` file and check that the data it promises is there."""
    label = shown(path)
    with _reading(label):
        with path.open("rb") as file:
            array = _header(file, label, lambda: path.open("rb"))
        _check_complete(array, path.stat().st_size)
    return array


def open_npz(path: Path) -> dict[str, NpyArray]:
    """Read the headers of all arrays in an `.npz` file."""
    arrays: dict[str, NpyArray] = {}
    with _reading(shown(path)), zipfile.ZipFile(path) as archive:
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

    if values.ndim != 1:
        raise InputError(
            f"{label} has shape {values.shape}, but one value per row is needed",
            hint="choose another column, or save one value per row",
        )
    with _reading(label):
        if values.dtype.kind == "S":
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
    if any(length < 0 for length in shape) or (0 not in shape and not dtype.itemsize):
        raise ValueError(f"its header promises {dtype} of shape {shape}")
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
