"""The first half of the search: descend from all starts, then perturb the best and descend again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from clustersplit_cli.core.assignment.selection import Assigner
from clustersplit_cli.core.constraints.cells import Constraints
from clustersplit_cli.core.effort import Effort
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.geometry.low_rank import Image
from clustersplit_cli.core.search.candidate import Trail, best_distinct, best_varied
from clustersplit_cli.core.search.context import SearchContext
from clustersplit_cli.core.search.lloyd import descend
from clustersplit_cli.core.search.problem import Members, Problem
from clustersplit_cli.core.search.refine import Refiner
from clustersplit_cli.core.search.sample import SMALL, Field, make_field
from clustersplit_cli.core.search.starts import (
    crossed_splits,
    crowded_splits,
    kick_directions,
    perturbed_splits,
    random_splits,
    spectral_splits,
)
from clustersplit_cli.progress import Progress, silent

WORTHWHILE = 2e-5
"""A round that explains less than this share of scatter more has brought nothing."""
MANY_STEPS = 10
SAME, AGREEING = 3e-4, 3
"""Starts agree if so many of them explain the same scatter but for this share."""
WILD = 6.0
"""The strongest noise in a perturbed split: it leaves so little of the split that others come into reach."""
CROSSED, DIFFERENT = 10, 100
"""So many of the best splits are crossed, which differ from each other in more than one row in so many."""
KEPT = 40
"""Splits that are remembered from round to round."""


def explore(
    field: Problem,
    starts: Members,
    assigner: Assigner,
    *,
    max_iter: int,
    every_step: bool,
    progress: Progress = silent,
) -> list[Trail]:
    """Descend from every start, all as one batch.

    Parameters
    ----------
    field : the problem to descend in, on a low-rank image of the kernel or on the kernel itself.
    starts : (n, r)
    every_step : whether the steps in between are worth keeping; on an image they need not lower Psi.
    """
    end = descend(
        field,
        starts,
        assigner,
        max_iter=max_iter,
        dtype=field.geometry.search_dtype,
        turning=every_step,
        progress=progress,
    )
    trails = []
    for run in range(starts.shape[1]):
        start = ("start", np.packbits(starts[:, run]))
        witness, converged = end.witness[:, run], bool(end.converged[run])
        trail = Trail(
            run, end.members[:, run], float(end.psi[run]), witness, (start,), converged, end.trace[run]
        )
        visited = end.visited[run] if every_step else end.visited[run][-1:]
        trails.append(trail.through("lloyd" if every_step else "explore", visited))
    return trails


def perturb(
    here: Roaming, trails: list[Trail], effort: Effort, rng: np.random.Generator, progress: Progress = silent
) -> list[Trail]:
    """Perturb the best split and the runner-up, cross the best ones, descend, and repeat.

    Splits that are crossed grow alike, and what they have in common may be wrong. So the same is done again
    from random splits, on an island, until an island comes to where what was known before has ended. If none
    does, what all have found is crossed.

    Returns
    -------
    The trails given and those found that are better than where they come from, in no order.
    """
    if effort.batch == 0 or effort.patience == 0:
        return trails
    *rngs, last_rng = rng.spawn(effort.islands + 2)
    found = here.grown(trails, effort, rngs[0], progress)
    for island, island_rng in enumerate(rngs[1:]):
        progress("perturb", island, effort.islands)
        population = here.random(trails, effort.batch, island_rng)
        best = min(trail.psi for trail in found)
        near = (SAME if here.refiner is None else WORTHWHILE) * (here.field.ssq_total - best)
        others = here.grown(population, effort, island_rng, goal=best + near)
        found = [*found, *others]
        if abs(min(trail.psi for trail in others) - best) <= near:
            break
    else:
        if effort.islands:
            found = here.grown(found, effort, last_rng)
    return [*trails, *(trail for trail in found if trail.psi <= trail.trace[-1])]


@dataclass(frozen=True)
class Roaming:
    """Perturbs and crosses populations of splits.

    Psi ends the trace of those splits alone that are better than where their start ended; the others are
    good for crossing.

    Attributes
    ----------
    factors : (n, p), of an image of the kernel.
    refiner : refines splits further than descents do, where that is cheap.
    """

    field: Problem
    factors: Floats
    assigner: Assigner
    max_iter: int
    refiner: Refiner | None = None

    def random(self, starts: list[Trail], count: int, rng: np.random.Generator) -> list[Trail]:
        """Descend from random splits, which are said to come from the last of the starts."""
        origin = [starts[-1 - place % len(starts)] for place in range(count)]
        splits = random_splits(self.field.constraints, rng.spawn(count))
        return self._descended(origin, splits, np.inf, range(count))[0]

    def grown(
        self,
        population: list[Trail],
        effort: Effort,
        rng: np.random.Generator,
        progress: Progress = silent,
        goal: float = -np.inf,
    ) -> list[Trail]:
        """Perturb and cross until rounds bring nothing any more, or Psi is down to the goal."""
        stale = 0
        for done in range(effort.max_rounds):
            best = min(trail.psi for trail in population)
            if stale == effort.patience or best <= goal:
                break
            progress("perturb", done, effort.max_rounds)
            origin, splits, n_perturbed = self._stirred(population, effort.batch, rng)
            new, least = self._descended(origin, splits, best, range(n_perturbed, effort.batch))
            stale = 0 if best - least > WORTHWHILE * (self.field.ssq_total - best) else stale + 1
            population = best_distinct([*population, *new], KEPT)
        return population

    def _stirred(
        self, population: list[Trail], batch: int, rng: np.random.Generator
    ) -> tuple[list[Trail], Members, int]:
        """Perturbed splits, then crossed ones, where they come from, and how many are perturbed."""
        limits, parents = self.field.constraints, best_distinct(population, 2)
        different = best_distinct(population, CROSSED, DIFFERENT)
        n_crossed = (3 * batch) // 7 if len(different) > 1 else 0
        n_perturbed = batch - n_crossed
        shares = [n_perturbed] if len(parents) == 1 else [n_perturbed - n_perturbed // 3, n_perturbed // 3]
        batches = [
            perturbed_splits(
                limits, parent.witness, _tilts(self.factors, (3 * share) // 4, rng), share, rng, WILD
            )
            for parent, share in zip(parents, shares, strict=True)
        ]
        origin = [parent for parent, share in zip(parents, shares, strict=True) for _ in range(share)]
        if n_crossed:
            witnesses = np.stack([trail.witness for trail in different], axis=1)
            crossed, better = crossed_splits(limits, witnesses, n_crossed, rng)
            batches.append(crossed)
            origin += [different[place] for place in better]
        return origin, np.concatenate(batches, axis=1), n_perturbed

    def _descended(
        self, origin: list[Trail], splits: Members, rival: float, kept: Collection[int]
    ) -> tuple[list[Trail], float]:
        """Descend from splits; return the trails that are worth keeping, and the least Psi.

        Parameters
        ----------
        rival : a Psi to get below; descents without a prospect of that are given up.
        kept : which splits to keep even if they are worse than where they come from.
        """
        end = descend(
            self.field,
            splits,
            self.assigner,
            max_iter=self.max_iter,
            dtype=self.field.geometry.search_dtype,
            turning=False,
            rival=rival if self.refiner is None else np.inf,
        )
        ends = [
            Trail(
                run,
                end.members[:, run],
                psi,
                end.witness[:, run],
                (("start", np.packbits(end.members[:, run])),),
                bool(end.converged[run]),
                (psi,),
            )
            for run, psi in enumerate(end.psi.tolist())
        ]
        if self.refiner is not None:
            ends = self.refiner.refine(best_distinct(ends, len(ends)), exactly=False)
        trails = []
        for trail in ends:
            parent = origin[trail.start]
            if trail.psi < parent.trace[-1]:
                lower = replace(
                    trail, start=parent.start, passed=parent.passed, trace=(*parent.trace, trail.psi)
                )
                trails.append(lower.through("perturb", [np.packbits(trail.members)]))
            elif trail.psi < parent.psi or trail.start in kept:
                trails.append(replace(trail, start=parent.start, passed=parent.passed, trace=parent.trace))
        return trails, min(trail.psi for trail in ends)


def agree(field: Problem, trails: list[Trail]) -> bool:
    """Whether several starts ended as low as the lowest: then there is little left to find."""
    explained = np.array([field.ssq_total - trail.psi for trail in trails])
    return int((explained >= (1.0 - SAME) * explained.max()).sum()) >= AGREEING


def are_slow(trails: list[Trail]) -> bool:
    """Whether starts took many steps: there are many optima then, and an image may prefer a poorer one."""
    return sum(len(trail.trace) - 1 for trail in trails) >= MANY_STEPS * len(trails)


def _tilts(factors: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Inner products of all rows with directions of the factors, shape (n, count)."""
    tilts: Floats = factors @ kick_directions(factors, count, rng)
    return tilts


