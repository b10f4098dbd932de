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
from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.geometry.factored import FactorGeometry
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.search.lloyd import SHORTEST_LEAP
from clustersplit_cli.core.search.problem import Members, Problem, SplitMeasures, evaluate
from clustersplit_cli.core.search.solution import Candidate, best_distinct, joined
from clustersplit_cli.core.search.swaps import polish

ALL_AT_ONCE = 0.25
"""Share of the rows from which on a pass over all of them costs less than looking them up."""
PROBED = 512
ROUNDING = 8.0
"""Rounding of a pass may be so many times the largest that is seen on `PROBED` rows."""
NOISE = 1e-13
"""Gains below this share of the scatter explained are rounding."""


@dataclass(frozen=True)
class BoundedProblem:
    """What all bounded splits of a problem share: the kernel, the rows cell by cell, and their lengths."""

    problem: Problem
    geometry: FactorGeometry
    limits: ValidationQuotas
    n_val: int
    norms: NDArray[np.float64]  # (n,), at least |phi_i|, cell by cell
    selection: Selection  # of rows that go cell by cell

    @classmethod
    def of(cls, problem: Problem, geometry: FactorGeometry) -> BoundedProblem:
        """Look at a problem whose quotas are exact."""
        limits = problem.constraints
        norms = np.sqrt(np.maximum(geometry.diagonal, 0.0))[limits.cells.order]
        selection = Selection(limits.only(limits.cells.order))
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
class BoundedSplit:
    """One split under way; arrays over rows go cell by cell.

    Attributes
    ----------
    summed : (p,), F'1_V.
    witness : (n,), K z of every row when it was last looked at.
    seen : (n,), at which of the looks that was.
    looks : what u was then, and how far the witness may be off by rounding.
    """

    bounded: BoundedProblem
    in_val: Members
    summed: NDArray[np.float64]
    witness: NDArray[np.float64]
    seen: NDArray[np.int32]
    looks: list[tuple[NDArray[np.float64], float]] = field(default_factory=list)

    @classmethod
    def of(
        cls, bounded: BoundedProblem, members: Members, summed: NDArray[np.float64], witness: Floats
    ) -> BoundedSplit:
        """Begin at a split whose sums and witness, to some rounding, are known."""
        order = bounded.limits.cells.order
        n = len(order)
        split = cls(bounded, members[order], summed, np.empty(n), np.zeros(n, dtype=np.int32))
        split.renew(witness)
        return split

    @property
    def members(self) -> Members:
        """The split, in the rows' own order."""
        return self.in_rows(self.in_val)

    @property
    def psi(self) -> float:
        """Its objective."""
        return float(self.bounded.objectives(self.summed[:, None])[0])

    @property
    def explained(self) -> float:
        """The scatter that it explains."""
        return self.bounded.problem.ssq_total - self.psi

    def renew(self, witness: Floats | None = None) -> None:
        """Take a witness of all rows, or make one by a pass over them."""
        bounded, geometry = self.bounded, self.bounded.geometry
        weights = bounded.weighed(self.summed)
        if witness is None:
            witness = geometry.spread(weights[:, None], geometry.search_dtype)[:, 0]
        probe = np.linspace(0, geometry.n - 1, min(PROBED, geometry.n)).astype(np.int64)
        rounding = float(np.abs(witness[probe] - geometry.at(probe, weights)).max())
        self.witness = witness[bounded.limits.cells.order].astype(np.float64)
        self.seen[:] = 0
        self.looks = [(geometry.mixed(weights), ROUNDING * rounding)]

    def step(self) -> bool:
        """Move to the best assignment for the present centroids if that lowers Psi; say whether it did."""
        return self.exchange(np.flatnonzero(self._choice() != self.in_val))

    def exchange(self, places: NDArray[np.int64]) -> bool:
        """Let rows change sides if that lowers Psi; say whether it did."""
        if len(places) == 0:
            return False
        bounded = self.bounded
        signs = np.where(self.in_val[places], -1.0, 1.0)
        summed = self.summed + bounded.geometry.sum_of(bounded.limits.cells.order[places], signs)
        before, after = bounded.objectives(np.stack([self.summed, summed], axis=1))
        if before - after <= NOISE * max(bounded.problem.ssq_total - before, 0.0):
            return False
        self.summed = summed
        self.in_val[places] = ~self.in_val[places]
        return True

    def polish(self) -> bool:
        """Swap rows near the thresholds while that lowers Psi; say whether it did."""
        bounded = self.bounded
        c = 1.0 / bounded.n_val + 1.0 / bounded.n_train
        # A swap gains from the pull of both rows on their own centroids, and from a negative kernel value.
        farthest = float(bounded.norms.max())
        margin = c / 2.0 * (bounded.norms**2 + farthest**2)
        if not bounded.geometry.is_nonnegative:
            margin += c * bounded.norms * farthest
        near = np.sort(bounded.limits.cells.order[self._refresh(margin)])
        members = self.members
        polished = polish(bounded.problem, members, self.in_rows(self.witness), among=near)
        return self.exchange(np.flatnonzero((polished.members != members)[bounded.limits.cells.order]))

    def n_pulled(self) -> int:
        """Count the rows whose pull on their own centroid may decide where they are."""
        c = 1.0 / self.bounded.n_val + 1.0 / self.bounded.n_train
        return len(self._open(c * self.bounded.norms**2))

    def recount(self) -> None:
        """Sum over the validation rows anew, in float64."""
        self.summed = self.bounded.geometry.halves(self.members)[0]

    def in_rows(self, values: NDArray[Any]) -> NDArray[Any]:
        """Put values that go cell by cell into the rows' own order."""
        result = np.empty_like(values)
        result[self.bounded.limits.cells.order] = values
        return result

    def _choice(self) -> Members:
        """The quota's worth of rows of largest witness in every cell, whose others are not looked at."""
        self._refresh()
        # The others lie on their side of the threshold whatever their witness is by now, and rank there too.
        return self.bounded.selection.choose(-self.witness[:, None])[:, 0]

    def _refresh(self, margin: NDArray[np.float64] | float = 0.0) -> NDArray[np.int64]:
        """Look at all rows that may be on either side of their cell's threshold, or within reach of it."""
        places = self._open(margin)
        if len(places) > ALL_AT_ONCE * len(self.in_val):
            self.renew()
            places = self._open(margin)
        self._look(places)
        return places

    def _range(self, margin: NDArray[np.float64] | float = 0.0) -> tuple[NDArray[np.float64], ...]:
        """The least and the most that every row's witness can be."""
        bounded = self.bounded
        now = bounded.geometry.mixed(bounded.weighed(self.summed))
        drift = np.array([float(np.linalg.norm(now - then)) for then, _ in self.looks])
        rounding = np.array([off for _, off in self.looks])
        most = bounded.norms * drift[self.seen] + rounding[self.seen] + margin
        return self.witness - most, self.witness + most

    def _open(self, margin: NDArray[np.float64] | float = 0.0) -> NDArray[np.int64]:
        """The rows that may be on either side of their cell's threshold, or within reach of it."""
        limits = self.bounded.limits
        low, high = self._range(margin)
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
        bounded = self.bounded
        weights = bounded.weighed(self.summed)
        self.witness[places] = bounded.geometry.at(bounded.limits.cells.order[places], weights)
        self.seen[places] = len(self.looks)
        self.looks.append((bounded.geometry.mixed(weights), 0.0))


