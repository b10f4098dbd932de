"""From many starts to one split.

Passes over a large kernel are what a search costs. So it explores a low-rank image of the kernel, on a
sample of the rows if they are many, where a pass is almost free, and settles only the best candidates on
the kernel itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.alternatives import different, different_optima
from clustersplit_cli.core.assignment import Assigner, Selection
from clustersplit_cli.core.constraints import Constraints
from clustersplit_cli.core.crowds import is_nearly_diagonal
from clustersplit_cli.core.effort import CHEAP_ROWS, Effort
from clustersplit_cli.core.enumeration import MOST_SPLITS, best_of_all, has_at_most
from clustersplit_cli.core.explore import are_slow
from clustersplit_cli.core.factored import FactorGeometry
from clustersplit_cli.core.field import SMALL
from clustersplit_cli.core.finish import Finished, finish
from clustersplit_cli.core.image import Image
from clustersplit_cli.core.lloyd import Descent, descend
from clustersplit_cli.core.problem import Evaluation, Members, Problem, discrepancy, evaluate
from clustersplit_cli.core.scout import POLISHED, Scouted, scout_crowds, scout_image
from clustersplit_cli.core.settle import settle
from clustersplit_cli.core.solution import Solution, are_measured_coarsely, measure_runs
from clustersplit_cli.core.starts import (
    random_splits,
)
from clustersplit_cli.core.trail import Trail, are_close, best_distinct
from clustersplit_cli.core.workers import Workers
from clustersplit_cli.progress import Progress, silent

LARGE = 50_000
"""From this many rows on, passes are so dear that fewer candidates are settled."""
ROUGH_ROUNDS = 4
FINAL_ROUNDS = 50


def search(
    problem: Problem,
    image: Callable[[], Image],
    assigner: Callable[[Constraints], Assigner],
    workers: Workers,
    *,
    restarts: int,
    max_iter: int,
    effort: Effort,
    nonnegative: bool,
    rng: np.random.Generator,
    canonical: Callable[[Members, NDArray[np.float64] | None], Members] = lambda members, costs: members,
    announce: Callable[[Members, Evaluation], None] = lambda members, measured: None,
    meanwhile: Callable[[], None] = lambda: None,
    count: int = 1,
    progress: Progress = silent,
) -> Solution:
    """Find the split with the smallest Psi that the effort affords.

    Parameters
    ----------
    image : makes a low-rank image of the problem's kernel, if there is need for one.
    assigner : makes the assignment step for given constraints.
    restarts : number of starts.
    nonnegative : whether no kernel value is negative.
    canonical : chooses among splits that differ only by identical rows; is told the rows' costs if known.
    announce : hears of the split once it is found and what it measures, before the account of the search is
        drawn up.
    meanwhile : is called when the search begins to leave workers idle.
    count : number of different splits to return besides the best one found, itself among them.
    """
    *scout_rngs, exact_rng = rng.spawn(4)
    is_small, decide = problem.n <= SMALL, assigner(problem.constraints)
    is_followed = _is_followed(problem, decide)
    is_narrow = nonnegative and not is_small and is_nearly_diagonal(problem)
    if is_narrow:
        scouted = scout_crowds(
            problem,
            decide,
            restarts=restarts,
            max_iter=max_iter,
            most=effort.crowded,
            rng=scout_rngs[0],
            progress=progress,
        )
    else:
        scouted = scout_image(
            problem,
            image(),
            assigner,
            workers,
            restarts=restarts,
            max_iter=max_iter,
            effort=effort,
            most=POLISHED if problem.n > LARGE and not is_followed else None,
            rngs=scout_rngs,
            progress=progress,
        )
    names, ends, chosen = scouted.names, scouted.ends, scouted.chosen

    def bring_to_rest(
        trails: list[Trail], *, exactly: bool, measured: bool = False, fully: bool = False
    ) -> list[Trail]:
        return settle(
            problem,
            trails,
            decide,
            max_iter=max_iter,
            max_rounds=FINAL_ROUNDS if exactly or fully else ROUGH_ROUNDS,
            dtype=np.float64 if exactly else problem.geometry.search_dtype,
            leaping=not exactly,
            polished_runs=len(trails) if is_small or is_narrow else POLISHED,
            nonnegative=nonnegative,
            measured=measured,
        )

    progress("polish", 0, 2)
    finished = None
    if is_followed:
        finished = finish(
            problem,
            ends,
            chosen,
            most=POLISHED,
            max_iter=max_iter,
            nonnegative=nonnegative,
            meanwhile=meanwhile,
        )
    if finished is None:
        meanwhile()
        finished = _come_to_rest(problem, scouted, bring_to_rest, progress)
    best = finished.best
    is_worthwhile = SMALL < problem.n <= CHEAP_ROWS and are_slow(ends)
    rounds = effort.cheap_rounds if is_worthwhile else effort.exact_rounds
    for done in range(rounds):
        progress("stir", done, rounds)
        # On the kernel itself splits are dearer than on its image.
        noisy = scouted.stirred(best, effort.batch // 2, exact_rng)
        end = descend(
            problem,
            noisy,
            decide,
            max_iter=max_iter,
            dtype=problem.geometry.search_dtype,
            rival=best.psi,
        )
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
    measured = (finished.measured if best is finished.best else None) or evaluate(problem, best.members)
    chosen_members = canonical(best.members, measured.difference)
    if not np.array_equal(chosen_members, best.members):
        measured = evaluate(problem, chosen_members)
    announce(chosen_members, measured)
    in_turn = [last[start] for start in range(len(names))]
    runs, steps = measure_runs(problem, names, in_turn, best, finished.known, measured)
    optima: list[Trail] = []
    if count > 1:
        progress("others", 0, 0)
        others = different(scouted.found, 2 * count)
        optima = different_optima(
            problem,
            [best],
            [list(finished.others), scouted.to_all_rows(others)],
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


def _come_to_rest(
    problem: Problem, scouted: Scouted, bring_to_rest: Callable[..., list[Trail]], progress: Progress
) -> Finished:
    """Bring the chosen splits to rest in the kernel's own precision, and the best of them in float64.

    The measurement in float64 that this takes is mostly that of the final split, which the report states;
    else there is none of it, since the search may go on.
    """
    chosen, is_coarse, known = scouted.chosen, are_measured_coarsely(problem), dict[bytes, float]()
    if scouted.are_measured:
        known = {np.packbits(trail.members).tobytes(): trail.psi for trail in scouted.ends}
    elif is_coarse:
        chosen, known = _measured(problem, chosen, scouted.ends)
    settled = bring_to_rest(chosen, exactly=False, measured=is_coarse)
    progress("polish", 1, 2)
    best = min(settled, key=lambda trail: trail.psi)
    if is_coarse:  # what it still gains it gains at less cost
        best = bring_to_rest([best], exactly=False, measured=True, fully=True)[0]
    measured = evaluate(problem, best.members)
    rested = bring_to_rest([replace(best, witness=measured.witness)], exactly=True, measured=True)[0]
    is_at_rest = np.array_equal(rested.members, best.members)
    return Finished(rested, tuple(settled), known, measured if is_at_rest else None)


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


def _better(best: Trail, end: Descent, bring_to_rest: Callable[..., list[Trail]], candidates: int) -> Trail:
    """The best split, or one that a batch of descents found and that is better once it is settled."""
    found = [
        replace(best, members=end.members[:, run], psi=float(end.psi[run]), witness=end.witness[:, run])
        for run in np.flatnonzero(end.converged).tolist()
    ]
    rivals = best_distinct([trail for trail in found if not are_close(trail, best)], candidates)
    if not rivals:
        return best
    rivals = bring_to_rest(rivals, exactly=False, measured=True)
    rival = bring_to_rest(best_distinct(rivals, 1), exactly=True)[0]
    if rival.psi >= best.psi:
        return best
    rested = replace(rival, passed=best.passed, trace=(*best.trace, rival.psi))
    return rested.through("perturb", [np.packbits(rival.members)])
