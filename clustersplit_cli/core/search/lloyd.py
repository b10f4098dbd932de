"""Batched descent: many splits at once, one multiplication by K per step, Psi never rises."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

from clustersplit_cli.core.assignment.selection import Assigner, cheaper_orientation
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.search.problem import (
    MeasuredSplits,
    Members,
    Problem,
    discrepancy,
    recalled,
    shifted,
)
from clustersplit_cli.progress import Progress, silent

LAST_GAINS = 10.0
"""Gains of a descent shrink from step to step: it will not gain so many times what its last step gained."""
SMALLEST_RELEASE = 0.4
SHORTEST_LEAP = 1e-2
"""Share of the rows that must change sides in a leap; single swaps do the rest more cheaply."""


@dataclass(frozen=True)
class Descent:
    """Where a batch of r splits ended.

    Attributes
    ----------
    members : (n, r) final splits.
    psi : (r,) their objectives.
    witness : (n, r), K z of the final splits.
    iterations : (r,) steps taken.
    converged : (r,) whether the last step changed nothing, rather than the descent being cut short.
    visited : for every start, the splits it went through after the initial one, packed by `np.packbits`.
    trace : for every start, the objective of the initial split and after every step.
    """

    members: Members
    psi: NDArray[np.float64]
    witness: NDArray[np.floating]
    iterations: NDArray[np.int64]
    converged: NDArray[np.bool_]
    visited: tuple[tuple[NDArray[np.uint8], ...], ...]
    trace: tuple[tuple[float, ...], ...]


class _Batch:
    """The state of a batch under way; a step is taken only by the splits whose Psi it lowers."""

    def __init__(self, problem: Problem, starts: Members, state: MeasuredSplits) -> None:
        # One split a row: picking some of the splits then copies whole rows.
        self.problem, self.dtype = problem, state.witness.dtype
        self.members = starts.T.copy()
        self.psi = state.psi.copy()
        self.witness, self.difference = state.witness.T.copy(), state.difference.T.copy()
        self.visited: list[list[NDArray[np.uint8]]] = [[] for _ in range(starts.shape[1])]
        self.trace = [[psi] for psi in self.psi.tolist()]
        # Smaller gains, relative to the scatter explained so far, are rounding.
        self.noise = 1e-7 if self.dtype == np.float32 else 1e-13

    def take(self, runs: NDArray[np.int64], proposal: Members) -> NDArray[np.bool_]:
        """Move the given runs to their proposals where that lowers Psi; say which moved.

        Refusing a change that does not lower Psi (a tie, or rounding) keeps the trace monotone and the
        descent finite.
        """
        proposed = proposal.T
        n_val = proposed.sum(axis=1)
        sound = (n_val > 0) & (n_val < self.problem.n) & (proposed != self.members[runs]).any(axis=1)
        moved = np.zeros(len(runs), dtype=bool)
        if not sound.any():
            return moved
        going = runs[sound]
        state = shifted(self.problem, proposed[sound].T, self.members[going].T, self.witness[going].T)
        before = self.psi[going]
        lower = before - state.psi > self.noise * np.maximum(self.problem.ssq_total - before, 0.0)
        moved[np.flatnonzero(sound)[lower]] = True
        to = runs[moved]
        self.members[to] = proposed[moved]
        self.psi[to] = state.psi[lower]
        self.witness[to] = state.witness.T[lower]
        self.difference[to] = state.difference.T[lower]
        for run in to:
            self.visited[run].append(np.packbits(self.members[run]))
            self.trace[run].append(float(self.psi[run]))
        return moved

    def result(self, converged: NDArray[np.bool_]) -> Descent:
        """Close the batch."""
        steps = np.array([len(splits) for splits in self.visited], dtype=np.int64)
        visited = tuple(tuple(splits) for splits in self.visited)
        trace = tuple(map(tuple, self.trace))
        return Descent(self.members.T, self.psi, self.witness.T, steps, converged, visited, trace)


def descend(
    problem: Problem,
    starts: Members,
    assigner: Assigner,
    *,
    max_iter: int,
    dtype: DTypeLike,
    turning: bool = True,
    near: tuple[Members, Floats] | None = None,
    progress: Progress = silent,
    rival: float = np.inf,
) -> Descent:
    """Alternate centroids and assignment, as k-means does, from every start until nothing changes.

    Parameters
    ----------
    starts : (n, r), each meeting the constraints.
    turning : whether either centroid may become the validation one at every step.
    near : splits that may be close to the starts, with their witness in the precision wanted.
    rival : a Psi to get below; descents that will not get there are given up.
    """
    begun = discrepancy(problem, starts, dtype) if near is None else shifted(problem, starts, *near)
    batch = _Batch(problem, starts, begun)
    active = np.arange(starts.shape[1])
    converged = np.zeros(starts.shape[1], dtype=bool)
    for _ in range(max_iter):
        difference, present = batch.difference[active].T, batch.members[active].T
        if turning:
            proposal = cheaper_orientation(difference, assigner, present)[0]
        else:
            proposal = assigner.choose(difference, present)
        before = batch.psi[active]
        moved = batch.take(active, proposal)
        converged[active[~moved]] = True
        after = batch.psi[active]
        active = active[moved & (after - LAST_GAINS * (before - after) < rival)]
        progress("starts", starts.shape[1] - len(active), starts.shape[1])
        if len(active) == 0:
            break
    return batch.result(converged)


def leap(problem: Problem, converged: Descent, assigner: Assigner, *, max_iter: int) -> Descent:
    """Descend with each row's pull on its own centroid taken off, as far as that lowers Psi.

    A row is close to the centroid it is part of, all the more in a narrow kernel, where Lloyd stops at
    once. Judging rows by the others alone is what single swaps do; doing it for all rows at a time can
    overshoot, so a run whose step would not lower Psi halves the share it takes off.

    Parameters
    ----------
    converged : where a descent ended.
    """
    starts = converged.members
    batch = _Batch(problem, starts, recalled(problem, starts, converged.witness, converged.psi))
    release = np.ones(starts.shape[1])
    active = np.arange(starts.shape[1])
    own = problem.geometry.diagonal[:, None]
    for _ in range(max_iter):
        present = batch.members[active].T
        n_val = problem.count(present)
        weights = np.where(present, 1.0 / n_val, -1.0 / (problem.n_rows - n_val))
        released = batch.difference[active].T + 2.0 * release[active] * own * weights
        proposal = assigner.choose(released, present)
        far = (proposal != present).sum(axis=0) > SHORTEST_LEAP * problem.n
        active, proposal = active[far], proposal[:, far]
        release[active[~batch.take(active, proposal)]] /= 2.0
        active = active[release[active] >= SMALLEST_RELEASE]
        if len(active) == 0:
            break
    return batch.result(np.ones(starts.shape[1], dtype=bool))
