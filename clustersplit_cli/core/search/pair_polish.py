"""Exchange rows between every two of k parts: each pair is a split in two, and polished as one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from clustersplit_cli.core.constraints.cells import Cells, bounded
from clustersplit_cli.core.constraints.quotas import PartQuotas
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.geometry.protocol import Geometry
from clustersplit_cli.core.search.partition import Labels, State, measure, remeasure
from clustersplit_cli.core.search.problem import Problem
from clustersplit_cli.core.search.swaps import polish


@dataclass(frozen=True)
class PolishedPartition:
    """A partition after exchanges, their number, and what it measures."""

    labels: Labels
    changes: int
    state: State

    @property
    def psi(self) -> float:
        """Its objective."""
        return float(self.state.psi[0])


@dataclass(frozen=True)
class _SomeRows:
    """A kernel seen from some of its rows: what polishing asks of a geometry."""

    whole: Geometry
    rows: NDArray[np.int64]

    @property
    def n(self) -> int:
        return len(self.rows)

    @property
    def diagonal(self) -> NDArray[np.float64]:
        return self.whole.diagonal[self.rows]

    def block(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.whole.block(self.rows[left], self.rows[right])

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"some rows of a kernel have no {name}")


def polish_pairs(
    geometry: Geometry,
    labels: Labels,
    quotas: PartQuotas,
    dtype: DTypeLike,
    *,
    nonnegative: bool,
    state: State | None = None,
) -> PolishedPartition:
    """Swap rows of a cell between two parts, pair after pair, while that lowers Psi.

    Parameters
    ----------
    labels : (n,)
    dtype : precision of the passes over the kernel.
    state : what the labels measure, if it is known.
    """
    k = quotas.k
    current = labels.copy()
    if state is None:
        state = measure(geometry, current[:, None], k, dtype)
    sums: Floats = state.sums[:, 0].astype(np.float64)
    # A row that is forced into a part is in a cell of its own kind, and that kind has it all on one side.
    kinds = np.unique(quotas.cells.codes * (k + 1) + quotas.pinned + 1, return_inverse=True)[1].reshape(-1)
    changes = 0
    for first, second in combinations(range(k), 2):
        rows = np.flatnonzero((current == first) | (current == second))
        members = current[rows] == first
        codes = np.unique(kinds[rows], return_inverse=True)[1].reshape(-1).astype(np.int64)
        sizes = np.bincount(codes)
        counts = np.bincount(codes[members], minlength=len(sizes))
        limits = bounded(Cells(codes, tuple({} for _ in sizes), sizes), counts, counts, counts)
        view = _SomeRows(geometry, rows)
        pair = Problem(view, limits)
        # Both are known already, and a pass over the kernel would be the price of asking the view.
        vars(pair).update(row_sums=sums[rows, first] + sums[rows, second], ssq_total=geometry.trace)
        n_first, n_second = int(members.sum()), int((~members).sum())
        witness = sums[rows, first] / n_first - sums[rows, second] / n_second
        polished = polish(pair, members, witness, nonnegative=nonnegative)
        if not polished.changes:
            continue
        changes += polished.changes
        into = rows[polished.members & ~members]
        out = rows[members & ~polished.members]
        moved = np.concatenate([into, out])
        shift = geometry.block(np.arange(geometry.n), moved) @ np.repeat([1.0, -1.0], [len(into), len(out)])
        sums[:, first] += shift
        sums[:, second] -= shift
        current[into], current[out] = first, second
    if changes:
        state = remeasure(geometry, current[:, None], k, dtype, (labels[:, None], state))
    return PolishedPartition(current, changes, state)
