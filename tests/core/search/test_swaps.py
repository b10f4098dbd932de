from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.lloyd import descend
from clustersplit_cli.core.search.problem import Members, Problem, discrepancy, objectives
from clustersplit_cli.core.search.swaps import _look, polish
from tests.core.builders import split_problem

HOLDINGS = ("rbf", "linear", "cosine", "polynomial", "nystrom")


def at_target(limits: ValidationQuotas, rng: np.random.Generator) -> Members:
    members = np.zeros(limits.n, dtype=bool)
    for cell, quota in enumerate(limits.target):
        rows = limits.cells.order[limits.cells.offsets[cell] : limits.cells.offsets[cell + 1]]
        members[rng.permutation(rows)[:quota]] = True
    return members


def witness_of(problem: Problem, members: Members, dtype: type = np.float64) -> NDArray[Any]:
    return discrepancy(problem, members[:, None], dtype).witness[:, 0]


def swaps(problem: Problem, members: Members) -> list[tuple[int, int]]:
    codes = problem.constraints.cells.codes
    return [
        (int(i), int(j))
        for i in np.flatnonzero(members)
        for j in np.flatnonzero(~members)
        if codes[i] == codes[j]
    ]


def moves(problem: Problem, members: Members) -> list[int]:
    limits, counts = problem.constraints, problem.constraints.counts(members)
    found = []
    for row in range(problem.n):
        cell = limits.cells.codes[row]
        to = counts[cell] + (-1 if members[row] else 1)
        size = members.sum() + (-1 if members[row] else 1)
        if limits.lower[cell] <= to <= limits.upper[cell] and 0 < size < problem.n:
            found.append(row)
    return found


def psi_after(problem: Problem, members: Members, flips: list[Any]) -> NDArray[np.float64]:
    """Psi from scratch after flipping each of the given rows or pairs of rows."""
    batch = np.repeat(members[:, None], len(flips), axis=1)
    for column, rows in enumerate(flips):
        batch[np.atleast_1d(rows), column] ^= True
    return objectives(problem, batch)


@pytest.mark.parametrize("holding", HOLDINGS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_predicted_gains_are_the_differences_of_recomputed_objectives(
    holding: str, dtype: type, workers: Workers
) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(24, 3)).astype(dtype)
    problem = split_problem(X, holding, workers, codes=rng.integers(0, 2, 24), tolerance="0.5", h="0.4")
    limits = problem.constraints
    everything = np.arange(24)
    kernel = problem.geometry.block(everything, everything)
    exact = 1e-12 if dtype is np.float64 else 2e-6
    for _ in range(3):
        members = at_target(limits, rng)
        sides = _look(problem, members, witness_of(problem, members), everything, kernel.diagonal())
        before = objectives(problem, members[:, None])[0]
        pairs = swaps(problem, members)
        predicted = np.array([sides.swap_gain(i, j, float(kernel[i, j])) for i, j in pairs])
        gains = before - psi_after(problem, members, pairs)
        assert predicted == pytest.approx(gains, abs=exact * problem.ssq_total)
        part, c = sides.swap_parts()
        by_parts = np.array([2 * (part[i] + part[j] - c * kernel[i, j]) for i, j in pairs])
        assert by_parts == pytest.approx(gains, abs=exact * problem.ssq_total)
        alone = sides.move_gains(limits)
        allowed = moves(problem, members)
        assert np.flatnonzero(alone > -np.inf).tolist() == allowed
        gains = before - psi_after(problem, members, list(allowed))
        assert alone[allowed] == pytest.approx(gains, abs=exact * problem.ssq_total)


def test_gains_stay_exact_over_a_chain_of_flips(workers: Workers) -> None:
    rng = np.random.default_rng(2)
    problem = split_problem(rng.normal(size=(30, 3)), "rbf", workers, tolerance="0.8", h="0.4")
    members = at_target(problem.constraints, rng)
    everything = np.arange(30)
    kernel = problem.geometry.block(everything, everything)
    sides = _look(problem, members, witness_of(problem, members), everything, kernel.diagonal())
    for row in rng.integers(0, 30, 40):
        if 1 < sides.in_val.sum() < 29:
            sides.flip(int(row), kernel[:, row])
    fresh = _look(problem, sides.in_val, witness_of(problem, sides.in_val), everything, kernel.diagonal())
    assert (sides.n_val, sides.n_train) == (fresh.n_val, fresh.n_train)
    assert sides.counts.tolist() == fresh.counts.tolist()
    assert sides.to_val == pytest.approx(fresh.to_val, rel=1e-12)
    assert sides.to_train == pytest.approx(fresh.to_train, rel=1e-12)
    assert sides.inside_val == pytest.approx(fresh.inside_val, rel=1e-12)
    assert sides.inside_train == pytest.approx(fresh.inside_train, rel=1e-12)


