"""What each strategy promises: counts, nearness, fixed points; against slow and obvious versions."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.baselines import (
    LEAVE_ONE_DOMAIN_OUT,
    SEEDED,
    STRATEGIES,
    WITHOUT_QUOTAS,
    StrategyContext,
    equal_clusters,
    gaining_pairs,
    greedy,
    leave_one_out,
    mixed_rows,
    nearest_neighbours,
    nearest_neighbours_total,
)
from clustersplit_cli.core.constraints.cells import Cells
from clustersplit_cli.core.constraints.quotas import ValidationQuotas, split_quotas
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import Kernel
from clustersplit_cli.core.geometry.nystrom import linear_geometry
from clustersplit_cli.core.parallel import Workers, pool
from clustersplit_cli.core.search.problem import Members, Problem, evaluate
from clustersplit_cli.errors import InputError, UsageError

N = 60


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with pool(2) as found:
        yield found


def cells_of(codes: np.ndarray) -> Cells:
    codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    sizes = np.bincount(codes)
    return Cells(codes, tuple({"label": code} for code in range(len(sizes))), sizes)


def make_ground(workers: Workers, seed: int = 0, holdout: str = "0.3") -> tuple[StrategyContext, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 3)) + rng.integers(0, 2, (N, 1)) * 3.0
    limits = split_quotas(cells_of(rng.integers(0, 3, N)), Fraction(holdout)).validation
    return StrategyContext(
        Problem(linear_geometry(Features(X), Kernel("linear"), workers), limits), workers
    ), X


def meets_quotas(constraints: ValidationQuotas, members: Members) -> bool:
    return bool((constraints.counts(members) == constraints.target).all())


@pytest.mark.parametrize("name", SEEDED)
@pytest.mark.parametrize("seed", range(5))
def test_a_strategy_keeps_quotas_or_the_total_and_repeats_with_its_seed(
    name: str, seed: int, workers: Workers
) -> None:
    ground, _ = make_ground(workers, seed)
    limits = ground.problem.constraints
    members = SEEDED[name](ground, np.random.default_rng(seed))
    assert members.sum() == limits.target.sum()
    assert meets_quotas(limits, members) or name in WITHOUT_QUOTAS
    np.testing.assert_array_equal(members, SEEDED[name](ground, np.random.default_rng(seed)))


def test_all_strategies_are_registered_once() -> None:
    assert len(set(STRATEGIES)) == len(STRATEGIES) == 6
    assert set(WITHOUT_QUOTAS) < set(STRATEGIES)
    assert LEAVE_ONE_DOMAIN_OUT in WITHOUT_QUOTAS


def test_the_nearest_rows_are_those_nearest_to_one_of_them(workers: Workers) -> None:
    ground, X = make_ground(workers)
    members = nearest_neighbours_total(ground, np.random.default_rng(4))
    centre = int(np.random.default_rng(4).integers(N))
    distances = ((X - X[centre]) ** 2).sum(axis=1)
    assert members[centre]
    assert distances[members].max() <= distances[~members].min()


def test_with_quotas_the_nearest_rows_of_every_cell_are_taken(workers: Workers) -> None:
    ground, X = make_ground(workers)
    members = nearest_neighbours(ground, np.random.default_rng(4))
    distances = ((X - X[int(np.random.default_rng(4).integers(N))]) ** 2).sum(axis=1)
    codes = ground.problem.constraints.cells.codes
    for cell in np.unique(codes):
        inside = codes == cell
        assert distances[members & inside].max() <= distances[~members & inside].min()


def swap_one_by_one(members: Members, difference: np.ndarray, codes: np.ndarray) -> Members:
    """The pass row by row: the most eager first; each swaps with the first that waits, if that gains."""
    result = members.copy()
    gain = np.where(members, difference, -difference)
    waiting: dict[tuple[int, bool], list[int]] = {}
    for row in np.argsort(-gain, kind="stable"):
        partners = waiting.setdefault((int(codes[row]), not members[row]), [])
        partner = next((other for other in partners[:1] if gain[row] + gain[other] > 0), None)
        if partner is None:
            if gain[row] > 0:
                waiting.setdefault((int(codes[row]), bool(members[row])), []).append(int(row))
            continue
        partners.remove(partner)
        result[[row, partner]] = result[[partner, row]]
    return result


@given(st.integers(0, 10**6), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_pairs_that_gain_are_those_of_a_pass_row_by_row(seed: int, labels: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, labels, 24)
    limits = split_quotas(cells_of(codes), Fraction("0.5")).validation
    members = Selection(limits).choose(rng.random((24, 1)))[:, 0]
    difference = rng.normal(size=24)
    leaving, entering = gaining_pairs(members, difference, limits)
    swapped = members.copy()
    swapped[leaving], swapped[entering] = False, True
    np.testing.assert_array_equal(swapped, swap_one_by_one(members, difference, limits.cells.codes))
    # With two clusters that is also the cheapest choice.
    np.testing.assert_array_equal(swapped, Selection(limits).choose(difference[:, None])[:, 0])


@pytest.mark.parametrize("seed", range(8))
def test_no_pair_gains_where_greedy_stops(seed: int, workers: Workers) -> None:
    ground, _ = make_ground(workers, seed)
    members = greedy(ground, np.random.default_rng(seed))
    difference = evaluate(ground.problem, members).difference
    assert len(gaining_pairs(members, difference, ground.problem.constraints)[0]) == 0


def test_greedy_works_where_all_rows_are_equal(workers: Workers) -> None:
    X = np.zeros((10, 2))
    limits = split_quotas(cells_of(np.zeros(10, dtype=int)), Fraction("0.2")).validation
    problem = Problem(linear_geometry(Features(X), Kernel("linear"), workers), limits)
    assert greedy(StrategyContext(problem, workers), np.random.default_rng(0)).sum() == 2


def test_unconstrained_is_at_least_as_far_apart_as_any_split_with_quotas(workers: Workers) -> None:
    ground, _ = make_ground(workers, 1)
    free = evaluate(ground.problem, SEEDED["unconstrained"](ground, np.random.default_rng(0))).mmd_squared
    for name in ("random", "greedy", "nearest-neighbours"):
        members = SEEDED[name](ground, np.random.default_rng(0))
        assert free >= evaluate(ground.problem, members).mmd_squared


def test_the_domain_left_out_is_the_validation_set() -> None:
    codes = np.array([0, 1, 2, 1])
    np.testing.assert_array_equal(leave_one_out(codes, ("a", "b", 7), "b"), [False, True, False, True])
    np.testing.assert_array_equal(leave_one_out(codes, ("a", "b", 7), "7"), [False, False, True, False])
    with pytest.raises(UsageError, match="no such domain"):
        leave_one_out(codes, ("a", "b", 7), "c")
    with pytest.raises(InputError, match="only one domain"):
        leave_one_out(np.zeros(4, dtype=int), ("a",), "a")


def test_mixed_rows_lie_between_validation_rows(workers: Workers) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 1))
    members = np.arange(20) < 6
    mixed = mixed_rows(Features(X), members, rng).block(0, 6)
    assert mixed.shape == (6, 1)
    assert X[members].min() <= mixed.min() <= mixed.max() <= X[members].max()
    assert not np.isin(mixed, X).any()
    assert mixed.std() < X[members].std()


@given(st.integers(2, 40), st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_equal_clusters_differ_in_size_by_at_most_one(n: int, count: int) -> None:
    count = min(count, n)
    with pool(1) as workers:
        factors = np.random.default_rng(n).normal(size=(n, 3))
        labels = equal_clusters(factors, count, workers, np.random.default_rng(0))
    sizes = np.bincount(labels, minlength=count)
    assert len(sizes) == count
    assert sizes.max() - sizes.min() <= 1


def test_equal_clusters_find_clusters(workers: Workers) -> None:
    centres = np.repeat(np.eye(4) * 10, 25, axis=0)
    factors = centres + np.random.default_rng(0).normal(size=centres.shape) * 0.1
    labels = equal_clusters(factors, 4, workers, np.random.default_rng(0))
    assert all(len(set(labels[start : start + 25])) == 1 for start in range(0, 100, 25))
