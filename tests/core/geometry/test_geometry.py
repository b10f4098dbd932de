from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clustersplit_cli.core.geometry import dense, factored
from clustersplit_cli.core.geometry import nystrom as centres
from clustersplit_cli.core.geometry import nystrom as factoring
from clustersplit_cli.core.geometry.dense import DenseGeometry, dense_geometry
from clustersplit_cli.core.geometry.factored import FactorGeometry, OwnFactors
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import Prepared, prepare
from clustersplit_cli.core.geometry.low_rank import make_low_rank
from clustersplit_cli.core.geometry.nystrom import linear_geometry, nystrom_geometry
from clustersplit_cli.core.geometry.protocol import Geometry, choose_landmarks
from clustersplit_cli.core.geometry.pseudo_inverse import inverse_root
from clustersplit_cli.core.parallel import Workers, pool

HOLDINGS = ("dense", "linear", "cosine", "polynomial", "nystrom", "nystrom-polynomial")


def build(holding: str, X: NDArray[Any], workers: Workers, q: int = 20) -> tuple[Geometry, Prepared]:
    rng = np.random.default_rng(0)
    name = {"dense": "rbf", "nystrom": "rbf", "nystrom-polynomial": "polynomial"}.get(holding, holding)
    prepared = prepare(Features(X), name, "scale", 2, workers, rng)
    if prepared.kernel.is_linear:
        return linear_geometry(prepared.features, prepared.kernel, workers), prepared
    if holding.startswith("nystrom"):
        rows = choose_landmarks(len(X), q, rng)
        return nystrom_geometry(prepared.features, prepared.kernel, rows, workers), prepared
    return dense_geometry(prepared.features, prepared.kernel, workers), prepared


def exact_kernel(prepared: Prepared, n: int) -> NDArray[np.float64]:
    rows = prepared.features.block(0, n, np.float64)
    return np.asarray(prepared.kernel.tile(rows, rows), dtype=np.float64)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("holding", HOLDINGS)
