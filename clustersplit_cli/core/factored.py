"""Kernels through factors, never forming n x n: linear kernels, Nyström approximations, images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints import Constraints
from clustersplit_cli.core.features import Affine, Features, Floats, Moments
from clustersplit_cli.core.geometry import KERNEL_TILE, choose_landmarks, inverse_root, kernel_diagonal
from clustersplit_cli.core.kernels import Kernel, half_squares
from clustersplit_cli.core.workers import Workers, tiles
from clustersplit_cli.progress import Progress, silent

TRACE_ROWS = 16384
FACTOR_ROWS = 2048
BLOCK_ROWS = 256
NEAR = 4.0
"""Squared length of the mean, in units of the total variance, up to which rounding hardly grows."""
SPAN_ROWS = 8192
"""Rows that one worker passes over at a time, tile by tile."""
CONVERTED_BYTES = 1 << 20
"""Size of a tile that has to be converted: the copy must stay in cache."""


@dataclass(frozen=True)
class Uncentred:
    """F as R - 1 offset': passes over R save the copy that centring takes, if R is near the centre."""

    rows: Callable[[int, int, Any], Floats]  # (start, stop, dtype) -> block of R
    offset: NDArray[np.float64]


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
    total: NDArray[np.float64]  # (p,), F'1
    search_dtype: np.dtype[Any]
    workers: Workers
    is_converted: bool = False  # whether every block of F is made anew, rather than a view
    uncentred: Uncentred | None = None
    trace_error: float = 0.0
    landmarks: NDArray[np.int64] | None = None  # Nyström: the rows that F's columns stand for

    def apply(self, vectors: Floats) -> Floats:
        """Two passes over F."""
        return self.measure(vectors)[0]

    def measure(self, vectors: Floats) -> tuple[Floats, NDArray[np.float64]]:
        """Two passes over F, with sums over rows accumulated in float64."""
        summed = self._gather(vectors)
        return self.spread(summed, vectors.dtype), self.square(summed)

    def energy(self, vectors: Floats) -> NDArray[np.float64]:
        """One pass over F: v'Kv = |M'F'v|²."""
        return self.square(self._gather(vectors))

    def mixed(self, summed: NDArray[np.float64]) -> NDArray[np.float64]:
        """M'y for y = F'v, shape (p, ...): where vectors v are inner products, v'Kw = (M'F'v)'(M'F'w)."""
        return summed if self.mixing is None else np.asarray(self.mixing.T @ summed)

    def square(self, summed: NDArray[np.float64]) -> NDArray[np.float64]:
        """v'Kv for each F'v of shape (p, r)."""
        inner = self.mixed(summed)
        return np.asarray(np.einsum("ij,ij->j", inner, inner))

    @cached_property
    def grand_total(self) -> float:
        """1'K1, the sum of all kernel values."""
        return float(self.square(self.total[:, None])[0])

    def spread(self, summed: NDArray[np.float64], dtype: Any) -> Floats:
        """One pass over F: K v for each F'v of shape (p, r), shape (n, r)."""
        return self._times(self._weights(summed).astype(dtype))

    def at(self, rows: NDArray[np.int64], summed: NDArray[np.float64]) -> NDArray[np.float64]:
        """K v at some rows, for F'v of shape (p,)."""
        weights, found = self._weights(summed), np.empty(len(rows))

        def one(tile: tuple[int, int]) -> None:
            np.matmul(self.take(rows[slice(*tile)], np.float64), weights, out=found[slice(*tile)])

        self.workers.run(one, tiles(len(rows), BLOCK_ROWS))
        return found

    def sum_of(self, rows: NDArray[np.int64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """F'v for a vector v that is zero but at some rows, shape (p,)."""

        def one(tile: tuple[int, int]) -> NDArray[np.float64]:
            return np.asarray(weights[slice(*tile)] @ self.take(rows[slice(*tile)], np.float64))

        summed = np.zeros(self.width)
        for part in self.workers.map(one, tiles(len(rows), BLOCK_ROWS)):
            summed += part
        return summed

    def sums_over(self, members: NDArray[np.bool_], dtype: Any) -> NDArray[np.float64]:
        """One pass over F: the sums of its rows over the members of each of r splits, shape (p, r).

        Parameters
        ----------
        members : (n, r)
        dtype : precision of the sums over a few rows; these sums are added in float64.
        """
        across = members.T
        return self._summed(lambda start, stop: across[:, start:stop].astype(dtype), len(across), dtype)

    def _weights(self, summed: NDArray[np.float64]) -> NDArray[np.float64]:
        return summed if self.mixing is None else np.asarray(self.mixing @ (self.mixing.T @ summed))

    def _times(self, weights: NDArray[Any]) -> Floats:
        """F y for y of shape (p, r)."""
        dtype, rows = weights.dtype, self._passed
        result: Floats = np.empty((weights.shape[1], self.n), dtype=dtype)
        shift = 0.0 if self.uncentred is None else (self.uncentred.offset @ weights).astype(dtype)[:, None]

        def one(span: tuple[int, int]) -> None:
            for start, stop in self._tiles(span, dtype):
                result[:, start:stop] = (rows(start, stop, dtype) @ weights).T
            if self.uncentred is not None:
                result[:, slice(*span)] -= shift

        self.workers.run(one, tiles(self.n, SPAN_ROWS))
        return np.transpose(result)

    def _gather(self, vectors: Floats) -> NDArray[np.float64]:
        """F'v for every vector v."""
        across = vectors.T
        return self._summed(lambda start, stop: across[:, start:stop], len(across), vectors.dtype)

    def _summed(self, piece: Callable[[int, int], Floats], count: int, dtype: Any) -> NDArray[np.float64]:
        """Sum F's rows with the weights that `piece` gives, shape (count, rows), in short tiles."""

        rows = self._passed

        def one(span: tuple[int, int]) -> NDArray[np.float64]:
            part = np.zeros((count, self.width))
            for start, stop in self._tiles(span, dtype):
                weights = piece(start, stop)
                part += weights @ rows(start, stop, dtype)
                if self.uncentred is not None:
                    part -= np.outer(weights.sum(axis=1, dtype=np.float64), self.uncentred.offset)
            return part

        summed = np.zeros((count, self.width))
        for part in self.workers.map(one, tiles(self.n, SPAN_ROWS)):
            summed += part
        return np.ascontiguousarray(summed.T)

    @property
    def _passed(self) -> Callable[[int, int, Any], Floats]:
        """What passes go over."""
        return self.rows if self.uncentred is None else self.uncentred.rows

    def _tiles(self, span: tuple[int, int], dtype: Any) -> Iterator[tuple[int, int]]:
        """Cut a span of rows into tiles."""
        return _cut(span, self._height(dtype))

    def _height(self, dtype: Any) -> int:
        """Rows per tile."""
        if dtype == self.search_dtype and not self.is_converted:
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
        found: Floats = np.empty((len(rows), len(landmarks)), self.search_dtype)
        if self.landmarks is None:
            others = self.take(landmarks, self.search_dtype).T
        else:
            columns = np.searchsorted(self.landmarks, landmarks)

        def one(tile: tuple[int, int]) -> None:
            taken = self.take(rows[slice(*tile)], self.search_dtype)
            if self.landmarks is None:
                np.matmul(taken, others, out=found[slice(*tile)])
            else:
                found[slice(*tile)] = taken[:, columns]

        self.workers.run(one, tiles(len(rows), BLOCK_ROWS))
        return found

    def combine(self, landmarks: NDArray[np.int64], coefficients: Floats) -> Floats:
        """One pass over F."""
        if self.landmarks is None:
            return self._times(self.take(landmarks, self.search_dtype).T @ coefficients)
        weights: Floats = np.zeros((self.width, coefficients.shape[1]), self.search_dtype)
        weights[np.searchsorted(self.landmarks, landmarks)] = coefficients
        return self._times(weights)

    def combine_factors(self, coefficients: Floats) -> Floats:
        """One pass over F: F c for coefficients c of shape (p, r), where F holds the factors."""
        return self._times(coefficients.astype(self.search_dtype, copy=False))

    def _factors(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        mixing = self.mixing
        factors = np.empty((len(rows), self.width if mixing is None else mixing.shape[1]))

        def one(tile: tuple[int, int]) -> None:
            some = self.take(rows[slice(*tile)], np.float64)
            factors[slice(*tile)] = some if mixing is None else some @ mixing

        self.workers.run(one, tiles(len(rows), BLOCK_ROWS))
        return factors


def _cut(span: tuple[int, int], height: int) -> Iterator[tuple[int, int]]:
    """Cut a span into tiles of at least one row."""
    start, stop = span
    step = max(1, height)
    return ((first, min(stop, first + step)) for first in range(start, stop, step))


def linear_geometry(
    features: Features, kernel: Kernel, workers: Workers, known: Moments | None = None
) -> FactorGeometry:
    """The linear (or cosine) kernel through the features themselves; never forms n x n.

    Parameters
    ----------
    known : what was found of every row while the features were centred: it saves a pass.
    """
    n, d = features.shape
    if known is not None and known.squares is not None and known.remainder is not None:
        diagonal, total = known.squares, known.remainder
        uncentred = _uncentred(features, known)
    else:
        (diagonal, total), uncentred = _own_squares(features, kernel, workers), None
    return FactorGeometry(
        name="linear",
        n=n,
        rows=features.block,
        take=features.take,
        width=d,
        mixing=None,
        diagonal=diagonal,
        trace=float(diagonal.sum()),
        total=total,
        search_dtype=np.dtype(features.dtype),
        workers=workers,
        is_converted=True,
        uncentred=uncentred,
    )


def _uncentred(features: Features, found: Moments) -> Uncentred | None:
    """The features as they are, if centring is all that is done to them and they lie near their mean."""
    step = features.steps[0] if len(features.steps) == 1 else None
    if not isinstance(step, Affine) or step.shift is None or np.any(step.scale != 1.0):
        return None
    if float(step.shift @ step.shift) > NEAR * found.total_variance:
        return None
    raw = features.raw
    return Uncentred(lambda start, stop, dtype: raw[start:stop].astype(dtype, copy=False), step.shift)


def _own_squares(
    features: Features, kernel: Kernel, workers: Workers
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One pass: the diagonal of a linear kernel, and the sum of its rows' factors."""
    n, d = features.shape
    diagonal = np.empty(n)

    def one(span: tuple[int, int]) -> NDArray[np.float64]:
        summed = np.zeros(d)
        for start, stop in _cut(span, CONVERTED_BYTES // (8 * d)):
            block = features.block(start, stop, dtype=np.float64)
            diagonal[start:stop] = kernel.diagonal(block)
            summed += np.ones(len(block)) @ block
        return summed

    return diagonal, sum(workers.map(one, tiles(n, SPAN_ROWS)), np.zeros(d))


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
        total=factors.sum(axis=0, dtype=np.float64),
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
    sums, lengths = np.zeros((len(pieces), q)), half_squares(centres)

    def one(tile: tuple[int, int] | None) -> None:
        if tile is None:
            factored.append(inverse_root(kernel.tile(exact, exact), dtype))
            return
        start, stop = tile
        values = matrix[start:stop]
        rows = features.block(start, stop)
        halves = (half_squares(rows), lengths)
        if rows.dtype == dtype:
            kernel.tile(rows, centres, halves, values)
        else:  # computed in more precision than it is kept in
            values[:] = kernel.tile(rows, centres, halves)
        sums[start // KERNEL_TILE] = values.sum(axis=0, dtype=np.float64)

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
        total=sums.sum(axis=0),
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
