from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from clustersplit_cli.core.assignment import selection as assignment
from clustersplit_cli.core.assignment.cbc import AssignmentProgram, CBCAssigner, cbc_version, find_cbc
from clustersplit_cli.core.assignment.selection import Selection, cheaper_orientation, nth_smallest
from clustersplit_cli.core.constraints.cells import joint_cells
from clustersplit_cli.core.constraints.quotas import ValidationQuotas, split_quotas
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.errors import InfeasibleError, SolverError


def constraints_of(codes: NDArray[Any], h: str, tolerance: str = "0") -> ValidationQuotas:
    values = range(int(codes.max()) + 1)
    cells = joint_cells({"label": (codes, values)}, len(codes))
    return split_quotas(cells, Fraction(h), Fraction(tolerance)).validation


def random_limits(rng: np.random.Generator, n: int, n_cells: int, tolerance: str) -> ValidationQuotas:
    while True:
        try:
            h = str(rng.integers(1, 10) / 10)
            return constraints_of(rng.integers(0, n_cells, n), h, tolerance)
        except InfeasibleError:
            continue


def lp_by_highs(costs: NDArray[Any], limits: ValidationQuotas) -> float:
    """The paper's program with both columns of U, relaxed to [0, 1]."""
    n, n_cells = limits.n, len(limits.target)
    one = scipy.sparse.eye_array(n, format="csr")
    rows_sum_to_one = scipy.sparse.hstack([one, one])
    member = scipy.sparse.csr_array((np.ones(n), (limits.cells.codes, np.arange(n))), shape=(n_cells, n))
    nothing = scipy.sparse.csr_array((n_cells, n))
    found = scipy.optimize.linprog(
        np.concatenate([costs, np.zeros(n)]),
        A_eq=rows_sum_to_one,
        b_eq=np.ones(n),
        A_ub=scipy.sparse.vstack(
            [scipy.sparse.hstack([member, nothing]), scipy.sparse.hstack([-member, nothing])]
        ),
        b_ub=np.concatenate([limits.upper, -limits.lower]),
        bounds=(0, 1),
        method="highs",
    )
    assert found.status == 0
    return float(found.fun)


def best_by_enumeration(costs: NDArray[Any], limits: ValidationQuotas) -> float:
    total = 0.0
    for cell in range(len(limits.target)):
        rows = limits.cells.order[limits.cells.offsets[cell] : limits.cells.offsets[cell + 1]].tolist()
        total += min(
            sum(costs[list(chosen)])
            for quota in range(limits.lower[cell], limits.upper[cell] + 1)
            for chosen in itertools.combinations(rows, quota)
        )
    return total


def meets(chosen: NDArray[np.bool_], limits: ValidationQuotas) -> bool:
    counts = limits.counts(chosen)
    return bool(((limits.lower <= counts) & (counts <= limits.upper)).all())


