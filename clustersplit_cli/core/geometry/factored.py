"""A kernel through factors of its rows, never forming n x n; `nystrom` makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.geometry.low_rank import LowRankKernel
from clustersplit_cli.core.geometry.protocol import Counts, SplitProducts, choose_landmarks
from clustersplit_cli.core.geometry.spectrum import Spectrum, factored_spectrum
from clustersplit_cli.core.parallel import Workers, tiles

FACTOR_ROWS = 2048
BLOCK_ROWS = 256
SPAN_ROWS = 8192
"""Rows that one worker passes over at a time, tile by tile."""
CONVERTED_BYTES = 1 << 20
"""Size of a tile that has to be converted: the copy must stay in cache."""

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class SplitState:
    """One split, each quantity by its own formula.

    Attributes
    ----------
    weights : (p,), the witness of row i is F_i @ weights.
    shift : squared length of the validation centroid minus that of the training one.
    training_cost : sum over all rows of the squared distance to the training centroid.
    own_cost : sum over all rows of the squared distance to their own centroid, through the differences.
    sums : (p,), of the validation rows' factors.
    """

    n_val: int
    n_train: int
    mmd_squared: float
    psi: float
    weights: Vector
    shift: float
    training_cost: float
    own_cost: float
    sums: Vector

    def cost(self, sums: Vector, count: int) -> float:
        """The cost of sending to validation `count` rows whose factors sum to `sums`, at these centroids."""
        return self.training_cost - 2.0 * float(sums @ self.weights) + count * self.shift


@dataclass(frozen=True)
class FactoredKernel:
    """K = F M M'F' for factors F of shape (n, p), known by sums of F's rows.

    Everything about a split follows from the sum of F over its validation rows and the sum over all rows,
    through M'F'1_V and M'F'1: all that is ever needed of rows that are not in memory.

    Attributes
    ----------
    n : rows.
    total : (p,), the sum of F over all rows.
    mixing : (p, r), or None for the identity.
    trace, trace_error : sum of K's diagonal, and its standard error if it is an estimate.
    """

    n: int
    total: Vector
    mixing: NDArray[np.float64] | None
    trace: float
    trace_error: float = 0.0

    def mixed(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """M'y for y = F'v, shape (p, ...): where vectors v are inner products, v'Kw = (M'F'v)'(M'F'w)."""
        return sums if self.mixing is None else np.asarray(self.mixing.T @ sums)

    def weigh(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """M M'y for y = F'v: the weights on F that give K v."""
        return sums if self.mixing is None else np.asarray(self.mixing @ (self.mixing.T @ sums))

    def square(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """v'Kv for each F'v of shape (p, r)."""
        inner = self.mixed(sums)
        return np.asarray(np.einsum("ij,ij->j", inner, inner))

    @property
    def ssq_total(self) -> float:
        """Total scatter SSq(S) = tr K - 1'K1/n."""
        return self.trace - _square(self.mixed(self.total)) / self.n

    def state(self, sums: Vector, n_val: int) -> SplitState:
        """Measure the split whose validation rows' factors sum to `sums`."""
        n_train = self.n - n_val
        val, train = sums / n_val, (self.total - sums) / n_train
        weights = self.weigh(val - train)
        val_norm, train_norm = _square(self.mixed(val)), _square(self.mixed(train))
        shift = val_norm - train_norm
        across = float(self.mixed(self.total) @ self.mixed(train))
        training_cost = self.trace - 2.0 * across + self.n * train_norm
        return SplitState(
            n_val,
            n_train,
            mmd_squared=_square(self.mixed(val - train)),
            psi=self.trace - n_val * val_norm - n_train * train_norm,
            weights=weights,
            shift=shift,
            training_cost=training_cost,
            own_cost=training_cost - 2.0 * float(sums @ weights) + n_val * shift,
            sums=sums,
        )

    def residual(self, state: SplitState) -> float:
        """|SSq(S) - Psi - |T||V|/n MMD²| / SSq(S)."""
        scatter = self.ssq_total
        explained = state.n_train * state.n_val / self.n * state.mmd_squared
        return abs(scatter - state.psi - explained) / scatter if scatter > 0 else 0.0


def _square(vector: Vector) -> float:
    return float(vector @ vector)


