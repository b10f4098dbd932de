"""Units of rows that stay together, as the atoms of a problem of their own.

All rows of a unit have the same weight in z, so K z is needed only summed over units: the search runs on
A K A', where A adds up the rows of each unit, and never sees single rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Cells, bounded
from clustersplit_cli.core.constraints.families import FREE, VAL
from clustersplit_cli.core.constraints.requirements import Requirements
from clustersplit_cli.core.geometry.dense import DenseGeometry
from clustersplit_cli.core.geometry.factored import FACTOR_ROWS, FactorGeometry
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.geometry.protocol import Geometry
from clustersplit_cli.core.geometry.symmetric import SymmetricMatrix
from clustersplit_cli.core.parallel import tiles
from clustersplit_cli.core.search.problem import Problem

DOUBLE = 4096
"""Up to this many units their kernel is held in float64."""
STRIP = 256


@dataclass(frozen=True)
class UnitKernel(DenseGeometry):
    """The kernel between units, whose trace is that of the kernel between rows."""

    row_trace: float = 0.0

    @property
    def trace(self) -> float:
        """Sum of the diagonal over rows."""
        return self.row_trace


def unit_problem(problem: Problem, requirements: Requirements) -> Problem:
    """The problem over units; units with the same rows in every cell may be exchanged."""
    units = requirements.units
    assert units is not None
    program = requirements.program
    codes = np.unique(program.classes * 3 + (program.fixed + 1), return_inverse=True)[1].reshape(-1)
    sizes = np.bincount(codes)
    names: tuple[dict[str, Any], ...] = tuple({} for _ in sizes)
    # How many of each kind there are to choose differs from split to split; pinned ones are never exchanged.
    counts = np.zeros(len(sizes), dtype=np.int64)
    constraints = bounded(Cells(codes.astype(np.int64), names, sizes), counts, counts, counts)
    return Problem(unit_geometry(problem.geometry, units), constraints, requirements.sizes)


@singledispatch
def unit_geometry(geometry: Geometry, units: NDArray[np.int64]) -> Geometry:
    """Sum a kernel over units on both sides."""
    raise TypeError(f"no units are known for a {type(geometry).__name__}")


@unit_geometry.register
def _dense(geometry: DenseGeometry, units: NDArray[np.int64]) -> Geometry:
    order = np.argsort(units, kind="stable")
    starts = np.flatnonzero(np.diff(units[order], prepend=-1))
    n_units = len(starts)
    ends = np.append(starts[1:], len(order))
    matrix: Floats = np.empty((n_units, n_units), np.float64 if n_units <= DOUBLE else geometry.matrix.dtype)

    def one(tile: tuple[int, int]) -> None:
        first, last = tile
        rows = order[starts[first] : ends[last - 1]]
        within = starts[first:last] - starts[first]
        strip = np.add.reduceat(geometry.matrix.gather(rows, order), within, axis=0, dtype=np.float64)
        matrix[first:last] = np.add.reduceat(strip, starts, axis=1)

    geometry.workers.run(one, _strips(ends - starts))
    matrix[:] = (matrix + matrix.T) / 2
    held, diagonal = SymmetricMatrix.of(matrix), matrix.diagonal().astype(np.float64)
    return UnitKernel(held, diagonal, geometry.workers, row_trace=geometry.trace)


def _strips(sizes: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Cut the units into runs of about STRIP rows."""
    piece = np.cumsum(sizes) // STRIP
    first = np.flatnonzero(np.diff(piece, prepend=-1))
    return list(zip(first.tolist(), np.append(first[1:], len(sizes)).tolist(), strict=True))


@unit_geometry.register
def _factored(geometry: FactorGeometry, units: NDArray[np.int64]) -> Geometry:
    n_units = int(units.max()) + 1
    factors = np.zeros((n_units, geometry.width))
    for start, stop in tiles(geometry.n, FACTOR_ROWS):
        np.add.at(factors, units[start:stop], geometry.rows(start, stop, geometry.search_dtype))
    mixed = factors if geometry.mixing is None else factors @ geometry.mixing
    diagonal = np.einsum("ij,ij->i", mixed, mixed)
    return replace(
        geometry,
        n=n_units,
        rows=lambda start, stop, dtype: factors[start:stop].astype(dtype, copy=False),
        take=lambda rows, dtype: factors[rows].astype(dtype, copy=False),
        diagonal=diagonal,
        landmarks=None,
        is_converted=False,
        uncentred=None,
    )


def first_choice(requirements: Requirements) -> NDArray[np.bool_]:
    """A choice of atoms that meets all bounds, the first ones of every class."""
    assert requirements.counts is not None
    program = requirements.program
    chosen = program.fixed == VAL
    free = np.flatnonzero(program.fixed == FREE)
    classes = requirements.classes[free]
    order = np.argsort(classes, kind="stable")
    ordered = classes[order]
    first = np.searchsorted(ordered, ordered)
    chosen[free[order]] = np.arange(len(ordered)) - first < requirements.counts[ordered]
    return np.asarray(chosen)
