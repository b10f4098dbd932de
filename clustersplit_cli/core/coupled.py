"""The search where cells cannot be decided one by one: several families, or units that stay together.

The same descents, perturbations and exchanges as elsewhere, with a program for every assignment step. Programs
cost far more than passes over a low-rank image, so there are fewer of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment import Assigner
from clustersplit_cli.core.explore import explore
from clustersplit_cli.core.features import Floats
from clustersplit_cli.core.image import Image
from clustersplit_cli.core.lloyd import descend
from clustersplit_cli.core.problem import Members, Problem
from clustersplit_cli.core.program import Assignment, Limits, Program, solve
from clustersplit_cli.core.search import Effort, Solution, measure_runs
from clustersplit_cli.core.settle import settle
from clustersplit_cli.core.starts import kick_directions
from clustersplit_cli.core.trail import Trail, best_distinct
from clustersplit_cli.core.workers import Workers
from clustersplit_cli.errors import SolverError
from clustersplit_cli.progress import Progress, silent

SMALL = 400
"""Up to this many atoms every program is solved to the end."""
LOOSE = Limits(gap=1e-2, nodes=200, seconds=10.0)
"""Where a program is one of very many."""
CLOSE = Limits(gap=1e-3, nodes=2000, seconds=30.0)
"""Where it is one of the last."""
EXACT = Limits(gap=0.0, seconds=60.0)
SHARE = 4
"""Perturbed splits per round, as a part of what the closed form affords."""
WORTHWHILE = 1e-4
ROUGH_ROUNDS, FINAL_ROUNDS = 3, 20


@dataclass
class Account:
    """How the programs of a run went."""

    solved: int = 0
    branched: int = 0
    stopped_early: int = 0

    def note(self, found: Assignment, limits: Limits) -> None:
        """Enter one program."""
        self.solved += 1
        self.branched += found.branched
        gap = found.cost - found.bound
        self.stopped_early += not found.proven and gap > limits.gap * abs(found.bound)


@dataclass(frozen=True)
class ProgramAssigner:
    """The assignment step by HiGHS: relaxed first, with integers where that ends in fractions."""

    program: Program
    limits: Limits
    workers: Workers
    account: Account = field(default_factory=Account)

    def choose(
        self, costs: NDArray[Any], present: NDArray[np.bool_] | None = None
    ) -> NDArray[np.bool_]:
        """Solve one program per column of costs."""

        def one(run: int) -> Assignment:
            start = None if present is None else present[:, run]
            found = solve(self.program, costs[:, run], present=start, limits=self.limits)
            if found is None:
                raise SolverError(
                    "HiGHS found no choice that meets the constraints in time",
                    hint="allow more with --tolerance, or --tolerance auto",
                )
            return found

        solutions = list(self.workers.map(one, range(costs.shape[1])))
        for found in solutions:
            self.account.note(found, self.limits)
        return np.stack([found.chosen for found in solutions], axis=1)


@dataclass(frozen=True)
class Starts:
    """Where a coupled search begins.

    Attributes
    ----------
    scores : (atoms, s), what to choose by for starts along leading directions.
    starter : turns scores and noise into splits.
    """

    scores: Floats
    starter: Assigner


def coupled_search(
    problem: Problem,
    image: Image,
    field_problem: Problem,
    starts: Starts,
    assigner: Callable[[Limits], Assigner],
    *,
    restarts: int,
    max_iter: int,
    effort: Effort,
    nonnegative: bool,
    rng: np.random.Generator,
    canonical: Callable[[Members], Members] = lambda members: members,
    progress: Progress = silent,
) -> Solution:
    """Find the split with the smallest Psi that the effort affords.

    Parameters
    ----------
    image : a low-rank image of the problem's kernel.
    field_problem : the problem on that image, or the problem itself if it is small.
    assigner : makes the assignment step for given limits.
    """
    start_rng, noise_rng = rng.spawn(2)
    atoms = np.arange(problem.n)
    factors = image.factors(atoms)
    is_whole = field_problem is problem
    small = problem.n <= SMALL
    loose = assigner(EXACT if small else LOOSE)
    names = [f"spectral-{run // 2}{'-+'[run % 2 == 0]}" for run in range(starts.scores.shape[1])]
    n_random = restarts - len(names)
    names += [f"random-{run}" for run in range(n_random)]
    keys = [stream.random(problem.n) * _weights(problem) for stream in start_rng.spawn(n_random)]
    initial = starts.starter.choose(np.column_stack([starts.scores, *keys]))
    ends = explore(
        field_problem, initial, loose, max_iter=max_iter, every_step=is_whole, progress=progress
    )
    found = _perturb(field_problem, list(ends), factors, loose, starts.starter, effort, max_iter, noise_rng, progress)
    close = assigner(EXACT if small else CLOSE)

    def bring_to_rest(trails: list[Trail], *, exactly: bool) -> list[Trail]:
        return settle(
            problem,
            trails,
            close if exactly else loose,
            max_iter=max_iter,
            max_rounds=FINAL_ROUNDS if exactly else ROUGH_ROUNDS,
            dtype=np.float64 if exactly else problem.geometry.search_dtype,
            leaping=not exactly,
            nonnegative=nonnegative,
        )

    progress("polish", 0, 2)
    candidates = max(1, effort.candidates // 2)
    settled = bring_to_rest(best_distinct(found, candidates), exactly=False)
    progress("polish", 1, 2)
    best = bring_to_rest(best_distinct(settled, 1), exactly=True)[0]
    last = {trail.start: trail for trail in ends} | {
        trail.start: trail for trail in sorted(settled, key=lambda trail: -trail.psi)
    }
    last[best.start] = best
    runs, steps = measure_runs(problem, names, [last[start] for start in range(len(names))], best)
    return Solution(canonical(best.members), steps, runs, best.start, best.converged)


def _weights(problem: Problem) -> NDArray[np.float64]:
    """What an atom's key counts: as much as it has rows."""
    return np.ones(problem.n) if problem.sizes is None else problem.sizes.astype(np.float64)


