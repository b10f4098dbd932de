"""The first half of the search: descend from all starts, then perturb the best and descend again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from clustersplit_cli.core.assignment.selection import Assigner
from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.effort import Effort
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.geometry.low_rank import LowRankKernel
from clustersplit_cli.core.search.lloyd import descend
from clustersplit_cli.core.search.problem import SMALL, Members, Problem, SearchContext
from clustersplit_cli.core.search.refine import Refiner
from clustersplit_cli.core.search.sample import Subproblem, make_subproblem
from clustersplit_cli.core.search.solution import Candidate, best_distinct, best_varied
from clustersplit_cli.core.search.starts import (
    crossed_splits,
    near_diagonal_splits,
    perturbation_directions,
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
"""The strongest noise in a perturbed split: it leaves so little of the split that others can be found."""
CROSSED, DIFFERENT = 10, 100
"""So many of the best splits are crossed, which differ from each other in more than one row in so many."""
KEPT = 40
"""Splits that are remembered from round to round."""


def explore(
    subproblem: Problem,
    starts: Members,
    assigner: Assigner,
    *,
    max_iter: int,
    every_step: bool,
    progress: Progress = silent,
) -> list[Candidate]:
    """Descend from every start, all as one batch.

    Parameters
    ----------
    subproblem : the problem to descend in, on a low-rank approximation of the kernel or on the kernel itself.
    starts : (n, r)
    every_step : whether the steps in between are worth keeping; on a low-rank kernel they need not lower Psi.
    """
    end = descend(
        subproblem,
        starts,
        assigner,
        max_iter=max_iter,
        dtype=subproblem.geometry.search_dtype,
        turning=every_step,
        progress=progress,
    )
    candidates = []
    for run in range(starts.shape[1]):
        start = ("start", np.packbits(starts[:, run]))
        witness, converged = end.witness[:, run], bool(end.converged[run])
        candidate = Candidate(
            run, end.members[:, run], float(end.psi[run]), witness, (start,), converged, end.trace[run]
        )
        visited = end.visited[run] if every_step else end.visited[run][-1:]
        candidates.append(candidate.through("lloyd" if every_step else "explore", visited))
    return candidates


def perturb(
    perturber: Perturber,
    candidates: list[Candidate],
    effort: Effort,
    rng: np.random.Generator,
    progress: Progress = silent,
) -> list[Candidate]:
    """Perturb the best split and the runner-up, cross the best ones, descend, and repeat.

    Splits that are crossed grow alike, and what they have in common may be wrong. So the same is done again
    from random splits, on an island, until an island comes to where what was known before has ended. If none
    does, what all have found is crossed.

    Returns
    -------
    The candidates given and those found that are better than where they come from, in no order.
    """
    if effort.batch == 0 or effort.patience == 0:
        return candidates
    *rngs, last_rng = rng.spawn(effort.islands + 2)
    found = perturber.grow(candidates, effort, rngs[0], progress)
    for island, island_rng in enumerate(rngs[1:]):
        progress("perturb", island, effort.islands)
        population = perturber.random(candidates, effort.batch, island_rng)
        best = min(candidate.psi for candidate in found)
        near = (SAME if perturber.refiner is None else WORTHWHILE) * (perturber.subproblem.ssq_total - best)
        others = perturber.grow(population, effort, island_rng, goal=best + near)
        found = [*found, *others]
        if abs(min(candidate.psi for candidate in others) - best) <= near:
            break
    else:
        if effort.islands:
            found = perturber.grow(found, effort, last_rng)
    return [*candidates, *(candidate for candidate in found if candidate.psi <= candidate.trace[-1])]


@dataclass(frozen=True)
class Perturber:
    """Perturbs and crosses populations of splits.

    Psi ends the trace of those splits alone that are better than where their start ended; the others are
    good for crossing.

    Attributes
    ----------
    factors : (n, p), of an approximation of the kernel.
    refiner : refines splits further than descents do, where that is cheap.
    """

    subproblem: Problem
    factors: Floats
    assigner: Assigner
    max_iter: int
    refiner: Refiner | None = None

    def random(self, starts: list[Candidate], count: int, rng: np.random.Generator) -> list[Candidate]:
        """Descend from random splits, which are said to come from the last of the starts."""
        origin = [starts[-1 - place % len(starts)] for place in range(count)]
        splits = random_splits(self.subproblem.constraints, rng.spawn(count))
        return self._descended(origin, splits, np.inf, range(count))[0]

    def grow(
        self,
        population: list[Candidate],
        effort: Effort,
        rng: np.random.Generator,
        progress: Progress = silent,
        goal: float = -np.inf,
    ) -> list[Candidate]:
        """Perturb and cross until rounds gain nothing any more, or Psi is down to the goal."""
        stale = 0
        for done in range(effort.max_rounds):
            best = min(candidate.psi for candidate in population)
            if stale == effort.patience or best <= goal:
                break
            progress("perturb", done, effort.max_rounds)
            origin, splits, n_perturbed = self._perturbed(population, effort.batch, rng)
            new, least = self._descended(origin, splits, best, range(n_perturbed, effort.batch))
            stale = 0 if best - least > WORTHWHILE * (self.subproblem.ssq_total - best) else stale + 1
            population = best_distinct([*population, *new], KEPT)
        return population

    def _perturbed(
        self, population: list[Candidate], batch: int, rng: np.random.Generator
    ) -> tuple[list[Candidate], Members, int]:
        """Perturbed splits, then crossed ones, where they come from, and how many are perturbed."""
        limits, parents = self.subproblem.constraints, best_distinct(population, 2)
        different = best_distinct(population, CROSSED, DIFFERENT)
        n_crossed = (3 * batch) // 7 if len(different) > 1 else 0
        n_perturbed = batch - n_crossed
        shares = [n_perturbed] if len(parents) == 1 else [n_perturbed - n_perturbed // 3, n_perturbed // 3]
        batches = [
            perturbed_splits(
                limits, parent.witness, _projections(self.factors, (3 * share) // 4, rng), share, rng, WILD
            )
            for parent, share in zip(parents, shares, strict=True)
        ]
        origin = [parent for parent, share in zip(parents, shares, strict=True) for _ in range(share)]
        if n_crossed:
            witnesses = np.stack([candidate.witness for candidate in different], axis=1)
            crossed, better = crossed_splits(limits, witnesses, n_crossed, rng)
            batches.append(crossed)
            origin += [different[place] for place in better]
        return origin, np.concatenate(batches, axis=1), n_perturbed

    def _descended(
        self, origin: list[Candidate], splits: Members, rival: float, kept: Collection[int]
    ) -> tuple[list[Candidate], float]:
        """Descend from splits; return the candidates that are worth keeping, and the least Psi.

        Parameters
        ----------
        rival : a Psi to get below; descents that will not get there are given up.
        kept : which splits to keep even if they are worse than where they come from.
        """
        end = descend(
            self.subproblem,
            splits,
            self.assigner,
            max_iter=self.max_iter,
            dtype=self.subproblem.geometry.search_dtype,
            turning=False,
            rival=rival if self.refiner is None else np.inf,
        )
        ends = [
            Candidate(
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
        candidates = []
        for candidate in ends:
            parent = origin[candidate.start]
            if candidate.psi < parent.trace[-1]:
                lower = replace(
                    candidate, start=parent.start, passed=parent.passed, trace=(*parent.trace, candidate.psi)
                )
                candidates.append(lower.through("perturb", [np.packbits(candidate.members)]))
            elif candidate.psi < parent.psi or candidate.start in kept:
                candidates.append(
                    replace(candidate, start=parent.start, passed=parent.passed, trace=parent.trace)
                )
        return candidates, min(candidate.psi for candidate in ends)


def agree(subproblem: Problem, candidates: list[Candidate]) -> bool:
    """Whether several starts ended as low as the lowest: then there is little left to find."""
    explained = np.array([subproblem.ssq_total - candidate.psi for candidate in candidates])
    return int((explained >= (1.0 - SAME) * explained.max()).sum()) >= AGREEING


def are_slow(candidates: list[Candidate]) -> bool:
    """Whether starts took many steps: there are many optima, and a low-rank kernel may prefer a poor one."""
    return sum(len(candidate.trace) - 1 for candidate in candidates) >= MANY_STEPS * len(candidates)


def _projections(factors: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Inner products of all rows with directions of the factors, shape (n, count)."""
    projections: Floats = factors @ perturbation_directions(factors, count, rng)
    return projections