@dataclass(frozen=True)
class Uncentred:
    """F as R - 1 offset': passes over R save the copy that centring takes, if R is near the centre."""

    rows: Callable[[int, int, Any], Floats]  # (start, stop, dtype) -> block of R
    offset: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class FactorGeometry(FactoredKernel):
    """K = F M M' F' for rows F of shape (n, p) read in blocks, and a small mixing matrix M, or M = I.

    Linear kernels have F = X. Nyström kernels have F = C, the kernel between all rows and the
    landmarks, and M M' = W⁺, the pseudo-inverse of the kernel among landmarks.
    """

    name: str
    rows: Callable[[int, int, Any], Floats]  # (start, stop, dtype) -> block of F
    take: Callable[[NDArray[np.int64], Any], Floats]  # (rows, dtype) -> those rows of F
    width: int
    diagonal: NDArray[np.float64]
    search_dtype: np.dtype[Any]
    workers: Workers
    is_converted: bool = False  # whether every block of F is made anew, rather than a view
    uncentred: Uncentred | None = None
    landmarks: NDArray[np.int64] | None = None  # Nyström: the rows that F's columns stand for
    lacking: float = 0.0  # low-rank kernels: at least the trace of what F F' lacks of the kernel
    has_entries = False
    is_low_rank = True
    is_nonnegative = False

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

    @cached_property
    def grand_total(self) -> float:
        """1'K1, the sum of all kernel values."""
        return float(self.square(self.total[:, None])[0])

    @cached_property
    def row_sums(self) -> NDArray[np.float64]:
        """K 1, shape (n,)."""
        return np.asarray(self.spread(self.total[:, None], np.float64)[:, 0])

    def row_sums_at(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """K 1 at some rows, from their factors alone unless it is known at all rows."""
        return self.row_sums[rows] if "row_sums" in vars(self) else self.at(rows, self.total)

    def measure_splits(self, members: NDArray[np.bool_], counts: Counts, dtype: Any) -> SplitProducts:
        """One pass over F for its sums, another for the witness."""
        summed = self._split_sums(members, counts, dtype)
        with_all = self.mixed(self.total) @ self.mixed(summed)
        return SplitProducts(self.spread(summed, dtype), self.square(summed), with_all)

    def split_energy(self, members: NDArray[np.bool_], counts: Counts) -> NDArray[np.float64]:
        """One pass over F."""
        return self.square(self._split_sums(members, counts, self.search_dtype))

    def side_products(self, members: NDArray[np.bool_], counts: Counts) -> NDArray[np.float64]:
        """One pass over the smaller side's factors, another over F."""
        n_val, n_train = counts
        of_val, of_train = self.halves(members)
        summed = np.stack([of_val / n_val - of_train / n_train, of_val, of_train], axis=1)
        return np.asarray(self.spread(summed, np.float64))

    def _split_sums(self, members: NDArray[np.bool_], counts: Counts, dtype: Any) -> NDArray[np.float64]:
        """F'z of a batch of splits, shape (p, r): z is (1/|V| + 1/|T|) 1_V - 1/|T|."""
        n_val, n_train = counts
        summed = self.sums_over(members, np.dtype(dtype))
        return np.asarray(summed * (1.0 / n_val + 1.0 / n_train) - self.total[:, None] / n_train)

    def spread(self, summed: NDArray[np.float64], dtype: Any) -> Floats:
        """One pass over F: K v for each F'v of shape (p, r), shape (n, r)."""
        return self.times(self.weigh(summed).astype(dtype))

    def at(self, rows: NDArray[np.int64], summed: NDArray[np.float64]) -> NDArray[np.float64]:
        """K v at some rows, for F'v of shape (p,)."""
        weights, found = self.weigh(summed), np.empty(len(rows))

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

    def times_columns(self, rows: NDArray[np.int64], weights: Floats) -> Floats:
        """One pass over F, with the sums of some of its rows."""
        summed = np.zeros((self.width, weights.shape[1]))
        for start, stop in tiles(len(rows), BLOCK_ROWS):
            summed += self.take(rows[start:stop], np.float64).T @ weights[start:stop]
        return self.spread(summed, weights.dtype)

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

    def times(self, weights: NDArray[Any]) -> Floats:
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

    @property
    def moment_dtype(self) -> np.dtype[Any]:
        """The precision of B'B, whose rounding the bound makes up for."""
        return np.dtype(np.float32) if self.lacking else self.search_dtype

    def _factor_moments(
        self, limits: ValidationQuotas, vector: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """For the factors B = F M: B'B, the sum of B's rows over each cell, and B'vector."""
        dtype = self.moment_dtype
        mixing = None if self.mixing is None else Mixing.of(self.mixing.astype(dtype))
        width = self.width if mixing is None else mixing.width
        n_cells = len(limits.target)

        def one(
            tile: tuple[int, int],
        ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
            start, stop = tile
            block = self.rows(start, stop, dtype)
            if mixing is not None:
                block = mixing.mix(block)
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

    def spectrum(
        self, limits: ValidationQuotas, z0: NDArray[np.float64], low_rank: LowRankKernel
    ) -> tuple[Spectrum, float]:
        """With K = BB', the non-zero eigenvalues of PKP are those of the small matrix (PB)'PB."""
        moments = self._factor_moments(limits, z0)
        longest = float(np.sqrt(max(float(self.diagonal.max()), 0.0)))
        return factored_spectrum(*moments, limits, self.moment_dtype, self.factors_along, longest)

    def group_sums(self, groups: NDArray[np.int64]) -> FactorGeometry:
        """Sum the factors over groups of rows."""
        count = int(groups.max()) + 1
        factors = np.zeros((count, self.width))
        for start, stop in tiles(self.n, FACTOR_ROWS):
            np.add.at(factors, groups[start:stop], self.rows(start, stop, self.search_dtype))
        mixed = factors if self.mixing is None else factors @ self.mixing
        diagonal = np.einsum("ij,ij->i", mixed, mixed)
        return replace(
            self,
            n=count,
            rows=lambda start, stop, dtype: factors[start:stop].astype(dtype, copy=False),
            take=lambda rows, dtype: factors[rows].astype(dtype, copy=False),
            diagonal=diagonal,
            landmarks=None,
            is_converted=False,
            uncentred=None,
        )

    def own_factors(self, most: int) -> OwnFactors | None:
        """F itself, if it is K = F F' and narrow; the first columns of pivoted factors stand for all."""
        if self.mixing is not None or (self.width > most and not self.lacking):
            return None
        return OwnFactors(self, min(self.width, most))

    def columns(self, landmarks: NDArray[np.int64]) -> Floats:
        """K[:, landmarks]."""
        return self.cross(np.arange(self.n), landmarks)

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
            return self.times(self.take(landmarks, self.search_dtype).T @ coefficients)
        return self.times(coefficients.astype(self.search_dtype, copy=False))

    def factors_along(self, directions: NDArray[np.float64]) -> Floats:
        """One pass over F: B y for y of shape (p, r), where B = F M are the factors of all rows."""
        if self.mixing is None:
            return self.times(directions.astype(self.search_dtype))
        return self.times(self.mixing @ directions)  # what is mixed may be far larger than the result

    def _factors(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        mixing = self.mixing
        factors = np.empty((len(rows), self.width if mixing is None else mixing.shape[1]))

        def one(tile: tuple[int, int]) -> None:
            some = self.take(rows[slice(*tile)], np.float64)
            factors[slice(*tile)] = some if mixing is None else some @ mixing

        self.workers.run(one, tiles(len(rows), BLOCK_ROWS))
        return factors


SPAN_COLUMNS = 256


@dataclass(frozen=True)
class Mixing:
    """A mixing matrix M in pieces: columns of a triangular matrix end above its last rows.

    Attributes
    ----------
    pieces : columns, how many of their rows are not all zero, and these rows.
    """

    width: int
    pieces: tuple[tuple[slice, int, Floats], ...]

    @classmethod
    def of(cls, matrix: Floats) -> Mixing:
        """Cut a matrix."""
        width = matrix.shape[1]
        spans = [slice(*span) for span in tiles(width, SPAN_COLUMNS)]
        depths = [1 + int(np.flatnonzero(matrix[:, columns].any(axis=1))[-1]) for columns in spans]
        cut_out = (
            np.ascontiguousarray(matrix[:depth, span]) for span, depth in zip(spans, depths, strict=True)
        )
        return cls(width, tuple(zip(spans, depths, cut_out, strict=True)))

    def mix(self, block: Floats) -> Floats:
        """F M for some rows of F."""
        mixed = np.empty((len(block), self.width), block.dtype)
        for columns, depth, some in self.pieces:
            np.matmul(block[:, :depth], some, out=mixed[:, columns])
        return mixed

    def squared_lengths(self, block: Floats) -> NDArray[np.float64]:
        """Of the rows of F M, for some rows of F; shape (rows,)."""
        squares = np.zeros(len(block))
        for _, depth, some in self.pieces:
            factors = block[:, :depth] @ some
            squares += np.einsum("ij,ij->i", factors, factors)
        return squares


@dataclass(frozen=True)
class OwnFactors:
    """The factors that a kernel is held as, or the first columns of them."""

    geometry: FactorGeometry
    width: int

    def at(self, rows: NDArray[np.int64]) -> Floats:
        """Factors of some rows."""
        return self.geometry.take(rows, self.geometry.search_dtype)[:, : self.width]

    def combine(self, weights: Floats) -> Floats:
        """One pass over F: F c for coefficients c of shape (width, r)."""
        return self.geometry.times(weights.astype(self.geometry.search_dtype, copy=False))


def cut(span: tuple[int, int], height: int) -> Iterator[tuple[int, int]]:
    """Cut a span into tiles of at least one row."""
    start, stop = span
    step = max(1, height)
    return ((first, min(stop, first + step)) for first in range(start, stop, step))
