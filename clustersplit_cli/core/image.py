"""A low-rank image of a kernel, cheap enough to explore, on all rows or on a sample of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.factored import FactorGeometry
from clustersplit_cli.core.features import Floats
from clustersplit_cli.core.geometry import Geometry, inverse_root
from clustersplit_cli.core.workers import Workers, tiles

IMAGE_RANK = 512
SAMPLE_ROWS = 8_192
TILE = 512


@dataclass(frozen=True)
class Image:
    """Factors phi(i) = K[i, landmarks] root, whose inner products approximate K (Nyström on the kernel held).

    Attributes
    ----------
    landmarks : (m,) rows; None where the kernel is held as factors that are few enough themselves.
    root : (m, p), root root' is the pseudo-inverse of K among the landmarks.
    """

    geometry: Geometry
    landmarks: NDArray[np.int64] | None
    root: Floats

    def factors(self, rows: NDArray[np.int64], workers: Workers | None = None) -> Floats:
        """Factors of some rows, shape (len(rows), p)."""
        if self.landmarks is not None:
            near = self.geometry.cross(rows, self.landmarks)
        else:
            near = as_factors(self.geometry).take(rows, self.geometry.search_dtype)
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
        if self.landmarks is not None:
            return self.geometry.combine(self.landmarks, weights)
        return as_factors(self.geometry).combine_factors(weights)


def make_image(geometry: Geometry, rng: np.random.Generator, rank: int = IMAGE_RANK) -> Image:
    """Draw landmarks and factor the kernel among them, unless it is held as factors that are no more."""
    if isinstance(geometry, FactorGeometry) and geometry.mixing is None and geometry.width <= rank:
        return Image(geometry, None, np.eye(geometry.width, dtype=geometry.search_dtype))
    landmarks = geometry.draw_landmarks(rank, rng)
    root = inverse_root(geometry.block(landmarks, landmarks), geometry.search_dtype)
    return Image(geometry, landmarks, root.astype(geometry.search_dtype))


def as_factors(geometry: Geometry) -> FactorGeometry:
    """The geometry, which is one of factors."""
    assert isinstance(geometry, FactorGeometry)
    return geometry
