"""Linear kernels of sparse features, which never become dense: centring is done on the products instead."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.geometry.features import ColumnSpreads, Features, Floats
from clustersplit_cli.core.geometry.kernels import Kernel, Prepared
from clustersplit_cli.core.geometry.low_rank import LowRankKernel
from clustersplit_cli.core.geometry.protocol import ByProducts
from clustersplit_cli.core.geometry.spectrum import Spectrum, factored_spectrum
from clustersplit_cli.core.parallel import Workers, tiles
from clustersplit_cli.errors import InputError, UsageError

BLOCK_ROWS = 2048

LEAST_SPREAD = 1e-9
"""Squares of sparse rows and of their mean are differences: beyond that the promised digits are lost."""


@dataclass(frozen=True)
class SparseFeatures(Features):
    """Rows X - 1 centre', X in canonical CSR form; blocks come dense, so they should be of few rows."""

    centre: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def _through(self, rows: Any, dtype: DTypeLike | None) -> Floats:
        block: Floats = np.asarray(rows.toarray() - self.centre, dtype=dtype or self.dtype)
        return block


def prepare_sparse(raw: Any, kernel: str, standardize: str) -> Prepared:
    """Scale sparse features for a linear or cosine kernel.

    Raises
    ------
    UsageError
        When the kernel needs dense rows.
    InputError
        When all features are constant.
    """
    if kernel not in ("linear", "cosine"):
        raise UsageError(
            f"sparse features need a linear or cosine kernel, got --kernel {kernel}",
            hint="use --kernel linear, or make the features dense first",
        )
    if kernel == "cosine" and standardize == "zscore":
        raise UsageError(
            "--standardize zscore moves the columns, and sparse rows of unit length would then be dense",
            hint="use --kernel linear, or --standardize none",
        )
    rows = raw.astype(np.float64)
    if standardize == "zscore":
        deviation = _deviations(rows)
        rows = rows.multiply(1.0 / np.where(deviation > 0, deviation, 1.0)).tocsr()
    if standardize == "l2" or kernel == "cosine":
        lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
        rows = rows.multiply(1.0 / np.where(lengths > 0, lengths, 1.0)[:, None]).tocsr()
    spread = _deviations(rows)
    if not spread.any():
        raise InputError(
            "all features are constant, so every split has an MMD of zero", hint="choose other features"
        )
    features = SparseFeatures(rows, centre=np.asarray(rows.mean(axis=0)).ravel())
    if not (spread**2).sum() > LEAST_SPREAD * float(features.centre @ features.centre):
        raise InputError(
            f"sparse features vary by too little around their mean: less than {LEAST_SPREAD:g} of its square",
            hint="make the features dense first, or subtract the mean",
        )
    return Prepared(Kernel(kernel), features, ColumnSpreads.of(spread))


def _deviations(rows: Any) -> NDArray[np.float64]:
    """Standard deviation of every column; exactly 0 for a column that never varies."""
    n = rows.shape[0]
    mean = np.asarray(rows.mean(axis=0)).ravel()
    filled = np.bincount(rows.indices, minlength=rows.shape[1])
    around = rows.copy()
    around.data = (around.data - mean[around.indices]) ** 2
    squares = np.asarray(around.sum(axis=0)).ravel() + (n - filled) * mean**2
    largest, least = (np.asarray(edge.todense()).ravel() for edge in (rows.max(axis=0), rows.min(axis=0)))
    return np.asarray(np.where(largest > least, np.sqrt(squares / n), 0.0))


