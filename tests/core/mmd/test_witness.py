"""The witness of every row, and the columns that tell two groups apart."""

from __future__ import annotations

import numpy as np
import pytest

from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import prepare
from clustersplit_cli.core.mmd.estimators import squared_discrepancies
from clustersplit_cli.core.mmd.sums import exact_sums
from clustersplit_cli.core.mmd.witness import column_shifts, witness
from clustersplit_cli.core.parallel import Workers


def test_the_witness_is_the_product_of_the_kernel_with_the_split_weights(workers: Workers) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3))
    prepared = prepare(Features(x), "rbf", 0.7, 3, workers, rng)
    groups = [np.arange(20), np.arange(20, 35), np.arange(35, 50)]
    sums = exact_sums(prepared.features, prepared.kernel, groups, workers, per_row=True)
    matrix = np.exp(-0.7 * ((x[:, None, :] - x[None, :, :]) ** 2).sum(axis=2))
    weights = np.concatenate([np.full(20, -1 / 20), np.full(15, 1 / 15), np.zeros(15)])
    found = witness(sums, 0, 1)
    np.testing.assert_allclose(found, matrix @ weights, rtol=1e-9, atol=1e-12)
    squared = squared_discrepancies(sums, "biased")[0, 1]
    assert found[20:35].mean() - found[:20].mean() == pytest.approx(squared, rel=1e-9)


def test_shifts_are_differences_of_means_in_units_of_the_spread(workers: Workers) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 4)) * [1, 100, 1, 1] + [0, 0, 1e9, 0]
    x[:, 3] = 0.1  # constant
    first, second = np.arange(0, 120), np.arange(120, 300)
    x[second, 1] += 250
    found = column_shifts(Features(x), [(first, second)], [1.0], workers)
    wanted = (x[second].mean(axis=0) - x[first].mean(axis=0))[:3] / x.std(axis=0)[:3]
    np.testing.assert_allclose(found[:3], wanted, rtol=1e-6, atol=1e-6)
    assert found[3] == 0
    assert np.argmax(np.abs(found)) == 1


def test_shifts_within_cells_ignore_a_difference_that_the_cells_explain(workers: Workers) -> None:
    rng = np.random.default_rng(2)
    label = np.arange(400) % 2
    x = rng.normal(size=(400, 2))
    x[:, 0] += 10 * label  # only the class moves this column
    second = rng.random(400) < np.where(label, 0.8, 0.2)
    x[second, 1] += 2
    cells = [(np.flatnonzero(~second & (label == c)), np.flatnonzero(second & (label == c))) for c in (0, 1)]
    apart = column_shifts(Features(x), [(np.flatnonzero(~second), np.flatnonzero(second))], [1.0], workers)
    inside = column_shifts(Features(x), cells, [0.5, 0.5], workers)
    assert abs(apart[0]) > 0.5
    assert abs(inside[0]) < 0.1
    assert inside[1] > 0.7
