"""No split beats the bound, and where the relaxation is tight they are equal."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.bound import bound as module
from clustersplit_cli.core.bound.bound import mmd_upper_bound
from clustersplit_cli.core.constraints.cells import joint_cells
from clustersplit_cli.core.constraints.quotas import ValidationQuotas, split_quotas
from clustersplit_cli.core.geometry import spectrum
from clustersplit_cli.core.geometry.cholesky import pivoted_cholesky
from clustersplit_cli.core.geometry.dense import dense_geometry
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import Kernel, prepare
from clustersplit_cli.core.geometry.low_rank import LandmarkColumns, LowRankKernel, make_low_rank
from clustersplit_cli.core.geometry.nystrom import low_rank_geometry, nystrom_geometry
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.exhaustive import best_of_all, count_splits
from clustersplit_cli.core.search.problem import Problem, discrepancy, evaluate
from clustersplit_cli.core.search.starts import random_splits
from clustersplit_cli.errors import InfeasibleError, InputError
from tests.core.builders import problem_of


def cells(codes: list[int], holdout: str) -> ValidationQuotas:
    values = sorted(set(codes))
    table = joint_cells({"label": (np.searchsorted(values, codes), values)}, len(codes))
    return split_quotas(table, Fraction(holdout)).validation


def true_optimum(problem: Problem) -> float:
    assert count_splits(problem.constraints) < 20_000
    return float(np.sqrt(max(evaluate(problem, best_of_all(problem)[0]).mmd_squared, 0.0)))


def upper(problem: Problem) -> float:
    image = make_low_rank(problem.geometry, np.random.default_rng(1))
    return mmd_upper_bound(problem, image)


@pytest.mark.parametrize("leading", [0, 2, 5])
def test_the_bound_is_never_below_the_true_optimum(
    leading: int, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    if leading:  # few eigenpairs and a tail, as for large kernels
        monkeypatch.setattr(spectrum, "ALL_ROWS", 0)
        monkeypatch.setattr(spectrum, "LEADING", leading)
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
            problem = problem_of(X, limits, workers, kernel, "scale" if gamma == "scale" else 20.0)
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
        problem = problem_of(X, cells([0] * 10, "0.2"), workers, kernel)
        assert upper(problem) == pytest.approx(true_optimum(problem), rel=1e-6)


def test_leading_pairs_alone_would_not_bound(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the image misses the leading direction, only the tail keeps the bound above the optimum."""
    monkeypatch.setattr(spectrum, "ALL_ROWS", 0)
    monkeypatch.setattr(spectrum, "LEADING", 1)
    X = np.array([[0.0]] * 4 + [[9.0]] * 4 + [[50.0]] + [[59.0]])
    problem = problem_of(X, cells([0] * 8 + [1] * 2, "0.5"), workers, gamma=1.0)
    blind = LowRankKernel(
        LandmarkColumns(problem.geometry, np.array([8])), np.eye(1)
    )  # sees nothing of the first eight rows
    best = true_optimum(problem)
    assert mmd_upper_bound(problem, blind) >= best * (1 - 1e-9)
    monkeypatch.setattr(spectrum, "_largest_possible", lambda *_: 0.0)
    assert mmd_upper_bound(problem, blind) < best


def test_the_largest_of_some_numbers_is_bounded_by_their_sums() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        numbers = rng.normal(size=int(rng.integers(1, 30))) * rng.gamma(1.0)
        found = spectrum._largest_possible(float(numbers.sum()), float((numbers**2).sum()), len(numbers))
        assert found >= numbers.max() - 1e-9
    assert spectrum._largest_possible(7.0, 7.0, 7) == pytest.approx(1.0, abs=1e-4)  # all equal: the mean


def test_many_cells_are_merged_and_the_bound_still_holds(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spectrum, "ALL_ROWS", 0)
    monkeypatch.setattr(spectrum, "LEADING", 3)
    monkeypatch.setattr(spectrum, "MOST_GROUPS", 2)
    rng = np.random.default_rng(6)
    for _ in range(40):
        problem = problem_of(rng.normal(size=(12, 3)), cells([0, 1, 2, 3] * 3, "0.34"), workers)
        assert upper(problem) >= true_optimum(problem) * (1 - 1e-9)


def largest_on_sphere(values: np.ndarray, pulls: np.ndarray, radius_squared: float) -> float:
    """The trust-region problem by its dual: the least of mu r² + sum of b²/(mu - a) over mu above all a."""
    top = float(values.max())

    def dual(log_excess: float) -> float:
        mu = top + np.exp(log_excess)
        return float(mu * radius_squared + (pulls**2 / (mu - values)).sum())

    return float(minimize_scalar(dual, bounds=(-40.0, 20.0), method="bounded", options={"xatol": 1e-10}).fun)


def on_sphere(values: np.ndarray, pulls: np.ndarray, rest: float, left: float, coupling: float) -> float:
    seen = spectrum.Spectrum(values, pulls, rest, left, coupling)
    return module._largest_gain(seen, 0.7, None)


