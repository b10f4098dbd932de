"""Proof that a split is a fixed point of the constrained k-means assignment step."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.cbc import AssignmentProgram, solve_program, solve_transport
from clustersplit_cli.core.assignment.highs import solve
from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.constraints.cells import Labels
from clustersplit_cli.core.constraints.program import Limits
from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.constraints.requirements import Requirements
from clustersplit_cli.core.search.partition import PartAssigner, PartitionMeasures
from clustersplit_cli.core.search.problem import Members, SplitMeasures

GAP_TOLERANCE = 1e-6
CERTIFICATE_SECONDS = 20.0
"""Time for branch and bound, for each orientation."""
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

    def lacking(self, residual: float) -> FixedPoint:
        """The same for a kernel that the one measured on lacks so much of the trace of.

        What is lacking is a kernel too: it adds to the optimum nothing or more, and to the split's own cost
        its own Psi, which is no more than its trace.
        """
        if residual == 0.0:
            return self
        gap = self.gap + residual / max(self.objective, residual)
        fixed = self.status == "optimal"
        return replace(self, gap=gap, status=_status(gap) if fixed else self.status)


def certify_by_cbc(
    measured: SplitMeasures,
    members: Members,
    constraints: ValidationQuotas,
    program: AssignmentProgram | None = None,
) -> FixedPoint:
    """Solve both orientations as relaxed linear programs with PuLP and CBC.

    Parameters
    ----------
    program : that of the constraints, if it has been stated before.
    """
    difference = measured.difference
    program = program or AssignmentProgram(constraints)
    with ThreadPoolExecutor(2) as both:
        kept, turned = both.map(program.solve, (difference, -difference))
    costs = (
        measured.training_cost + float(difference[kept.chosen].sum()),
        measured.training_cost + float(difference.sum()) - float(difference[turned.chosen].sum()),
    )
    return _judge("cbc", min(costs), kept.integral and turned.integral, 2, measured, members)


def certify_program(
    measured: SplitMeasures, members: Members, requirements: Requirements, backend: str
) -> FixedPoint:
    """Solve both orientations of constraints that do not separate, over rows or units.

    Where integers are needed and optimality cannot be proven in time, the relaxed program's bound stands in
    for the optimum, and the status says so.
    """
    program, units = requirements.program, requirements.units
    difference, chosen = measured.difference, members
    if units is not None:
        difference = np.asarray(np.bincount(units, weights=difference), dtype=np.float64)
        chosen = np.zeros(requirements.n_units, dtype=bool)
        chosen[units[members]] = True
    answers = []
    own = measured.training_cost + float(difference[chosen].sum())
    for costs, constant in (
        (difference, measured.training_cost),
        (-difference, measured.training_cost + float(difference.sum())),
    ):
        if backend == "cbc":
            solved = solve_program(
                costs, program, present=chosen, seconds=CERTIFICATE_SECONDS, enough=own - constant
            )
            proven = solved.status != "stopped early"
            least = float(costs @ solved.chosen) if solved.status == "optimal" else solved.bound
            answers.append((constant + least, proven, 1 + solved.branched))
        else:
            found = solve(
                program,
                costs,
                present=chosen,
                limits=Limits(seconds=CERTIFICATE_SECONDS),
                enough=own - constant,
            )
            assert found is not None  # the split itself is feasible
            answers.append((constant + found.bound, found.proven, 1 + found.branched))
    optimum = min(answer[0] for answer in answers)
    n_lps = sum(answer[2] for answer in answers)
    judged = _judge(backend, optimum, True, n_lps, measured, members)
    if judged.status != "optimal" and not all(answer[1] for answer in answers):
        return replace(judged, status="not proven")
    return judged


def certify_by_threshold(
    measured: SplitMeasures, members: Members, constraints: ValidationQuotas
) -> FixedPoint:
    """Use the closed form: the split must cost what every cell's cheapest rows cost, either way round."""
    difference = measured.difference
    selection = Selection(constraints)
    both = selection.choose(np.stack([difference, -difference], axis=1))
    costs = (
        measured.training_cost + float(difference[both[:, 0]].sum()),
        measured.training_cost + float(difference.sum()) - float(difference[both[:, 1]].sum()),
    )
    return _judge("threshold", min(costs), True, 0, measured, members)


def _judge(
    backend: str, optimum: float, integral: bool, n_lps: int, measured: SplitMeasures, members: Members
) -> FixedPoint:
    own = measured.training_cost + float(measured.difference[members].sum())
    # Costs are differences of numbers as large as the trace: where they all vanish, a gap is rounding.
    gap = (own - optimum) / max(optimum, SMALLEST_OBJECTIVE * measured.trace)
    return FixedPoint(backend, _status(gap), optimum, gap, integral, n_lps)


def _status(gap: float) -> str:
    return "optimal" if gap <= GAP_TOLERANCE else "not a fixed point"


def certify_partition(
    measured: PartitionMeasures, labels: Labels, assigner: PartAssigner, *, by_cbc: bool
) -> FixedPoint:
    """Solve the assignment step at the partition's own centroids.

    Parameters
    ----------
    by_cbc : whether CBC solves it, each cell on its own, for the centroids as they are; other ways to hand
        them out, and all of it without CBC, go through the method of the search.
    """
    costs = measured.costs
    found = assigner.assign(costs[None])
    optimum, n_lps, integral = float(found.costs[0]), 0, True
    if by_cbc:
        cost, n_lps, integral = _by_cbc(costs, assigner)
        optimum = min(optimum, cost)
    own = float(costs[np.arange(len(labels)), labels].sum())
    objective = measured.trace + optimum
    gap = (own - optimum) / max(objective, SMALLEST_OBJECTIVE * measured.trace)
    status = "optimal" if gap <= GAP_TOLERANCE else "not a fixed point"
    return FixedPoint("cbc" if by_cbc else "transport", status, objective, gap, integral, n_lps)


def _by_cbc(costs: NDArray[np.float64], assigner: PartAssigner) -> tuple[float, int, bool]:
    """The least cost, the programs it took, and whether all of them ended in whole numbers."""
    pinned = assigner.quotas.pinned
    forced = np.flatnonzero(pinned >= 0)
    total = float(costs[forced, pinned[forced]].sum())
    cells = [cell.limits for cell in assigner.cells]
    labels, integral = solve_transport(costs[None], cells, assigner.workers)
    for rows, _, _ in cells:
        total += float(costs[rows, labels[0, rows]].sum())
    return total, len(cells), integral
