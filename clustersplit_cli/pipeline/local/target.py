"""Target rows beside rows in memory: splits made for an aim, and what they measure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.aims import NearestPoint, approach, bound_and_check, lookalike
from clustersplit_cli.core.assignment.cbc import AssignmentProgram
from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.geometry.factored import FactorGeometry
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.matching import Matching, match_means
from clustersplit_cli.core.mmd.evaluation import Outside, mmd_to_outside, see_outside
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.problem import Members, Problem
from clustersplit_cli.data.dataset import TargetRows
from clustersplit_cli.options import LOOKALIKE, NEAREST, SHIFT
from clustersplit_cli.pipeline.context import LocalKernel
from clustersplit_cli.pipeline.target import (
    ShiftTest,
    TargetDistances,
    certify_sum,
    look_for_shift,
    sampled_rows,
    target_factors,
)
from clustersplit_cli.reports.summary import AimCertificate


@dataclass(frozen=True)
class LocalTarget:
    """The target as the rows that are split see it."""

    rows: TargetRows
    problem: Problem
    outside: Outside
    test: ShiftTest

    @cached_property
    def witness(self) -> NDArray[np.float64]:
        """k_E - k_S: large where a row looks like the target."""
        return self.outside.mean - self.problem.row_sums / self.problem.n

    def choose(self, aim: str, restarts: int, rng: np.random.Generator) -> Members:
        """The best split found for the aim."""
        if aim == LOOKALIKE:
            return lookalike(self.problem.constraints, self.witness)
        return approach(self._point(aim), restarts, rng.spawn(max(restarts, 8))).members

    def certify(self, aim: str, members: Members, *, by_cbc: bool) -> AimCertificate | None:
        """Compare a split with what no split for this aim can surpass."""
        if aim in (NEAREST, SHIFT):
            found = bound_and_check(self._point(aim), members)
            status = "no exchange gains" if found.is_swap_optimal else "an exchange gains"
            return AimCertificate("relaxation", "exchange", status, found.squared, found.lower)
        if aim != LOOKALIKE:
            return None
        limits, costs = self.problem.constraints, -self.witness
        chosen = AssignmentProgram(limits).solve(costs).chosen if by_cbc else None
        if chosen is None:
            chosen = Selection(limits).choose(costs[:, None])[:, 0]
        value, bound = (self._mean_witness(each) for each in (members, chosen))
        return certify_sum(value, bound, "cbc" if by_cbc else "threshold")

    def _mean_witness(self, members: Members) -> float:
        """The mean witness of validation rows minus that of training rows."""
        return float(self.witness[members].mean() - self.witness[~members].mean())

    def _point(self, aim: str) -> NearestPoint:
        make = NearestPoint.to_target if aim == NEAREST else NearestPoint.to_shift
        return make(self.problem, self.outside)

    def distances(self, members: Members) -> TargetDistances:
        """MMD² of all rows and of both sides to the target."""
        whole = self.problem.geometry.grand_total / self.problem.n**2
        whole += self.outside.norm - 2.0 * float(self.outside.mean.mean())
        train, val = mmd_to_outside(self.problem, members, self.outside)
        return TargetDistances(whole, train**2, val**2)

    def match(self, members: Members) -> Matching:
        """Weights with which the validation rows stand for the target."""
        return match_means(self.problem.geometry, np.flatnonzero(members), self.outside)


def see_target(
    held: LocalKernel, problem: Problem, raw: Floats, target: TargetRows, seed: int, workers: Workers
) -> LocalTarget:
    """Compare the rows with the target, under the kernel that was resolved on the rows alone.

    Raises
    ------
    InputError
        When no row is near it, or it is too far for distances to have the promised digits.
    """
    prepared, geometry = held.prepared, held.geometry
    rows = prepared.elsewhere(target.features)
    if isinstance(geometry, FactorGeometry):
        centres = None if geometry.landmarks is None else prepared.features.take(geometry.landmarks)
        mean = target_factors(rows, prepared.kernel, centres, geometry.search_dtype, workers)
        seen = np.asarray(geometry.spread(mean[:, None], np.float64)[:, 0], dtype=np.float64)
        outside = Outside(seen, float(geometry.square(mean[:, None])[0]))
    else:
        outside = see_outside(prepared.features, rows, prepared.kernel, workers)
    sample = raw[sampled_rows(problem.n, seed)]
    test = look_for_shift(sample, target, prepared, seed, workers)
    return LocalTarget(target, problem, outside, test)
