"""Rows to parts of given sizes: against all assignments, and against other solvers on larger cells."""

from __future__ import annotations

from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, linprog

from clustersplit_cli.core.assignment import transport as transport_module
from clustersplit_cli.core.assignment.cbc import solve_transport
from clustersplit_cli.core.assignment.transport import transport
from clustersplit_cli.core.parallel import Workers

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
    costs = rng.normal(size=(2, 30, 4))
    lower, upper = np.array([5, 5, 5, 5]), np.array([10, 8, 8, 9])
    labels, integral = solve_transport(costs, [(np.arange(30), lower, upper)])
    ours, _ = transport(costs, lower, upper)
    assert integral
    for run in range(2):
        theirs, found = (costs[run][np.arange(30), each[run]].sum() for each in (labels, ours))
        assert theirs == pytest.approx(found, abs=1e-7)


@pytest.mark.parametrize("together", [1, 40, 4096])
def test_cells_in_one_file_for_cbc_are_assigned_as_each_on_its_own(
    together: int, monkeypatch: pytest.MonkeyPatch, workers: Workers
) -> None:
    monkeypatch.setattr("clustersplit_cli.core.assignment.cbc.SIDE_BY_SIDE", together)
    rng = np.random.default_rng(4)
    costs = rng.normal(size=(3, 25, 3)) * np.array([1e-9, 1.0, 1e9])[:, None, None]
    costs[:, :10] *= 1e-10
    rows = np.split(np.arange(23), [4, 5, 10])  # two rows are in no cell
    bounds = [np.array([len(some) // 3, 0, 0]) for some in rows]
    cells = [(some, low, np.full(3, -(-len(some) // 2))) for some, low in zip(rows, bounds, strict=True)]
    labels, integral = solve_transport(costs, cells, workers)
    assert integral
    assert (labels[:, np.setdiff1d(np.arange(25), np.concatenate(rows))] == -1).all()
    for some, low, high in cells:
        ours, _ = transport(costs[:, some], low, high)
        assert np.array_equal(labels[:, some], ours)  # normal costs have no ties


def to_centroids(rng: np.random.Generator, m: int, k: int, scale: float) -> NDArray[np.float64]:
    """Squared distances of rows of small integers, many of them zero or alike, to centroids of such rows."""
    rows = rng.integers(0, 3, (m, 3)) * (rng.random((m, 1)) < 0.5) * scale
    centroids = np.stack([rows[rng.integers(0, m, 7)].sum(axis=0) / 7.0 for _ in range(k)])
    return np.asarray((centroids**2).sum(axis=1) - 2.0 * rows @ centroids.T + (rows**2).sum(axis=1)[:, None])


def relaxed(costs: NDArray[np.float64], lower: Counts, upper: Counts) -> float:
    """The least cost by scipy's linear program."""
    m, k = costs.shape
    found = linprog(
        costs.reshape(-1),
        A_eq=np.kron(np.eye(m), np.ones(k)),
        b_eq=np.ones(m),
        A_ub=np.concatenate([np.tile(np.eye(k), m), -np.tile(np.eye(k), m)]),
        b_ub=np.concatenate([upper, -lower]),
        method="highs",
    )
    return float(found.fun)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    m=st.integers(1, 40),
    k=st.integers(2, 6),
    slack=st.integers(0, 2),
    exponent=st.sampled_from([-150, -20, 0, 3, 20, 150]),
    noise=st.sampled_from([0.0, 1e-16, 1e-12]),
)
def test_tied_rows_of_any_scale_are_assigned_in_few_steps(
    seed: int, m: int, k: int, slack: int, exponent: int, noise: float
) -> None:
    rng = np.random.default_rng(seed)
    costs = to_centroids(rng, m, k, 10.0**exponent)
    costs *= 1.0 + noise * rng.standard_normal(costs.shape)
    counts = np.bincount(rng.integers(0, k, m), minlength=k)
    lower, upper = np.maximum(counts - slack, 0), counts + slack
    begun = rng.standard_normal((1, k)) * 10.0 ** rng.integers(-300, 300) if seed % 2 else None
    steps = 0
    one_path = transport_module._shortest_path

    def counted(*arguments: Any) -> Any:
        nonlocal steps
        steps += 1
        assert steps <= 2 * m, "more paths than rows that can be out of place"
        return one_path(*arguments)

    with mock.patch.object(transport_module, "_shortest_path", counted):
        labels, prices = transport(costs[None], lower, upper, begun)
    sizes = np.bincount(labels[0], minlength=k)
    assert (sizes >= lower).all()
    assert (sizes <= upper).all()
    assert np.isfinite(prices).all()
    scale = float(np.abs(costs).max()) or 1.0
    cost = float((costs[np.arange(m), labels[0]] / scale).sum())
    assert cost == pytest.approx(relaxed(costs / scale, lower, upper), abs=1e-9 * m)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308, 5e-324])
def test_costs_that_overflowed_still_give_an_assignment(bad: float) -> None:
    costs = np.random.default_rng(1).random((2, 30, 3)) * (bad if np.isfinite(bad) else 1.0)
    if not np.isfinite(bad):
        costs[:, ::3, 1] = bad
    quota = np.array([10, 10, 10])
    labels, prices = transport(costs, quota, quota)
    again, _ = transport(costs, quota, quota, prices)
    for run in range(2):
        assert np.bincount(labels[run]).tolist() == [10, 10, 10]
        assert np.bincount(again[run]).tolist() == [10, 10, 10]


def test_prices_prove_the_assignment_optimal() -> None:
    rng = np.random.default_rng(5)
    costs = np.repeat(rng.normal(size=(12, 4)), 5, axis=0)
    quota = np.array([20, 17, 13, 10])
    labels, prices = transport(costs[None], quota, quota)
    dual = float((costs + prices[0]).min(axis=1).sum() - quota @ prices[0])
    assert dual == pytest.approx(float(costs[np.arange(60), labels[0]].sum()))


def test_many_identical_rows_take_few_paths() -> None:
    costs = np.repeat(np.random.default_rng(2).normal(size=(1, 3, 5)), 10_000, axis=1)
    quota = np.full(5, 6_000)
    with mock.patch.object(
        transport_module, "_shortest_path", wraps=transport_module._shortest_path
    ) as counted:
        labels, _ = transport(costs, quota, quota)
    assert np.bincount(labels[0]).tolist() == quota.tolist()
    assert counted.call_count < 50


def test_bounds_that_nothing_meets_are_refused() -> None:
    with pytest.raises(ValueError, match="bounds"):
        transport(np.zeros((1, 5, 2)), np.array([3, 3]), np.array([3, 3]))
