"""Estimates of MMD² against direct double loops, and what must hold for them on average."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import Prepared, prepare, standardize
from clustersplit_cli.core.geometry.protocol import choose_landmarks
from clustersplit_cli.core.geometry.pseudo_inverse import inverse_root
from clustersplit_cli.core.mmd import sums as kernel_sums
from clustersplit_cli.core.mmd.estimators import ESTIMATORS, squared_discrepancies, subsample_mmd, two_sample
from clustersplit_cli.core.mmd.sums import Factors, GroupSums, exact_sums, factor_sums
from clustersplit_cli.core.parallel import Workers, pool

SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data"
KERNELS = ("rbf", "laplacian", "linear", "cosine", "polynomial")
Matrix = NDArray[Any]


def sides(members: np.ndarray) -> list[np.ndarray]:
    return [np.flatnonzero(members), np.flatnonzero(~members)]


def kernel_value(name: str, gamma: float, x: Matrix, y: Matrix) -> float:
    """The kernels by their definitions, one pair of rows at a time."""
    if name == "rbf":
        return math.exp(-gamma * math.fsum((float(a) - float(b)) ** 2 for a, b in zip(x, y, strict=True)))
    if name == "laplacian":
        return math.exp(-gamma * math.fsum(abs(float(a) - float(b)) for a, b in zip(x, y, strict=True)))
    product = math.fsum(float(a) * float(b) for a, b in zip(x, y, strict=True))
    if name == "cosine":
        return product / math.sqrt(math.fsum(float(a) ** 2 for a in x) * math.fsum(float(b) ** 2 for b in y))
    return (gamma * product + 1) ** 3 if name == "polynomial" else product


def by_double_loop(name: str, gamma: float, a: Matrix, b: Matrix, estimator: str) -> float:
    def mean(left: Matrix, right: Matrix, same: bool) -> float:
        values = [
            kernel_value(name, gamma, x, y)
            for i, x in enumerate(left)
            for j, y in enumerate(right)
            if not (same and estimator == "unbiased" and i == j)
        ]
        return math.fsum(values) / len(values)

    return mean(a, a, True) + mean(b, b, True) - 2 * mean(a, b, False)


def prepared_for(x: Matrix, name: str, workers: Workers, gamma: str | float = "scale") -> Prepared:
    return prepare(Features(x), name, gamma, 3, workers, np.random.default_rng(0))


def sums_of(prepared: Prepared, groups: list[Matrix], workers: Workers, **options: Any) -> GroupSums:
    if prepared.kernel.is_linear:
        return factor_sums(Factors(prepared.features, prepared.kernel), groups, workers, **options)
    return exact_sums(prepared.features, prepared.kernel, groups, workers, **options)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_and_estimator_equals_a_double_loop(name: str, estimator: str, workers: Workers) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 5)) + 3.0
    groups = [np.arange(0, 17), np.arange(40, 60), np.array([20, 39, 25])]
    prepared = prepared_for(x, name, workers)
    found = squared_discrepancies(sums_of(prepared, groups, workers), estimator)
    for g in range(3):
        for h in range(3):
            if g == h:
                assert found[g, h] == 0
                continue
            gamma = prepared.kernel.gamma or 0.0
            wanted = by_double_loop(name, gamma, x[groups[g]], x[groups[h]], estimator)
            assert found[g, h] == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", ["rbf", "linear"])
def test_sums_of_rows_and_of_diagonals_are_those_of_the_kernel_matrix(name: str, workers: Workers) -> None:
    rng = np.random.default_rng(4)
    prepared = prepared_for(rng.normal(size=(1300, 3)), name, workers)
    shuffled = rng.permutation(1300)
    groups = [shuffled[:500], shuffled[500:511], shuffled[600:1299]]  # tiles hold parts of several groups
    found = sums_of(prepared, groups, workers, per_row=True)
    order = np.concatenate(groups)
    rows = prepared.features.take(order)
    matrix = prepared.kernel.tile(rows, rows)
    which = np.repeat(np.eye(3), [500, 11, 699], axis=0)
    assert found.rows is not None and found.diagonal is not None
    np.testing.assert_allclose(found.rows, matrix @ which, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(found.between, which.T @ matrix @ which, rtol=1e-10, atol=1e-8)
    np.testing.assert_allclose(found.diagonal, which.T @ np.diag(matrix), rtol=1e-10)
    assert found.sizes.tolist() == [500, 11, 699]


@pytest.mark.parametrize("name", ["rbf", "linear"])
def test_sums_do_not_depend_on_the_number_of_workers(name: str) -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(1500, 40)).astype(np.float32)
    groups = [np.arange(700), np.arange(700, 1500)]
    found = []
    for threads in (1, 2, 3):
        with pool(threads) as workers:
            found.append(sums_of(prepared_for(x, name, workers), groups, workers, per_row=True))
    for other in found[1:]:
        assert np.array_equal(found[0].between, other.between)
        assert np.array_equal(found[0].rows, other.rows)


def test_nystrom_with_every_row_a_landmark_is_exact(workers: Workers) -> None:
    rng = np.random.default_rng(6)
    prepared = prepared_for(rng.normal(size=(90, 4)), "rbf", workers)
    centres = prepared.features.take(choose_landmarks(90, 90, rng))
    mixing = inverse_root(prepared.kernel.tile(centres, centres), np.dtype(np.float64))
    factors = Factors(prepared.features, prepared.kernel, centres, mixing)
    groups = [np.arange(30), np.arange(30, 90)]
    exact = exact_sums(prepared.features, prepared.kernel, groups, workers, per_row=True)
    found = factor_sums(factors, groups, workers, per_row=True)
    np.testing.assert_allclose(found.between, exact.between, rtol=1e-6)
    np.testing.assert_allclose(found.rows, exact.rows, rtol=1e-5)
    np.testing.assert_allclose(found.diagonal, exact.diagonal, rtol=1e-5)
    assert factor_sums(factors, groups, workers, with_diagonal=False).diagonal is None


@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 40), st.integers(2, 40), st.integers(0, 2**32 - 1), st.sampled_from(["rbf", "polynomial"])
)
def test_the_discrepancy_is_symmetric_and_the_biased_one_never_negative(
    first: int, second: int, seed: int, name: str
) -> None:
    x = np.random.default_rng(seed).normal(size=(first + second, 3))
    groups = [np.arange(first), np.arange(first, first + second)]
    with pool(1) as workers:
        prepared = prepared_for(x, name, workers)
        sums = exact_sums(prepared.features, prepared.kernel, groups, workers)
    for estimator in ESTIMATORS:
        squared = squared_discrepancies(sums, estimator)
        assert squared[0, 1] == pytest.approx(squared[1, 0], rel=1e-12, abs=1e-12)
    assert squared_discrepancies(sums, "biased")[0, 1] >= -1e-12


def test_the_unbiased_estimate_of_a_single_row_is_undefined() -> None:
    one = np.ones(())
    assert math.isnan(two_sample("unbiased", (1, 3), (one, one), one, (one, one)))
    assert two_sample("biased", (1, 1), (one, one), one) == 0


def test_the_unbiased_estimate_is_zero_on_average_over_random_splits(workers: Workers) -> None:
    rng = np.random.default_rng(8)
    prepared = prepared_for(rng.normal(size=(80, 3)), "rbf", workers)
    found = {estimator: [] for estimator in ESTIMATORS}
    for _ in range(400):
        shuffled = rng.permutation(80)
        sums = exact_sums(prepared.features, prepared.kernel, [shuffled[:20], shuffled[20:]], workers)
        for estimator in ESTIMATORS:
            found[estimator].append(squared_discrepancies(sums, estimator)[0, 1])
    errors = {name: np.std(values, ddof=1) / 20 for name, values in found.items()}
    assert abs(np.mean(found["unbiased"])) < 4 * errors["unbiased"]
    assert np.mean(found["biased"]) > 4 * errors["biased"]  # the test can tell


def test_the_estimate_on_a_subsample_of_all_rows_is_the_unbiased_one(workers: Workers) -> None:
    rng = np.random.default_rng(9)
    x = rng.normal(size=(50, 3))
    x[:20] += 0.5
    members = np.arange(50) < 20
    prepared = prepared_for(x, "rbf", workers)
    found = subsample_mmd(prepared.features, prepared.kernel, sides(members), 100, rng)
    assert found is not None
    assert found.size == 50
    wanted = by_double_loop("rbf", prepared.kernel.gamma or 0.0, x[:20], x[20:], "unbiased")
    assert found.mmd_squared == pytest.approx(wanted, rel=1e-9)


def shared_matrix(name: str) -> Matrix:
    path = SHARED / f"{name}.parquet"
    if not path.exists():
        pytest.skip(f"{path.name} is not beside the repository")
    table = pq.read_table(path)
    if "embedding" in table.column_names:
        lists = table["embedding"].combine_chunks()
        return np.asarray(lists.flatten().to_numpy(), np.float32).reshape(len(lists), -1)
    names = [f"f{i}" for i in range(len(table.column_names)) if f"f{i}" in table.column_names]
    return np.column_stack([table[name].to_numpy() for name in names]).astype(np.float32)


def directly(x: Matrix, gamma: float, first: Matrix, second: Matrix) -> float:
    """Biased MMD² in float64, from squared distances, some rows at a time."""
    squares = (x**2).sum(axis=1)

    def mean(left: Matrix, right: Matrix) -> float:
        total = 0.0
        for start in range(0, len(left), 256):
            rows = left[start : start + 256]
            distance = squares[rows][:, None] + squares[right][None, :] - 2 * (x[rows] @ x[right].T)
            total += float(np.exp(-gamma * np.maximum(distance, 0)).sum())
        return total / (len(left) * len(right))

    return mean(first, first) + mean(second, second) - 2 * mean(first, second)


@pytest.mark.parametrize("how", ["zscore", "none"])
@pytest.mark.parametrize("name", ["gas_drift", "fsdd_logmel800", "pacs_effnetlite0"])
def test_float32_on_the_shared_files_agrees_with_float64(name: str, how: str, workers: Workers) -> None:
    x = shared_matrix(name)[:2500]
    features = standardize(Features(x), how, workers)
    prepared = prepare(features, "rbf", "scale", 3, workers, np.random.default_rng(0))
    assert prepared.features.dtype == np.float32
    exact = x.astype(np.float64)
    exact -= exact.mean(axis=0)
    if how == "zscore":
        exact /= np.where(exact.std(axis=0) > 0, exact.std(axis=0), 1)
    gamma = 1 / exact.var(axis=0).sum()
    assert prepared.kernel.gamma == pytest.approx(gamma, rel=1e-6)
    shuffled = np.random.default_rng(1).permutation(len(x))
    sides = np.argsort(exact[:, 0], kind="stable")
    for order in (shuffled, sides):  # a random split, whose MMD is tiny, and one by the first column
        first, second = np.sort(order[:700]), np.sort(order[700:])
        sums = exact_sums(prepared.features, prepared.kernel, [first, second], workers)
        found = math.sqrt(squared_discrepancies(sums, "biased")[0, 1])
        wanted = math.sqrt(directly(exact, prepared.kernel.gamma or 0.0, first, second))
        assert found == pytest.approx(wanted, rel=1e-5)


def test_tiles_cover_several_blocks_in_these_tests() -> None:
    assert kernel_sums.TILE < 1200