FAINT = 0.1
"""Share of the kernel's scatter below which a low-rank kernel says little about it."""
VAGUE = 0.2
"""The same below which it is not worth exploring from scratch again."""
PROMISING = 0.95
"""Share of the best split's explained scatter below which a split is not worth refining."""
POLISHED = 4
"""Candidates that are polished on larger problems."""
GENTLE = 0.5
"""The strongest noise on the kernel itself: what is left to find there is near."""


@dataclass(frozen=True)
class Exploration:
    """What was found, and how to go on from there.

    Attributes
    ----------
    names : of the starts.
    ends : where every start ended, as splits of all rows.
    chosen : the splits of all rows that are worth refining on the kernel itself.
    found : all splits found, on the rows that were explored.
    subproblem : what was explored; None for the kernel itself, whose witness and Psi the splits then have,
        in the search's precision.
    have_agreed : whether several starts ended as low as the lowest.
    """

    names: list[str]
    ends: list[Candidate]
    chosen: list[Candidate]
    found: list[Candidate]
    subproblem: Subproblem | None = None
    have_agreed: bool = False

    def to_all_rows(self, candidates: list[Candidate]) -> list[Candidate]:
        """Carry splits over from the rows that were explored."""
        return candidates if self.subproblem is None else self.subproblem.to_all_rows(candidates)

    def around(
        self, best: Candidate, limits: ValidationQuotas, count: int, rng: np.random.Generator
    ) -> Members:
        """Make splits of all rows around one of them."""
        projections: Floats = np.zeros((limits.n, 0))
        if self.subproblem is not None:
            directions = perturbation_directions(self.subproblem.factors, (3 * count) // 4, rng)
            projections = self.subproblem.low_rank.spread(directions)
        return perturbed_splits(limits, best.witness, projections, count, rng, GENTLE)


def explore_low_rank(
    context: SearchContext,
    low_rank: LowRankKernel,
    refiner: Refiner,
    most: int | None,
    rngs: Sequence[np.random.Generator],
) -> Exploration:
    """Explore a low-rank kernel, on a sample of the rows if they are many, or a small problem itself.

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
    subproblem = make_subproblem(problem, low_rank, context.workers, sample_rng)
    names, starts = _starts(subproblem.problem, subproblem.factors, context.restarts, start_rng)
    assigner, max_iter = context.assigner.on(subproblem.problem.constraints), context.max_iter
    ends = explore(
        subproblem.problem, starts, assigner, max_iter=max_iter, every_step=is_small, progress=progress
    )
    if is_small:
        ends = refiner.refine(ends, exactly=False)
        is_easy, batch, patience = False, (2 * effort.batch) // 3, (5 * effort.patience) // 3
    else:
        is_easy = agree(subproblem.problem, ends)
        batch = effort.batch // 2 if is_easy else effort.batch
        patience = _patience(effort, ends, is_easy=is_easy, is_faint=subproblem.share < FAINT)
    islands = 0 if is_easy or subproblem.share < VAGUE else effort.islands
    perturber = Perturber(
        subproblem.problem, subproblem.factors, assigner, max_iter, refiner if is_small else None
    )
    adapted = replace(effort, batch=batch, patience=patience, islands=islands)
    found = perturb(perturber, list(ends), adapted, noise_rng, progress)
    wanted = min(effort.candidates, most or effort.candidates)
    if is_easy or is_small:
        wanted = min(wanted, POLISHED)
    chosen = (
        best_distinct(found, wanted)
        if is_small
        else best_varied(_promising(subproblem.problem, found), wanted)
    )
    carried = subproblem.to_all_rows([*ends, *chosen])
    n_ends = len(ends)
    return Exploration(names, carried[:n_ends], carried[n_ends:], found, subproblem, have_agreed=is_easy)


def explore_near_diagonal(context: SearchContext, most: int, rng: np.random.Generator) -> Exploration:
    """Begin on the kernel itself, at the rows with the largest sums, and again with noise.

    Parameters
    ----------
    most : number of splits to choose.
    """
    starts = near_diagonal_splits(context.problem, context.restarts, rng)
    ends = explore(
        context.problem,
        starts,
        context.assigner,
        max_iter=context.max_iter,
        every_step=True,
        progress=context.progress,
    )
    names = [f"row-sums-{run}" for run in range(context.restarts)]
    return Exploration(names, ends, best_distinct(ends, most), ends)


def _patience(effort: Effort, ends: list[Candidate], *, is_easy: bool, is_faint: bool) -> int:
    """Rounds of perturbation that may gain nothing: more of them where descents are short.

    Where starts agree there is little left to find, and on a faint approximation what is found means little.
    """
    if is_easy:
        return min(effort.patience, 1)
    if is_faint:
        return effort.patience // 3
    return effort.patience if are_slow(ends) else (5 * effort.patience) // 3


def _promising(explored: Problem, candidates: list[Candidate]) -> list[Candidate]:
    """The splits that the kernel itself may put first although its approximation does not."""
    explained = np.array([explored.ssq_total - candidate.psi for candidate in candidates])
    keep = explained >= PROMISING * explained.max()
    return [candidate for candidate, kept in zip(candidates, keep, strict=True) if kept]


def _starts(
    subproblem: Problem, factors: Floats, restarts: int, rng: np.random.Generator
) -> tuple[list[str], Members]:
    """Name and make the starts: along leading directions, both ways, and random ones."""
    spectral = spectral_splits(subproblem.constraints, factors, restarts - restarts // 5)
    n_random = restarts - spectral.shape[1]
    names = [f"spectral-{run // 2}{'-+'[run % 2 == 0]}" for run in range(spectral.shape[1])]
    names += [f"random-{run}" for run in range(n_random)]
    if n_random == 0:
        return names, spectral
    random = random_splits(subproblem.constraints, rng.spawn(n_random))
    return names, np.concatenate([spectral, random], axis=1)
