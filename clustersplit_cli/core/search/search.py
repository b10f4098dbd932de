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

from clustersplit_cli.core.assignment.selection import Assigner
from clustersplit_cli.core.constraints.cells import Constraints
from clustersplit_cli.core.effort import Effort
from clustersplit_cli.core.geometry.low_rank import Image
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.alternatives import different, different_optima
from clustersplit_cli.core.search.attempt import Seeker
from clustersplit_cli.core.search.candidate import Trail
from clustersplit_cli.core.search.exhaustive import MOST_SPLITS, best_of_all, has_at_most
from clustersplit_cli.core.search.problem import Evaluation, Members, Problem, evaluate
from clustersplit_cli.core.search.solution import Solution, measure_runs
from clustersplit_cli.core.search.starts import random_splits
from clustersplit_cli.progress import Progress, silent


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
    seeker = Seeker(problem, assigner, workers, restarts, max_iter, nonnegative, progress)
    efforts = [effort] if effort.after is None else [effort.after, effort]
    attempts = [seeker.attempt(image, each, rng.spawn(4), meanwhile) for each in efforts]
    attempt = min(attempts, key=lambda attempt: attempt.psi)
    scouted, finished, best = attempt.scouted, attempt.finished, attempt.best
    names, ends = scouted.names, scouted.ends
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
            seeker.decide,
            lambda trails: seeker.bring_to_rest(trails, exactly=True),
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
