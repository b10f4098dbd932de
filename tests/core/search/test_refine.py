from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.constraints.cells import joint_cells
from clustersplit_cli.core.constraints.quotas import split_quotas
from clustersplit_cli.core.geometry.dense import dense_geometry
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import prepare
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.problem import Problem, discrepancy, objectives
from clustersplit_cli.core.search.refine import Refiner
from clustersplit_cli.core.search.solution import REFINING, Candidate
from clustersplit_cli.core.search.starts import random_splits


def begun(problem: Problem, seed: int, n_candidates: int) -> list[Candidate]:
    """Candidates whose splits were never measured."""
    splits = random_splits(problem.constraints, np.random.default_rng(seed).spawn(n_candidates))
    return [
        Candidate(
            run,
            splits[:, run],
            0.0,
            np.zeros(problem.n),
            (("start", np.packbits(splits[:, run])),),
            True,
            (0.0,),
        )
        for run in range(n_candidates)
    ]


@pytest.fixture
def problem(workers: Workers) -> Problem:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 4)).astype(np.float32)
    X[:300] += 1.5
    prepared = prepare(Features(X), "rbf", "scale", 3, workers, rng)
    codes = rng.integers(3, size=900)
    limits = split_quotas(joint_cells({"label": (codes, list("abc"))}, 900), Fraction(1, 5)).validation
    return Problem(dense_geometry(prepared.features, prepared.kernel, workers), limits)


def rested(problem: Problem, candidates: list[Candidate], *, measured: bool = False) -> list[Candidate]:
    refiner = Refiner(problem, Selection(problem.constraints), 100, 4, 4, most_polished=4)
    return refiner.refine(candidates, exactly=False, measured=measured)


def test_a_trail_at_rest_knows_psi_of_all_splits_it_passed_on_the_kernel(problem: Problem) -> None:
    for candidate in rested(problem, begun(problem, 1, 3)):
        known = candidate.measured_while_refined()
        phases = [phase for phase, _ in candidate.passed]
        assert phases[0] == "start" and len(phases) > 2 and set(phases[1:]) <= set(REFINING)
        assert [packed.tobytes() for _, packed in candidate.passed] == list(known)
        splits = [np.unpackbits(packed, count=problem.n).astype(bool) for _, packed in candidate.passed]
        exact = objectives(problem, np.stack(splits, axis=1))
        # Steps of a polish gain little: a value in the wrong place would be off by more than this.
        assert np.abs(exact - list(known.values())).max() < 1e-7 * problem.ssq_total
        assert np.abs(np.diff(exact)).min() > 1e-6 * problem.ssq_total


def test_a_trail_that_never_left_the_image_knows_nothing_of_the_kernel(problem: Problem) -> None:
    candidate = begun(problem, 2, 1)[0]
    assert candidate.measured_while_refined() == {}
    assert candidate.through("explore", [np.packbits(~candidate.members)]).measured_while_refined() == {}


def test_splits_measured_before_converge_as_if_they_had_not_been(problem: Problem) -> None:
    candidates = begun(problem, 3, 3)
    members = np.stack([candidate.members for candidate in candidates], axis=1)
    witness = discrepancy(problem, members, np.float32).witness
    seen = [
        Candidate(t.start, t.members, t.psi, witness[:, t.start], t.passed, t.converged, t.trace)
        for t in candidates
    ]
    for anew, known in zip(rested(problem, candidates), rested(problem, seen, measured=True), strict=True):
        assert np.array_equal(anew.members, known.members)
        assert known.psi == pytest.approx(anew.psi, rel=1e-7)
