"""The validated arrays that the rest of the program works on; no input or output here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = str | int | bool
MEDIAN = "median"
"""How missing features may be filled."""


@dataclass(frozen=True)
class Categories:
    """One categorical column: `values[codes[i]]` is the value at row i.

    `values` are the distinct values that occur, sorted (numbers by size, text by code point).
    """

    codes: NDArray[np.int32]
    values: tuple[Value, ...]


@dataclass(frozen=True)
class InputFile:
    """One file that was read, so that a report can say exactly what a split was made from."""

    path: str
    role: str  # features | label | domain | metadata | force-train | force-val | target
    bytes: int
    sha256: str | None  # None for a file behind a URL


@dataclass(frozen=True)
class TargetRows:
    """Rows of where a model will be used: they go to neither side.

    Attributes
    ----------
    features : (m, d), the same features as those of the rows that are split, all finite.
    name : as the user named them.
    n_rows : how many there are; of many, `features` holds a seeded sample.
    read_from : returns every file that only they are in, as that of a dataset does.
    """

    features: NDArray[np.floating[Any]]
    name: str
    n_rows: int
    read_from: Callable[[], tuple[InputFile, ...]] = tuple


@dataclass(frozen=True)
class Dataset:
    """The rows taking part in a split.

    Attributes
    ----------
    features : (n, d) float16, float32 or float64, C-contiguous, all finite; or sparse, in canonical CSR form.
    feature_names : the d column names (`embedding[0]`, ... for a list column, `0`, ... for a plain array).
    feature_columns : the source columns they came from, as the report lists them.
    categories : the columns that form cells, by the word the user called them (`label`, `domain`, a name).
    rows : (n,) int64, ascending; position of each row in the input, before exclusions and dropped rows.
    n_rows : number of rows in the input.
    n_excluded, n_dropped : rows left out by request, and rows dropped because they were not finite.
    dropped : (n_dropped,) int64, the positions of the latter.
    families : the categories of each family of cells; empty: one family of all categories.
    together : what keeps rows together: the name of a column, `EXACT_DUPLICATES`, or a `Nearness` as text;
        None: nothing.
    units : (n,) the unit of every row if a column says so.
    pinned : (n,) 0 and 1 for a row forced into training or validation, -1 for the others; None: all are free.
    target : the rows of where a model will be used, if they were given.
    pairs : what was given of all pairs of rows, from which the features were made; None: features were given.
    ids : the id column for *all* `n_rows` rows (a pyarrow Array), or None.
    id_name : its name.
    read_from : returns every file read, which may have to wait for its hash.
    notes : (code, message) warnings found while reading.
    """

    features: NDArray[np.floating[Any]]
    feature_names: tuple[str, ...]
    feature_columns: tuple[str, ...]
    categories: Mapping[str, Categories]
    rows: NDArray[np.int64]
    n_rows: int
    n_excluded: int = 0
    n_dropped: int = 0
    ids: Any = None
    id_name: str | None = None
    read_from: Callable[[], tuple[InputFile, ...]] = tuple
    notes: tuple[tuple[str, str], ...] = ()
    dropped: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    families: tuple[tuple[str, ...], ...] = ()
    together: str | None = None
    units: NDArray[np.int64] | None = None
    pinned: NDArray[np.int8] | None = None
    target: TargetRows | None = None
    pairs: str | None = None

    @cached_property
    def files(self) -> tuple[InputFile, ...]:
        """Every file read.

        Raises
        ------
        InputError : one of them has changed before its content could be hashed.
        """
        return self.read_from()

    @property
    def extent(self) -> Extent:
        """The size of the features."""
        n, d = self.features.shape
        stored = None
        sparse: Any = self.features
        if hasattr(sparse, "indptr"):
            stored = sum(array.nbytes for array in (sparse.data, sparse.indices, sparse.indptr))
        return Extent(n, d, self.features.dtype.itemsize, stored)


@dataclass(frozen=True)
class ReadRequest:
    """What to read, in the words of the command line. `None` means "the user did not say"."""

    path: Path
    columns: tuple[str, ...] = ()
    label: str | None = None
    domain: str | None = None
    label_file: Path | None = None
    domain_file: Path | None = None
    metadata: Path | None = None
    stratify: tuple[str, ...] | None = None  # column words of all families; () means total size only
    families: tuple[tuple[str, ...], ...] = ()  # the words of each family; () means one family
    exclude: tuple[tuple[str, str], ...] = ()  # (column word, value as text)
    id_column: str | None = None
    drop_invalid: bool = False
    impute: str = "none"  # or MEDIAN: what is missing is taken for the median of its column
    label_bins: int | None = None  # cut the label's numbers into that many quantile bins
    together: str | None = None  # column word, EXACT_DUPLICATES, or near-duplicates=SIMILARITY
    force_train: Path | None = None
    force_val: Path | None = None
    target: str | None = None  # a file, or domain=NAME
    pairs: str | None = None  # similarities or distances: the features are of all pairs of rows

    @property
    def target_domain(self) -> str | None:
        """The domain whose rows are the target, if they are rows of the features."""
        word, separator, name = (self.target or "").partition("=")
        return name if separator and word == "domain" else None

    @property
    def target_file(self) -> Path | None:
        """The file that holds the target's rows, if it is one."""
        return None if self.target is None or self.target_domain is not None else Path(self.target)

    @property
    def left_out(self) -> tuple[tuple[str, str], ...]:
        """Column words and values of the rows that go to neither side."""
        name = self.target_domain
        return self.exclude if name is None else (*self.exclude, ("domain", name))


@dataclass(frozen=True)
class ColumnUse:
    """A column of an input, its type in the file's own words, and what it is used for."""

    name: str
    type_name: str
    use: str  # feature | label | domain | cells | exclude | id | unused


@dataclass(frozen=True)
class Extent:
    """The size of the features before they are read; None where only reading can tell.

    `stored` is the bytes that sparse features take in memory, which is less than rows times features.
    """

    n_rows: int | None
    n_features: int | None
    itemsize: int | None
    stored: int | None = None
