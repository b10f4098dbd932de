"""From many starts to one split.

Passes over a large kernel are what a search costs. So it explores a low-rank image of the kernel, on a
sample of the rows if they are many, where a pass is almost free, and settles only the best candidates on
the kernel itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.effort import CHEAP_ROWS, Effort
from clustersplit_cli.core.geometry.low_rank import Image
from clustersplit_cli.core.search.bounded import Carried, Finished, carry_over, finish
from clustersplit_cli.core.search.candidate import Trail, are_close, best_distinct
from clustersplit_cli.core.search.context import SearchContext
from clustersplit_cli.core.search.exhaustive import MOST_SPLITS, best_of_all, has_at_most
from clustersplit_cli.core.search.explore import (
    POLISHED,
    Scouted,
    are_slow,
    explore,
    scout_crowds,
    scout_image,
)
from clustersplit_cli.core.search.lloyd import Descent, descend
from clustersplit_cli.core.search.problem import Evaluation, Members, Problem, discrepancy, evaluate
from clustersplit_cli.core.search.refine import Refiner
from clustersplit_cli.core.search.sample import SMALL
from clustersplit_cli.core.search.solution import Solution, are_measured_coarsely, measure_runs
from clustersplit_cli.core.search.starts import is_nearly_diagonal, random_splits

LARGE = 50_000
"""From this many rows on, passes are so dear that fewer candidates are settled."""
ROUGH_ROUNDS = 4
FINAL_ROUNDS = 50


@dataclass(frozen=True)
class Explored:
    """Where starts lead, seen on an image of the kernel.

    Attributes
    ----------
    carried : the best of them on all rows, where splits are followed by few of their rows.
    rng : perturbs what is refined.
    """

    effort: Effort
    scouted: Scouted
    carried: Carried | None
    rng: np.random.Generator


@dataclass(frozen=True)
class Attempt:
    """One search: what it saw first, what it settled, and the best split in the end."""

    scouted: Scouted
    finished: Finished
    best: Trail

    @property
    def psi(self) -> float:
        """The objective of the best split, in float64."""
        measured = self.finished.measured
        return measured.psi if measured is not None and self.best is self.finished.best else self.best.psi


@dataclass(frozen=True)
class Found:
    """A split at rest, what it measures in float64, and the attempt that led to it."""

    members: Members
    measured: Evaluation
    attempt: Attempt
    best: Trail


def needs_image(problem: Problem) -> bool:
    """Whether a search explores a low-rank image; no image of a very narrow kernel tells anything."""
    return problem.n <= SMALL or not (problem.geometry.is_nonnegative and is_nearly_diagonal(problem))


@dataclass(frozen=True)
class SplitSearch:
    """Searches a problem for the split with the smallest Psi that the effort affords.

    Three stages in turn: `explore`, `refine` and `account`. While splits are refined, workers may be idle.

    Attributes
    ----------
    image : a low-rank image of the problem's kernel; None where `needs_image` says that there need be none.
    """

    context: SearchContext
    image: Image | None
    rng: np.random.Generator

    def solve(self) -> Solution:
        """Go through all stages."""
        return self.account(self.refine(self.explore()))

    def explore(self) -> Explored:
        """See where starts lead on an image of the kernel, and carry the best over to all rows."""
        return self._explored(self._efforts[0])

    def refine(self, explored: Explored) -> Found:
        """Bring the best splits to rest, and perturb the best of all."""
        first = self._attempt(explored)
        attempts = [first, *(self._attempt(self._explored(effort)) for effort in self._efforts[1:])]
        attempt = min(attempts, key=lambda attempt: attempt.psi)
        best, problem = attempt.best, self.context.problem
        if has_at_most(problem.constraints, MOST_SPLITS):
            members, psi = best_of_all(problem)
            if psi < best.psi - 1e-12 * problem.ssq_total:
                best = replace(best, members=members, psi=psi, trace=(*best.trace, psi))
                best = best.through("enumerate", [np.packbits(members)])
        is_measured = best is attempt.finished.best
        measured = (attempt.finished.measured if is_measured else None) or evaluate(problem, best.members)
        return Found(best.members, measured, attempt, best)

    def account(self, found: Found) -> Solution:
        """Measure where all starts ended and the steps that led to the best split."""
        attempt, best = found.attempt, found.best
        names = attempt.scouted.names
        last = {trail.start: trail for trail in attempt.scouted.ends} | {
            trail.start: trail for trail in sorted(attempt.finished.others, key=lambda trail: -trail.psi)
        }
        last[best.start] = best
        ends = [last[start] for start in range(len(names))]
        runs, steps = measure_runs(
            self.context.problem, names, ends, best, attempt.finished.known, found.measured
        )
        return Solution(found.members, steps, runs, best.start, best.converged, measured=found.measured)

    def different(self, found: Found, count: int) -> tuple[Members, ...]:
        """Up to `count` different local optima, the best one found among them."""
        self.context.progress("others", 0, 0)
        scouted, (rng,) = found.attempt.scouted, self.rng.spawn(1)
        pools = [
            list(found.attempt.finished.others),
            scouted.to_all_rows(different(scouted.found, 2 * count)),
        ]
        limits = self.context.problem.constraints
        draws = (random_splits(limits, rng.spawn(2 * count)) for _ in range(ROUNDS))
        optima = different_optima(self.refiner, [found.best], pools, draws, count=count)
        return tuple(trail.members for trail in optima)

    @property
    def _efforts(self) -> list[Effort]:
        effort = self.context.effort
        return [effort] if effort.after is None else [effort.after, effort]

    @cached_property
    def is_followed(self) -> bool:
        """Whether splits are followed by few of their rows rather than measured anew at every step."""
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
        """Brings splits to rest on the kernel itself."""
        problem = self.context.problem
        most = None if problem.n <= SMALL or not needs_image(problem) else POLISHED
        return Refiner(
            problem, self.context.assigner, self.context.max_iter, ROUGH_ROUNDS, FINAL_ROUNDS, most
        )

    def _explored(self, effort: Effort) -> Explored:
        *scout_rngs, stir_rng = self.rng.spawn(4)
        scouted = self._scout(effort, scout_rngs)
        self.context.progress("polish", 0, 2)
        carried = None
        if self.is_followed:
            carried = carry_over(self.context.problem, scouted.ends, scouted.chosen, most=POLISHED)
        return Explored(effort, scouted, carried, stir_rng)

    def _attempt(self, explored: Explored) -> Attempt:
        """Settle what was explored, and stir what was settled."""
        scouted, carried, finished = explored.scouted, explored.carried, None
        if carried is not None:
            finished = finish(self.context.problem, carried, max_iter=self.context.max_iter)
        if finished is None:
            finished = self._come_to_rest(scouted)
        return Attempt(scouted, finished, self._stir(scouted, finished.best, explored.effort, explored.rng))

    def _scout(self, effort: Effort, rngs: Sequence[np.random.Generator]) -> Scouted:
        context = replace(self.context, effort=effort)
        if not needs_image(context.problem):
            return scout_crowds(context, effort.crowded, rngs[0])
        assert self.image is not None
        most = POLISHED if context.problem.n > LARGE and not self.is_followed else None
        return scout_image(context, self.image, self.refiner, most, rngs)

    def _stir(self, scouted: Scouted, best: Trail, effort: Effort, rng: np.random.Generator) -> Trail:
        """Perturb the best split on the kernel itself, where splits are dearer than on its image."""
        context, problem = self.context, self.context.problem
        # The image of a kernel that is held as factors lacks little of it: starts that agree are right.
        is_clear = scouted.have_agreed and problem.geometry.is_low_rank
        is_worthwhile = SMALL < problem.n <= CHEAP_ROWS and are_slow(scouted.ends) and not is_clear
        rounds = effort.cheap_rounds if is_worthwhile else effort.exact_rounds
        for done in range(rounds):
            context.progress("stir", done, rounds)
            end = descend(
                problem,
                scouted.around(best, problem.constraints, effort.batch // 2, rng),
                context.assigner,
                max_iter=context.max_iter,
                dtype=problem.geometry.search_dtype,
                rival=best.psi,
            )
            best = self._better(best, end, effort.candidates)
        return best

    def _come_to_rest(self, scouted: Scouted) -> Finished:
        """Bring the chosen splits to rest in the kernel's own precision, and the best of them in float64.

        The measurement in float64 that this takes is mostly that of the final split, which the report states;
        else there is none of it, since the search may go on.
        """
        problem, chosen, known = self.context.problem, scouted.chosen, dict[bytes, float]()
        is_coarse = are_measured_coarsely(problem)
        if scouted.field is None:
            known = {np.packbits(trail.members).tobytes(): trail.psi for trail in scouted.ends}
        elif is_coarse:
            chosen, known = _measured(problem, chosen, scouted.ends)
        settled = self.refiner.refine(chosen, exactly=False, measured=is_coarse)
        self.context.progress("polish", 1, 2)
        best = min(settled, key=lambda trail: trail.psi)
        if is_coarse:  # what it still gains it gains at less cost
            best = self.refiner.refine([best], exactly=False, measured=True, fully=True)[0]
        measured = evaluate(problem, best.members)
        rested = self.refiner.refine([replace(best, witness=measured.witness)], exactly=True, measured=True)[
            0
        ]
        is_at_rest = np.array_equal(rested.members, best.members)
        return Finished(rested, tuple(settled), known, measured if is_at_rest else None)

    def _better(self, best: Trail, end: Descent, candidates: int) -> Trail:
        """The best split, or one that a batch of descents found and that is better once it is settled."""
        found = [
            replace(best, members=end.members[:, run], psi=float(end.psi[run]), witness=end.witness[:, run])
            for run in np.flatnonzero(end.converged).tolist()
        ]
        rivals = best_distinct([trail for trail in found if not are_close(trail, best)], candidates)
        if not rivals:
            return best
        rivals = self.refiner.refine(rivals, exactly=False, measured=True)
        rival = self.refiner.refine(best_distinct(rivals, 1), exactly=True)[0]
        if rival.psi >= best.psi:
            return best
        rested = replace(rival, passed=best.passed, trace=(*best.trace, rival.psi))
        return rested.through("perturb", [np.packbits(rival.members)])


def _measured(
    problem: Problem, chosen: list[Trail], ends: list[Trail]
) -> tuple[list[Trail], dict[bytes, float]]:
    """Measure the chosen splits, and in the same pass where all starts ended, which the report states.

    Returns
    -------
    The chosen trails with their witness on the kernel itself, and Psi of all splits, packed.
    """
    packed = [np.packbits(trail.members) for trail in (*chosen, *ends)]
    columns: dict[bytes, int] = {}
    for split in packed:
        columns.setdefault(split.tobytes(), len(columns))
    splits = [
        np.unpackbits(np.frombuffer(split, np.uint8), count=problem.n).astype(bool) for split in columns
    ]
    found = discrepancy(problem, np.stack(splits, axis=1), problem.geometry.search_dtype)
    trails = [
        replace(trail, witness=found.witness[:, columns[split.tobytes()]])
        for trail, split in zip(chosen, packed, strict=False)
    ]
    return trails, dict(zip(columns, found.psi.tolist(), strict=True))


DIFFERENT = 0.05
"""Share of the validation rows that two different splits do not have in common."""
ROUNDS = 4
"""Rounds of random starts, while too few optima are known."""


def different_optima(
    refiner: Refiner,
    known: Sequence[Trail],
    pools: Sequence[Sequence[Trail]],
    draws: Iterable[Members],
    *,
    count: int,
) -> list[Trail]:
    """Return up to `count` local optima of which no two have almost the same validation rows, best first.

    Parameters
    ----------
    known : trails at rest on the kernel itself.
    pools : trails to settle, the most promising pool first; Psi need not be comparable between pools.
    draws : batches of random splits that meet the constraints, drawn while too few optima are known.

    Returns
    -------
    Fewer than `count` where further random starts lead to no others.
    """
    fresh: list[Trail] = []
    for pool in pools:
        fresh += different(pool, 2 * count - len(fresh), [*known, *fresh])
    optima = different([*known, *(refiner.refine(fresh, exactly=True) if fresh else [])], count)
    batches = iter(draws)
    while len(optima) < count and (splits := next(batches, None)) is not None:
        ends = explore(refiner.problem, splits, refiner.assigner, max_iter=refiner.max_iter, every_step=False)
        optima = different([*optima, *refiner.refine(different(ends, 2 * count), exactly=True)], count)
    return optima


def different(trails: Sequence[Trail], count: int, known: Sequence[Trail] = ()) -> list[Trail]:
    """The `count` best trails, best first, that differ from each other and from those known."""
    kept: list[Trail] = []
    for trail in sorted(trails, key=lambda trail: trail.psi):
        if len(kept) == count:
            break
        if all(are_different(trail.members, other.members) for other in (*kept, *known)):
            kept.append(trail)
    return kept


def are_different(one: Members, other: Members) -> bool:
    """Whether at least `DIFFERENT` of the validation rows of the smaller split are not in the other."""
    smaller = min(int(one.sum()), int(other.sum()))
    return bool(smaller - int((one & other).sum()) >= max(1.0, DIFFERENT * smaller))