@pytest.mark.parametrize("tolerance", ["0", "0.5", "3"])
def test_selection_is_optimal_among_all_choices(tolerance: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(60):
        limits = random_limits(rng, int(rng.integers(2, 11)), int(rng.integers(1, 4)), tolerance)
        costs = rng.normal(size=limits.n) if rng.random() < 0.5 else rng.integers(-2, 3, limits.n) * 1.0
        chosen = Selection(limits).choose(costs[:, None])[:, 0]
        assert meets(chosen, limits)
        assert costs[chosen].sum() == pytest.approx(best_by_enumeration(costs, limits), abs=1e-12)


@pytest.mark.parametrize("tolerance", ["0", "0.4"])
def test_selection_and_highs_reach_the_same_objective(tolerance: str) -> None:
    rng = np.random.default_rng(2)
    for n, n_cells in [(5, 1), (40, 3), (300, 2), (300, 90), (700, 8)]:
        for _ in range(4):
            limits = random_limits(rng, n, n_cells, tolerance)
            costs = rng.normal(size=n) + rng.normal()
            chosen = Selection(limits).choose(costs[:, None])[:, 0]
            assert meets(chosen, limits)
            assert costs[chosen].sum() == pytest.approx(lp_by_highs(costs, limits), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("tolerance", ["0", "0.4"])
@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_selection_and_cbc_reach_the_same_objective_at_any_scale(tolerance: str, scale: float) -> None:
    rng = np.random.default_rng(3)
    for n, n_cells in [(2, 1), (30, 4), (200, 1), (200, 60)]:
        limits = random_limits(rng, n, n_cells, tolerance)
        costs = scale * (rng.normal(size=n) + rng.normal())
        chosen = Selection(limits).choose(costs[:, None])[:, 0]
        found = AssignmentProgram(limits).solve(costs)
        assert (found.status, found.integral) == ("optimal", True)
        assert meets(found.chosen, limits)
        # Ties apart there is one optimum, and normal costs have no ties.
        assert np.array_equal(found.chosen, chosen)


def test_cbc_takes_ties_and_costs_of_zero() -> None:
    limits = constraints_of(np.zeros(6, dtype=np.int64), "0.5")
    for costs in (np.zeros(6), np.ones(6), -np.ones(6)):
        found = AssignmentProgram(limits).solve(costs)
        assert found.integral and found.chosen.sum() == 3


@pytest.mark.parametrize("together", [1, 120, 4096])
def test_cbc_assigns_every_column_on_its_own(
    together: int, monkeypatch: pytest.MonkeyPatch, workers: Workers
) -> None:
    monkeypatch.setattr("clustersplit_cli.core.assignment.cbc.SIDE_BY_SIDE", together)
    rng = np.random.default_rng(4)
    limits = random_limits(rng, 50, 3, "0")
    costs = rng.normal(size=(50, 5)) * np.array([1e-12, 1.0, 1e12, 0.0, 1.0])
    costs[:, 3] = -np.arange(50)
    assert np.array_equal(CBCAssigner(limits, workers).choose(costs), Selection(limits).choose(costs))


def test_a_solver_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find_cbc.cache_clear()
    monkeypatch.setenv("CLUSTERSPLIT_CBC", "no-such-solver")
    with pytest.raises(SolverError, match="CLUSTERSPLIT_CBC=no-such-solver is not an executable") as caught:
        AssignmentProgram(constraints_of(np.zeros(4, dtype=np.int64), "0.5"))
    assert caught.value.exit_code == 4 and "pulp[cbc]" in str(caught.value.hint)
    find_cbc.cache_clear()


def test_a_solver_that_fails_is_an_error_of_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    find_cbc.cache_clear()
    monkeypatch.setenv("CLUSTERSPLIT_CBC", "false")
    with pytest.raises(SolverError, match="CBC"):
        AssignmentProgram(constraints_of(np.zeros(4, dtype=np.int64), "0.5")).solve(np.arange(4.0))
    find_cbc.cache_clear()


def test_the_solver_says_its_version() -> None:
    version = cbc_version()
    assert version is not None and version.strip()


@given(
    st.integers(1, 6),
    st.integers(2, 60),
    st.sampled_from(["0", "0.3", "2"]),
    st.integers(0, 10**6),
    st.booleans(),
)
def test_both_ways_of_selecting_agree(n_cells: int, n: int, tolerance: str, seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    limits = random_limits(rng, n, n_cells, tolerance)
    selection = Selection(limits)
    costs = rng.integers(-2, 3, (4, n)) * 1.0 if ties else rng.normal(size=(4, n))
    costs[costs == 0] *= rng.choice([-1.0, 1.0])  # zeros of either sign
    assert np.array_equal(selection._cell_by_cell(costs), selection._all_cells_at_once(costs))


@pytest.mark.parametrize("small_cell", [0, 10**9])
def test_ties_go_to_the_lower_row_number(small_cell: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "SMALL_CELL", small_cell)
    codes = np.array([1, 0, 1, 0, 1, 0, 1, 0])
    limits = constraints_of(codes, "0.5")
    costs = np.array([5.0, 1, 5, 1, 5, 1, 0, 1])
    chosen = Selection(limits).choose(np.stack([costs, -costs], axis=1))
    assert np.flatnonzero(chosen[:, 0]).tolist() == [0, 1, 3, 6]
    assert np.flatnonzero(chosen[:, 1]).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("small_cell", [0, 10**9])
def test_within_bounds_exactly_the_rows_of_negative_cost_are_taken(
    small_cell: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignment, "SMALL_CELL", small_cell)
    limits = constraints_of(np.zeros(10, dtype=np.int64), "0.5", "0.4")  # 3 to 7 rows
    costs = np.full((10, 4), 1.0)
    costs[[1, 3, 5, 9], 0] = -1.0  # four
    costs[2, 1] = -1.0  # one: filled up to three
    costs[:, 2] = -1.0  # ten: cut to seven
    costs[:5, 3] = -1.0
    costs[5:, 3] = 0.0  # five, and no more for nothing
    chosen = Selection(limits).choose(costs)
    assert [np.flatnonzero(column).tolist() for column in chosen.T] == [
        [1, 3, 5, 9],
        [0, 1, 2],
        [0, 1, 2, 3, 4, 5, 6],
        [0, 1, 2, 3, 4],
    ]


def test_ten_thousand_cells_are_selected_at_once() -> None:
    rng = np.random.default_rng(5)
    codes = rng.permutation(np.repeat(np.arange(10_000), 3))
    limits = constraints_of(codes, "0.4")
    costs = rng.normal(size=(30_000, 2))
    chosen = Selection(limits).choose(costs)
    for run in range(2):
        assert (limits.counts(chosen[:, run]) == 1).all()
        cheapest = np.full(10_000, np.inf)
        np.minimum.at(cheapest, codes, costs[:, run])
        assert np.array_equal(chosen[:, run], costs[:, run] == cheapest[codes])


def test_the_cheaper_of_both_orientations_is_kept() -> None:
    limits = constraints_of(np.zeros(4, dtype=np.int64), "0.25")
    # One row to the far centroid. Kept: take -3, cost -3. Turned: all but one to the validation centroid.
    difference = np.array([[-3.0, -3.0, 0.0], [-2, 5, 0], [-2, 5, 0], [4, 5, 0]])
    chosen, cost = cheaper_orientation(difference, Selection(limits))[:2]
    assert np.flatnonzero(chosen[:, 0]).tolist() == [3] and cost[0] == -7.0
    assert np.flatnonzero(chosen[:, 1]).tolist() == [0] and cost[1] == -3.0
    assert np.flatnonzero(chosen[:, 2]).tolist() == [0] and cost[2] == 0.0


@pytest.mark.parametrize("tolerance", ["0", "0.6"])
def test_the_disjunction_is_the_minimum_of_the_two_programs(tolerance: str) -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        limits = random_limits(rng, 30, 4, tolerance)
        difference = rng.normal(size=30) + rng.normal()
        cost = cheaper_orientation(difference[:, None], Selection(limits))[1][0]
        kept, turned = lp_by_highs(difference, limits), difference.sum() + lp_by_highs(-difference, limits)
        assert cost == pytest.approx(min(kept, turned), rel=1e-9, abs=1e-9)


@given(
    sizes=st.lists(st.integers(1, 200), min_size=1, max_size=12),
    seed=st.integers(0, 10**6),
    tied=st.booleans(),
)
@settings(max_examples=80)
def test_the_value_of_a_rank_is_that_of_the_sorted_cell(sizes: list[int], seed: int, tied: bool) -> None:
    rng = np.random.default_rng(seed)
    sizes = [4, *sizes]
    limits = constraints_of(np.repeat(np.arange(len(sizes)), sizes), "0.5")
    values = rng.integers(0, 3, size=sum(sizes)).astype(float) if tied else rng.normal(size=sum(sizes))
    ranks = np.array([rng.integers(size) for size in sizes])
    cells = np.split(values, np.cumsum(sizes)[:-1])
    expected = [sorted(cell.tolist())[rank] for cell, rank in zip(cells, ranks, strict=True)]
    assert nth_smallest(values, limits, ranks).tolist() == expected
