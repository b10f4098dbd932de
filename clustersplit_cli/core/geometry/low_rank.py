"""A low-rank approximation of a kernel, cheap enough to explore, on all rows or on a sample of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import sample_rows
from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.geometry.pseudo_inverse import inverse_root
from clustersplit_cli.core.geometry.scatter import cell_means, within_cells
from clustersplit_cli.core.parallel import Workers, tiles

MOST_LANDMARKS = 512
FEWEST_IN_TWO, MOST_IN_TWO, ROWS_PER_LANDMARK = 256, 384, 16
"""With more landmarks than that, splits in two cost more than they save, and nothing better is found."""
SAMPLE_ROWS = 8_192
"""Rows that are explored of more than twice as many."""
TURNING_ROWS = 4_096
"""Rows that tell along which directions a kernel varies within cells."""
NEGLIGIBLE = 3e-2
"""Scatter along a direction, relative to that along the leading one, that exploring does without."""
TILE = 512


class KernelColumns(Protocol):
    """What a low-rank approximation asks of a kernel matrix K on n rows."""

    @property
    def n(self) -> int:
        """Number of rows."""

    @property
    def search_dtype(self) -> np.dtype[Any]:
        """The precision of K itself: more is wasted on a search."""

    @property
    def has_entries(self) -> bool:
        """Whether K's entries are in memory: then products with a few of its columns are cheap."""

    def own_factors(self, most: int) -> RowSource | None:
        """Return the factors that K is held as, if they are as they stand and at most so many per row."""

    def block(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return K[left][:, right]."""

    def columns(self, landmarks: NDArray[np.int64]) -> Floats:
        """Return K[:, landmarks] in the search's precision, for landmarks drawn below."""

    def draw_landmarks(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw rows to stand for all; the columns of K at these rows should be cheap to get."""

    def cross(self, rows: NDArray[np.int64], landmarks: NDArray[np.int64]) -> Floats:
        """Return K[rows][:, landmarks] in the search's precision, for landmarks drawn above."""

    def combine(self, landmarks: NDArray[np.int64], coefficients: Floats) -> Floats:
        """Return K[:, landmarks] @ coefficients in the search's precision, for landmarks drawn above."""


class RowSource(Protocol):
    """A few numbers about every row, as an (n, m) matrix that need not be in memory."""

    def at(self, rows: NDArray[np.int64]) -> Floats:
        """Return those of some rows, shape (len(rows), m)."""

    def combine(self, weights: Floats) -> Floats:
        """Multiply the matrix by weights of shape (m, k)."""


@dataclass(frozen=True)
class HeldColumns:
    """Columns of a kernel, picked out once because that is cheaper than again and again."""

    columns: Floats

    def at(self, rows: NDArray[np.int64]) -> Floats:
        """Pick rows."""
        return self.columns[rows]

    def combine(self, weights: Floats) -> Floats:
        """Multiply."""
        return self.columns @ weights


@dataclass(frozen=True)
class LandmarkColumns:
    """Columns of a kernel, computed when they are needed."""

    geometry: KernelColumns
    landmarks: NDArray[np.int64]

    def at(self, rows: NDArray[np.int64]) -> Floats:
        """K[rows, landmarks]."""
        return self.geometry.cross(rows, self.landmarks)

    def combine(self, weights: Floats) -> Floats:
        """K[:, landmarks] @ weights."""
        return self.geometry.combine(self.landmarks, weights)


@dataclass(frozen=True)
class LowRankKernel:
    """Factors phi(i) = K[i, landmarks] root, whose inner products approximate K (Nyström on the kernel held).

    Attributes
    ----------
    source : K[:, landmarks], or the factors themselves where the kernel is held as factors that are few.
    root : (m, p), root root' is the pseudo-inverse of K among the landmarks.
    scatter : (p,), how much the factors vary within cells along each of them, descending; None if not known.
    """

    source: RowSource
    root: Floats
    scatter: NDArray[np.float64] | None = None

    def factors(self, rows: NDArray[np.int64], workers: Workers | None = None) -> Floats:
        """Factors of some rows, shape (len(rows), p)."""
        near = self.source.at(rows)
        found: Floats = np.empty((len(rows), self.root.shape[1]), near.dtype)

        def some(tile: tuple[int, int]) -> None:
            np.matmul(near[slice(*tile)], self.root, out=found[slice(*tile)])

        if workers is None:
            some((0, len(rows)))
        else:
            workers.run(some, tiles(len(rows), TILE))
        return found

    def spread(self, coefficients: Floats) -> Floats:
        """Inner products of every row's factors with vectors of shape (p, k), shape (n, k)."""
        return self.source.combine(self.root @ coefficients.astype(self.root.dtype))

    def turned(self, limits: ValidationQuotas, workers: Workers | None = None) -> LowRankKernel:
        """The same kernel, its factors along the directions it varies in within cells, leading first."""
        if self.scatter is not None:
            return self
        rows = sample_rows(limits.cells, min(limits.n, TURNING_ROWS), np.random.default_rng(0))
        part, factors = limits.cells.only(rows), self.factors(rows, workers)
        scatter = within_cells(part, factors, cell_means(part, factors), workers)
        values, vectors = np.linalg.eigh(scatter)
        root = self.root @ vectors[:, ::-1].astype(self.root.dtype)
        return replace(self, root=root, scatter=values[::-1])

    def leading(self, count: int) -> LowRankKernel:
        """The low-rank kernel along its first directions alone."""
        scatter = None if self.scatter is None else self.scatter[:count]
        return replace(self, root=self.root[:, :count], scatter=scatter)

    def condensed(self, limits: ValidationQuotas, workers: Workers) -> LowRankKernel:
        """The low-rank kernel along the directions that matter within cells.

        A wide kernel varies along few directions, and exploring is the cheaper the fewer they are.
        """
        turned = self.turned(limits, workers)
        scatter = turned.scatter
        assert scatter is not None
        # Where nothing varies, one direction stands for all.
        return turned.leading(max(1, int((scatter > NEGLIGIBLE * scatter[0]).sum())))


def landmarks_in_two(n: int) -> int:
    """Landmarks that suffice to split n rows in two."""
    return min(n, max(n // ROWS_PER_LANDMARK, FEWEST_IN_TWO), MOST_IN_TWO)


def explored_rows(n: int) -> int:
    """How many of n rows are explored: a sample of them once all would take more than twice as long."""
    return n if n <= 2 * SAMPLE_ROWS else SAMPLE_ROWS


def make_low_rank(
    geometry: KernelColumns, rng: np.random.Generator, rank: int = MOST_LANDMARKS
) -> LowRankKernel:
    """Draw landmarks and factor the kernel among them, unless it is held as factors that are no more."""
    dtype = geometry.search_dtype
    own = geometry.own_factors(rank)
    if own is not None:
        return LowRankKernel(own, np.eye(own.at(np.zeros(1, np.int64)).shape[1], dtype=dtype))
    landmarks = geometry.draw_landmarks(rank, rng)
    root = inverse_root(geometry.block(landmarks, landmarks), dtype).astype(dtype)
    if geometry.has_entries or explored_rows(geometry.n) == geometry.n:
        return LowRankKernel(HeldColumns(geometry.columns(landmarks)), root)
    return LowRankKernel(LandmarkColumns(geometry, landmarks), root)
