"""Parts from counts of margins cost what scipy's transport program says, and every quota holds exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from clustersplit_cli.core.assignment.prices import Margins, Nearest, PricedParts, Prices, find_prices

Doubles = NDArray[np.float64]
Counts = NDArray[np.int64]


def cheapest(costs: Doubles, lower: Counts, upper: Counts) -> float:
    """The least cost of one cell, by linear programming."""
    m, k = costs.shape
    one_part = np.kron(np.eye(m), np.ones((1, k)))
    counts = np.kron(np.ones((1, m)), np.eye(k))
    found = linprog(
        costs.reshape(-1),
        A_ub=np.concatenate([counts, -counts]),
        b_ub=np.concatenate([upper, -lower]),
        A_eq=one_part,
        b_eq=np.ones(m),
    )
    return float(found.fun)


def solved(
    costs: Doubles, codes: Counts, lower: Counts, upper: Counts, pieces: int = 1
) -> tuple[Counts, PricedParts, int]:
    """The part of every row, the prices, and how many rows were looked at one by one; in some pieces."""
    spans = np.array_split(np.arange(len(costs)), pieces)
    looked_at = 0

    def price(prices: Prices, part: int) -> Doubles:
        worth = np.delete(costs + prices[codes], part, axis=1).min(axis=1) - costs[:, part]
        found = []
        for cell in range(len(lower)):
            ordered = np.sort(worth[codes == cell])[::-1]
            quota = int(lower[cell, part] + upper[cell, part]) // 2
            found.append(ordered[0] + 1 if quota == 0 else ordered[min(quota, len(ordered)) - 1])
        return np.array(found)

    def gather(prices: Prices, wanted: Counts) -> Nearest:
        nonlocal looked_at
        near = [Nearest(span, codes[span], costs[span]).nearest(prices, wanted) for span in spans]
        joined = Nearest.joined(near, costs.shape[1]).nearest(prices, wanted)
        looked_at = len(joined.numbers)
        return joined

    def count(margins: Margins) -> Counts:
        return np.sum([margins.count(costs[span], codes[span]) for span in spans], axis=0)

    found = find_prices(lower, upper, np.zeros(lower.shape), 4.0, count, price, gather)
    labels = (costs + found.prices[codes]).argmin(axis=1)
    labels[found.numbers] = found.parts
    return labels, found, looked_at


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(2, 5), slack=st.integers(0, 3))
def test_every_cell_costs_what_the_transport_program_says(seed: int, k: int, slack: int) -> None:
    rng = np.random.default_rng(seed)
    codes = np.sort(rng.integers(0, 3, 60))
    codes[:3] = np.arange(3)
    costs = rng.normal(size=(60, k)) + 3 * rng.normal(size=k)
    if seed % 3 == 0:  # rows that are alike
        costs = np.round(costs)
    counts = np.zeros((3, k), np.int64)
    np.add.at(counts, (codes, rng.integers(0, k, 60)), 1)
    lower, upper = np.maximum(counts - slack, 0), counts + slack
    labels, found, _ = solved(costs, codes, lower, upper)
    for cell in range(3):
        rows = np.flatnonzero(codes == cell)
        sizes = np.bincount(labels[rows], minlength=k)
        assert ((lower[cell] <= sizes) & (sizes <= upper[cell])).all()
        own = float(costs[rows, labels[rows]].sum())
        assert own == pytest.approx(cheapest(costs[rows], lower[cell], upper[cell]), abs=1e-6)
    again, same, _ = solved(costs, codes, lower, upper, pieces=7)
    np.testing.assert_array_equal(labels, again)
    np.testing.assert_array_equal(found.prices, same.prices)


def test_few_of_many_rows_are_looked_at_one_by_one() -> None:
    rng = np.random.default_rng(0)
    n, k = 50_000, 5
    codes = rng.integers(0, 10, n)
    costs = rng.normal(size=(n, k)) + 3 * rng.normal(size=k)
    quotas = np.stack([rng.multinomial(size, np.ones(k) / k) for size in np.bincount(codes)])
    labels, _, looked_at = solved(costs, codes, quotas, quotas)
    counts = np.zeros_like(quotas)
    np.add.at(counts, (codes, labels), 1)
    np.testing.assert_array_equal(counts, quotas)
    assert looked_at < n / 20
