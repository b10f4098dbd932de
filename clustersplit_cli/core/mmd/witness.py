"""What tells two groups of rows apart: the witness of every row, and the columns whose means differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import BLOCK_BYTES, Features
from clustersplit_cli.core.mmd.sums import GroupSums, Rows
from clustersplit_cli.core.parallel import Workers, tiles


def witness(sums: GroupSums, first: int, second: int) -> NDArray[np.float64]:
    """Mean kernel value of every row with the second group minus that with the first, shape (n,).

    Large where rows look like the second group; MMD² is its mean over the second minus that over the first.
    """
    assert sums.rows is not None
    means = sums.rows / sums.sizes
    return np.asarray(means[:, second] - means[:, first])


def column_shifts(
    features: Features,
    pairs: Sequence[tuple[Rows, Rows]],
    weights: Sequence[float],
    workers: Workers,
) -> NDArray[np.float64]:
    """Mean of every column in the second group minus that in the first, in units of the column's spread.

    Parameters
    ----------
    pairs : the two groups, once per cell.
    weights : of the cells; they sum to one.

    Returns
    -------
    (d,) where the spread is the standard deviation over all rows of the pairs; 0 for constant columns.
    """
    n = sum(len(group) for pair in pairs for group in pair)
    sums = [[_column_sum(features, group, workers) for group in pair] for pair in pairs]
    centre = sum((total for pair in sums for total in pair), np.zeros(features.shape[1])) / n
    # A second pass, so that columns far from zero do not lose their spread to rounding.
    squares = [_column_sum(features, group, workers, centre) for pair in pairs for group in pair]
    spread = np.sqrt(sum(squares, np.zeros_like(centre)) / n)
    shift = np.zeros_like(centre)
    for weight, pair, (first, second) in zip(weights, pairs, sums, strict=True):
        shift += weight * (second / len(pair[1]) - first / len(pair[0]))
    # A constant column has a spread of rounding errors.
    varies = spread > 1e-12 * np.abs(centre)
    return np.divide(shift, spread, out=np.zeros_like(shift), where=varies)


def _column_sum(
    features: Features, rows: Rows, workers: Workers, centre: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Sum the columns over some rows or, around a centre, their squared distances from it."""

    def one(piece: tuple[int, int]) -> NDArray[np.float64]:
        block = features.take(rows[slice(*piece)], np.float64)
        if centre is None:
            return np.asarray(block.sum(axis=0))
        block -= centre
        return np.asarray(np.einsum("ij,ij->j", block, block))

    d = features.shape[1]
    pieces = tiles(len(rows), max(1, BLOCK_BYTES // (8 * max(1, d))))
    return sum(workers.map(one, pieces), np.zeros(d))
