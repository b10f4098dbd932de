"""From many starts to one split.

Passes over a large kernel are what a search costs. So it explores a low-rank image of the kernel, on a
sample of the rows if they are many, where a pass is almost free, and settles only the best candidates on
the kernel itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.alternatives import different, different_optima
from clustersplit_cli.core.assignment import Assigner, Selection
from clustersplit_cli.core.constraints import Constraints
from clustersplit_cli.core.enumeration import MOST_SPLITS, best_of_all, has_at_most
from clustersplit_cli.core.explore import agree, explore, perturb
from clustersplit_cli.core.factored import FactorGeometry
from clustersplit_cli.core.features import Floats
from clustersplit_cli.core.field import SMALL, make_field
from clustersplit_cli.core.finish import Finished, finish
from clustersplit_cli.core.image import Image
from clustersplit_cli.core.lloyd import Descent, descend
from clustersplit_cli.core.problem import Evaluation, Members, Problem, objectives
from clustersplit_cli.core.settle import settle
from clustersplit_cli.core.starts import (
    kick_directions,
    perturbed_splits,
    random_splits,
    spectral_splits,
)
from clustersplit_cli.core.trail import Trail, best_distinct, shortened
from clustersplit_cli.core.workers import Workers
from clustersplit_cli.progress import Progress, silent

LARGE = 50_000
"""From this many rows on, passes are so dear that fewer candidates are settled."""
PROMISING = 0.95
"""Share of the best split's explained scatter below which a split on the image is not worth settling."""
POLISHED = 4
"""Candidates that are polished on larger problems."""
ROUGH_ROUNDS = 4
FINAL_ROUNDS = 50
EVALUATION_COLUMNS = 48


@dataclass(frozen=True)
class Effort:
    """How long to search beyond the starts.

    Attributes
    ----------
    batch : perturbed splits per round.
    patience : rounds without a worthwhile gain before giving up.
    max_rounds : rounds of perturbation at most.
    candidates : splits settled on the kernel itself.
    exact_rounds : rounds of perturbation on the kernel itself, after settling.
    """

    batch: int
    patience: int
    max_rounds: int
    candidates: int
    exact_rounds: int


EFFORTS = {
    "fast": Effort(batch=0, patience=0, max_rounds=0, candidates=3, exact_rounds=0),
    "normal": Effort(batch=24, patience=3, max_rounds=20, candidates=8, exact_rounds=0),
    "thorough": Effort(batch=24, patience=3, max_rounds=20, candidates=12, exact_rounds=8),
}


@dataclass(frozen=True)
class Step:
    """The objective after one step of the winning run."""

    phase: str  # start | explore | perturb | lloyd | leap | polish | enumerate
    iteration: int
    psi: float


@dataclass(frozen=True)
class Run:
    """Where one start ended, and Psi on the way there, from its initial split on.

    Steps that were taken on an image of the kernel are as the image saw them, shifted to end at `psi`.
    """

    start: str
    iterations: int
    psi: float
    mmd: float
    converged: bool
    trace: tuple[float, ...] = ()


@dataclass
class Account:
    """How the programs of a search went: solved, of these with integers, and stopped before the end."""

    solved: int = 0
    branched: int = 0
    stopped_early: int = 0


@dataclass(frozen=True)
class Solution:
    """The best split found, the steps of its run, where all starts ended, and which of them won.

    `optima` are several different splits, best first, if more than one was asked for; else none.
    `account` is that of the programs, where assignment steps took programs. `measured` is what the split
    measures, where the search has found that out.
    """

    members: Members
    steps: tuple[Step, ...]
    runs: tuple[Run, ...]
    winner: int
    converged: bool
    optima: tuple[Members, ...] = ()
    account: Account | None = None
    measured: Evaluation | None = None


