"""A random centre and the rows nearest to it (Søgaard et al., 2021)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.search.problem import Members, Problem
from clustersplit_cli.core.search.starts import at_targets
from clustersplit_cli.core.strategies.ground import Ground, total_only


def nearest_neighbours(ground: Ground, rng: np.random.Generator) -> Members:
    """Take every cell's quota of rows nearest to a random row."""
    costs = squared_distances(ground.problem, int(rng.integers(ground.problem.n)))
    members: Members = at_targets(ground.problem.constraints).choose(costs[:, None])[:, 0]
    return members


def nearest_neighbours_total(ground: Ground, rng: np.random.Generator) -> Members:
    """Take as many rows nearest to a random row as validation needs, from whatever cells: the original."""
    costs = squared_distances(ground.problem, int(rng.integers(ground.problem.n)))
    members: Members = at_targets(total_only(ground.problem.constraints)).choose(costs[:, None])[:, 0]
    return members


def squared_distances(problem: Problem, row: int) -> NDArray[np.float64]:
    """Squared distance of every row to one of them, in the kernel's space: K_ii + K_rr - 2 K_ir."""
    unit = np.zeros((problem.n, 1))
    unit[row] = 1.0
    column = np.asarray(problem.geometry.apply(unit)[:, 0], dtype=np.float64)
    distances = problem.geometry.diagonal + problem.geometry.diagonal[row] - 2.0 * column
    distances[row] = 0.0
    return np.asarray(np.maximum(distances, 0.0))
