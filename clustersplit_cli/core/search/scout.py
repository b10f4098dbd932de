"""Where a search goes first: on an image of the kernel, or among the rows that have the most company."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from clustersplit_cli.core.assignment.selection import Assigner
from clustersplit_cli.core.constraints.cells import Constraints
from clustersplit_cli.core.effort import Effort
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.geometry.low_rank import Image
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.candidate import Trail, best_distinct, best_varied
from clustersplit_cli.core.search.crowds import crowded_splits
from clustersplit_cli.core.search.explore import agree, are_slow, explore, perturb
from clustersplit_cli.core.search.problem import Members, Problem
from clustersplit_cli.core.search.sample import SMALL, Field, make_field
from clustersplit_cli.core.search.starts import (
    kick_directions,
    perturbed_splits,
    random_splits,
    spectral_splits,
)
from clustersplit_cli.progress import Progress

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
    to_all_rows : carries such splits over to all rows.
    stirred : makes splits of all rows around one of them, a given number of them.
    are_measured : whether witness and Psi are those of the kernel itself, in the search's precision.
    have_agreed : whether several starts ended as low as the lowest.
    """

    names: list[str]
    ends: list[Trail]
    chosen: list[Trail]
    found: list[Trail]
    to_all_rows: Callable[[list[Trail]], list[Trail]]
    stirred: Callable[[Trail, int, np.random.Generator], Members]
    are_measured: bool = False
    have_agreed: bool = False


def scout_image(
    problem: Problem,
    image: Image,
    assigner: Callable[[Constraints], Assigner],
    workers: Workers,
    *,
    restarts: int,
    max_iter: int,
    effort: Effort,
    most: int | None,
    bring_to_rest: Callable[[list[Trail]], list[Trail]],
    rngs: Sequence[np.random.Generator],
    progress: Progress,
) -> Scouted:
    """Explore an image of the kernel, on a sample of the rows if they are many, or a small problem itself.

    Parameters
    ----------
    restarts : number of starts; four in five follow leading directions of the kernel, the others are random.
    most : number of splits to choose at most, if there is such a number.
    bring_to_rest : settles splits of small problems, every one of them: that costs little, and finds most
        global optima.
    """
    sample_rng, start_rng, noise_rng = rngs
    is_small = problem.n <= SMALL
    field = make_field(problem, image, workers, sample_rng)
    names, starts = _starts(field.problem, field.factors, restarts, start_rng)
    roam = assigner(field.problem.constraints)
    ends = explore(field.problem, starts, roam, max_iter=max_iter, every_step=is_small, progress=progress)
    if is_small:
        ends = bring_to_rest(ends)
        is_easy, batch, patience = False, (2 * effort.batch) // 3, (5 * effort.patience) // 3
    else:
        is_easy = agree(field.problem, ends)
        batch = effort.batch // 2 if is_easy else effort.batch
        patience = _patience(effort, ends, is_easy=is_easy, is_faint=field.share < FAINT)
    found = perturb(
        field.problem,
        list(ends),
        field.factors,
        roam,
        batch=batch,
        patience=patience,
        max_rounds=effort.max_rounds,
        max_iter=max_iter,
        islands=0 if is_easy or field.share < VAGUE else effort.islands,
        rng=noise_rng,
        bring_to_rest=bring_to_rest if is_small else None,
        progress=progress,
    )
    wanted = min(effort.candidates, most or effort.candidates)
    if is_easy or is_small:
        wanted = min(wanted, POLISHED)
    chosen = (
        best_distinct(found, wanted) if is_small else best_varied(_promising(field.problem, found), wanted)
    )
    lifted = field.to_all_rows([*ends, *chosen])

    def stirred(best: Trail, count: int, rng: np.random.Generator) -> Members:
        return _stirred(field, best, count, rng)

    n_ends = len(ends)
    return Scouted(
        names, lifted[:n_ends], lifted[n_ends:], found, field.to_all_rows, stirred, have_agreed=is_easy
    )


def scout_crowds(
    problem: Problem,
    assigner: Assigner,
    *,
    restarts: int,
    max_iter: int,
    most: int,
    rng: np.random.Generator,
    progress: Progress,
) -> Scouted:
    """Begin on the kernel itself, at the rows that have the most company.

    Parameters
    ----------
    restarts : number of starts: the most crowded rows, and with noise.
    most : number of splits to choose.
    """
    starts = crowded_splits(problem, restarts, rng)
    ends = explore(problem, starts, assigner, max_iter=max_iter, every_step=True, progress=progress)

    def stirred(best: Trail, count: int, rng: np.random.Generator) -> Members:
        nothing = np.zeros((problem.n, 0))
        return perturbed_splits(problem.constraints, best.witness, nothing, count, rng, GENTLE)

    return Scouted(
        [f"crowded-{run}" for run in range(restarts)],
        ends,
        best_distinct(ends, most),
        ends,
        lambda trails: trails,
        stirred,
        are_measured=True,
    )


def _patience(effort: Effort, ends: list[Trail], *, is_easy: bool, is_faint: bool) -> int:
    """Rounds of perturbation that may bring nothing: more of them where descents are short.

    Where starts agree there is little left to find, and on a faint image what is found means little.
    """
    if is_easy:
        return min(effort.patience, 1)
    if is_faint:
        return effort.patience // 3
    return effort.patience if are_slow(ends) else (5 * effort.patience) // 3


def _stirred(field: Field, best: Trail, count: int, rng: np.random.Generator) -> Members:
    """Splits of all rows around the best one."""
    tilts = field.image.spread(kick_directions(field.factors, (3 * count) // 4, rng))
    return perturbed_splits(field.whole.constraints, best.witness, tilts, count, rng, GENTLE)


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
