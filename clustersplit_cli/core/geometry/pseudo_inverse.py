"""The square root of the pseudo-inverse of a kernel among landmarks."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Floats

INVERTED_AT_ONCE = 64
FAR_ABOVE = 10.0
POWER_STEPS = 16
"""After so many steps an estimate is seldom more than a few per cent too small, let alone ten times."""


def inverse_root(gram: Floats, noise: np.dtype[Any]) -> NDArray[np.float64]:
    """Return M with M M' = W⁺, dropping eigenvalues that rounding in `noise` precision could have made.

    Landmarks may outnumber the kernel's rank, and only eigenvalues tell where to cut. Where all of them are
    far above the cut the inverse of a triangular root does, in a fraction of the time.
    """
    matrix = gram.astype(np.float64)
    cut = 10 * float(np.finfo(noise).eps)
    least = FAR_ABOVE * cut * float(np.abs(matrix).sum(axis=0).max())
    with suppress(np.linalg.LinAlgError):
        triangular: NDArray[np.float64] = np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
        # The smallest eigenvalue is no larger than any squared pivot.
        if float(np.diagonal(triangular).min()) ** 2 > least:
            inverse = _inverse_of_triangular(triangular)
            if 1.0 / _largest_eigenvalue(inverse) > least:
                return np.asarray(inverse.T)
    values, vectors = np.linalg.eigh(matrix)
    keep = values > cut * values[-1]
    return np.asarray(vectors[:, keep] / np.sqrt(values[keep]), dtype=np.float64)


def _inverse_of_triangular(lower: NDArray[np.float64]) -> NDArray[np.float64]:
    """Invert a lower triangular matrix by halves; numpy alone has no quicker way."""
    n = len(lower)
    if n <= INVERTED_AT_ONCE:
        return np.tril(np.linalg.inv(lower))
    half = n // 2
    result = np.zeros((n, n))
    top, bottom = _inverse_of_triangular(lower[:half, :half]), _inverse_of_triangular(lower[half:, half:])
    result[:half, :half], result[half:, half:] = top, bottom
    result[half:, :half] = -(bottom @ (lower[half:, :half] @ top))
    return result


def _largest_eigenvalue(root: NDArray[np.float64]) -> float:
    """Estimate the largest eigenvalue of R'R by a few steps of the power method; it is never too large."""
    vector, length = np.random.default_rng(0).standard_normal(len(root)), 1.0
    for _ in range(POWER_STEPS):
        vector = root.T @ (root @ (vector / np.linalg.norm(vector)))
        length = float(np.linalg.norm(vector))
    return length
