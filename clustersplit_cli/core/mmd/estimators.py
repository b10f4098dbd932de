"""Estimators of the squared maximum mean discrepancy.

Biased (the paper's): MMD² = mean of K over pairs within T + mean over pairs within V - 2 mean across, each
row paired with itself too. Unbiased: without those pairs, so that it is 0 on average for equal distributions
and may be negative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import Kernel
from clustersplit_cli.core.mmd.sums import GroupSums
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.problem import Members

ESTIMATORS = ("biased", "unbiased")

Sums = NDArray[np.float64]


def two_sample(
    estimator: str,
    sizes: tuple[Any, Any],
    within: tuple[Sums, Sums],
    across: Sums,
    diagonals: tuple[Sums, Sums] | None = None,
) -> Sums:
    """MMD² of two groups from kernel sums, of any matching shapes.

    Parameters
    ----------
    sizes : rows of each group.
    within : sum of K_ij within each group, each row with itself too.
    across : sum of K_ij between the groups.
    diagonals : sum of K_ii over each group; for the unbiased estimator.

    Returns
    -------
    NaN where a group is too small: one row for the unbiased estimator.

    >>> one = np.ones(())
    >>> float(two_sample("biased", (2, 2), (4 * one, 2 * one), one))
    1.0
    """
    first, second = (np.asarray(size, dtype=np.float64) for size in sizes)
    means = []
    for place, size in enumerate((first, second)):
        if estimator == "biased":
            means.append(within[place] / size**2)
            continue
        assert diagonals is not None
        pairs = np.where(size > 1, size * (size - 1), np.nan)
        means.append((within[place] - diagonals[place]) / pairs)
    return np.asarray(means[0] + means[1] - 2.0 * across / (first * second))


def squared_discrepancies(sums: GroupSums, estimator: str) -> Sums:
    """MMD² between all pairs of groups, shape (G, G), with zeros on the diagonal."""
    within = np.diag(sums.between)
    diagonals = None if sums.diagonal is None else (sums.diagonal[:, None], sums.diagonal[None, :])
    squared = two_sample(
        estimator,
        (sums.sizes[:, None], sums.sizes[None, :]),
        (within[:, None], within[None, :]),
        sums.between,
        diagonals,
    )
    np.fill_diagonal(squared, 0.0)
    return squared


@dataclass(frozen=True)
class SubsampleEstimate:
    """The unbiased estimate of MMD² on a subsample, its standard error, and the rows it used."""

    mmd_squared: float
    standard_error: float
    size: int


def subsample_mmd(
    features: Features,
    kernel: Kernel,
    members: Members,
    size: int,
    rng: np.random.Generator,
    workers: Workers | None = None,
) -> SubsampleEstimate | None:
    """Estimate MMD² under the exact kernel from up to `size` rows of each side.

    The standard error is that of the U-statistic's linear part: 2 sqrt(var_V(s)/m_V + var_T(s)/m_T), s being
    the leave-one-out witness. None if a side has fewer than two rows.
    """
    sides = [_draw(np.flatnonzero(members), size, rng), _draw(np.flatnonzero(~members), size, rng)]
    if min(len(side) for side in sides) < 2:
        return None
    val, train = (features.take(side, np.float64) for side in sides)
    jobs: list[Callable[[], NDArray[Any]]] = [
        partial(kernel.tile, val, train),
        partial(_leave_one_out, kernel, val),
        partial(_leave_one_out, kernel, train),
    ]
    done = (job() for job in jobs) if workers is None else workers.map(lambda job: job(), jobs)
    across, within_val, within_train = done
    mmd_squared = within_val.mean() + within_train.mean() - 2.0 * across.mean()
    variance = np.var(within_val - across.mean(axis=1), ddof=1) / len(val)
    variance += np.var(within_train - across.mean(axis=0), ddof=1) / len(train)
    return SubsampleEstimate(float(mmd_squared), float(2.0 * np.sqrt(variance)), len(val) + len(train))


def _draw(rows: NDArray[np.int64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.sort(rng.choice(rows, size=size, replace=False)) if len(rows) > size else rows


def _leave_one_out(kernel: Kernel, rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Mean kernel value of each row with the others."""
    values = kernel.tile(rows, rows).astype(np.float64)
    np.fill_diagonal(values, 0.0)
    return np.asarray(values.sum(axis=1) / (len(rows) - 1))
