"""Estimators of the squared maximum mean discrepancy.

Biased (the paper's): MMD² = mean of K over pairs within T + mean over pairs within V - 2 mean across, each
row paired with itself too. Unbiased: without those pairs, so that it is 0 on average for equal distributions
and may be negative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Features, Floats
from clustersplit_cli.core.geometry.kernels import Kernel
from clustersplit_cli.core.mmd.sums import GroupSums, exact_sums
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.progress import Progress, silent

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
    """The unbiased estimate of MMD² on a subsample, its standard error, and the rows it used.

    `exact` is MMD² of all rows, biased as usual, where that was computed.
    """

    mmd_squared: float
    standard_error: float
    size: int
    exact: float | None = None


def exact_mmd(
    features: Features,
    kernel: Kernel,
    parts: Sequence[NDArray[np.int64]],
    workers: Workers,
    progress: Progress = silent,
) -> float:
    """MMD² between parts, biased, in one pass over the kernel; of more than two the mean as below."""
    sums = exact_sums(features, kernel, parts, workers, progress=progress)
    squared = squared_discrepancies(sums, "biased")
    sizes = np.array([len(part) for part in parts], dtype=np.float64)
    weights = np.triu(np.outer(sizes, sizes), k=1)
    return float((weights * squared).sum() / weights.sum())


def subsample_mmd(
    features: Features,
    kernel: Kernel,
    parts: Sequence[NDArray[np.int64]],
    size: int,
    rng: np.random.Generator,
    workers: Workers | None = None,
    sizes: Sequence[int] | None = None,
) -> SubsampleEstimate | None:
    """Estimate MMD² between parts under the exact kernel from up to `size` rows of each.

    Of more than two parts it is the mean over pairs, weighted by the product of their sizes. The standard
    error is that of the U-statistic's linear part, for two parts 2 sqrt(var_V(s)/m_V + var_T(s)/m_T), s being
    the leave-one-out witness. None if a part has fewer than two rows.

    Parameters
    ----------
    parts : the rows of every part.
    sizes : of the parts, where the rows have been drawn from them before.
    """
    drawn = [_draw(rows, size, rng) for rows in parts]
    if min(map(len, drawn)) < 2:
        return None
    samples = [features.take(rows, np.float64) for rows in drawn]
    pairs = list(combinations(range(len(parts)), 2))
    counts = list(map(len, parts)) if sizes is None else sizes
    weights = np.array([float(counts[a]) * counts[b] for a, b in pairs])
    weights /= weights.sum()
    jobs: list[Callable[[], Any]] = [partial(_across, kernel, samples[a], samples[b]) for a, b in pairs]
    jobs += [partial(_leave_one_out, kernel, sample) for sample in samples]
    done = list(map(_call, jobs) if workers is None else workers.map(_call, jobs))
    within = done[len(pairs) :]
    mmd_squared, linear = 0.0, [np.zeros(len(rows)) for rows in drawn]
    for (a, b), weight, (mean, of_a, of_b) in zip(pairs, weights.tolist(), done, strict=False):
        mmd_squared += weight * (within[a].mean() + within[b].mean() - 2.0 * mean)
        linear[a] += weight * (within[a] - of_a)
        linear[b] += weight * (within[b] - of_b)
    variance = sum(np.var(values, ddof=1) / len(values) for values in linear)
    return SubsampleEstimate(float(mmd_squared), float(2.0 * np.sqrt(variance)), sum(map(len, drawn)))


def _call(job: Callable[[], Any]) -> Any:
    return job()


def _across(kernel: Kernel, one: Floats, other: Floats) -> tuple[float, Floats, Floats]:
    """Mean kernel value between two samples, and of every row with the other sample."""
    values = kernel.tile(one, other)
    return float(values.mean()), values.mean(axis=1), values.mean(axis=0)


def _draw(rows: NDArray[np.int64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.sort(rng.choice(rows, size=size, replace=False)) if len(rows) > size else rows


def _leave_one_out(kernel: Kernel, rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Mean kernel value of each row with the others."""
    values = kernel.tile(rows, rows).astype(np.float64)
    np.fill_diagonal(values, 0.0)
    return np.asarray(values.sum(axis=1) / (len(rows) - 1))
