"""The passes over a shard, each as an object that can be sent to where the shard is.

What a task returns never grows with the rows of the shard, but for what `Gather` and `Identities` are asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.prices import Margins, Nearest
from clustersplit_cli.core.assignment.thresholds import Interval, Keys, ordered_keys
from clustersplit_cli.core.duplicates import row_identity_keys
from clustersplit_cli.core.exact_sum import ExactSum
from clustersplit_cli.core.geometry.features import Floats, Step
from clustersplit_cli.core.parallel import tiles
from clustersplit_cli.data.side_files import DROPPED, EXCLUDED
from clustersplit_cli.engines.rules import ByThreshold, Differences, Distances, KeySource, Rule
from clustersplit_cli.engines.shard import CONVERTED_ROWS, SUM_ROWS, Account, Shard
from clustersplit_cli.engines.survey import Found

Result_co = TypeVar("Result_co", covariant=True)
NOTHING = slice(0, 0)


class Task(Protocol[Result_co]):
    """Something to do with every shard."""

    @property
    def label(self) -> str:
        """What it is called while it runs."""

    def __call__(self, shard: Shard) -> Result_co:
        """Do it."""


@dataclass(frozen=True)
class Survey:
    """The first pass; without a shift, the columns' statistics are left out."""

    shift: NDArray[np.float64] | None = None
    steps: tuple[Step, ...] = ()
    label: str = "survey"

    def __call__(self, shard: Shard) -> Found:
        """Look at all rows."""
        return shard.survey(self.shift, self.steps)


@dataclass(frozen=True)
class Gather:
    """Raw rows, and their cells, by their numbers among all that take part."""

    wanted: NDArray[np.int64]
    label: str = "sample"

    def __call__(self, shard: Shard) -> tuple[NDArray[np.int64], Floats, NDArray[np.integer[Any]]]:
        """Read the rows that are here."""
        places, rows = shard.gather(self.wanted)
        return places, rows, shard.codes[self.wanted[places] - shard.offset]


@dataclass(frozen=True)
class Chosen:
    """The numbers of the rows that a rule chooses; for rules that choose a sample."""

    rule: Rule
    label: str = "sample"

    def __call__(self, shard: Shard) -> NDArray[np.int64]:
        """Ascending."""
        parts = [shard.numbers(rows)[self.rule.members(shard, rows)[:, 0]] for rows in shard.slices()]
        return np.concatenate([np.empty(0, np.int64), *parts])


@dataclass(frozen=True)
class Score:
    """One pass over the factors that gives every row its witness, which stays where the row is."""

    weights: NDArray[np.float64]
    label: str = "score"

    def __call__(self, shard: Shard) -> None:
        """Score the rows that are here."""
        shard.scores(self.weights)


@dataclass(frozen=True)
class CountKeys:
    """Count keys in the bins of intervals."""

    source: KeySource
    interval: Interval
    label: str = "select"

    def __call__(self, shard: Shard) -> NDArray[np.int64]:
        """Shape (cells, columns, bins)."""
        self.source.keys(shard, NOTHING)  # what all slices need is made once, before they run side by side

        def one(rows: slice) -> NDArray[np.int64]:
            return self.interval.count(self.source.keys(shard, rows), shard.codes[rows])

        return _sum(shard, one, (*self.interval.low.shape, 0))


@dataclass(frozen=True)
class CountOnEdge:
    """Count the numbers of the rows whose keys are on given edges, in the bins of intervals."""

    source: KeySource
    edges: Keys
    interval: Interval
    label: str = "select"

    def __call__(self, shard: Shard) -> NDArray[np.int64]:
        """Shape (cells, columns, bins)."""
        self.source.keys(shard, NOTHING)

        def one(rows: slice) -> NDArray[np.int64]:
            codes, keys = shard.codes[rows], self.source.keys(shard, rows)
            numbers = shard.numbers(rows).astype(np.uint64)
            on_edge = keys == self.edges[codes]
            # A row that is not on an edge gets a number that is in no bin.
            return self.interval.count(np.where(on_edge, numbers[:, None], np.uint64(2**64 - 1)), codes)

        return _sum(shard, one, (*self.interval.low.shape, 0))


@dataclass(frozen=True)
class CountNegative:
    """Count the rows of every cell with a difference below zero, in each column."""

    source: Differences
    n_cells: int
    label: str = "select"

    def __call__(self, shard: Shard) -> NDArray[np.int64]:
        """Shape (cells, columns)."""
        self.source.keys(shard, NOTHING)
        zero = ordered_keys(np.zeros(1))[0]

        def one(rows: slice) -> NDArray[np.int64]:
            negative = self.source.keys(shard, rows) < zero
            return count_by_cell(negative, shard.codes[rows], self.n_cells)

        return _sum(shard, one, (self.n_cells, self.source.n_columns))