def test_a_geometry_is_one_matrix_however_it_is_asked(
    holding: str, dtype: type, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several tiles, and ragged last ones.
    for module, name in ((dense, "KERNEL_TILE"), (factoring, "KERNEL_TILE"), (factored, "FACTOR_ROWS")):
        monkeypatch.setattr(module, name, 17)
    monkeypatch.setattr(dense, "TILE_COLUMNS", 23)
    monkeypatch.setattr(dense, "SUMMED_ROWS", 5)
    monkeypatch.setattr(dense, "MANY_ROWS", 59)
    n = 60
    X = np.random.default_rng(1).normal(size=(n, 5)).astype(dtype)
    held, _ = build(holding, X, workers)
    matrix = held.apply(np.eye(n))
    close = 1e-12 if dtype is np.float64 else 3e-6
    size = np.abs(matrix).max()
    Z = np.random.default_rng(2).normal(size=(n, 3))
    assert held.n == n
    assert np.abs(matrix - matrix.T).max() <= close * size
    if held.name == "nystrom":
        assert (held.diagonal >= np.diag(matrix) - close * size).all()
    else:
        assert np.abs(held.diagonal - np.diag(matrix)).max() <= close * size
    assert held.trace == pytest.approx(np.trace(matrix), rel=10 * close)
    assert held.trace_error == 0
    if isinstance(held, DenseGeometry):
        assert held.row_sums is not None
        assert np.abs(held.row_sums - matrix.sum(axis=1)).max() <= n * close * size
    product, energy = held.measure(Z)
    assert (product == held.apply(Z)).all()
    assert np.abs(energy - np.diag(Z.T @ matrix @ Z)).max() <= n * close * size
    assert np.abs(held.apply(Z) - matrix @ Z).max() <= close * size
    left, right = np.array([3, 3, 59, 0]), np.array([7, 59])
    assert np.abs(held.block(left, right) - matrix[np.ix_(left, right)]).max() <= close * size
    landmarks = held.draw_landmarks(9, np.random.default_rng(4))
    assert len(set(landmarks.tolist())) == 9
    columns = matrix[:, landmarks]
    assert np.abs(held.cross(left, landmarks) - columns[left]).max() <= 100 * close * size
    weights = np.random.default_rng(5).normal(size=(9, 2)).astype(held.search_dtype)
    assert np.abs(held.combine(landmarks, weights) - columns @ weights).max() <= 1000 * close * size
    coarse = held.apply(Z.astype(np.float32))
    assert coarse.dtype == np.float32
    assert np.abs(coarse - matrix @ Z).max() <= 2e-4 * size
    assert np.linalg.eigvalsh(matrix).min() >= -10 * close * size


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("holding", ["linear", "cosine", "nystrom", "nystrom-polynomial"])
def test_factors_are_summed_and_spread_in_parts_as_in_one(
    holding: str, dtype: type, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, size in (
        (centres, "LEAST_TILE", 17),
        (centres, "VALUE_ROWS", 5),
        (factored, "FACTOR_ROWS", 7),
        (factored, "BLOCK_ROWS", 5),
        (factored, "SPAN_ROWS", 19),
        (factoring, "SPAN_ROWS", 19),
    ):
        monkeypatch.setattr(module, name, size)
    rng = np.random.default_rng(3)
    held, prepared = build(holding, rng.normal(size=(60, 5)).astype(dtype), workers)
    assert isinstance(held, FactorGeometry)
    F = held.rows(0, 60, np.float64)
    K = held.apply(np.eye(60))
    close = {"rtol": 0, "atol": 1e-11 * np.abs(K).max()}
    np.testing.assert_allclose(held.total, F.sum(axis=0), rtol=0, atol=1e-11 * np.abs(F).max())
    assert held.grand_total == pytest.approx(K.sum(), abs=1e-9 * np.abs(K).max())
    np.testing.assert_allclose(held.spread(held.total[:, None], np.float64)[:, 0], K.sum(axis=1), **close)
    for share in (0.2, 0.8):
        members = rng.random(60) < share
        for found, side in zip(held.halves(members), (members, ~members), strict=True):
            np.testing.assert_allclose(found, F[side].sum(axis=0), rtol=0, atol=1e-11 * np.abs(F).max())
    rows, weights = rng.permutation(60)[:23], rng.normal(size=23)
    summed = held.sum_of(rows, weights)
    np.testing.assert_allclose(summed, F[rows].T @ weights, rtol=0, atol=1e-11 * np.abs(F).max())
    np.testing.assert_allclose(held.at(rows, summed), K[np.ix_(rows, rows)] @ weights, **close)
    assert held.square(summed[:, None])[0] == pytest.approx(
        weights @ K[np.ix_(rows, rows)] @ weights, rel=1e-8
    )
    members = rng.random((60, 4)) < 0.4
    np.testing.assert_allclose(
        held.sums_over(members, np.float64), F.T @ members, rtol=0, atol=1e-11 * np.abs(F).max()
    )
    if prepared.moments is not None:
        again = linear_geometry(prepared.features, prepared.kernel, workers, prepared.moments)
        assert again.diagonal == pytest.approx(held.diagonal, rel=1e-13)
        np.testing.assert_allclose(again.total, held.total, rtol=0, atol=1e-11 * np.abs(F).max())
        np.testing.assert_allclose(again.apply(np.eye(60)), K, **close)
        np.testing.assert_allclose(
            again.sums_over(members, np.float64), F.T @ members, rtol=0, atol=1e-11 * np.abs(F).max()
        )
    assert (prepared.moments is not None) == (held.name == "linear")


@pytest.mark.parametrize(("offset", "is_near"), [(0.0, True), (1.0, True), (50.0, False)])
@pytest.mark.parametrize("kernel", ["linear", "cosine"])
def test_rows_near_their_mean_need_no_centring(
    kernel: str, offset: float, is_near: bool, workers: Workers
) -> None:
    rng = np.random.default_rng(8)
    X = (rng.normal(size=(300, 6)) + offset).astype(np.float32)
    prepared = prepare(Features(X), kernel, "scale", 2, workers, rng)
    held = linear_geometry(prepared.features, prepared.kernel, workers, prepared.moments)
    # Unit rows are made block by block, so that nothing would be saved.
    assert (held.uncentred is not None) == (is_near and kernel == "linear")
    plain = linear_geometry(prepared.features, prepared.kernel, workers)
    vectors = rng.normal(size=(300, 3))
    for dtype, close in ((np.float64, 1e-12), (np.float32, 2e-6)):
        there, energy = held.measure(vectors.astype(dtype))
        here, expected = plain.measure(vectors.astype(dtype))
        assert there.dtype == dtype
        assert np.abs(there - here).max() <= close * np.abs(here).max()
        assert energy == pytest.approx(expected, rel=close)


@pytest.mark.parametrize("rank", [3, 5, 40])
def test_an_image_of_few_factors_is_the_kernel_itself(rank: int, workers: Workers) -> None:
    held, _ = build("linear", np.random.default_rng(6).normal(size=(80, 5)), workers)
    image = make_low_rank(held, np.random.default_rng(0), rank)
    assert isinstance(image.source, OwnFactors) == (rank >= 5)
    if rank >= 5:
        factors, K = image.factors(np.arange(80), workers), held.apply(np.eye(80))
        assert np.abs(factors @ factors.T - K).max() <= 1e-12 * np.abs(K).max()
        assert np.abs(image.spread(factors[:7].T) - K[:, :7]).max() <= 1e-12 * np.abs(K).max()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("holding", ["dense", "linear", "cosine", "polynomial"])
def test_exact_geometries_hold_the_kernel(
    holding: str, dtype: type, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "KERNEL_TILE", 17)
    X = np.random.default_rng(3).normal(size=(50, 4)).astype(dtype)
    held, prepared = build(holding, X, workers)
    exact = exact_kernel(prepared, 50)
    matrix = held.apply(np.eye(50))
    assert np.abs(matrix - exact).max() <= (1e-14 if dtype is np.float64 else 1e-6) * np.abs(exact).max()
    assert held.diagonal == pytest.approx(np.diag(matrix), rel=1e-14)
    if held.name == "dense":
        assert np.array_equal(matrix, matrix.T)


@pytest.mark.parametrize("holding", ["nystrom", "nystrom-polynomial"])
@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 2e-5), (np.float64, 1e-8)])
def test_nystrom_on_all_rows_is_the_kernel_itself(
    holding: str, dtype: type, error: float, workers: Workers
) -> None:
    n = 120
    X = np.random.default_rng(4).normal(size=(n, 3)).astype(dtype)  # polynomial: of rank 10, below 120
    held, prepared = build(holding, X, workers, q=n)
    exact = exact_kernel(prepared, n)
    size = np.abs(exact).max()
    assert np.abs(held.apply(np.eye(n)) - exact).max() <= error * size
    assert np.abs(held.diagonal - np.diag(exact)).max() <= error * size
    everything = np.arange(n)
    assert np.abs(held.block(everything, everything) - exact).max() <= error * size


