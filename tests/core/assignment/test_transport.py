"""Rows to parts of given sizes: against all assignments, and against other solvers on larger cells."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from clustersplit_cli.core.assignment.cbc import solve_transport
from clustersplit_cli.core.assignment.transport import transport

Counts = NDArray[np.int64]


def least(costs: NDArray[np.float64], lower: Counts, upper: Counts) -> float:
    """The least cost over all assignments within the bounds."""
    m, k = costs.shape
    best = np.inf
    for labels in product(range(k), repeat=m):
        counts = np.bincount(labels, minlength=k)
        if (counts >= lower).all() and (counts <= upper).all():
            best = min(best, float(costs[np.arange(m), labels].sum()))
    return best


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**6), m=st.integers(1, 7), k=st.integers(2, 3), slack=st.integers(0, 2))
def test_the_cheapest_of_all_assignments_is_found(seed: int, m: int, k: int, slack: int) -> None:
    rng = np.random.default_rng(seed)
    costs = rng.normal(size=(2, m, k)) if seed % 3 else rng.integers(0, 3, (2, m, k)).astype(float)
    counts = np.bincount(rng.integers(0, k, m), minlength=k)
    lower, upper = np.maximum(counts - slack, 0), counts + slack
    labels, prices = transport(costs, lower, upper)
    again, _ = transport(costs, lower, upper, prices + rng.normal(size=prices.shape))
    for run in range(2):
        for found in (labels[run], again[run]):
            sizes = np.bincount(found, minlength=k)
            assert (sizes >= lower).all()
            assert (sizes <= upper).all()
            cost = float(costs[run][np.arange(m), found].sum())
            assert cost == pytest.approx(least(costs[run], lower, upper), abs=1e-9)


def test_a_large_cell_costs_what_an_assignment_of_single_places_costs() -> None:
    rng = np.random.default_rng(0)
    rows, centres = rng.normal(size=(150, 4)), rng.normal(size=(3, 5, 4)) * 0.2
    costs = ((rows[None, :, None] - centres[:, None]) ** 2).sum(-1)
    quota = np.array([30, 30, 30, 30, 30])
    labels, _ = transport(costs, quota, quota)
    for run in range(3):
        places = np.repeat(costs[run], quota, axis=1)
        row, place = linear_sum_assignment(places)
        assert costs[run][np.arange(150), labels[run]].sum() == pytest.approx(places[row, place].sum())


def test_identical_rows_are_assigned_too() -> None:
    costs = np.zeros((1, 40, 3))
    quota = np.array([10, 10, 20])
    labels, _ = transport(costs, quota, quota)
    assert np.bincount(labels[0]).tolist() == [10, 10, 20]


def test_cbc_agrees_and_ends_in_whole_numbers() -> None:
    rng = np.random.default_rng(3)
    costs = rng.normal(size=(30, 4))
    lower, upper = np.array([5, 5, 5, 5]), np.array([10, 8, 8, 9])
    labels, integral = solve_transport(costs, lower, upper)
    ours, _ = transport(costs[None], lower, upper)
    assert integral
    rows = np.arange(30)
    assert costs[rows, labels].sum() == pytest.approx(costs[rows, ours[0]].sum(), abs=1e-7)
