"""Geometries, problems and searches that many tests ask for."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.constraints.cells import joint_cells
from clustersplit_cli.core.constraints.quotas import ValidationQuotas, split_quotas
from clustersplit_cli.core.effort import EFFORTS
from clustersplit_cli.core.geometry.dense import dense_geometry
from clustersplit_cli.core.geometry.factored import FactorGeometry
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import prepare
from clustersplit_cli.core.geometry.low_rank import MOST_LANDMARKS, make_low_rank
from clustersplit_cli.core.geometry.nystrom import linear_geometry, nystrom_geometry
from clustersplit_cli.core.geometry.protocol import Geometry
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.problem import Problem, SearchContext
from clustersplit_cli.core.search.search import SplitSearch, needs_low_rank
from clustersplit_cli.core.search.solution import Solution
from clustersplit_cli.errors import InfeasibleError


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


def split_problem(
    X: NDArray[Any],
    holding: str,
    workers: Workers,
    *,
    codes: NDArray[Any] | None = None,
    h: str = "0.5",
    tolerance: str = "0",
    gamma: str | float = "scale",
    every: int = 2,
) -> Problem:
    """Rows to be split with cells given by codes.

    Parameters
    ----------
    holding : a kernel; or `nystrom`, for an rbf kernel.
    every : one row of so many is a landmark.
    """
    columns = {} if codes is None else {"label": (codes, range(int(codes.max()) + 1))}
    limits = split_quotas(joint_cells(columns, len(X)), Fraction(h), Fraction(tolerance)).validation
    if holding == "nystrom":
        return problem_of(X, limits, workers, gamma=gamma, landmarks=np.arange(0, len(X), every))
    return problem_of(X, limits, workers, holding, gamma)


def random_problem(
    seed: int, n: int, kernel: str, tolerance: str, workers: Workers, dtype: type
) -> Problem | None:
    """A random problem with cells, some clusters and some duplicate rows; None if no split meets it."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) + 2 * rng.integers(0, 2, n)[:, None]
    X[n // 2 :: 4] = X[0]
    codes = rng.integers(0, 3, n)
    cells = joint_cells({"label": (codes, range(3))}, n)
    try:
        limits = split_quotas(cells, Fraction(int(rng.integers(1, 10)), 10), Fraction(tolerance)).validation
    except InfeasibleError:
        return None
    return problem_of(X.astype(dtype), limits, workers, kernel)


def clustered_factors(
    kernel: str, n: int, seed: int, workers: Workers, dtype: Any = np.float64, gamma: Any = "scale"
) -> tuple[Problem, FactorGeometry]:
    """Overlapping groups in three cells of different sizes, their kernel held as factors."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(9, 5))[rng.integers(9, size=n)] * 2 + rng.normal(size=(n, 5))
    labels = rng.choice(3, size=n, p=[0.6, 0.3, 0.1])
    limits = split_quotas(joint_cells({"label": (labels, [0, 1, 2])}, n), Fraction("0.2")).validation
    X, landmarks = X.astype(dtype), np.sort(rng.choice(n, 60, False)) if kernel == "nystrom" else None
    geometry = geometry_of(X, workers, "linear" if landmarks is None else "rbf", gamma, landmarks)
    assert isinstance(geometry, FactorGeometry)
    return Problem(geometry, limits), geometry


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
    landmarks : of the low-rank kernel, the seed they are drawn with and how many there are.
    """
    context = SearchContext(problem, Selection(problem.constraints), workers, restarts, 100, EFFORTS[effort])
    low_rank = None
    if needs_low_rank(problem):
        low_rank = make_low_rank(problem.geometry, np.random.default_rng(landmarks[0]), landmarks[1])
    return SplitSearch(context, low_rank, np.random.default_rng(seed)).solve()
