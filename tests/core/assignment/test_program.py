"""Programs over several families, units and pins against all choices, HiGHS as a whole, and CBC."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from clustersplit_cli.core.assignment.cbc import solve_program
from clustersplit_cli.core.assignment.highs import solve
from clustersplit_cli.core.constraints.program import Limits, Program, column_classes


def families(rng: np.random.Generator, n: int, widths: tuple[int, ...]) -> Any:
    """Rows that belong to one cell of each family."""
    blocks = []
    for width in widths:
        codes = np.append(np.arange(width), rng.integers(0, width, max(n - width, 0)))[:n]
        blocks.append(sparse.csr_matrix((np.ones(n, int), (codes, np.arange(n))), shape=(width, n)))
    return sparse.vstack(blocks).tocsr()


def around(matrix: Any, rng: np.random.Generator, slack: int = 0, pins: int = 0) -> Program:
    """A program that some random choice meets."""
    n = matrix.shape[1]
    chosen = rng.random(n) < 0.4
    counts = matrix @ chosen.astype(int)
    fixed = np.full(n, -1, np.int8)
    places = rng.permutation(n)[:pins]
    fixed[places] = chosen[places]
    low = np.maximum(counts - rng.integers(0, slack + 1, len(counts)), 0)
    return Program(matrix, low, counts + rng.integers(0, slack + 1, len(counts)), fixed)


def all_choices(program: Program) -> NDArray[np.bool_]:
    choices = np.array(list(product([False, True], repeat=program.matrix.shape[1])))
    return choices[[program.is_met_by(choice) for choice in choices]]


@pytest.mark.parametrize(
    "kind",
    [
        *("two families", "three families", "units", "pinned rows", "units with room", "pinned units"),
        *("one cell of units", "blocks of units", "pinned blocks of units"),
    ],
)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 10))
def test_the_cheapest_of_all_choices_is_found(kind: str, seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    if kind == "one cell of units":
        matrix = sparse.csr_matrix(rng.integers(1, 4, (1, n)))
    elif "blocks" in kind:
        # Two cells with units of their own, and two that share theirs.
        shape = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 2]])
        matrix = sparse.csr_matrix((shape[np.arange(n) % 4] * rng.integers(1, 4, (n, 1))).T)
    elif "units" in kind:
        matrix = sparse.csr_matrix(rng.integers(0, 4, (3, n)))
    else:
        matrix = families(rng, n, (2, 2, 2) if kind == "three families" else (3, 2))
    has_room = kind in ("units with room", "one cell of units", "blocks of units")
    program = around(matrix, rng, 2 * has_room, 2 * ("pinned" in kind))
    costs = rng.normal(size=n) if seed % 3 else rng.integers(-2, 3, n).astype(float)
    found = solve(program, costs)
    assert found is not None
    assert program.is_met_by(found.chosen)
    assert found.proven
    best = (all_choices(program) @ costs).min()
    assert found.cost == pytest.approx(best, abs=1e-9)
    assert found.bound == pytest.approx(best, abs=1e-9)


def test_no_choice_is_none() -> None:
    matrix = sparse.csr_matrix(np.array([[2, 2, 2]]))
    nothing = Program(matrix, np.array([3]), np.array([3]), np.full(3, -1, np.int8))
    assert solve(nothing, np.ones(3)) is None


@pytest.mark.parametrize("widths", [(7, 4), (40, 30)])
def test_sifting_ends_at_the_optimum_of_the_whole_program(widths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    program = around(families(rng, 5000, widths), rng, slack=3)
    for costs in (rng.normal(size=5000), rng.integers(0, 3, 5000).astype(float)):
        found = solve(program, costs)
        matrix = sparse.vstack([program.matrix, -program.matrix])
        bound = np.concatenate([program.upper, -program.lower])
        whole = linprog(costs, A_ub=matrix, b_ub=bound, bounds=(0, 1))
        assert found is not None
        assert not found.branched
        assert found.cost == pytest.approx(whole.fun, rel=1e-9)


def test_three_families_may_need_integers_and_cbc_agrees() -> None:
    rng = np.random.default_rng(5)
    branched = 0
    for _ in range(6):
        program = around(families(rng, 60, (4, 3, 5)), rng)
        costs = rng.normal(size=60)
        found, certified = solve(program, costs), solve_program(costs, program)
        assert found is not None
        assert certified.status == "optimal"
        assert found.cost == pytest.approx(float(costs @ certified.chosen), abs=1e-7)
        branched += found.branched
    assert branched  # or the test would not have reached branch and bound


def test_a_program_stopped_early_keeps_what_it_has() -> None:
    rng = np.random.default_rng(2)
    matrix = sparse.csr_matrix(rng.integers(0, 50, (10, 60)))
    program = around(matrix, rng)
    present = next(iter(_met(program, rng)))
    costs = rng.normal(size=60)
    found = solve(program, costs, present=present, limits=Limits(repairing=True, nodes=0))
    assert found is not None
    assert program.is_met_by(found.chosen)
    assert found.cost <= float(costs @ present) + 1e-12
    assert found.bound <= found.cost
    assert not found.proven


def _met(program: Program, rng: np.random.Generator) -> Any:
    """The choice that `around` made its bounds from, found again from its seed."""
    again = np.random.default_rng(2)
    again.integers(0, 50, (10, 60))
    yield again.random(60) < 0.4


def test_classes_are_equal_columns() -> None:
    matrix = sparse.csc_matrix(np.array([[1, 0, 1, 2], [0, 1, 0, 0]]))
    classes = column_classes(matrix)
    assert classes[0] == classes[2]
    assert len(set(classes.tolist())) == 3


def test_blocks_are_cells_that_share_no_units() -> None:
    matrix = sparse.csr_matrix(np.array([[1, 2, 0, 0], [0, 0, 3, 1], [0, 0, 0, 1]]))
    program = Program(matrix, np.zeros(3, int), np.full(3, 5), np.array([-1, 1, 0, -1], np.int8))
    assert program.blocks is not None
    assert [block.units.tolist() for block in program.blocks] == [[0, 1], [2, 3]]
    assert [block.program.fixed.tolist() for block in program.blocks] == [[-1, 1], [0, -1]]
    assert program.blocks[1].program.blocks is None


def test_a_large_cell_of_units_costs_what_branch_and_bound_finds() -> None:
    rng = np.random.default_rng(8)
    program = around(sparse.csr_matrix(rng.integers(1, 40, (1, 150))), rng)
    costs = rng.normal(size=150)
    found = solve(program, costs)
    whole = milp(
        costs,
        integrality=np.ones(150),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(program.matrix, program.lower, program.upper),
        options={"mip_rel_gap": 0.0},
    )
    assert found is not None
    assert found.cost == pytest.approx(whole.fun, abs=1e-6)
