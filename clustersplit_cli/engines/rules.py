"""A split as a rule: who is chosen follows from numbers that do not grow with the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

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
        """Validation rows among some rows, of shape (rows, splits)."""


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


@dataclass(frozen=True)
class Labelled:
    """Rows whose labels, which the shards were given, say so."""

    wanted: int = VAL
    n_columns: int = 1

    def members(self, shard: Shard, rows: slice) -> NDArray[np.bool_]:
        """Look the labels up."""
        return np.asarray(shard.labels(rows) == self.wanted)[:, None]
