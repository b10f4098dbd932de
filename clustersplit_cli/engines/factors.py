"""How rows of the input become factors of the kernel, the same on every machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Features, Floats, Step
from clustersplit_cli.core.geometry.kernels import Kernel
from clustersplit_cli.core.geometry.nystrom import Centres, centre_tiles
from clustersplit_cli.core.parallel import Workers


@dataclass(frozen=True)
class Numbering:
    """How the rows that take part, and the cells they are in, are numbered.

    Attributes
    ----------
    cells : the number of every cell, by its values.
    offsets : the first kept row of every shard.
    """

    cells: Mapping[tuple[Any, ...], int]
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class FactorPlan:
    """K = F M M' F', where a row of F is a row's kernel with the landmarks, or for linear kernels the row.

    Attributes
    ----------
    steps, dtype : the maps that prepare a row, and the precision in which they do.
    centres : (q, d) prepared landmark rows; None for linear kernels.
    stored : the precision of what is kept between passes: F, or for linear kernels the raw row.
    """

    kernel: Kernel
    steps: tuple[Step, ...]
    dtype: np.dtype[Any]
    centres: Floats | None
    stored: np.dtype[Any]
    n_features: int

    @property
    def width(self) -> int:
        """Columns of F."""
        return self.n_features if self.centres is None else len(self.centres)

    def to_store(self, raw: Floats, workers: Workers) -> Floats:
        """What is kept of some rows."""
        if self.centres is None:
            return raw
        centres, rows = Centres.of(self.kernel, self.centres), Features(raw, self.steps, self.dtype)
        kept: Floats = np.empty((len(raw), self.width), self.stored)
        workers.run(lambda tile: centres.compare(rows, *tile, kept[slice(*tile)]), centre_tiles(len(raw)))
        return kept

    def factors(self, stored: Floats) -> NDArray[np.float64]:
        """Rows of F, from what was kept of them."""
        if self.centres is not None:
            return stored.astype(np.float64)
        block = Features(stored, self.steps, np.float64).block(0, len(stored))
        return np.asarray(block, dtype=np.float64)
