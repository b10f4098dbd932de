"""The one thing the algorithm asks of a kernel: multiply it by a block of vectors.

Dense, linear and Nyström kernels are the same algorithm over different geometries, in `dense` and
`factored`. The precision of `apply` is that of the block it is given: float32 for the search, float64 where
results are stated.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.features import Features, Floats
from clustersplit_cli.core.kernels import Kernel
from clustersplit_cli.core.workers import Workers

KERNEL_TILE = 512


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

    An eigenvalue cut-off rather than Cholesky: landmarks may outnumber the kernel's rank.
    """
    values, vectors = np.linalg.eigh(gram.astype(np.float64))
    keep = values > 10 * float(np.finfo(noise).eps) * values[-1]
    return np.asarray(vectors[:, keep] / np.sqrt(values[keep]), dtype=np.float64)


def choose_landmarks(n: int, q: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw q of n rows uniformly without replacement, in ascending order."""
    return np.sort(rng.choice(n, size=min(q, n), replace=False)).astype(np.int64)
