from __future__ import annotations

import math
from fractions import Fraction
from operator import mul
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import (
    Kernel,
    off_diagonal_spread,
    parse_gamma,
    prepare,
    sampled_distances,
    standardize,
)
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.errors import InputError, UsageError

KERNELS = ("rbf", "laplacian", "linear", "cosine", "polynomial")


def by_definition(X: NDArray[Any], kernel: Kernel) -> NDArray[np.float64]:
    """Every entry on its own, in float64, in plain Python."""
    rows = X.astype(np.float64).tolist()
    result = np.empty((len(rows), len(rows)))
    for i, x in enumerate(rows):
        for j, y in enumerate(rows):
            inner = math.fsum(a * b for a, b in zip(x, y, strict=True))
            if kernel.name == "rbf":
                squared = math.fsum((a - b) ** 2 for a, b in zip(x, y, strict=True))
                result[i, j] = math.exp(-float(kernel.gamma or 0) * squared)
            elif kernel.name == "laplacian":
                apart = math.fsum(abs(a - b) for a, b in zip(x, y, strict=True))
                result[i, j] = math.exp(-float(kernel.gamma or 0) * apart)
            elif kernel.name == "linear":
                result[i, j] = inner
            elif kernel.name == "cosine":
                result[i, j] = inner / (math.hypot(*x) * math.hypot(*y) or 1.0)
            else:
                result[i, j] = (float(kernel.gamma or 0) * inner + 1) ** int(kernel.degree or 0)
    return result


def centred_exactly(X: NDArray[Any], kernel: Kernel) -> NDArray[np.float64]:
    """A polynomial kernel after `centred`, as fractions of integers."""
    rows = [[Fraction(value) for value in row] for row in X.astype(np.float64).tolist()]
    gamma, degree, n = Fraction(kernel.gamma or 0), int(kernel.degree or 0), len(rows)
    K = [[(gamma * sum(map(mul, x, y)) + 1) ** degree for y in rows] for x in rows]
    means = [sum(row) / n for row in K]
    middle = sum(means) / n
    return np.array([[float(K[i][j] - means[i] - means[j] + middle) for j in range(n)] for i in range(n)])


def centred(K: NDArray[np.float64]) -> NDArray[np.float64]:
    """Take off what a common shift of all feature rows changes, and no split sees."""
    P = np.eye(len(K)) - 1 / len(K)
    return P @ K @ P


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 1e-5), (np.float64, 1e-11)])
def test_tiles_hold_the_kernel_by_its_definition(
    name: str, offset: float, dtype: type, error: float, workers: Workers
) -> None:
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(23, 4)) + offset).astype(dtype)
    prepared = prepare(Features(X), name, "scale", 3, workers, rng)
    rows = prepared.features.block(0, 23)
    values = prepared.kernel.tile(rows, rows).astype(np.float64)
    expected = by_definition(X, prepared.kernel)
    size = np.abs(expected).max()
    diagonal = np.diag(values)
    if name not in ("rbf", "laplacian"):
        values, expected = centred(values), centred(expected)
    if name == "polynomial":
        # Nor does it here: what all values have in common is never computed.
        expected = centred_exactly(X, prepared.kernel)
        size = np.abs(expected).max()
    if name in ("linear", "rbf", "laplacian"):
        # Their preparation takes the offset off, so it costs no digits.
        exact = X.astype(np.float64) - X.mean(axis=0, dtype=np.float64)
        expected = by_definition(exact, prepared.kernel)
        size = np.abs(expected).max()
    assert np.abs(values - expected).max() <= error * size
    if name in ("rbf", "laplacian"):
        assert prepared.kernel.diagonal(rows).tolist() == [1.0] * 23
    elif name == "polynomial":
        assert prepared.kernel.diagonal(rows) == pytest.approx(diagonal, rel=error)
    else:
        assert prepared.kernel.diagonal(rows) == pytest.approx(np.einsum("ij,ij->i", rows, rows), rel=1e-5)


def test_cosine_sees_directions_only(workers: Workers) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(15, 3))
    lengths = rng.uniform(1e-3, 1e3, size=(15, 1))
    one = prepare(Features(X), "cosine", "scale", 3, workers, rng).features.block(0, 15)
    other = prepare(Features(X * lengths), "cosine", "scale", 3, workers, rng).features.block(0, 15)
    assert one == pytest.approx(other, abs=1e-12)