FAINT = 0.1
"""Share of the kernel's scatter below which an image says little about it."""
VAGUE = 0.2
"""The same below which it is not worth exploring from scratch again."""
PROMISING = 0.95
"""Share of the best split's explained scatter below which a split on the image is not worth settling."""
POLISHED = 4
"""Candidates that are polished on larger problems."""
GENTLE = 0.5
"""The strongest noise on the kernel itself: what is left to find there is near."""


@dataclass(frozen=True)
class Scouted:
    """What was found, and how to go on from there.

    Attributes
    ----------
    names : of the starts.
    ends : where every start ended, as splits of all rows.
    chosen : the splits of all rows that are worth settling on the kernel itself.
    found : all splits found, on the rows that were explored.
    field : what was explored; None for the kernel itself, whose witness and Psi the splits then have, in the
        search's precision.
    have_agreed : whether several starts ended as low as the lowest.
    """

    names: list[str]
    ends: list[Trail]
    chosen: list[Trail]
    found: list[Trail]
    field: Field | None = None
    have_agreed: bool = False

    def to_all_rows(self, trails: list[Trail]) -> list[Trail]:
        """Carry splits over from the rows that were explored."""
        return trails if self.field is None else self.field.to_all_rows(trails)

    def around(self, best: Trail, limits: Constraints, count: int, rng: np.random.Generator) -> Members:
        """Make splits of all rows around one of them."""
        tilts: Floats = np.zeros((limits.n, 0))
        if self.field is not None:
            directions = kick_directions(self.field.factors, (3 * count) // 4, rng)
            tilts = self.field.image.spread(directions)
        return perturbed_splits(limits, best.witness, tilts, count, rng, GENTLE)


def scout_image(
    context: SearchContext,
    image: Image,
    refiner: Refiner,
    most: int | None,
    rngs: Sequence[np.random.Generator],
) -> Scouted:
    """Explore an image of the kernel, on a sample of the rows if they are many, or a small problem itself.

    Of the starts four in five follow leading directions of the kernel, the others are random.

    Parameters
    ----------
    refiner : refines splits of small problems, every one of them: that costs little, and finds most global
        optima.
    most : number of splits to choose at most, if there is such a number.
    """
    problem, effort, progress = context.problem, context.effort, context.progress
    sample_rng, start_rng, noise_rng = rngs
    is_small = problem.n <= SMALL
    field = make_field(problem, image, context.workers, sample_rng)
    names, starts = _starts(field.problem, field.factors, context.restarts, start_rng)
    assigner, max_iter = context.assigner.on(field.problem.constraints), context.max_iter
    ends = explore(field.problem, starts, assigner, max_iter=max_iter, every_step=is_small, progress=progress)
    if is_small:
        ends = refiner.refine(ends, exactly=False)
        is_easy, batch, patience = False, (2 * effort.batch) // 3, (5 * effort.patience) // 3
    else:
        is_easy = agree(field.problem, ends)
        batch = effort.batch // 2 if is_easy else effort.batch
        patience = _patience(effort, ends, is_easy=is_easy, is_faint=field.share < FAINT)
    islands = 0 if is_easy or field.share < VAGUE else effort.islands
    here = Roaming(field.problem, field.factors, assigner, max_iter, refiner if is_small else None)
    adapted = replace(effort, batch=batch, patience=patience, islands=islands)
    found = perturb(here, list(ends), adapted, noise_rng, progress)
    wanted = min(effort.candidates, most or effort.candidates)
    if is_easy or is_small:
        wanted = min(wanted, POLISHED)
    chosen = (
        best_distinct(found, wanted) if is_small else best_varied(_promising(field.problem, found), wanted)
    )
    lifted = field.to_all_rows([*ends, *chosen])
    n_ends = len(ends)
    return Scouted(names, lifted[:n_ends], lifted[n_ends:], found, field, have_agreed=is_easy)


def scout_crowds(context: SearchContext, most: int, rng: np.random.Generator) -> Scouted:
    """Begin on the kernel itself, at the rows that have the most company, and again with noise.

    Parameters
    ----------
    most : number of splits to choose.
    """
    starts = crowded_splits(context.problem, context.restarts, rng)
    ends = explore(
        context.problem,
        starts,
        context.assigner,
        max_iter=context.max_iter,
        every_step=True,
        progress=context.progress,
    )
    names = [f"crowded-{run}" for run in range(context.restarts)]
    return Scouted(names, ends, best_distinct(ends, most), ends)


def _patience(effort: Effort, ends: list[Trail], *, is_easy: bool, is_faint: bool) -> int:
    """Rounds of perturbation that may bring nothing: more of them where descents are short.

    Where starts agree there is little left to find, and on a faint image what is found means little.
    """
    if is_easy:
        return min(effort.patience, 1)
    if is_faint:
        return effort.patience // 3
    return effort.patience if are_slow(ends) else (5 * effort.patience) // 3


def _promising(explored: Problem, trails: list[Trail]) -> list[Trail]:
    """The splits that the kernel itself may put first although its image does not."""
    explained = np.array([explored.ssq_total - trail.psi for trail in trails])
    keep = explained >= PROMISING * explained.max()
    return [trail for trail, kept in zip(trails, keep, strict=True) if kept]


def _starts(
    field: Problem, factors: Floats, restarts: int, rng: np.random.Generator
) -> tuple[list[str], Members]:
    """Name and make the starts: along leading directions, both ways, and random ones."""
    spectral = spectral_splits(field.constraints, factors, restarts - restarts // 5)
    n_random = restarts - spectral.shape[1]
    names = [f"spectral-{run // 2}{'-+'[run % 2 == 0]}" for run in range(spectral.shape[1])]
    names += [f"random-{run}" for run in range(n_random)]
    if n_random == 0:
        return names, spectral
    random = random_splits(field.constraints, rng.spawn(n_random))
    return names, np.concatenate([spectral, random], axis=1)