@pytest.mark.parametrize("holding", HOLDINGS)
@pytest.mark.parametrize("tolerance", ["0", "0.5"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_after_polish_no_single_exchange_lowers_psi(
    holding: str, tolerance: str, dtype: type, workers: Workers
) -> None:
    rng = np.random.default_rng(3)
    for _ in range(6):
        n = int(rng.integers(8, 40))
        codes = rng.integers(0, 3, n)
        X = (rng.normal(size=(n, 3)) + codes[:, None]).astype(dtype)
        problem = split_problem(X, holding, workers, codes=codes, tolerance=tolerance, h="0.4")
        limits = problem.constraints
        start = at_target(limits, rng)
        members = start
        for _ in range(20):  # candidates are chosen anew until there are none left
            polished = polish(problem, members, witness_of(problem, members))
            before, after = objectives(problem, np.stack([members, polished.members], axis=1))
            if polished.changes == 0:
                assert np.array_equal(polished.members, members)
                break
            assert after < before
            members = polished.members
        else:
            pytest.fail("polish never came to rest")
        assert (limits.lower <= limits.counts(members)).all()
        assert (limits.counts(members) <= limits.upper).all()
        best = objectives(problem, members[:, None])[0]
        others = psi_after(problem, members, swaps(problem, members) + moves(problem, members))
        assert others.min(initial=np.inf) >= best - 1e-11 * problem.ssq_total


def test_polish_leaves_its_argument_alone(workers: Workers) -> None:
    rng = np.random.default_rng(4)
    problem = split_problem(rng.normal(size=(40, 3)), "rbf", workers, h="0.4")
    members = at_target(problem.constraints, rng)
    before = members.copy()
    assert polish(problem, members, witness_of(problem, members)).changes > 0
    assert np.array_equal(members, before)


def test_soft_bounds_let_single_rows_move(workers: Workers) -> None:
    # Two far clusters of 4 and 8 rows: one half and half splits a cluster, moving two rows does not.
    X = np.concatenate([np.zeros(4), np.full(8, 10.0)])[:, None] + np.arange(12)[:, None] / 100
    problem = split_problem(X, "linear", workers, h="0.5", tolerance="0.4")
    members = np.arange(12) < 6
    polished = polish(problem, members, witness_of(problem, members))
    assert polished.members.tolist() == (np.arange(12) < 4).tolist()


def test_near_a_diagonal_kernel_lloyd_stops_at_once_and_swaps_go_on(workers: Workers) -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 2)) * 20  # width 1 on wide features: most rows are alone
    problem = split_problem(X, "rbf", workers, codes=rng.integers(0, 2, 300), gamma=1.0, h="0.4")
    off_diagonal = problem.geometry.block(np.arange(300), np.arange(300)) - np.eye(300)
    assert np.quantile(off_diagonal, 0.99) < 1e-2
    start = at_target(problem.constraints, rng)
    end = descend(problem, start[:, None], Selection(problem.constraints), max_iter=100, dtype=np.float64)
    assert end.iterations[0] <= 1
    rested = end.members[:, 0]
    polished = polish(problem, rested, witness_of(problem, rested))
    explained = problem.ssq_total - objectives(problem, np.stack([rested, polished.members], axis=1))
    assert polished.changes > 20
    assert explained[1] > 1.1 * explained[0]


def test_gains_that_are_rounding_are_not_chased(workers: Workers) -> None:
    """A kernel close to constant has a scatter close to nothing; its swaps gain nothing real."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(400, 30)).astype(np.float32)
    problem = split_problem(X, "nystrom", workers, gamma=1e-7, h="0.4")
    members = at_target(problem.constraints, rng)
    for _ in range(6):
        polished = polish(problem, members, witness_of(problem, members))
        if polished.changes == 0:
            return
        members = polished.members
    pytest.fail("polish chases rounding")