def test_the_width_rules_follow_their_formulas(workers: Workers) -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(40, 5)) * [1, 2, 3, 4, 5]
    pairs = [float(((x - y) ** 2).sum()) for k, x in enumerate(X) for y in X[:k]]
    expected = {"scale": 1 / X.var(axis=0).sum(), "1/d": 1 / 5, "median": 1 / np.median(pairs), 0.25: 0.25}
    for rule, gamma in expected.items():
        prepared = prepare(Features(X), "rbf", rule, 3, workers, rng)
        assert prepared.kernel.gamma == pytest.approx(gamma, rel=1e-10)


def test_scale_is_one_over_d_on_features_of_unit_variance(workers: Workers) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(50, 8)) * 7 + 2
    features = standardize(Features(X), "zscore", workers)
    assert prepare(features, "rbf", "scale", 3, workers, rng).kernel.gamma == pytest.approx(1 / 8, rel=1e-12)


def test_the_median_is_taken_over_a_seeded_sample(workers: Workers) -> None:
    X = np.random.default_rng(4).normal(size=(1500, 2))
    gammas = {
        prepare(Features(X), "rbf", "median", 3, workers, np.random.default_rng(seed)).kernel.gamma
        for seed in (0, 0, 1)
    }
    assert len(gammas) == 2
    assert len(sampled_distances(Features(X), 10, np.random.default_rng(0))) == 45


@pytest.mark.parametrize("seed", range(5))
def test_a_median_distance_of_zero_is_refused_even_after_rounding(seed: int, workers: Workers) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 17))
    X[5:] = X[0]
    with pytest.raises(InputError, match="the median distance is 0") as caught:
        prepare(Features(X), "rbf", "median", 3, workers, rng)
    assert "--gamma scale" in str(caught.value.hint)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("value", [0.0, 0.1, -1e8 / 3, 1e-20])
@pytest.mark.parametrize("n", [2, 7, 301])
def test_constant_features_are_refused(name: str, value: float, n: int, workers: Workers) -> None:
    with pytest.raises(InputError, match="all features are constant"):
        prepare(Features(np.full((n, 3), value)), name, "scale", 3, workers, np.random.default_rng(0))


def test_a_constant_column_takes_no_part(workers: Workers) -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(31, 3))
    beside = np.column_stack([X, np.full(31, 0.1)])
    for name in ("rbf", "polynomial"):
        for how in ("zscore",):
            tiles = []
            for raw in (X, beside):
                features = standardize(Features(raw), how, workers)
                prepared = prepare(features, name, 0.2, 3, workers, rng)
                assert prepared.spreads.effective == pytest.approx(3.0)
                assert prepared.spreads.varying == 3
                rows = prepared.features.block(0, 31)
                tiles.append(prepared.kernel.tile(rows, rows))
            assert tiles[0] == pytest.approx(tiles[1], rel=1e-12)


def test_spreads_are_shares_of_the_variance_of_the_columns_that_vary(workers: Workers) -> None:
    rng = np.random.default_rng(6)
    X = rng.normal(size=(300, 3))
    X /= X.std(axis=0)
    X = np.column_stack([X * [1, 10, 500], np.full(300, 0.3)])
    spreads = prepare(Features(X), "rbf", "scale", 3, workers, rng).spreads
    shares = np.array([1, 100, 250_000]) / 250_101
    assert [column for column, _ in spreads.largest] == [2, 1, 0]
    assert [share for _, share in spreads.largest] == pytest.approx(shares[::-1])
    assert spreads.effective == pytest.approx(1 / (shares**2).sum())
    assert (spreads.varying, spreads.nearly_constant) == (3, ())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_zscore_gives_every_column_mean_zero_and_variance_one(dtype: type, workers: Workers) -> None:
    X = (np.random.default_rng(7).normal(size=(200, 3)) * [1, 20, 0.1] + 5).astype(dtype)
    Z = standardize(Features(X), "zscore", workers).block(0, 200)
    assert Z.mean(axis=0) == pytest.approx(np.zeros(3), abs=1e-12)
    assert Z.std(axis=0) == pytest.approx(np.ones(3), rel=1e-12)


def test_zscore_of_columns_far_from_zero_has_all_digits(workers: Workers) -> None:
    X = np.random.default_rng(7).normal(size=(200, 3)) + 1e12
    Z = standardize(Features(X), "zscore", workers).block(0, 200)
    exact = X - X[0]  # without rounding: both have the same last digits
    exact = (exact - exact.mean(axis=0)) / exact.std(axis=0)
    assert np.abs(Z - exact).max() < 1e-13


