"""What the algorithm asks of a kernel: above all, to multiply it by a block of vectors.

Dense, linear and Nyström kernels are the same algorithm over different geometries, in `dense`, `factored`
and `sparse`. The precision of `apply` is that of the block it is given: float32 for the search, float64 where
results are stated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.geometry.features import Features, Floats
from clustersplit_cli.core.geometry.kernels import Kernel
from clustersplit_cli.core.geometry.low_rank import KernelColumns, LowRankKernel, RowSource
from clustersplit_cli.core.geometry.spectrum import Spectrum
from clustersplit_cli.core.parallel import Workers

KERNEL_TILE = 512


Counts = tuple[Any, Any]
"""Validation and training rows of every split of a batch."""


@dataclass(frozen=True)
class SplitProducts:
    """What a multiplication by the weights z of a batch of splits gives.

    Attributes
    ----------
    witness : (n, r), K z.
    mmd_squared : (r,), z'Kz.
    with_all : (r,), z'K1.
    """

    witness: Floats
    mmd_squared: NDArray[np.float64]
    with_all: NDArray[np.float64]


class Geometry(KernelColumns, Protocol):
    """A symmetric positive semi-definite kernel matrix K on n rows that can be multiplied by vectors."""

    @property
    def name(self) -> str:
        """How the kernel is held: dense, linear, low-rank or nystrom."""

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
    def lacking(self) -> float:
        """At least the trace of what factors lack of the kernel; 0 for others, Nyström's is not known."""

    @property
    def is_low_rank(self) -> bool:
        """Whether K is held as factors of its rows: then a split is known by sums of them."""

    @property
    def is_nonnegative(self) -> bool:
        """Whether no value of K is negative; an approximated kernel may have some that are."""

    @property
    def landmarks(self) -> NDArray[np.int64] | None:
        """Rows whose columns of K stand for all of it; None where K is exact."""

    @property
    def row_sums(self) -> NDArray[np.float64]:
        """K 1, shape (n,)."""

    def row_sums_at(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """K 1 at some rows."""

    @property
    def grand_total(self) -> float:
        """1'K1, the sum of all kernel values."""

    def apply(self, vectors: Floats) -> Floats:
        """Return K @ vectors for vectors of shape (n, r), in their precision."""

    def measure(self, vectors: Floats) -> tuple[Floats, NDArray[np.float64]]:
        """Return K @ vectors, and for each vector v its v'Kv, summed in float64."""

    def times_columns(self, rows: NDArray[np.int64], weights: Floats) -> Floats:
        """Return K[:, rows] @ weights for any rows, ascending, in the precision of the weights."""

    def energy(self, vectors: Floats) -> NDArray[np.float64]:
        """Return v'Kv for each vector v."""

    def measure_splits(self, members: NDArray[np.bool_], counts: Counts, dtype: Any) -> SplitProducts:
        """Multiply the weights z of a batch of splits (n, r), in the given precision."""

    def split_energy(self, members: NDArray[np.bool_], counts: Counts) -> NDArray[np.float64]:
        """Return z'Kz of a batch of splits (n, r), in the search's precision."""

    def side_products(self, members: NDArray[np.bool_], counts: Counts) -> NDArray[np.float64]:
        """Return K z, K 1_V and K 1_T of one split (n,) in float64, shape (n, 3)."""

    def group_sums(self, groups: NDArray[np.int64]) -> Geometry:
        """Sum K over groups of rows on both sides; the trace stays that of K."""

    def spectrum(
        self, limits: ValidationQuotas, z0: NDArray[np.float64], low_rank: LowRankKernel
    ) -> tuple[Spectrum, float]:
        """Bound the spectrum of A = PKP, with b = PKz0 in its basis, and compute z0'Kz0.

        Parameters
        ----------
        low_rank : a low-rank approximation of the kernel, from which leading eigenvectors are sought.
        """


class ByProducts:
    """What follows from products of K with vectors, for kernels that know no quicker way."""

    has_entries = False
    is_low_rank = False
    is_nonnegative = False
    landmarks: NDArray[np.int64] | None = None
    lacking = 0.0

    def apply(self: Geometry, vectors: Floats) -> Floats:
        """Return K @ vectors."""
        return self.measure(vectors)[0]

    def times_columns(self: Geometry, rows: NDArray[np.int64], weights: Floats) -> Floats:
        """K[:, rows] @ weights."""
        return self.combine(rows, weights)

    @cached_property
    def row_sums(self: Geometry) -> NDArray[np.float64]:
        """K 1, shape (n,)."""
        return np.asarray(self.apply(np.ones((self.n, 1)))[:, 0], dtype=np.float64)

    def row_sums_at(self: Geometry, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """K 1 at some rows."""
        return self.row_sums[rows]

    @property
    def grand_total(self: Geometry) -> float:
        """1'K1."""
        return float(self.row_sums.sum())

    def measure_splits(
        self: Geometry, members: NDArray[np.bool_], counts: Counts, dtype: Any
    ) -> SplitProducts:
        """Multiply the splits' weights."""
        weights = split_weights(members, dtype, counts)
        witness, mmd_squared = self.measure(weights)
        return SplitProducts(witness, mmd_squared, weighted_row_sums(self, weights))

    def split_energy(self: Geometry, members: NDArray[np.bool_], counts: Counts) -> NDArray[np.float64]:
        """z'Kz."""
        return self.energy(split_weights(members, self.search_dtype, counts))

    def side_products(self: Geometry, members: NDArray[np.bool_], counts: Counts) -> NDArray[np.float64]:
        """K z, K 1_V and K 1_T."""
        val = members.astype(np.float64)
        train = 1.0 - val
        n_val, n_train = counts
        weights = val / n_val - train / n_train
        return np.asarray(self.apply(np.stack([weights, val, train], axis=1)), dtype=np.float64)

    def own_factors(self, most: int) -> RowSource | None:
        """None: K is not held as factors."""
        return None

    def columns(self: Geometry, landmarks: NDArray[np.int64]) -> Floats:
        """K[:, landmarks]."""
        return self.cross(np.arange(self.n), landmarks)

    def draw_landmarks(self: Geometry, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw among all rows."""
        return choose_landmarks(self.n, count, rng)


def split_weights(
    members: NDArray[np.bool_], dtype: DTypeLike = np.float64, counts: Counts | None = None
) -> Floats:
    """The weights z of a batch of splits: 1/|V| on validation rows, -1/|T| on training rows.

    Parameters
    ----------
    members : (n, r)
    counts : |V| and |T| of every split, where they are not the numbers of members.

    Returns
    -------
    (n, r)
    """
    n_val, n_train = counts or (members.sum(axis=0), (~members).sum(axis=0))
    kind = np.dtype(dtype).type
    # One split a row while it is made: that is the order products like best.
    on_val, on_train = ((sign / count).astype(kind) for sign, count in ((1.0, n_val), (-1.0, n_train)))
    weights: Floats = np.where(members.T, on_val[:, None], on_train[:, None])
    return np.transpose(weights)


def weighted_row_sums(geometry: Geometry, weights: Floats) -> NDArray[np.float64]:
    """z'K1 of weights z of a batch of splits."""
    return np.asarray(weights.T @ geometry.row_sums.astype(weights.dtype), dtype=np.float64)


def kernel_diagonal(features: Features, kernel: Kernel, workers: Workers) -> NDArray[np.float64]:
    """Kernel value of every row with itself, in float64."""
    if kernel.is_nonnegative:
        return np.ones(features.shape[0])
    parts = workers.map(
        lambda tile: kernel.diagonal(features.block(*tile, dtype=np.float64)), features.row_tiles()
    )
    return np.concatenate(list(parts))


def choose_landmarks(n: int, q: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw q of n rows uniformly without replacement, in ascending order."""
    return np.sort(rng.choice(n, size=min(q, n), replace=False)).astype(np.int64)


def shuffled(landmarks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Put landmarks into an order, always the same, in which the first of them can stand for all."""
    return np.random.default_rng(0).permutation(landmarks)
