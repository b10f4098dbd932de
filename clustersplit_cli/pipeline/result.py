"""Everything a run computed, in one form for splits and partitions, wherever their rows are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.baselines import RandomMMD
from clustersplit_cli.core.bound.bound import UpperBound
from clustersplit_cli.core.certificate import FixedPoint
from clustersplit_cli.core.constraints.groups import GroupParts
from clustersplit_cli.core.constraints.quotas import Quotas
from clustersplit_cli.core.geometry.cholesky import squared_length
from clustersplit_cli.core.geometry.kernels import KernelSpread, Prepared
from clustersplit_cli.core.mmd.definition import Definition
from clustersplit_cli.core.mmd.estimators import SubsampleEstimate
from clustersplit_cli.core.search.problem import Measures
from clustersplit_cli.core.search.solution import ProgramAccount, Restart, Step
from clustersplit_cli.core.severity import Grade
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.data.row_labels import LabelFiles, LabelsInMemory
from clustersplit_cli.engines.plan import MemoryPlan
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.target import TargetResult
from clustersplit_cli.reports.summary import ConstraintsSummary, EngineSummary

Notes = tuple[tuple[str, str], ...]
"""What a user should know, as (code, message)."""


@dataclass(frozen=True)
class PartCounts:
    """What counting cells says about parts, before any are made.

    Attributes
    ----------
    engine : its name.
    units : that stay together, if any do.
    left_out : rows of the input, rows excluded, and rows dropped because they were not finite.
    """

    engine: str
    quotas: Quotas
    units: GroupParts | None
    left_out: tuple[int, int, int]
    notes: Notes


@dataclass(frozen=True)
class GivenParts:
    """The part of every row of the input, and files that say the same, where ranges of rows can be read."""

    labels: LabelsInMemory
    files: LabelFiles | None = None


SomeRows = tuple[int, NDArray[np.int64]]
"""How many rows there are, and the positions of the first few."""


@dataclass(frozen=True)
class ForcedRows:
    """How many rows are forced into a part, and by part those that are not in theirs."""

    count: int
    astray: Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class CountedParts:
    """How a partition that was given meets what was asked for.

    Attributes
    ----------
    families, counts : the cells of every family with their quotas, and how many rows of each every part has.
    n_kept : rows that take part.
    missing : rows that take part, and are in no part.
    extra : rows in a part, though they take none.
    forced, drawn : rows that the user, or the seed, gives a part; None without any.
    units : where rows stay together, by which column, how many units there are, and how many are divided.
    """

    families: tuple[Quotas, ...]
    counts: tuple[NDArray[np.int64], ...]
    n_kept: int
    missing: SomeRows
    extra: SomeRows
    units: tuple[str, int, SomeRows] | None = None
    forced: ForcedRows | None = None
    drawn: ForcedRows | None = None


@dataclass(frozen=True)
class ByDefinition:
    """A partition measured from kernel values in float64, without any short cut.

    Attributes
    ----------
    scatter_error : by how much an estimate of the scatter may be off.
    estimate : the unbiased MMD² of the subsample, if that was computed too.
    """

    found: Definition
    geometry: str
    n: int
    scatter_error: float = 0.0
    estimate: float | None = None


@dataclass(frozen=True)
class Searched:
    """How the search went: the steps of the winning run, where all starts ended, and which of them won.

    `account` is that of the programs, where assignment steps took programs.
    """

    steps: tuple[Step, ...]
    runs: tuple[Restart, ...]
    winner: int
    account: ProgramAccount | None = None

    def ending(self, *, converged: bool) -> Searched:
        """The same, with what was found out later about the end of the winning run."""
        runs = list(self.runs)
        runs[self.winner] = replace(runs[self.winner], converged=converged)
        return replace(self, runs=tuple(runs))


@dataclass(frozen=True)
class About:
    """What a run rests on: the rows, the options, and the kernel.

    Attributes
    ----------
    dataset : without rows where they are not all in memory.
    resolved : the options as they were used: rules replaced by the numbers they gave.
    spread : off-diagonal kernel values on a sample; None for kernels it says nothing about.
    names, shares : of the parts.
    drawn : parts whose rows chance has chosen.
    trace_error : standard error of the trace of K, and so of Psi and the total scatter.
    """

    dataset: Dataset
    options: CheckedOptions
    resolved: Mapping[str, Any]
    memory: MemoryPlan
    prepared: Prepared
    spread: KernelSpread | None
    names: tuple[str, ...]
    shares: tuple[Fraction, ...]
    trace_error: float
    drawn: tuple[int, ...] = ()


@dataclass(frozen=True)
class RunResult:
    """A finished run.

    Attributes
    ----------
    config : options outside the pipeline's reach that the report repeats.
    searched : None for a partition that was not searched for.
    converged : whether the search stopped by itself.
    bound : no split with the same counts has a larger MMD under this kernel; None if not computed.
    graded : where on the scale from random to best the partition is; None unless it is graded.
    estimate : MMD² under the exact kernel on a subsample; None unless the kernel was approximated.
    notes : about the engine, the constraints and the search.
    target : what was found of the split and target rows; None where none were given.
    """

    about: About
    config: Mapping[str, Any]
    measures: Measures
    constraints: ConstraintsSummary
    searched: Searched | None
    converged: bool
    certificate: FixedPoint | None
    bound: UpperBound | None
    random: RandomMMD
    estimate: SubsampleEstimate | None
    notes: Notes
    engine: EngineSummary | None = None
    graded: Grade | None = None
    target: TargetResult | None = None

    @property
    def error(self) -> float | None:
        """What MMD² may lack of that under the kernel itself; None where landmarks stand for the kernel."""
        memory, measures = self.about.memory, self.measures
        if memory.landmarks is not None:
            return None
        shares = [size / measures.n_rows for size in measures.sizes.tolist()]
        return memory.residual * squared_length(shares, measures.n_rows) if memory.residual else 0.0
