from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clustersplit_cli.core.aims import NearestPoint, approach, bound_and_check, lookalike
from clustersplit_cli.core.constraints.cells import joint_cells
from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.geometry.dense import dense_geometry
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import prepare
from clustersplit_cli.core.geometry.nystrom import linear_geometry
from clustersplit_cli.core.matching import match_means, onto_simplex
from clustersplit_cli.core.mmd.evaluation import Outside, see_outside
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.problem import Problem

KERNELS = ("rbf", "linear", "laplacian")


class Case:
    """A problem of at most a dozen rows, its target, and the kernel by its formula."""

    def __init__(self, seed: int, workers: Workers, n: int | None = None) -> None:
        rng = np.random.default_rng(seed)
        n = int(rng.integers(6, 13)) if n is None else n
        d = int(rng.integers(1, 5))
        X = rng.normal(size=(n, d)) * rng.uniform(0.3, 3)
        E = rng.normal(size=(int(rng.integers(2, 8)), d)) + rng.normal(size=d) * rng.uniform(0, 2)
        k = int(rng.integers(1, 4))
        cells = joint_cells({"label": (rng.permutation(np.arange(n) % k), tuple(range(k)))}, n)
        share = rng.uniform(0.2, 0.6, k)
        quotas = np.clip(np.round(share * cells.sizes), 1, cells.sizes - 1).astype(np.int64)
        self.limits = ValidationQuotas.exactly(cells, quotas)
        kernel = KERNELS[seed % 3]
        found = prepare(Features(X), kernel, "scale", 3, workers, rng)
        hold = linear_geometry if kernel == "linear" else dense_geometry
        self.problem = Problem(hold(found.features, found.kernel, workers), self.limits)
        outside = Features(E, found.features.steps, np.float64)
        self.outside: Outside = see_outside(found.features, outside, found.kernel, workers)
        both = np.concatenate([X, E])
        K = by_formula(kernel, both - X.mean(axis=0), found.kernel.gamma)
        self.K, self.seen, self.norm = K[:n, :n], K[:n, n:].mean(axis=1), K[n:, n:].mean()
        self.streams = np.random.default_rng(seed).spawn(10)

    @property
    def witness(self) -> NDArray[np.float64]:
        return np.asarray(self.seen - self.K.mean(axis=1))

    def splits(self) -> NDArray[np.float64]:
        """Every split that meets the quotas, one a line."""
        cells, n = self.limits.cells, len(self.K)
        rows = [np.flatnonzero(cells.codes == cell) for cell in range(len(cells.sizes))]
        picks = [combinations(some, int(quota)) for some, quota in zip(rows, self.limits.lower, strict=True)]
        chosen = [[row for part in pick for row in part] for pick in product(*picks)]
        members = np.zeros((len(chosen), n))
        for line, some in enumerate(chosen):
            members[line, some] = 1.0
        return members

    def nearest(self, v: NDArray[np.float64]) -> NDArray[np.float64]:
        """MMD²(V, E) of every line."""
        p = v / v.sum(axis=1, keepdims=True)
        return np.asarray(((p @ self.K) * p).sum(axis=1) - 2 * p @ self.seen + self.norm)

    def shift(self, v: NDArray[np.float64]) -> NDArray[np.float64]:
        """|(mu_V - mu_T) - (mu_E - mu_S)|² of every line."""
        t = 1.0 - v
        z = v / v.sum(axis=1, keepdims=True) - t / t.sum(axis=1, keepdims=True)
        apart = self.K.mean() - 2 * self.seen.mean() + self.norm
        return np.asarray(((z @ self.K) * z).sum(axis=1) - 2 * z @ self.witness + apart)


def by_formula(kernel: str, X: NDArray[Any], gamma: float | None) -> NDArray[np.float64]:
    if kernel == "linear":
        return np.asarray(X @ X.T)
    difference = X[:, None] - X[None]
    power = (difference**2).sum(axis=2) if kernel == "rbf" else np.abs(difference).sum(axis=2)
    return np.asarray(np.exp(-float(gamma or 0) * power))