def search(
    problem: Problem,
    image: Image,
    assigner: Callable[[Constraints], Assigner],
    workers: Workers,
    *,
    restarts: int,
    max_iter: int,
    effort: Effort,
    nonnegative: bool,
    rng: np.random.Generator,
    canonical: Callable[[Members, NDArray[np.float64] | None], Members] = lambda members, costs: members,
    announce: Callable[[Members, Evaluation | None], None] = lambda members, measured: None,
    count: int = 1,
    progress: Progress = silent,
) -> Solution:
    """Find the split with the smallest Psi that the effort affords.

    Parameters
    ----------
    image : a low-rank image of the problem's kernel.
    assigner : makes the assignment step for given constraints.
    restarts : number of starts; four in five follow leading directions of the kernel, the others are random.
    nonnegative : whether no kernel value is negative.
    canonical : chooses among splits that differ only by identical rows; is told the rows' costs if known.
    announce : hears of the split once it is found, before the account of the search is drawn up, and what
        it measures if that is known.
    count : number of different splits to return besides the best one found, itself among them.
    """
    sample_rng, start_rng, noise_rng, exact_rng = rng.spawn(4)
    is_small, decide = problem.n <= SMALL, assigner(problem.constraints)
    is_followed = _is_followed(problem, decide)
    field = make_field(problem, image, workers, sample_rng)
    names, starts = _starts(field.problem, field.factors, restarts, start_rng)
    roam = assigner(field.problem.constraints)
    ends = explore(field.problem, starts, roam, max_iter=max_iter, every_step=is_small, progress=progress)
    is_easy = not is_small and agree(field.problem, ends)
    found = perturb(
        field.problem,
        list(ends),
        field.factors,
        roam,
        batch=effort.batch,
        patience=min(effort.patience, 1) if is_easy else effort.patience,
        max_rounds=effort.max_rounds,
        max_iter=max_iter,
        rng=noise_rng,
        progress=progress,
    )
    # On small problems every start gets polished: that costs little and finds most global optima.
    wanted = len(found) if is_small else effort.candidates
    if is_easy or (problem.n > LARGE and not is_followed):
        wanted = min(wanted, POLISHED)
    chosen = best_distinct(found if is_small else _promising(field.problem, found), wanted)
    lifted = field.to_all_rows([*ends, *chosen])
    ends, chosen = lifted[: len(ends)], lifted[len(ends) :]

    def bring_to_rest(trails: list[Trail], *, exactly: bool) -> list[Trail]:
        return settle(
            problem,
            trails,
            decide,
            max_iter=max_iter,
            max_rounds=FINAL_ROUNDS if exactly else ROUGH_ROUNDS,
            dtype=np.float64 if exactly else problem.geometry.search_dtype,
            leaping=not exactly,
            polished_runs=len(trails) if is_small else POLISHED,
            nonnegative=nonnegative,
        )

    progress("polish", 0, 2)
    finished = None
    if is_followed:
        finished = finish(problem, ends, chosen, most=POLISHED, max_iter=max_iter, nonnegative=nonnegative)
    if finished is None:
        settled = bring_to_rest(chosen, exactly=False)
        progress("polish", 1, 2)
        finished = Finished(bring_to_rest(best_distinct(settled, 1), exactly=True)[0], tuple(settled))
    best = finished.best
    for done in range(effort.exact_rounds):
        progress("stir", done, effort.exact_rounds)
        tilts = field.image.spread(kick_directions(field.factors, (3 * effort.batch) // 4, exact_rng))
        noisy = perturbed_splits(problem.constraints, best.witness, tilts, effort.batch, exact_rng)
        end = descend(problem, noisy, decide, max_iter=max_iter, dtype=problem.geometry.search_dtype)
        best = _better(best, end, bring_to_rest, effort.candidates)
    if has_at_most(problem.constraints, MOST_SPLITS):
        members, psi = best_of_all(problem)
        if psi < best.psi - 1e-12 * problem.ssq_total:
            best = replace(best, members=members, psi=psi, trace=(*best.trace, psi))
            best = best.through("enumerate", [np.packbits(members)])
    last = {trail.start: trail for trail in ends} | {
        trail.start: trail for trail in sorted(finished.others, key=lambda trail: -trail.psi)
    }
    last[best.start] = best
    measured = finished.measured if best is finished.best else None
    chosen_members = canonical(best.members, None if measured is None else measured.difference)
    if not np.array_equal(chosen_members, best.members):
        measured = None
    announce(chosen_members, measured)
    in_turn = [last[start] for start in range(len(names))]
    runs, steps = measure_runs(problem, names, in_turn, best, finished.known)
    optima: list[Trail] = []
    if count > 1:
        progress("others", 0, 0)
        others = different(found, 2 * count)
        optima = different_optima(
            problem,
            [best],
            [list(finished.others), field.to_all_rows(others)],
            decide,
            lambda trails: bring_to_rest(trails, exactly=True),
            count=count,
            max_iter=max_iter,
            draw=lambda streams: random_splits(problem.constraints, streams),
            rng=rng.spawn(1)[0],
        )
    return Solution(
        chosen_members,
        steps,
        runs,
        best.start,
        best.converged,
        tuple(canonical(trail.members, None) for trail in optima),
        measured=measured,
    )


def _is_followed(problem: Problem, assigner: Assigner) -> bool:
    """Whether splits are followed by few of their rows rather than measured anew at every step."""
    return (
        problem.n > SMALL
        and isinstance(problem.geometry, FactorGeometry)
        and isinstance(assigner, Selection)
        and problem.constraints.is_exact
        and problem.sizes is None
    )


def _better(best: Trail, end: Descent, bring_to_rest: Callable[..., list[Trail]], candidates: int) -> Trail:
    """The best split, or one that a batch of descents found and that is better once it is settled."""
    rivals = [
        replace(best, members=end.members[:, run], psi=float(end.psi[run]), witness=end.witness[:, run])
        for run in range(len(end.psi))
    ]
    rivals = bring_to_rest(best_distinct(rivals, candidates), exactly=False)
    rival = bring_to_rest(best_distinct(rivals, 1), exactly=True)[0]
    if rival.psi >= best.psi:
        return best
    rested = replace(rival, passed=best.passed, trace=(*best.trace, rival.psi))
    return rested.through("perturb", [np.packbits(rival.members)])


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


def measure_runs(
    problem: Problem,
    names: list[str],
    ends: list[Trail],
    best: Trail,
    known: Mapping[bytes, float] = MappingProxyType({}),
) -> tuple[tuple[Run, ...], tuple[Step, ...]]:
    """Measure where all starts ended and what the winner passed, on the kernel itself.

    Parameters
    ----------
    known : Psi of splits that were measured before, packed.
    """
    packed = [np.packbits(trail.members) for trail in ends] + [split for _, split in best.passed]
    values = [known.get(split.tobytes()) for split in packed]
    # Sums of a dense kernel's values over short tiles lose next to nothing in its own precision.
    is_coarse = problem.n > SMALL and problem.geometry.name == "dense"
    dtype = problem.geometry.search_dtype if is_coarse else np.float64
    unknown = [place for place, value in enumerate(values) if value is None]
    for first in range(0, len(unknown), EVALUATION_COLUMNS):
        places = unknown[first : first + EVALUATION_COLUMNS]
        splits = [np.unpackbits(packed[place], count=problem.n).astype(bool) for place in places]
        for place, value in zip(places, objectives(problem, np.stack(splits, axis=1), dtype), strict=True):
            values[place] = float(value)
    psi = np.array(values, dtype=np.float64)
    if is_coarse:
        psi[[best.start, -1]] = best.psi  # which came to rest in float64
    runs = tuple(
        Run(
            name,
            trail.iterations,
            float(value),
            _mmd(problem, trail, float(value)),
            trail.converged,
            shortened(trail.trace, float(value)),
        )
        for name, trail, value in zip(names, ends, psi, strict=False)
    )
    return runs, _steps([phase for phase, _ in best.passed], psi[len(ends) :].tolist())


def _mmd(problem: Problem, trail: Trail, psi: float) -> float:
    """MMD from Psi through the ANOVA identity."""
    n, n_val = problem.n_rows, int(problem.count(trail.members[:, None])[0])
    return float(np.sqrt(max(problem.ssq_total - psi, 0.0) * n / (n_val * (n - n_val))))


def _steps(phases: list[str], psi: list[float]) -> tuple[Step, ...]:
    """Keep the steps that led down to the end.

    A step taken on the image lowers Psi there; on the kernel itself it may be a detour.
    """
    kept: list[tuple[str, float]] = []
    for phase, value in zip(reversed(phases), reversed(psi), strict=True):
        if not kept or value >= kept[-1][1]:
            kept.append((phase, value))
    return tuple(Step(phase, number, value) for number, (phase, value) in enumerate(reversed(kept)))