def test_directions_that_are_not_quite_eigenvectors_bound_and_cost_little() -> None:
    """The oracle is the whole spectrum; what rough directions couple to must count, but only once."""
    rng = np.random.default_rng(6)
    too_low = 0
    for _ in range(60):
        n, m = int(rng.integers(5, 12)), int(rng.integers(1, 4))
        factors = rng.normal(size=(n, n)) * rng.gamma(1.0, size=n)
        A, pull = factors @ factors.T, rng.normal(size=n)
        values, vectors = np.linalg.eigh(A)
        exact = largest_on_sphere(values, vectors.T @ pull, 0.7)
        assert on_sphere(values[::-1], (vectors.T @ pull)[::-1], 0.0, 0.0, 0.0) == pytest.approx(
            exact, rel=1e-3
        )
        rough = vectors[:, -m:] + 0.1 * rng.normal(size=(n, m))
        basis, _ = np.linalg.qr(np.concatenate([rough, rng.normal(size=(n, n - m))], axis=1))
        held, turn = np.linalg.eigh(basis[:, :m].T @ A @ basis[:, :m])
        U, beyond = basis[:, :m] @ turn, basis[:, m:]
        rest = float(np.linalg.eigvalsh(beyond.T @ A @ beyond)[-1])
        coupling = float(np.linalg.norm(beyond.T @ A @ U, 2))
        pulls = U.T @ pull
        left = float(np.linalg.norm(pull - U @ pulls))
        bound = on_sphere(held, pulls, rest, left, coupling)
        assert bound >= exact * (1 - 1e-9)
        # As much on both sides is the simplest choice, and never the better one.
        assert bound <= on_sphere(held + coupling, pulls, rest + coupling, left, 0.0) * (1 + 1e-9)
        too_low += on_sphere(held, pulls, rest, left, 0.0) < exact * (1 - 1e-6)
    assert too_low > 30


@pytest.mark.parametrize("n_labels", [1, 7])
@pytest.mark.parametrize("d", [1, 2, 3, 8])
def test_the_bound_knows_how_far_splits_reach(d: int, n_labels: int, workers: Workers) -> None:
    """A fifth of a normal sample reaches 0.7 of what the sphere allows along a direction, and no farther."""
    rng = np.random.default_rng(d)
    X = rng.normal(size=(700, d)) * 0.6 ** np.arange(d)
    problem = problem_of(X, cells((np.arange(700) % n_labels).tolist(), "0.2"), workers, "linear")
    best = 0.0
    for direction in np.concatenate([np.eye(d), rng.normal(size=(50, d))]):
        members = Selection(problem.constraints).choose(-(X @ direction)[:, None])
        best = max(best, float(np.sqrt(discrepancy(problem, members, np.float64).mmd_squared[0])))
    bound = upper(problem)
    assert bound >= best * (1 - 1e-9)
    assert bound == pytest.approx(best, rel={1: 1e-4, 2: 0.01, 3: 0.02, 8: 0.05}[d])


def test_company_bounds_narrow_kernels(workers: Workers) -> None:
    """Rows in pairs of neighbours: a split keeps pairs together, and nothing can do better."""
    rng = np.random.default_rng(7)
    middles = 100.0 * np.arange(200)[:, None] + np.zeros((200, 2))
    X = np.repeat(middles, 2, axis=0) + 0.05 * rng.normal(size=(400, 2))
    limits = cells([0] * 400, "0.2")
    problem = problem_of(X, limits, workers, gamma=1.0)
    image = make_low_rank(problem.geometry, np.random.default_rng(1))
    closest = np.argsort(-problem.row_sums[::2])[:40]
    members = np.zeros(400, dtype=bool)
    members[2 * closest] = members[2 * closest + 1] = True
    best = float(np.sqrt(evaluate(problem, members).mmd_squared))
    assert mmd_upper_bound(problem, image) == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("holdout", ["0.2", "0.5", "0.7"])
def test_company_is_never_below_the_true_optimum(holdout: str, workers: Workers) -> None:
    rng = np.random.default_rng(8)
    for _ in range(60):
        X = rng.normal(size=(int(rng.integers(6, 12)), 2))
        limits = cells((np.arange(len(X)) % 2).tolist(), holdout)
        problem = problem_of(X, limits, workers, gamma=float(np.exp(rng.uniform(-2, 4))))
        assert np.sqrt(module._by_row_sums(problem, 0.0)) >= true_optimum(problem) * (1 - 1e-9)


@pytest.mark.parametrize("holdout", ["0.2", "0.5"])
def test_rounding_never_takes_a_tight_bound_below_what_splits_reach(holdout: str, workers: Workers) -> None:
    """Rows far from each other: all splits reach the bound, but for rounding in single precision."""
    rng = np.random.default_rng(9)
    X = rng.standard_t(2, size=(3000, 30)).astype(np.float32)
    limits = cells([0] * len(X), holdout)
    problem = problem_of(X, limits, workers, gamma=20.0)
    image = make_low_rank(problem.geometry, np.random.default_rng(1))
    bound = mmd_upper_bound(problem, image)
    for split in random_splits(limits, rng.spawn(5)).T:
        reached = float(np.sqrt(evaluate(problem, split).mmd_squared))
        assert reached <= bound <= reached * (1 + 1e-4)


def test_the_bound_on_few_factors_holds_for_the_kernel_itself(workers: Workers) -> None:
    rng, exceeded = np.random.default_rng(5), 0
    for _ in range(60):
        n = int(rng.integers(8, 14))
        rows = Features(rng.normal(size=(n, 3)))
        found = pivoted_cholesky(rows, Kernel("rbf", 0.5), rng, workers, most=int(rng.integers(1, 5)))
        exact = dense_geometry(rows, Kernel("rbf", 0.5), workers)
        limits = cells([0] * n, "0.4")
        best = true_optimum(Problem(exact, limits))
        factored = low_rank_geometry(found.factors, workers, found.residual)
        assert upper(Problem(factored, limits)) >= best * (1 - 1e-6)
        exceeded += upper(Problem(replace(factored, lacking=0.0), limits)) < best
    assert exceeded > 10  # what the factors lack matters here
