"""From a fractional choice of units to a whole one: flips and pairs of flips.

Branch and bound seldom finishes on units of very different sizes. These exchanges are quick, always take the
same steps, and what they find is a good place for branch and bound to begin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.program import Assignment, Program

FIRST = 48
"""Flips that are tried as the first of a pair."""
CHUNK = 64
"""Partners that are looked at together; most often one of the first will do."""
MAX_STEPS = 400


@dataclass
class _State:
    """A choice, its counts per cell, and what does not change: rows per cell and unit, bounds and costs."""

    matrix: NDArray[np.int32]  # (cells, units), of the free units
    lower: NDArray[np.int64]
    upper: NDArray[np.int64]
    costs: NDArray[np.float64]
    chosen: NDArray[np.bool_]
    counts: NDArray[np.int64]

    @property
    def signs(self) -> NDArray[np.int32]:
        return np.where(self.chosen, -1, 1).astype(np.int32)

    def broken(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows by which bounds are broken, for counts of shape (cells, k)."""
        under = np.maximum(self.lower[:, None] - counts, 0)
        over = np.maximum(counts - self.upper[:, None], 0)
        return np.asarray((under + over).sum(axis=0))

    def flip(self, unit: int) -> None:
        sign = -1 if self.chosen[unit] else 1
        self.counts = self.counts + sign * self.matrix[:, unit]
        self.chosen[unit] = not self.chosen[unit]


def repair(
    matrix: NDArray[np.int32],
    lower: NDArray[np.int64],
    upper: NDArray[np.int64],
    costs: NDArray[np.float64],
    chosen: NDArray[np.bool_],
) -> NDArray[np.bool_] | None:
    """Bring a choice within its bounds by cheap flips, then make it cheaper; None if it stays outside.

    Parameters
    ----------
    matrix : (cells, units)
    chosen : (units,)
    """
    state = _State(matrix, lower, upper, costs, chosen.copy(), matrix.astype(np.int64) @ chosen)
    if not _meet(state):
        return None
    _cheapen(state)
    return state.chosen


def _meet(state: _State) -> bool:
    """Flip towards the bounds: what breaks them least, per cost."""
    broken = int(state.broken(state.counts[:, None])[0])
    for _ in range(MAX_STEPS):
        if broken == 0:
            return True
        signs = state.signs
        after = state.broken(state.counts[:, None] + signs * state.matrix)
        change = signs * state.costs
        # Rows mended per cost; whatever mends and saves at once comes first.
        gain = np.where(after < broken, (broken - after) / np.maximum(change, 1e-12), 0.0)
        best = int(np.argmax(gain))
        if gain[best] > 0:
            state.flip(best)
            broken = int(after[best])
            continue
        pair = _mending_pair(state, broken, after, change)
        if pair is None:
            return False
        for unit in pair:
            state.flip(unit)
        broken = int(state.broken(state.counts[:, None])[0])
    return broken == 0


def _mending_pair(
    state: _State, broken: int, after: NDArray[np.int64], change: NDArray[np.float64]
) -> tuple[int, int] | None:
    """The pair of flips that mends most, the cheapest among equals."""
    signs = state.signs
    best: tuple[int, float, int, int] | None = None
    for first in np.lexsort((change, after))[:FIRST].tolist():
        counts = state.counts + signs[first] * state.matrix[:, first]
        both = state.broken(counts[:, None] + signs * state.matrix)
        both[first] = np.iinfo(np.int64).max
        second = int(np.lexsort((change, both))[0])
        found = (int(both[second]), float(change[first] + change[second]), first, second)
        if found[0] < broken and (best is None or found < best):
            best = found
    return None if best is None else best[2:]


def _cheapen(state: _State) -> None:
    """Flip single units and pairs that save cost and stay within the bounds, the best first."""
    noise = 1e-12 * float(np.abs(state.costs).max(initial=0.0))
    for _ in range(MAX_STEPS):
        signs = state.signs
        change = signs * state.costs
        within = state.broken(state.counts[:, None] + signs * state.matrix) == 0
        alone = np.where(within, change, np.inf)
        best = int(np.argmin(alone))
        if alone[best] < -noise:
            state.flip(best)
            continue
        pair = _saving_pair(state, signs, change, noise)
        if pair is None:
            return
        for unit in pair:
            state.flip(unit)


def _saving_pair(
    state: _State, signs: NDArray[np.int32], change: NDArray[np.float64], noise: float
) -> tuple[int, int] | None:
    """The pair of flips that saves most and stays within the bounds, led by one that saves much."""
    order = np.argsort(change, kind="stable")
    saving = change[order]
    moves = np.ascontiguousarray((signs * state.matrix)[:, order].T)
    low, high = state.lower - state.counts, state.upper - state.counts
    best: tuple[float, int, int] | None = None
    for first in range(min(FIRST, len(order))):
        if saving[first] >= -noise:
            break
        # Partners in ascending order, up to where the pair would save no more than the best one does.
        least = -noise if best is None else best[0]
        end = int(np.searchsorted(saving, least - saving[first]))
        for start in range(0, end, CHUNK):
            both = moves[start : min(start + CHUNK, end)] + moves[first]
            fits = ((both >= low) & (both <= high)).all(axis=1)
            if start <= first < start + len(fits):
                fits[first - start] = False
            if fits.any():
                second = start + int(np.argmax(fits))
                best = (float(saving[first] + saving[second]), int(order[first]), int(order[second]))
                break
    return None if best is None else best[1:]


LARGEST_TABLE = 2 * 10**7
"""Entries of the table, beyond which integer programming is cheaper."""


def is_small_cell(program: Program) -> bool:
    """Whether there is but one cell, and its table is small."""
    return len(program.lower) == 1 and len(program.free) * (int(program.upper[0]) + 1) <= LARGEST_TABLE


def fill_cell(program: Program, costs: NDArray[np.float64]) -> Assignment | None:
    """Choose the units of a single cell at the least cost; None if no choice meets its bounds.

    `least[c]` is the least cost of c rows among the units so far.
    """
    free = program.free
    sizes = program.by_unit.toarray()[:, 0].astype(np.int64)
    taken = int(sizes[program.fixed > 0].sum())
    low, high = max(int(program.lower[0]) - taken, 0), int(program.upper[0]) - taken
    high = min(high, int(sizes[free].sum()))
    if low > high:
        return None
    least = np.full(high + 1, np.inf)
    least[0] = 0.0
    takes = np.zeros((len(free), high + 1), dtype=bool)
    for place, (unit, size) in enumerate(zip(free.tolist(), sizes[free].tolist(), strict=True)):
        if size > high:
            continue
        cheaper = least[: high + 1 - size] + costs[unit]
        takes[place, size:] = cheaper < least[size:]
        least[size:] = np.where(takes[place, size:], cheaper, least[size:])
    count = low + int(np.argmin(least[low:]))
    if not np.isfinite(least[count]):
        return None
    chosen = program.fixed > 0
    for place in range(len(free) - 1, -1, -1):
        if takes[place, count]:
            chosen[free[place]] = True
            count -= int(sizes[free[place]])
    cost = float(costs @ chosen)
    return Assignment(chosen, cost, cost, branched=False, proven=True, near_enough=True)
