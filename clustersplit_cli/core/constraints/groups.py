"""Parts of whole units: which units may change places without any count leaving its bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Labels, bounds
from clustersplit_cli.core.constraints.feasibility import Demand, nearest_sizes
from clustersplit_cli.core.constraints.quotas import Quotas
from clustersplit_cli.core.constraints.tolerance import smallest_tolerance
from clustersplit_cli.errors import InfeasibleError

CANDIDATES = 256
"""Units of each of two parts among which exchanges are looked for at a time."""
TAKEN = 64
"""Exchanges taken before they are looked for again."""
NOBODY = -1
"""Stands in for the other unit where one unit moves alone."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GroupParts:
    """Units, what they are made of, and how many rows of every cell each part may have.

    Attributes
    ----------
    units : (n,) the unit of every row.
    table : (units, cells), rows of each unit in each cell.
    pinned : (units,) the part a unit is forced into; -1: none.
    first : (units,) a choice of parts that meets all bounds.
    tolerance : the largest of any cell.
    least, most : (parts,), rows that every part may have.
    """

    quotas: Quotas
    units: NDArray[np.int64]
    table: NDArray[np.int64]
    pinned: NDArray[np.int64]
    first: Labels
    tolerance: Fraction
    least: NDArray[np.int64]
    most: NDArray[np.int64]

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

    def drawing(self, parts: Sequence[int], rng: np.random.Generator) -> GroupParts:
        """Choose the units of some parts at random, and pin them."""
        costs = rng.random((len(self.first), self.quotas.k)) * self.sizes[:, None]
        labels = self.cheaper(self.first, costs)
        lower, upper = self.quotas.lower.copy(), self.quotas.upper.copy()
        counts, chosen = self.counts(labels), np.isin(labels, parts)
        lower[:, parts] = upper[:, parts] = counts[:, parts]
        pinned = np.where(chosen, labels, self.pinned)
        rows = np.where(chosen[self.units], labels[self.units], self.quotas.pinned)
        quotas = replace(self.quotas, lower=lower, upper=upper, pinned=rows, drawn=tuple(parts))
        return replace(self, quotas=quotas, pinned=pinned, first=labels)

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
        least, most = _room(counts, a, b, self.quotas.lower, self.quotas.upper)
        gone = np.vstack([self.table[left], np.zeros_like(self.table[:1])])
        come = np.vstack([self.table[right], np.zeros_like(self.table[:1])])
        possible = np.ones((len(gone), len(come)), dtype=bool)
        for cell in np.flatnonzero(gone.any(axis=0) | come.any(axis=0)).tolist():
            net = gone[:, cell, None] - come[None, :, cell]
            possible &= (net <= most[cell]) & (net >= least[cell])
        fewest, largest = _room(counts.sum(axis=0), a, b, self.least, self.most)
        net_rows = gone.sum(axis=1)[:, None] - come.sum(axis=1)[None, :]
        possible &= (net_rows <= largest) & (net_rows >= fewest)
        possible[-1, -1] = False
        return possible

    def may(self, counts: NDArray[np.int64], a: int, b: int, u: int, v: int) -> bool:
        """Whether one exchange keeps all bounds."""
        least, most = _room(counts, a, b, self.quotas.lower, self.quotas.upper)
        net = self.net(u, v)
        fewest, largest = _room(counts.sum(axis=0), a, b, self.least, self.most)
        return bool((net <= most).all() and (net >= least).all() and fewest <= net.sum() <= largest)

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


