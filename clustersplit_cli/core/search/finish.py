"""The second half of the search where rows are many and the kernel is held as factors.

Every pass over the rows serves all splits at once: one to carry them over from the sample, one to measure
them, one for the witness of the best. What remains looks at few rows, and a last measurement in float64 is
both the proof that the split is at rest and what the report states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.selection import Selection, cheaper_orientation
from clustersplit_cli.core.geometry.factored import FactorGeometry
from clustersplit_cli.core.search.bounded import Follower, Ground
from clustersplit_cli.core.search.candidate import Trail, best_distinct, joined
from clustersplit_cli.core.search.lloyd import SHORTEST_LEAP
from clustersplit_cli.core.search.problem import Evaluation, Problem, evaluate

IN_SIGHT = 1e-2
"""Share of scatter by which a split may explain less than the best one and still be followed."""
CLOSE = 1e-3
"""The same once it has taken a step."""
ROUNDS = 50


@dataclass(frozen=True)
class Finished:
    """The best split at rest, others that were settled too, and what was measured on the way.

    `known` holds Psi of splits packed by `np.packbits`; `measured` is the best split in float64.
    """

    best: Trail
    others: tuple[Trail, ...] = ()
    known: Mapping[bytes, float] = field(default_factory=dict)
    measured: Evaluation | None = None


def finish(
    problem: Problem,
    trails: Sequence[Trail],
    candidates: Sequence[Trail],
    *,
    most: int,
    max_iter: int,
    nonnegative: bool,
    meanwhile: Callable[[], None] = lambda: None,
) -> Finished | None:
    """Measure all splits and bring the best to rest.

    Parameters
    ----------
    trails : splits of all rows whose Psi the report states.
    candidates : splits that may be the best.
    most : number of candidates to follow.
    meanwhile : is called after the passes over all rows, when workers begin to be idle.

    Returns
    -------
    None where rows pull so much on their own centroids that following splits is not enough.
    """
    geometry = problem.geometry
    assert isinstance(geometry, FactorGeometry)
    ground = Ground.of(problem, geometry)
    everything = [*trails, *candidates]
    members = np.stack([trail.members for trail in everything])
    summed = geometry.sums_over(members.T, geometry.search_dtype)
    psi = ground.objectives(summed).tolist()
    measured = [
        replace(trail, psi=value, trace=joined(trail.trace, (value,)))
        for trail, value in zip(everything, psi, strict=True)
    ]
    ranked = best_distinct(measured[len(trails) :], most)
    least = problem.ssq_total - ranked[0].psi
    chosen = [trail for trail in ranked if problem.ssq_total - trail.psi >= (1.0 - IN_SIGHT) * least]
    columns = [next(at for at, trail in enumerate(measured) if trail is wanted) for wanted in chosen]
    witness = geometry.spread(ground.weighed(summed[:, columns]), geometry.search_dtype)
    meanwhile()
    runs = [
        _Run(trail, Follower.of(ground, trail.members, summed[:, column], witness[:, place]), max_iter)
        for place, (trail, column) in enumerate(zip(chosen, columns, strict=True))
    ]
    if runs[0].follower.n_pulled() > SHORTEST_LEAP * problem.n:
        return None
    while sum(run.step() for run in runs) > 0:
        most_explained = max(run.follower.explained for run in runs)
        runs = [run for run in runs if run.follower.explained >= (1.0 - CLOSE) * most_explained]
    best = min(runs, key=lambda run: run.follower.psi)
    exact = best.settle(problem, nonnegative=nonnegative)
    known = {trail.passed[-1][1].tobytes(): value for trail, value in zip(everything, psi, strict=True)}
    return Finished(best.trail(), (), known | best.known | {best.last: exact.psi}, exact)


class _Run:
    """A candidate on its way to rest."""

    def __init__(self, trail: Trail, follower: Follower, max_iter: int) -> None:
        self.begun, self.follower, self.steps_left = trail, follower, max_iter
        self.passed: list[tuple[str, NDArray[np.uint8]]] = []
        self.psi: list[float] = []
        self.converged = False

    def step(self) -> bool:
        """Take one more step; say whether it led on."""
        if self.converged or self.steps_left == 0:
            return False
        self.steps_left -= 1
        self.converged = not self._note("lloyd", self.follower.step())
        return not self.converged

    def settle(self, problem: Problem, *, nonnegative: bool) -> Evaluation:
        """Descend and polish in turn until neither lowers Psi, which float64 on all rows has to confirm."""
        follower, selection = self.follower, Selection(problem.constraints)
        for _ in range(ROUNDS):
            while self.step():
                pass
            if not self.converged:
                break
            if self._note("polish", follower.polish(nonnegative=nonnegative)):
                self.converged = False
                continue
            measured = evaluate(problem, follower.members)
            difference = measured.difference[:, None]
            proposal = cheaper_orientation(difference, selection)[0][:, 0]
            changed = np.flatnonzero((proposal != follower.members)[problem.constraints.order])
            if len(changed) == 0:
                return measured
            # Sums that began in the kernel's own precision are not good enough to tell rows so close.
            follower.recount()
            if not self._note("lloyd", follower.exchange(changed)):
                return measured
            self.converged = False
        self.converged = False
        return evaluate(problem, follower.members)

    def _note(self, phase: str, moved: bool) -> bool:
        """Remember where a step led, if it did; say whether it did."""
        if moved:
            self.passed.append((phase, np.packbits(self.follower.members)))
            self.psi.append(self.follower.psi)
        return moved

    @property
    def last(self) -> bytes:
        """The split, packed."""
        return bytes(np.packbits(self.follower.members).tobytes())

    @property
    def known(self) -> dict[bytes, float]:
        """Psi of the splits passed."""
        return {packed.tobytes(): psi for (_, packed), psi in zip(self.passed, self.psi, strict=True)}

    def trail(self) -> Trail:
        """The run as a trail."""
        return replace(
            self.begun,
            members=self.follower.members,
            psi=self.follower.psi,
            witness=self.follower.in_rows(self.follower.witness),
            passed=(*self.begun.passed, *self.passed),
            converged=self.converged,
            trace=(*self.begun.trace, *self.psi),
        )