@dataclass(frozen=True)
class SideSums:
    """Sums of F over the validation rows of some splits, and their counts per cell.

    Attributes
    ----------
    factors : shape (p, splits), with one more for all rows if asked for.
    counts : (cells, splits)
    """

    factors: ExactSum
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class SumSides:
    """One pass over the factors."""

    rule: Rule
    n_cells: int
    with_total: bool = False
    label: str = "sum"

    def __call__(self, shard: Shard) -> SideSums:
        """Sum over the rows that are here."""
        plan = shard.plan
        assert plan is not None
        self.rule.members(shard, NOTHING)
        n_splits = self.rule.n_columns
        total = ExactSum((plan.width, n_splits + self.with_total))
        counts = np.zeros((self.n_cells, n_splits), dtype=np.int64)
        for rows, block in shard.blocks():
            members = self.rule.members(shard, rows)
            counts += count_by_cell(members, shard.codes[rows], self.n_cells)
            chosen = members.astype(np.float64)
            if self.with_total:
                chosen = np.append(chosen, np.ones((len(block), 1)), axis=1)

            def one(
                tile: tuple[int, int], block: Floats = block, chosen: NDArray[np.float64] = chosen
            ) -> NDArray[np.float64]:
                part = np.zeros(total.shape)
                for first in range(tile[0], tile[1], CONVERTED_ROWS):
                    piece = slice(first, min(first + CONVERTED_ROWS, tile[1]))
                    part += plan.factors(block[piece]).T @ chosen[piece]
                return part

            for part in shard.workers.map(one, tiles(len(block), SUM_ROWS)):
                total.add(part)
            shard.on_rows(len(block))
        return SideSums(total, counts)


