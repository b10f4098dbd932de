from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersplit_cli.core.assignment.selection import Selection, cheaper_orientation
from clustersplit_cli.core.constraints.cells import joint_cells
from clustersplit_cli.core.constraints.quotas import split_quotas
from clustersplit_cli.core.geometry.dense import dense_geometry
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import prepare
from clustersplit_cli.core.geometry.nystrom import linear_geometry
from clustersplit_cli.core.parallel import Workers, pool
from clustersplit_cli.core.search.lloyd import Descent, descend, leap
from clustersplit_cli.core.search.problem import Members, Problem, discrepancy, objectives
from clustersplit_cli.core.search.starts import random_splits
from tests.core.builders import random_problem


def path_of(end: Descent, starts: Members, run: int) -> Members:
    """Every split a run went through, the first included, shape (n, steps + 1)."""
    n = len(starts)
    later = [np.unpackbits(packed, count=n).astype(bool) for packed in end.visited[run]]
    return np.stack([starts[:, run], *later], axis=1)


problems = {
    "seed": st.integers(0, 10**6),
    "n": st.integers(4, 60),
    "kernel": st.sampled_from(["rbf", "linear", "cosine", "polynomial"]),
    "tolerance": st.sampled_from(["0", "0.5", "3"]),
}


@pytest.mark.parametrize("step", [descend, leap])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(**problems)
@settings(max_examples=60)
def test_psi_never_rises_and_quotas_always_hold(
    step: type, dtype: type, seed: int, n: int, kernel: str, tolerance: str
) -> None:
    with pool(1) as workers:
        problem = random_problem(seed, n, kernel, tolerance, workers, dtype)
        if problem is None:
            return
        limits = problem.constraints
        starts = random_splits(limits, np.random.default_rng(seed).spawn(4))
        steps = 50 if step is descend else 0  # leaps go on from where a descent ended, here at its start
        end = descend(problem, starts, Selection(limits), max_iter=steps, dtype=dtype)
        if step is leap:
            end = leap(problem, end, Selection(limits), max_iter=50)
        for run in range(4):
            path = path_of(end, starts, run)
            assert np.array_equal(path[:, -1], end.members[:, run])
            assert end.iterations[run] == path.shape[1] - 1
            psi = objectives(problem, path)
            rounding = (1e-12 if dtype is np.float64 else 1e-6) * problem.trace
            assert (np.diff(psi) <= rounding).all()
            assert end.psi[run] == pytest.approx(psi[-1], rel=1e-4, abs=10 * rounding)
            for split in path.T:
                counts = limits.counts(split)
                assert (limits.lower <= counts).all() and (counts <= limits.upper).all()
                assert 0 < split.sum() < n
            witness = discrepancy(problem, path[:, -1:], np.float64).witness[:, 0]
            assert end.witness[:, run] == pytest.approx(
                witness, abs=1e-4 * float(np.abs(witness).max()) + 1e-12
            )


@given(**problems)
@settings(max_examples=80)
def test_a_fixed_point_stays_fixed(seed: int, n: int, kernel: str, tolerance: str) -> None:
    with pool(1) as workers:
        problem = random_problem(seed, n, kernel, tolerance, workers, np.float64)
        if problem is None:
            return
        assigner = Selection(problem.constraints)
        starts = random_splits(problem.constraints, np.random.default_rng(seed).spawn(3))
        end = descend(problem, starts, assigner, max_iter=200, dtype=np.float64)
        assert end.converged.all()
        again = descend(problem, end.members, assigner, max_iter=200, dtype=np.float64)
        assert np.array_equal(again.members, end.members)
        assert (again.iterations == 0).all() and again.converged.all()
        # No assignment to the present centroids is cheaper, either way round.
        state = discrepancy(problem, end.members, np.float64)
        own = np.einsum("ij,ij->j", state.difference, end.members)
        cheapest = cheaper_orientation(state.difference, assigner)[1]
        assert (own - cheapest <= 1e-9 * problem.trace).all()


def test_starts_in_a_batch_do_not_disturb_each_other() -> None:
    with pool(1) as workers:
        problem = random_problem(7, 60, "rbf", "0", workers, np.float64)
        assert problem is not None
        assigner = Selection(problem.constraints)
        starts = random_splits(problem.constraints, np.random.default_rng(1).spawn(6))
        batch = descend(problem, starts, assigner, max_iter=100, dtype=np.float64)
        # Which of several identical rows of a cell is taken hangs on the last bit of a product, and that on
        # the number of its columns: rows are told apart by their kernel values and cells.
        kernel = problem.geometry.apply(np.eye(problem.n)).round(9)
        described = np.column_stack([kernel, problem.constraints.cells.codes])
        kind = np.unique(described, axis=0, return_inverse=True)[1].reshape(-1)
        assert kind.max() < problem.n - 2
        for run in range(6):
            alone = descend(problem, starts[:, run : run + 1], assigner, max_iter=100, dtype=np.float64)
            assert np.array_equal(
                np.bincount(kind[alone.members[:, 0]]), np.bincount(kind[batch.members[:, run]])
            )
            assert alone.iterations[0] == batch.iterations[run]


