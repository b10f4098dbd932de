"""MMD and scatter of labelled rows by their definitions, in float64, block by block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.mmd.definition import ROWS, Definition, Matrix, SpelledKernel, from_sums
from clustersplit_cli.core.parallel import tiles
from clustersplit_cli.data.side_files import VAL
from clustersplit_cli.engines.executor import Engine
from clustersplit_cli.engines.shard import Shard


@dataclass(frozen=True)
class SumByDefinition:
    """Sums over the rows: of their kernel with the landmarks, or of the rows where the kernel is linear.

    Attributes
    ----------
    shift : subtracted from all rows, so that less is lost to rounding.
    landmarks : (q, d) prepared and shifted; None for linear kernels.
    """

    spelled: SpelledKernel
    shift: Matrix
    landmarks: Matrix | None
    label: str = "definition"

    def __call__(self, shard: Shard) -> tuple[Matrix, float]:
        """Sums over validation rows and over all, of shape (2, p), and of squared lengths."""
        width = len(self.shift) if self.landmarks is None else len(self.landmarks)
        sums, squares = np.zeros((2, width)), 0.0
        for rows, raw in shard.raw_blocks():
            chosen = np.ones((2, len(raw)))
            chosen[0] = shard.labels(rows) == VAL

            def one(
                tile: tuple[int, int], raw: Floats = raw, chosen: NDArray[np.float64] = chosen
            ) -> tuple[Matrix, float]:
                block = self.spelled.rows(raw[slice(*tile)]) - self.shift
                if self.landmarks is not None:
                    block = self.spelled.values(block, self.landmarks)
                return chosen[:, slice(*tile)] @ block, float((block**2).sum())

            for part, square in shard.workers.map(one, tiles(len(raw), ROWS)):
                sums += part
                squares += square
            shard.on_rows(len(raw))
        return sums, squares


def define_linear(
    engine: Engine, spelled: SpelledKernel, shift: Matrix, sizes: tuple[int, int]
) -> Definition:
    """Measure the labelled split where the kernel is an inner product; `sizes`: validation rows, all rows."""
    parts = engine.run(SumByDefinition(spelled, shift, None))
    val, total = np.sum([part for part, _ in parts], axis=0)
    return from_sums(val, total, sum(square for _, square in parts), *sizes)


def define_nystrom(
    engine: Engine,
    spelled: SpelledKernel,
    shift: Matrix,
    sizes: tuple[int, int],
    landmarks: Floats,
    traced: Floats,
) -> Definition:
    """Measure it under the Nyström kernel.

    Parameters
    ----------
    landmarks : raw rows.
    traced : the raw rows that the trace is estimated from.
    """
    centres = spelled.rows(landmarks) - shift
    mixing = spelled.mixing(centres, landmarks.dtype)
    parts = engine.run(SumByDefinition(spelled, shift, centres))
    val, total = np.sum([part for part, _ in parts], axis=0) @ mixing
    squares = 0.0
    for tile in tiles(len(traced), ROWS):
        rows = spelled.rows(traced[slice(*tile)]) - shift
        squares += float(((spelled.values(rows, centres) @ mixing) ** 2).sum())
    return from_sums(val, total, squares * sizes[1] / len(traced), *sizes)
