from __future__ import annotations

import numpy as np
import pytest

from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import Kernel, prepare
from clustersplit_cli.core.mmd.estimators import subsample_mmd
from clustersplit_cli.core.parallel import Workers


def sides(members: np.ndarray) -> list[np.ndarray]:
    return [np.flatnonzero(members), np.flatnonzero(~members)]


def u_statistic(X: np.ndarray, members: np.ndarray, gamma: float) -> float:
    """The unbiased estimator, one pair of distinct rows at a time."""
    val, train = X[members], X[~members]

    def k(x: np.ndarray, y: np.ndarray) -> float:
        return float(np.exp(-gamma * ((x - y) ** 2).sum()))

    within = 0.0
    for side in (val, train):
        pairs = [k(x, y) for i, x in enumerate(side) for j, y in enumerate(side) if i != j]
        within += sum(pairs) / len(pairs)
    return within - 2 * float(np.mean([k(x, y) for x in val for y in train]))


def test_on_all_rows_the_estimate_is_the_u_statistic(workers: Workers) -> None:
    rng = np.random.default_rng(0)
    X, members = rng.normal(size=(30, 3)), np.arange(30) < 12
    prepared = prepare(Features(X), "rbf", "scale", 3, workers, rng)
    found = subsample_mmd(prepared.features, prepared.kernel, sides(members), 100, rng)
    assert found is not None and found.size == 30
    assert found.mmd_squared == pytest.approx(u_statistic(X, members, prepared.kernel.gamma or 0), rel=1e-10)
    assert found.standard_error > 0


def test_no_more_than_the_given_rows_of_each_side_are_used(workers: Workers) -> None:
    rng = np.random.default_rng(1)
    X, members = rng.normal(size=(300, 3)), np.arange(300) < 40
    prepared = prepare(Features(X), "rbf", "scale", 3, workers, rng)
    found = subsample_mmd(prepared.features, prepared.kernel, sides(members), 100, rng)
    assert found is not None and found.size == 140


def test_a_side_of_one_row_has_no_estimate(workers: Workers) -> None:
    rng = np.random.default_rng(2)
    prepared = prepare(Features(rng.normal(size=(9, 2))), "rbf", "scale", 3, workers, rng)
    assert subsample_mmd(prepared.features, prepared.kernel, sides(np.arange(9) < 1), 5, rng) is None
    assert subsample_mmd(prepared.features, prepared.kernel, sides(np.arange(9) < 8), 5, rng) is None


def test_estimates_centre_on_the_truth_and_their_errors_are_honest(workers: Workers) -> None:
    """400 subsamples of one large split: mean without bias, spread as stated, intervals that cover."""
    rng = np.random.default_rng(3)
    n = 8000
    X = rng.normal(size=(n, 2))
    members = np.arange(n) < 3000
    X[members] += 0.7
    features, kernel = Features(np.sqrt(2 * 0.3) * X), Kernel("rbf", gamma=0.3)
    truth = subsample_mmd(features, kernel, sides(members), n, rng)
    assert truth is not None
    found = [subsample_mmd(features, kernel, sides(members), 150, rng) for _ in range(400)]
    values = np.array([one.mmd_squared for one in found if one is not None])
    errors = np.array([one.standard_error for one in found if one is not None])
    assert values.mean() == pytest.approx(truth.mmd_squared, abs=4 * values.std() / 20)
    assert errors.mean() == pytest.approx(values.std(), rel=0.15)
    covered = np.mean(np.abs(values - truth.mmd_squared) <= 2 * errors)
    assert 0.92 <= covered <= 0.985
