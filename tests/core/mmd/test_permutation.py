"""The permutation test: every regrouping measured as if alone, and p-values that mean what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import Prepared, prepare
from clustersplit_cli.core.geometry.protocol import choose_landmarks
from clustersplit_cli.core.geometry.pseudo_inverse import inverse_root
from clustersplit_cli.core.mmd.estimators import ESTIMATORS, squared_discrepancies
from clustersplit_cli.core.mmd.permutation import Permuted, permuted_by_factors, permuted_exactly, regroupings
from clustersplit_cli.core.mmd.sums import Factors, exact_sums, factor_sums
from clustersplit_cli.core.parallel import Workers, pool


def prepared_for(x: NDArray[Any], name: str, workers: Workers) -> Prepared:
    return prepare(Features(x), name, "scale", 3, workers, np.random.default_rng(0))


def test_regroupings_keep_the_sizes_and_start_with_the_groups_as_they_are() -> None:
    draws = regroupings(3, 5, 200, np.random.default_rng(0))
    assert draws.shape == (8, 201)
    assert draws[:, 0].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert set(draws.sum(axis=0).tolist()) == {3}
    # Every row is drawn about as often as any other.
    assert stats.chisquare(draws[:, 1:].sum(axis=1)).pvalue > 1e-3


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_regrouping_has_the_discrepancy_of_its_groups(
    estimator: str, dtype: Any, workers: Workers
) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(1200, 6)).astype(dtype)
    prepared = prepared_for(x, "rbf", workers)
    rows = rng.permutation(1200)[:1100]
    groups = rows[:300], rows[300:]
    draws = regroupings(300, 800, 6, rng)
    found = permuted_exactly(prepared.features, prepared.kernel, groups, draws, estimator, workers)
    for column in range(7):
        parts = [rows[draws[:, column] == 1], rows[draws[:, column] == 0]]
        sums = exact_sums(prepared.features, prepared.kernel, parts, workers)
        wanted = squared_discrepancies(sums, estimator)[0, 1]
        assert found.squared[column] == pytest.approx(wanted, abs=1e-12 if dtype == np.float64 else 2e-8)
        assert abs(found.squared[column] - wanted) < found.resolution


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", ["linear", "rbf"])
def test_regroupings_measured_by_factors_agree_with_their_sums(
    name: str, estimator: str, workers: Workers
) -> None:
    rng = np.random.default_rng(2)
    prepared = prepared_for(rng.normal(size=(2500, 6)), name, workers)
    factors = Factors(prepared.features, prepared.kernel)
    if name == "rbf":
        centres = prepared.features.take(choose_landmarks(2500, 40, rng))
        mixing = inverse_root(prepared.kernel.tile(centres, centres), np.dtype(np.float64))
        factors = Factors(prepared.features, prepared.kernel, centres, mixing)
    rows = rng.permutation(2500)
    draws = regroupings(400, 2100, 5, rng)
    found = permuted_by_factors(factors, (rows[:400], rows[400:]), draws, estimator, workers)
    for column in range(6):
        parts = [rows[draws[:, column] == 1], rows[draws[:, column] == 0]]
        wanted = squared_discrepancies(factor_sums(factors, parts, workers), estimator)[0, 1]
        assert found.squared[column] == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_p_values_do_not_depend_on_the_number_of_workers() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(1400, 8)).astype(np.float32)
    groups = np.arange(500), np.arange(500, 1400)
    draws = regroupings(500, 900, 50, rng)
    found = []
    for threads in (1, 2, 3):
        with pool(threads) as workers:
            prepared = prepared_for(x, "rbf", workers)
            found.append(
                permuted_exactly(prepared.features, prepared.kernel, groups, draws, "biased", workers).squared
            )
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_p_values_count_the_groups_themselves_and_are_never_zero() -> None:
    assert Permuted(np.array([5.0, 1.0, 2.0, 3.0]), 0.0).p_value == 1 / 4
    assert Permuted(np.array([2.0, 1.0, 2.0, 3.0]), 0.0).p_value == 3 / 4
    assert Permuted(np.array([2.0 + 1e-9, 2.0]), 1e-8).p_value == 1  # closer than rounding is a tie


def test_groups_far_apart_get_the_smallest_p_value_there_is(workers: Workers) -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(60, 2))
    x[:30] += 5
    prepared = prepared_for(x, "rbf", workers)
    draws = regroupings(30, 30, 99, rng)
    groups = np.arange(30), np.arange(30, 60)
    assert (
        permuted_exactly(prepared.features, prepared.kernel, groups, draws, "biased", workers).p_value == 0.01
    )


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_p_values_are_uniform_when_the_groups_are_alike(estimator: str) -> None:
    values = []
    with pool(1) as workers:
        for dataset in range(200):
            rng = np.random.default_rng([5, dataset])
            prepared = prepared_for(rng.normal(size=(40, 2)), "rbf", workers)
            draws = regroupings(12, 28, 199, rng)
            groups = np.arange(12), np.arange(12, 40)
            values.append(
                permuted_exactly(
                    prepared.features, prepared.kernel, groups, draws, estimator, workers
                ).p_value
            )
    assert min(values) >= 1 / 200
    # The smallest step is 1/200; spreading each value over its step makes the law continuous.
    spread = np.array(values) - np.random.default_rng(6).uniform(0, 1 / 200, 200)
    assert stats.kstest(spread, "uniform").pvalue > 0.01
