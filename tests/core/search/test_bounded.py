"""Splits of many rows are bounded by few of their rows, and end where plain descents end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.selection import Selection, cheaper_orientation
from clustersplit_cli.core.geometry.factored import FactorGeometry
from clustersplit_cli.core.parallel import Workers, pool
from clustersplit_cli.core.search import bounded as follow
from clustersplit_cli.core.search import search as search_module
from clustersplit_cli.core.search.bounded import (
    BoundedProblem,
    BoundedSplit,
    RefinedSplits,
    bounded_lloyd,
    carry_over,
)
from clustersplit_cli.core.search.lloyd import descend
from clustersplit_cli.core.search.problem import Members, Problem, discrepancy, evaluate, objectives
from clustersplit_cli.core.search.solution import Candidate, Solution
from clustersplit_cli.core.search.starts import random_splits
from clustersplit_cli.core.search.swaps import polish
from tests.core import builders
from tests.core.builders import clustered_factors

KERNELS = ("linear", "nystrom")


def split_at(
    problem: Problem, geometry: FactorGeometry, members: Members, noise: float = 0.0
) -> BoundedSplit:
    """A split that was told the witness with some rounding."""
    bounded = BoundedProblem.of(problem, geometry)
    summed = geometry.sums_over(members[:, None], np.float64)[:, 0]
    witness = discrepancy(problem, members[:, None], geometry.search_dtype).witness[:, 0]
    off = noise * np.random.default_rng(0).uniform(-1, 1, len(witness)).astype(witness.dtype)
    witness = witness + off * np.abs(witness).max()
    return BoundedSplit.of(bounded, members, summed, witness)


def start(problem: Problem, seed: int = 0) -> Members:
    drawn: Members = random_splits(problem.constraints, [np.random.default_rng(seed)])[:, 0]
    return drawn


def watch_looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the rows of every look."""
    looked: list[int] = []
    plain = BoundedSplit._look

    def counted(self: BoundedSplit, places: NDArray[np.int64]) -> None:
        looked.append(len(places))
        plain(self, places)

    monkeypatch.setattr(BoundedSplit, "_look", counted)
    return looked