IN_SIGHT = 1e-2
"""Share of scatter by which a split may explain less than the best one and still be gone on with."""
CLOSE = 1e-3
"""The same once it has taken a step."""
ROUNDS = 50


@dataclass(frozen=True)
class RefinedSplits:
    """The best split once converged, others that were refined too, and what was measured on the way.

    `known` holds Psi of splits packed by `np.packbits`; `measured` is the best split in float64.
    """

    best: Candidate
    others: tuple[Candidate, ...] = ()
    known: Mapping[bytes, float] = field(default_factory=dict)
    measured: SplitMeasures | None = None


@dataclass(frozen=True)
class Carried:
    """Splits measured on all rows, and the best of them with what bounded steps take.

    Attributes
    ----------
    known : Psi of all splits, packed by `np.packbits`.
    chosen : the most promising candidates, the best first.
    summed : (p, splits), sums over the validation rows.
    columns : where in `summed` the candidates are.
    witness : (n, candidates).
    """

    bounded: BoundedProblem
    known: Mapping[bytes, float]
    chosen: tuple[Candidate, ...]
    summed: NDArray[Any]
    columns: tuple[int, ...]
    witness: NDArray[Any]


def carry_over(
    problem: Problem, ends: Sequence[Candidate], promising: Sequence[Candidate], *, most: int
) -> Carried:
    """Measure all splits by passes over all rows.

    Parameters
    ----------
    ends : splits of all rows whose Psi the report states.
    promising : splits that may be the best.
    most : number of promising splits to go on with.
    """
    geometry = problem.geometry
    assert isinstance(geometry, FactorGeometry)
    bounded = BoundedProblem.of(problem, geometry)
    everything = [*ends, *promising]
    members = np.stack([candidate.members for candidate in everything])
    summed = geometry.sums_over(members.T, geometry.search_dtype)
    psi = bounded.objectives(summed).tolist()
    measured = [
        replace(candidate, psi=value, trace=joined(candidate.trace, (value,)))
        for candidate, value in zip(everything, psi, strict=True)
    ]
    ranked = best_distinct(measured[len(ends) :], most)
    least = problem.ssq_total - ranked[0].psi
    chosen = [
        candidate for candidate in ranked if problem.ssq_total - candidate.psi >= (1.0 - IN_SIGHT) * least
    ]
    columns = [next(at for at, candidate in enumerate(measured) if candidate is wanted) for wanted in chosen]
    witness = geometry.spread(bounded.weighed(summed[:, columns]), geometry.search_dtype)
    known = {
        candidate.passed[-1][1].tobytes(): value for candidate, value in zip(everything, psi, strict=True)
    }
    return Carried(bounded, known, tuple(chosen), summed, tuple(columns), witness)


