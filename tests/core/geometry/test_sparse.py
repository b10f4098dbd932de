"""Sparse linear kernels against the matrix they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from clustersplit_cli.core.duplicates import row_identities, sparse_row_identities
from clustersplit_cli.core.geometry.sparse import SparseFeatures, prepare_sparse, sparse_geometry
from clustersplit_cli.core.parallel import pool


@pytest.fixture(scope="module")
def dense() -> Any:
    rng = np.random.default_rng(0)
    return np.where(rng.random((90, 7)) < 0.3, rng.normal(size=(90, 7)) + 2, 0.0)


def test_every_product_is_that_of_the_centred_kernel_matrix(dense: Any) -> None:
    prepared = prepare_sparse(scipy.sparse.csr_array(dense), "linear", "none")
    centred = dense - dense.mean(axis=0)
    K = centred @ centred.T
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(90, 3))
    left, right = np.array([3, 5, 80]), np.array([0, 41])
    assert isinstance(prepared.features, SparseFeatures)
    with pool(2) as workers:
        geometry = sparse_geometry(prepared.features, workers)
        product, energy = geometry.measure(vectors)
        np.testing.assert_allclose(product, K @ vectors, atol=1e-10)
        np.testing.assert_allclose(energy, np.einsum("ij,ij->j", vectors, K @ vectors))
        np.testing.assert_allclose(geometry.energy(vectors), energy)
        np.testing.assert_allclose(geometry.block(left, right), K[np.ix_(left, right)], atol=1e-10)
        np.testing.assert_allclose(geometry.cross(left, right), K[np.ix_(left, right)], atol=1e-10)
        np.testing.assert_allclose(geometry.combine(left, vectors[:3]), K[:, left] @ vectors[:3], atol=1e-10)
        np.testing.assert_allclose(geometry.diagonal, np.diag(K), atol=1e-10)
        assert geometry.trace == pytest.approx(np.trace(K))
    np.testing.assert_allclose(prepared.features.take(left), centred[left])


def test_sums_over_groups_are_those_of_the_centred_kernel_matrix(dense: Any) -> None:
    prepared = prepare_sparse(scipy.sparse.csr_array(dense), "linear", "none")
    centred = dense - dense.mean(axis=0)
    rng = np.random.default_rng(2)
    groups = np.unique(rng.integers(0, 25, 90), return_inverse=True)[1].reshape(-1)
    which = np.equal.outer(np.arange(groups.max() + 1), groups).astype(float)
    K = which @ centred @ centred.T @ which.T
    vectors, some = rng.normal(size=(len(K), 3)), np.array([2, 7, 11])
    assert isinstance(prepared.features, SparseFeatures)
    with pool(2) as workers:
        whole = sparse_geometry(prepared.features, workers)
        summed = whole.group_sums(groups)
        np.testing.assert_allclose(summed.apply(vectors), K @ vectors, atol=1e-10)
        np.testing.assert_allclose(summed.block(some, some[:2]), K[np.ix_(some, some[:2])], atol=1e-10)
        np.testing.assert_allclose(summed.combine(some, vectors[:3]), K[:, some] @ vectors[:3], atol=1e-10)
        np.testing.assert_allclose(summed.diagonal, np.diag(K), atol=1e-10)
        assert summed.trace == pytest.approx(whole.trace)


@pytest.mark.parametrize("how", ["none", "zscore", "l2"])
def test_the_ratio_of_spreads_is_that_of_the_scaled_columns(dense: Any, how: str) -> None:
    rows = dense.copy()
    rows[:, 6] = 4.0  # filled everywhere and constant
    found = prepare_sparse(scipy.sparse.csr_array(rows), "linear", how)
    if how == "zscore":
        rows /= np.where(np.ptp(rows, axis=0) > 0, rows.std(axis=0), 1.0)
    elif how == "l2":
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    deviation = rows.std(axis=0)[np.ptp(rows, axis=0) > 0]
    assert found.spreads.largest[0][1] == pytest.approx((deviation**2).max() / (deviation**2).sum())


def test_equal_rows_and_only_equal_rows_share_a_number(dense: Any) -> None:
    rows = np.concatenate([dense, dense[::7], np.zeros((3, 7)), np.roll(dense[:5], 1, axis=1)])
    with pool(1) as workers:
        expected = row_identities(rows, workers)
    found = sparse_row_identities(scipy.sparse.csr_array(rows))
    np.testing.assert_array_equal(found[:, None] == found[None], expected[:, None] == expected[None])