def _perturb(
    problem: Problem,
    trails: list[Trail],
    factors: Floats,
    assigner: Assigner,
    starter: Assigner,
    effort: Effort,
    max_iter: int,
    rng: np.random.Generator,
    progress: Progress,
) -> list[Trail]:
    """Kick the best split and descend, until two rounds in a row bring nothing."""
    batch, stale = effort.batch // SHARE, 0
    for done in range(effort.max_rounds if batch else 0):
        if stale == 2:
            break
        progress("perturb", done, effort.max_rounds)
        parent = best_distinct(trails, 1)[0]
        noise = np.asarray(factors @ kick_directions(factors, batch, rng), dtype=np.float64)
        noise /= np.maximum(noise.std(axis=0), np.finfo(np.float64).tiny)
        strength = np.exp(rng.uniform(np.log(0.1), np.log(2.0), size=batch)) * float(parent.witness.std())
        kicked = starter.choose(
            noise * strength - parent.witness[:, None], np.repeat(parent.members[:, None], batch, axis=1)
        )
        end = descend(
            problem, kicked, assigner, max_iter=max_iter, dtype=problem.geometry.search_dtype, turning=False
        )
        for run in np.flatnonzero(end.psi < parent.psi).tolist():
            better = replace(
                parent,
                members=end.members[:, run],
                psi=float(end.psi[run]),
                witness=end.witness[:, run],
                converged=bool(end.converged[run]),
            )
            trails.append(better.through("perturb", [np.packbits(better.members)]))
        gain = parent.psi - float(end.psi.min())
        stale = 0 if gain > WORTHWHILE * (problem.ssq_total - parent.psi) else stale + 1
    return trails