def _room(
    counts: NDArray[np.int64], a: int, b: int, lower: NDArray[np.int64], upper: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many rows may go from part a to part b, at least and at most; all arrays are (..., parts)."""
    least = np.maximum(counts[..., a] - upper[..., a], lower[..., b] - counts[..., b])
    most = np.minimum(counts[..., a] - lower[..., a], upper[..., b] - counts[..., b])
    return least, most


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


def form_parts(quotas: Quotas, units: NDArray[np.int64], tolerance: Fraction | None) -> GroupParts:
    """Find parts of whole units, and bounds that they keep.

    Parameters
    ----------
    quotas : targets of single rows.
    tolerance : of every cell; None for what each needs when units are assigned as evenly as can be found.

    Raises
    ------
    InfeasibleError
        If there are fewer units than parts, or none are found within the tolerance.
    """
    n_units = int(units.max()) + 1
    if n_units < quotas.k:
        raise InfeasibleError(
            f"{n_units} units that stay together cannot make {quotas.k} parts",
            hint="ask for fewer, or keep smaller units together",
        )
    table = np.zeros((n_units, len(quotas.cells.sizes)), dtype=np.int64)
    np.add.at(table, (units, quotas.cells.codes), 1)
    pinned = _pinned_units(quotas, units, n_units)
    labels = _evened_out(table, quotas, _assigned_in_turn(table, quotas, pinned), pinned)
    labels = _without_empty_parts(table, labels, pinned, quotas.k)
    counts = counts_of(table, labels, quotas.k)
    needed = _needed(quotas, counts)
    worst = max(needed)
    if (counts.sum(axis=0) == 0).any() or (tolerance is not None and worst > tolerance):
        raise InfeasibleError(
            "no parts of whole units were found with every cell "
            f"within --tolerance {float(tolerance or 0):g} of its share",
            hint=f"with --tolerance {float(worst):.6g} there are some; --tolerance auto finds that",
        )
    # One large unit must not loosen the cells that it has no rows in.
    each = needed if tolerance is None else [tolerance] * len(needed)
    n = len(units)
    least, most = np.ones(quotas.k, np.int64), np.full(quotas.k, n - 1)
    bounded = within(quotas, each, counts)
    if tolerance is None:
        # Tolerances leave room for larger parts, or smaller ones, than were asked for: not for more of that
        # than need be.
        labels = _nearer(table, bounded, labels, pinned)
        needed = _needed(quotas, counts_of(table, labels, quotas.k))
        while max(needed) < max(each):
            each = needed
            bounded = within(quotas, each, counts_of(table, labels, quotas.k))
            labels = _nearer(table, bounded, labels, pinned)
            needed = _needed(quotas, counts_of(table, labels, quotas.k))
        goals = [share * n for share in quotas.shares]
        off = _farthest(counts_of(table, labels, quotas.k).sum(axis=0), goals)
        least = np.maximum(least, [math.ceil(goal - off) for goal in goals])
        most = np.minimum(most, [math.floor(goal + off) for goal in goals])
    return GroupParts(bounded, units, table, pinned, labels, max(each), least, most)


def _without_empty_parts(
    table: NDArray[np.int64], labels: Labels, pinned: NDArray[np.int64], k: int
) -> Labels:
    """Give every empty part the smallest unit that another part can do without."""
    filled: Labels = labels.copy()
    sizes = table.sum(axis=1)
    for part in np.flatnonzero(np.bincount(filled, minlength=k) == 0).tolist():
        spare = (pinned < 0) & (np.bincount(filled, minlength=k)[filled] > 1)
        if spare.any():
            filled[int(np.argmin(np.where(spare, sizes, sizes.max() + 1)))] = part
    return filled


def _nearer(table: NDArray[np.int64], quotas: Quotas, labels: Labels, pinned: NDArray[np.int64]) -> Labels:
    """Assign units anew, within the same bounds, if that brings all parts nearer to their sizes."""
    from scipy import sparse

    free = np.flatnonzero(pinned < 0)
    kinds, kind = np.unique(table[free], axis=0, return_inverse=True)
    kind = kind.reshape(-1)
    with_total = np.append(kinds, kinds.sum(axis=1, keepdims=True), axis=1)
    taken = np.stack([table[pinned == part].sum(axis=0) for part in range(quotas.k)], axis=1)
    n = int(table.sum())
    demand = Demand(
        sparse.csr_matrix(with_total.T),
        np.bincount(kind, minlength=len(kinds)),
        np.vstack([taken, taken.sum(axis=0)]),
        np.vstack([quotas.lower, np.ones(quotas.k, np.int64)]),
        np.vstack([quotas.upper, np.full(quotas.k, n - 1)]),
    )
    goals = [share * n for share in quotas.shares]
    assigned = nearest_sizes(demand, goals, _farthest(counts_of(table, labels, quotas.k).sum(axis=0), goals))
    if assigned is None:
        return labels
    found: Labels = pinned.copy()
    order = np.argsort(kind, kind="stable")
    found[free[order]] = np.concatenate([np.repeat(np.arange(quotas.k), counts) for counts in assigned])
    return found


def _farthest(sizes: NDArray[np.int64], goals: Sequence[Fraction]) -> Fraction:
    """How many rows the part farthest off its goal is off."""
    return max(abs(int(size) - goal) for size, goal in zip(sizes, goals, strict=True))


def within(quotas: Quotas, tolerance: Sequence[Fraction], counts: NDArray[np.int64]) -> Quotas:
    """Widen every cell's bounds to its tolerance; counts that meet it are never left out."""
    lower, upper = _rounded_shares(quotas)
    for part, share in enumerate(quotas.shares):
        for cell, size in enumerate(quotas.cells.sizes.tolist()):
            low, high = bounds(size, share, tolerance[cell])
            lower[cell, part] = min(lower[cell, part], low)
            upper[cell, part] = max(upper[cell, part], high)
    return replace(quotas, lower=np.minimum(lower, counts), upper=np.maximum(upper, counts))


def _rounded_shares(quotas: Quotas) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The shares rounded down and up, (cells, parts): no count can be nearer, whichever part it is in."""
    sizes = quotas.cells.sizes.tolist()
    least = np.array([[int(share * size) for share in quotas.shares] for size in sizes], dtype=np.int64)
    most = np.array([[-int(-share * size // 1) for share in quotas.shares] for size in sizes], dtype=np.int64)
    return np.minimum(least, quotas.target), np.maximum(most, quotas.target)


def _needed(quotas: Quotas, counts: NDArray[np.int64]) -> list[Fraction]:
    """The smallest tolerance of every cell with which all its counts are within bounds."""
    least, most = _rounded_shares(quotas)
    needed = [Fraction(0)] * len(counts)
    for cell, part in np.argwhere((counts < least) | (counts > most)).tolist():
        size, count = int(quotas.cells.sizes[cell]), int(counts[cell, part])
        needed[cell] = max(needed[cell], smallest_tolerance(size, quotas.shares[part], count))
    return needed


def _pinned_units(quotas: Quotas, units: NDArray[np.int64], n_units: int) -> NDArray[np.int64]:
    """A unit is forced where its rows are; they must agree."""
    pinned = np.full(n_units, -1, dtype=np.int64)
    rows = np.flatnonzero(quotas.pinned >= 0)
    pinned[units[rows]] = quotas.pinned[rows]
    torn = rows[pinned[units[rows]] != quotas.pinned[rows]]
    if len(torn):
        raise InfeasibleError(
            f"row {int(torn[0])} must stay together with rows that are forced into another part",
            hint="force all of a unit's rows into the same part",
        )
    return pinned


def _assigned_in_turn(table: NDArray[np.int64], quotas: Quotas, pinned: NDArray[np.int64]) -> Labels:
    """Give every unit, the largest first, to the part that needs its rows most."""
    wanted, weight = _wanted(quotas)
    missing = wanted.copy()
    labels: Labels = pinned.copy()
    for unit in np.flatnonzero(pinned >= 0).tolist():
        missing[:, pinned[unit]] -= table[unit]
    free = np.flatnonzero(pinned < 0)
    for unit in free[np.argsort(-table[free].sum(axis=1), kind="stable")].tolist():
        cells = np.flatnonzero(table[unit])
        rows = table[unit, cells][:, None]
        # What |missing|² falls by, weighted by how small the quotas are.
        fall = (weight[cells] * rows * (2.0 * missing[cells] - rows)).sum(axis=0)
        part = int(np.argmax(fall))
        labels[unit] = part
        missing[:, part] -= table[unit]
    return labels


def _evened_out(
    table: NDArray[np.int64], quotas: Quotas, labels: Labels, pinned: NDArray[np.int64]
) -> Labels:
    """Exchange units between two parts at a time while counts come nearer to their shares."""
    wanted, weight = _wanted(quotas)
    current: Labels = labels.copy()
    rows = table.astype(np.float64)
    for _ in range(4 * quotas.k):
        moved = False
        for a, b in combinations(range(quotas.k), 2):
            for _ in range(TAKEN):
                off = counts_of(table, current, quotas.k) - wanted
                slope = 2.0 * (weight[:, b] * off[:, b] - weight[:, a] * off[:, a])
                both = weight[:, a] + weight[:, b]
                left = np.flatnonzero((current == a) & (pinned < 0))
                right = np.flatnonzero((current == b) & (pinned < 0))
                alone = rows @ slope
                square = (rows**2) @ both
                rise = (
                    with_nobody(alone[left] + square[left])[:, None]
                    + with_nobody(square[right] - alone[right])[None]
                )
                rise[:-1, :-1] -= 2.0 * (rows[left] * both) @ rows[right].T
                i, j = np.unravel_index(int(np.argmin(rise)), rise.shape)
                if rise[i, j] >= -1e-12:
                    break
                moved = True
                if i < len(left):
                    current[left[i]] = b
                if j < len(right):
                    current[right[j]] = a
        if not moved:
            break
    return current


def _wanted(quotas: Quotas) -> tuple[Floats, Floats]:
    """The exact shares, (cells, parts), and what a row off them weighs."""
    shares = np.array([float(share) for share in quotas.shares])
    wanted = quotas.cells.sizes[:, None] * shares[None, :]
    return wanted, 1.0 / wanted**2
