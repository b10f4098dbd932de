"""The assignment program of a single cell of units, by dynamic programming: a knapsack filled exactly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.program import Assignment, Program

LARGEST_TABLE = 2 * 10**7
"""Entries of the table, beyond which integer programming is cheaper."""


def is_small_cell(program: Program) -> bool:
    """Whether there is but one cell, and its table is small."""
    return len(program.lower) == 1 and len(program.free) * (int(program.upper[0]) + 1) <= LARGEST_TABLE


def fill_cell(program: Program, costs: NDArray[np.float64]) -> Assignment | None:
    """Choose the atoms of a single cell at the least cost; None if no choice meets its bounds.

    `least[c]` is the least cost of c rows among the atoms so far.
    """
    free = program.free
    sizes = program.by_atom.toarray()[:, 0].astype(np.int64)
    taken = int(sizes[program.fixed > 0].sum())
    low, high = max(int(program.lower[0]) - taken, 0), int(program.upper[0]) - taken
    high = min(high, int(sizes[free].sum()))
    if low > high:
        return None
    least = np.full(high + 1, np.inf)
    least[0] = 0.0
    takes = np.zeros((len(free), high + 1), dtype=bool)
    for place, (atom, size) in enumerate(zip(free.tolist(), sizes[free].tolist(), strict=True)):
        if size > high:
            continue
        cheaper = least[: high + 1 - size] + costs[atom]
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
    return Assignment(chosen, cost, cost, branched=False, proven=True, settled=True)
