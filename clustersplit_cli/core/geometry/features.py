"""Feature rows seen through a chain of row-wise maps, converted block by block.

Standardizing, centring and scaling never copy the whole matrix: each block is converted when a tile
of the kernel needs it, which costs one part in the tile's width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from clustersplit_cli.core.parallel import Workers, tiles

Floats = NDArray[np.floating[Any]]
Step = Callable[[Floats], Floats]
"""Maps a block in place."""

BLOCK_BYTES = 8 << 20
"""Size of the float64 block in which whole-matrix statistics are accumulated."""


SPREADS_NAMED = 3
NEARLY_CONSTANT_COLUMN = 0.01
"""Deviation over the reach of values of a column in which one row in 10,000 differs from all others."""


@dataclass(frozen=True)
class Affine:
    """Column-wise `(x - shift) * scale`."""

    shift: NDArray[np.float64] | None
    scale: NDArray[np.float64] | float

    def __call__(self, block: Floats) -> Floats:
        """Map the block in place."""
        if self.shift is not None:
            block -= self.shift.astype(block.dtype)
        return self._scaled(block)

    def copied(self, rows: Floats, out: Floats) -> Floats:
        """Map the rows into another array, in its precision, in as few passes as can be."""
        if self.shift is not None and rows.dtype == out.dtype:
            np.subtract(rows, self.shift.astype(out.dtype), out=out)
            return self._scaled(out)
        # In one go numpy would convert through a small buffer, which is slower.
        out[...] = rows
        return self(out)

    def _scaled(self, block: Floats) -> Floats:
        if np.any(self.scale != 1.0):
            block *= np.asarray(self.scale, dtype=block.dtype)
        return block

    @property
    def suits_float32(self) -> bool:
        """Whether shift and scale are far from the ends of float32's range."""
        scale = np.asarray(self.scale)
        farthest = 0.0 if self.shift is None else float(np.abs(self.shift).max(initial=0.0))
        return bool(farthest < 1e30 and scale.min() > 1e-30 and scale.max() < 1e30)


def unit_rows(block: Floats) -> Floats:
    """Scale every row to length one; rows of zeros stay zero."""
    # Dividing by the largest entry first keeps the squares of huge and tiny rows in range.
    largest = np.abs(block).max(axis=1, keepdims=True, initial=0)
    block /= np.where(largest > 0, largest, 1)
    norm = np.sqrt(np.einsum("ij,ij->i", block, block))[:, None]
    block /= np.where(norm > 0, norm, 1).astype(block.dtype)
    return block


