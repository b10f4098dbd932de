"""What a strategy is given, and the two ways in which strategies count rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from clustersplit_cli.core.assignment import Selection
from clustersplit_cli.core.constraints import Cells, Constraints
from clustersplit_cli.core.problem import Members, Problem
from clustersplit_cli.core.workers import Workers
from clustersplit_cli.errors import InfeasibleError


@dataclass(frozen=True)
class Ground:
    """A problem, who does the work, and whether no kernel value is negative."""

    problem: Problem
    workers: Workers
    nonnegative: bool = False


class Strategy(Protocol):
    """A way to choose validation rows: members of shape (n,), the same for the same generator."""

    def __call__(self, ground: Ground, rng: np.random.Generator) -> Members:
        """Choose."""


def at_quotas(constraints: Constraints) -> Selection:
    """A selection that takes every cell's target exactly, whatever the tolerance."""
    n_val = int(constraints.target.sum())
    if not 0 < n_val < constraints.n:
        side = "validation" if n_val == 0 else "training"
        raise InfeasibleError(
            f"the cells' quotas leave no {side} rows", hint="use --rounding balanced, or another --h"
        )
    return Selection(replace(constraints, lower=constraints.target, upper=constraints.target))


def total_only(constraints: Constraints) -> Constraints:
    """The same number of validation rows, taken from one cell of all rows."""
    n, wanted = constraints.n, np.array([constraints.target.sum()], dtype=np.int64)
    cells = Cells(np.zeros(n, dtype=np.int64), ({},), np.array([n], dtype=np.int64))
    return Constraints(cells, wanted, wanted, wanted, np.arange(n), np.array([0, n], dtype=np.int64))