@pytest.mark.parametrize("all_at_once", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_step_is_that_of_a_plain_descent(
    kernel: str, dtype: type, all_at_once: float, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "ALL_AT_ONCE", all_at_once)
    for seed in range(6):
        problem, geometry = clustered_factors(kernel, 700, seed, workers, dtype)
        members = start(problem, seed)
        plain = descend(
            problem,
            members[:, None],
            Selection(problem.constraints),
            max_iter=100,
            dtype=np.float64,
            turning=False,
        )
        split = split_at(problem, geometry, members, noise=0.02)
        assert np.array_equal(split.members, members)
        visited = []
        while split.step():
            visited.append(np.packbits(split.members))
            assert split.psi == pytest.approx(plain.trace[0][len(visited)], rel=1e-9)
        assert len(visited) == plain.iterations[0] > 2
        assert all(np.array_equal(*pair) for pair in zip(visited, plain.visited[0], strict=True))


@pytest.mark.parametrize("kernel", KERNELS)
def test_late_steps_look_at_few_rows(kernel: str, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, geometry = clustered_factors(kernel, 4000, 1, workers)
    split = split_at(problem, geometry, start(problem))
    looked = watch_looks(monkeypatch)
    while split.step():
        pass
    assert looked[-1] < 0.02 * problem.n
    assert max(looked) <= follow.ALL_AT_ONCE * problem.n


@pytest.mark.parametrize("kernel", KERNELS)
def test_sums_kept_up_are_those_of_the_split(kernel: str, workers: Workers) -> None:
    problem, geometry = clustered_factors(kernel, 500, 2, workers)
    split = split_at(problem, geometry, start(problem))
    while split.step():
        pass
    kept = split.summed.copy()
    split.recount()
    assert kept == pytest.approx(split.summed, rel=1e-10, abs=1e-10 * np.abs(kept).max())
    assert split.psi == pytest.approx(objectives(problem, split.members[:, None])[0], rel=1e-10)
    assert (problem.constraints.counts(split.members) == problem.constraints.target).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_polish_finds_what_it_finds_with_every_witness_known(
    kernel: str, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "ALL_AT_ONCE", 1.0)  # most rows have not been looked at for long
    polished_somewhere = False
    for seed in range(20):
        problem, geometry = clustered_factors(kernel, 300, seed, workers)
        split = split_at(problem, geometry, start(problem, seed))
        while split.step():
            pass
        members = split.members
        witness = discrepancy(problem, members[:, None], np.float64).witness[:, 0]
        exact = polish(problem, members, witness)
        moved = split.polish()
        assert moved == (exact.changes > 0)
        assert np.array_equal(split.members, exact.members)
        polished_somewhere |= moved
    assert polished_somewhere


def test_an_exchange_that_gains_nothing_is_refused(workers: Workers) -> None:
    problem, geometry = clustered_factors("linear", 300, 0, workers)
    split = split_at(problem, geometry, start(problem))
    while split.step():
        pass
    before, psi = split.members, split.psi
    cell = slice(*problem.constraints.cells.offsets[:2])
    chosen = split.in_val[cell]
    worse = np.array([np.flatnonzero(chosen)[0], np.flatnonzero(~chosen)[0]])
    assert not split.exchange(worse)
    assert not split.exchange(worse[:0])
    assert split.psi == psi and np.array_equal(split.members, before)


def solve(problem: Problem, workers: Workers, seed: int = 0, effort: str = "normal") -> Solution:
    return builders.solve(problem, workers, seed, effort, landmarks=(seed + 100, 40))


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Explore on a sample of the rows."""
    monkeypatch.setattr("clustersplit_cli.core.geometry.low_rank.SAMPLE_ROWS", 1000)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_followed_search_ends_at_rest_and_states_what_it_measured(
    kernel: str, dtype: type, workers: Workers
) -> None:
    problem, _ = clustered_factors(kernel, 3000, 3, workers, dtype)
    starts = random_splits(problem.constraints, np.random.default_rng(9).spawn(60))
    end = descend(problem, starts, Selection(problem.constraints), max_iter=100, dtype=np.float64)
    least = float(objectives(problem, end.members).min())
    for seed in range(3):
        found = solve(problem, workers, seed)
        assert found.measured is not None and found.converged
        measured = evaluate(problem, found.members)
        assert found.measured.psi == measured.psi
        assert np.array_equal(found.measured.difference, measured.difference)
        assert problem.ssq_total - measured.psi >= 0.9998 * (problem.ssq_total - least)
        best = cheaper_orientation(measured.difference[:, None], Selection(problem.constraints))[0][:, 0]
        own, cheapest = (float(measured.difference[chosen].sum()) for chosen in (found.members, best))
        assert own - cheapest <= 1e-12 * problem.trace
        psi = [step.psi for step in found.steps]
        assert all(later <= earlier for earlier, later in pairwise(psi))
        assert psi[-1] == measured.psi == found.runs[found.winner].psi
        assert min(run.psi for run in found.runs) == psi[-1]
        assert len({run.start for run in found.runs}) == 10


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("kernel", KERNELS)
def test_runs_state_the_objective_of_their_own_splits(
    kernel: str, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, _ = clustered_factors(kernel, 3000, 4, workers)
    ended: list[Candidate] = []
    plain = search_module.measure_runs

    def listening(*arguments: Any) -> Any:
        ended.extend(arguments[2])
        return plain(*arguments)

    monkeypatch.setattr(search_module, "measure_runs", listening)
    found = solve(problem, workers)
    exact = objectives(problem, np.stack([candidate.members for candidate in ended], axis=1))
    assert [run.psi for run in found.runs] == pytest.approx(exact.tolist(), rel=1e-9)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_followed_search_takes_few_passes(
    kernel: str, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, geometry = clustered_factors(kernel, 3000, 5, workers, np.float32)
    passes: list[str] = []

    def counted(name: str) -> Any:
        plain = getattr(FactorGeometry, name)

        def count(self: FactorGeometry, *arguments: Any) -> Any:
            if self.n == geometry.n:
                passes.append(name)
            return plain(self, *arguments)

        return count

    for name in ("times", "_summed"):
        monkeypatch.setattr(FactorGeometry, name, counted(name))
    solve(problem, workers)
    # Carry over, measure, look at the best; measure in float64; at most one look at all rows between.
    assert len(passes) <= 6


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("kernel", KERNELS)
def test_followed_searches_do_not_depend_on_the_number_of_threads(kernel: str) -> None:
    found = []
    for threads in (1, 2):
        with pool(threads) as workers:
            problem, _ = clustered_factors(kernel, 3000, 6, workers, np.float32)
            found.append(solve(problem, workers))
    assert np.array_equal(found[0].members, found[1].members)
    assert found[0].steps == found[1].steps and found[0].runs == found[1].runs


def underway(problem: Problem, steps: int) -> Candidate:
    """A split some steps after its start, as a search hands it over."""
    begun = start(problem)[:, None]
    end = descend(problem, begun, Selection(problem.constraints), max_iter=steps, dtype=np.float64)
    members = end.members[:, 0]
    return Candidate(0, members, 0.0, np.zeros(problem.n), (("start", np.packbits(members)),), True)


def refined(problem: Problem, candidate: Candidate, *, max_iter: int) -> RefinedSplits | None:
    """One split carried over and brought to rest."""
    carried = carry_over(problem, [], [candidate], most=4)
    return bounded_lloyd(problem, carried, max_iter=max_iter)


@pytest.mark.parametrize(("gamma", "is_bounded"), [("scale", True), (50.0, False)])
def test_kernels_whose_rows_pull_on_themselves_are_not_followed(
    gamma: Any, is_bounded: bool, workers: Workers
) -> None:
    problem, _ = clustered_factors("nystrom", 3000, 7, workers, gamma=gamma)
    done = refined(problem, underway(problem, 3), max_iter=100)
    assert (done is not None) is is_bounded


def test_steps_that_run_out_are_not_called_convergence(workers: Workers) -> None:
    problem, _ = clustered_factors("nystrom", 6000, 8, workers)
    candidate = underway(problem, 2)
    done = refined(problem, candidate, max_iter=1)
    assert done is not None and not done.best.converged
    assert done.measured is not None
    assert done.measured.psi == pytest.approx(objectives(problem, done.best.members[:, None])[0], rel=1e-12)
    longer = refined(problem, candidate, max_iter=100)
    assert longer is not None and longer.best.converged
    assert longer.best.psi < done.best.psi


def test_sums_that_were_off_are_found_out(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, _ = clustered_factors("linear", 3000, 9, workers)
    candidate = underway(problem, 4)
    right = refined(problem, candidate, max_iter=100)
    plain, again, recounts = FactorGeometry.sums_over, BoundedSplit.recount, []

    def off(self: FactorGeometry, members: Members, dtype: Any) -> NDArray[np.float64]:
        summed = plain(self, members, dtype)
        # As if the first sums had been taken in far too little precision.
        return summed * 1.01 + 0.01 * np.abs(summed).max()

    def recount(self: BoundedSplit) -> None:
        recounts.append(self)
        again(self)

    monkeypatch.setattr(FactorGeometry, "sums_over", off)
    monkeypatch.setattr(BoundedSplit, "recount", recount)
    found = refined(problem, candidate, max_iter=100)
    assert right is not None and found is not None and found.measured is not None
    assert recounts and found.best.converged
    chosen = cheaper_orientation(found.measured.difference[:, None], Selection(problem.constraints))[0]
    assert np.array_equal(chosen[:, 0], found.best.members)
