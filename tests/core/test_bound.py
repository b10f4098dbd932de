"""No split beats the bound, and where the relaxation is tight they are equal."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from clustersplit_cli.core import bound as module
from clustersplit_cli.core.bound import mmd_upper_bound
from clustersplit_cli.core.constraints import Constraints, joint_cells, make_constraints
from clustersplit_cli.core.dense import dense_geometry
from clustersplit_cli.core.enumeration import best_of_all, count_splits
from clustersplit_cli.core.factoring import linear_geometry, nystrom_geometry
from clustersplit_cli.core.features import Features
from clustersplit_cli.core.image import Image, make_image
from clustersplit_cli.core.kernels import prepare
from clustersplit_cli.core.problem import Problem, evaluate
from clustersplit_cli.core.workers import Workers
from clustersplit_cli.errors import InfeasibleError, InputError


def cells(codes: list[int], holdout: str) -> Constraints:
    values = sorted(set(codes))
    table = joint_cells({"label": (np.searchsorted(values, codes), values)}, len(codes))
    return make_constraints(table, Fraction(holdout))


def problem_of(
    X: np.ndarray, kernel: str, gamma: str | float, limits: Constraints, workers: Workers
) -> Problem:
    found = prepare(Features(X), kernel, gamma, 3, workers, np.random.default_rng(0))
    if found.kernel.is_linear:
        return Problem(linear_geometry(found.features, found.kernel, workers), limits)
    return Problem(dense_geometry(found.features, found.kernel, workers), limits)


def true_optimum(problem: Problem) -> float:
    assert count_splits(problem.constraints) < 20_000
    return float(np.sqrt(max(evaluate(problem, best_of_all(problem)[0]).mmd_squared, 0.0)))


def upper(problem: Problem) -> float:
    return mmd_upper_bound(problem, make_image(problem.geometry, np.random.default_rng(1)))


@pytest.mark.parametrize("leading", [0, 2, 5])
def test_the_bound_is_never_below_the_true_optimum(
    leading: int, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    if leading:  # few eigenpairs and a tail, as for large kernels
        monkeypatch.setattr(module, "ALL_ROWS", 0)
        monkeypatch.setattr(module, "LEADING", leading)
    rng = np.random.default_rng(leading)
    tried = 0
    while tried < 120:
        n = int(rng.integers(4, 12))
        X = rng.normal(size=(n, int(rng.integers(1, 5))))
        if tried % 4 == 0:  # mirrored rows: z0 = 0 or b orthogonal to the leading direction, the hard case
            X = np.concatenate([X[: n // 2], -X[: n // 2]])
        kernel = str(rng.choice(["rbf", "linear", "polynomial", "cosine"]))
        gamma = rng.choice(["scale", "20"])
        try:
            limits = cells(rng.integers(0, 3, len(X)).tolist(), f"0.{rng.integers(1, 10)}")
            problem = problem_of(X, kernel, "scale" if gamma == "scale" else 20.0, limits, workers)
        except (InfeasibleError, InputError):
            continue
        tried += 1
        best, most = true_optimum(problem), upper(problem)
        assert most >= best * (1 - 1e-9) - 1e-12, (kernel, gamma, n)


def test_a_nystrom_bound_holds_for_the_nystrom_kernel(workers: Workers) -> None:
    rng = np.random.default_rng(3)
    for _ in range(30):
        X = rng.normal(size=(11, 3))
        found = prepare(Features(X), "rbf", "scale", 3, workers, rng)
        held = nystrom_geometry(found.features, found.kernel, np.array([1, 4, 5, 9]), workers)
        problem = Problem(held, cells([0] * 6 + [1] * 5, "0.4"))
        assert upper(problem) >= true_optimum(problem) * (1 - 1e-9)


def test_the_bound_is_tight_when_the_leading_direction_is_a_split(workers: Workers) -> None:
    """Two tight clusters of the right size: the relaxation's optimum is itself a split."""
    X = np.array([[0.0]] * 8 + [[1.0]] * 2)
    for kernel in ("rbf", "linear"):
        problem = problem_of(X, kernel, "scale", cells([0] * 10, "0.2"), workers)
        assert upper(problem) == pytest.approx(true_optimum(problem), rel=1e-6)


