"""Kernels so narrow that a row is closer to itself than to all others together.

A random start stops there where it begins, and an image along few directions tells nothing. But 1_V'K1_V
is at most 1_V'K1, and close to it where the few neighbours that rows have are kept together. So splits of the
rows with the most company are close to the best ones.
"""

from __future__ import annotations

import numpy as np

from clustersplit_cli.core.geometry.dense import DenseGeometry
from clustersplit_cli.core.search.problem import Members, Problem
from clustersplit_cli.core.search.starts import at_targets

WEAKEST, STRONGEST = 0.05, 1.0
"""Range of noise in crowded splits, in standard deviations of the rows' company."""


def is_nearly_diagonal(problem: Problem) -> bool:
    """Whether rows are on average closer to themselves than to all others; values must not be negative."""
    if not isinstance(problem.geometry, DenseGeometry) or problem.sizes is not None:
        return False
    return float(problem.row_sums.sum()) < 2.0 * problem.trace


def crowded_splits(problem: Problem, count: int, rng: np.random.Generator) -> Members:
    """Put the rows with the most company on the smaller side, and again with noise, shape (n, count)."""
    limits = problem.constraints
    company = problem.row_sums - problem.geometry.diagonal
    # Brought to size one: what is left of a very narrow kernel may be tiny.
    level = company / (float(company.max()) or 1.0)
    if 2 * int(limits.target.sum()) > limits.n:
        level = -level
    strength = np.exp(rng.uniform(np.log(WEAKEST), np.log(STRONGEST), size=count))
    strength[0] = 0.0
    noise = rng.standard_normal((problem.n, count)) * (strength * float(level.std()))
    return at_targets(limits).choose(-(level[:, None] + noise))
