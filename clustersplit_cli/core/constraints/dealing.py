"""Deal out units of rows that stay together to several parts, as evenly as can be found.

Units rarely allow equal shares: how evenly they can be dealt out fixes how far counts may be off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import bounds
from clustersplit_cli.core.constraints.groups import TAKEN, Floats, UnitParts, counts_of, with_nobody
from clustersplit_cli.core.constraints.quotas import PartQuotas
from clustersplit_cli.core.constraints.tolerance import smallest_tolerance
from clustersplit_cli.core.search.partition import Labels
from clustersplit_cli.errors import InfeasibleError


def deal_out(quotas: PartQuotas, units: NDArray[np.int64], tolerance: Fraction | None) -> UnitParts:
    """Find parts of whole units, and bounds that they keep.

    Parameters
    ----------
    quotas : targets of single rows.
    tolerance : of every cell; None for what each needs when units are dealt out as evenly as can be found.

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
    labels = _evened_out(table, quotas, _dealt(table, quotas, pinned), pinned)
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
    return UnitParts(within(quotas, each, counts), units, table, pinned, labels, max(each))


def within(quotas: PartQuotas, tolerance: Sequence[Fraction], counts: NDArray[np.int64]) -> PartQuotas:
    """Widen every cell's bounds to its tolerance; counts that meet it are never left out."""
    lower, upper = _rounded_shares(quotas)
    for part, share in enumerate(quotas.shares):
        for cell, size in enumerate(quotas.cells.sizes.tolist()):
            low, high = bounds(size, share, tolerance[cell])
            lower[cell, part] = min(lower[cell, part], low)
            upper[cell, part] = max(upper[cell, part], high)
    return replace(quotas, lower=np.minimum(lower, counts), upper=np.maximum(upper, counts))


def _rounded_shares(quotas: PartQuotas) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The shares rounded down and up, (cells, parts): no count can be nearer, whichever part it is in."""
    sizes = quotas.cells.sizes.tolist()
    least = np.array([[int(share * size) for share in quotas.shares] for size in sizes], dtype=np.int64)
    most = np.array([[-int(-share * size // 1) for share in quotas.shares] for size in sizes], dtype=np.int64)
    return np.minimum(least, quotas.target), np.maximum(most, quotas.target)


def _needed(quotas: PartQuotas, counts: NDArray[np.int64]) -> list[Fraction]:
    """The smallest tolerance of every cell with which all its counts are within bounds."""
    least, most = _rounded_shares(quotas)
    needed = [Fraction(0)] * len(counts)
    for cell, part in np.argwhere((counts < least) | (counts > most)).tolist():
        size, count = int(quotas.cells.sizes[cell]), int(counts[cell, part])
        needed[cell] = max(needed[cell], smallest_tolerance(size, quotas.shares[part], count))
    return needed


def _pinned_units(quotas: PartQuotas, units: NDArray[np.int64], n_units: int) -> NDArray[np.int64]:
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


def _dealt(table: NDArray[np.int64], quotas: PartQuotas, pinned: NDArray[np.int64]) -> Labels:
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
    table: NDArray[np.int64], quotas: PartQuotas, labels: Labels, pinned: NDArray[np.int64]
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


def _wanted(quotas: PartQuotas) -> tuple[Floats, Floats]:
    """The exact shares, (cells, parts), and what a row off them weighs."""
    shares = np.array([float(share) for share in quotas.shares])
    wanted = quotas.cells.sizes[:, None] * shares[None, :]
    return wanted, 1.0 / wanted**2
