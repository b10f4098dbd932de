"""Descents of splits of many rows on a kernel held as factors, where passes over all rows are dear.

A row's witness is s_i = phi_i'u, u being the difference of the two centroids. When u moves by d, s_i moves
by at most |phi_i| |d|. So every row keeps the witness it had when it was last looked at, and a step looks
only at rows that may be on either side of their cell's threshold; sums over the validation rows are kept up
by the rows that change sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.selection import Selection, cheaper_orientation, nth_smallest
from clustersplit_cli.core.constraints.cells import Constraints, restricted_to
from clustersplit_cli.core.geometry.factored import FactorGeometry
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.search.candidate import Trail, best_distinct, joined
from clustersplit_cli.core.search.lloyd import SHORTEST_LEAP
from clustersplit_cli.core.search.problem import Evaluation, Members, Problem, evaluate
from clustersplit_cli.core.search.swaps import polish

ALL_AT_ONCE = 0.25
"""Share of the rows from which on a pass over all of them costs less than looking them up."""
PROBED = 512
ROUNDING = 8.0
"""Rounding of a pass may be so many times the largest that is seen on `PROBED` rows."""
NOISE = 1e-13
"""Gains below this share of the scatter explained are rounding."""


@dataclass(frozen=True)
class Ground:
    """What all followers of a problem share: the kernel, the rows cell by cell, and their lengths."""

    problem: Problem
    geometry: FactorGeometry
    limits: Constraints
    n_val: int
    norms: NDArray[np.float64]  # (n,), at least |phi_i|, cell by cell
    selection: Selection  # of rows that go cell by cell

    @classmethod
    def of(cls, problem: Problem, geometry: FactorGeometry) -> Ground:
        """Look at a problem whose quotas are exact."""
        limits = problem.constraints
        norms = np.sqrt(np.maximum(geometry.diagonal, 0.0))[limits.order]
        selection = Selection(restricted_to(limits, limits.order))
        return cls(problem, geometry, limits, int(limits.target.sum()), norms, selection)

    @property
    def n_train(self) -> int:
        """Training rows."""
        return self.problem.n - self.n_val

    def weighed(self, summed: NDArray[np.float64]) -> NDArray[np.float64]:
        """F'z from F'1_V, shape (p, ...)."""
        total = self.geometry.total if summed.ndim == 1 else self.geometry.total[:, None]
        return summed * (1.0 / self.n_val + 1.0 / self.n_train) - total / self.n_train

    def objectives(self, summed: NDArray[np.float64]) -> NDArray[np.float64]:
        """Psi of splits from their F'1_V, shape (p, r)."""
        pair = self.n_val * self.n_train / self.problem.n
        return self.problem.ssq_total - pair * self.geometry.square(self.weighed(summed))


