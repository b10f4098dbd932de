"""Geometries, problems and searches that many tests ask for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.effort import EFFORTS
from clustersplit_cli.core.geometry.dense import dense_geometry
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import prepare
from clustersplit_cli.core.geometry.low_rank import MOST_LANDMARKS, make_low_rank
from clustersplit_cli.core.geometry.nystrom import linear_geometry, nystrom_geometry
from clustersplit_cli.core.geometry.protocol import Geometry
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.problem import Problem, SearchContext
from clustersplit_cli.core.search.search import SplitSearch, needs_low_rank
from clustersplit_cli.core.search.solution import Solution


def geometry_of(
    X: NDArray[Any],
    workers: Workers,
    kernel: str = "rbf",
    gamma: str | float = "scale",
    landmarks: NDArray[np.int64] | None = None,
) -> Geometry:
    """The kernel of some rows as the tool holds it; with landmarks its Nyström approximation."""
    found = prepare(Features(X), kernel, gamma, 3, workers, np.random.default_rng(0))
    if found.kernel.is_linear:
        return linear_geometry(found.features, found.kernel, workers)
    if landmarks is not None:
        return nystrom_geometry(found.features, found.kernel, landmarks, workers)
    return dense_geometry(found.features, found.kernel, workers)


def problem_of(
    X: NDArray[Any],
    limits: ValidationQuotas,
    workers: Workers,
    kernel: str = "rbf",
    gamma: str | float = "scale",
    landmarks: NDArray[np.int64] | None = None,
) -> Problem:
    """A problem over single rows."""
    return Problem(geometry_of(X, workers, kernel, gamma, landmarks), limits)


def solve(
    problem: Problem,
    workers: Workers,
    seed: int = 0,
    effort: str = "normal",
    restarts: int = 10,
    *,
    landmarks: tuple[int, int] = (100, MOST_LANDMARKS),
) -> Solution:
    """Search as the tool does.

    Parameters
    ----------
    landmarks : of the low-rank image, the seed they are drawn with and how many there are.
    """
    context = SearchContext(problem, Selection(problem.constraints), workers, restarts, 100, EFFORTS[effort])
    image = None
    if needs_low_rank(problem):
        image = make_low_rank(problem.geometry, np.random.default_rng(landmarks[0]), landmarks[1])
    return SplitSearch(context, image, np.random.default_rng(seed)).solve()
