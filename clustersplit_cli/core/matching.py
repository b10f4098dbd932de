"""Kernel mean matching: weights of validation rows with which they stand for the rows of a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.protocol import Geometry
from clustersplit_cli.core.mmd.evaluation import Outside

MOST_HELD = 8192
"""Validation rows up to which their kernel is gathered; beyond that every step multiplies by all of it."""
STEPS, FEW_STEPS = 3000, 150
"""Steps at most, where the kernel is gathered and where it is not."""
GAP = 1e-7
"""Distance to the optimum, in units of the mean diagonal, at which they stop."""

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Matching:
    """Weights w >= 0 of mean 1 that bring the weighted validation rows nearest to the target's.

    Attributes
    ----------
    weights : (m,)
    squared : |sum of w_i phi_i / m - mu_E|².
    gap : how far above the least possible that is at most.
    """

    weights: Vector
    squared: float
    gap: float

    @property
    def effective_size(self) -> float:
        """Rows of equal weight that would have the same variance: (sum of w)² / sum of w²."""
        return float(self.weights.sum() ** 2 / (self.weights @ self.weights))


def match_means(geometry: Geometry, rows: NDArray[np.int64], outside: Outside) -> Matching:
    """Minimise p'Kp - 2 p'k_E over the simplex by accelerated projected gradients, with p = w/m.

    Parameters
    ----------
    rows : (m,) of validation, ascending.
    """
    m, wanted = len(rows), outside.mean[rows]
    held = np.asarray(geometry.block(rows, rows), np.float64) if m <= MOST_HELD else None

    def times(p: Vector) -> Vector:
        if held is not None:
            return np.asarray(held @ p)
        return np.asarray(geometry.times_columns(rows, p[:, None])[rows, 0], dtype=np.float64)

    scale = float(geometry.diagonal[rows].mean())
    # No eigenvalue exceeds the largest row of absolute values.
    steepest = _largest_eigenvalue(times, m) if held is None else float(np.abs(held).sum(axis=1).max())
    p = np.full(m, 1.0 / m)
    product = times(p)
    ahead, ahead_product, speed, gap = p, product, 1.0, np.inf
    for _ in range(STEPS if held is not None else FEW_STEPS):
        slope = 2.0 * (product - wanted)
        gap = float(slope @ p - slope.min())
        if gap <= GAP * scale:
            break
        following = onto_simplex(ahead - (ahead_product - wanted) / steepest)
        following_product = times(following)
        faster = (1.0 + np.sqrt(1.0 + 4.0 * speed**2)) / 2.0
        momentum = (speed - 1.0) / faster
        # Momentum that leads uphill is given up.
        if float((ahead - following) @ (following - p)) > 0:
            momentum, faster = 0.0, 1.0
        ahead = following + momentum * (following - p)
        ahead_product = following_product + momentum * (following_product - product)
        p, product, speed = following, following_product, faster
    squared = float(p @ product - 2.0 * p @ wanted) + outside.norm
    return Matching(p * m, max(squared, 0.0), gap)


def onto_simplex(values: Vector) -> Vector:
    """The nearest point with entries that are not negative and add up to 1.

    >>> onto_simplex(np.array([2.0, 0.0, 0.5])).tolist()
    [1.0, 0.0, 0.0]
    """
    falling = -np.sort(-values)
    excess = (np.cumsum(falling) - 1.0) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(falling > excess)[-1])
    return np.asarray(np.maximum(values - excess[last], 0.0))


def _largest_eigenvalue(times: Callable[[Vector], Vector], m: int) -> float:
    """A little more than the largest eigenvalue, by power iteration."""
    vector, value = np.random.default_rng(0).standard_normal(m) + 1.0, 0.0
    vector /= np.linalg.norm(vector)
    for _ in range(30):
        product = times(vector)
        value = float(np.linalg.norm(product))
        if value == 0.0:
            return 1.0
        vector = product / value
    return 1.1 * value
