"""The whole kernel matrix in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.geometry.features import Features, Floats
from clustersplit_cli.core.geometry.kernels import Kernel
from clustersplit_cli.core.geometry.low_rank import LowRankKernel
from clustersplit_cli.core.geometry.protocol import KERNEL_TILE, ByProducts, kernel_diagonal
from clustersplit_cli.core.geometry.spectrum import Spectrum, dense_spectrum
from clustersplit_cli.core.geometry.symmetric import SymmetricMatrix
from clustersplit_cli.core.parallel import Workers, tiles
from clustersplit_cli.progress import Progress, silent

TILE_COLUMNS = 4 * KERNEL_TILE
FEW = 16
"""A part of the rows, as a divisor, up to which multiplying only those that moved pays."""
MAPPED_ROWS = 1024
SUMMED_ROWS = 64
"""Rows of a tile that are summed in the kernel's own precision before sums go on in float64."""
MANY_ROWS = 2048
"""From here on a pass over the matrix for the sums of its rows costs more than taking them along."""
SUMMED_DOUBLE = 4096
"""Up to this many groups of rows their kernel is held in float64."""
SUMMED_STRIP = 256
"""Rows that are summed over their groups at a time."""


@dataclass(frozen=True)
class DenseGeometry(ByProducts):
    """The whole kernel matrix in memory.

    Attributes
    ----------
    known_row_sums : taken along while the matrix was computed, if there are many rows: over short pieces
        in its own precision.
    row_trace : the trace of the kernel between rows, where this one is between groups of them.
    """

    matrix: SymmetricMatrix
    diagonal: NDArray[np.float64]
    workers: Workers
    known_row_sums: NDArray[np.float64] | None = None
    row_trace: float | None = None
    is_nonnegative: bool = False
    name: str = "dense"
    trace_error: float = 0.0
    has_entries = True

    @property
    def trace(self) -> float:
        """Sum of the matrix's diagonal, or of that between rows."""
        return float(self.diagonal.sum()) if self.row_trace is None else self.row_trace

    @cached_property
    def row_sums(self) -> NDArray[np.float64]:
        """K 1, shape (n,)."""
        known = self.known_row_sums
        return np.asarray(self.apply(np.ones((self.n, 1)))[:, 0], np.float64) if known is None else known

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.matrix.n

    @property
    def search_dtype(self) -> np.dtype[Any]:
        """The matrix's own precision."""
        return self.matrix.dtype

    def measure(self, vectors: Floats) -> tuple[Floats, NDArray[np.float64]]:
        """Multiply tile by tile; sums over tiles are added in float64."""
        product = self.matrix.multiply(vectors, self.workers)
        energy = np.einsum("ij,ji->i", product, vectors, dtype=np.float64)
        return product.astype(vectors.dtype, copy=False).T, np.asarray(energy)

    def block(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
        """Gather K[left][:, right]."""
        return self.matrix.gather(left, right, self.workers).astype(np.float64)

    def energy(self, vectors: Floats) -> NDArray[np.float64]:
        """Multiply and sum tile by tile."""
        return self.matrix.energy(vectors, self.workers)

    def columns(self, landmarks: NDArray[np.int64]) -> Floats:
        """Pick out columns."""
        return self.matrix.columns(landmarks, self.workers)

    def cross(self, rows: NDArray[np.int64], landmarks: NDArray[np.int64]) -> Floats:
        """Gather the entries."""
        return self.matrix.gather(rows, landmarks, self.workers)

    def combine(self, landmarks: NDArray[np.int64], coefficients: Floats) -> Floats:
        """Multiply the landmarks' columns, in the coefficients' precision; any rows may be landmarks."""
        return self.matrix.combine(landmarks, coefficients)

    def spectrum(
        self, limits: ValidationQuotas, z0: NDArray[np.float64], low_rank: LowRankKernel
    ) -> tuple[Spectrum, float]:
        """Leading eigenpairs, and what the trace and the Frobenius norm leave for all others."""
        return dense_spectrum(self.matrix, self.trace, limits, z0, low_rank, self.workers)

    def group_sums(self, groups: NDArray[np.int64]) -> DenseGeometry:
        """Sum the matrix over groups of rows on both sides."""
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        count = len(starts)
        ends = np.append(starts[1:], len(order))
        summed: Floats = np.empty((count, count), np.float64 if count <= SUMMED_DOUBLE else self.matrix.dtype)

        def one(tile: tuple[int, int]) -> None:
            first, last = tile
            rows = order[starts[first] : ends[last - 1]]
            within = starts[first:last] - starts[first]
            strip = np.add.reduceat(self.matrix.gather(rows, order), within, axis=0, dtype=np.float64)
            summed[first:last] = np.add.reduceat(strip, starts, axis=1)

        self.workers.run(one, _strips(ends - starts))
        summed[:] = (summed + summed.T) / 2
        diagonal = summed.diagonal().astype(np.float64)
        return replace(
            self,
            matrix=SymmetricMatrix.of(summed),
            diagonal=diagonal,
            known_row_sums=None,
            row_trace=self.trace,
        )


def _strips(sizes: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Cut groups into runs of about `SUMMED_STRIP` rows."""
    piece = np.cumsum(sizes) // SUMMED_STRIP
    first = np.flatnonzero(np.diff(piece, prepend=-1))
    return list(zip(first.tolist(), np.append(first[1:], len(sizes)).tolist(), strict=True))


def dense_geometry(
    features: Features, kernel: Kernel, workers: Workers, progress: Progress = silent
) -> DenseGeometry:
    """Compute the kernel matrix, each pair of rows once."""
    n = features.shape[0]
    dtype = np.float32 if features.raw.dtype.itemsize <= 4 else np.float64
    matrix = SymmetricMatrix.empty(n, dtype, KERNEL_TILE)
    # Rows are needed once per tile: mapping them all beforehand pays while they are fewer than the kernel's.
    rows, terms = _mapped(features, kernel, workers) if features.shape[1] <= n else (None, None)
    diagonal = kernel_diagonal(features, kernel, workers)

    def block(start: int, stop: int) -> Floats:
        return features.block(start, stop) if rows is None else rows[start:stop]

    def one(job: tuple[int, tuple[int, int]]) -> None:
        index, (left, right) = job
        strip, first = matrix.strips[index], index * KERNEL_TILE
        here, there = (first, first + len(strip)), (first + left, first + right)
        known = None if terms is None else (terms[slice(*here)], terms[slice(*there)])
        target = strip[:, left:right]
        kernel.tile(block(*here), block(*there), known, target)
        if left == 0:
            square = strip[:, : len(strip)]
            # A product with itself need not be symmetric to the last bit, nor need its diagonal equal
            # the rows' own squares: one value serves both.
            square[...] = (square + square.T) / 2
            np.fill_diagonal(square, diagonal[slice(*here)])
        if n > MANY_ROWS:
            parts[job] = _sums(target, len(strip) if left == 0 else 0)

    parts: dict[tuple[int, tuple[int, int]], tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
    jobs = [
        (index, columns)
        for index, strip in enumerate(matrix.strips)
        for columns in tiles(strip.shape[1], TILE_COLUMNS)
    ]
    workers.run(one, jobs, lambda done: progress("kernel", done, len(jobs)))
    row_sums = np.zeros(n)
    for job in jobs if parts else ():  # in a fixed order
        across, down = parts[job]
        first, end = job[0] * KERNEL_TILE, job[0] * KERNEL_TILE + job[1][1]
        row_sums[first : first + len(across)] += across
        row_sums[end - len(down) : end] += down
    stored = diagonal.astype(dtype).astype(np.float64)
    return DenseGeometry(
        matrix,
        stored,
        workers,
        row_sums if parts else None,
        is_nonnegative=kernel.is_nonnegative,
    )


def _mapped(features: Features, kernel: Kernel, workers: Workers) -> tuple[Floats, Floats]:
    """All rows after all maps, and their terms."""
    rows: Floats = np.empty(features.shape, features.dtype)
    terms: Floats = np.empty(len(rows), features.dtype)

    def one(tile: tuple[int, int]) -> None:
        terms[slice(*tile)] = kernel.terms(features.write(*tile, rows[slice(*tile)]))

    workers.run(one, tiles(len(rows), MAPPED_ROWS))
    return rows, terms


def _sums(tile: Floats, square: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums of a tile's rows, and of its columns but the first `square`, whose mirror image is in the tile."""
    across, down = np.empty(len(tile)), np.zeros(tile.shape[1] - square)
    ones = np.ones(max(tile.shape), tile.dtype)
    for top, bottom in tiles(len(tile), SUMMED_ROWS):
        rows = tile[top:bottom]
        across[top:bottom] = rows @ ones[: tile.shape[1]]
        down += ones[: bottom - top] @ rows[:, square:]
    return across, down
