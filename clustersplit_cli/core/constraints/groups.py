"""Parts of whole units: which units may change places without any count leaving its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.quotas import PartQuotas
from clustersplit_cli.core.search.partition import Labels

CANDIDATES = 256
"""Units of each of two parts among which exchanges are looked for at a time."""
TAKEN = 64
"""Exchanges taken before they are looked for again."""
NOBODY = -1
"""Stands in for the other unit where one unit moves alone."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class UnitParts:
    """Units, what they are made of, and how many rows of every cell each part may have.

    Attributes
    ----------
    units : (n,) the unit of every row.
    table : (units, cells), rows of each unit in each cell.
    pinned : (units,) the part a unit is forced into; -1: none.
    first : (units,) a choice of parts that meets all bounds.
    tolerance : the largest of any cell.
    """

    quotas: PartQuotas
    units: NDArray[np.int64]
    table: NDArray[np.int64]
    pinned: NDArray[np.int64]
    first: Labels
    tolerance: Fraction

    @cached_property
    def sizes(self) -> Floats:
        """Rows of every unit."""
        return np.asarray(self.table.sum(axis=1), dtype=np.float64)

    def counts(self, labels: Labels) -> NDArray[np.int64]:
        """Rows of each cell in each part, shape (cells, parts)."""
        return counts_of(self.table, labels, self.quotas.k)

    def random(self, rng: np.random.Generator) -> Labels:
        """Draw parts that meet all bounds, by random costs; shape (n,)."""
        costs = rng.random((len(self.first), self.quotas.k)) * self.sizes[:, None]
        return np.asarray(self.cheaper(self.first, costs)[self.units])

    def cheaper(self, labels: Labels, costs: Floats) -> Labels:
        """Exchange units while that lowers their total cost, (units, parts)."""
        current: Labels = labels.copy()
        for _ in range(self.quotas.k):
            before = current.copy()
            for a, b in combinations(range(self.quotas.k), 2):
                self._trade(current, a, b, costs)
            if np.array_equal(before, current):
                break
        return current

    def _trade(self, labels: Labels, a: int, b: int, costs: Floats) -> None:
        counts = self.counts(labels)
        gain = costs[:, a] - costs[:, b]
        left, right = self.candidates(labels, a, gain), self.candidates(labels, b, -gain)
        total = with_nobody(gain[left])[:, None] - with_nobody(gain[right])[None, :]
        used: set[int] = set()
        for i, j in best_pairs(np.where(self.allowed(counts, a, b, left, right), total, -np.inf)):
            u, v = _who(left, i), _who(right, j)
            if {u, v} & used or not self.may(counts, a, b, u, v):
                continue
            used |= {u, v} - {NOBODY}
            self.exchange(labels, counts, a, b, u, v)

    def candidates(self, labels: Labels, part: int, gain: Floats) -> NDArray[np.int64]:
        """Free units of a part that gain most by leaving, those of all kinds among them."""
        inside = np.flatnonzero((labels == part) & (self.pinned < 0))
        if len(inside) <= CANDIDATES:
            return inside
        order = inside[np.argsort(-gain[inside], kind="stable")]
        kinds = self._kinds[order]
        # The best of every kind first, then the second best of every kind, and so on.
        by_kind = np.argsort(kinds, kind="stable")
        rank = np.empty(len(order), dtype=np.int64)
        starts = np.searchsorted(kinds[by_kind], kinds[by_kind])
        rank[by_kind] = np.arange(len(order)) - starts
        return np.asarray(order[np.argsort(rank, kind="stable")[:CANDIDATES]])

    @cached_property
    def _kinds(self) -> NDArray[np.int64]:
        """Units with the same rows in every cell are of one kind."""
        return np.unique(self.table, axis=0, return_inverse=True)[1].reshape(-1)

    def allowed(
        self, counts: NDArray[np.int64], a: int, b: int, left: NDArray[np.int64], right: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Which exchanges keep all bounds; the last row and column stand for nobody."""
        most, least = self._room(counts, a, b)
        gone = np.vstack([self.table[left], np.zeros_like(self.table[:1])])
        come = np.vstack([self.table[right], np.zeros_like(self.table[:1])])
        possible = np.ones((len(gone), len(come)), dtype=bool)
        for cell in np.flatnonzero(gone.any(axis=0) | come.any(axis=0)).tolist():
            net = gone[:, cell, None] - come[None, :, cell]
            possible &= (net <= most[cell]) & (net >= least[cell])
        sizes = counts.sum(axis=0)
        net_rows = gone.sum(axis=1)[:, None] - come.sum(axis=1)[None, :]
        possible &= (net_rows < sizes[a]) & (net_rows > -sizes[b])  # no part may end up empty
        possible[-1, -1] = False
        return possible

    def may(self, counts: NDArray[np.int64], a: int, b: int, u: int, v: int) -> bool:
        """Whether one exchange keeps all bounds."""
        most, least = self._room(counts, a, b)
        net = self.net(u, v)
        sizes = counts.sum(axis=0)
        rows = int(net.sum())
        return bool((net <= most).all() and (net >= least).all() and -sizes[b] < rows < sizes[a])

    def _room(self, counts: NDArray[np.int64], a: int, b: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many rows of every cell may go from part a to part b, at most and at least."""
        lower, upper = self.quotas.lower, self.quotas.upper
        most = np.minimum(counts[:, a] - lower[:, a], upper[:, b] - counts[:, b])
        least = np.maximum(counts[:, a] - upper[:, a], lower[:, b] - counts[:, b])
        return most, least

    def net(self, u: int, v: int) -> NDArray[np.int64]:
        """Rows of every cell that go from one part to the other when u and v change places."""
        nothing = np.zeros_like(self.table[0])
        gone = nothing if u == NOBODY else self.table[u]
        come = nothing if v == NOBODY else self.table[v]
        return np.asarray(gone - come)

    def exchange(self, labels: Labels, counts: NDArray[np.int64], a: int, b: int, u: int, v: int) -> None:
        """Let u of part a and v of part b change places."""
        net = self.net(u, v)
        counts[:, a] -= net
        counts[:, b] += net
        if u != NOBODY:
            labels[u] = b
        if v != NOBODY:
            labels[v] = a


def counts_of(table: NDArray[np.int64], labels: Labels, k: int) -> NDArray[np.int64]:
    """Rows of each cell in each part, shape (cells, parts)."""
    return np.stack([table[labels == part].sum(axis=0) for part in range(k)], axis=1)


def with_nobody(values: Floats) -> Floats:
    """The same values, and a zero for nobody."""
    return np.append(values, 0.0)


def _who(units: NDArray[np.int64], place: int) -> int:
    return int(units[place]) if place < len(units) else NOBODY


def best_pairs(gain: Floats) -> list[tuple[int, int]]:
    """Places of the largest positive gains, the largest first."""
    flat = gain.reshape(-1)
    count = min(4 * TAKEN, len(flat))
    best = np.argpartition(-flat, count - 1)[:count]
    best = best[np.lexsort((best, -flat[best]))]
    return [divmod(int(place), gain.shape[1]) for place in best if flat[place] > 0]
