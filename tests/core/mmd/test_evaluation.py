"""MMD to rows outside the split, against the double sum."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from clustersplit_cli.core.constraints.cells import Cells
from clustersplit_cli.core.constraints.quotas import split_quotas
from clustersplit_cli.core.geometry.dense import dense_geometry
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import prepare, standardize
from clustersplit_cli.core.geometry.nystrom import linear_geometry
from clustersplit_cli.core.mmd.definition import by_definition
from clustersplit_cli.core.mmd.evaluation import mmd_to_outside, see_outside
from clustersplit_cli.core.parallel import pool
from clustersplit_cli.core.search.problem import Problem


def double_sum(kernel: str, gamma: float | None, a: np.ndarray, b: np.ndarray) -> float:
    def value(x: np.ndarray, y: np.ndarray) -> float:
        return float(np.exp(-gamma * ((x - y) ** 2).sum()) if kernel == "rbf" and gamma else x @ y)

    def mean(left: np.ndarray, right: np.ndarray) -> float:
        return float(np.mean([[value(x, y) for y in right] for x in left]))

    return mean(a, a) + mean(b, b) - 2 * mean(a, b)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_mmd_to_an_evaluation_domain_is_the_double_sum(kernel: str) -> None:
    rng = np.random.default_rng(0)
    X, E = rng.normal(size=(30, 3)), rng.normal(size=(11, 3)) + 1.0
    members = rng.random(30) < 0.3
    with pool(2) as workers:
        prepared = prepare(Features(X), kernel, "scale", 3, workers, rng)
        hold = linear_geometry if kernel == "linear" else dense_geometry
        limits = split_quotas(
            Cells(np.zeros(30, dtype=np.int64), ({},), np.array([30])), Fraction("0.3")
        ).validation
        problem = Problem(hold(prepared.features, prepared.kernel, workers), limits)
        rows = Features(E, prepared.features.steps, prepared.features.dtype)
        outside = see_outside(prepared.features, rows, prepared.kernel, workers)
        found = mmd_to_outside(problem, members, outside)
    gamma = prepared.kernel.gamma
    for side, value in zip((~members, members), found, strict=True):
        assert value**2 == pytest.approx(double_sum(kernel, gamma, X[side], E), rel=1e-9)


@pytest.mark.parametrize("how", ["none", "zscore", "l2"])
@pytest.mark.parametrize(
    ("kernel", "centred"),
    [("rbf", False), ("rbf", True), ("linear", False), ("cosine", False), ("polynomial", True)],
)
def test_the_definition_agrees_with_double_sums(kernel: str, centred: bool, how: str) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(25, 4)) + 0.5
    members = rng.random(25) < 0.4
    with pool(2) as workers:
        rows = standardize(Features(X), how, workers).block(0, 25)
        found = by_definition(
            X,
            members,
            kernel=kernel,
            gamma=0.3,
            degree=2,
            standardize=how,
            centred=centred,
            landmarks=None,
            workers=workers,
        )
    if kernel == "cosine":
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    K = rows @ rows.T
    if kernel == "rbf":
        K = np.exp(-0.3 * ((rows[:, None] - rows[None]) ** 2).sum(axis=2))
    if kernel == "polynomial":
        K = (0.3 * K + 1) ** 2
    z = members / members.sum() - ~members / (~members).sum()
    assert found.mmd_squared == pytest.approx(z @ K @ z, rel=1e-9)

    def scatter(side: np.ndarray) -> float:
        return float(np.trace(K[side][:, side]) - K[side][:, side].sum() / side.sum())

    assert found.psi == pytest.approx(scatter(members) + scatter(~members), rel=1e-9)
    assert found.ssq_total == pytest.approx(scatter(np.ones(25, dtype=bool)), rel=1e-9)
