"""The one thing the algorithm asks of a kernel: multiply it by a block of vectors.

Dense, linear and Nyström kernels are the same algorithm over different geometries. The precision of
`apply` is that of the block it is given: float32 for the search, float64 where results are stated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints import Constraints
from clustersplit_cli.core.features import Features, Floats
from clustersplit_cli.core.kernels import Kernel
from clustersplit_cli.core.symmetric import SymmetricMatrix
from clustersplit_cli.core.workers import Workers, tiles
from clustersplit_cli.progress import Progress, silent

KERNEL_TILE = 512
TRACE_ROWS = 16384
FACTOR_ROWS = 2048
BLOCK_ROWS = 256
CONVERTED_BYTES = 2 << 20
"""Size of a tile that has to be converted: the copy must stay in cache."""


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


@dataclass(frozen=True)
class DenseGeometry:
    """The whole kernel matrix in memory."""

    matrix: SymmetricMatrix
    diagonal: NDArray[np.float64]
    workers: Workers
    name: str = "dense"
    trace_error: float = 0.0

    @property
    def trace(self) -> float:
        """Sum of the matrix's diagonal."""
        return float(self.diagonal.sum())

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.matrix.n

    @property
    def search_dtype(self) -> np.dtype[Any]:
        """The matrix's own precision."""
        return self.matrix.dtype

    def apply(self, vectors: Floats) -> Floats:
        """Multiply tile by tile."""
        return self.measure(vectors)[0]

    def measure(self, vectors: Floats) -> tuple[Floats, NDArray[np.float64]]:
        """Multiply tile by tile; sums over tiles are added in float64."""
        product = self.matrix.multiply(vectors, self.workers)
        energy = np.einsum("ij,ji->i", product, vectors, dtype=np.float64)
        return product.astype(vectors.dtype, copy=False).T, np.asarray(energy)

    def block(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
        """Gather K[left][:, right]."""
        return self.matrix.gather(left, right).astype(np.float64)

    def energy(self, vectors: Floats) -> NDArray[np.float64]:
        """Multiply and sum."""
        return self.measure(vectors)[1]

    def draw_landmarks(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw among all rows."""
        return choose_landmarks(self.n, count, rng)

    def cross(self, rows: NDArray[np.int64], landmarks: NDArray[np.int64]) -> Floats:
        """Gather the entries."""
        return self.matrix.gather(rows, landmarks, self.workers)

    def combine(self, landmarks: NDArray[np.int64], coefficients: Floats) -> Floats:
        """Multiply the landmarks' columns, tile by tile."""
        result: Floats = np.empty((self.n, coefficients.shape[1]), dtype=self.search_dtype)

        def one(tile: tuple[int, int]) -> None:
            np.matmul(self.matrix.gather(np.arange(*tile), landmarks), coefficients, out=result[slice(*tile)])

        self.workers.run(one, tiles(self.n, self.matrix.height))
        return result


def dense_geometry(
    features: Features, kernel: Kernel, workers: Workers, progress: Progress = silent
) -> DenseGeometry:
    """Compute the kernel matrix, each pair of rows once."""
    n = features.shape[0]
    dtype = np.float32 if features.raw.dtype.itemsize <= 4 else np.float64
    matrix = SymmetricMatrix.empty(n, dtype, KERNEL_TILE)
    pieces = tiles(n, KERNEL_TILE)
    jobs = [(index, column) for index in range(len(pieces)) for column in pieces[index:]]

    # Rows are needed once per tile: mapping them all beforehand pays while they are fewer than the kernel's.
    rows = features.block(0, n) if features.shape[1] <= n else None

    def block(start: int, stop: int) -> Floats:
        return features.block(start, stop) if rows is None else rows[start:stop]

    diagonal = kernel_diagonal(features, kernel, workers)

    def one(job: tuple[int, tuple[int, int]]) -> None:
        index, (left, right) = job
        top, bottom = pieces[index]
        values = kernel.tile(block(top, bottom), block(left, right))
        if left == top:
            values = (values + values.T) / 2  # a product with itself need not be symmetric to the last bit
            # Nor need its diagonal equal the rows' own squares; one value serves both.
            np.fill_diagonal(values, diagonal[top:bottom])
        matrix.strips[index][:, left - top : right - top] = values

    workers.run(one, jobs, lambda done: progress("kernel", done, len(jobs)))
    return DenseGeometry(matrix, diagonal.astype(dtype).astype(np.float64), workers)


def kernel_diagonal(features: Features, kernel: Kernel, workers: Workers) -> NDArray[np.float64]:
    """Kernel value of every row with itself, in float64."""
    if kernel.name == "rbf":
        return np.ones(features.shape[0])
    parts = workers.map(
        lambda tile: kernel.diagonal(features.block(*tile, dtype=np.float64)), features.row_tiles()
    )
    return np.concatenate(list(parts))


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
