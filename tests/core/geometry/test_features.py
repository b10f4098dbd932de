from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersplit_cli.core.geometry.features import Affine, Features, moments, unit_rows
from clustersplit_cli.core.parallel import Workers


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_moments_are_those_of_the_columns(dtype: type, workers: Workers) -> None:
    X = np.random.default_rng(0).normal(3, 2, size=(200, 4)).astype(dtype)
    found = moments(Features(X), workers)
    exact = X.astype(np.float64)
    assert found.mean == pytest.approx(exact.mean(axis=0), rel=1e-13)
    assert found.deviation == pytest.approx(exact.std(axis=0), rel=1e-13)
    assert found.total_variance == pytest.approx(exact.var(axis=0).sum(), rel=1e-13)
    assert found.largest == np.abs(exact).max()


def test_a_large_offset_does_not_cancel_the_deviation(workers: Workers) -> None:
    X = np.random.default_rng(1).integers(0, 2, size=(500, 3)) + 1e12
    assert moments(Features(X), workers).deviation == pytest.approx((X - 1e12).std(axis=0), rel=1e-8)


@given(
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.integers(2, 400),
)
def test_a_constant_column_has_a_deviation_of_exactly_zero(value: float, n: int) -> None:
    from clustersplit_cli.core.parallel import pool

    X = np.full((n, 2), value)
    X[:, 1] = np.arange(n)
    with pool(1) as workers:
        found = moments(Features(X), workers)
    assert found.deviation[0] == 0.0 and found.mean[0] == value
    assert found.deviation[1] > 0.0


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e200, 1e300])
def test_moments_scale_with_the_column_up_to_the_ends_of_the_range(scale: float, workers: Workers) -> None:
    X = np.random.default_rng(2).normal(size=(100, 3))
    X[:, 2] = 1.0 / scale  # columns of very different sizes must not spoil each other
    X[::2, 2] *= 2
    found = moments(Features(X * [scale, scale, 1]), workers)
    assert found.deviation[:2] / scale == pytest.approx(X[:, :2].std(axis=0), rel=1e-12)
    assert found.deviation[2] * scale == pytest.approx(0.5, rel=1e-12)


def test_the_total_variance_overflows_to_infinity_in_silence(workers: Workers) -> None:
    X = np.array([[1e300], [-1e300], [0.0]])
    assert moments(Features(X), workers).total_variance == np.inf


def test_moments_do_not_depend_on_how_rows_are_cut_into_blocks(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.random.default_rng(3).normal(size=(1000, 5))
    whole = moments(Features(X), workers)
    monkeypatch.setattr("clustersplit_cli.core.geometry.features.BLOCK_BYTES", 8 * 5 * 7)
    cut = moments(Features(X), workers)
    assert cut.mean == pytest.approx(whole.mean, rel=1e-12, abs=1e-15)
    assert cut.deviation == pytest.approx(whole.deviation, rel=1e-12)
    assert cut.largest == whole.largest


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1.0, 1e30])
def test_unit_rows_have_length_one_at_any_scale(dtype: type, scale: float) -> None:
    rows = (np.random.default_rng(4).normal(size=(50, 6)) * scale).astype(dtype)
    direction = rows.astype(np.float64) / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    assert unit_rows(rows.copy()) == pytest.approx(direction, abs=4 * float(np.finfo(dtype).eps))


def test_rows_of_zeros_stay_zero() -> None:
    assert not unit_rows(np.zeros((2, 3))).any()


def test_steps_apply_in_order_and_leave_the_raw_rows_alone() -> None:
    raw = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)
    features = Features(raw, dtype=np.float32).then(Affine(np.array([1.0, 1.0]), 2.0)).then(unit_rows)
    assert features.block(0, 2) == pytest.approx(np.array([[0, 1], [4, 6]] / np.array([[1], [52**0.5]])))
    assert features.take(np.array([1, 1])) == pytest.approx(np.array([[4, 6], [4, 6]]) / 52**0.5)
    assert features.block(0, 1).dtype == np.float32 and features.block(0, 1, np.float64).dtype == np.float64
    assert raw.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("shift", "scale", "suits"),
    [(0.0, 1.0, True), (1e35, 1.0, False), (0.0, 1e35, False), (0.0, 1e-35, False), (-1e20, 1e-20, True)],
)
def test_an_affine_step_knows_whether_float32_can_hold_it(shift: float, scale: float, suits: bool) -> None:
    assert Affine(np.array([0.0, shift]), np.array([1.0, scale])).suits_float32 is suits
