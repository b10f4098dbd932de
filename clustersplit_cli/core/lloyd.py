"""Batched Lloyd descent: many starts at once, one multiplication by K per round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

from clustersplit_cli.core.assignment import Assigner, cheaper_orientation
from clustersplit_cli.core.problem import Members, Problem, discrepancy

FLOAT32_PROGRESS = 1e-7
"""In float32 a smaller gain, relative to the scatter explained so far, is taken for noise."""


@dataclass(frozen=True)
class Descent:
    """Where a batch of r starts ended.

    Attributes
    ----------
    members : (n, r) final splits.
    psi : (r,) their objectives.
    iterations : (r,) assignment steps taken.
    converged : (r,) whether the last step changed nothing.
    history : for every start, its splits from the initial one on, packed by `np.packbits`.
    """

    members: Members
    psi: NDArray[np.float64]
    iterations: NDArray[np.int64]
    converged: NDArray[np.bool_]
    history: tuple[tuple[NDArray[np.uint8], ...], ...]


def descend(
    problem: Problem,
    starts: Members,
    assigner: Assigner,
    *,
    max_iter: int,
    dtype: DTypeLike,
    on_iteration: Callable[[int, int], None] | None = None,
) -> Descent:
    """Alternate centroids and assignment from every start until nothing changes.

    A step is taken only if it lowers Psi; in exact arithmetic a step that changes the split without lowering
    Psi is a tie, and refusing it makes the trace monotone and the loop finite.

    Parameters
    ----------
    starts : (n, r), each meeting the constraints.
    on_iteration : called with the starts finished so far and their number.
    """
    n_starts = starts.shape[1]
    members = starts.copy()
    state = discrepancy(problem, members, dtype)
    psi = state.psi.copy()
    difference = state.difference
    iterations = np.zeros(n_starts, dtype=np.int64)
    converged = np.zeros(n_starts, dtype=bool)
    history: list[list[NDArray[np.uint8]]] = [[np.packbits(members[:, run])] for run in range(n_starts)]
    active = np.arange(n_starts)
    noise = FLOAT32_PROGRESS if np.dtype(dtype) == np.float32 else 1e-13
    for _ in range(max_iter):
        proposal, _, _ = cheaper_orientation(difference, assigner)
        same = (proposal == members[:, active]).all(axis=0)
        n_val = proposal.sum(axis=0)
        empty = (n_val == 0) | (n_val == problem.n)
        moving = ~(same | empty)
        converged[active[~moving]] = True
        active, proposal = active[moving], proposal[:, moving]
        if len(active) == 0:
            break
        state = discrepancy(problem, proposal, dtype)
        gain = psi[active] - state.psi
        lower = gain > noise * np.maximum(problem.ssq_total - psi[active], 0)
        converged[active[~lower]] = True
        active = active[lower]
        members[:, active] = proposal[:, lower]
        psi[active] = state.psi[lower]
        difference = state.difference[:, lower]
        iterations[active] += 1
        for run in active:
            history[run].append(np.packbits(members[:, run]))
        if on_iteration is not None:
            on_iteration(n_starts - len(active), n_starts)
        if len(active) == 0:
            break
    return Descent(members, psi, iterations, converged, tuple(tuple(steps) for steps in history))
