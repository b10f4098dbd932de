"""What a search returns: the split, where every start ended, and the steps that led to the best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from clustersplit_cli.core.constraints.cells import Labels
from clustersplit_cli.core.search.candidate import Candidate, shortened
from clustersplit_cli.core.search.problem import Evaluation, Members, Problem, objectives
from clustersplit_cli.core.search.sample import SMALL

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
    measured: Evaluation | None = None

    @property
    def members(self) -> Members:
        """The validation rows of a split, shape (n,)."""
        return np.asarray(self.labels == 1)


def measure_runs(
    problem: Problem,
    names: list[str],
    ends: list[Candidate],
    best: Candidate,
    known: Mapping[bytes, float] = MappingProxyType({}),
    measured: Evaluation | None = None,
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

    A step taken on the low-rank kernel lowers Psi there; on the kernel itself it may be a detour.
    """
    kept: list[tuple[str, float]] = []
    for phase, value in zip(reversed(phases), reversed(psi), strict=True):
        if not kept or value >= kept[-1][1]:
            kept.append((phase, value))
    return tuple(Step(phase, number, value) for number, (phase, value) in enumerate(reversed(kept)))
