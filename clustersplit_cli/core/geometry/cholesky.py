"""Randomly pivoted Cholesky: factors F of a kernel matrix K, a few columns each, and what FF' lacks of K.

K - FF' has no negative eigenvalue, so for weights z of any split 0 <= z'Kz - z'FF'z <= tr(K - FF') |z|². The
trace is the sum of the diagonal, which every step brings up to date: the error of every split is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Cells
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import Kernel
from clustersplit_cli.core.geometry.protocol import kernel_diagonal
from clustersplit_cli.core.geometry.scatter import cell_means
from clustersplit_cli.core.parallel import Workers, tiles
from clustersplit_cli.progress import Progress, silent

BLOCK = 128
"""Pivots that are drawn at a time."""
TILE = 2048
SEEN_BLOCKS = 3
"""Blocks after which the decay of the residual tells where it leads."""
LEAST_PIVOT = 1e-10
"""Share of a block's largest residual below which a pivot is all but a combination of the others."""
EPSILON = float(np.finfo(np.float64).eps)
ROUNDINGS = 64.0
"""Times the precision: what rounding may hide of the residual, as a share of the kernel's trace."""

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class PivotedCholesky:
    """Factors of a kernel matrix.

    Attributes
    ----------
    factors : (n, r), in float64.
    residual : at least the trace of K - FF'.
    is_enough : whether that is as little as was asked for.
    """

    factors: NDArray[np.float64]
    residual: float
    is_enough: bool

    @property
    def rank(self) -> int:
        """Columns of F."""
        return int(self.factors.shape[1])


def pivoted_cholesky(
    features: Features,
    kernel: Kernel,
    rng: np.random.Generator,
    workers: Workers,
    *,
    most: int,
    enough: float = 0.0,
    progress: Progress = silent,
) -> PivotedCholesky:
    """Factor the kernel between prepared rows until little is left of its trace.

    Pivots are drawn in proportion to what is left of the diagonal, in blocks. Once the decay of the residual
    tells that `most` columns will not do, no more are computed.

    Parameters
    ----------
    most : columns at most.
    enough : the residual at which to stop; 0 for as many columns as there may be.
    """
    n = features.shape[0]
    left = kernel_diagonal(features, kernel, workers)
    trace, largest = float(left.sum()), float(left.max(initial=0.0))
    hidden = ROUNDINGS * EPSILON * trace
    factors, rank, pieces = np.empty((n, min(most, n))), 0, tiles(n, TILE)
    passed: list[tuple[int, float]] = []
    residual = trace + hidden
    while left.any() and residual > enough and rank < min(most, n):
        if enough > 0.0 and _falls_short(passed, most, enough):
            break
        known = factors[:, :rank]
        drawn = np.unique(rng.choice(n, min(BLOCK, min(most, n) - rank), p=left / left.sum()))
        pivots, inverse = _independent(features, kernel, known, drawn, EPSILON * n * largest)
        if len(pivots) == 0:
            break
        at, columns = features.take(pivots, np.float64), slice(rank, rank + len(pivots))
        terms, weights = kernel.terms(at), known[pivots].T

        def one(tile: tuple[int, int]) -> None:
            rows = slice(*tile)
            block = features.block(*tile, np.float64)
            values = kernel.tile(block, at, (kernel.terms(block), terms))  # noqa: B023
            values -= factors[rows, : columns.start] @ weights  # noqa: B023
            found = np.matmul(values, inverse, out=factors[rows, columns])  # noqa: B023
            left[rows] -= np.einsum("ij,ij->i", found, found)

        workers.run(one, pieces)
        np.maximum(left, 0.0, out=left)
        left[pivots] = 0.0
        rank += len(pivots)
        residual = float(left.sum()) + hidden
        passed.append((rank, residual))
        progress("factors", rank, most)
    return PivotedCholesky(factors[:, :rank], residual, residual <= enough)


def _independent(
    features: Features, kernel: Kernel, known: NDArray[np.float64], drawn: NDArray[np.int64], least: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Those of the drawn pivots that say something new, and R^-T of what is left among them, RR'."""
    from scipy.linalg import get_lapack_funcs  # takes longer to import than a small split to make

    rows, factors = features.take(drawn, np.float64), known[drawn]
    among = np.asarray(kernel.tile(rows, rows), dtype=np.float64) - factors @ factors.T
    least = max(least, LEAST_PIVOT * float(among.diagonal().max()))
    (factor,) = get_lapack_funcs(("pstrf",), (among,))
    lower, order, count, _ = factor(among, tol=least, lower=1)
    inverse = np.linalg.inv(np.tril(lower[:count, :count])).T if count else np.empty((0, 0))
    return drawn[order[:count] - 1], np.ascontiguousarray(inverse)


def _falls_short(passed: list[tuple[int, float]], most: int, enough: float) -> bool:
    """Whether the residual would stay above what is asked for even if it decayed on as in the last blocks."""
    if len(passed) < SEEN_BLOCKS:
        return False
    (before, more), (rank, less) = passed[-SEEN_BLOCKS], passed[-1]
    pace = np.log(more / less) / (rank - before)
    return bool(np.log(less / enough) > pace * (most - rank))


def leading_discrepancy(factors: NDArray[np.float64], cells: Cells, share: float) -> float:
    """MMD² of a split along the direction in which the factors vary most within cells: an easy one to better.

    Parameters
    ----------
    share : of every cell that goes to one side.
    """
    centred = factors - cell_means(cells, factors)[cells.codes]
    _, directions = np.linalg.eigh(centred.T @ centred)
    order = np.lexsort((centred @ directions[:, -1], cells.codes))
    first = np.cumsum(cells.sizes) - cells.sizes
    place = np.arange(len(order)) - first[cells.codes[order]]
    chosen = np.zeros(len(order), dtype=np.bool_)
    chosen[order] = place < np.round(share * cells.sizes)[cells.codes[order]]
    if not 0 < chosen.sum() < len(chosen):
        return 0.0
    difference: NDArray[Any] = factors[chosen].mean(axis=0) - factors[~chosen].mean(axis=0)
    return float(difference @ difference)


def squared_length(shares: Sequence[Fraction] | Sequence[float], n: int) -> float:
    """|z|² of a split's weights z, and of several parts the mean over pairs as it is taken of MMD²."""
    pairs = (1.0 - sum(float(share) ** 2 for share in shares)) / 2.0
    return (len(shares) - 1) / (n * pairs)
