"""The permutation test of equal distributions: how often a random regrouping of the rows is as far apart.

All regroupings are measured at once: with one column of the 0/1 matrix U per regrouping, the diagonal of
U'KU holds the kernel sums inside the first group, and K U is one batched matrix product, tile by tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Features, Floats
from clustersplit_cli.core.geometry.kernels import Kernel
from clustersplit_cli.core.mmd.estimators import two_sample
from clustersplit_cli.core.mmd.sums import FACTOR_ROWS, TILE, Factors, Rows, TilePlace, over_tiles
from clustersplit_cli.core.parallel import Workers, tiles
from clustersplit_cli.progress import Progress, silent

Draws = NDArray[np.int8]


@dataclass(frozen=True)
class Permuted:
    """MMD² of the groups as they are, in place 0, and of B regroupings of the same rows.

    `resolution` is the difference that rounding can make: closer values are ties.
    """

    squared: NDArray[np.float64]
    resolution: float

    @property
    def p_value(self) -> float:
        """(1 + #{regroupings at least as far apart}) / (1 + B), which is never 0."""
        as_far = self.squared[1:] >= self.squared[0] - self.resolution
        return float((1 + int(as_far.sum())) / len(self.squared))

    @property
    def random_mean(self) -> float:
        """The mean MMD of the regroupings."""
        return float(np.sqrt(np.maximum(self.squared[1:], 0.0)).mean())


def regroupings(first: int, second: int, count: int, rng: np.random.Generator) -> Draws:
    """Draw who is in the first group, shape (first + second, 1 + count); column 0 is the given grouping."""
    draws = np.zeros((1 + count, first + second), dtype=np.int8)
    draws[:, :first] = 1
    rng.permuted(draws[1:], axis=1, out=draws[1:])
    return np.ascontiguousarray(draws.T)


@dataclass(frozen=True)
class _Sums:
    """Kernel sums of every regrouping, shape (1 + B,), and of all rows together.

    Attributes
    ----------
    inside : u'Ku, within the first group.
    with_all : u'K1, between the first group and all rows.
    diagonal : sum of K_ii over the first group.
    total, trace : 1'K1 and tr K.
    precision : the relative rounding error of a kernel value.
    """

    inside: NDArray[np.float64]
    with_all: NDArray[np.float64]
    diagonal: NDArray[np.float64]
    total: float
    trace: float
    precision: float


def permuted_exactly(
    features: Features,
    kernel: Kernel,
    groups: tuple[Rows, Rows],
    draws: Draws,
    estimator: str,
    workers: Workers,
    progress: Progress = silent,
) -> Permuted:
    """Measure all regroupings in one symmetric pass over blocks of the kernel.

    Parameters
    ----------
    groups : rows of the two groups.
    draws : (n, 1 + B), from `regroupings`.
    """
    inside = np.zeros(draws.shape[1])
    row_sums, diagonal = np.zeros(len(draws)), np.zeros(len(draws))

    def reduce(place: TilePlace, values: Floats) -> tuple[NDArray[np.float64], ...]:
        left, right = (draws[part].astype(values.dtype) for part in (place.rows, place.columns))
        found = np.einsum("ij,ij->j", left, values @ right, dtype=np.float64)
        across = values.sum(axis=1, dtype=np.float64)
        other = values.diagonal() if place.is_on_diagonal else values.sum(axis=0, dtype=np.float64)
        return found, across, other.astype(np.float64)

    order = np.concatenate(groups)
    for place, (found, across, other) in over_tiles(features, kernel, order, workers, reduce, progress):
        row_sums[place.rows] += across
        if place.is_on_diagonal:
            diagonal[place.rows] = other
            inside += found
        else:
            row_sums[place.columns] += other
            inside += 2.0 * found
    with_all, own = _summed_over_first(draws, np.stack([row_sums, diagonal], axis=1)).T
    precision = float(np.finfo(features.dtype).eps)
    sums = _Sums(inside, with_all, own, float(row_sums.sum()), float(diagonal.sum()), precision)
    return _estimates(sums, groups, estimator)


def permuted_by_factors(
    factors: Factors, groups: tuple[Rows, Rows], draws: Draws, estimator: str, workers: Workers
) -> Permuted:
    """Measure all regroupings through the kernel's factors; parameters as in `permuted_exactly`."""
    order = np.concatenate(groups)
    diagonal = np.zeros(len(order))  # costly under Nyström, and needed by one estimator only

    def gather(piece: tuple[int, int]) -> NDArray[np.float64]:
        block = factors.unmixed(order[slice(*piece)])
        if estimator == "unbiased":
            low_rank = factors.mix(block.astype(np.float64, copy=False))
            diagonal[slice(*piece)] = np.einsum("ij,ij->i", low_rank, low_rank)
        # One more regrouping, with all rows in the first group, gives the sum over all rows.
        taken = np.pad(draws[slice(*piece)], ((0, 0), (0, 1)), constant_values=1)
        return np.asarray(taken.astype(block.dtype).T @ block, dtype=np.float64)

    first, *others = workers.map(gather, tiles(len(order), FACTOR_ROWS))
    for part in others:
        first += part
    low_rank = factors.mix(first)
    low_rank, whole = low_rank[:-1], low_rank[-1]
    sums = _Sums(
        inside=np.einsum("ij,ij->i", low_rank, low_rank),
        with_all=low_rank @ whole,
        diagonal=_summed_over_first(draws, diagonal[:, None])[:, 0],
        total=float(whole @ whole),
        trace=float(diagonal.sum()),
        precision=float(np.finfo(factors.precision).eps),
    )
    return _estimates(sums, groups, estimator)


def _summed_over_first(draws: Draws, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum values, shape (n, k), over the first group of every regrouping: shape (1 + B, k)."""
    total = np.zeros((draws.shape[1], values.shape[1]))
    for start, stop in tiles(len(draws), TILE):  # in pieces: the whole matrix as float64 would be large
        total += draws[start:stop].T.astype(np.float64) @ values[start:stop]
    return total


def _estimates(sums: _Sums, groups: tuple[Rows, Rows], estimator: str) -> Permuted:
    first, second = (len(group) for group in groups)
    across = sums.with_all - sums.inside
    squared = two_sample(
        estimator,
        (first, second),
        (sums.inside, sums.total - sums.with_all - across),
        across,
        (sums.diagonal, sums.trace - sums.diagonal),
    )
    typical = abs(sums.total) / (first + second) ** 2 + float(np.abs(squared).max())
    # Sums are rounded in float64 even where kernel values are rounded more coarsely.
    return Permuted(squared, max(4 * sums.precision, 64 * float(np.finfo(np.float64).eps)) * typical)
