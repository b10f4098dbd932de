"""Where a search explores: a low-rank kernel, on a sample of the rows if they are many."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import sample_rows
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.geometry.low_rank import LowRankKernel, explored_rows
from clustersplit_cli.core.geometry.nystrom import low_rank_geometry
from clustersplit_cli.core.geometry.protocol import split_weights
from clustersplit_cli.core.parallel import Workers, tiles
from clustersplit_cli.core.search.problem import SMALL, Members, Problem
from clustersplit_cli.core.search.solution import Candidate
from clustersplit_cli.core.search.starts import at_targets

CHOSEN_AT_ONCE = 4
"""Splits of all rows that one worker chooses at a time."""


@dataclass(frozen=True)
class Subproblem:
    """Where a search explores: an approximation of the kernel on some of the rows, or a small problem itself.

    Attributes
    ----------
    whole : the problem on all rows.
    problem : the one to explore.
    rows : its rows.
    low_rank : the low-rank kernel along the directions that matter within cells.
    factors : its factors on `rows`.
    workers : choose among all rows.
    """

    whole: Problem
    problem: Problem
    rows: NDArray[np.int64]
    low_rank: LowRankKernel
    factors: Floats
    workers: Workers

    @property
    def share(self) -> float:
        """How much of the scatter is left in the problem to explore, row for row."""
        whole = self.whole.ssq_total * self.problem.n
        return self.problem.ssq_total * self.whole.n / whole if whole > 0 else 1.0

    def to_all_rows(self, candidates: list[Candidate]) -> list[Candidate]:
        """Carry splits over to all rows."""
        if self.problem is self.whole:
            return candidates
        if len(self.rows) == self.whole.n:
            return [self._reordered(candidate) for candidate in candidates]
        # Rank every row by the sample's witness function.
        weights = split_weights(
            np.stack([candidate.members for candidate in candidates], axis=1), self.factors.dtype
        )
        scores = self.low_rank.spread(self.factors.T @ weights)
        selection = at_targets(self.whole.constraints)

        def choose(runs: tuple[int, int]) -> Members:
            return selection.choose(-scores[:, slice(*runs)])

        members = np.concatenate([*self.workers.map(choose, tiles(len(candidates), CHOSEN_AT_ONCE))], axis=1)
        return [
            replace(
                candidate,
                members=members[:, run],
                passed=(("start", np.packbits(members[:, run])),),
                # Psi is a sum over rows.
                trace=tuple(psi * self.whole.n / self.problem.n for psi in candidate.trace),
            )
            for run, candidate in enumerate(candidates)
        ]

    def _reordered(self, candidate: Candidate) -> Candidate:
        """Put a split of all rows, cell by cell, into the rows' own order."""

        def ordered(members: Members) -> Members:
            result = np.empty_like(members)
            result[self.rows] = members
            return result

        passed = tuple(
            (phase, np.packbits(ordered(np.unpackbits(packed, count=len(self.rows)).astype(bool))))
            for phase, packed in candidate.passed
        )
        return replace(candidate, members=ordered(candidate.members), passed=passed)


def make_subproblem(
    problem: Problem, low_rank: LowRankKernel, workers: Workers, rng: np.random.Generator
) -> Subproblem:
    """Choose the rows to explore on, and condense the kernel to the directions that matter on them."""
    limits = problem.constraints
    rows = np.arange(problem.n)
    if problem.n > SMALL:
        if explored_rows(problem.n) < problem.n:
            rows = sample_rows(limits.cells, explored_rows(problem.n), rng)
        # Cell by cell, so that choosing within cells need not gather them.
        rows = rows[np.argsort(limits.cells.codes[rows], kind="stable")]
    part = limits.only(rows)
    condensed = low_rank.condensed(limits, workers)
    factors = condensed.factors(rows, workers)
    if problem.n <= SMALL:
        return Subproblem(problem, problem, rows, condensed, factors, workers)
    # Passes over the low-rank kernel are too short to be worth handing out.
    explored = Problem(low_rank_geometry(factors, workers.alone()), part)
    return Subproblem(problem, explored, rows, condensed, factors, workers)
