from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.protocol import ByProducts, split_weights
from clustersplit_cli.core.parallel import Workers, pool
from clustersplit_cli.core.search.problem import (
    Members,
    Problem,
    discrepancy,
    evaluate,
    objectives,
    shifted,
)
from tests.core.builders import split_problem

HOLDINGS = ("rbf", "linear", "cosine", "polynomial", "nystrom")


def random_members(n: int, rng: np.random.Generator) -> Members:
    members = np.zeros(n, dtype=bool)
    members[rng.permutation(n)[: rng.integers(1, n)]] = True
    return members


def mmd_squared_by_definition(K: NDArray[Any], members: Members) -> float:
    """The biased estimator, one pair of rows at a time."""
    val, train = np.flatnonzero(members).tolist(), np.flatnonzero(~members).tolist()
    total = 0.0
    for i in val:
        for j in val:
            total += K[i, j] / len(val) ** 2
    for i in train:
        for j in train:
            total += K[i, j] / len(train) ** 2
    for i in val:
        for j in train:
            total -= 2 * K[i, j] / (len(val) * len(train))
    return total


def squared_distance(K: NDArray[Any], row: int, side: list[int]) -> float:
    """From one row to the mean of a side, in feature space."""
    total = float(K[row, row])
    for j in side:
        total -= 2 * K[row, j] / len(side)
        for k in side:
            total += K[j, k] / len(side) ** 2
    return total


@pytest.mark.parametrize("holding", HOLDINGS)
@pytest.mark.parametrize(("dtype", "close"), [(np.float32, 5e-6), (np.float64, 1e-11)])
def test_every_measure_of_a_split_follows_its_definition(
    holding: str, dtype: type, close: float, workers: Workers
) -> None:
    n, rng = 14, np.random.default_rng(1)
    X = (rng.normal(size=(n, 3)) + 2).astype(dtype)
    problem = split_problem(X, holding, workers, every=3)
    K = np.asarray(problem.geometry.apply(np.eye(n)), dtype=np.float64)
    everyone = list(range(n))
    scatter = sum(squared_distance(K, i, everyone) for i in everyone)
    assert problem.ssq_total == pytest.approx(scatter, rel=close)
    for _ in range(4):
        members = random_members(n, rng)
        val, train = np.flatnonzero(members).tolist(), np.flatnonzero(~members).tolist()
        to_val = np.array([squared_distance(K, i, val) for i in everyone])
        to_train = np.array([squared_distance(K, i, train) for i in everyone])
        psi = to_val[members].sum() + to_train[~members].sum()
        mmd_squared = mmd_squared_by_definition(K, members)
        found = evaluate(problem, members)
        assert found.sizes.tolist() == [len(train), len(val)]
        assert found.mmd_squared == pytest.approx(mmd_squared, rel=close, abs=close * scatter / n)
        assert found.psi == pytest.approx(psi, rel=close, abs=close * scatter)
        assert found.ssq_total == pytest.approx(scatter, rel=close)
        assert found.difference == pytest.approx(to_val - to_train, rel=close, abs=close * scatter / n)
        assert found.training_cost == pytest.approx(to_train.sum(), rel=close)
        assert found.identity_residual < 1e-13
        batch = np.stack([members, ~members], axis=1)
        assert objectives(problem, batch) == pytest.approx(
            np.array([psi, psi]), rel=close, abs=close * scatter
        )
        rough = discrepancy(problem, batch, np.float64)
        assert rough.mmd_squared == pytest.approx(
            np.array([mmd_squared, mmd_squared]), rel=close, abs=close * scatter / n
        )
        assert rough.psi == pytest.approx(np.array([psi, psi]), rel=close, abs=close * scatter)
        assert rough.difference[:, 0] == pytest.approx(found.difference, rel=1e-9, abs=1e-12 * scatter)
        assert rough.difference[:, 1] == pytest.approx(-found.difference, rel=1e-9, abs=1e-12 * scatter)
        single = discrepancy(problem, batch, np.float32)
        assert single.difference.dtype == np.float32
        assert single.difference[:, 0] == pytest.approx(found.difference, abs=1e-4 * scatter / n)


def test_the_measures_of_a_split_worked_by_hand(workers: Workers) -> None:
    # Rows 0, 1 | 4, 7 on a line: means 0.5 and 5.5, scatters 0.5 and 4.5; overall mean 3, scatter 30.
    problem = split_problem(np.array([[0.0], [1.0], [4.0], [7.0]]), "linear", workers, every=3)
    found = evaluate(problem, np.array([True, True, False, False]))
    assert found.mmd_squared == pytest.approx(25.0)
    assert found.psi == pytest.approx(5.0)
    assert found.ssq_total == pytest.approx(30.0)
    assert found.difference == pytest.approx(np.array([-30.0, -20.0, 10.0, 40.0]))
    assert found.training_cost == pytest.approx(5.5**2 + 4.5**2 + 1.5**2 + 1.5**2)