def test_leading_pairs_alone_would_not_bound(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the image misses the leading direction, only the tail keeps the bound above the optimum."""
    monkeypatch.setattr(module, "ALL_ROWS", 0)
    monkeypatch.setattr(module, "LEADING", 1)
    X = np.array([[0.0]] * 4 + [[9.0]] * 4 + [[50.0]] + [[59.0]])
    problem = problem_of(X, "rbf", 1.0, cells([0] * 8 + [1] * 2, "0.5"), workers)
    blind = Image(problem.geometry, np.array([8]), np.eye(1))  # sees nothing of the first eight rows
    best = true_optimum(problem)
    assert mmd_upper_bound(problem, blind) >= best * (1 - 1e-9)
    monkeypatch.setattr(module, "_largest_possible", lambda *_: 0.0)
    assert mmd_upper_bound(problem, blind) < best


def test_the_largest_of_some_numbers_is_bounded_by_their_sums() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        numbers = rng.normal(size=int(rng.integers(1, 30))) * rng.gamma(1.0)
        found = module._largest_possible(float(numbers.sum()), float((numbers**2).sum()), len(numbers))
        assert found >= numbers.max() - 1e-9
    assert module._largest_possible(7.0, 7.0, 7) == pytest.approx(1.0, abs=1e-4)  # all equal: the mean


def test_many_cells_are_merged_and_the_bound_still_holds(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ALL_ROWS", 0)
    monkeypatch.setattr(module, "LEADING", 3)
    monkeypatch.setattr(module, "MOST_GROUPS", 2)
    rng = np.random.default_rng(6)
    for _ in range(40):
        problem = problem_of(
            rng.normal(size=(12, 3)), "rbf", "scale", cells([0, 1, 2, 3] * 3, "0.34"), workers
        )
        assert upper(problem) >= true_optimum(problem) * (1 - 1e-9)


def test_directions_that_are_not_quite_eigenvectors_bound_and_cost_little() -> None:
    """The oracle is the whole spectrum; what rough directions couple to must count, but only once."""
    rng = np.random.default_rng(6)
    too_low = 0
    for _ in range(60):
        n, m = int(rng.integers(5, 12)), int(rng.integers(1, 4))
        factors = rng.normal(size=(n, n)) * rng.gamma(1.0, size=n)
        A, pull, radius_squared = factors @ factors.T, rng.normal(size=n), float(rng.gamma(1.0))
        values, vectors = np.linalg.eigh(A)
        exact = module._least_dual(values, (vectors.T @ pull) ** 2, radius_squared)
        rough = vectors[:, -m:] + 0.1 * rng.normal(size=(n, m))
        basis, _ = np.linalg.qr(np.concatenate([rough, rng.normal(size=(n, n - m))], axis=1))
        held, turn = np.linalg.eigh(basis[:, :m].T @ A @ basis[:, :m])
        U, beyond = basis[:, :m] @ turn, basis[:, m:]
        rest = float(np.linalg.eigvalsh(beyond.T @ A @ beyond)[-1])
        coupling = float(np.linalg.norm(beyond.T @ A @ U, 2))
        squares = (U.T @ pull) ** 2
        left = float(pull @ pull - squares.sum())
        bound = module._best_dual(module.Spectrum(held, squares, rest, left, coupling), radius_squared)
        assert bound >= exact * (1 - 1e-9)
        # As much on both sides is the simplest choice, and never the better one.
        plain = module.Spectrum(held + coupling, squares, rest + coupling, left)
        assert bound <= module._best_dual(plain, radius_squared) * (1 + 1e-9)
        without = module._best_dual(module.Spectrum(held, squares, rest, left), radius_squared)
        too_low += without < exact * (1 - 1e-6)
    assert too_low > 30
