"""What a strategy is given, and the constraints of those that know only a total."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from clustersplit_cli.core.constraints.cells import Cells, Constraints
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.problem import Members, Problem


@dataclass(frozen=True)
class Ground:
    """A problem, who does the work, and whether no kernel value is negative.

    `draw` draws one random split per stream, (n, r), where cells hang together; None where they do not.
    """

    problem: Problem
    workers: Workers
    nonnegative: bool = False
    draw: Callable[[Sequence[np.random.Generator]], Members] | None = None


class Strategy(Protocol):
    """A way to choose validation rows: members of shape (n,), the same for the same generator."""

    def __call__(self, ground: Ground, rng: np.random.Generator) -> Members:
        """Choose."""


def total_only(constraints: Constraints) -> Constraints:
    """The same number of validation rows, taken from one cell of all rows."""
    return of_size(constraints.n, int(constraints.target.sum()))


def of_size(n: int, n_val: int) -> Constraints:
    """Any validation rows among n, of the given number."""
    wanted = np.array([n_val], dtype=np.int64)
    cells = Cells(np.zeros(n, dtype=np.int64), ({},), np.array([n], dtype=np.int64))
    return Constraints(cells, wanted, wanted, wanted, np.arange(n), np.array([0, n], dtype=np.int64))
