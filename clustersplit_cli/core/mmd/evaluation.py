"""MMD between the sides of a split and rows outside it: an evaluation domain, or mixed rows.

With m_E(x) = mean of K(x, e) over the rows of E, MMD²(A, E) = mean K(A, A) - 2 mean of m_E over A + mean of
m_E over E. So one pass over K(S, E) serves all splits of S.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import Kernel
from clustersplit_cli.core.parallel import Workers, tiles
from clustersplit_cli.core.search.problem import Members, Problem

TILE = 512


@dataclass(frozen=True)
class Outside:
    """Rows outside the split, as the kernel sees them from within.

    Attributes
    ----------
    mean : (n,), mean kernel value of every row of the split with them.
    norm : mean kernel value among them, each with itself too.
    """

    mean: NDArray[np.float64]
    norm: float


def see_outside(inside: Features, outside: Features, kernel: Kernel, workers: Workers) -> Outside:
    """Compare the rows of a split with rows outside it, both prepared for the kernel."""
    return Outside(
        mean_kernel(inside, outside, kernel, workers),
        float(mean_kernel(outside, outside, kernel, workers).mean()),
    )


def mean_kernel(left: Features, right: Features, kernel: Kernel, workers: Workers) -> NDArray[np.float64]:
    """Mean kernel value of every row of `left` with the rows of `right`, block by block in float64."""
    columns = tiles(right.shape[0], TILE)

    def one(tile: tuple[int, int]) -> NDArray[np.float64]:
        block = left.block(*tile, np.float64)
        total = np.zeros(len(block))
        for first, last in columns:
            total += kernel.tile(block, right.block(first, last, np.float64)).sum(axis=1)
        return total / right.shape[0]

    return np.concatenate(list(workers.map(one, tiles(left.shape[0], TILE))))


def side_norms(problem: Problem, members: Members) -> tuple[float, float]:
    """Mean kernel value within training and within validation rows, each row with itself too."""
    val = members.astype(np.float64)
    train = 1.0 - val
    product = np.asarray(problem.geometry.apply(np.stack([train, val], axis=1)), dtype=np.float64)
    return (
        float(train @ product[:, 0]) / float(train.sum()) ** 2,
        float(val @ product[:, 1]) / float(val.sum()) ** 2,
    )


def mmd_to_outside(problem: Problem, members: Members, outside: Outside) -> tuple[float, float]:
    """MMD of the training rows, and of the validation rows, to the rows outside."""
    norms = side_norms(problem, members)
    train, val = (
        max(norm - 2.0 * float(outside.mean[side].mean()) + outside.norm, 0.0) ** 0.5
        for norm, side in zip(norms, (~members, members), strict=True)
    )
    return train, val
