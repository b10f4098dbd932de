"""What a search passes through and what it returns: candidates, the best of them, where every start ended."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Labels
from clustersplit_cli.core.search.problem import SMALL, Members, Problem, SplitMeasures, objectives


@dataclass(frozen=True)
class Candidate:
    """One run of the search.

    Attributes
    ----------
    start : number of the start it came from.
    members : (n,), the split it has reached.
    psi : its objective, on whatever kernel and in whatever precision it was last seen.
    witness : (n,), K z there.
    passed : the splits it went through, the first included, packed by `np.packbits`, with their phases.
    converged : whether its last descent stopped by itself.
    trace : Psi at the start and after every step, where the last one was taken.
    """

    start: int
    members: Members
    psi: float
    witness: NDArray[np.floating]
    passed: tuple[tuple[str, NDArray[np.uint8]], ...]
    converged: bool
    trace: tuple[float, ...] = ()

    @property
    def iterations(self) -> int:
        """Steps taken since the start."""
        return len(self.passed) - 1

    def measured_while_refined(self) -> dict[bytes, float]:
        """Psi of the splits, packed, that it passed since it was first measured on the kernel itself."""
        n_refining = 0
        while n_refining < len(self.passed) and self.passed[-1 - n_refining][0] in REFINING:
            n_refining += 1
        if not 0 < n_refining < min(len(self.passed), len(self.trace)):
            return {}
        pairs = zip(self.passed[-1 - n_refining :], self.trace[-1 - n_refining :], strict=True)
        return {split.tobytes(): psi for (_, split), psi in pairs}

    def through(self, phase: str, splits: Sequence[NDArray[np.uint8]]) -> Candidate:
        """Return the candidate with further splits passed."""
        return replace(self, passed=(*self.passed, *((phase, split) for split in splits)))


REFINING = ("lloyd", "leap", "polish")
"""Phases that refine splits, on the kernel itself once they come from an approximation of it."""
UNMEASURED = float("nan")
"""In a trace: a step whose Psi the next descent will state."""
LONGEST_TRACE = 24


def joined(trace: tuple[float, ...], psi: Sequence[float]) -> tuple[float, ...]:
    """Continue a trace by a descent from where it ended.

    The descent may be on another kernel, where the same split has another Psi: what was seen before is
    shifted to meet it.
    """
    if not trace:
        return tuple(psi)
    if math.isnan(trace[-1]):
        return (*trace[:-1], *psi)
    return (*(value + psi[0] - trace[-1] for value in trace), *psi[1:])


def shortened(trace: tuple[float, ...], end: float) -> tuple[float, ...]:
    """A trace as reports show it: ending at the Psi that was measured, and at most `LONGEST_TRACE` long."""
    whole = joined(trace, (end,))
    if len(whole) <= LONGEST_TRACE:
        return whole
    kept = np.linspace(0, len(whole) - 1, LONGEST_TRACE).round().astype(int)
    return tuple(whole[place] for place in kept)


CLOSE, VARIED = 1000, 20
"""Splits that differ in at most one row in a thousand are close; varied ones differ in one in twenty."""


def are_close(one: Candidate, other: Candidate, one_in: int = CLOSE) -> bool:
    """Whether two splits differ in one row in a thousand: then polishing leads both to the same place."""
    return one_in * int((one.members != other.members).sum()) <= len(one.members)


def best_distinct(candidates: Sequence[Candidate], count: int, one_in: int = CLOSE) -> list[Candidate]:
    """The `count` best candidates of which no two have almost the same split, best first."""
    kept: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda candidate: candidate.psi):
        if len(kept) == count:
            break
        if not any(are_close(candidate, other, one_in) for other in kept):
            kept.append(candidate)
    return kept


def best_varied(candidates: Sequence[Candidate], count: int) -> list[Candidate]:
    """The `count` best candidates, three in four of them far from each other.

    Where a low-rank kernel prefers one optimum and the kernel itself another, the best candidates on the
    former may all lead to its own.
    """
    varied = best_distinct(candidates, count - count // 4, VARIED)
    others = [
        candidate for candidate in candidates if not any(are_close(candidate, other) for other in varied)
    ]
    return [*varied, *best_distinct(others, count - len(varied))]


EVALUATION_COLUMNS = 48


@dataclass(frozen=True)
class Step:
    """The objective after one step of the winning run."""

    phase: str  # start | explore | perturb | lloyd | leap | polish | enumerate
    iteration: int
    psi: float


@dataclass(frozen=True)
class Restart:
    """Where one start ended, and Psi on the way there, from its initial split on.

    Steps on a low-rank kernel have the Psi that they have there, shifted to end at `psi`.
    """

    start: str
    iterations: int
    psi: float
    mmd: float
    converged: bool
    trace: tuple[float, ...] = ()


@dataclass
class ProgramAccount:
    """How the programs of a search went: solved, of these with integers, and stopped before the end."""

    solved: int = 0
    branched: int = 0
    stopped_early: int = 0


@dataclass(frozen=True)
class Solution:
    """The best partition found, the steps of its run, where all starts ended, and which of them won.

    Attributes
    ----------
    labels : (n,), the part of every row; 1 for the validation rows of a split.
    account : of the programs, where assignment steps took programs.
    measured : what a split measures, where the search has found that out.
    """

    labels: Labels
    steps: tuple[Step, ...]
    runs: tuple[Restart, ...]
    winner: int
    converged: bool
    account: ProgramAccount | None = None
    measured: SplitMeasures | None = None

    @property
    def members(self) -> Members:
        """The validation rows of a split, shape (n,)."""
        return np.asarray(self.labels == 1)


Explored = TypeVar("Explored")
Found = TypeVar("Found")


class StagedSearch(ABC, Generic[Explored, Found]):
    """Searches in three stages, each of which begins with what the one before returned."""

    @abstractmethod
    def explore(self) -> Explored:
        """See where starts lead, and carry the best over to all rows."""

    @abstractmethod
    def refine(self, explored: Explored) -> Found:
        """Refine the best of them on the kernel itself."""

    @abstractmethod
    def account(self, found: Found) -> Solution:
        """Measure where all starts ended, and the steps that led to the best."""

    def solve(self) -> Solution:
        """Go through all stages."""
        return self.account(self.refine(self.explore()))


def measure_runs(
    problem: Problem,
    names: list[str],
    ends: list[Candidate],
    best: Candidate,
    known: Mapping[bytes, float] = MappingProxyType({}),
    measured: SplitMeasures | None = None,
) -> tuple[tuple[Restart, ...], tuple[Step, ...]]:
    """Measure where all starts ended and what the winner passed, on the kernel itself.

    Parameters
    ----------
    known : Psi of splits that were measured before, packed.
    measured : the best split in float64, where others are measured in less.
    """
    packed = [np.packbits(candidate.members) for candidate in ends] + [split for _, split in best.passed]
    is_coarse = are_measured_coarsely(problem)
    if is_coarse:
        known = dict(known)
        for candidate in (*ends, best):
            known |= candidate.measured_while_refined()
    values = [known.get(split.tobytes()) for split in packed]
    dtype = problem.geometry.search_dtype if is_coarse else np.float64
    unknown = [place for place, value in enumerate(values) if value is None]
    for first in range(0, len(unknown), EVALUATION_COLUMNS):
        places = unknown[first : first + EVALUATION_COLUMNS]
        splits = [np.unpackbits(packed[place], count=problem.n).astype(bool) for place in places]
        for place, value in zip(places, objectives(problem, np.stack(splits, axis=1), dtype), strict=True):
            values[place] = float(value)
    psi = np.array(values, dtype=np.float64)
    if is_coarse:
        assert measured is not None
        psi[[best.start, -1]] = measured.psi
    scatter = problem.ssq_total if measured is None else measured.ssq_total
    runs = tuple(
        Restart(
            name,
            candidate.iterations,
            float(value),
            _mmd(problem, candidate, scatter - float(value)),
            candidate.converged,
            shortened(candidate.trace, float(value)),
        )
        for name, candidate, value in zip(names, ends, psi, strict=False)
    )
    return runs, _steps([phase for phase, _ in best.passed], psi[len(ends) :].tolist())


def are_measured_coarsely(problem: Problem) -> bool:
    """Whether splits other than the best are measured in the kernel's own precision.

    Sums of a dense kernel's values over short tiles lose next to nothing in it.
    """
    return problem.n > SMALL and problem.geometry.has_entries


def _mmd(problem: Problem, candidate: Candidate, explained: float) -> float:
    """MMD from the scatter that a split explains, through the ANOVA identity."""
    n, n_val = problem.n_rows, int(problem.count(candidate.members[:, None])[0])
    return float(np.sqrt(max(explained, 0.0) * n / (n_val * (n - n_val))))


def _steps(phases: list[str], psi: list[float]) -> tuple[Step, ...]:
    """Keep the steps that led down to the end.

    A step taken on the low-rank kernel lowers Psi there; on the kernel itself it may be a detour. So may the
    very first, by a rounding: what is kept then starts where it left that.
    """
    kept: list[tuple[str, float]] = []
    for phase, value in zip(reversed(phases), reversed(psi), strict=True):
        if not kept or value >= kept[-1][1]:
            kept.append((phase, value))
    kept[-1] = ("start", kept[-1][1])
    return tuple(Step(phase, number, value) for number, (phase, value) in enumerate(reversed(kept)))
