"""Greedy constrained k-means: quotas kept by assigning greedily, then by swapping pairs.

Written from the description of the size and distribution sensitive k-means of Wecker, Friedrich and Adel
(2020), which builds on same-size k-means: centres by k-means++; rows, those with most to lose first, go to
their preferred cluster until its quota of their label is full; then, with new means, pairs of rows of one
label that together gain change places, until no pair does.

With two clusters and fixed means both steps have a closed form, so there is no loop over rows: the rows that
the full cluster turns away are its weakest, and the pairs that gain are the most eager of both sides.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Constraints
from clustersplit_cli.core.search.problem import Members, discrepancy
from clustersplit_cli.core.search.starts import at_targets
from clustersplit_cli.core.strategies.ground import Ground
from clustersplit_cli.core.strategies.nearest import squared_distances

MAX_PASSES = 100
ROUNDING = 1e-12


def greedy(ground: Ground, rng: np.random.Generator) -> Members:
    """Cluster the rows in two, each cell's quota in the first; the first is validation."""
    problem = ground.problem
    to_first = squared_distances(problem, int(rng.integers(problem.n)))
    total = float(to_first.sum())
    likelihood = to_first / total if total > 0 else None
    to_second = squared_distances(problem, int(rng.choice(problem.n, p=likelihood)))
    members: Members = at_targets(problem.constraints).choose((to_first - to_second)[:, None])[:, 0]
    for _ in range(MAX_PASSES):
        state = discrepancy(problem, members[:, None], np.float64)
        leaving, entering = gaining_pairs(members, state.difference[:, 0], problem.constraints)
        if len(leaving) == 0:
            break
        members = members.copy()
        members[leaving], members[entering] = False, True
    return members


def gaining_pairs(
    members: Members, difference: NDArray[np.float64], constraints: Constraints
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pair rows that gain by changing places: the k-th most eager of either side of a cell, while they gain.

    Parameters
    ----------
    members : (n,)
    difference : (n,), squared distance to the validation centroid minus that to the training centroid.

    Returns
    -------
    The validation rows that leave and the training rows that enter, pair by pair.
    """
    sides = [np.flatnonzero(members), np.flatnonzero(~members)]
    eagerness = [difference[sides[0]], -difference[sides[1]]]
    places: list[NDArray[np.int64]] = []
    for side, (rows, gain) in enumerate(zip(sides, eagerness, strict=True)):
        order = np.lexsort((-gain, constraints.cells.codes[rows]))  # stable: ties go to the lower row
        sides[side], eagerness[side] = rows[order], gain[order]
        codes = constraints.cells.codes[sides[side]]
        rank = np.arange(len(rows)) - np.searchsorted(codes, codes)
        places.append(codes * np.int64(constraints.n) + rank)
    _, leave, enter = np.intersect1d(places[0], places[1], assume_unique=True, return_indices=True)
    gains = eagerness[0][leave] + eagerness[1][enter]
    gaining = gains > ROUNDING * float(np.abs(difference).max(initial=0.0))
    return sides[0][leave[gaining]], sides[1][enter[gaining]]
