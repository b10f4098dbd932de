"""Narrow kernels: the search begins among the rows with the most company, and ends near the bound."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.bound.bound import mmd_upper_bound
from clustersplit_cli.core.constraints.cells import Cells, joint_cells
from clustersplit_cli.core.constraints.quotas import split_quotas
from clustersplit_cli.core.geometry.low_rank import MOST_LANDMARKS, make_low_rank
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.lloyd import descend
from clustersplit_cli.core.search.problem import Problem, evaluate, objectives
from clustersplit_cli.core.search.solution import Solution
from clustersplit_cli.core.search.starts import is_nearly_diagonal, near_diagonal_splits, random_splits
from tests.core import builders

N = 2_400


def cells_of(n_cells: int) -> Cells:
    codes = np.random.default_rng(3).integers(0, n_cells, N)
    return joint_cells({"label": (codes, list(range(n_cells)))}, N)


def uneven_problem(workers: Workers, gamma: float, holdout: str = "0.2", tolerance: str = "0") -> Problem:
    """Rows that are denser in some places than in others."""
    rng = np.random.default_rng(2)
    X = (rng.normal(size=(N, 4)) * np.exp(rng.normal(size=(N, 1)))).astype(np.float32)
    limits = split_quotas(cells_of(6), Fraction(holdout), Fraction(tolerance)).validation
    return builders.problem_of(X, limits, workers, gamma=gamma)


def solve(problem: Problem, workers: Workers, effort: str = "normal", restarts: int = 10) -> Solution:
    return builders.solve(problem, workers, 0, effort, restarts, landmarks=(1, MOST_LANDMARKS))


def explained(problem: Problem, solution: Solution) -> float:
    return problem.ssq_total - evaluate(problem, solution.members).psi


def test_a_kernel_is_nearly_diagonal_where_rows_have_little_company(workers: Workers) -> None:
    narrow, wide = uneven_problem(workers, 400.0), uneven_problem(workers, 1.0)
    assert is_nearly_diagonal(narrow) and not is_nearly_diagonal(wide)


@pytest.mark.parametrize("holdout", ["0.2", "0.7"])
def test_splits_by_row_sums_meet_quotas_and_keep_large_sums_on_the_smaller_side(
    holdout: str, workers: Workers
) -> None:
    problem = uneven_problem(workers, 400.0, holdout)
    splits = near_diagonal_splits(problem, 4, np.random.default_rng(0))
    for split in splits.T:
        assert problem.constraints.counts(split).tolist() == problem.constraints.target.tolist()
    company = problem.row_sums
    smaller, larger = (splits[:, 0], ~splits[:, 0]) if holdout == "0.2" else (~splits[:, 0], splits[:, 0])
    for cell in range(6):
        mine = problem.constraints.cells.codes == cell
        assert company[smaller & mine].min() >= company[larger & mine].max()
    assert not np.array_equal(splits[:, 0], splits[:, 1])


@pytest.mark.parametrize("holdout", ["0.2", "0.7"])
def test_the_search_ends_near_the_bound_and_far_ahead_of_random_starts(
    holdout: str, workers: Workers
) -> None:
    problem = uneven_problem(workers, 400.0, holdout)
    found = solve(problem, workers)
    starts = random_splits(problem.constraints, np.random.default_rng(9).spawn(100))
    end = descend(problem, starts, Selection(problem.constraints), max_iter=100, dtype=np.float64)
    best = problem.ssq_total - float(objectives(problem, end.members).min())
    assert explained(problem, found) > 1.04 * best
    image = make_low_rank(problem.geometry, np.random.default_rng(1))
    most = mmd_upper_bound(problem, image)
    assert 0.95 * most < np.sqrt(evaluate(problem, found.members).mmd_squared) <= most
    assert found.runs[found.winner].start.startswith("row-sums-") and len(found.runs) == 10
    psi = [step.psi for step in found.steps]
    assert psi == sorted(psi, reverse=True) and psi[-1] == pytest.approx(evaluate(problem, found.members).psi)


def test_efforts_and_restarts_count_on_narrow_kernels_too(workers: Workers) -> None:
    problem = uneven_problem(workers, 400.0)
    normal = solve(problem, workers)
    assert explained(problem, solve(problem, workers, "thorough")) >= explained(problem, normal) * (1 - 1e-9)
    assert len(solve(problem, workers, "fast", restarts=1).runs) == 1


def test_tolerances_are_kept_on_narrow_kernels(workers: Workers) -> None:
    problem = uneven_problem(workers, 400.0, tolerance="0.3")
    found = solve(problem, workers)
    counts = problem.constraints.counts(found.members)
    assert (counts >= problem.constraints.lower).all() and (counts <= problem.constraints.upper).all()
    assert evaluate(problem, found.members).psi <= evaluate(
        problem, solve(uneven_problem(workers, 400.0), workers).members
    ).psi * (1 + 1e-9)
