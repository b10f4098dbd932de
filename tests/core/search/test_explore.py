from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.constraints.cells import joint_cells
from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.effort import NORMAL
from clustersplit_cli.core.geometry.nystrom import low_rank_geometry
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.explore import (
    MANY_STEPS,
    Perturber,
    _promising,
    agree,
    are_slow,
    explore,
    perturb,
)
from clustersplit_cli.core.search.problem import Problem
from clustersplit_cli.core.search.solution import Candidate
from clustersplit_cli.core.search.starts import random_splits


@pytest.fixture
def subproblem(workers: Workers) -> Problem:
    """A problem whose total scatter is 1."""
    X = np.array([[1.0], [-1.0], [1.0], [-1.0]]) / 2
    quota = np.array([2])
    return Problem(low_rank_geometry(X, workers), ValidationQuotas.exactly(joint_cells({}, 4), quota))


def ends(*explained: float) -> list[Candidate]:
    """Candidates that explain the given shares of the scatter."""
    nowhere = np.zeros(4, dtype=bool)
    return [Candidate(0, nowhere, 1.0 - share, np.zeros(4), (), True) for share in explained]


def test_starts_agree_when_three_of_them_explain_the_most(subproblem: Problem) -> None:
    assert subproblem.ssq_total == pytest.approx(1.0)
    assert agree(subproblem, ends(0.5, 0.49999, 0.1, 0.49999))
    assert not agree(subproblem, ends(0.5, 0.49999, 0.1, 0.499))


def test_starts_are_slow_by_their_average(subproblem: Problem) -> None:
    def after(*steps: int) -> list[Candidate]:
        return [
            replace(candidate, trace=(0.0,) * (n + 1))
            for n, candidate in zip(steps, ends(*steps), strict=True)
        ]

    assert are_slow(after(0, 2 * MANY_STEPS))
    assert not are_slow(after(0, 2 * MANY_STEPS - 1))


def test_only_splits_near_the_best_on_the_low_rank_kernel_are_refined(subproblem: Problem) -> None:
    found = ends(0.4, 0.5, 0.47, 0.48)
    assert _promising(subproblem, found) == [found[1], found[3]]


def scattered(workers: Workers) -> tuple[NDArray[np.float32], Problem]:
    """Rows without any structure."""
    rng = np.random.default_rng(3)
    factors = rng.standard_t(3, size=(1500, 40)).astype(np.float32)
    quotas = np.array([100, 150, 50])
    table = joint_cells({"label": (np.repeat([0, 1, 2], 500), [0, 1, 2])}, 1500)
    return factors, Problem(low_rank_geometry(factors, workers), ValidationQuotas.exactly(table, quotas))


def perturbed(
    islands: int, seed: int, workers: Workers, patience: int = 2
) -> tuple[Problem, list[Candidate]]:
    factors, problem = scattered(workers)
    selection = Selection(problem.constraints)
    starts = random_splits(problem.constraints, np.random.default_rng(seed).spawn(5))
    ends = explore(problem, starts, selection, max_iter=100, every_step=False)
    effort = replace(NORMAL, batch=20, patience=patience, max_rounds=20, islands=islands)
    here = Perturber(problem, factors, selection, 100)
    found = perturb(here, ends, effort, np.random.default_rng(seed))
    return problem, found


@pytest.mark.parametrize("islands", [0, 2])
def test_what_perturbation_finds_meets_the_quotas_and_never_rises(islands: int, workers: Workers) -> None:
    problem, found = perturbed(islands, 1, workers)
    assert len(found) > 5
    for candidate in found:
        assert (problem.constraints.counts(candidate.members) == problem.constraints.target).all()
        assert all(later <= earlier for earlier, later in pairwise(candidate.trace))
        assert candidate.psi == candidate.trace[-1]
        assert np.array_equal(candidate.passed[-1][1], np.packbits(candidate.members))


def test_islands_find_what_splits_that_grow_alike_miss_however_patient(workers: Workers) -> None:
    alone, apart = (
        np.array(
            [
                min(candidate.psi for candidate in perturbed(islands, seed, workers, patience)[1])
                for seed in range(8)
            ]
        )
        for islands, patience in ((0, 8), (2, 2))
    )
    assert apart.mean() < alone.mean()
    assert apart.max() < alone.max()


def test_no_more_islands_are_needed_once_one_comes_to_the_same(workers: Workers) -> None:
    """Two far groups: every population finds them at once."""
    rng = np.random.default_rng(4)
    factors = (np.repeat([[5.0], [-5.0]], [300, 1200], axis=0) + rng.normal(size=(1500, 1))).astype(
        np.float32
    )
    quota = np.array([300])
    problem = Problem(
        low_rank_geometry(factors, workers), ValidationQuotas.exactly(joint_cells({}, 1500), quota)
    )
    selection, begun = Selection(problem.constraints), list[int]()
    starts = random_splits(problem.constraints, rng.spawn(3))
    perturb(
        Perturber(problem, factors, selection, 100),
        explore(problem, starts, selection, max_iter=100, every_step=False),
        replace(NORMAL, batch=8, patience=1, max_rounds=0, islands=5),
        rng,
        lambda stage, done, total: begun.append(done),
    )
    assert begun == [0]
