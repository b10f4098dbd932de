"""The assignment step where cells hang together: a linear program, with integers where it takes them.

Units (rows that stay together, or single rows) are chosen for validation; every cell of every family
bounds how many of its rows are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Program:
    """Choose units such that `lower <= matrix @ chosen <= upper`.

    Attributes
    ----------
    matrix : (cells, units) sparse, rows of each unit in each cell.
    fixed : (units,) 1 and 0 where the choice is made already, -1 elsewhere.
    """

    matrix: Any
    lower: NDArray[np.int64]
    upper: NDArray[np.int64]
    fixed: NDArray[np.int64]

    @cached_property
    def free(self) -> NDArray[np.int64]:
        """The units to choose from."""
        return np.flatnonzero(self.fixed < 0)

    @cached_property
    def columns(self) -> Any:
        """The matrix by columns."""
        return self.matrix.tocsc()

    @cached_property
    def by_unit(self) -> Any:
        """The matrix transposed: a row per unit."""
        return self.matrix.T.tocsr()

    @cached_property
    def classes(self) -> NDArray[np.int64]:
        """A number per unit, equal where columns are equal."""
        return column_classes(self.columns)

    @cached_property
    def blocks(self) -> list[Block] | None:
        """The program in pieces that do not touch; None if it is in one piece."""
        return blocks_of(self)

    def is_met_by(self, chosen: NDArray[np.bool_]) -> bool:
        """Whether a choice meets all bounds and keeps what is fixed."""
        counts = self.matrix @ chosen.astype(np.int64)
        kept = (self.fixed < 0) | (self.fixed == chosen)
        return bool((counts >= self.lower).all() and (counts <= self.upper).all() and kept.all())


@dataclass(frozen=True)
class Block:
    """Units that share cells with each other and with no others, as a program of their own."""

    units: NDArray[np.int64]
    program: Program


@dataclass(frozen=True)
class Assignment:
    """A choice of units.

    Attributes
    ----------
    bound : no choice costs less.
    branched : whether integers had to be asked for.
    proven : whether the choice is known to be optimal.
    near_enough : whether it is known to be as near to that as was asked for.
    """

    chosen: NDArray[np.bool_]
    cost: float
    bound: float
    branched: bool
    proven: bool
    near_enough: bool


@dataclass(frozen=True)
class Limits:
    """When branch and bound may stop: at a relative gap, or after some nodes or seconds.

    With `repairing`, a choice is first made from the relaxed one by exchanges, and with no nodes allowed
    it is all there is.
    """

    gap: float = 0.0
    repairing: bool = False
    nodes: int | None = None
    seconds: float | None = None


def blocks_of(program: Program) -> list[Block] | None:
    """Take a program apart; None if it is in one piece, or has cells without units."""
    from scipy.sparse.csgraph import connected_components

    touching = program.matrix @ program.matrix.T
    n_blocks, block_of_cell = connected_components(touching, directed=False)
    if n_blocks == 1:
        return None
    columns = program.columns
    width = np.diff(columns.indptr)
    if (width == 0).any():
        return None
    block_of_unit = block_of_cell[columns.indices[columns.indptr[:-1]]]
    blocks = []
    for block in range(n_blocks):
        cells, units = np.flatnonzero(block_of_cell == block), np.flatnonzero(block_of_unit == block)
        if len(units) == 0:
            return None
        part = columns[:, units][cells].tocsr()
        blocks.append(
            Block(units, Program(part, program.lower[cells], program.upper[cells], program.fixed[units]))
        )
    return blocks


def column_classes(columns: Any) -> NDArray[np.int64]:
    """Number the columns of a sparse matrix so that equal ones, and only they, share a number."""
    n = columns.shape[1]
    widths = np.diff(columns.indptr)
    columns.sort_indices()
    table = np.full((n, 2 * int(widths.max(initial=0))), -1, dtype=np.int64)
    column = np.repeat(np.arange(n), widths)
    place = np.arange(len(column)) - np.repeat(columns.indptr[:-1], widths)
    table[column, 2 * place] = columns.indices
    table[column, 2 * place + 1] = columns.data
    return np.asarray(np.unique(table, axis=0, return_inverse=True)[1].reshape(n), dtype=np.int64)
