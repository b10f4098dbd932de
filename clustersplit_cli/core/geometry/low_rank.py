"""A low-rank image of a kernel, cheap enough to explore, on all rows or on a sample of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Constraints, restricted_to, sample_rows
from clustersplit_cli.core.geometry.dense import DenseGeometry
from clustersplit_cli.core.geometry.factored import FactorGeometry
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.geometry.protocol import Geometry, inverse_root
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


@dataclass(frozen=True)
class Image:
    """Factors phi(i) = K[i, landmarks] root, whose inner products approximate K (Nyström on the kernel held).

    Attributes
    ----------
    landmarks : (m,) rows; None where the kernel is held as factors that are few enough themselves.
    root : (m, p), root root' is the pseudo-inverse of K among the landmarks.
    columns : (n, m), K[:, landmarks] where picking them out once is cheaper than again and again.
    scatter : (p,), how much the factors vary within cells along each of them, descending; None if not known.
    """

    geometry: Geometry
    landmarks: NDArray[np.int64] | None
    root: Floats
    columns: Floats | None = None
    scatter: NDArray[np.float64] | None = None

    def factors(self, rows: NDArray[np.int64], workers: Workers | None = None) -> Floats:
        """Factors of some rows, shape (len(rows), p)."""
        near = self._near(rows)
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
        weights = self.root @ coefficients.astype(self.root.dtype)
        if self.columns is not None:
            return self.columns @ weights
        if self.landmarks is not None:
            return self.geometry.combine(self.landmarks, weights)
        return _held_as_factors(self.geometry).combine_factors(weights)

    def _near(self, rows: NDArray[np.int64]) -> Floats:
        """K[rows, landmarks], or the factors themselves."""
        if self.columns is not None:
            return self.columns[rows]
        if self.landmarks is not None:
            return self.geometry.cross(rows, self.landmarks)
        return _held_as_factors(self.geometry).take(rows, self.geometry.search_dtype)

    def turned(self, limits: Constraints, workers: Workers | None = None) -> Image:
        """The same image, its factors along the directions in which it varies within cells, leading first."""
        if self.scatter is not None:
            return self
        rows = sample_rows(limits, min(limits.n, TURNING_ROWS), np.random.default_rng(0))
        part, factors = restricted_to(limits, rows), self.factors(rows, workers)
        scatter = within_cells(part, factors, cell_means(part, factors), workers)
        values, vectors = np.linalg.eigh(scatter)
        root = self.root @ vectors[:, ::-1].astype(self.root.dtype)
        return replace(self, root=root, scatter=values[::-1])

    def leading(self, count: int) -> Image:
        """The image along its first directions alone."""
        scatter = None if self.scatter is None else self.scatter[:count]
        return replace(self, root=self.root[:, :count], scatter=scatter)

    def condensed(self, limits: Constraints, workers: Workers) -> Image:
        """The image along the directions that matter within cells.

        A wide kernel varies along few directions, and exploring is the cheaper the fewer they are.
        """
        turned = self.turned(limits, workers)
        scatter = turned.scatter
        assert scatter is not None
        # Where nothing varies, one direction stands for all.
        return turned.leading(max(1, int((scatter > NEGLIGIBLE * scatter[0]).sum())))


def image_rank(n: int) -> int:
    """Landmarks that suffice to split n rows in two."""
    return min(n, max(n // ROWS_PER_LANDMARK, FEWEST_IN_TWO), MOST_IN_TWO)


def explored_rows(n: int) -> int:
    """How many of n rows are explored: a sample of them once all would take more than twice as long."""
    return n if n <= 2 * SAMPLE_ROWS else SAMPLE_ROWS


def make_image(geometry: Geometry, rng: np.random.Generator, rank: int = MOST_LANDMARKS) -> Image:
    """Draw landmarks and factor the kernel among them, unless it is held as factors that are no more."""
    if isinstance(geometry, FactorGeometry) and geometry.mixing is None and geometry.width <= rank:
        return Image(geometry, None, np.eye(geometry.width, dtype=geometry.search_dtype))
    landmarks = geometry.draw_landmarks(rank, rng)
    columns = None
    if isinstance(geometry, DenseGeometry):
        columns = geometry.matrix.columns(landmarks, geometry.workers)
        among = columns[landmarks].astype(np.float64)
    else:
        among = geometry.block(landmarks, landmarks)
        if explored_rows(geometry.n) == geometry.n:
            columns = geometry.cross(np.arange(geometry.n), landmarks)
    root = inverse_root(among, geometry.search_dtype)
    return Image(geometry, landmarks, root.astype(geometry.search_dtype), columns)


def _held_as_factors(geometry: Geometry) -> FactorGeometry:
    assert isinstance(geometry, FactorGeometry)
    return geometry
