"""Proof that a partition is a fixed point of the assignment step, whichever centroid serves which part."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.cbc import solve_transport
from clustersplit_cli.core.certificate import GAP_TOLERANCE, SMALLEST_OBJECTIVE, FixedPoint
from clustersplit_cli.core.search.partition import Labels, PartAssigner, PartitionMeasures


def certify_partition(
    measured: PartitionMeasures, labels: Labels, assigner: PartAssigner, *, by_cbc: bool
) -> FixedPoint:
    """Solve the assignment step at the partition's own centroids.

    Parameters
    ----------
    by_cbc : whether CBC solves it, each cell on its own, for the centroids as they are; other ways to hand
        them out, and all of it without CBC, go through the method of the search.
    """
    costs = measured.costs
    found = assigner.assign(costs[None])
    optimum, n_lps, integral = float(found.costs[0]), 0, True
    if by_cbc:
        cost, n_lps, integral = _by_cbc(costs, assigner)
        optimum = min(optimum, cost)
    own = float(costs[np.arange(len(labels)), labels].sum())
    objective = measured.trace + optimum
    gap = (own - optimum) / max(objective, SMALLEST_OBJECTIVE * measured.trace)
    status = "optimal" if gap <= GAP_TOLERANCE else "not a fixed point"
    return FixedPoint("cbc" if by_cbc else "transport", status, objective, gap, integral, n_lps)


def _by_cbc(costs: NDArray[np.float64], assigner: PartAssigner) -> tuple[float, int, bool]:
    """The least cost, the programs it took, and whether all of them ended in whole numbers."""
    pinned = assigner.quotas.pinned
    forced = np.flatnonzero(pinned >= 0)
    total = float(costs[forced, pinned[forced]].sum())
    integral = True
    cells = assigner.cells
    solutions = assigner.workers.map(
        lambda cell: solve_transport(costs[cell.rows], cell.lower, cell.upper), cells
    )
    for cell, (labels, is_integral) in zip(cells, solutions, strict=True):
        total += float(costs[cell.rows, labels].sum())
        integral &= is_integral
    return total, len(cells), integral
