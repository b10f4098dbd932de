"""A split as a rule: who is chosen follows from numbers that do not grow with the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.prices import PricedParts
from clustersplit_cli.core.assignment.thresholds import Keys, Thresholds, ordered_keys
from clustersplit_cli.core.severity import blended, normal
from clustersplit_cli.data.side_files import VAL
from clustersplit_cli.engines.shard import Shard


class KeySource(Protocol):
    """Gives every row a key in each of some columns; the smallest of a cell are chosen."""

    @property
    def n_columns(self) -> int:
        """Number of columns."""

    def keys(self, shard: Shard, rows: slice) -> Keys:
        """Keys of some rows, of shape (rows, columns)."""


@dataclass(frozen=True)
class Differences:
    """Squared distance to the validation centroid minus that to the training one, of r splits.

    There are 2r columns: the r splits, and then the same with the centroids' parts exchanged.

    Attributes
    ----------
    weights : (p, r), the witness of row i is F_i @ weights.
    shift : (r,), squared lengths of the validation centroids minus those of the training ones.
    """

    weights: NDArray[np.float64]
    shift: NDArray[np.float64]

    @property
    def n_columns(self) -> int:
        """Both orientations of every split."""
        return 2 * len(self.shift)

    def values(self, shard: Shard, rows: slice) -> NDArray[np.float64]:
        """The differences, of shape (rows, r)."""
        return np.asarray(-2.0 * shard.scores(self.weights)[rows] + self.shift)

    def keys(self, shard: Shard, rows: slice) -> Keys:
        """The differences and their negatives."""
        values = self.values(shard, rows)
        return ordered_keys(np.concatenate([values, -values], axis=1))


@dataclass(frozen=True)
class Uniform:
    """Independent random numbers, one stream per column: the very ones that all rows at once would get."""

    states: tuple[Any, ...]

    @classmethod
    def of(cls, streams: Sequence[np.random.Generator]) -> Uniform:
        """Take over streams as they are now."""
        return cls(tuple(stream.bit_generator.state for stream in streams))

    @property
    def n_columns(self) -> int:
        """One per stream."""
        return len(self.states)

    def keys(self, shard: Shard, rows: slice) -> Keys:
        """Skip to the first row, and draw."""
        return ordered_keys(np.stack([uniform(state, shard, rows) for state in self.states], axis=1))


@dataclass(frozen=True)
class Blended:
    """What leads to the best split, blended with chance: a column for every share of the former.

    Attributes
    ----------
    weights : (p, 1), the witness of row i is F_i @ weights.
    spreads : (cells,), standard deviations of the witness within cells.
    state : of the stream that all rows at once would draw their noise from.
    """

    weights: NDArray[np.float64]
    spreads: NDArray[np.float64]
    state: Any
    shares: tuple[float, ...]

    @property
    def n_columns(self) -> int:
        """One per share."""
        return len(self.shares)

    def keys(self, shard: Shard, rows: slice) -> Keys:
        """Costs: the smallest of a cell are chosen."""
        witness = shard.scores(self.weights)[rows, 0] / self.spreads[shard.codes[rows]]
        noise = normal(uniform(self.state, shard, rows))
        return ordered_keys(blended(-witness, noise, self.shares))


def uniform(state: Any, shard: Shard, rows: slice) -> NDArray[np.float64]:
    """Random numbers of some rows: those that all rows at once would get from the stream."""
    source = np.random.PCG64()
    source.state = state
    source.advance(shard.offset + rows.start)
    return np.asarray(np.random.Generator(source).random(rows.stop - rows.start))


class Rule(Protocol):
    """Says of every row whether it is a validation row, in each of some splits."""

    @property
    def n_columns(self) -> int:
        """Number of splits."""

    def members(self, shard: Shard, rows: slice) -> NDArray[np.bool_]:
        """Validation rows among some rows, of shape (rows, splits); of parts a column for each."""

    def parts(self, shard: Shard, rows: slice) -> NDArray[np.integer[Any]]:
        """The part of some rows, of shape (rows,): of a split, 1 for validation."""


@dataclass(frozen=True)
class ByThreshold:
    """Rows whose keys lie below their cell's threshold, in one or all columns of a source.

    Attributes
    ----------
    column : the column of the source; None for all.
    moved : rows near a threshold that are on another side than it says, by number, and that side.
    """

    source: KeySource
    thresholds: Thresholds
    column: int | None = None
    moved: tuple[NDArray[np.int64], NDArray[np.bool_]] | None = None

    @property
    def n_columns(self) -> int:
        """One, or as many as the source has."""
        return self.source.n_columns if self.column is None else 1

    def members(self, shard: Shard, rows: slice) -> NDArray[np.bool_]:
        """Compare keys with thresholds."""
        chosen = self.thresholds.choose(self.source.keys(shard, rows), shard.codes[rows], shard.numbers(rows))
        if self.column is not None:
            chosen = chosen[:, [self.column]]
        if self.moved is not None:
            numbers, sides = self.moved
            first = shard.offset + rows.start
            here = slice(*np.searchsorted(numbers, [first, shard.offset + rows.stop]))
            chosen[numbers[here] - first, 0] = sides[here]
        return chosen

    def parts(self, shard: Shard, rows: slice) -> NDArray[np.integer[Any]]:
        """The side of some rows."""
        return self.members(shard, rows)[:, 0].astype(np.uint8)


@dataclass(frozen=True)
class Labelled:
    """Rows whose labels, which the shards were given, say so."""

    wanted: int = VAL
    n_columns: int = 1

    def members(self, shard: Shard, rows: slice) -> NDArray[np.bool_]:
        """Look the labels up."""
        return np.asarray(shard.labels(rows) == self.wanted)[:, None]

    def parts(self, shard: Shard, rows: slice) -> NDArray[np.integer[Any]]:
        """The label of some rows."""
        return np.asarray(shard.labels(rows))


@dataclass(frozen=True)
class Distances:
    """Squared distances of every row to k centroids, but for the row's own length.

    Attributes
    ----------
    weights : (p, k), the inner product of row i with a centroid is F_i @ weights.
    lengths : (k,), squared lengths of the centroids.
    ties, n : what the last part costs the last of n rows more than the first: rows that cost the same go by
        their numbers.
    """

    weights: NDArray[np.float64]
    lengths: NDArray[np.float64]
    ties: float
    n: int

    def costs(self, shard: Shard, rows: slice) -> NDArray[np.float64]:
        """Of some rows, shape (rows, k)."""
        k = len(self.lengths)
        later = self.ties / max(k - 1, 1) * (shard.numbers(rows) / self.n)
        near = self.lengths - 2.0 * shard.scores(self.weights)[rows]
        return np.asarray(near + later[:, None] * np.arange(k))


@dataclass(frozen=True)
class Worth:
    """What one part would save every row, of which those that gain most are chosen; prices are (cells, k)."""

    distances: Distances
    prices: NDArray[np.float64]
    part: int
    n_columns: int = 1

    def keys(self, shard: Shard, rows: slice) -> Keys:
        """The part's cost less the least other one."""
        costs = self.distances.costs(shard, rows)
        own = costs[:, self.part].copy()
        costs += self.prices[shard.codes[rows]]
        costs[:, self.part] = np.inf
        return ordered_keys((own - costs.min(axis=1))[:, None])