def test_weights_are_the_reciprocal_sizes_with_signs() -> None:
    members = np.array([[True, False], [False, False], [False, True], [False, True]])
    assert split_weights(members).T.tolist() == [[1.0, -1 / 3, -1 / 3, -1 / 3], [-0.5, -0.5, 0.5, 0.5]]
    assert split_weights(members, np.float32).dtype == np.float32


@given(st.integers(2, 40), st.integers(0, 10**6), st.sampled_from(HOLDINGS), st.sampled_from([0.0, 30.0]))
def test_the_anova_identity_holds_for_any_split(n: int, seed: int, holding: str, offset: float) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) + offset
    with pool(1) as workers:
        problem = split_problem(X, holding, workers, every=3)
        members = random_members(n, rng)
        found = evaluate(problem, members)
        # Rounding is relative to the kernel's values, the identity to their scatter.
        rounding = 1e-14 * problem.trace / problem.ssq_total
        assert found.identity_residual <= max(1e-12, rounding)
        n_val, n_train = found.n_val, found.n_train
        explained = n / (n_val * n_train) * (found.ssq_total - found.psi)
        assert found.mmd_squared == pytest.approx(explained, rel=1e-8, abs=10 * rounding * found.ssq_total)


@given(st.integers(3, 60), st.integers(0, 10**6), st.sampled_from(HOLDINGS[:4]))
def test_the_measures_of_a_split_do_not_depend_on_row_order(n: int, seed: int, holding: str) -> None:
    rng = np.random.default_rng(seed)
    X, members, order = rng.normal(size=(n, 3)), random_members(n, rng), rng.permutation(n)
    with pool(1) as workers:
        one = evaluate(split_problem(X, holding, workers, every=3), members)
        other = evaluate(split_problem(X[order], holding, workers, every=3), members[order])
    assert other.psi == pytest.approx(one.psi, rel=1e-10, abs=1e-10 * one.ssq_total)
    assert other.mmd_squared == pytest.approx(one.mmd_squared, rel=1e-9, abs=1e-10 * one.ssq_total)


def test_a_wrong_product_shows_in_the_identity(workers: Workers) -> None:
    """The sides of the identity come from separate columns, so an error in one of them shows."""
    problem = split_problem(np.random.default_rng(2).normal(size=(30, 3)), "rbf", workers, every=3)

    class OffByALittle(ByProducts):
        n, trace = problem.geometry.n, problem.geometry.trace

        def apply(self, vectors: NDArray[Any]) -> NDArray[Any]:
            product = problem.geometry.apply(vectors)
            product[:, 0] *= 1.001
            return product

    wrong = Problem(OffByALittle(), problem.constraints)  # type: ignore[arg-type]
    members = random_members(30, np.random.default_rng(3))
    assert evaluate(problem, members).identity_residual < 1e-14
    assert evaluate(wrong, members).identity_residual > 1e-6


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_swapped", [0, 1, 12, 150])
def test_a_split_close_to_a_known_one_measures_as_if_it_were_measured_anew(
    n_swapped: int, dtype: type, workers: Workers
) -> None:
    rng = np.random.default_rng(n_swapped)
    problem = split_problem(rng.normal(size=(600, 5)).astype(np.float32), "rbf", workers, every=3)
    before = np.stack([rng.permutation(np.arange(600) < 200) for _ in range(3)], axis=1)
    members = before.copy()
    for run in range(3):
        members[rng.choice(np.flatnonzero(before[:, run]), n_swapped, replace=False), run] = False
        members[rng.choice(np.flatnonzero(~before[:, run]), n_swapped, replace=False), run] = True
    known = discrepancy(problem, before, dtype)
    found, anew = shifted(problem, members, before, known.witness), discrepancy(problem, members, dtype)
    rounding = 20 * float(np.finfo(dtype).eps)
    assert found.witness.dtype == dtype
    assert np.allclose(found.witness, anew.witness, rtol=rounding, atol=rounding * np.abs(anew.witness).max())
    assert np.allclose(found.difference, anew.difference, atol=rounding)
    assert np.allclose(found.psi, anew.psi, rtol=1e-8 if dtype is np.float32 else 1e-13)


def test_a_split_with_other_counts_is_measured_anew(workers: Workers) -> None:
    rng = np.random.default_rng(0)
    problem = split_problem(rng.normal(size=(100, 5)), "rbf", workers, every=3)
    before = (np.arange(100) < 30)[:, None]
    members = (np.arange(100) < 31)[:, None]
    found = shifted(problem, members, before, discrepancy(problem, before, np.float64).witness)
    assert np.allclose(found.witness, discrepancy(problem, members, np.float64).witness, rtol=1e-12)