def test_steps_that_run_out_are_not_called_convergence() -> None:
    with pool(1) as workers:
        problem = random_problem(3, 60, "rbf", "0", workers, np.float64)
        assert problem is not None
        assigner = Selection(problem.constraints)
        starts = random_splits(problem.constraints, np.random.default_rng(2).spawn(8))
        whole = descend(problem, starts, assigner, max_iter=100, dtype=np.float64)
        cut = descend(problem, starts, assigner, max_iter=1, dtype=np.float64)
        assert whole.converged.all() and whole.iterations.max() > 1
        assert not cut.converged[whole.iterations > 0].any()
        assert (cut.iterations <= 1).all()


def test_descents_that_cannot_get_lower_are_given_up_and_not_called_converged() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(600, 8)) + rng.normal(scale=2.0, size=(12, 8))[rng.integers(12, size=600)]
    limits = split_quotas(
        joint_cells({"label": (rng.integers(3, size=600), range(3))}, 600), Fraction("0.2")
    ).validation
    with pool(1) as workers:
        prepared = prepare(Features(X), "rbf", "scale", 3, workers, rng)
        problem = Problem(dense_geometry(prepared.features, prepared.kernel, workers), limits)
        starts = random_splits(limits, rng.spawn(40))
        freely = descend(problem, starts, Selection(limits), max_iter=100, dtype=np.float64)
        rival = float(np.sort(freely.psi)[4])
        raced = descend(problem, starts, Selection(limits), max_iter=100, dtype=np.float64, rival=rival)
    assert freely.converged.all()
    given_up = ~raced.converged
    assert 10 < given_up.sum() < 40
    assert (raced.iterations <= freely.iterations).all()
    assert raced.iterations.sum() < 0.8 * freely.iterations.sum()
    assert (freely.psi[given_up] >= rival).all()  # none of them would have got there
    assert np.array_equal(raced.members[:, ~given_up], freely.members[:, ~given_up])


def test_two_heaps_on_a_line_are_parted(workers: Workers) -> None:
    X = np.array([0.0, 10, 1, 11, 2, 12])[:, None]
    prepared = prepare(Features(X), "linear", "scale", 3, workers, np.random.default_rng(0))
    limits = split_quotas(joint_cells({}, 6), Fraction(1, 2)).validation
    problem = Problem(linear_geometry(prepared.features, prepared.kernel, workers), limits)
    start = np.array([[True], [True], [True], [False], [False], [False]])
    end = descend(problem, start, Selection(limits), max_iter=10, dtype=np.float64)
    assert end.members[:, 0].tolist() in ([True, False] * 3, [False, True] * 3)
    assert end.psi[0] == pytest.approx(4.0)


def test_random_splits_meet_every_target_and_differ_by_stream() -> None:
    codes = np.repeat(np.arange(3), [10, 7, 1])
    limits = split_quotas(joint_cells({"label": (codes, "abc")}, 18), Fraction("0.3")).validation
    splits = random_splits(limits, np.random.default_rng(0).spawn(400))
    assert (np.stack([limits.counts(split) for split in splits.T]) == limits.target).all()
    # Uniform: every row of a cell is as likely as the others.
    assert splits[:10].mean(axis=1) == pytest.approx(np.full(10, 0.3), abs=0.1)
    assert len({split.tobytes() for split in splits.T}) > 200


def test_random_splits_never_leave_a_side_empty_within_soft_bounds() -> None:
    cells = joint_cells({"label": (np.arange(6), range(6))}, 6)
    few = split_quotas(
        cells, Fraction("0.3"), Fraction(1)
    ).validation  # targets of 0, one row allowed in each cell
    assert few.target.sum() == 0
    assert random_splits(few, np.random.default_rng(0).spawn(5)).sum(axis=0).tolist() == [1] * 5
    many = split_quotas(cells, Fraction("0.7"), Fraction(1, 2)).validation  # targets of all, none needed
    assert many.target.sum() == 6
    assert random_splits(many, np.random.default_rng(0).spawn(5)).sum(axis=0).tolist() == [5] * 5