def test_l2_gives_every_row_length_one_and_none_changes_nothing(workers: Workers) -> None:
    X = np.random.default_rng(8).normal(size=(20, 3))
    Z = standardize(Features(X), "l2", workers).block(0, 20)
    assert np.allclose(Z, X / np.linalg.norm(X, axis=1, keepdims=True), rtol=1e-14)
    assert np.array_equal(standardize(Features(X), "none", workers).block(0, 20), X)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("how", ["none", "zscore"])
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(np.float32, scale) for scale in (1e-40, 1e-30, 1e30, 1e37)]
    + [(np.float64, scale) for scale in (1e-200, 1e-100, 1e100, 1e200)],
)
def test_huge_and_tiny_features_give_the_kernel_or_a_cure(
    name: str, how: str, dtype: type, scale: float, workers: Workers
) -> None:
    rng = np.random.default_rng(9)
    X = rng.normal(size=(20, 3))
    raw = (X * scale).astype(dtype)
    features = standardize(Features(raw), how, workers)
    try:
        prepared = prepare(features, name, "scale", 3, workers, rng)
    except InputError as error:
        assert dtype is np.float64 and how == "none" and name != "cosine"
        assert f"too {'large' if scale > 1 else 'small'} to square" in error.message
        assert error.hint == "use --standardize zscore, or rescale the features"
        return
    rows = prepared.features.block(0, 20)
    values = prepared.kernel.tile(rows, rows)
    # Kernels of width `scale` do not see the unit of the features; the linear one is quadratic in it.
    again = prepare(
        standardize(Features(raw.astype(np.float64) / scale), how, workers), name, "scale", 3, workers, rng
    )
    rows = again.features.block(0, 20)
    expected = again.kernel.tile(rows, rows)
    if name == "linear" and how == "none":
        values = values / scale / scale
    assert values == pytest.approx(expected, rel=2e-5, abs=2e-5)


def test_a_polynomial_that_overflows_is_refused_with_a_cure(workers: Workers) -> None:
    rng = np.random.default_rng(10)
    X = rng.normal(size=(20, 3))
    with pytest.raises(InputError, match="polynomial kernel of degree 5000 overflows") as caught:
        prepare(Features(X), "polynomial", "scale", 5000, workers, rng)
    assert "smaller --degree" in str(caught.value.hint)
    with pytest.raises(InputError, match="overflows"):  # in float32, where it would be held
        prepare(Features((X * 1e10).astype(np.float32)), "polynomial", 1.0, 3, workers, rng)
    X[:, 2] = 1e160
    with pytest.raises(InputError, match="overflows"):
        prepare(Features(X), "polynomial", "scale", 3, workers, rng)


def test_a_gamma_beyond_the_range_of_numbers_is_refused_with_a_cure(workers: Workers) -> None:
    rng = np.random.default_rng(11)
    X = rng.normal(size=(20, 3))
    with pytest.raises(UsageError, match=r"--gamma 1e\+308 is too large") as caught:
        prepare(Features(X), "rbf", 1e308, 3, workers, rng)
    assert caught.value.hint == "try --gamma scale"
    with pytest.raises(UsageError, match=r"--gamma 1e-30 is too small .*: their product is beyond 1e-25"):
        prepare(Features(X), "rbf", 1e-30, 3, workers, rng)
    for gamma in (1e-20, 1e7):
        prepared = prepare(Features(X), "rbf", gamma, 3, workers, rng)
        rows = prepared.features.block(0, 20)
        values = prepared.kernel.tile(rows, rows)
        assert np.allclose(values[np.triu_indices(20, 1)], 1.0 if gamma < 1 else 0.0)
        assert (prepared.kernel.diagonal(rows) == 1.0).all()


@pytest.mark.parametrize(("gamma", "near_zero", "near_one"), [(1e4, 1, 0), (1e-6, 0, 1), ("scale", 0, 0)])
def test_a_degenerate_kernel_shows_in_its_off_diagonal_values(
    gamma: str | float, near_zero: bool, near_one: bool, workers: Workers
) -> None:
    rng = np.random.default_rng(12)
    for n in (2, 3, 900):
        X = rng.normal(size=(n, 3))
        spread = off_diagonal_spread(prepare(Features(X), "rbf", gamma, 3, workers, rng), rng)
        assert (spread.is_near_zero, spread.is_near_one) == (near_zero, near_one)


