from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersplit_cli.core.geometry.symmetric import SymmetricMatrix
from clustersplit_cli.core.parallel import Workers, pool


def symmetric(n: int, seed: int, dtype: type = np.float64) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(n, n))
    return (drawn + drawn.T).astype(dtype)


@given(n=st.integers(1, 60), height=st.integers(1, 20), seed=st.integers(0, 1000))
def test_half_of_a_matrix_multiplies_and_gathers_like_the_whole(n: int, height: int, seed: int) -> None:
    array = symmetric(n, seed)
    held = SymmetricMatrix.of(array, height)
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, 3))
    left, right = rng.integers(n, size=7), np.sort(rng.integers(n, size=min(n, 5)))
    with pool(2) as workers:
        assert np.allclose(held.multiply(vectors, workers).T, array @ vectors, atol=1e-11)
        assert np.allclose(
            held.energy(vectors, workers), ((array @ vectors) * vectors).sum(axis=0), atol=1e-10
        )
        assert held.sum_of_squares(workers) == pytest.approx((array**2).sum())
        assert np.array_equal(held.gather(left, right, workers), array[np.ix_(left, right)])
        places = np.unique(right)
        combined = held.combine(places, vectors[: len(places)])
        assert np.array_equal(held.columns(places, workers), array[:, places])
        assert np.allclose(combined, array[:, places] @ vectors[: len(places)], atol=1e-11)
    assert np.array_equal(held.gather(right, left), array[np.ix_(right, left)])
    assert np.array_equal(held.rows(0, n), array)


@pytest.mark.parametrize(("rows", "columns"), [(1100, 1100), (1100, 1000), (40, 1100), (1100, 7)])
def test_gathering_by_workers_gives_the_entries(rows: int, columns: int, workers: Workers) -> None:
    array = symmetric(1100, 5, np.float32)
    rng = np.random.default_rng(6)
    left, right = (np.sort(rng.choice(1100, count, replace=False)) for count in (rows, columns))
    assert np.array_equal(SymmetricMatrix.of(array, 300).gather(left, right, workers), array[left][:, right])


def test_it_takes_half_the_memory() -> None:
    held = SymmetricMatrix.empty(2000, np.float32, 100)
    assert sum(strip.nbytes for strip in held.strips) == 4 * 2000 * 2100 / 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_do_not_depend_on_the_number_of_workers(dtype: type) -> None:
    held = SymmetricMatrix.of(symmetric(700, 1, np.float32), 64)
    vectors = np.random.default_rng(2).normal(size=(700, 5)).astype(dtype)
    with pool(1) as one:
        alone = held.multiply(vectors, one)
        energy = held.energy(vectors, one)
    with pool(3) as three:
        assert np.array_equal(held.multiply(vectors, three), alone)
        assert np.array_equal(held.energy(vectors, three), energy)


def test_vectors_in_double_precision_get_products_in_double_precision(workers: Workers) -> None:
    array = symmetric(1500, 3, np.float32)
    vectors = np.random.default_rng(4).normal(size=(1500, 2))
    exact = array.astype(np.float64) @ vectors
    assert np.abs(SymmetricMatrix.of(array).multiply(vectors, workers).T - exact).max() < 1e-10
    energy = (exact * vectors).sum(axis=0)
    assert SymmetricMatrix.of(array).energy(vectors, workers) == pytest.approx(energy, rel=1e-11)
