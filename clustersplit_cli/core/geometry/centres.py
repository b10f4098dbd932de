"""Kernel values between blocks of rows and a fixed set of landmark rows.

For rbf kernels the exponent x'y - |x|²/2 - |y|²/2 is itself one product, of rows that carry two more columns:
that saves two passes over all values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Features, Floats
from clustersplit_cli.core.geometry.kernels import Kernel, half_squares
from clustersplit_cli.core.parallel import tiles

LEAST_TILE, MOST_TILE, MANY_TILES = 512, 4096, 64
"""Rows compared with all landmarks at a time: products of fewer are slower, but many workers want many."""
VALUE_ROWS = 256
"""Rows whose values stay in cache from their product to their sums."""


def centre_tiles(n: int) -> list[tuple[int, int]]:
    """Cut n rows into pieces that depend on their number alone."""
    return tiles(n, min(MOST_TILE, max(LEAST_TILE, n // MANY_TILES)))


@dataclass(frozen=True)
class Centres:
    """Landmark rows, ready to be compared with many others.

    Attributes
    ----------
    rows : (q, d), prepared for the kernel.
    carrying : (q, d), or (q, d + 2) with the columns 1 and -|y|²/2.
    """

    kernel: Kernel
    rows: Floats
    carrying: Floats

    @classmethod
    def of(cls, kernel: Kernel, rows: Floats) -> Centres:
        """Take prepared rows."""
        if kernel.name != "rbf":
            return cls(kernel, rows, rows)
        return cls(kernel, rows, np.column_stack([rows, np.ones(len(rows), rows.dtype), -half_squares(rows)]))

    def compare(self, features: Features, start: int, stop: int, out: Floats) -> NDArray[np.float64]:
        """Put kernel values of rows start..stop with all landmarks into `out`; return their sums, (q,)."""
        d = self.rows.shape[1]
        rows: Floats = np.empty((stop - start, self.carrying.shape[1]), features.dtype)
        features.write(start, stop, rows[:, :d])
        if self.kernel.name == "rbf":
            rows[:, d] = -half_squares(rows[:, :d])
            rows[:, d + 1] = 1
        products: Floats = np.matmul(
            rows, self.carrying.T, out=out if out.dtype == rows.dtype and out.flags.c_contiguous else None
        )
        summed = np.zeros(len(self.rows))
        for top in range(0, stop - start, VALUE_ROWS):
            some = slice(top, min(stop - start, top + VALUE_ROWS))
            summed += self.kernel.of_products(products[some], out[some]).sum(axis=0, dtype=np.float64)
        return summed
