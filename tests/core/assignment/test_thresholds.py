"""Thresholds from histograms choose what sorting chooses."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersplit_cli.core.assignment import thresholds
from clustersplit_cli.core.assignment.thresholds import Interval, Thresholds, find_thresholds, ordered_keys


def by_sorting(values: np.ndarray, codes: np.ndarray, quotas: np.ndarray) -> np.ndarray:
    chosen = np.zeros(values.shape, dtype=bool)
    for column in range(values.shape[1]):
        for cell, quota in enumerate(quotas[:, column]):
            rows = np.flatnonzero(codes == cell)
            chosen[rows[np.argsort(values[rows, column], kind="stable")[:quota]], column] = True
    return chosen


def by_histograms(
    values: np.ndarray, codes: np.ndarray, quotas: np.ndarray, cuts: list[int]
) -> tuple[np.ndarray, Thresholds, int]:
    """The rows lie in several blocks; only counts of these are ever brought together."""
    keys, numbers = ordered_keys(values), np.arange(len(values))
    edges = [0, *sorted(cuts), len(values)]
    blocks = [slice(start, stop) for start, stop in pairwise(edges)]
    rounds = 0

    def count(interval: Interval) -> np.ndarray:
        nonlocal rounds
        rounds += 1
        return sum(interval.count(keys[rows], codes[rows]) for rows in blocks)

    def count_on_edge(edge: np.ndarray, interval: Interval) -> np.ndarray:
        on_edge = np.where(keys == edge[codes], numbers[:, None].astype(np.uint64), np.uint64(2**64 - 1))
        return sum(interval.count(on_edge[rows], codes[rows]) for rows in blocks)

    found = find_thresholds(quotas, count, count_on_edge)
    return found.choose(keys, codes, numbers), found, rounds


@st.composite
def problems(draw):
    n, n_cells, n_columns = draw(st.integers(1, 60)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    pools = [np.array([0.0, -0.0, 1.0, -1.0]), rng.normal(size=5), np.array([1e-310, -1e300, 3.0, np.pi])]
    values = pools[draw(st.integers(0, 2))][rng.integers(4, size=(n, n_columns))]
    if draw(st.booleans()):
        values = values + rng.normal(size=values.shape)
    codes = rng.integers(n_cells, size=n)
    sizes = np.bincount(codes, minlength=n_cells)
    quotas = np.array([[rng.integers(size + 1) for _ in range(n_columns)] for size in sizes])
    return values, codes, quotas, sorted(rng.integers(n + 1, size=draw(st.integers(0, 3))).tolist())


@given(problems())
def test_any_blocks_give_the_choice_of_a_stable_sort(problem) -> None:
    values, codes, quotas, cuts = problem
    chosen, _, _ = by_histograms(values, codes, quotas, cuts)
    np.testing.assert_array_equal(chosen, by_sorting(values, codes, quotas))


def test_ties_go_to_the_lower_row_numbers() -> None:
    chosen, found, _ = by_histograms(np.ones((9, 1)), np.zeros(9, int), np.array([[4]]), [2, 5])
    assert np.flatnonzero(chosen[:, 0]).tolist() == [0, 1, 2, 3]
    assert found.last_rows.tolist() == [[3]]


def test_distinct_keys_take_few_rounds() -> None:
    values = np.random.default_rng(0).normal(size=(20_000, 2))
    codes = np.arange(20_000) % 5
    _, _, rounds = by_histograms(values, codes, np.full((5, 2), 800), [])
    assert rounds <= 4


@pytest.mark.parametrize("n_cells", [1, 3000])
def test_many_cells_get_fewer_bins_each(n_cells: int) -> None:
    sizes = []

    def count(interval: Interval) -> np.ndarray:
        sizes.append(n_cells * interval.n_bins)
        return interval.count(ordered_keys(np.ones((n_cells, 1))), np.arange(n_cells))

    find_thresholds(np.ones((n_cells, 1), int), count, lambda edge, interval: count(interval))
    assert max(sizes) <= thresholds.MOST_COUNTS


def test_keys_sort_as_numbers_do() -> None:
    values = np.array([-np.inf, -1e300, -1.0, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1e300, np.inf])
    keys = ordered_keys(values)
    assert (np.diff(keys.astype(object)) >= 0).all()
    assert keys[4] == keys[5]
    assert len(set(keys.tolist())) == len(values) - 1
