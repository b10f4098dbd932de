"""Clusters of equal size, as synthetic labels: halve the rows by constrained k-means, and halve again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.constraints.cells import Cells, Constraints
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.geometry.nystrom import image_geometry
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.lloyd import descend
from clustersplit_cli.core.search.problem import Problem
from clustersplit_cli.core.search.starts import random_splits, spectral_splits

STARTS, MAX_ITER = 4, 50


def equal_clusters(
    factors: Floats, count: int, workers: Workers, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Cluster rows into `count` clusters whose sizes differ by at most one.

    Parameters
    ----------
    factors : (n, p), rows whose inner products are the kernel, or nearly.

    Returns
    -------
    (n,), cluster numbers from 0.
    """
    labels = np.zeros(len(factors), dtype=np.int64)
    pending = [(np.arange(len(factors)), 0, count)]
    while pending:
        rows, first, clusters = pending.pop()
        if clusters == 1:
            labels[rows] = first
            continue
        fewer = clusters // 2
        # Whole clusters on either side: the first n mod count of them have one row more.
        wanted = sum(
            len(factors) * (c + 1) // count - len(factors) * c // count for c in range(first, first + fewer)
        )
        chosen = _halve(factors[rows], wanted, workers, rng)
        pending.append((rows[chosen], first, fewer))
        pending.append((rows[~chosen], first + fewer, clusters - fewer))
    return labels


def _halve(factors: Floats, wanted: int, workers: Workers, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Split rows in two clusters, the first of `wanted` rows, by the best of a few descents."""
    n = len(factors)
    if len(factors) < 2 or wanted in (0, n):
        return np.arange(n) < wanted
    quota = np.array([wanted], dtype=np.int64)
    cells = Cells(np.zeros(n, dtype=np.int64), ({},), np.array([n], dtype=np.int64))
    limits = Constraints(cells, quota, quota, quota, np.arange(n), np.array([0, n], dtype=np.int64))
    problem = Problem(image_geometry(factors, workers), limits)
    # Eigenvectors of the factors pay only where rows are many; where all rows are equal there are none.
    starts = (
        spectral_splits(limits, factors, STARTS) if n > factors.shape[1] else np.empty((n, 0), dtype=bool)
    )
    if starts.shape[1] == 0:
        starts = random_splits(limits, rng.spawn(STARTS))
    end = descend(problem, starts, Selection(limits), max_iter=MAX_ITER, dtype=factors.dtype)
    chosen: NDArray[np.bool_] = end.members[:, int(np.argmin(end.psi))]
    return chosen
