"""Each cell's cheapest rows without sorting: exact thresholds from histograms that are refined.

A number is turned into an integer that sorts the same way, and the threshold's bits are found a few at a
time: count the rows in every bin of an interval, go to the bin that holds the wanted rank, and repeat.
Counts can be added over any blocks of rows, so that neither rows nor scores have to be brought together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_BITS, FEWEST_BITS = 11, 4
"""Bits of a threshold that one round of counting finds: fewer where cells are many."""
MOST_COUNTS = 1 << 20
KEY_BITS = 64

Keys = NDArray[np.uint64]
Count = Callable[["Interval"], NDArray[np.int64]]
"""Counts the rows of every (cell, column) in every bin of its interval: shape (cells, columns, bins)."""


def ordered_keys(values: NDArray[np.float64]) -> Keys:
    """Integers that sort as the numbers do; both zeros are the same.

    >>> bool((np.diff(ordered_keys(np.array([-2.0, -1.0, 0.0, 1e-300, 3.0]))) > 0).all())
    True
    """
    bits = (values + 0.0).view(np.uint64)
    negative = (bits >> np.uint64(63)).astype(bool)
    return np.where(negative, ~bits, bits | np.uint64(1 << 63))


@dataclass(frozen=True)
class Interval:
    """For every (cell, column) the first key of its bins, each 2^shift keys wide, and whether it matters."""

    low: Keys
    shift: int
    is_open: NDArray[np.bool_]
    n_bins: int

    def count(self, keys: Keys, codes: NDArray[np.integer]) -> NDArray[np.int64]:
        """Count keys of shape (n, columns) whose rows are in the given cells."""
        (n_cells, n_columns), n_bins = self.low.shape, self.n_bins
        counts = np.zeros((n_cells, n_columns, n_bins), dtype=np.int64)
        for column in range(n_columns):
            rows = slice(None) if self.is_open[:, column].all() else self.is_open[codes, column]
            cells = codes[rows].astype(np.int64)
            key, low = keys[rows, column], self.low[cells, column]
            place = (key - low) >> np.uint64(self.shift)
            inside = (key >= low) & (place < n_bins)
            flat = cells[inside] * n_bins + place[inside].astype(np.int64)
            counts[:, column] = np.bincount(flat, minlength=n_cells * n_bins).reshape(n_cells, n_bins)
        return counts


@dataclass(frozen=True)
class Thresholds:
    """Which rows are chosen: those with keys below `edges`, and on it those up to row number `last_rows`.

    Attributes
    ----------
    edges : (cells, columns)
    last_rows : (cells, columns), -1 where no row on the edge is chosen.
    """

    edges: Keys
    last_rows: NDArray[np.int64]

    def choose(self, keys: Keys, codes: NDArray[np.integer], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Apply to keys of shape (n, columns) of rows with the given cells and numbers."""
        edges = self.edges[codes]
        chosen: NDArray[np.bool_] = keys < edges
        if (self.last_rows >= 0).any():
            chosen |= (keys == edges) & (rows[:, None] <= self.last_rows[codes])
        return chosen


@dataclass(frozen=True)
class _Found:
    """Where refining ended: the edges, and how many rows on the edge itself are still wanted."""

    edges: Keys
    on_edge: NDArray[np.int64]


def find_thresholds(
    quotas: NDArray[np.int64], count: Count, count_on_edge: Callable[[Keys, Interval], NDArray[np.int64]]
) -> Thresholds:
    """Find the thresholds that choose exactly `quotas` rows, ties going to the lower row numbers.

    Parameters
    ----------
    quotas : (cells, columns), none larger than its cell.
    count : counts keys.
    count_on_edge : counts row numbers, among the rows whose key is on the given edges.
    """
    found = _refine(quotas, count)
    last_rows = np.full(quotas.shape, -1, dtype=np.int64)
    tied = found.on_edge > 0
    if tied.any():
        rows = _refine(found.on_edge, lambda interval: count_on_edge(found.edges, interval))
        # Row numbers are distinct, so the edge is one past the last row chosen, or the bin's own end.
        last_rows[tied] = (rows.edges[tied] - np.uint64(1)).astype(np.int64)
    return Thresholds(found.edges, last_rows)


def _refine(quotas: NDArray[np.int64], count: Count) -> _Found:
    """Narrow every interval down until its threshold falls between two bins, or on a single key."""
    low = np.zeros(quotas.shape, dtype=np.uint64)
    wanted = quotas.copy()
    is_open = wanted > 0
    shift = KEY_BITS
    bits = min(max((MOST_COUNTS // max(quotas.size, 1)).bit_length() - 1, FEWEST_BITS), MOST_BITS)
    while is_open.any() and shift > 0:
        step = min(bits, shift)
        shift -= step
        counts = count(Interval(low, shift, is_open, 1 << step))
        up_to = np.cumsum(counts, axis=2)
        place = (up_to < wanted[:, :, None]).sum(axis=2)
        place = np.minimum(place, (1 << step) - 1)
        here = np.take_along_axis(counts, place[:, :, None], axis=2)[:, :, 0]
        before = np.take_along_axis(up_to, place[:, :, None], axis=2)[:, :, 0] - here
        low = np.where(is_open, low + (place.astype(np.uint64) << np.uint64(shift)), low)
        wanted = np.where(is_open, wanted - before, wanted)
        whole = is_open & (wanted == here)
        # All of the bin: the threshold is where the next one begins.
        low = np.where(whole, low + np.uint64((1 << shift) - 1) + np.uint64(1), low)
        wanted = np.where(whole, 0, wanted)
        is_open &= ~whole
    return _Found(low, np.where(is_open, wanted, 0))