def bounded_lloyd(problem: Problem, carried: Carried, *, max_iter: int) -> RefinedSplits | None:
    """Descend from the best of the splits that were carried over, until they converge.

    Returns
    -------
    None where rows pull so much on their own centroids that bounds are not enough.
    """
    runs = [
        _BoundedRun(
            candidate,
            BoundedSplit.of(
                carried.bounded, candidate.members, carried.summed[:, column], carried.witness[:, place]
            ),
            max_iter,
        )
        for place, (candidate, column) in enumerate(zip(carried.chosen, carried.columns, strict=True))
    ]
    if runs[0].split.n_pulled() > SHORTEST_LEAP * problem.n:
        return None
    while sum(run.step() for run in runs) > 0:
        most_explained = max(run.split.explained for run in runs)
        runs = [run for run in runs if run.split.explained >= (1.0 - CLOSE) * most_explained]
    best = min(runs, key=lambda run: run.split.psi)
    exact = best.refine(problem)
    known = {**carried.known, **best.known, best.last: exact.psi}
    return RefinedSplits(best.candidate(), (), known, exact)


class _BoundedRun:
    """A candidate that is being refined."""

    def __init__(self, candidate: Candidate, split: BoundedSplit, max_iter: int) -> None:
        self.begun, self.split, self.steps_left = candidate, split, max_iter
        self.passed: list[tuple[str, NDArray[np.uint8]]] = []
        self.psi: list[float] = []
        self.converged = False

    def step(self) -> bool:
        """Take one more step; say whether it led on."""
        if self.converged or self.steps_left == 0:
            return False
        self.steps_left -= 1
        self.converged = not self._note("lloyd", self.split.step())
        return not self.converged

    def refine(self, problem: Problem) -> SplitMeasures:
        """Descend and polish in turn until neither lowers Psi, which float64 on all rows has to confirm."""
        split, selection = self.split, Selection(problem.constraints)
        for _ in range(ROUNDS):
            while self.step():
                pass
            if not self.converged:
                break
            if self._note("polish", split.polish()):
                self.converged = False
                continue
            measured = evaluate(problem, split.members)
            difference = measured.difference[:, None]
            proposal = cheaper_orientation(difference, selection)[0][:, 0]
            changed = np.flatnonzero((proposal != split.members)[problem.constraints.cells.order])
            if len(changed) == 0:
                return measured
            # Sums that began in the kernel's own precision are not good enough to tell rows so close.
            split.recount()
            if not self._note("lloyd", split.exchange(changed)):
                return measured
            self.converged = False
        self.converged = False
        return evaluate(problem, split.members)

    def _note(self, phase: str, moved: bool) -> bool:
        """Remember where a step led, if it did; say whether it did."""
        if moved:
            self.passed.append((phase, np.packbits(self.split.members)))
            self.psi.append(self.split.psi)
        return moved

    @property
    def last(self) -> bytes:
        """The split, packed."""
        return bytes(np.packbits(self.split.members).tobytes())

    @property
    def known(self) -> dict[bytes, float]:
        """Psi of the splits passed."""
        return {packed.tobytes(): psi for (_, packed), psi in zip(self.passed, self.psi, strict=True)}

    def candidate(self) -> Candidate:
        """The run as a candidate."""
        return replace(
            self.begun,
            members=self.split.members,
            psi=self.split.psi,
            witness=self.split.in_rows(self.split.witness),
            passed=(*self.begun.passed, *self.passed),
            converged=self.converged,
            trace=(*self.begun.trace, *self.psi),
        )