@dataclass(frozen=True)
class SparseGeometry(ByProducts):
    """K = F F' with F = X - 1 centre': products with X, corrected for the centre.

    Attributes
    ----------
    rows : X, in canonical CSR form, or its sums over groups of rows.
    centre : (d,)
    sizes : (n,), rows that each row of X stands for: 1, or the size of its group.
    trace : of the kernel between rows, also where this one is between groups of them.
    """

    rows: Any
    centre: NDArray[np.float64]
    sizes: NDArray[np.float64]
    diagonal: NDArray[np.float64]
    trace: float
    workers: Workers
    name: str = "linear"
    trace_error: float = 0.0

    @classmethod
    def of(
        cls,
        rows: Any,
        centre: NDArray[np.float64],
        sizes: NDArray[np.float64],
        workers: Workers,
        trace: float | None = None,
    ) -> SparseGeometry:
        """Compute the diagonal, and the trace unless it is given."""
        squares = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
        diagonal = squares - 2.0 * sizes * (rows @ centre) + sizes**2 * float(centre @ centre)
        return cls(rows, centre, sizes, diagonal, float(diagonal.sum()) if trace is None else trace, workers)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.sizes)

    @property
    def search_dtype(self) -> np.dtype[Any]:
        """Products with sparse rows are too cheap to save precision on."""
        return np.dtype(np.float64)

    def measure(self, vectors: Floats) -> tuple[Floats, NDArray[np.float64]]:
        """Multiply by F' and by F; v'Kv = |F'v|²."""
        inner = self.gather(vectors)
        product = self.factors_along(inner).astype(vectors.dtype, copy=False)
        return product, np.asarray(np.einsum("ij,ij->j", inner, inner))

    def energy(self, vectors: Floats) -> NDArray[np.float64]:
        """v'Kv = |F'v|²."""
        inner = self.gather(vectors)
        return np.asarray(np.einsum("ij,ij->j", inner, inner))

    def gather(self, vectors: Floats) -> NDArray[np.float64]:
        """F'V, shape (d, r)."""
        wide = vectors.astype(np.float64, copy=False)
        total = np.zeros((len(self.centre), vectors.shape[1]))
        for part in self.workers.map(
            lambda tile: self.rows[slice(*tile)].T @ wide[slice(*tile)], tiles(self.n, BLOCK_ROWS)
        ):
            total += part
        return np.asarray(total - self.centre[:, None] * (wide * self.sizes[:, None]).sum(axis=0))

    def factors_along(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """F W, shape (n, r)."""
        shift = self.centre @ weights
        result = np.empty((self.n, weights.shape[1]))

        def one(tile: tuple[int, int]) -> None:
            here = slice(*tile)
            result[here] = self.rows[here] @ weights - self.sizes[here, None] * shift

        self.workers.run(one, tiles(self.n, BLOCK_ROWS))
        return result

    def block(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
        """K[left][:, right], through sparse rows alone."""
        one, other = self.rows[left], self.rows[right]
        left_sizes, right_sizes = self.sizes[left], self.sizes[right]
        product = (one @ other.T).toarray()
        product -= np.outer(one @ self.centre, right_sizes)
        product -= np.outer(left_sizes, other @ self.centre)
        return np.asarray(product + np.outer(left_sizes, right_sizes) * float(self.centre @ self.centre))

    def cross(self, rows: NDArray[np.int64], landmarks: NDArray[np.int64]) -> Floats:
        """K[rows][:, landmarks]."""
        return self.block(rows, landmarks)

    def combine(self, landmarks: NDArray[np.int64], coefficients: Floats) -> Floats:
        """K[:, landmarks] @ coefficients, through the sum of the landmarks' rows that they weigh."""
        wide = coefficients.astype(np.float64, copy=False)
        inner = np.asarray(self.rows[landmarks].T @ wide)
        total = (wide * self.sizes[landmarks, None]).sum(axis=0)
        return self.factors_along(inner - self.centre[:, None] * total)

    def spectrum(
        self, limits: ValidationQuotas, z0: NDArray[np.float64], low_rank: LowRankKernel
    ) -> tuple[Spectrum, float]:
        """All eigenvalues of (PF)'PF, which has as many columns as the features."""
        n_cells = len(limits.target)
        gram = (self.rows.T @ self.rows).toarray() - self.n * np.outer(self.centre, self.centre)
        sums = np.zeros((n_cells, len(self.centre)))
        for cell in range(n_cells):
            members = limits.cells.order[limits.cells.offsets[cell] : limits.cells.offsets[cell + 1]]
            sums[cell] = np.asarray(self.rows[members].sum(axis=0)).ravel() - len(members) * self.centre
        at_z0 = self.gather(z0[:, None])[:, 0]
        longest = float(np.sqrt(max(float(self.diagonal.max()), 0.0)))
        return factored_spectrum(gram, sums, at_z0, limits, np.dtype(np.float64), self.factors_along, longest)

    def group_sums(self, groups: NDArray[np.int64]) -> SparseGeometry:
        """Sum the rows over their groups."""
        import scipy.sparse

        which = scipy.sparse.csr_array(
            (np.ones(self.n), (groups, np.arange(self.n))), shape=(int(groups.max()) + 1, self.n)
        )
        summed = (which @ self.rows).tocsr()
        return SparseGeometry.of(summed, self.centre, which @ self.sizes, self.workers, self.trace)


def sparse_geometry(features: SparseFeatures, workers: Workers) -> SparseGeometry:
    """The linear kernel of sparse rows."""
    return SparseGeometry.of(features.raw, features.centre, np.ones(features.shape[0]), workers)
