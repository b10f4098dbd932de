"""Problems small enough to look at every feasible split."""

from __future__ import annotations

from itertools import combinations
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Constraints
from clustersplit_cli.core.search.problem import Members, Problem, objectives

MOST_SPLITS = 20_000
BATCH = 1024


def count_splits(constraints: Constraints) -> int:
    """Number of splits that meet the constraints."""
    return prod(
        sum(comb(int(size), count) for count in range(int(low), int(high) + 1))
        for size, low, high in zip(constraints.cells.sizes, constraints.lower, constraints.upper, strict=True)
    )


def has_at_most(constraints: Constraints, most: int) -> bool:
    """Whether no more than so many splits meet the constraints; large cells are not counted out."""
    sizes, lower, upper = constraints.cells.sizes, constraints.lower, constraints.upper
    # A cell that leaves a choice has at least as many choices as rows.
    if (sizes[(upper > 0) & (lower < sizes)] > most).any():
        return False
    return count_splits(constraints) <= most


def best_of_all(problem: Problem) -> tuple[Members, float]:
    """Return the split with the smallest Psi among all feasible ones, the first of equals, and its Psi."""
    limits = problem.constraints
    choices = [_choices(limits, cell) for cell in range(len(limits.target))]
    total = count_splits(limits)
    best, best_psi = np.zeros(problem.n, dtype=bool), np.inf
    for first in range(0, total, BATCH):
        number = np.arange(first, min(total, first + BATCH))
        members = np.empty((problem.n, len(number)), dtype=bool)
        for cell, options in enumerate(choices):
            rows = limits.order[limits.offsets[cell] : limits.offsets[cell + 1]]
            number, pick = np.divmod(number, options.shape[1])
            members[rows] = options[:, pick]
        n_val = members.sum(axis=0)
        members = members[:, (n_val > 0) & (n_val < problem.n)]
        psi = objectives(problem, members)
        if len(psi) and psi.min() < best_psi:
            best, best_psi = members[:, int(psi.argmin())], float(psi.min())
    return best, best_psi


def _choices(limits: Constraints, cell: int) -> NDArray[np.bool_]:
    """Every allowed choice of a cell's rows, one per column."""
    size = int(limits.cells.sizes[cell])
    picked = [
        rows
        for count in range(int(limits.lower[cell]), int(limits.upper[cell]) + 1)
        for rows in combinations(range(size), count)
    ]
    table = np.zeros((size, len(picked)), dtype=bool)
    for column, rows in enumerate(picked):
        table[list(rows), column] = True
    return table
