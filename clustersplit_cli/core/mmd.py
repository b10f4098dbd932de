"""Estimates of the maximum mean discrepancy that need no kernel matrix of all rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.features import Features
from clustersplit_cli.core.kernels import Kernel
from clustersplit_cli.core.problem import Members


@dataclass(frozen=True)
class SubsampleEstimate:
    """The unbiased estimate of MMD² on a subsample, its standard error, and the rows it used."""

    mmd_squared: float
    standard_error: float
    size: int


def subsample_mmd(
    features: Features, kernel: Kernel, members: Members, size: int, rng: np.random.Generator
) -> SubsampleEstimate | None:
    """Estimate MMD² under the exact kernel from up to `size` rows of each side.

    The standard error is that of the U-statistic's linear part: 2 sqrt(var_V(s)/m_V + var_T(s)/m_T), s being
    the leave-one-out witness. None if a side has fewer than two rows.
    """
    sides = [_draw(np.flatnonzero(members), size, rng), _draw(np.flatnonzero(~members), size, rng)]
    if min(len(side) for side in sides) < 2:
        return None
    val, train = (features.take(side, np.float64) for side in sides)
    within_val, within_train = _leave_one_out(kernel, val), _leave_one_out(kernel, train)
    across = kernel.tile(val, train)
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