@dataclass(frozen=True)
class ByPrices:
    """Parts: every row goes where it is cheapest with its cell's price, but for some that are named."""

    distances: Distances
    found: PricedParts

    @property
    def n_columns(self) -> int:
        """One for each part."""
        return len(self.distances.lengths)

    def parts(self, shard: Shard, rows: slice) -> NDArray[np.integer[Any]]:
        """Compare costs with prices."""
        found = self.found
        total = self.distances.costs(shard, rows)
        total += found.prices[shard.codes[rows]]
        sent: NDArray[np.int64] = total.argmin(axis=1)
        first = shard.offset + rows.start
        here = slice(*np.searchsorted(found.numbers, [first, shard.offset + rows.stop]))
        sent[found.numbers[here] - first] = found.parts[here]
        return sent

    def members(self, shard: Shard, rows: slice) -> NDArray[np.bool_]:
        """A column for each part."""
        return np.asarray(self.parts(shard, rows)[:, None] == np.arange(self.n_columns))


@dataclass(frozen=True)
class LabelledParts:
    """Parts that the shards were given as labels."""

    k: int

    @property
    def n_columns(self) -> int:
        """One for each part."""
        return self.k

    def parts(self, shard: Shard, rows: slice) -> NDArray[np.integer[Any]]:
        """The label of some rows."""
        return np.asarray(shard.labels(rows))

    def members(self, shard: Shard, rows: slice) -> NDArray[np.bool_]:
        """A column for each part."""
        return np.asarray(self.parts(shard, rows)[:, None] == np.arange(self.k))


@dataclass(frozen=True)
class RandomParts:
    """Parts drawn at random, k for each of some streams: rows of a cell by the order of random numbers.

    Attributes
    ----------
    thresholds : of columns that are the k - 1 cuts of each stream.
    """

    source: Cuts
    thresholds: Thresholds

    @property
    def n_columns(self) -> int:
        """One for each part of each stream."""
        return self.source.n_columns + len(self.source.uniform.states)

    def members(self, shard: Shard, rows: slice) -> NDArray[np.bool_]:
        """A column for each part, stream after stream."""
        below = self.thresholds.choose(self.source.keys(shard, rows), shard.codes[rows], shard.numbers(rows))
        below = below.reshape(len(below), len(self.source.uniform.states), self.source.count)
        first = np.zeros((*below.shape[:2], 1), dtype=bool)
        upper = np.concatenate([below, ~first], axis=2)
        inside = upper & ~np.concatenate([first, below], axis=2)
        return np.asarray(inside.reshape(len(below), self.n_columns))

    def parts(self, shard: Shard, rows: slice) -> NDArray[np.integer[Any]]:
        """The part of some rows, by the first stream."""
        return np.asarray(self.members(shard, rows)[:, : self.source.count + 1].argmax(axis=1))


@dataclass(frozen=True)
class Cuts:
    """The same random numbers in several columns, to be cut at several places."""

    uniform: Uniform
    count: int

    @property
    def n_columns(self) -> int:
        """So many for each stream."""
        return self.uniform.n_columns * self.count

    def keys(self, shard: Shard, rows: slice) -> Keys:
        """Every stream's numbers, `count` times."""
        return np.repeat(self.uniform.keys(shard, rows), self.count, axis=1)
