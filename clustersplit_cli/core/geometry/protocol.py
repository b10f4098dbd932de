"""The one thing the algorithm asks of a kernel: multiply it by a block of vectors.

Dense, linear and Nyström kernels are the same algorithm over different geometries, in `dense` and
`factored`. The precision of `apply` is that of the block it is given: float32 for the search, float64 where
results are stated.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Features, Floats
from clustersplit_cli.core.geometry.kernels import Kernel
from clustersplit_cli.core.parallel import Workers

KERNEL_TILE = 512
INVERTED_AT_ONCE = 64
FAR_ABOVE = 10.0
POWER_STEPS = 16
"""After so many steps an estimate is seldom more than a few per cent too small, let alone ten times."""


class Geometry(Protocol):
    """A symmetric positive semi-definite kernel matrix K on n rows that can be multiplied by vectors."""

    @property
    def name(self) -> str:
        """How the kernel is held: dense, linear or nystrom."""

    @property
    def n(self) -> int:
        """Number of rows."""

    @property
    def diagonal(self) -> NDArray[np.float64]:
        """The diagonal of K, shape (n,); for Nyström the exact kernel's, which is nowhere smaller."""

    @property
    def trace(self) -> float:
        """Sum of K's diagonal."""

    @property
    def trace_error(self) -> float:
        """Standard error of the trace: 0 unless it was estimated from a sample of rows."""

    @property
    def search_dtype(self) -> np.dtype[Any]:
        """The precision of K itself: more is wasted on a search."""

    def apply(self, vectors: Floats) -> Floats:
        """Return K @ vectors for vectors of shape (n, r), in their precision."""

    def measure(self, vectors: Floats) -> tuple[Floats, NDArray[np.float64]]:
        """Return K @ vectors, and for each vector v its v'Kv, summed in float64."""

    def block(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return K[left][:, right]."""

    def energy(self, vectors: Floats) -> NDArray[np.float64]:
        """Return v'Kv for each vector v."""

    def draw_landmarks(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw rows to stand for all; the columns of K at these rows should be cheap to get."""

    def cross(self, rows: NDArray[np.int64], landmarks: NDArray[np.int64]) -> Floats:
        """Return K[rows][:, landmarks] in the search's precision, for landmarks drawn above."""

    def combine(self, landmarks: NDArray[np.int64], coefficients: Floats) -> Floats:
        """Return K[:, landmarks] @ coefficients in the search's precision, for landmarks drawn above."""


def kernel_diagonal(features: Features, kernel: Kernel, workers: Workers) -> NDArray[np.float64]:
    """Kernel value of every row with itself, in float64."""
    if kernel.name == "rbf":
        return np.ones(features.shape[0])
    parts = workers.map(
        lambda tile: kernel.diagonal(features.block(*tile, dtype=np.float64)), features.row_tiles()
    )
    return np.concatenate(list(parts))


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


def choose_landmarks(n: int, q: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw q of n rows uniformly without replacement, in ascending order."""
    return np.sort(rng.choice(n, size=min(q, n), replace=False)).astype(np.int64)


def shuffled(landmarks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Put landmarks into an order, always the same, in which the first of them can stand for all."""
    return np.random.default_rng(0).permutation(landmarks)
