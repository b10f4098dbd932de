"""The first pass over some row groups: which rows take part, their cells, and what the columns are like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.exact_sum import ExactSum
from clustersplit_cli.core.geometry.features import BLOCK_BYTES, Features, Moments, Step
from clustersplit_cli.core.parallel import Workers, tiles
from clustersplit_cli.data.readers.categories import group_values, marked_rows
from clustersplit_cli.data.readers.matrix import Invalid
from clustersplit_cli.data.readers.naming import listed
from clustersplit_cli.data.row_groups import Batch, Layout

_SHOWN = 6


@dataclass
class ColumnSums:
    """Sums over rows of each column's distance from a shift, and its square; the extremes.

    The shift is near the data, so that squares do not cancel, and one of its values, so that a constant
    column has sums of exactly zero.
    """

    shift: NDArray[np.float64]
    first: ExactSum
    second: ExactSum
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    overflows: bool = False

    @classmethod
    def around(cls, shift: NDArray[np.float64]) -> ColumnSums:
        """Nothing summed so far."""
        d = len(shift)
        return cls(shift, ExactSum((d,)), ExactSum((d,)), np.full(d, np.inf), np.full(d, -np.inf))

    def add(self, features: Features, workers: Workers) -> None:
        """Add rows."""
        n, d = features.shape

        def one(tile: tuple[int, int]) -> tuple[NDArray[np.float64], ...]:
            block = np.asarray(features.block(*tile, dtype=np.float64), dtype=np.float64)
            low, high = block.min(axis=0), block.max(axis=0)
            with np.errstate(over="ignore"):
                block -= self.shift
                return block.sum(axis=0), np.einsum("ij,ij->j", block, block), low, high

        for first, second, low, high in workers.map(one, tiles(n, max(1, BLOCK_BYTES // (8 * d)))):
            np.minimum(self.low, low, out=self.low)
            np.maximum(self.high, high, out=self.high)
            if not np.isfinite(second).all():
                self.overflows = True
                continue
            self.first.add(first)
            self.second.add(second)

    def moments(self, n: int) -> Moments:
        """Means, standard deviations and the largest absolute entry of n rows."""
        offset = self.first.total() / n
        square = np.maximum(self.second.total() / n - offset**2, 0.0)
        deviation = np.where(self.high > self.low, np.sqrt(square), 0.0)
        largest = float(max(np.abs(self.low).max(), np.abs(self.high).max()))
        mean = self.shift + offset
        if self.overflows:
            deviation = np.full_like(deviation, np.inf)
        with np.errstate(over="ignore"):
            reach = self.high - self.low
        return Moments(
            mean,
            deviation,
            largest,
            rest=(self.shift - mean) + offset,
            reach=reach,
            lowest=float(self.low.min()),
        )

    def merge(self, other: ColumnSums) -> None:
        """Add the sums of other rows."""
        self.first.merge(other.first)
        self.second.merge(other.second)
        self.overflows |= other.overflows
        np.minimum(self.low, other.low, out=self.low)
        np.maximum(self.high, other.high, out=self.high)


@dataclass
class Found:
    """What a survey tells: counts, cells and sums, but no rows.

    Attributes
    ----------
    n_kept : rows that take part.
    cells : the values of the columns that form cells -> rows.
    missing : word -> number of rows without a value, and the first of them.
    n_invalid : rows with features that are not finite, and the first of them in words.
    in_columns, lost : where those rows are dropped, the columns and the cells that they are lost by.
    spelled : place in `Layout.exclude` -> the values that occur, until the one asked for is found.
    columns : what the columns are like; None if nobody asked.
    """

    n_kept: int = 0
    n_excluded: int = 0
    n_invalid: int = 0
    invalid: list[str] = field(default_factory=list)
    in_columns: Invalid | None = None
    lost: dict[tuple[Any, ...], int] = field(default_factory=dict)
    cells: dict[tuple[Any, ...], int] = field(default_factory=dict)
    missing: dict[str, tuple[int, list[int]]] = field(default_factory=dict)
    excluded: list[int] = field(default_factory=list)
    spelled: list[set[str]] = field(default_factory=list)
    columns: ColumnSums | None = None

    def merge(self, other: Found) -> None:
        """Add what another survey found, of later rows."""
        self.n_kept += other.n_kept
        self.n_excluded += other.n_excluded
        self.n_invalid += other.n_invalid
        self.invalid = (self.invalid + other.invalid)[:_SHOWN]
        if self.in_columns is None:
            self.in_columns = other.in_columns
        elif other.in_columns is not None:
            self.in_columns.merge(other.in_columns)
        for cell, count in other.lost.items():
            self.lost[cell] = self.lost.get(cell, 0) + count
        for cell, count in other.cells.items():
            self.cells[cell] = self.cells.get(cell, 0) + count
        for word, (count, rows) in other.missing.items():
            before, first = self.missing.get(word, (0, []))
            self.missing[word] = (before + count, (first + rows)[:_SHOWN])
        self.excluded = [a + b for a, b in zip(self.excluded, other.excluded, strict=True)]
        self.spelled = [a | b for a, b in zip(self.spelled, other.spelled, strict=True)]
        if self.columns is not None and other.columns is not None:
            self.columns.merge(other.columns)


@dataclass(frozen=True)
class ShardRows:
    """What stays where the rows are.

    Attributes
    ----------
    kept : (n,) which rows take part.
    codes : (n_kept,) their cells, as places in `cells`.
    extents : for every batch, its first and last kept row.
    dropped : rows left out because their features are not finite.
    """

    kept: NDArray[np.bool_]
    codes: NDArray[np.int32]
    cells: tuple[tuple[Any, ...], ...]
    extents: tuple[tuple[int, int], ...]
    dropped: NDArray[np.int64]


class Surveyor:
    """Goes through the batches of some row groups."""

    def __init__(
        self, layout: Layout, shift: NDArray[np.float64] | None, steps: tuple[Step, ...], workers: Workers
    ) -> None:
        self._layout, self._steps, self._workers = layout, steps, workers
        self.found = Found(
            excluded=[0] * len(layout.exclude),
            spelled=[set() for _ in layout.exclude],
            columns=None if shift is None else ColumnSums.around(shift),
        )
        self._cells: dict[tuple[Any, ...], int] = {}
        self._kept: list[NDArray[np.bool_]] = []
        self._dropped: list[NDArray[np.int64]] = []
        self._n_seen = 0
        self._codes: list[NDArray[np.int32]] = []

    def take(self, batch: Batch, raw: NDArray[np.floating[Any]]) -> None:
        """Look at one batch and its features."""
        found, layout = self.found, self._layout
        keep = np.ones(batch.n_rows, dtype=bool)
        for place, (_, column, value) in enumerate(layout.exclude):
            marked, spelled = marked_rows(batch.column(column), column, value)
            keep &= ~marked
            found.excluded[place] += int(marked.sum())
            if not found.excluded[place]:
                found.spelled[place] |= set(spelled)
        found.n_excluded += batch.n_rows - int(keep.sum())
        finite = np.isfinite(raw).all(axis=1)
        invalid = np.flatnonzero(keep & ~finite)
        found.n_invalid += len(invalid)
        self._dropped.append(self._n_seen + invalid)
        self._n_seen += batch.n_rows
        if len(invalid) and layout.drop_invalid:
            self._count_dropped(batch, raw, invalid)
        if not layout.drop_invalid:
            found.invalid.extend(self._in_words(batch, raw, invalid[: _SHOWN - len(found.invalid)]))
        keep &= finite
        self._kept.append(keep)
        codes = self._code(batch, keep)
        self._codes.append(codes)
        found.n_kept += len(codes)
        if len(codes) and found.columns is not None:
            rows = raw if keep.all() else raw[keep]
            found.columns.add(Features(rows, self._steps), self._workers)

    def rows(self) -> ShardRows:
        """What stays where the rows are; ends the survey."""
        ends = np.cumsum([0, *(len(codes) for codes in self._codes)])
        codes = np.concatenate(self._codes) if self._codes else np.empty(0, np.int32)
        counts = np.bincount(codes, minlength=len(self._cells))
        self.found.cells = {cell: int(counts[code]) for cell, code in self._cells.items() if counts[code]}
        return ShardRows(
            np.concatenate(self._kept) if self._kept else np.empty(0, bool),
            codes,
            tuple(self._cells),
            tuple(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)),
            np.concatenate([np.empty(0, np.int64), *self._dropped]),
        )

    def _code(self, batch: Batch, keep: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Number the cells of the kept rows in the order in which they first appear."""
        n_kept = int(keep.sum())
        combined = np.zeros(n_kept, dtype=np.int64)
        columns: list[tuple[NDArray[np.int32], NDArray[Any]]] = []
        for word, column in self._layout.family.items():
            codes, values = group_values(batch.column(column), column)
            codes = codes[keep]
            missing = batch.first + np.flatnonzero(keep)[codes < 0]
            if len(missing):
                before, first = self.found.missing.get(word, (0, []))
                self.found.missing[word] = (
                    before + len(missing),
                    (first + missing[:_SHOWN].tolist())[:_SHOWN],
                )
            columns.append((codes, values))
            combined = combined * (len(values) + 1) + codes + 1
            combined = np.unique(combined, return_inverse=True)[1].reshape(n_kept)
        if n_kept == 0:
            return np.empty(0, np.int32)
        _, examples = np.unique(combined, return_index=True)
        numbers = [self._number(columns, row) for row in examples.tolist()]
        return np.array(numbers, dtype=np.int32)[combined]

    def _count_dropped(self, batch: Batch, raw: NDArray[np.floating[Any]], rows: NDArray[np.int64]) -> None:
        """Count the rows that are dropped, by column and by cell."""
        found = self.found
        if found.in_columns is None:
            found.in_columns = Invalid.none(raw.shape[1])
        found.in_columns.add(raw[rows])
        columns = [group_values(batch.column(column), column) for column in self._layout.family.values()]
        codes = np.stack([np.zeros(len(rows), np.int32), *(codes[rows] for codes, _ in columns)], axis=1)
        for (_, *cell), count in zip(
            *map(np.ndarray.tolist, np.unique(codes, axis=0, return_counts=True)), strict=True
        ):
            named = tuple(
                values[code] if code >= 0 else None for (_, values), code in zip(columns, cell, strict=True)
            )
            found.lost[named] = found.lost.get(named, 0) + count

    def _number(self, columns: list[tuple[NDArray[np.int32], NDArray[Any]]], row: int) -> int:
        cell = tuple(values[codes[row]] if codes[row] >= 0 else None for codes, values in columns)
        return self._cells.setdefault(cell, len(self._cells))

    def _in_words(
        self, batch: Batch, raw: NDArray[np.floating[Any]], offenders: NDArray[np.int64]
    ) -> Iterator[str]:
        names = self._layout.feature_names
        for row in offenders.tolist():
            bad = np.flatnonzero(~np.isfinite(raw[row])).tolist()
            yield f"row {batch.first + row} ({listed([names[column] for column in bad], 3)})"
