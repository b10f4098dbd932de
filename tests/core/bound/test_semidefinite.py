"""The semidefinite bound is never below the best split, and reaches what a solver of such programs finds."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from clustersplit_cli.core.bound import semidefinite as module
from clustersplit_cli.core.bound.semidefinite import Relaxation, semidefinite_bound
from clustersplit_cli.core.constraints.cells import joint_cells
from clustersplit_cli.core.constraints.quotas import FREE
from clustersplit_cli.core.constraints.requirements import Requirements, make_requirements
from clustersplit_cli.core.constraints.tolerance import parse_tolerances
from clustersplit_cli.core.geometry.cholesky import pivoted_cholesky
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import Kernel
from clustersplit_cli.core.geometry.nystrom import low_rank_geometry
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.groups import group_problem
from clustersplit_cli.core.search.problem import Problem
from clustersplit_cli.errors import InfeasibleError, InputError
from tests.core.builders import geometry_of


def codes_of(values: NDArray[Any]) -> dict[str, Any]:
    words, codes = np.unique(values, return_inverse=True)
    return {"label": (codes.reshape(-1), words.tolist())}


def random_requirements(rng: np.random.Generator, n: int, kind: str) -> Requirements:
    families = [joint_cells(codes_of(rng.integers(0, 3, n)), n)]
    units = pinned = None
    if kind == "families":
        families.append(joint_cells(codes_of(rng.integers(0, 2, n)), n))
    if kind in ("units", "mixed units"):
        units = rng.integers(0, n - 2, n)
        if kind == "units":
            units = units * 3 + families[0].codes
        units = np.unique(units, return_inverse=True)[1].reshape(-1)
    if kind == "forced":
        pinned = rng.choice([FREE, FREE, FREE, 0, 1], n)
    holdout = Fraction(int(rng.integers(1, 10)), 10)
    return make_requirements(families, holdout, parse_tolerances([]), pinned=pinned, units=units)


def best_of_everything(kernel: NDArray[np.float64], requirements: Requirements) -> float:
    """The largest MMD of all splits that meet the requirements."""
    n, best = len(kernel), 0.0
    for members in product((False, True), repeat=n):
        chosen = np.array(members)
        if chosen.any() and not chosen.all() and requirements.is_met_by(chosen):
            weights = np.where(chosen, 1 / chosen.sum(), -1 / (~chosen).sum())
            best = max(best, float(weights @ kernel @ weights))
    return float(np.sqrt(best))


def over_units(problem: Problem, requirements: Requirements) -> Problem:
    return problem if requirements.units is None else group_problem(problem, requirements)


@pytest.mark.parametrize("kind", ["cells", "families", "forced", "units", "mixed units"])
def test_the_bound_is_never_below_the_best_split(
    kind: str, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whatever step it stops."""
    rng, tried, tight = np.random.default_rng(len(kind)), 0, 0
    while tried < 80:
        n = int(rng.integers(4, 9))
        X = rng.normal(size=(n, int(rng.integers(1, 5)))) * rng.choice([0.1, 1.0, 5.0])
        if tried % 5 == 0:
            X = np.concatenate([X[: n // 2], -X[: n - n // 2]])
        try:
            requirements = random_requirements(rng, n, kind)
            geometry = geometry_of(X, workers, str(rng.choice(["rbf", "linear", "polynomial", "cosine"])))
        except (InfeasibleError, InputError):
            continue
        tried += 1
        monkeypatch.setattr(module, "STEPS", int(rng.choice([1, 30, 200])))
        problem = over_units(Problem(geometry, requirements.families[0].validation), requirements)
        bound = semidefinite_bound(problem, requirements)
        best = best_of_everything(geometry.apply(np.eye(n)), requirements)
        assert bound >= best * (1 - 1e-9) - 1e-12, (n, module.STEPS)
        tight += bound <= best * (1 + 1e-5)
    assert tight > 10


def test_any_multipliers_bound(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that rounding, or a step of the wrong length, cannot make it wrong."""
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(size=(7, 3)), rng.normal(size=(3, 3)) + 3.0])
    requirements = make_requirements([joint_cells({}, 10)], Fraction("0.3"), parse_tolerances([]))
    problem = Problem(geometry_of(X, workers), requirements.families[0].validation)
    best = best_of_everything(problem.geometry.apply(np.eye(10)), requirements)
    relaxation = Relaxation.of(problem, requirements)
    for scale in np.repeat([0.01, 0.1, 1.0], 40):
        multipliers = rng.normal(size=(11, 11)) * scale
        assert relaxation.largest_mmd_squared(multipliers + multipliers.T) >= best**2
    monkeypatch.setattr(module, "STEPS", 300)
    *_, multipliers = module._multipliers(relaxation)
    assert relaxation.largest_mmd_squared(multipliers) == pytest.approx(best**2, rel=1e-4)
    of_best = np.array([1.0] + [0.0] * 7 + [1.0] * 3)
    for size in (0.001, 0.01, 0.1):  # no longer negative semi-definite
        broken = multipliers + size * np.outer(of_best, of_best)
        assert relaxation.scale * -relaxation.groupings[0].least(relaxation.costs + broken) < best**2
        assert relaxation.largest_mmd_squared(broken) >= best**2


def test_it_stops_once_a_split_is_proven_optimal(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(size=(32, 3)), rng.normal(size=(8, 3)) + 2.0])
    requirements = make_requirements([joint_cells({}, 40)], Fraction("0.2"), parse_tolerances([]))
    problem = Problem(geometry_of(X, workers), requirements.families[0].validation)
    steps: list[int] = []
    long = semidefinite_bound(problem, requirements, progress=lambda _, done, __: steps.append(done))
    all_steps, steps[:] = steps[-1], []
    short = semidefinite_bound(problem, requirements, long**2, lambda _, done, __: steps.append(done))
    assert steps[-1] <= all_steps
    assert long <= short <= long * (1 + 1e-5)


def test_what_few_factors_lack_is_added(workers: Workers) -> None:
    rng, exceeded = np.random.default_rng(5), 0
    for _ in range(25):
        rows = Features(rng.normal(size=(9, 3)))
        found = pivoted_cholesky(rows, Kernel("rbf", 0.5), rng, workers, most=2)
        exact = geometry_of(np.asarray(rows.block(0, 9)), workers, gamma=0.5)
        requirements = make_requirements([joint_cells({}, 9)], Fraction("0.4"), parse_tolerances([]))
        problem = Problem(
            low_rank_geometry(found.factors, workers, found.residual), requirements.families[0].validation
        )
        best = best_of_everything(exact.apply(np.eye(9)), requirements)
        assert semidefinite_bound(problem, requirements) >= best * (1 - 1e-9)
        exceeded += best_of_everything(problem.geometry.apply(np.eye(9)), requirements) < best * (1 - 1e-6)
    assert exceeded > 10


def solved(clarabel: Any, kernel: NDArray[np.float64], codes: NDArray[Any], quotas: NDArray[Any]) -> float:
    """The relaxation as a textbook states it, by an interior-point solver: its bound on the MMD."""
    n, n_val = len(kernel), int(quotas.sum())
    pair = 1 / n_val + 1 / (n - n_val)
    costs = np.empty((n + 1, n + 1))
    costs[1:, 1:] = -(pair**2) * kernel
    costs[0, 1:] = costs[1:, 0] = pair / (n - n_val) * kernel.sum(axis=1)
    costs[0, 0] = -kernel.sum() / (n - n_val) ** 2
    rows, columns = np.tril_indices(n + 1)
    place = np.empty((n + 1, n + 1), dtype=int)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    equal: list[tuple[dict[int, float], float]] = [({int(place[0, 0]): 1.0}, 1.0)]
    equal += [({int(place[i, i]): 1.0, int(place[0, i]): -1.0}, 0.0) for i in range(1, n + 1)]
    for cell, quota in enumerate(quotas):
        for j in range(n + 1):
            row: dict[int, float] = {}
            for i in np.flatnonzero(codes == cell) + 1:
                row[int(place[i, j])] = row.get(int(place[i, j]), 0.0) + 1.0
            row[int(place[0, j])] = row.get(int(place[0, j]), 0.0) - float(quota)
            equal.append((row, 0.0))
    size = len(rows)
    equations = sparse.lil_matrix((len(equal), size))
    for number, (row, _) in enumerate(equal):
        for column, value in row.items():
            equations[number, column] = value
    # The solver's triangles go by columns above the diagonal, with roots of two off it: the same order here.
    roots = np.where(rows == columns, 1.0, np.sqrt(2.0))
    constraints = sparse.vstack([equations, -sparse.identity(size), -sparse.diags(roots)]).tocsc()
    right = np.concatenate([[value for _, value in equal], np.zeros(2 * size)])
    cones = [
        clarabel.ZeroConeT(len(equal)),
        clarabel.NonnegativeConeT(size),
        clarabel.PSDTriangleConeT(n + 1),
    ]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    linear = costs[rows, columns] * np.where(rows == columns, 1.0, 2.0)
    nothing = sparse.csc_matrix((size, size))
    found = clarabel.DefaultSolver(nothing, linear, constraints, right, cones, settings).solve()
    assert "Solved" in str(found.status)
    return float(np.sqrt(-found.obj_val))


@pytest.mark.parametrize("n", [8, 16, 24])
def test_a_solver_of_semidefinite_programs_finds_no_lower_bound(n: int, workers: Workers) -> None:
    """But ours may be lower: rows of Y that a unit is in are rows that a split could have."""
    clarabel = pytest.importorskip("clarabel", reason="clarabel is not installed: pip install '.[dev]'")
    rng, gaps = np.random.default_rng(n), 0
    for _ in range(4):
        codes = np.arange(n) % 2
        requirements = make_requirements(
            [joint_cells({"label": (codes, [0, 1])}, n)], Fraction("0.25"), parse_tolerances([])
        )
        limits = requirements.families[0].validation
        problem = Problem(geometry_of(rng.normal(size=(n, 2)), workers), limits)
        theirs = solved(clarabel, problem.geometry.apply(np.eye(n)), codes, limits.target)
        ours = semidefinite_bound(problem, requirements)
        assert theirs * 0.9 < ours <= theirs * (1 + 2e-4)
        gaps += ours > theirs * (1 - 1e-3)
    assert gaps
