"""Graded splits of rows in shards: thresholds on a blend of the best split's witness and chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.severity import ATTEMPTS
from clustersplit_cli.engines.descent import ShardedProblem, SplitByRule, at_target_counts, choose, measure
from clustersplit_cli.engines.rules import Blended, ByThreshold, Rule
from clustersplit_cli.engines.tasks import Score
from clustersplit_cli.pipeline.sharded.prepare import ShardedKernel


@dataclass(frozen=True)
class ShardedPath:
    """Splits of rows in shards, from a random one to the best.

    Attributes
    ----------
    best : the split that was found.
    spreads : (cells,), of its witness.
    state : of the stream that noise is drawn from.
    """

    problem: ShardedProblem
    best: SplitByRule
    spreads: NDArray[np.float64]
    state: Any
    points: int = 8
    attempts: int = ATTEMPTS

    def at(self, shares: Sequence[float]) -> list[tuple[float, Rule]]:
        """One pass over the scores for thresholds, and one over the factors to measure all splits."""
        executor, weights = self.problem.executor, self.best.state.weights[:, None]
        executor.run(Score(weights, "grade"))
        source = Blended(weights, self.spreads, self.state, tuple(shares))
        first = at_target_counts(self.problem.limits)
        # Counts that have room go from the targets to those of the best split.
        steps = np.outer(self.best.counts - first, np.asarray(shares))
        quotas = np.rint(first[:, None] + steps).astype(np.int64)
        rule = ByThreshold(source, choose(executor, source, quotas))
        return [
            (float(max(split.state.mmd_squared, 0.0) ** 0.5), split.rule)
            for split in measure(self.problem, rule)
        ]


PIECE = 4096


def witness_spreads(kernel: ShardedKernel, best: SplitByRule, workers: Workers) -> NDArray[np.float64]:
    """Standard deviations of the witness within cells, on the sample; that of all for small cells."""
    sample, plan, n_cells = kernel.sample, kernel.plan, len(best.counts)
    pieces = [
        plan.factors(plan.to_store(sample.raw[start : start + PIECE], workers)) @ best.state.weights
        for start in range(0, len(sample.raw), PIECE)
    ]
    witness = np.concatenate(pieces)
    sizes = np.maximum(np.bincount(sample.codes, minlength=n_cells), 1)
    centred = witness - (np.bincount(sample.codes, witness, n_cells) / sizes)[sample.codes]
    squares = np.bincount(sample.codes, centred**2, n_cells)
    overall = float(np.sqrt(squares.sum() / max(len(witness), 1))) or 1.0
    spreads = np.sqrt(squares / sizes)
    return np.where((sizes > 1) & (spreads > 0), spreads, overall)
