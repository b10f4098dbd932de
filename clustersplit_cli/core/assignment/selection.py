"""The assignment step: which rows go to validation, given each row's cost of going there.

With two clusters and disjoint cells the linear program separates by cell and has a closed form:
take the quota's worth of cheapest rows in every cell. CBC solves the same program in `cbc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.quotas import ValidationQuotas

SMALL_CELL = 64
BOTH_AT_ONCE = 1 << 16
"""Costs up to which both orientations are solved as one batch: there a call costs more than a copy."""


class Assigner(Protocol):
    """Minimises the sum of the chosen rows' costs subject to the cells' bounds."""

    def choose(self, costs: NDArray[Any], present: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """Return, for costs of shape (n, r), r independent choices of shape (n, r).

        `present` are choices to begin from, and to keep where nothing cheaper is found in time.
        """


class CellAssigner(Assigner, Protocol):
    """An assigner that decides cell by cell, and can do so for the rows of any other problem."""

    def on(self, constraints: ValidationQuotas) -> CellAssigner:
        """Return the same kind of assigner for other constraints."""


@dataclass(frozen=True)
class Selection:
    """The closed form; ties go to the lower row number."""

    constraints: ValidationQuotas

    def on(self, constraints: ValidationQuotas) -> Selection:
        """The closed form for other constraints."""
        return Selection(constraints)

    def choose(self, costs: NDArray[Any], present: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """Take the cheapest rows of every cell: the quota, or with bounds as many as have negative cost."""
        limits = self.constraints
        across = costs.T
        by_cell = np.ascontiguousarray(across)
        if not limits.cells.is_grouped:
            by_cell = np.take(by_cell, limits.cells.order, axis=1)
        if limits.n > SMALL_CELL * len(limits.target):
            chosen = self._cell_by_cell(by_cell)
        else:
            chosen = self._all_cells_at_once(by_cell)
        result: NDArray[np.bool_] = chosen
        if not limits.cells.is_grouped:
            result = np.empty(chosen.shape, dtype=bool)
            result[:, limits.cells.order] = chosen
        return np.transpose(result)

    def _quotas(self, cell: int | NDArray[np.int64], n_negative: NDArray[np.int64]) -> NDArray[np.int64]:
        limits = self.constraints
        return np.clip(n_negative, limits.lower[cell], limits.upper[cell])

    def _cell_by_cell(self, costs: NDArray[Any]) -> NDArray[np.bool_]:
        """Partition each cell around its threshold: linear time, for few large cells."""
        limits = self.constraints
        chosen = np.zeros(costs.shape, dtype=bool)
        for cell in range(len(limits.target)):
            span = slice(limits.cells.offsets[cell], limits.cells.offsets[cell + 1])
            part = costs[:, span]
            if limits.lower[cell] == limits.upper[cell]:
                chosen[:, span] = cheapest(part, int(limits.lower[cell]))
                continue
            quotas = self._quotas(cell, (part < 0).sum(axis=1))
            for quota in np.unique(quotas):
                runs = np.flatnonzero(quotas == quota)
                chosen[runs, span] = cheapest(part[runs], int(quota))
        return chosen

    def _all_cells_at_once(self, costs: NDArray[Any]) -> NDArray[np.bool_]:
        """Rank the rows of all cells of one size together: no loop over cells, for many small ones."""
        chosen = np.zeros(costs.shape, dtype=bool)
        for cells, rows in self._cells_by_size:
            part = costs[:, rows]
            quotas = self._quotas(cells, (part < 0).sum(axis=2))[:, :, None]
            ranked = np.sort(part, axis=2)
            threshold = np.take_along_axis(ranked, np.maximum(quotas - 1, 0), axis=2)
            picked = (part <= threshold) & (quotas > 0)
            # Where more entries equal the threshold than there is room for, the last of them are given up.
            full = picked.sum(axis=2, keepdims=True) > quotas
            if full.any():
                run, cell = np.nonzero(full[:, :, 0])
                order = np.argsort(part[run, cell], axis=1, kind="stable")
                among = np.arange(rows.shape[1]) < quotas[run, cell]
                np.put_along_axis(among, order, among.copy(), axis=1)
                picked[run, cell] = among
            chosen[:, rows] = picked
        return chosen

    @cached_property
    def _cells_by_size(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """For every size of cells, which ones have it, and their rows, cell by cell: (m,) and (m, size)."""
        sizes = np.diff(self.constraints.cells.offsets)
        return [
            (cells, self.constraints.cells.offsets[cells, None] + np.arange(size))
            for size in np.unique(sizes).tolist()
            for cells in [np.flatnonzero(sizes == size)]
        ]


def cheapest(costs: NDArray[Any], quota: int) -> NDArray[np.bool_]:
    """Mark the `quota` smallest entries of every row, the earlier ones among equals."""
    if quota == 0:
        return np.zeros(costs.shape, dtype=bool)
    threshold = np.partition(costs, quota - 1, axis=1)[:, quota - 1 : quota]
    chosen = costs <= threshold
    if np.count_nonzero(chosen) == quota * len(costs):
        return chosen
    surplus = chosen.sum(axis=1) - quota
    for run in np.flatnonzero(surplus):
        # More entries equal the threshold than there is room for: give up the last of them.
        equal = np.flatnonzero(costs[run] == threshold[run])
        chosen[run, equal[-surplus[run] :]] = False
    return chosen


def nth_smallest(
    values: NDArray[Any], constraints: ValidationQuotas, ranks: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The value of the given rank, from 0, in every cell, of values that go cell by cell."""
    offsets = constraints.cells.offsets
    if constraints.n > SMALL_CELL * len(ranks):
        spans = zip(offsets[:-1].tolist(), offsets[1:].tolist(), ranks.tolist(), strict=True)
        return np.array([np.partition(values[start:stop], rank)[rank] for start, stop, rank in spans])
    # By value, then by cell in the narrowest integers, which are sorted by their digits.
    codes = np.repeat(np.arange(len(ranks), dtype=np.min_scalar_type(len(ranks))), np.diff(offsets))
    order = np.argsort(values)
    order = order[np.argsort(codes[order], kind="stable")]
    return np.asarray(values[order[offsets[:-1] + ranks]])


def cheaper_orientation(
    difference: NDArray[Any], assigner: Assigner, present: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Solve the paper's disjunction: either centroid may be the validation one; keep the cheaper.

    Parameters
    ----------
    difference : (n, r), squared distance to the validation centroid minus that to the training centroid.

    Returns
    -------
    The choices of shape (n, r), and their costs relative to sending every row to the training centroid.
    Ties keep the present orientation.
    """
    if difference.size <= BOTH_AT_ONCE:
        costs = np.concatenate([difference.T, -difference.T]).T
        both = assigner.choose(costs, None if present is None else np.concatenate([present.T, present.T]).T)
        kept, turned = np.split(both, 2, axis=1)
    else:
        kept, turned = assigner.choose(difference, present), assigner.choose(-difference, present)
    exact = difference.astype(np.float64, copy=False)
    kept_cost = np.einsum("ij,ij->j", exact, kept)
    turned_cost = exact.sum(axis=0) - np.einsum("ij,ij->j", exact, turned)
    flip = turned_cost < kept_cost
    return np.where(flip, turned, kept), np.where(flip, turned_cost, kept_cost)
