"""The rows that are brought together: landmarks, and samples small enough for one machine's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.engines.descent import choose
from clustersplit_cli.engines.executor import Executor
from clustersplit_cli.engines.rules import ByThreshold, Uniform
from clustersplit_cli.engines.tasks import Chosen, Gather

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Gathered:
    """Rows in memory: their numbers among all that take part, ascending, raw features and cells."""

    numbers: Numbers
    raw: Floats
    codes: NDArray[np.int64]

    def rows(self, numbers: Numbers) -> Floats:
        """Raw features of some of them."""
        return self.raw[self.places(numbers)]

    def places(self, numbers: Numbers) -> Numbers:
        """Where some of them are."""
        return np.searchsorted(self.numbers, numbers)


def gather(executor: Executor, wanted: Mapping[str, Numbers], width: int, dtype: np.dtype[Any]) -> Gathered:
    """Bring several sets of rows together in one pass."""
    numbers = np.unique(np.concatenate(list(wanted.values())))
    raw: Floats = np.empty((len(numbers), width), dtype)
    codes = np.empty(len(numbers), np.int64)
    for places, rows, cells in executor.run(Gather(numbers)):
        raw[places], codes[places] = rows, cells
    return Gathered(numbers, raw, codes)


def stratified_numbers(
    executor: Executor, sizes: NDArray[np.int64], size: int, rng: np.random.Generator
) -> Numbers:
    """Draw about `size` rows, the same share of every cell but at least one of each, ascending.

    The draw depends on the seed and on the rows' numbers alone, and not on how they are stored.
    """
    n = int(sizes.sum())
    wanted = np.minimum(-(-sizes * min(size, n) // n), sizes)
    source = Uniform.of([rng])
    rule = ByThreshold(source, choose(executor, source, wanted[:, None]))
    return np.concatenate(executor.run(Chosen(rule)))