@dataclass
class Follower:
    """One split under way; arrays over rows go cell by cell.

    Attributes
    ----------
    summed : (p,), F'1_V.
    witness : (n,), K z of every row when it was last looked at.
    seen : (n,), at which of the looks that was.
    looks : what u was then, and how far the witness may be off by rounding.
    """

    ground: Ground
    in_val: Members
    summed: NDArray[np.float64]
    witness: NDArray[np.float64]
    seen: NDArray[np.int32]
    looks: list[tuple[NDArray[np.float64], float]] = field(default_factory=list)

    @classmethod
    def of(cls, ground: Ground, members: Members, summed: NDArray[np.float64], witness: Floats) -> Follower:
        """Begin at a split whose sums and witness, to some rounding, are known."""
        order = ground.limits.order
        n = len(order)
        follower = cls(ground, members[order], summed, np.empty(n), np.zeros(n, dtype=np.int32))
        follower.renew(witness)
        return follower

    @property
    def members(self) -> Members:
        """The split, in the rows' own order."""
        return self.in_rows(self.in_val)

    @property
    def psi(self) -> float:
        """Its objective."""
        return float(self.ground.objectives(self.summed[:, None])[0])

    @property
    def explained(self) -> float:
        """The scatter that it explains."""
        return self.ground.problem.ssq_total - self.psi

    def renew(self, witness: Floats | None = None) -> None:
        """Take a witness of all rows, or make one by a pass over them."""
        ground, geometry = self.ground, self.ground.geometry
        weights = ground.weighed(self.summed)
        if witness is None:
            witness = geometry.spread(weights[:, None], geometry.search_dtype)[:, 0]
        probe = np.linspace(0, geometry.n - 1, min(PROBED, geometry.n)).astype(np.int64)
        rounding = float(np.abs(witness[probe] - geometry.at(probe, weights)).max())
        self.witness = witness[ground.limits.order].astype(np.float64)
        self.seen[:] = 0
        self.looks = [(geometry.mixed(weights), ROUNDING * rounding)]

    def step(self) -> bool:
        """Move to the best assignment for the present centroids if that lowers Psi; say whether it did."""
        return self.exchange(np.flatnonzero(self._choice() != self.in_val))

    def exchange(self, places: NDArray[np.int64]) -> bool:
        """Let rows change sides if that lowers Psi; say whether it did."""
        if len(places) == 0:
            return False
        ground = self.ground
        signs = np.where(self.in_val[places], -1.0, 1.0)
        summed = self.summed + ground.geometry.sum_of(ground.limits.order[places], signs)
        before, after = ground.objectives(np.stack([self.summed, summed], axis=1))
        if before - after <= NOISE * max(ground.problem.ssq_total - before, 0.0):
            return False
        self.summed = summed
        self.in_val[places] = ~self.in_val[places]
        return True

    def polish(self) -> bool:
        """Swap rows near the thresholds while that lowers Psi; say whether it did."""
        ground = self.ground
        c = 1.0 / ground.n_val + 1.0 / ground.n_train
        # A swap gains from the pull of both rows on their own centroids, and from a negative kernel value.
        farthest = float(ground.norms.max())
        reach = c / 2.0 * (ground.norms**2 + farthest**2)
        if not ground.geometry.is_nonnegative:
            reach += c * ground.norms * farthest
        near = np.sort(ground.limits.order[self._refresh(reach)])
        members = self.members
        polished = polish(ground.problem, members, self.in_rows(self.witness), among=near)
        return self.exchange(np.flatnonzero((polished.members != members)[ground.limits.order]))

    def n_pulled(self) -> int:
        """Count the rows whose pull on their own centroid may decide where they are."""
        c = 1.0 / self.ground.n_val + 1.0 / self.ground.n_train
        return len(self._open(c * self.ground.norms**2))

    def recount(self) -> None:
        """Sum over the validation rows anew, in float64."""
        self.summed = self.ground.geometry.halves(self.members)[0]

    def in_rows(self, values: NDArray[Any]) -> NDArray[Any]:
        """Put values that go cell by cell into the rows' own order."""
        result = np.empty_like(values)
        result[self.ground.limits.order] = values
        return result

    def _choice(self) -> Members:
        """The quota's worth of rows of largest witness in every cell, whose others are not looked at."""
        self._refresh()
        # The others lie on their side of the threshold whatever their witness is by now, and rank there too.
        return self.ground.selection.choose(-self.witness[:, None])[:, 0]

    def _refresh(self, reach: NDArray[np.float64] | float = 0.0) -> NDArray[np.int64]:
        """Look at all rows that may be on either side of their cell's threshold, or within reach of it."""
        places = self._open(reach)
        if len(places) > ALL_AT_ONCE * len(self.in_val):
            self.renew()
            places = self._open(reach)
        self._look(places)
        return places

    def _range(self, reach: NDArray[np.float64] | float = 0.0) -> tuple[NDArray[np.float64], ...]:
        """The least and the most that every row's witness can be."""
        ground = self.ground
        now = ground.geometry.mixed(ground.weighed(self.summed))
        drift = np.array([float(np.linalg.norm(now - then)) for then, _ in self.looks])
        rounding = np.array([off for _, off in self.looks])
        most = ground.norms * drift[self.seen] + rounding[self.seen] + reach
        return self.witness - most, self.witness + most

    def _open(self, reach: NDArray[np.float64] | float = 0.0) -> NDArray[np.int64]:
        """The rows that may be on either side of their cell's threshold, or within reach of it."""
        limits = self.ground.limits
        low, high = self._range(reach)
        sizes, left = limits.cells.sizes, limits.cells.sizes - limits.target
        # The quota-th largest witness is no less than that of the least they can be.
        least = nth_smallest(low, limits, np.minimum(left, sizes - 1))
        most = nth_smallest(high, limits, np.maximum(left - 1, 0))
        # Where all rows of a cell go to one side, it has no threshold.
        least[(left == 0) | (left == sizes)] = np.inf
        is_open = (high >= np.repeat(least, sizes)) & (low <= np.repeat(most, sizes))
        return np.flatnonzero(is_open)

    def _look(self, places: NDArray[np.int64]) -> None:
        """Compute the present witness of some rows in float64."""
        ground = self.ground
        weights = ground.weighed(self.summed)
        self.witness[places] = ground.geometry.at(ground.limits.order[places], weights)
        self.seen[places] = len(self.looks)
        self.looks.append((ground.geometry.mixed(weights), 0.0))


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


