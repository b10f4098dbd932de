"""The search where cells cannot be decided one by one: several families, or units that stay together.

The same descents, perturbations and exchanges as elsewhere, with a program for every assignment step.
Programs cost far more than passes over a low-rank approximation, so there are fewer of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.cbc import CBCProgramAssigner
from clustersplit_cli.core.assignment.highs import solve
from clustersplit_cli.core.assignment.selection import Assigner
from clustersplit_cli.core.constraints.cells import Cells
from clustersplit_cli.core.constraints.program import Assignment, Limits, Program
from clustersplit_cli.core.constraints.requirements import Requirements
from clustersplit_cli.core.effort import Effort
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.geometry.low_rank import LowRankKernel
from clustersplit_cli.core.geometry.nystrom import low_rank_geometry
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.exhaustive import MOST_FREE, all_choices, batches, best_of
from clustersplit_cli.core.search.explore import explore
from clustersplit_cli.core.search.groups import first_choice, group_problem
from clustersplit_cli.core.search.lloyd import descend
from clustersplit_cli.core.search.problem import Members, Problem, evaluate, objectives
from clustersplit_cli.core.search.refine import Refiner
from clustersplit_cli.core.search.search import ROUNDS, different, different_optima
from clustersplit_cli.core.search.solution import (
    Candidate,
    ProgramAccount,
    Solution,
    StagedSearch,
    are_measured_coarsely,
    best_distinct,
    measure_runs,
)
from clustersplit_cli.core.search.starts import perturbation_directions, spectral_scores
from clustersplit_cli.errors import SolverError
from clustersplit_cli.progress import Progress, silent

FEW_UNITS = 60
"""Up to this many units every program is solved to the end."""
TO_THE_END = Limits(seconds=60.0)
ROWS = Limits(gap=1e-6, nodes=2000, seconds=20.0)
"""Programs over single rows: what branch and bound has to decide there is little."""
UNITS_OFTEN = Limits(gap=1e-2, repairing=True, nodes=0, seconds=20.0)
UNITS_TO_START = Limits(gap=0.1, repairing=True, nodes=1, seconds=30.0)
UNITS_AT_LAST = Limits(gap=1e-3, repairing=True, nodes=20, seconds=30.0)
SMALL = 2048
"""Up to this many units a pass over the kernel itself costs next to nothing."""
SHARE = 5
"""Perturbed splits per round, as a part of what the closed form affords."""
WORTHWHILE, ROUNDING = 1e-4, 1e-12
ROUGH_ROUNDS, FINAL_ROUNDS = 3, 20


@dataclass(frozen=True)
class ProgramAssigner:
    """The assignment step by HiGHS: relaxed first, with integers where that ends in fractions."""

    program: Program
    limits: Limits
    workers: Workers
    account: ProgramAccount = field(default_factory=ProgramAccount)

    def choose(self, costs: NDArray[Any], present: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
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
            self.account.solved += 1
            self.account.branched += found.branched
            self.account.stopped_early += not found.near_enough
        return np.stack([found.chosen for found in solutions], axis=1)


@dataclass(frozen=True)
class Coupling:
    """A problem whose cells hang together: its units, and how they are chosen.

    Attributes
    ----------
    problem : over rows, or over units.
    solver : `auto` for HiGHS, `cbc` for CBC.
    """

    problem: Problem
    requirements: Requirements
    solver: str
    workers: Workers
    account: ProgramAccount = field(default_factory=ProgramAccount)

    @classmethod
    def of(cls, problem: Problem, requirements: Requirements, solver: str, workers: Workers) -> Coupling:
        """Choose units where rows stay together, or else rows."""
        over = problem if requirements.units is None else group_problem(problem, requirements)
        return cls(over, requirements, solver, workers)

    def assigner(self, *, at_last: bool) -> Assigner:
        """The assignment step, more exact at last."""
        program = self.requirements.program
        if len(program.free) <= FEW_UNITS:
            limits = TO_THE_END
        elif self.requirements.units is None:
            limits = ROWS
        else:
            limits = UNITS_AT_LAST if at_last else UNITS_OFTEN
        if self.solver == "cbc":
            return CBCProgramAssigner(program, self.workers, limits.gap, limits.seconds)
        return ProgramAssigner(program, limits, self.workers, self.account)

    def starter(self) -> Assigner:
        """What turns scores into splits to begin from; of families, it keeps the totals and nothing else."""
        if self.requirements.units is None:
            return self.assigner(at_last=False)
        chooser = ProgramAssigner(self.requirements.program, UNITS_TO_START, self.workers, self.account)
        return _FromFirst(chooser, first_choice(self.requirements))

    def to_rows(self, members: Members) -> Members:
        """A split of the units as a split of the rows."""
        units = self.requirements.units
        rows: Members = members if units is None else members[units]
        return rows

    def random_splits(self, streams: Sequence[np.random.Generator]) -> Members:
        """Draw one split of the rows per stream that meets all bounds, by random keys; shape (n, r)."""
        return self.drawn(self.keys(streams))

    def drawn(self, costs: NDArray[np.float64]) -> Members:
        """Splits of the rows, (n, r), that meet all bounds at low costs (units, r), outside a search."""
        starter = replace(self, account=ProgramAccount()).starter()  # these programs are none of the search's
        return self.to_rows(starter.choose(costs))

    def keys(self, streams: Sequence[np.random.Generator]) -> NDArray[np.float64]:
        """Random costs, as much per unit as it has rows; shape (units, r)."""
        sizes = self.requirements.sizes
        return np.column_stack([(stream.random(self.problem.n) - 0.5) * sizes for stream in streams])


@dataclass(frozen=True)
class _FromFirst:
    """Keeps to a choice that is known to meet the bounds where nothing better is found."""

    assigner: Assigner
    first: NDArray[np.bool_]

    def choose(self, costs: NDArray[Any], present: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """Choose, from the first choice if there is no other."""
        if present is None:
            present = np.repeat(self.first[:, None], costs.shape[1], axis=1)
        return self.assigner.choose(costs, present)


@dataclass(frozen=True)
class CoupledExplored:
    """Where starts lead: their names, their ends, and all candidates worth refining."""

    names: list[str]
    starter: Assigner
    ends: list[Candidate]
    candidates: list[Candidate]


@dataclass(frozen=True)
class CoupledFound:
    """A converged split of the units, others that were refined too, and what was explored before."""

    explored: CoupledExplored
    refined: list[Candidate]
    best: Candidate


@dataclass(frozen=True)
class CoupledSearch(StagedSearch[CoupledExplored, CoupledFound]):
    """Searches for the split with the smallest Psi that the effort affords.

    Attributes
    ----------
    low_rank : a low-rank approximation of the coupling's kernel, over its units.
    """

    coupling: Coupling
    low_rank: LowRankKernel
    restarts: int
    max_iter: int
    effort: Effort
    rng: np.random.Generator
    progress: Progress = silent

    def explore(self) -> CoupledExplored:
        """See where starts lead, and perturb the best of them."""
        coupling, problem = self.coupling, self.coupling.problem
        starter = coupling.starter()
        start_rng, noise_rng = self.rng.spawn(2)
        factors = self.low_rank.factors(np.arange(problem.n))
        is_whole = problem.n <= SMALL
        subproblem = problem
        if not is_whole:
            subproblem = replace(problem, geometry=low_rank_geometry(factors, coupling.workers))
        names, starts = _starts(coupling, factors, starter, self.restarts, start_rng)
        often = coupling.assigner(at_last=False)
        ends = explore(
            subproblem, starts, often, max_iter=self.max_iter, every_step=is_whole, progress=self.progress
        )
        candidates = self._perturb(subproblem, list(ends), factors, starter, noise_rng)
        return CoupledExplored(names, starter, list(ends), candidates)

    def refine(self, explored: CoupledExplored) -> CoupledFound:
        """Refine the best splits."""
        self.progress("polish", 0, 2)
        chosen = best_distinct(explored.candidates, max(1, self.effort.candidates // 2))
        refined = self._refiner.refine(chosen, exactly=False)
        self.progress("polish", 1, 2)
        best = self._refiner.refine(best_distinct(refined, 1), exactly=True)[0]
        return CoupledFound(explored, refined, self._better_of_all(best))

    def _better_of_all(self, best: Candidate) -> Candidate:
        """The best of all splits, if they are few enough to look at and it is better."""
        problem, program = self.coupling.problem, self.coupling.requirements.program
        if len(program.free) > MOST_FREE:
            return best
        table = np.asarray(program.by_unit.toarray(), dtype=np.int64)
        total = table.sum(axis=0)
        choices = all_choices(
            table,
            np.stack([total - program.upper, program.lower], axis=1),
            np.stack([total - program.lower, program.upper], axis=1),
            program.fixed.astype(np.int64),
        )
        each = (objectives(problem, some.astype(bool)) for some in batches(choices))
        members, psi = best_of(choices, each)
        if not psi < best.psi - 1e-12 * problem.ssq_total:
            return best
        better = replace(best, members=members.astype(bool), psi=psi, trace=(*best.trace, psi))
        return better.through("enumerate", [np.packbits(better.members)])

    def account(self, found: CoupledFound) -> Solution:
        """Measure where all starts ended and the steps that led to the best split; it is one of the rows."""
        problem, names, best = self.coupling.problem, found.explored.names, found.best
        last = {candidate.start: candidate for candidate in found.explored.ends} | {
            candidate.start: candidate
            for candidate in sorted(found.refined, key=lambda candidate: -candidate.psi)
        }
        last[best.start] = best
        in_turn = [last[start] for start in range(len(names))]
        measured = evaluate(problem, best.members) if are_measured_coarsely(problem) else None
        runs, steps = measure_runs(problem, names, in_turn, best, measured=measured)
        labels = self.coupling.to_rows(best.members).astype(np.int64)
        return Solution(labels, steps, runs, best.start, best.converged, account=self.coupling.account)

    def different(self, found: CoupledFound, count: int) -> tuple[Members, ...]:
        """Up to `count` different local optima, the best one found among them, as splits of the rows."""
        self.progress("others", 0, 0)
        (rng,), starter = self.rng.spawn(1), found.explored.starter
        pools = [found.refined, different(found.explored.candidates, 2 * count)]
        draws = (starter.choose(self.coupling.keys(rng.spawn(2 * count))) for _ in range(ROUNDS))
        optima = different_optima(self._refiner, [found.best], pools, draws, count=count)
        return tuple(self.coupling.to_rows(candidate.members) for candidate in optima)

    @cached_property
    def _refiner(self) -> Refiner:
        often, at_last = (self.coupling.assigner(at_last=flag) for flag in (False, True))
        return Refiner(
            self.coupling.problem,
            often,
            self.max_iter,
            ROUGH_ROUNDS,
            FINAL_ROUNDS,
            last_assigner=at_last,
        )

    def _perturb(
        self,
        problem: Problem,
        candidates: list[Candidate],
        factors: Floats,
        starter: Assigner,
        rng: np.random.Generator,
    ) -> list[Candidate]:
        """Perturb the best split and descend, until two rounds in a row gain nothing."""
        effort, batch, stale = self.effort, self.effort.batch // SHARE, 0
        assigner = self._refiner.assigner
        for done in range(effort.max_rounds if batch else 0):
            if stale == 2:
                break
            self.progress("perturb", done, effort.max_rounds)
            parent = best_distinct(candidates, 1)[0]
            noise = np.asarray(factors @ perturbation_directions(factors, batch, rng), dtype=np.float64)
            # Where units differ by rounding alone, so does the noise: it must not be blown up to infinity.
            spread, size = noise.std(axis=0), np.abs(noise).max(axis=0)
            noise /= np.where(spread > ROUNDING * size, spread, np.where(size > 0, size, 1.0))
            strength = np.exp(rng.uniform(np.log(0.1), np.log(2.0), size=batch)) * float(parent.witness.std())
            perturbed = starter.choose(
                noise * strength - parent.witness[:, None], np.repeat(parent.members[:, None], batch, axis=1)
            )
            end = descend(
                problem,
                perturbed,
                assigner,
                max_iter=self.max_iter,
                dtype=problem.geometry.search_dtype,
                turning=False,
            )
            for run in np.flatnonzero(end.psi < parent.psi).tolist():
                better = replace(
                    parent,
                    members=end.members[:, run],
                    psi=float(end.psi[run]),
                    witness=end.witness[:, run],
                    converged=bool(end.converged[run]),
                    trace=(*parent.trace, float(end.psi[run])),
                )
                candidates.append(better.through("perturb", [np.packbits(better.members)]))
            gain = parent.psi - float(end.psi.min())
            stale = 0 if gain > WORTHWHILE * (problem.ssq_total - parent.psi) else stale + 1
        return candidates


def _starts(
    coupling: Coupling, factors: Floats, starter: Assigner, restarts: int, rng: np.random.Generator
) -> tuple[list[str], Members]:
    """Name and make the starts: along leading directions, both ways, and random ones."""
    wanted = restarts - restarts // 5
    if coupling.requirements.units is None:
        scores = spectral_scores(coupling.requirements.working.cells, factors, wanted)
    else:
        # A unit's factors are sums over its rows: what counts is how far they are from as many average rows.
        sizes = coupling.requirements.sizes[:, None]
        centred = factors - sizes * (factors.sum(axis=0) / sizes.sum())
        units = coupling.problem.n
        whole = Cells(np.zeros(units, np.int64), ({},), np.array([units]))
        scores = spectral_scores(whole, centred, wanted)
    names = [f"spectral-{run // 2}{'-+'[run % 2 == 0]}" for run in range(scores.shape[1])]
    n_random = restarts - len(names)
    names += [f"random-{run}" for run in range(n_random)]
    costs = [scores.astype(np.float64)]
    if n_random:
        costs.append(coupling.keys(rng.spawn(n_random)))
    return names, starter.choose(np.concatenate(costs, axis=1))
