"""The permutation test of equal distributions: how often a random regrouping of the rows is as far apart.

All regroupings are measured at once: with one column of the 0/1 matrix U per regrouping, the diagonal of
U'KU holds the kernel sums inside the first group, and K U is one batched matrix product, tile by tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.features import Features
from clustersplit_cli.core.kernel_sums import FACTOR_ROWS, Factors, Rows, Tile, over_tiles
from clustersplit_cli.core.kernels import Kernel
from clustersplit_cli.core.mmd import two_sample
from clustersplit_cli.core.workers import Workers, tiles
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


def regroupings(first: int, second: int, count: int, rng: np.random.Generator) -> Draws:
    """Draw memberships in the first group, shape (first + second, 1 + count); column 0 is the given grouping."""
    draws = np.zeros((1 + count, first + second), dtype=np.int8)
    draws[:, :first] = 1
    rng.permuted(draws[1:], axis=1, out=draws[1:])
    return np.ascontiguousarray(draws.T)


def permuted_exactly(
    features: Features,
    kernel: Kernel,
    groups: tuple[Rows, Rows],
    draws: Draws,
    estimator: str,
    workers: Workers,
    progress: Progress = silent,
) -> Permuted:
    """Measure all regroupings in one symmetric pass over tiles of the kernel.

    Parameters
    ----------
    groups : rows of the two groups.
    draws : (n, 1 + B), from `regroupings`.
    """
    n = len(draws)
    inside = np.zeros(draws.shape[1])
    row_sums, diagonal = np.zeros(n), np.zeros(n)

    def reduce(tile: Tile) -> tuple[Tile, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        kind = tile.values.dtype
        left, right = draws[tile.rows].astype(kind), draws[tile.columns].astype(kind)
        found = np.einsum("ij,ij->j", left, tile.values @ right, dtype=np.float64)
        across = tile.values.sum(axis=1, dtype=np.float64)
        down = tile.values.sum(axis=0, dtype=np.float64)
        return Tile(tile.rows, tile.columns, tile.values[:0], tile.diagonal), found, across, down

    precision = 0.0
    for tile, found, across, down in over_tiles(
        features, kernel, np.concatenate(groups), workers, reduce, progress
    ):
        precision = float(np.finfo(tile.values.dtype).eps)
        row_sums[tile.rows] += across
        if tile.diagonal is None:
            row_sums[tile.columns] += down
            inside += 2.0 * found
        else:
            diagonal[tile.rows] = tile.diagonal
            inside += found
    return _permuted(inside, draws.T @ row_sums, draws.T @ diagonal, row_sums, diagonal, draws, estimator, precision)


def permuted_by_factors(
    factors: Factors,
    groups: tuple[Rows, Rows],
    draws: Draws,
    estimator: str,
    workers: Workers,
    progress: Progress = silent,
) -> Permuted:
    """Measure all regroupings through the kernel's factors; parameters as in `permuted_exactly`."""
    order = np.concatenate(groups)
    pieces = tiles(len(order), FACTOR_ROWS)
    wants_diagonal = estimator == "unbiased"

    def gather(piece: tuple[int, int]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], float]:
        block = factors.unmixed(order[slice(*piece)])
        taken = draws[slice(*piece)].astype(block.dtype)
        squares = np.zeros(len(block))
        if wants_diagonal:
            image = factors.mix(block.astype(np.float64, copy=False))
            squares = np.einsum("ij,ij->i", image, image)
        sums = np.asarray(taken.T @ block, dtype=np.float64)
        return sums, block.sum(axis=0, dtype=np.float64), squares, float(np.finfo(block.dtype).eps)

    taken: NDArray[np.float64] | None = None
    parts: list[NDArray[np.float64]] = []
    total, precision = np.zeros(1), 0.0
    for done, (part, whole, squares, precision) in enumerate(workers.map(gather, pieces), start=1):
        taken = part if taken is None else taken + part
        total = total + whole
        parts.append(squares)
        progress("permutations", done, len(pieces))
    assert taken is not None
    image, whole_image = factors.mix(taken), factors.mix(total[None, :])[0]
    diagonal = np.concatenate(parts)
    inside = np.einsum("ij,ij->i", image, image)
    return _from_sums(
        inside,
        image @ whole_image,
        float(whole_image @ whole_image),
        draws.T @ diagonal,
        float(diagonal.sum()),
        draws,
        estimator,
        precision,
    )
