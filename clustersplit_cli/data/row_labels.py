"""Which part every row of an earlier run is in, for any range of rows: held in memory, or looked up in files.

Whoever has a range of rows needs the labels of those rows alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.side_files import TRAIN, VAL

Labels = NDArray[np.signedinteger[Any]]
Indices = NDArray[np.int64]
NOBODY = -1
"""The label of a row in no part."""


class RowLabels(Protocol):
    """Labels of the rows of a dataset."""

    def of(self, first: int, count: int) -> Labels:
        """The labels of `count` rows from `first` on."""

    def for_rows(self, first: int, count: int) -> RowLabels:
        """What to send to whoever has these rows, and needs no others."""


@dataclass(frozen=True)
class LabelsInMemory:
    """Labels of all rows."""

    labels: Labels

    def of(self, first: int, count: int) -> Labels:
        """A slice."""
        return self.labels[first : first + count]

    def for_rows(self, first: int, count: int) -> RowLabels:
        """Only these rows, packed."""
        part = np.ascontiguousarray(self.of(first, count))
        return PackedLabels(first, part.dtype.str, zlib.compress(part.tobytes(), 1))


@dataclass(frozen=True)
class PackedLabels:
    """Labels of some rows, made small for the way."""

    first: int
    dtype: str
    packed: bytes

    def of(self, first: int, count: int) -> Labels:
        """Unpack."""
        every: Labels = np.frombuffer(zlib.decompress(self.packed), np.dtype(self.dtype))
        return every[first - self.first : first - self.first + count]

    def for_rows(self, first: int, count: int) -> RowLabels:
        """Itself."""
        return self


@dataclass(frozen=True)
class FileStamp:
    """A file as it was when its content was checked."""

    path: Path
    bytes: int
    changed: int

    @classmethod
    def of(cls, path: Path) -> FileStamp:
        """Look at a file; its path is made absolute, so that it means the same elsewhere."""
        found = path.stat()
        return cls(path.resolve(), found.st_size, found.st_mtime_ns)

    @property
    def is_here(self) -> bool:
        """Whether whoever asks sees the same file."""
        try:
            return FileStamp.of(self.path) == self
        except OSError:
            return False


@dataclass(frozen=True)
class LabelFiles:
    """Files that were found right, from which the labels of a few rows can be read without the others.

    Attributes
    ----------
    kind : `sides`, ascending rows of training and of
        validation as NPY; `folds`, the fold of every row as NPY.
    """

    kind: str
    stamps: tuple[FileStamp, ...]

    @property
    def are_here(self) -> bool:
        """Whether whoever asks can read them."""
        return all(stamp.is_here for stamp in self.stamps)

    def of(self, first: int, count: int) -> Labels:
        """Read the labels of some rows."""
        paths = [stamp.path for stamp in self.stamps]
        if self.kind == "folds":
            found = np.load(paths[0], mmap_mode="r", allow_pickle=False)[first : first + count]
            return np.asarray(found, dtype=np.int32)
        labels = np.full(count, NOBODY, dtype=np.int8)
        for path, side in zip(paths, (TRAIN, VAL), strict=True):
            rows = np.load(path, mmap_mode="r", allow_pickle=False)
            here = slice(*np.searchsorted(rows, [first, first + count]))
            labels[rows[here] - first] = side
        return labels

    def for_rows(self, first: int, count: int) -> RowLabels:
        """Itself: whoever has the rows reads them."""
        return self


def files_of_sides(directory: Path, formats: Sequence[str]) -> LabelFiles | None:
    """The files of a run in two sides from which a range of rows can be read; None if it has none such."""
    return files_of_pair(directory / "train.npy", directory / "val.npy") if "npy" in formats else None


def files_of_pair(train: Path, val: Path) -> LabelFiles | None:
    """Two NPY files of ascending rows; None if they are of another format."""
    if train.suffix != ".npy" or val.suffix != ".npy":
        return None
    return LabelFiles("sides", (FileStamp.of(train), FileStamp.of(val)))


def files_of_folds(directory: Path, formats: Sequence[str]) -> LabelFiles | None:
    """The fold of every row as NPY; None if the run has no such file."""
    return LabelFiles("folds", (FileStamp.of(directory / "folds.npy"),)) if "npy" in formats else None


def labels_of(parts: Mapping[str, Indices], n_rows: int) -> LabelsInMemory:
    """The number of every row's part; rows that do not exist are left out, later parts win."""
    labels = np.full(n_rows, NOBODY, dtype=np.min_scalar_type(-len(parts)))
    for number, rows in enumerate(parts.values()):
        labels[rows[(rows >= 0) & (rows < n_rows)]] = number
    return LabelsInMemory(labels)
