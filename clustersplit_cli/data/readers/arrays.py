"""NumPy arrays as sources of named columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.readers.fingerprint import stamp
from clustersplit_cli.data.readers.naming import shown
from clustersplit_cli.data.readers.npy import NpyArray, as_arrow, describe_shape, open_npy, open_npz
from clustersplit_cli.data.readers.source import Column, Source
from clustersplit_cli.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

FEATURE_KEYS = ("X", "features", "embeddings")


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

        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
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
        return word if word in self.columns else None

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