@dataclass(frozen=True)
class FactorMoments:
    """For the factors B = F M: B'B and the sum of B's rows over each cell, in one pass."""

    mixing: NDArray[np.float64] | None
    n_cells: int
    label: str = "bound"

    def __call__(self, shard: Shard) -> tuple[ExactSum, ExactSum]:
        """Shapes (r, r) and (cells, r)."""
        plan = shard.plan
        assert plan is not None
        # As `FactorGeometry.factor_moments` does: the kernel's own precision is enough for a bound.
        dtype = np.dtype(plan.stored if plan.centres is not None else plan.dtype)
        mixing = None if self.mixing is None else self.mixing.astype(dtype)
        width = plan.width if mixing is None else mixing.shape[1]
        gram, sums = ExactSum((width, width)), ExactSum((self.n_cells, width))
        for rows, block in shard.blocks():
            codes = shard.codes[rows]

            def one(
                tile: tuple[int, int], block: Floats = block, codes: NDArray[np.integer[Any]] = codes
            ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
                piece = plan.factors(block[slice(*tile)]).astype(dtype)
                if mixing is not None:
                    piece = piece @ mixing
                cells = codes[slice(*tile)]
                present, place = np.unique(cells, return_inverse=True)
                which = np.zeros((len(present), len(piece)), dtype=dtype)
                which[place.reshape(-1), np.arange(len(piece))] = 1
                by_cell = np.zeros((self.n_cells, width))
                by_cell[present] = which @ piece
                return np.asarray(piece.T @ piece, np.float64), by_cell

            for gram_part, sum_part in shard.workers.map(one, tiles(len(block), SUM_ROWS)):
                gram.add(gram_part)
                sums.add(sum_part)
            shard.on_rows(len(block))
        return gram, sums


def count_by_cell(
    chosen: NDArray[np.bool_], codes: NDArray[np.integer[Any]], n_cells: int
) -> NDArray[np.int64]:
    """Count the chosen rows of every cell: shapes (n, columns), (n,) -> (cells, columns)."""
    columns = [np.bincount(codes[column], minlength=n_cells) for column in chosen.T]
    return np.stack(columns, axis=1).astype(np.int64)


def _sum(shard: Shard, one: Any, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Add up what all slices give."""
    total: NDArray[np.int64] | None = None
    for part in shard.workers.map(one, shard.slices()):
        total = part if total is None else total + part
    return np.zeros(shape, np.int64) if total is None else total


@dataclass(frozen=True)
class CountMargins:
    """Count what rows' second cheapest parts cost more than their cheapest."""

    distances: Distances
    margins: Margins
    label: str = "prices"

    def __call__(self, shard: Shard) -> NDArray[np.int64]:
        """Shape (cells, parts, parts, bins)."""
        shard.scores(self.distances.weights)

        def one(rows: slice) -> NDArray[np.int64]:
            return self.margins.count(self.distances.costs(shard, rows), shard.codes[rows])

        n_cells, k = self.margins.prices.shape
        return _sum(shard, one, (n_cells, k, k, self.margins.n_bins + 1))


@dataclass(frozen=True)
class NearPrices:
    """The costs of the rows that may have to move where parts do not have their quotas yet."""

    distances: Distances
    prices: NDArray[np.float64]
    wanted: NDArray[np.int64]
    label: str = "prices"

    def __call__(self, shard: Shard) -> Nearest:
        """Of the rows that are here."""
        shard.scores(self.distances.weights)

        def one(rows: slice) -> Nearest:
            codes = shard.codes[rows].astype(np.int64)
            near = Nearest(shard.numbers(rows), codes, self.distances.costs(shard, rows))
            return near.nearest(self.prices, self.wanted)

        return Nearest.joined(list(shard.workers.map(one, shard.slices())), self.prices.shape[1])


@dataclass(frozen=True)
class NearThreshold:
    """Rows within a distance of their cell's threshold, where such rows are on both sides of it."""

    rule: ByThreshold
    low: Keys
    high: Keys
    label: str = "ties"

    def __call__(self, shard: Shard) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Their numbers, cells and sides."""
        self.rule.members(shard, NOTHING)
        column = self.rule.column or 0

        def one(rows: slice) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
            codes = shard.codes[rows]
            key = self.rule.source.keys(shard, rows)[:, column]
            near = np.flatnonzero((key >= self.low[codes]) & (key <= self.high[codes]))
            sides = self.rule.members(shard, rows)[near, 0]
            return shard.numbers(rows)[near], codes[near].astype(np.int64), sides

        parts = list(shard.workers.map(one, shard.slices()))
        if not parts:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, bool)
        numbers, cells, sides = (np.concatenate(part) for part in zip(*parts, strict=True))
        return numbers, cells, sides


@dataclass(frozen=True)
class Identities:
    """Numbers that equal rows share, for some rows."""

    wanted: NDArray[np.int64]
    label: str = "ties"

    def __call__(self, shard: Shard) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Places in `wanted` of the rows that are here, and their numbers."""
        places, rows = shard.gather(self.wanted)
        return places, row_identity_keys(rows)


@dataclass(frozen=True)
class Ranked:
    """The numbers of the rows of every part by their rank, counted from this shard's first."""

    rule: Rule
    ranks: tuple[tuple[NDArray[np.int64], ...], ...]
    label: str = "subsample"

    def __call__(self, shard: Shard) -> tuple[NDArray[np.int64], ...]:
        """Numbers of the ranks that are given for this shard, for all parts."""
        self.rule.parts(shard, NOTHING)
        mine = self.ranks[shard.portion.number]
        found: list[list[NDArray[np.int64]]] = [[] for _ in mine]
        seen = [0] * len(mine)
        for rows in shard.slices():
            parts, numbers = self.rule.parts(shard, rows), shard.numbers(rows)
            for part in range(len(mine)):
                here = numbers[parts == part]
                ranks = mine[part] - seen[part]
                found[part].append(here[ranks[(ranks >= 0) & (ranks < len(here))]])
                seen[part] += len(here)
        return tuple(np.concatenate([np.empty(0, np.int64), *parts]) for parts in found)


@dataclass(frozen=True)
class CountParts:
    """How many rows of a shard go to each of k parts; of a split, to training and to validation."""

    rule: Rule
    k: int
    label: str = "count"

    def __call__(self, shard: Shard) -> NDArray[np.int64]:
        """Count."""
        self.rule.parts(shard, NOTHING)
        counts = np.zeros(self.k, np.int64)
        for rows in shard.slices():
            parts = self.rule.parts(shard, rows)
            counts += np.bincount(parts[parts >= 0].astype(np.int64), minlength=self.k)[: self.k]
        return counts


@dataclass(frozen=True)
class Sides:
    """The side of every row of the input: a byte each, for index files."""

    rule: Rule
    label: str = "write"

    def __call__(self, shard: Shard) -> NDArray[np.uint8]:
        """Shape (rows before any are left out,)."""
        self.rule.members(shard, NOTHING)
        sides = np.full(shard.portion.n_rows, EXCLUDED, dtype=np.uint8)
        sides[shard.rows.dropped] = DROPPED
        kept = np.empty(shard.n_kept, dtype=np.uint8)
        for rows in shard.slices():
            kept[rows] = self.rule.parts(shard, rows)
        sides[shard.rows.kept] = kept
        return sides


@dataclass(frozen=True)
class Accounts:
    """What the passes so far took."""

    label: str = "account"

    def __call__(self, shard: Shard) -> tuple[Account, str | None, int]:
        """The account, where factors are kept, and their bytes."""
        return shard.account, shard.place, shard.stored_bytes
