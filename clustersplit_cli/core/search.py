"""From many starts to one split: batched descent, then polish and exact descent in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment import Assigner, Selection
from clustersplit_cli.core.constraints import Constraints
from clustersplit_cli.core.lloyd import Descent, descend
from clustersplit_cli.core.polish import polish
from clustersplit_cli.core.problem import Members, Problem, objectives
from clustersplit_cli.progress import Progress, silent

FINISH_ALL_ROWS = 2048
FINISH_BEST = 3
MAX_FINISHING_ROUNDS = 50
EVALUATION_COLUMNS = 32


@dataclass(frozen=True)
class Step:
    """The objective after one step of a run."""

    phase: str  # start | lloyd | polish
    iteration: int
    psi: float


@dataclass(frozen=True)
class Run:
    """Where one start ended."""

    start: str
    iterations: int
    psi: float
    mmd: float
    converged: bool


@dataclass(frozen=True)
class Solution:
    """The best split found, how its run got there, and where the other starts ended.

    `steps` ends before the returned split's own objective, which is evaluated by the caller.
    """

    members: Members
    steps: tuple[Step, ...]
    runs: tuple[Run, ...]
    winner: int


@dataclass(frozen=True)
class _Path:
    """One run so far: its split, and the packed splits it went through, by phase."""

    members: Members
    psi: float
    visited: tuple[tuple[str, NDArray[np.uint8]], ...]
    converged: bool


def random_splits(constraints: Constraints, streams: Sequence[np.random.Generator]) -> Members:
    """Draw one split per stream, uniform among those that meet every cell's target.

    Returns
    -------
    (n, r)
    """
    counts = constraints.target.copy()
    # With tolerances a side may be empty at the targets although the bounds allow it a row.
    if counts.sum() == 0:
        counts[int(np.argmax(constraints.upper))] += 1
    elif counts.sum() == constraints.n:
        counts[int(np.argmax(counts - constraints.lower))] -= 1
    exact = replace(constraints, lower=counts, upper=counts)
    keys = np.stack([stream.random(constraints.n) for stream in streams], axis=1)
    return Selection(exact).choose(keys)


def search(
    problem: Problem,
    streams: Sequence[np.random.Generator],
    assigner: Assigner,
    *,
    max_iter: int,
    nonnegative: bool,
    canonical: Callable[[Members], Members] = lambda members: members,
    progress: Progress = silent,
) -> Solution:
    """Descend from one random split per stream, finish the best, and return the best of those.

    Parameters
    ----------
    canonical : chooses among splits that differ only by identical rows.
    """
    starts = random_splits(problem.constraints, streams)
    descent = descend(
        problem,
        starts,
        assigner,
        max_iter=max_iter,
        dtype=problem.geometry.search_dtype,
        on_iteration=lambda done, total: progress("restarts", done, total),
    )
    paths = [_path(descent, run) for run in range(starts.shape[1])]
    # Finishing repeats exact passes over K, so on large data only the best distinct runs get it.
    ranked = np.argsort(descent.psi, kind="stable")
    chosen = ranked if problem.n <= FINISH_ALL_ROWS else _distinct(descent, ranked)[:FINISH_BEST]
    for done, run in enumerate(chosen):
        progress("polish", done, len(chosen))
        paths[run] = _finish(problem, paths[run], assigner, max_iter=max_iter, nonnegative=nonnegative)
    progress("polish", len(chosen), len(chosen))
    finals = np.stack([path.members for path in paths], axis=1)
    psi = objectives(problem, finals)
    n_val = finals.sum(axis=0)
    mmd = np.sqrt(np.maximum(problem.ssq_total - psi, 0.0) * problem.n / (n_val * (problem.n - n_val)))
    winner = int(chosen[int(np.argmin(psi[chosen]))])
    return Solution(
        members=canonical(paths[winner].members),
        steps=_replay(problem, paths[winner]),
        runs=tuple(
            Run(
                f"random-{index}", len(path.visited) - 1, float(psi[index]), float(mmd[index]), path.converged
            )
            for index, path in enumerate(paths)
        ),
        winner=winner,
    )


def _path(descent: Descent, run: int) -> _Path:
    visited = descent.history[run]
    phases = ["start"] + ["lloyd"] * (len(visited) - 1)
    return _Path(
        descent.members[:, run],
        float(descent.psi[run]),
        tuple(zip(phases, visited, strict=True)),
        bool(descent.converged[run]),
    )


def _distinct(descent: Descent, ranked: NDArray[np.int64]) -> NDArray[np.int64]:
    """Keep the first of every group of runs that ended in the same split."""
    seen: set[bytes] = set()
    kept: list[int] = []
    for run in ranked.tolist():
        key = descent.history[run][-1].tobytes()
        if key not in seen:
            seen.add(key)
            kept.append(run)
    return np.array(kept, dtype=np.int64)


def _finish(problem: Problem, path: _Path, assigner: Assigner, *, max_iter: int, nonnegative: bool) -> _Path:
    """Alternate exact descent and polish until neither improves; ends on a fixed point of the descent."""
    members, visited, psi = path.members, list(path.visited), path.psi
    converged = False
    for _ in range(MAX_FINISHING_ROUNDS):
        descent = descend(problem, members[:, None], assigner, max_iter=max_iter, dtype=np.float64)
        members, psi, converged = descent.members[:, 0], float(descent.psi[0]), bool(descent.converged[0])
        visited.extend(("lloyd", packed) for packed in descent.history[0][1:])
        polished = polish(problem, members, nonnegative=nonnegative)
        if not converged or polished.changes == 0:
            break
        members = polished.members
        visited.append(("polish", np.packbits(members)))
    return _Path(members, psi, tuple(visited), converged and path.converged)


def _replay(problem: Problem, path: _Path) -> tuple[Step, ...]:
    """Evaluate every split a run went through, in float64, many per pass."""
    splits = [np.unpackbits(packed, count=problem.n).astype(bool) for _, packed in path.visited]
    psi: list[float] = []
    for first in range(0, len(splits), EVALUATION_COLUMNS):
        psi.extend(objectives(problem, np.stack(splits[first : first + EVALUATION_COLUMNS], axis=1)).tolist())
    return tuple(
        Step(phase, iteration, value)
        for iteration, ((phase, _), value) in enumerate(zip(path.visited, psi, strict=True))
    )
