"""From many starts to one split.

Passes over a large kernel are what a search costs. So it explores a low-rank kernel, on a sample of
the rows if they are many, where a pass is almost free, and refines only the best candidates on
the kernel itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.effort import CHEAP_ROWS, Effort
from clustersplit_cli.core.geometry.low_rank import LowRankKernel
from clustersplit_cli.core.search.bounded import Carried, RefinedSplits, bounded_lloyd, carry_over
from clustersplit_cli.core.search.exhaustive import MOST_SPLITS, best_of_all, has_at_most
from clustersplit_cli.core.search.explore import (
    POLISHED,
    Exploration,
    are_slow,
    explore,
    explore_low_rank,
    explore_near_diagonal,
)
from clustersplit_cli.core.search.lloyd import Descent, descend
from clustersplit_cli.core.search.problem import (
    SMALL,
    Members,
    Problem,
    SearchContext,
    SplitMeasures,
    discrepancy,
    evaluate,
)
from clustersplit_cli.core.search.refine import Refiner
from clustersplit_cli.core.search.solution import (
    Candidate,
    Solution,
    StagedSearch,
    are_close,
    are_measured_coarsely,
    best_distinct,
    measure_runs,
)
from clustersplit_cli.core.search.starts import is_nearly_diagonal, random_splits

LARGE = 50_000
"""From this many rows on, passes are so dear that fewer candidates are refined."""
ROUGH_ROUNDS = 4
FINAL_ROUNDS = 50


@dataclass(frozen=True)
class Explored:
    """Where starts lead, seen on an approximation of the kernel.

    Attributes
    ----------
    carried : the best of them on all rows, where bounds tell which few of the rows to look at.
    rng : perturbs what is refined.
    """

    effort: Effort
    exploration: Exploration
    carried: Carried | None
    rng: np.random.Generator


@dataclass(frozen=True)
class Attempt:
    """One search: what it saw first, what it refined, and the best split in the end."""

    exploration: Exploration
    refined: RefinedSplits
    best: Candidate

    @property
    def psi(self) -> float:
        """The objective of the best split, in float64."""
        measured = self.refined.measured
        return measured.psi if measured is not None and self.best is self.refined.best else self.best.psi


@dataclass(frozen=True)
class FoundSplit:
    """A converged split, what it measures in float64, and the attempt that led to it."""

    members: Members
    measured: SplitMeasures
    attempt: Attempt
    best: Candidate


def needs_low_rank(problem: Problem) -> bool:
    """Whether a search explores a low-rank kernel; that of a very narrow kernel tells nothing."""
    return problem.n <= SMALL or not (problem.geometry.is_nonnegative and is_nearly_diagonal(problem))


@dataclass(frozen=True)
class SplitSearch(StagedSearch[Explored, FoundSplit]):
    """Searches a problem for the split with the smallest Psi that the effort affords.

    While splits are refined, workers may be idle.

    Attributes
    ----------
    low_rank : approximates the problem's kernel; None where it needs none, see `needs_low_rank`.
    """

    context: SearchContext
    low_rank: LowRankKernel | None
    rng: np.random.Generator

    def explore(self) -> Explored:
        """See where starts lead on an approximation of the kernel, and carry the best over to all rows."""
        return self._explored(self._efforts[0])

    def refine(self, explored: Explored) -> FoundSplit:
        """Refine the best splits, and perturb the best of all."""
        first = self._attempt(explored)
        attempts = [first, *(self._attempt(self._explored(effort)) for effort in self._efforts[1:])]
        attempt = min(attempts, key=lambda attempt: attempt.psi)
        best, problem = attempt.best, self.context.problem
        if has_at_most(problem.constraints, MOST_SPLITS):
            members, psi = best_of_all(problem)
            if psi < best.psi - 1e-12 * problem.ssq_total:
                best = replace(best, members=members, psi=psi, trace=(*best.trace, psi))
                best = best.through("enumerate", [np.packbits(members)])
        is_measured = best is attempt.refined.best
        measured = (attempt.refined.measured if is_measured else None) or evaluate(problem, best.members)
        return FoundSplit(best.members, measured, attempt, best)

    def account(self, found: FoundSplit) -> Solution:
        """Measure where all starts ended and the steps that led to the best split."""
        attempt, best = found.attempt, found.best
        names = attempt.exploration.names
        last = {candidate.start: candidate for candidate in attempt.exploration.ends} | {
            candidate.start: candidate
            for candidate in sorted(attempt.refined.others, key=lambda candidate: -candidate.psi)
        }
        last[best.start] = best
        ends = [last[start] for start in range(len(names))]
        runs, steps = measure_runs(
            self.context.problem, names, ends, best, attempt.refined.known, found.measured
        )
        labels = found.members.astype(np.int64)
        return Solution(labels, steps, runs, best.start, best.converged, measured=found.measured)

    def different(self, found: FoundSplit, count: int) -> tuple[Members, ...]:
        """Up to `count` different local optima, the best one found among them."""
        self.context.progress("others", 0, 0)
        exploration, (rng,) = found.attempt.exploration, self.rng.spawn(1)
        pools = [
            list(found.attempt.refined.others),
            exploration.to_all_rows(different(exploration.found, 2 * count)),
        ]
        limits = self.context.problem.constraints
        draws = (random_splits(limits, rng.spawn(2 * count)) for _ in range(ROUNDS))
        optima = different_optima(self.refiner, [found.best], pools, draws, count=count)
        return tuple(candidate.members for candidate in optima)

    @property
    def _efforts(self) -> list[Effort]:
        effort = self.context.effort
        return [effort] if effort.after is None else [effort.after, effort]

    @cached_property
    def is_bounded(self) -> bool:
        """Whether bounds tell which few rows a step has to look at, rather than measuring splits anew."""
        problem = self.context.problem
        return (
            problem.n > SMALL
            and problem.geometry.is_low_rank
            and isinstance(self.context.assigner, Selection)
            and problem.constraints.is_exact
            and problem.sizes is None
        )

    @cached_property
    def refiner(self) -> Refiner:
        """Refines splits on the kernel itself."""
        problem = self.context.problem
        most = None if problem.n <= SMALL or not needs_low_rank(problem) else POLISHED
        return Refiner(
            problem, self.context.assigner, self.context.max_iter, ROUGH_ROUNDS, FINAL_ROUNDS, most
        )

    def _explored(self, effort: Effort) -> Explored:
        *explore_rngs, perturb_rng = self.rng.spawn(4)
        exploration = self._explore(effort, explore_rngs)
        self.context.progress("polish", 0, 2)
        carried = None
        if self.is_bounded:
            carried = carry_over(self.context.problem, exploration.ends, exploration.chosen, most=POLISHED)
        return Explored(effort, exploration, carried, perturb_rng)

    def _attempt(self, explored: Explored) -> Attempt:
        """Refine what was explored, and perturb the best split."""
        exploration, carried, refined = explored.exploration, explored.carried, None
        if carried is not None:
            refined = bounded_lloyd(self.context.problem, carried, max_iter=self.context.max_iter)
        if refined is None:
            refined = self._refine_chosen(exploration)
        return Attempt(
            exploration,
            refined,
            self._perturb_best(exploration, refined.best, explored.effort, explored.rng),
        )

    def _explore(self, effort: Effort, rngs: Sequence[np.random.Generator]) -> Exploration:
        context = replace(self.context, effort=effort)
        if not needs_low_rank(context.problem):
            return explore_near_diagonal(context, effort.near_diagonal, rngs[0])
        assert self.low_rank is not None
        most = POLISHED if context.problem.n > LARGE and not self.is_bounded else None
        return explore_low_rank(context, self.low_rank, self.refiner, most, rngs)

    def _perturb_best(
        self, exploration: Exploration, best: Candidate, effort: Effort, rng: np.random.Generator
    ) -> Candidate:
        """Perturb the best split on the kernel itself, where splits are dearer than on its approximation."""
        context, problem = self.context, self.context.problem
        # What approximates a kernel held as factors lacks little of it: starts that agree are right.
        is_clear = exploration.have_agreed and problem.geometry.is_low_rank
        is_worthwhile = SMALL < problem.n <= CHEAP_ROWS and are_slow(exploration.ends) and not is_clear
        rounds = effort.cheap_rounds if is_worthwhile else effort.exact_rounds
        for done in range(rounds):
            context.progress("perturb", done, rounds)
            end = descend(
                problem,
                exploration.around(best, problem.constraints, effort.batch // 2, rng),
                context.assigner,
                max_iter=context.max_iter,
                dtype=problem.geometry.search_dtype,
                rival=best.psi,
            )
            best = self._better(best, end, effort.candidates)
        return best

    def _refine_chosen(self, exploration: Exploration) -> RefinedSplits:
        """Refine the chosen splits in the kernel's own precision, and the best of them in float64.

        The measurement in float64 that this takes is mostly that of the final split, which the report states;
        else there is none of it, since the search may go on.
        """
        problem, chosen, known = self.context.problem, exploration.chosen, dict[bytes, float]()
        is_coarse = are_measured_coarsely(problem)
        if exploration.subproblem is None:
            known = {
                np.packbits(candidate.members).tobytes(): candidate.psi for candidate in exploration.ends
            }
        elif is_coarse:
            chosen, known = _measured(problem, chosen, exploration.ends)
        refined = self.refiner.refine(chosen, exactly=False, measured=is_coarse)
        self.context.progress("polish", 1, 2)
        best = min(refined, key=lambda candidate: candidate.psi)
        if is_coarse:  # what it still gains it gains at less cost
            best = self.refiner.refine([best], exactly=False, measured=True, fully=True)[0]
        measured = evaluate(problem, best.members)
        converged = self.refiner.refine(
            [replace(best, witness=measured.witness)], exactly=True, measured=True
        )[0]
        is_converged = np.array_equal(converged.members, best.members)
        return RefinedSplits(converged, tuple(refined), known, measured if is_converged else None)

    def _better(self, best: Candidate, end: Descent, candidates: int) -> Candidate:
        """The best split, or one that a batch of descents found and that is better once it is refined."""
        found = [
            replace(best, members=end.members[:, run], psi=float(end.psi[run]), witness=end.witness[:, run])
            for run in np.flatnonzero(end.converged).tolist()
        ]
        rivals = best_distinct(
            [candidate for candidate in found if not are_close(candidate, best)], candidates
        )
        if not rivals:
            return best
        rivals = self.refiner.refine(rivals, exactly=False, measured=True)
        rival = self.refiner.refine(best_distinct(rivals, 1), exactly=True)[0]
        if rival.psi >= best.psi:
            return best
        converged = replace(rival, passed=best.passed, trace=(*best.trace, rival.psi))
        return converged.through("perturb", [np.packbits(rival.members)])


def _measured(
    problem: Problem, chosen: list[Candidate], ends: list[Candidate]
) -> tuple[list[Candidate], dict[bytes, float]]:
    """Measure the chosen splits, and in the same pass where all starts ended, which the report states.

    Returns
    -------
    The chosen candidates with their witness on the kernel itself, and Psi of all splits, packed.
    """
    packed = [np.packbits(candidate.members) for candidate in (*chosen, *ends)]
    columns: dict[bytes, int] = {}
    for split in packed:
        columns.setdefault(split.tobytes(), len(columns))
    splits = [
        np.unpackbits(np.frombuffer(split, np.uint8), count=problem.n).astype(bool) for split in columns
    ]
    found = discrepancy(problem, np.stack(splits, axis=1), problem.geometry.search_dtype)
    candidates = [
        replace(candidate, witness=found.witness[:, columns[split.tobytes()]])
        for candidate, split in zip(chosen, packed, strict=False)
    ]
    return candidates, dict(zip(columns, found.psi.tolist(), strict=True))


DIFFERENT = 0.05
"""Share of the validation rows that two different splits do not have in common."""
ROUNDS = 4
"""Rounds of random starts, while too few optima are known."""


def different_optima(
    refiner: Refiner,
    known: Sequence[Candidate],
    pools: Sequence[Sequence[Candidate]],
    draws: Iterable[Members],
    *,
    count: int,
) -> list[Candidate]:
    """Return up to `count` local optima of which no two have almost the same validation rows, best first.

    Parameters
    ----------
    known : candidates that have converged on the kernel itself.
    pools : candidates to refine, the most promising pool first; Psi need not be comparable between pools.
    draws : batches of random splits that meet the constraints, drawn while too few optima are known.

    Returns
    -------
    Fewer than `count` where further random starts lead to no others.
    """
    fresh: list[Candidate] = []
    for pool in pools:
        fresh += different(pool, 2 * count - len(fresh), [*known, *fresh])
    optima = different([*known, *(refiner.refine(fresh, exactly=True) if fresh else [])], count)
    batches = iter(draws)
    while len(optima) < count and (splits := next(batches, None)) is not None:
        ends = explore(refiner.problem, splits, refiner.assigner, max_iter=refiner.max_iter, every_step=False)
        optima = different([*optima, *refiner.refine(different(ends, 2 * count), exactly=True)], count)
    return optima


def different(
    candidates: Sequence[Candidate], count: int, known: Sequence[Candidate] = ()
) -> list[Candidate]:
    """The `count` best candidates, best first, that differ from each other and from those known."""
    kept: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda candidate: candidate.psi):
        if len(kept) == count:
            break
        if all(are_different(candidate.members, other.members) for other in (*kept, *known)):
            kept.append(candidate)
    return kept


def are_different(one: Members, other: Members) -> bool:
    """Whether at least `DIFFERENT` of the validation rows of the smaller split are not in the other."""
    smaller = min(int(one.sum()), int(other.sum()))
    return bool(smaller - int((one & other).sum()) >= max(1.0, DIFFERENT * smaller))
