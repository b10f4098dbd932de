"""Problems small enough to look at every feasible split, or partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.search.problem import Members, Problem, objectives

MOST_SPLITS = 20_000
MOST_CHOICES = 50_000
MOST_FREE = 40
"""Rows or units with a choice; there seldom are so few choices where there are more of them."""
BATCH = 1024


def count_splits(constraints: ValidationQuotas) -> int:
    """Number of splits that meet the constraints."""
    return prod(
        sum(comb(int(size), count) for count in range(int(low), int(high) + 1))
        for size, low, high in zip(constraints.cells.sizes, constraints.lower, constraints.upper, strict=True)
    )


def has_at_most(constraints: ValidationQuotas, most: int) -> bool:
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
            rows = limits.cells.order[limits.cells.offsets[cell] : limits.cells.offsets[cell + 1]]
            number, pick = np.divmod(number, options.shape[1])
            members[rows] = options[:, pick]
        n_val = members.sum(axis=0)
        members = members[:, (n_val > 0) & (n_val < problem.n)]
        psi = objectives(problem, members)
        if len(psi) and psi.min() < best_psi:
            best, best_psi = members[:, int(psi.argmin())], float(psi.min())
    return best, best_psi


def _choices(limits: ValidationQuotas, cell: int) -> NDArray[np.bool_]:
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


def all_choices(
    table: NDArray[np.int64], lower: NDArray[np.int64], upper: NDArray[np.int64], fixed: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """Every way to give units to parts such that each part has `lower <= rows <= upper` of every cell.

    Unit after unit, keeping what the others can still complete.

    Parameters
    ----------
    table : (units, cells), rows of each unit in each cell.
    lower, upper : (cells, k)
    fixed : (units,) the part a unit is forced into; -1: none.

    Returns
    -------
    The part of every unit, shape (units, choices); None if there are more than `MOST_CHOICES`.
    """
    free = np.flatnonzero(fixed < 0)
    if len(free) > MOST_FREE:
        return None
    k = lower.shape[1]
    taken = np.stack([table[fixed == part].sum(axis=0) for part in range(k)], axis=1)
    if ((taken > upper) | (taken + table[free].sum(axis=0)[:, None] < lower)).any():
        return np.zeros((len(fixed), 0), dtype=np.int64)
    seen = np.flatnonzero(table[free].any(axis=0))
    least, most = lower[seen], upper[seen]
    counts, chosen = taken[None, seen], np.zeros((1, 0), dtype=np.int64)
    left = table[free][:, seen].sum(axis=0)
    for unit in free:
        rows = table[unit, seen]
        left = left - rows
        after = np.repeat(counts, k, axis=0)
        part = np.tile(np.arange(k), len(counts))
        after[np.arange(len(after)), :, part] += rows
        lacking, room = np.maximum(least - after, 0).sum(axis=2), (most - after).sum(axis=2)
        possible = (after <= most).all(axis=(1, 2)) & ((lacking <= left) & (left <= room)).all(axis=1)
        counts = after[possible]
        if len(counts) > MOST_CHOICES:
            return None
        chosen = np.column_stack([np.repeat(chosen, k, axis=0), part])[possible]
    labels: NDArray[np.int64] = np.tile(fixed[:, None], (1, len(chosen)))
    labels[free] = chosen.T
    return labels


def batches(labels: NDArray[np.int64] | None) -> Iterator[NDArray[np.int64]]:
    """The choices (units, r), some at a time."""
    for first in range(0, 0 if labels is None else labels.shape[1], BATCH):
        assert labels is not None
        yield labels[:, first : first + BATCH]


def best_of(
    labels: NDArray[np.int64] | None, psi: Iterable[NDArray[np.float64]]
) -> tuple[NDArray[np.int64], float]:
    """Return the first of the choices (units, r) with the least Psi, and that Psi; infinite without any.

    Parameters
    ----------
    psi : of every choice, batch by batch.
    """
    found = np.concatenate([np.empty(0), *psi])
    if labels is None or not len(found):
        return np.zeros(0, dtype=np.int64), np.inf
    place = int(found.argmin())
    return labels[:, place], float(found[place])
