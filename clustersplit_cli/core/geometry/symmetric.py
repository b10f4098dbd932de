"""A symmetric matrix that holds each pair of entries once, and is multiplied tile by tile.

A kernel matrix is the largest thing in memory. Half of it says everything, and a tile that is in cache
serves both halves of a product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.parallel import Workers, tiles

STRIP_ROWS = 512
COLUMN_TILE = 4096
CONVERTED_ROWS = 64
"""Rows of a tile that has to be converted: the copy must stay in cache."""

FEW = 4
"""Entries of a row are few if they are less than one in so many."""
HANDED_OUT = 1 << 20
"""Entries that are gathered sooner than handed out to workers."""


@dataclass(frozen=True)
class SymmetricMatrix:
    """Strips of the upper triangle.

    Attributes
    ----------
    strips : rows `i height ... (i + 1) height - 1`, each from column `i height` on.
    """

    n: int
    height: int
    strips: tuple[Floats, ...]

    @classmethod
    def empty(cls, n: int, dtype: DTypeLike, height: int = STRIP_ROWS) -> SymmetricMatrix:
        """Room for a matrix whose strips are yet to be filled."""
        strips = tuple(np.empty((stop - start, n - start), dtype) for start, stop in tiles(n, height))
        return cls(n, height, strips)

    @classmethod
    def of(cls, array: Floats, height: int = STRIP_ROWS) -> SymmetricMatrix:
        """Hold the upper triangle of an array."""
        n = len(array)
        return cls(n, height, tuple(array[start:stop, start:] for start, stop in tiles(n, height)))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of the entries."""
        return self.strips[0].dtype

    def multiply(self, vectors: Floats, workers: Workers) -> NDArray[np.float64]:
        """Return the product with vectors of shape (n, r), as (r, n).

        Tiles are multiplied in the precision of `vectors`; their sums are added in float64, in a fixed
        order.
        """
        across = np.ascontiguousarray(vectors.T)
        converts = across.dtype != self.dtype
        width = len(across)

        def one(index: int) -> NDArray[np.float64]:
            strip, first = self.strips[index], index * self.height
            h = len(strip)
            mine = across[:, first:]
            part = np.zeros((width, strip.shape[1]))
            for top, bottom in tiles(h, CONVERTED_ROWS if converts else h):
                for left, right in tiles(strip.shape[1], COLUMN_TILE):
                    tile = strip[top:bottom, left:right].astype(across.dtype, copy=False)
                    part[:, top:bottom] += mine[:, left:right] @ tile.T
                    # The strip's first square is whole, all else stands for its mirror image too.
                    if right > h:
                        beyond = max(left, h)
                        part[:, beyond:right] += mine[:, top:bottom] @ tile[:, beyond - left :]
            return part

        total = np.zeros((width, self.n))
        for index, part in enumerate(workers.map(one, range(len(self.strips)))):
            total[:, index * self.height :] += part
        return total

    def energy(self, vectors: Floats, workers: Workers) -> NDArray[np.float64]:
        """Return v'Kv for each of the vectors (n, r): half of what their product takes.

        In the precision of `vectors`; rows of tiles are added in float64.
        """
        across = np.ascontiguousarray(vectors.T)
        converts = across.dtype != self.dtype

        def one(index: int) -> NDArray[np.float64]:
            strip, first = self.strips[index], index * self.height
            h, mine = len(strip), across[:, first:]
            found = np.zeros(len(across))
            # All but the strip's first square stands for its mirror image too.
            spans = [(0, h, 1.0)]
            spans += [(h + left, h + right, 2.0) for left, right in tiles(strip.shape[1] - h, COLUMN_TILE)]
            for left, right, times in spans:
                for top, bottom in tiles(h, CONVERTED_ROWS if converts else h):
                    tile = strip[top:bottom, left:right].astype(across.dtype, copy=False)
                    near = mine[:, left:right] @ tile.T
                    found += times * np.einsum("ij,ij->i", near, mine[:, top:bottom], dtype=np.float64)
            return found

        total = np.zeros(len(across))
        for part in workers.map(one, range(len(self.strips))):
            total += part
        return total

    def combine(self, places: NDArray[np.int64], coefficients: Floats) -> Floats:
        """Multiply the columns at some places, ascending, by coefficients of shape (len(places), r).

        In the precision of the coefficients. A few columns take less time than handing them out to workers.
        """
        edges = np.searchsorted(places, np.arange(len(self.strips) + 1) * self.height)
        total = np.zeros((self.n, coefficients.shape[1]), coefficients.dtype)
        for index, strip in enumerate(self.strips):
            here, later = slice(*edges[index : index + 2]), slice(edges[index], None)
            first = index * self.height
            below = first + len(strip)
            total[first:below] += strip[:, places[later] - first] @ coefficients[later]
            total[below:] += strip[places[here] - first, len(strip) :].T @ coefficients[here]
        return total

    def gather(
        self, left: NDArray[np.int64], right: NDArray[np.int64], workers: Workers | None = None
    ) -> Floats:
        """Return the entries at all pairs of the given rows and columns."""
        if not (_is_sorted(left) and _is_sorted(right)):
            rows, row_of = np.unique(left, return_inverse=True)
            columns, column_of = np.unique(right, return_inverse=True)
            return self.gather(rows, columns, workers)[row_of[:, None], column_of]
        result: Floats = np.empty((len(left), len(right)), self.dtype)
        edges = np.arange(len(self.strips) + 1) * self.height
        top, across = np.searchsorted(left, edges), np.searchsorted(right, edges)

        def one(index: int) -> None:
            strip, first = self.strips[index], edges[index]
            rows, later = slice(top[index], top[index + 1]), slice(across[index], None)
            result[rows, later] = _entries(strip, left[rows] - first, right[later] - first)
            columns, below = slice(across[index], across[index + 1]), slice(top[index + 1], None)
            result[below, columns] = _entries(strip, right[columns] - first, left[below] - first).T

        if workers is None or result.size <= HANDED_OUT:
            for index in range(len(self.strips)):
                one(index)
        else:
            workers.run(one, range(len(self.strips)))
        return result

    def columns(self, places: NDArray[np.int64], workers: Workers) -> Floats:
        """Return the columns at some places, ascending, all rows of them."""
        result: Floats = np.empty((self.n, len(places)), self.dtype)
        edges = np.searchsorted(places, np.arange(len(self.strips) + 1) * self.height)

        def one(index: int) -> None:
            strip, first = self.strips[index], index * self.height
            here, later = slice(*edges[index : index + 2]), slice(edges[index], None)
            result[first : first + len(strip), later] = strip[:, places[later] - first]
            result[first + len(strip) :, here] = strip[places[here] - first, len(strip) :].T

        workers.run(one, range(len(self.strips)))
        return result

    def rows(self, start: int, stop: int) -> Floats:
        """Return some consecutive rows in full."""
        return self.gather(np.arange(start, stop), np.arange(self.n))

    def sum_of_squares(self, workers: Workers) -> float:
        """Sum of all squared entries; rows are summed in the matrix's precision, their sums in float64."""

        def one(strip: Floats) -> float:
            h = len(strip)
            square, beyond = strip[:, :h], strip[:, h:]
            both = np.einsum("ij,ij->i", square, square).sum(dtype=np.float64)
            return float(both + 2.0 * np.einsum("ij,ij->i", beyond, beyond).sum(dtype=np.float64))

        return sum(workers.map(one, self.strips))


def _entries(strip: Floats, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Floats:
    """The entries at all pairs: from whole rows, which is faster unless few of their entries are wanted."""
    if FEW * len(columns) >= strip.shape[1]:
        return strip[rows][:, columns]
    return strip[rows[:, None], columns]


def _is_sorted(places: NDArray[np.int64]) -> bool:
    return bool((places[1:] >= places[:-1]).all())