def test_nearest_and_shift_are_the_best_of_all_splits_in_nearly_every_problem(workers: Workers) -> None:
    missed = {"nearest": 0, "shift": 0}
    for seed in range(300):
        case = Case(seed, workers)
        splits = case.splits()
        for name, point, values in (
            ("nearest", NearestPoint.to_target(case.problem, case.outside), case.nearest(splits)),
            ("shift", NearestPoint.to_shift(case.problem, case.outside), case.shift(splits)),
        ):
            found = approach(point, 10, case.streams)
            own = getattr(case, name)(found.members[None].astype(np.float64))[0]
            assert found.squared == pytest.approx(own, abs=1e-9)
            assert (case.limits.counts(found.members) == case.limits.lower).all()
            assert own >= values.min() - 1e-9
            assert found.lower <= values.min() + 1e-9
            assert found.is_swap_optimal
            missed[name] += own > values.min() + 1e-9 * max(1.0, abs(values.min()))
    assert max(missed.values()) <= 3  # one in a hundred


def test_lookalike_has_the_largest_sum_of_all_splits(workers: Workers) -> None:
    for seed in range(300):
        case = Case(seed, workers)
        witness = case.outside.mean - case.problem.row_sums / case.problem.n
        assert witness == pytest.approx(case.witness, abs=1e-9)
        found = lookalike(case.limits, witness)
        best = (case.splits() @ case.witness).max()
        assert found @ case.witness == pytest.approx(best, abs=1e-9)


def test_a_split_that_an_exchange_improves_is_not_called_swap_optimal(workers: Workers) -> None:
    case = Case(3, workers)
    for point, values in (
        (NearestPoint.to_target(case.problem, case.outside), case.nearest(case.splits())),
        (NearestPoint.to_shift(case.problem, case.outside), case.shift(case.splits())),
    ):
        splits = case.splits().astype(bool)
        assert bound_and_check(point, splits[values.argmin()]).is_swap_optimal
        assert not bound_and_check(point, splits[values.argmax()]).is_swap_optimal


def test_the_same_chance_gives_the_same_split(workers: Workers) -> None:
    case = Case(4, workers, n=80)
    point = NearestPoint.to_target(case.problem, case.outside)
    one, two = (approach(point, 5, np.random.default_rng(1).spawn(8)) for _ in range(2))
    assert np.array_equal(one.members, two.members)


@pytest.mark.parametrize("seed", range(6))
def test_weights_are_those_of_another_solver(seed: int, workers: Workers) -> None:
    from scipy.optimize import minimize

    case = Case(seed, workers, n=40)
    rows = np.arange(0, 40, 2)
    found = match_means(case.problem.geometry, rows, case.outside)
    K, k = case.K[np.ix_(rows, rows)], case.seen[rows]
    other = minimize(
        lambda p: p @ K @ p - 2 * p @ k,
        np.full(len(rows), 1 / len(rows)),
        jac=lambda p: 2 * (K @ p - k),
        bounds=[(0, None)] * len(rows),
        constraints=[{"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like}],
        options={"ftol": 1e-13, "maxiter": 1000},
    )
    assert found.squared == pytest.approx(max(other.fun + case.norm, 0.0), abs=1e-6)
    assert found.weights.min() >= 0
    assert found.weights.mean() == pytest.approx(1.0)
    assert found.effective_size == pytest.approx(len(rows) ** 2 / (found.weights**2).sum())


def test_weights_are_equal_where_validation_is_the_target(workers: Workers) -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    found = prepare(Features(X), "rbf", "scale", 3, workers, np.random.default_rng(0))
    outside = see_outside(found.features, found.features, found.kernel, workers)
    matched = match_means(dense_geometry(found.features, found.kernel, workers), np.arange(30), outside)
    assert matched.squared == pytest.approx(0.0, abs=1e-6)
    assert matched.effective_size == pytest.approx(30.0, rel=1e-6)


def test_projections_are_on_the_simplex_and_nearest() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = rng.normal(size=5)
        found = onto_simplex(values)
        assert found.sum() == pytest.approx(1.0)
        assert found.min() >= 0
        others = rng.dirichlet(np.ones(5), 200)
        assert ((found - values) ** 2).sum() <= ((others - values) ** 2).sum(axis=1).min() + 1e-12