@dataclass(frozen=True)
class Features:
    """A feature matrix of shape (n, d) and the maps applied to its rows."""

    raw: Floats
    steps: tuple[Step, ...] = ()
    dtype: DTypeLike = np.float64

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        n, d = self.raw.shape
        return n, d

    def then(self, step: Step) -> Features:
        """Return the same rows with one more map applied."""
        return replace(self, steps=(*self.steps, step))

    def block(self, start: int, stop: int, dtype: DTypeLike | None = None) -> Floats:
        """Return rows start..stop after all maps, as a new array."""
        return self._through(self.raw[start:stop], dtype)

    def write(self, start: int, stop: int, out: Floats) -> Floats:
        """Put rows start..stop after all maps into an array, in its precision."""
        return self._into(self.raw[start:stop], out)

    def take(self, rows: NDArray[np.int64], dtype: DTypeLike | None = None) -> Floats:
        """Return the given rows after all maps, as a new array."""
        return self._through(self.raw[rows], dtype)

    def _through(self, rows: Floats, dtype: DTypeLike | None) -> Floats:
        return self._into(rows, np.empty(rows.shape, dtype or self.dtype))

    def _into(self, rows: Floats, out: Floats) -> Floats:
        steps = self.steps
        if steps and isinstance(steps[0], Affine):
            steps[0].copied(rows, out)
            steps = steps[1:]
        else:
            out[...] = rows
        for step in steps:
            step(out)
        return out

    def row_tiles(self) -> list[tuple[int, int]]:
        """Cut the rows into blocks of about `BLOCK_BYTES`; depends on the shape alone."""
        n, d = self.shape
        return tiles(n, max(1, BLOCK_BYTES // (8 * max(1, d))))


@dataclass(frozen=True)
class Moments:
    """Column means and standard deviations, and the largest absolute entry.

    `rest` is what the means lack for being rounded, `reach` the largest less the least value of every column,
    and `lowest` the smallest entry.
    On request also the squared length of every row less the
    mean, and the sum of these rows: not quite zero.
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    largest: float
    squares: NDArray[np.float64] | None = None
    remainder: NDArray[np.float64] | None = None
    rest: NDArray[np.float64] | None = None
    reach: NDArray[np.float64] | None = None
    lowest: float = 0.0

    @property
    def total_variance(self) -> float:
        """Sum of the column variances; infinite when it exceeds the range of float64."""
        with np.errstate(over="ignore"):
            return float((self.deviation**2).sum())


def moments(features: Features, workers: Workers, *, by_row: bool = False) -> Moments:
    """Compute column moments in float64, in two passes so that large offsets do not cancel.

    Sums are of differences from the first row, so that a constant column has a deviation of exactly 0.

    Parameters
    ----------
    by_row : whether to look at every row less the mean, too.
    """
    n, d = features.shape
    blocks = features.row_tiles()
    first = features.block(0, 1, dtype=np.float64)[0]

    def column_sum(tile: tuple[int, int]) -> tuple[NDArray[np.float64], ...]:
        block = features.block(*tile, dtype=np.float64)
        low, high = block.min(axis=0), block.max(axis=0)
        with np.errstate(over="ignore"):
            block -= first
        # Divided before they are summed, so that values near the end of float64's range do not overflow.
        return np.full(len(block), 1.0 / n) @ block, low, high

    offset, least, most = np.zeros(d), first.copy(), first.copy()
    for part, low, high in workers.map(column_sum, blocks):
        offset += part
        np.minimum(least, low, out=least)
        np.maximum(most, high, out=most)
    largest = np.maximum(most, -least)
    with np.errstate(over="ignore"):
        reach = most - least
    mean = first + offset
    # Squaring in units of a power of two near the column's largest entry is exact and stays in range.
    unit = np.ldexp(1.0, np.minimum(np.frexp(largest)[1], 1020))
    # Powers of two change no digit, so in the middle of the range nothing needs a unit.
    if largest.max(initial=0.0) < 1e120 and largest[largest > 0].min(initial=1.0) > 1e-120:
        unit = np.ones(d)
    is_scaled = bool((unit != 1.0).any())

    squares = np.empty(n) if by_row else None

    def column_scatter(tile: tuple[int, int]) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        block = features.block(*tile, dtype=np.float64)
        remainder = None
        with np.errstate(over="ignore"):
            block -= mean
            if squares is not None:
                np.einsum("ij,ij->i", block, block, out=squares[slice(*tile)])
                remainder = np.ones(len(block)) @ block
        if is_scaled:
            block /= unit
        return np.asarray(np.einsum("ij,ij->j", block, block), dtype=np.float64), remainder

    scatter, summed = np.zeros(d), np.zeros(d)
    for scatter_part, remainder in workers.map(column_scatter, blocks):
        scatter += scatter_part
        summed += 0.0 if remainder is None else remainder
    largest_entry = float(largest.max(initial=0.0))
    rest = (first - mean) + offset
    # Squares were taken of distances from the rounded mean.
    deviation = np.sqrt(np.maximum(scatter / n - (rest / unit) ** 2, 0.0)) * unit
    return Moments(
        mean,
        deviation,
        largest_entry,
        squares,
        summed if by_row else None,
        rest,
        reach,
        float(least.min(initial=0.0)),
    )


@dataclass(frozen=True)
class ColumnSpreads:
    """How the columns of the features share their variance.

    Attributes
    ----------
    varying : columns that are not constant.
    largest : shares of the total variance of the widest columns, largest first, and their places.
    effective : columns of equal variance that would share it as unevenly: one over the sum of squared shares.
    nearly_constant : places of columns that hardly any row differs in.
    """

    varying: int
    largest: tuple[tuple[int, float], ...]
    effective: float
    nearly_constant: tuple[int, ...]

    @classmethod
    def of(cls, deviation: NDArray[np.float64], reach: NDArray[np.float64] | None = None) -> ColumnSpreads:
        """Compare columns by their deviations, and each with the reach of its values if that is known."""
        varying = deviation > 0
        scaled = deviation / deviation.max(initial=0.0) if varying.any() else deviation
        shares = scaled**2 / max(float((scaled**2).sum()), np.finfo(float).tiny)
        widest = np.argsort(-shares.round(9), kind="stable")[:SPREADS_NAMED]
        near = varying & (deviation < NEARLY_CONSTANT_COLUMN * (0.0 if reach is None else reach))
        return cls(
            int(varying.sum()),
            tuple((int(column), float(shares[column])) for column in widest),
            1.0 / max(float((shares**2).sum()), np.finfo(float).tiny),
            tuple(np.flatnonzero(near).tolist()),
        )

    @property
    def is_uneven(self) -> bool:
        """Whether one column, or few of many, have most of the variance."""
        few = max(self.varying / 10, min(3.0, self.varying / 3))
        most = max(0.5, min(0.9, 2 / max(self.varying, 1)))
        return self.varying > 1 and (self.largest[0][1] > most or self.effective < few)
