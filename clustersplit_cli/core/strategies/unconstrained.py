"""Kernel k-means with two clusters of given sizes and no regard to cells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.effort import EFFORTS
from clustersplit_cli.core.geometry.low_rank import make_image
from clustersplit_cli.core.search.problem import Members
from clustersplit_cli.core.search.search import search
from clustersplit_cli.core.strategies.ground import Ground, total_only

RESTARTS, MAX_ITER, EFFORT = 10, 100, "normal"
"""What `split` does by default."""


def unconstrained(ground: Ground, rng: np.random.Generator) -> Members:
    """Search as for a split, with the total size as the only constraint: what keeping the cells costs."""
    constraints = total_only(ground.problem.constraints)
    return search(
        replace(ground.problem, constraints=constraints),
        lambda: make_image(ground.problem.geometry, rng),
        Selection,
        ground.workers,
        restarts=RESTARTS,
        max_iter=MAX_ITER,
        effort=EFFORTS[EFFORT],
        nonnegative=ground.nonnegative,
        rng=rng,
    ).members