@dataclass(frozen=True)
class Carried:
    """Splits measured on all rows, and the best of them with what following them takes.

    Attributes
    ----------
    known : Psi of all splits, packed by `np.packbits`.
    chosen : the most promising candidates, the best first.
    summed : (p, splits), sums over the validation rows.
    columns : where in `summed` the candidates are.
    witness : (n, candidates).
    """

    ground: Ground
    known: Mapping[bytes, float]
    chosen: tuple[Trail, ...]
    summed: NDArray[Any]
    columns: tuple[int, ...]
    witness: NDArray[Any]


def carry_over(
    problem: Problem, trails: Sequence[Trail], candidates: Sequence[Trail], *, most: int
) -> Carried:
    """Measure all splits by passes over all rows.

    Parameters
    ----------
    trails : splits of all rows whose Psi the report states.
    candidates : splits that may be the best.
    most : number of candidates to follow.
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
    known = {trail.passed[-1][1].tobytes(): value for trail, value in zip(everything, psi, strict=True)}
    return Carried(ground, known, tuple(chosen), summed, tuple(columns), witness)


def finish(problem: Problem, carried: Carried, *, max_iter: int) -> Finished | None:
    """Bring the best of the splits that were carried over to rest.

    Returns
    -------
    None where rows pull so much on their own centroids that following splits is not enough.
    """
    runs = [
        _Run(
            trail,
            Follower.of(carried.ground, trail.members, carried.summed[:, column], carried.witness[:, place]),
            max_iter,
        )
        for place, (trail, column) in enumerate(zip(carried.chosen, carried.columns, strict=True))
    ]
    if runs[0].follower.n_pulled() > SHORTEST_LEAP * problem.n:
        return None
    while sum(run.step() for run in runs) > 0:
        most_explained = max(run.follower.explained for run in runs)
        runs = [run for run in runs if run.follower.explained >= (1.0 - CLOSE) * most_explained]
    best = min(runs, key=lambda run: run.follower.psi)
    exact = best.settle(problem)
    known = {**carried.known, **best.known, best.last: exact.psi}
    return Finished(best.trail(), (), known, exact)


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

    def settle(self, problem: Problem) -> Evaluation:
        """Descend and polish in turn until neither lowers Psi, which float64 on all rows has to confirm."""
        follower, selection = self.follower, Selection(problem.constraints)
        for _ in range(ROUNDS):
            while self.step():
                pass
            if not self.converged:
                break
            if self._note("polish", follower.polish()):
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
