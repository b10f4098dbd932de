"""Kernels through factors, never forming n x n: linear kernels, Nyström approximations, images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints import Constraints
from clustersplit_cli.core.features import Features, Floats
from clustersplit_cli.core.geometry import KERNEL_TILE, choose_landmarks, inverse_root, kernel_diagonal
from clustersplit_cli.core.kernels import Kernel
from clustersplit_cli.core.workers import Workers, tiles
from clustersplit_cli.progress import Progress, silent

TRACE_ROWS = 16384
FACTOR_ROWS = 2048
BLOCK_ROWS = 256
CONVERTED_BYTES = 2 << 20
"""Size of a tile that has to be converted: the copy must stay in cache."""


@dataclass(frozen=True)
class FactorGeometry:
    """K = F M M' F' for rows F of shape (n, p) read in blocks, and a small mixing matrix M, or M = I.

    Linear kernels have F = X. Nyström kernels have F = C, the kernel between all rows and the
    landmarks, and M M' = W⁺, the pseudo-inverse of the kernel among landmarks.
    """

    name: str
    n: int
    rows: Callable[[int, int, Any], Floats]  # (start, stop, dtype) -> block of F
    take: Callable[[NDArray[np.int64], Any], Floats]  # (rows, dtype) -> those rows of F
    width: int
    mixing: NDArray[np.float64] | None
    diagonal: NDArray[np.float64]
    trace: float
    search_dtype: np.dtype[Any]
    workers: Workers
    trace_error: float = 0.0
    landmarks: NDArray[np.int64] | None = None  # Nyström: the rows that F's columns stand for

    def apply(self, vectors: Floats) -> Floats:
        """Two passes over F."""
        return self.measure(vectors)[0]

    def measure(self, vectors: Floats) -> tuple[Floats, NDArray[np.float64]]:
        """Two passes over F, with sums over rows accumulated in float64."""
        summed, inner, energy = self._gather(vectors)
        dtype = vectors.dtype
        weights = (summed if self.mixing is None else self.mixing @ inner).astype(dtype)
        across = np.ascontiguousarray(weights.T)
        result = np.empty(vectors.shape[::-1], dtype=dtype)

        def spread(tile: tuple[int, int]) -> None:
            start, stop = tile
            np.matmul(across, self.rows(start, stop, dtype).T, out=result[:, start:stop])

        self.workers.run(spread, tiles(self.n, self._height(dtype)))
        return result.T, energy

    def energy(self, vectors: Floats) -> NDArray[np.float64]:
        """One pass over F: v'Kv = |M'F'v|²."""
        return self._gather(vectors)[2]

    def _gather(
        self, vectors: Floats
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """F'v and M'F'v for every vector v, and the squared length of the latter."""
        dtype = vectors.dtype

        def gather(tile: tuple[int, int]) -> NDArray[np.float64]:
            start, stop = tile
            return np.asarray(self.rows(start, stop, dtype).T @ vectors[start:stop], dtype=np.float64)

        summed = np.zeros((self.width, vectors.shape[1]))
        for part in self.workers.map(gather, tiles(self.n, self._height(dtype))):
            summed += part
        inner = summed if self.mixing is None else np.asarray(self.mixing.T @ summed)
        return summed, inner, np.asarray(np.einsum("ij,ij->j", inner, inner))

    def _height(self, dtype: Any) -> int:
        """Rows per tile."""
        if dtype == self.search_dtype:
            return FACTOR_ROWS
        return max(1, CONVERTED_BYTES // (int(np.dtype(dtype).itemsize) * self.width))

    def block(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
        """Compute K[left][:, right] from the factors of those rows."""
        a = self._factors(left)
        b = a if right is left else self._factors(right)
        result = np.empty((len(left), len(right)))
        self.workers.run(
            lambda tile: np.matmul(a[slice(*tile)], b.T, out=result[slice(*tile)]),
            tiles(len(left), BLOCK_ROWS),
        )
        return result

    def factor_moments(
        self, limits: Constraints, vector: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """For the factors B = F M: B'B, the sum of B's rows over each cell, and B'vector."""
        dtype = self.search_dtype
        mixing = None if self.mixing is None else self.mixing.astype(dtype)
        width = self.width if mixing is None else mixing.shape[1]
        n_cells = len(limits.target)

        def one(
            tile: tuple[int, int],
        ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
            start, stop = tile
            block = self.rows(start, stop, dtype)
            if mixing is not None:
                block = block @ mixing
            present, codes = np.unique(limits.cells.codes[start:stop], return_inverse=True)
            which = np.zeros((len(present), stop - start), dtype=dtype)
            which[codes.reshape(-1), np.arange(stop - start)] = 1
            sums = np.zeros((n_cells, width))
            sums[present] = which @ block
            return (
                np.asarray(block.T @ block, np.float64),
                sums,
                block.T.astype(np.float64) @ vector[start:stop],
            )

        gram, sums, at = np.zeros((width, width)), np.zeros((n_cells, width)), np.zeros(width)
        for gram_part, sum_part, at_part in self.workers.map(one, tiles(self.n, FACTOR_ROWS)):
            gram += gram_part
            sums += sum_part
            at += at_part
        return gram, sums, at

    def draw_landmarks(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw among all rows, or for Nyström among its landmarks, whose columns of K are columns of F."""
        if self.landmarks is None:
            return choose_landmarks(self.n, count, rng)
        return self.landmarks[choose_landmarks(len(self.landmarks), count, rng)]

    def cross(self, rows: NDArray[np.int64], landmarks: NDArray[np.int64]) -> Floats:
        """Multiply factors; for Nyström, pick columns of F."""
        taken = self.take(rows, self.search_dtype)
        if self.landmarks is not None:
            return taken[:, np.searchsorted(self.landmarks, landmarks)]
        product: Floats = taken @ self.take(landmarks, self.search_dtype).T
        return product

    def combine(self, landmarks: NDArray[np.int64], coefficients: Floats) -> Floats:
        """One pass over F."""
        columns: slice | NDArray[np.int64] = slice(None)
        if self.landmarks is not None:
            columns = np.searchsorted(self.landmarks, landmarks)
        else:
            coefficients = self.take(landmarks, self.search_dtype).T @ coefficients
        result: Floats = np.empty((self.n, coefficients.shape[1]), dtype=self.search_dtype)

        def one(tile: tuple[int, int]) -> None:
            start, stop = tile
            np.matmul(
                self.rows(start, stop, self.search_dtype)[:, columns], coefficients, out=result[start:stop]
            )

        self.workers.run(one, tiles(self.n, FACTOR_ROWS))
        return result

    def _factors(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        mixing = self.mixing
        factors = np.empty((len(rows), self.width if mixing is None else mixing.shape[1]))

        def one(tile: tuple[int, int]) -> None:
            some = self.take(rows[slice(*tile)], np.float64)
            factors[slice(*tile)] = some if mixing is None else some @ mixing

        self.workers.run(one, tiles(len(rows), BLOCK_ROWS))
        return factors


def linear_geometry(features: Features, kernel: Kernel, workers: Workers) -> FactorGeometry:
    """The linear (or cosine) kernel through the features themselves; never forms n x n."""
    n, d = features.shape
    diagonal = kernel_diagonal(features, kernel, workers)
    return FactorGeometry(
        name="linear",
        n=n,
        rows=features.block,
        take=features.take,
        width=d,
        mixing=None,
        diagonal=diagonal,
        trace=float(diagonal.sum()),
        search_dtype=np.dtype(features.dtype),
        workers=workers,
    )


def image_geometry(factors: Floats, workers: Workers) -> FactorGeometry:
    """The kernel whose factors are given as an array."""
    diagonal = np.einsum("ij,ij->i", factors, factors, dtype=np.float64)
    return FactorGeometry(
        name="image",
        n=len(factors),
        rows=lambda start, stop, dtype: factors[start:stop].astype(dtype, copy=False),
        take=lambda rows, dtype: factors[rows].astype(dtype, copy=False),
        width=factors.shape[1],
        mixing=None,
        diagonal=diagonal,
        trace=float(diagonal.sum()),
        search_dtype=factors.dtype,
        workers=workers,
    )


def nystrom_geometry(
    features: Features,
    kernel: Kernel,
    landmarks: NDArray[np.int64],
    workers: Workers,
    progress: Progress = silent,
) -> FactorGeometry:
    """The Nyström approximation K̂ = C W⁺ C' on the given landmark rows."""
    n, q = features.shape[0], len(landmarks)
    dtype = np.dtype(np.float32 if features.raw.dtype.itemsize <= 4 else np.float64)
    centres = features.take(landmarks)
    exact = features.take(landmarks, np.float64)
    matrix: Floats = np.empty((n, q), dtype=dtype)
    pieces = tiles(n, KERNEL_TILE)
    factored: list[NDArray[np.float64]] = []

    def one(tile: tuple[int, int] | None) -> None:
        if tile is None:
            factored.append(inverse_root(kernel.tile(exact, exact), dtype))
            return
        start, stop = tile
        matrix[start:stop] = kernel.tile(features.block(start, stop), centres)

    # Factoring keeps one worker busy for a while: it goes first, beside the rest.
    workers.run(one, [None, *pieces], lambda done: progress("landmarks", done, len(pieces) + 1))
    mixing = factored[0]
    trace, trace_error = _nystrom_trace(matrix, mixing.astype(dtype), workers)
    return FactorGeometry(
        name="nystrom",
        n=n,
        rows=lambda start, stop, kind: matrix[start:stop].astype(kind, copy=False),
        take=lambda rows, kind: matrix[rows].astype(kind, copy=False),
        width=q,
        mixing=mixing,
        diagonal=kernel_diagonal(features, kernel, workers),
        trace=trace,
        trace_error=trace_error,
        search_dtype=dtype,
        workers=workers,
        landmarks=landmarks,
    )


def _nystrom_trace(matrix: Floats, mixing: Floats, workers: Workers) -> tuple[float, float]:
    """Sum of the diagonal of C W⁺ C', and its standard error.

    The diagonal of all rows would cost several times the landmark matrix itself, and all it adds is a
    constant to Psi; beyond `TRACE_ROWS` rows a sample stands for it.
    """
    n = len(matrix)
    rows = choose_landmarks(n, TRACE_ROWS, np.random.default_rng(0))

    def squared_lengths(tile: tuple[int, int]) -> NDArray[np.float64]:
        factors = matrix[rows[slice(*tile)]] @ mixing
        return np.asarray(np.einsum("ij,ij->i", factors, factors), dtype=np.float64)

    found = np.concatenate(list(workers.map(squared_lengths, tiles(len(rows), KERNEL_TILE))))
    if len(rows) == n:
        return float(found.sum()), 0.0
    spread = float(found.std(ddof=1)) * np.sqrt((1.0 - len(rows) / n) / len(rows))
    return n * float(found.mean()), n * float(spread)
