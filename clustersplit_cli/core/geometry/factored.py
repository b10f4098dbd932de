"""A kernel through factors of its rows, never forming n x n; `factoring` makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Constraints
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.geometry.protocol import choose_landmarks
from clustersplit_cli.core.parallel import Workers, tiles

FACTOR_ROWS = 2048
BLOCK_ROWS = 256
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

    def halves(self, members: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """F'1_V and F'1_T of one split in float64, from the rows of its smaller side; shapes (p,)."""
        is_small = 2 * int(members.sum()) <= self.n
        rows = np.flatnonzero(members if is_small else ~members)
        summed = self.sum_of(rows, np.ones(len(rows)))
        return (summed, self.total - summed) if is_small else (self.total - summed, summed)

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
        """F y for y of shape (p, r), or with fewer rows for F's first columns alone."""
        dtype, rows, used = weights.dtype, self._passed, len(weights)
        result: Floats = np.empty((weights.shape[1], self.n), dtype=dtype)
        shift = 0.0 if self.uncentred is None else (self.uncentred.offset @ weights).astype(dtype)[:, None]

        def one(span: tuple[int, int]) -> None:
            for start, stop in self._tiles(span, dtype):
                result[:, start:stop] = (rows(start, stop, dtype)[:, :used] @ weights).T
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
        return cut(span, self._height(dtype))

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
        """Draw among all rows, or for Nyström take its first landmarks: their columns of K begin F's rows."""
        return choose_landmarks(self.n, count, rng) if self.landmarks is None else self.landmarks[:count]

    def cross(self, rows: NDArray[np.int64], landmarks: NDArray[np.int64]) -> Floats:
        """Multiply factors; for Nyström, take the first columns of F."""
        found: Floats = np.empty((len(rows), len(landmarks)), self.search_dtype)
        others = None if self.landmarks is not None else self.take(landmarks, self.search_dtype).T

        def one(tile: tuple[int, int]) -> None:
            taken = self.take(rows[slice(*tile)], self.search_dtype)
            if others is not None:
                np.matmul(taken, others, out=found[slice(*tile)])
            else:
                found[slice(*tile)] = taken[:, : len(landmarks)]

        self.workers.run(one, tiles(len(rows), BLOCK_ROWS))
        return found

    def combine(self, landmarks: NDArray[np.int64], coefficients: Floats) -> Floats:
        """One pass over F, or for Nyström over its first columns."""
        if self.landmarks is None:
            return self._times(self.take(landmarks, self.search_dtype).T @ coefficients)
        return self._times(coefficients.astype(self.search_dtype, copy=False))

    def combine_factors(self, coefficients: Floats) -> Floats:
        """One pass over F: F c for coefficients c of shape (p, r), where F holds the factors."""
        return self._times(coefficients.astype(self.search_dtype, copy=False))

    def factors_along(self, directions: NDArray[np.float64]) -> Floats:
        """One pass over F: B y for y of shape (p, r), where B = F M are the factors of all rows."""
        if self.mixing is None:
            return self._times(directions.astype(self.search_dtype))
        return self._times(self.mixing @ directions)  # what is mixed may be far larger than the result

    def _factors(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        mixing = self.mixing
        factors = np.empty((len(rows), self.width if mixing is None else mixing.shape[1]))

        def one(tile: tuple[int, int]) -> None:
            some = self.take(rows[slice(*tile)], np.float64)
            factors[slice(*tile)] = some if mixing is None else some @ mixing

        self.workers.run(one, tiles(len(rows), BLOCK_ROWS))
        return factors


def cut(span: tuple[int, int], height: int) -> Iterator[tuple[int, int]]:
    """Cut a span into tiles of at least one row."""
    start, stop = span
    step = max(1, height)
    return ((first, min(stop, first + step)) for first in range(start, stop, step))
