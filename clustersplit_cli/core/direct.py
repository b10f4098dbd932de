"""MMD and scatter of a split by their definitions: sums of kernel values in float64, sharing no short cut.

For checking. It knows nothing of geometries, tiles in lower precision, or the identities between the
quantities; it takes the raw features and spells every kernel out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.features import Floats
from clustersplit_cli.core.problem import Members
from clustersplit_cli.core.workers import Workers, tiles

ROWS = 512
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Definition:
    """MMD² = mean K(V,V) + mean K(T,T) - 2 mean K(V,T); SSq(A) = sum of K(a,a) - sum of K(A,A)/|A|."""

    mmd_squared: float
    psi: float
    ssq_total: float


def by_definition(
    raw: Floats,
    members: Members,
    *,
    kernel: str,
    gamma: float | None,
    degree: int | None,
    standardize: str,
    landmarks: NDArray[np.int64] | None,
    workers: Workers,
    on_done: Callable[[int, int], None] = lambda done, total: None,
) -> Definition:
    """Measure a split from the features themselves.

    Parameters
    ----------
    raw : (n, d)
    landmarks : rows of a Nyström approximation; None for the exact kernel.
    """
    rows = _standardized(raw.astype(np.float64), standardize)
    if kernel == "cosine":
        rows = _unit(rows)
    if kernel != "polynomial":
        rows -= rows.mean(axis=0)  # no distance and no MMD changes; less is lost to rounding

    def values(left: Matrix, right: Matrix) -> Matrix:
        product = left @ right.T
        if kernel == "rbf":
            assert gamma is not None
            squared = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :] - 2.0 * product
            return np.asarray(np.exp(-gamma * np.maximum(squared, 0.0)))
        if kernel == "polynomial":
            assert gamma is not None and degree is not None
            return np.asarray((gamma * product + 1.0) ** degree)
        return np.asarray(product)

    if landmarks is not None:
        held_as = np.float32 if raw.dtype.itemsize <= 4 else np.float64
        rows = _nystrom_rows(rows, rows[landmarks], values, float(np.finfo(held_as).eps))
    if landmarks is not None or kernel in ("linear", "cosine"):
        return _from_rows(rows, members)
    return _from_values(rows, members, values, workers, on_done)


def _from_rows(rows: Matrix, members: Members) -> Definition:
    """Where the kernel is an inner product: distances to means, and between them."""
    means = rows[members].mean(axis=0), rows[~members].mean(axis=0)
    psi = sum(
        float(((rows[side] - mean) ** 2).sum()) for side, mean in zip((members, ~members), means, strict=True)
    )
    total = float(((rows - rows.mean(axis=0)) ** 2).sum())
    return Definition(float(((means[0] - means[1]) ** 2).sum()), psi, total)


def _from_values(
    rows: Matrix,
    members: Members,
    values: Callable[[Matrix, Matrix], Matrix],
    workers: Workers,
    on_done: Callable[[int, int], None],
) -> Definition:
    """Sum all kernel values, block by block and each pair of blocks once."""
    sides = members.astype(np.float64)
    blocks = tiles(len(rows), ROWS)
    pairs = [(left, right) for i, left in enumerate(blocks) for right in blocks[i:]]

    def sums(pair: tuple[tuple[int, int], tuple[int, int]]) -> NDArray[np.float64]:
        (top, bottom), (first, last) = pair
        block = values(rows[top:bottom], rows[first:last])
        above, beside = sides[top:bottom], sides[first:last]
        both = float(above @ block @ beside)
        neither = float((1.0 - above) @ block @ (1.0 - beside))
        across = float(block.sum()) - both - neither
        twice = 1.0 if top == first else 2.0
        diagonal = float(np.trace(block)) if top == first else 0.0
        return np.array([twice * both, twice * neither, twice * across, diagonal])

    val, train, across, trace = 0.0, 0.0, 0.0, 0.0
    for done, part in enumerate(workers.map(sums, pairs), start=1):
        val, train, across, trace = val + part[0], train + part[1], across + part[2], trace + part[3]
        on_done(done, len(pairs))
    n_val, n_train = int(members.sum()), int((~members).sum())
    return Definition(
        val / n_val**2 + train / n_train**2 - across / (n_val * n_train),
        trace - val / n_val - train / n_train,
        trace - (val + train + across) / (n_val + n_train),
    )


def _nystrom_rows(
    rows: Matrix, landmarks: Matrix, values: Callable[[Matrix, Matrix], Matrix], precision: float
) -> Matrix:
    """Rows whose inner products are the approximated kernel: C V D^(-1/2), W = V D V'."""
    eigenvalues, vectors = np.linalg.eigh(values(landmarks, landmarks))
    kept = eigenvalues > 10 * precision * eigenvalues[-1]
    weights = vectors[:, kept] / np.sqrt(eigenvalues[kept])
    return np.concatenate(
        [values(rows[slice(*tile)], landmarks) @ weights for tile in tiles(len(rows), ROWS)]
    )


def _standardized(rows: Matrix, how: str) -> Matrix:
    if how == "zscore":
        # The computed deviation of a constant column may be a rounding error instead of 0.
        deviation = np.where(np.ptp(rows, axis=0) > 0, rows.std(axis=0), 1.0)
        return np.asarray((rows - rows.mean(axis=0)) / deviation)
    return _unit(rows) if how == "l2" else rows


def _unit(rows: Matrix) -> Matrix:
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows = rows / np.where(largest > 0, largest, 1.0)
    lengths = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0))