def test_two_tight_far_clusters_are_not_a_degenerate_kernel(workers: Workers) -> None:
    rng = np.random.default_rng(13)
    X = rng.normal(size=(200, 3)) * 0.01
    X[:100] += 100
    spread = off_diagonal_spread(prepare(Features(X), "rbf", 1.0, 3, workers, rng), rng)
    assert spread.low < 1e-6 and spread.high > 0.99
    assert not spread.is_near_zero and not spread.is_near_one


def test_float32_stays_float32_where_its_exponents_are_good_enough(workers: Workers) -> None:
    rng = np.random.default_rng(14)
    X = rng.normal(size=(50, 3)).astype(np.float32)
    for gamma, dtype in (("scale", np.float32), (1e3, np.float64)):
        assert prepare(Features(X), "rbf", gamma, 3, workers, rng).features.dtype is dtype


@pytest.mark.parametrize("text", ["scale", "1/d", "median"])
def test_gamma_rules_are_known_by_name(text: str) -> None:
    assert parse_gamma(text) == text


@pytest.mark.parametrize("text", ["", "wide", "0", "-1", "nan", "inf", "1e999"])
def test_other_gamma_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--gamma") as caught:
        parse_gamma(text)
    assert "--gamma scale" in str(caught.value.hint)
    assert parse_gamma("2.5e-3") == 0.0025


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("held", [None, np.float32, np.float64])
@pytest.mark.parametrize("name", ["rbf", "linear", "polynomial"])
def test_kernel_values_are_put_where_they_are_held(dtype: type, held: type | None, name: str) -> None:
    rows = np.geomspace(1e-3, 60.0, 40)[:, None].astype(dtype)
    kernel = Kernel(name, gamma=0.5, degree=3)
    out = None if held is None else np.zeros((40, 90), held)[:, 7:47]  # part of a larger matrix
    found = kernel.tile(rows, rows, out=out)
    assert found.dtype == (held or dtype)
    if out is not None:
        assert found is out
        assert not out.base[:, :7].any() and not out.base[:, 47:].any()
    exact = rows.astype(np.float64) @ rows.T
    if name == "rbf":
        exact = np.exp(-((rows.astype(np.float64) - rows.T) ** 2) / 2)
        # Subnormal numbers would make every product with a narrow kernel many times slower.
        assert exact.min() < np.finfo(found.dtype).tiny
        assert (found**2 >= np.finfo(found.dtype).tiny).all()
    elif name == "polynomial":
        exact = (0.5 * exact + 1) ** 3
    np.testing.assert_allclose(found, exact, rtol=2e-4, atol=1e-18)


def test_rows_far_from_those_of_the_width_are_prepared_in_float64_or_refused(workers: Workers) -> None:
    rng = np.random.default_rng(20)
    near = rng.normal(size=(30, 3)).astype(np.float32)
    prepared = prepare(Features(near), "rbf", "scale", 3, workers, rng)
    far = (rng.normal(size=(8, 3)) + 3e3).astype(np.float32)
    for others, dtype in ((near[:8], np.float32), (far, np.float64)):
        features = prepared.carried_to(np.concatenate([near, others]), 30)
        assert np.dtype(features.dtype) == dtype
        rows = features.block(30, 38)
        expected = by_definition(others, prepared.kernel)
        assert np.abs(prepared.kernel.tile(rows, rows) - expected).max() < 1e-5
    with pytest.raises(InputError, match=r"too far .*: exponents of .*, beyond 1e\+09"):
        prepared.carried_to(np.concatenate([near, 1e6 * far]), 30)


def test_a_row_at_the_mean_has_no_direction_for_the_cosine_kernel(workers: Workers) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(9, 2)) + 0.1
    rows[4] = np.delete(rows, 4, axis=0).mean(axis=0)  # the mean of all rows, up to rounding
    standardized = standardize(Features(rows), "zscore", workers)
    with pytest.raises(InputError, match="1 rows have no direction beyond rounding errors"):
        prepare(standardized, "cosine", "scale", 3, workers, rng)
    rows[4] += 1e-6
    prepare(standardize(Features(rows), "zscore", workers), "cosine", "scale", 3, workers, rng)
