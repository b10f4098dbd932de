"""Proof that a split is a fixed point of the constrained k-means assignment step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustersplit_cli.core.assignment import Selection
from clustersplit_cli.core.cbc import solve_assignment
from clustersplit_cli.core.constraints import Constraints
from clustersplit_cli.core.problem import Evaluation, Members

GAP_TOLERANCE = 1e-6
SMALLEST_OBJECTIVE = 1e-8
"""Share of the kernel's trace below which an objective is too close to zero to be relative to."""


@dataclass(frozen=True)
class FixedPoint:
    """The assignment program solved at the split's own centroids, in both orientations.

    `objective` is the optimal total squared distance over both; `gap` is how far above it the split's own
    cost lies, relative to it. At a fixed point the gap is zero and the objective is Psi.
    """

    backend: str
    status: str
    objective: float
    gap: float
    integral: bool
    n_lps: int


def certify_by_cbc(evaluation: Evaluation, members: Members, constraints: Constraints) -> FixedPoint:
    """Solve both orientations as relaxed linear programs with PuLP and CBC."""
    difference = evaluation.difference
    kept, turned = solve_assignment(difference, constraints), solve_assignment(-difference, constraints)
    costs = (
        evaluation.training_cost + float(difference[kept.chosen].sum()),
        evaluation.training_cost + float(difference.sum()) - float(difference[turned.chosen].sum()),
    )
    return _judge("cbc", min(costs), kept.integral and turned.integral, 2, evaluation, members)


def certify_by_threshold(evaluation: Evaluation, members: Members, constraints: Constraints) -> FixedPoint:
    """Use the closed form: the split must cost what every cell's cheapest rows cost, either way round."""
    difference = evaluation.difference
    selection = Selection(constraints)
    both = selection.choose(np.stack([difference, -difference], axis=1))
    costs = (
        evaluation.training_cost + float(difference[both[:, 0]].sum()),
        evaluation.training_cost + float(difference.sum()) - float(difference[both[:, 1]].sum()),
    )
    return _judge("threshold", min(costs), True, 0, evaluation, members)


def _judge(
    backend: str, optimum: float, integral: bool, n_lps: int, evaluation: Evaluation, members: Members
) -> FixedPoint:
    own = evaluation.training_cost + float(evaluation.difference[members].sum())
    # Costs are differences of numbers as large as the trace: where they all vanish, a gap is rounding.
    gap = (own - optimum) / max(optimum, SMALLEST_OBJECTIVE * evaluation.trace)
    status = "optimal" if gap <= GAP_TOLERANCE else "not a fixed point"
    return FixedPoint(backend, status, optimum, gap, integral, n_lps)
