"""Which kernel tells known groups of rows apart best: the power of the test, for several widths.

The power of a test with a kernel grows with MMD²_u / sigma, sigma being the standard deviation of the
estimate where the distributions differ (Liu et al. 2020). It is averaged over pairs of groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.errors import UsageError

SAMPLED_ROWS = 2000
GROUP_ROWS, FEWEST_ROWS = 200, 10
"""Rows of a group that are compared, and below which it is left out."""
MOST_GROUPS = 10
OCTAVES = range(-6, 7)
"""Widths are 1 over the median distance, times these powers of two."""
LEAST_VARIANCE = 1e-8
_DISTANCES = {"rbf": "sqeuclidean", "laplacian": "cityblock"}

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class WidthPower:
    """A kernel, and MMD²_u / sigma averaged over pairs of groups."""

    kernel: str
    gamma: float
    power: float


def sampled_rows(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The rows that are looked at, ascending."""
    return np.sort(rng.choice(n, min(n, SAMPLED_ROWS), replace=False)).astype(np.int64)


def width_powers(rows: Matrix, groups: NDArray[np.integer]) -> tuple[WidthPower, ...]:
    """Measure all candidates, kernel by kernel and from the widest on.

    Parameters
    ----------
    rows : (n, d), standardized as they will be.
    groups : (n,) the group, such as a domain, of every row.

    Raises
    ------
    UsageError
        If there are fewer than two groups of enough rows, or most rows are the same.
    """
    members = [np.flatnonzero(groups == group)[:GROUP_ROWS] for group in np.unique(groups)]
    usable = [some for some in members if len(some) >= FEWEST_ROWS][:MOST_GROUPS]
    if len(usable) < 2:
        raise UsageError(
            f"--gamma power compares domains, and {len(usable)} of them has {FEWEST_ROWS} rows or more",
            hint="use --gamma scale or median",
        )
    order = np.concatenate(usable)
    ends = np.cumsum([0, *map(len, usable)])
    places = [np.arange(start, stop) for start, stop in pairwise(ends)]
    return tuple(_candidates(rows[order] - rows[order].mean(axis=0), places))


def most_powerful(found: tuple[WidthPower, ...]) -> WidthPower:
    """The candidate with the largest power; the first of equals."""
    return max(found, key=lambda candidate: candidate.power)


def _candidates(rows: Matrix, places: list[NDArray[np.int64]]) -> Iterator[WidthPower]:
    from scipy.spatial.distance import cdist  # takes longer to import than a small split to make

    for kernel, metric in _DISTANCES.items():
        distances = cdist(rows, rows, metric)
        middle = float(np.median(distances[np.triu_indices(len(rows), k=1)]))
        if middle <= 0:
            raise UsageError(
                "--gamma power: more than half of the pairs of sampled rows are identical",
                hint="use --gamma scale or a number",
            )
        for octave in OCTAVES:
            gamma = 2.0**octave / middle
            K = np.exp(-gamma * distances)
            powers = [pair_power(K, one, other) for one, other in combinations(places, 2)]
            yield WidthPower(kernel, gamma, float(np.mean(powers)))


def pair_power(K: Matrix, one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """MMD²_u / sigma of two groups, on as many rows of each.

    With h_ij = k(x_i, x_j) + k(y_i, y_j) - k(x_i, y_j) - k(x_j, y_i), MMD²_u is the mean of h over i != j,
    and sigma² = 4 (mean over i of (mean over j of h_ij)² - (mean of h)²).
    """
    n = min(len(one), len(other))
    x, y = one[:n], other[:n]
    across = K[np.ix_(x, y)]
    h = K[np.ix_(x, x)] + K[np.ix_(y, y)] - across - across.T
    squared = (h.sum() - np.trace(h)) / (n * (n - 1))
    variance = 4.0 * float((h.mean(axis=1) ** 2).mean() - h.mean() ** 2)
    return float(squared / np.sqrt(max(variance, 0.0) + LEAST_VARIANCE))
