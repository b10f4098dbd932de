"""Pivoted factors of a kernel: what they lack of it is known, and bounds the error of every split."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersplit_cli.core.constraints.cells import Cells
from clustersplit_cli.core.geometry.cholesky import (
    PivotedCholesky,
    leading_discrepancy,
    pivoted_cholesky,
    squared_length,
)
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import Kernel
from clustersplit_cli.core.parallel import pool

ROUNDING = 1e-12


def factored(rows: np.ndarray, *, most: int, enough: float = 0.0, threads: int = 1) -> PivotedCholesky:
    """Factor the rbf kernel between rows as they are prepared: exp(-|x - y|²/2)."""
    with pool(threads) as workers:
        return pivoted_cholesky(
            Features(rows),
            Kernel("rbf", 0.5),
            np.random.default_rng(1),
            workers,
            most=most,
            enough=enough,
        )


def exact(rows: np.ndarray) -> np.ndarray:
    """The same kernel, value by value."""
    return np.exp(-((rows[:, None] - rows[None]) ** 2).sum(axis=2) / 2)


def weights(members: np.ndarray) -> np.ndarray:
    return np.where(members, 1 / members.sum(), -1 / (~members).sum())


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(4, 40),
    d=st.integers(1, 4),
    most=st.integers(1, 40),
    data=st.data(),
)
def test_no_split_lacks_more_than_the_residual_says(
    seed: int, n: int, d: int, most: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) * rng.choice([0.1, 1.0, 3.0])
    if data.draw(st.booleans()):  # equal rows
        rows = rows[rng.integers(0, max(1, n // 2), n)]
    found, kernel = factored(rows, most=most), exact(rows)
    lacking = kernel - found.factors @ found.factors.T
    assert np.trace(lacking) <= found.residual <= np.trace(lacking) + ROUNDING * n
    # The splits that would be worst: along the leading direction of what is left; and one at random.
    leading = np.linalg.eigh(lacking)[1][:, -1]
    for score in (leading, -leading, rng.normal(size=n)):
        members = np.zeros(n, dtype=bool)
        members[np.argsort(score)[: data.draw(st.integers(1, n - 1))]] = True
        z = weights(members)
        error = z @ lacking @ z
        assert -ROUNDING <= error <= found.residual * (z @ z)
        share = float(members.mean())
        assert z @ z == pytest.approx(squared_length([1 - share, share], n))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 150), d=st.integers(1, 3))
def test_at_full_rank_the_factors_are_the_kernel(seed: int, n: int, d: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(n, d))
    found = factored(rows, most=n)
    np.testing.assert_allclose(found.factors @ found.factors.T, exact(rows), atol=1e-10)
    assert found.residual <= 1e-9 * n


def test_factors_end_where_enough_is_held_and_do_not_depend_on_threads() -> None:
    rows = np.random.default_rng(0).normal(size=(5_000, 2))
    one, three = (factored(rows, most=500, enough=1e-3, threads=threads) for threads in (1, 3))
    assert one.is_enough
    assert one.residual <= 1e-3
    assert one.rank < 300
    np.testing.assert_array_equal(one.factors, three.factors)
    assert one.residual == three.residual


def test_a_rank_that_does_not_come_is_given_up_after_a_few_blocks() -> None:
    rows = np.random.default_rng(0).normal(size=(4_000, 50)) / 5
    found = factored(rows, most=2_000, enough=1e-3)
    assert not found.is_enough
    assert found.rank <= 4 * 128


def test_the_length_of_several_parts_is_the_mean_over_their_pairs() -> None:
    sizes = [10, 20, 30]
    pairs = [(a * b, 1 / a + 1 / b) for a, b in combinations(sizes, 2)]
    mean = sum(pair * length for pair, length in pairs) / sum(pair for pair, _ in pairs)
    assert squared_length([Fraction(size, 60) for size in sizes], 60) == pytest.approx(mean)


def test_the_leading_discrepancy_is_that_of_a_split_that_keeps_every_cell() -> None:
    factors = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [3.0, 1.0], [0.0, 5.0], [4.0, 5.0]])
    cells = Cells(np.array([0, 0, 0, 0, 1, 1]), ({}, {}), np.array([4, 2]))
    # The lowest, or the highest, half of each cell: (0 + 1 + 0)/3 from (2 + 3 + 4)/3.
    assert leading_discrepancy(factors, cells, 0.5) == pytest.approx((9 / 3 - 1 / 3) ** 2)
    assert leading_discrepancy(factors, cells, 0.01) == 0.0
