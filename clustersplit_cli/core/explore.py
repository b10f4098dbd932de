"""The first half of the search: descend from all starts, then perturb the best and descend again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clustersplit_cli.core.assignment import Assigner
from clustersplit_cli.core.features import Floats
from clustersplit_cli.core.lloyd import descend
from clustersplit_cli.core.problem import Members, Problem
from clustersplit_cli.core.starts import crossed_splits, kick_directions, perturbed_splits
from clustersplit_cli.core.trail import Trail, best_distinct
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
        on_step=lambda done, total: progress("starts", done, total),
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
    field: Problem,
    trails: list[Trail],
    factors: Floats,
    assigner: Assigner,
    *,
    batch: int,
    patience: int,
    max_rounds: int,
    max_iter: int,
    rng: np.random.Generator,
    progress: Progress = silent,
) -> list[Trail]:
    """Perturb the best split and the runner-up, cross the best ones, descend, and repeat.

    Parameters
    ----------
    patience : rounds that bring nothing before giving up.

    Returns
    -------
    The trails given and those found, in no order.
    """
    stale, also_rans = 0, list[Trail]()
    for done in range(max_rounds):
        if stale == patience:
            break
        progress("perturb", done, max_rounds)
        parents = best_distinct(trails, 2)
        different = best_distinct([*trails, *also_rans], CROSSED, DIFFERENT)
        n_crossed = (3 * batch) // 7 if len(different) > 1 else 0
        n_perturbed = batch - n_crossed
        shares = [n_perturbed] if len(parents) == 1 else [n_perturbed - n_perturbed // 3, n_perturbed // 3]
        batches = [
            perturbed_splits(
                field.constraints, parent.witness, _tilts(factors, (3 * share) // 4, rng), share, rng, WILD
            )
            for parent, share in zip(parents, shares, strict=True)
        ]
        origin = [parent for parent, share in zip(parents, shares, strict=True) for _ in range(share)]
        if n_crossed:
            witnesses = np.stack([trail.witness for trail in different], axis=1)
            crossed, better = crossed_splits(field.constraints, witnesses, n_crossed, rng)
            batches.append(crossed)
            origin += [different[place] for place in better]
        end = descend(
            field,
            np.concatenate(batches, axis=1),
            assigner,
            max_iter=max_iter,
            dtype=field.geometry.search_dtype,
            turning=False,
            rival=parents[0].psi,
        )
        best = parents[0].psi
        for run, (parent, psi) in enumerate(zip(origin, end.psi.tolist(), strict=True)):
            found = replace(
                parent,
                members=end.members[:, run],
                psi=psi,
                witness=end.witness[:, run],
                converged=bool(end.converged[run]),
            )
            if psi < parent.trace[-1]:
                found = replace(found, trace=(*parent.trace, psi))
                trails.append(found.through("perturb", [np.packbits(found.members)]))
            elif run >= n_perturbed:
                also_rans.append(found)  # good for crossing; where its parent was is the mark to beat
        gain = best - float(end.psi.min())
        stale = 0 if gain > WORTHWHILE * (field.ssq_total - best) else stale + 1
    return trails


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
