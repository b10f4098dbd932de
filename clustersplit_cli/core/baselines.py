"""What a split is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clustersplit_cli.core.search.problem import Members, Problem, squared_mmd
from clustersplit_cli.core.search.starts import random_splits


@dataclass(frozen=True)
class RandomMMD:
    """Mean and standard deviation of the MMD of random splits that meet the same quotas, and all values."""

    n: int
    mean: float
    sd: float
    values: tuple[float, ...] = ()


def random_mmd(
    problem: Problem, streams: Sequence[np.random.Generator], splits: Members | None = None
) -> RandomMMD:
    """Draw one stratified random split per stream, or take those given, and measure them in one pass."""
    splits = random_splits(problem.constraints, streams) if splits is None else splits
    values = np.sqrt(np.maximum(squared_mmd(problem, splits), 0.0))
    return RandomMMD(len(values), float(values.mean()), float(values.std(ddof=1)), tuple(values.tolist()))