def test_nystrom_never_exceeds_the_kernel(workers: Workers) -> None:
    X = np.random.default_rng(5).normal(size=(80, 4))
    held, prepared = build("nystrom", X, workers, q=15)
    shortfall = exact_kernel(prepared, 80) - held.apply(np.eye(80))
    assert np.linalg.eigvalsh(shortfall).min() >= -1e-10
    assert np.abs(shortfall).max() > 0.01


def test_landmarks_may_outnumber_the_rank_and_repeat_rows(workers: Workers) -> None:
    X = np.repeat(np.random.default_rng(6).normal(size=(5, 3)), 20, axis=0)
    held, prepared = build("nystrom", X, workers, q=60)
    assert held.apply(np.eye(100)) == pytest.approx(exact_kernel(prepared, 100), abs=1e-10)


def test_the_trace_of_many_rows_is_estimated_within_its_standard_error(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.random.default_rng(10).normal(size=(900, 4))
    whole, _ = build("nystrom", X, workers, q=15)
    monkeypatch.setattr(factoring, "TRACE_ROWS", 300)
    part, _ = build("nystrom", X, workers, q=15)
    assert whole.trace_error == 0 < part.trace_error < 0.05 * whole.trace
    assert abs(part.trace - whole.trace) < 4 * part.trace_error


def test_landmarks_are_distinct_sorted_and_at_most_all_rows() -> None:
    rng = np.random.default_rng(7)
    rows = choose_landmarks(100, 30, rng)
    assert len(set(rows.tolist())) == 30 and (np.diff(rows) > 0).all()
    assert choose_landmarks(10, 30, rng).tolist() == list(range(10))


def test_the_inverse_root_inverts_what_rounding_did_not_make() -> None:
    rng = np.random.default_rng(8)
    F = rng.normal(size=(40, 6))
    root = inverse_root(F @ F.T, np.dtype(np.float64))
    assert root.shape == (40, 6)
    assert root @ root.T == pytest.approx(np.linalg.pinv(F @ F.T, rcond=1e-12), abs=1e-10)


@pytest.mark.parametrize("least", [1e-2, 1e-5, 1e-7, 1e-12, -1e-9])
def test_the_inverse_root_is_cut_at_the_same_eigenvalue_however_it_is_found(least: float) -> None:
    rng = np.random.default_rng(12)
    basis = np.linalg.qr(rng.normal(size=(150, 150)))[0]
    values = np.append(np.geomspace(1.0, 0.1, 149), least)
    gram = (basis * values) @ basis.T
    root = inverse_root(gram, np.dtype(np.float32))
    kept = values > 10 * np.finfo(np.float32).eps
    assert root.shape == (150, kept.sum())
    expected = (basis[:, kept] / values[kept]) @ basis[:, kept].T
    np.testing.assert_allclose(root @ root.T, expected, rtol=0, atol=1e-9 / values[kept].min())


def test_the_linear_kernel_never_forms_all_pairs(workers: Workers) -> None:
    n = 60_000  # all pairs would take 14 GB
    X = np.random.default_rng(9).normal(size=(n, 4)).astype(np.float32)
    prepared = prepare(Features(X), "linear", "scale", 3, workers, np.random.default_rng(0))
    tracemalloc.start()
    held = linear_geometry(prepared.features, prepared.kernel, workers)
    product = held.apply(np.ones((n, 2)))
    held.block(np.arange(100), np.arange(50))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
    assert np.abs(product).max() < 1e-6 * n  # centred features: row sums vanish


def test_no_geometry_depends_on_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(centres, "LEAST_TILE", 128)
    X = np.random.default_rng(10).normal(size=(700, 6)).astype(np.float32)
    X[350:] = X[:350]  # duplicates: where a last bit changes the split
    Z = np.random.default_rng(11).normal(size=(700, 3))
    for holding in HOLDINGS:
        found = []
        for count in (1, 2, 3):
            with pool(count) as workers:
                held, _ = build(holding, X, workers)
                found.append((held.apply(Z), held.apply(Z.astype(np.float32)), held.diagonal))
        for other in found[1:]:
            assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))
