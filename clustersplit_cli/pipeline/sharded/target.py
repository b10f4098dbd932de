"""Target rows beside rows in shards: the split that looks like them, and how far they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.factored import FactoredKernel
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.data.dataset import TargetRows
from clustersplit_cli.engines.rules import Differences
from clustersplit_cli.pipeline.sharded.prepare import ShardedKernel
from clustersplit_cli.pipeline.target import ShiftTest, TargetDistances, look_for_shift, target_factors

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class ShardedTarget:
    """The target as the rows that are split see it: through the mean of its factors."""

    rows: TargetRows
    mean: Vector
    test: ShiftTest

    def witness(self, kernel: FactoredKernel) -> Differences:
        """k_E - k_S as weights on F; the rows that are least different from the target come first."""
        weights = kernel.weigh(self.mean - kernel.total / kernel.n)
        return Differences(weights[:, None], np.zeros(1))

    def mean_witness(self, kernel: FactoredKernel, sums: Vector, n_val: int) -> float:
        """The mean witness of validation rows, whose factors sum to `sums`, minus that of training rows."""
        train = (kernel.total - sums) / (kernel.n - n_val)
        return float((sums / n_val - train) @ self.witness(kernel).weights[:, 0])

    def distances(self, kernel: FactoredKernel, sums: Vector, n_val: int) -> TargetDistances:
        """MMD² of all rows and of both sides to the target."""
        means = kernel.total / kernel.n, (kernel.total - sums) / (kernel.n - n_val), sums / n_val
        squares = kernel.square(np.stack([mean - self.mean for mean in means], axis=1))
        return TargetDistances(*squares.tolist())


def see_target(
    kernel: ShardedKernel, sample: Floats, target: TargetRows, seed: int, workers: Workers
) -> ShardedTarget:
    """Compare the rows with the target, under the kernel that was resolved on the rows alone.

    Parameters
    ----------
    sample : raw rows for the test.
    """
    prepared, plan = kernel.prepared, kernel.plan
    rows = prepared.elsewhere(target.features)
    mean = target_factors(rows, prepared.kernel, plan.centres, plan.stored, workers)
    return ShardedTarget(target, mean, look_for_shift(sample, target, prepared, seed, workers))
