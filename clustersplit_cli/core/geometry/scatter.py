"""How rows scatter around the means of their cells."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Cells
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.parallel import Workers, tiles

GRAM_ROWS = 2048
FEW_CELLS = 64
"""Rows per cell from which on cells are few."""


def cell_means(cells: Cells, rows: Floats) -> NDArray[np.float64]:
    """Mean of the rows of each cell, shape (cells, p)."""
    grouped = rows if cells.is_grouped else rows[cells.order]
    edges = cells.offsets
    if FEW_CELLS * len(edges) > len(grouped):
        sums = np.add.reduceat(grouped, edges[:-1], axis=0)
    else:  # adding rows up cell by cell is many times faster
        sums = np.stack([grouped[start:stop].sum(axis=0) for start, stop in pairwise(edges.tolist())])
    return np.asarray(sums / cells.sizes[:, None], dtype=np.float64)


def within_cells(
    cells: Cells,
    factors: Floats,
    means: NDArray[np.float64],
    workers: Workers | None = None,
) -> NDArray[np.float64]:
    """(PF)'PF, the scatter of the factors within cells: F'F less the sum of n_g m_g m_g', shape (p, p)."""

    def product(tile: tuple[int, int]) -> Floats:
        some = factors[slice(*tile)]
        part: Floats = some.T @ some
        return part

    pieces = tiles(len(factors), GRAM_ROWS)
    gram = np.zeros((factors.shape[1],) * 2)
    for part in map(product, pieces) if workers is None else workers.map(product, pieces):
        gram += part
    return np.asarray(gram - (means.T * cells.sizes) @ means)
