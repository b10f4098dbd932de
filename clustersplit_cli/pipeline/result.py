"""Everything a run computed, as the reports need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clustersplit_cli.core.baselines import RandomMMD
from clustersplit_cli.core.certificate import FixedPoint
from clustersplit_cli.core.constraints.requirements import Requirements
from clustersplit_cli.core.geometry.kernels import KernelSpread, Prepared
from clustersplit_cli.core.mmd.estimators import SubsampleEstimate
from clustersplit_cli.core.search.problem import Evaluation
from clustersplit_cli.core.search.solution import Solution
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.engines.plan import MemoryPlan
from clustersplit_cli.options import CheckedOptions


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    Attributes
    ----------
    config : options outside the pipeline's reach that the report repeats.
    spread : off-diagonal kernel values on a sample; None for kernels it says nothing about.
    measured : the returned split, `solution.members`, in float64.
    bound : no split with the same counts has a larger MMD under this kernel; None if not computed.
    trace_error : standard error of the trace of K, and so of Psi.
    estimate : MMD² under the exact kernel on a subsample; None unless the kernel was approximated.
    """

    dataset: Dataset
    options: CheckedOptions
    config: Mapping[str, Any]
    memory: MemoryPlan
    prepared: Prepared
    spread: KernelSpread | None
    requirements: Requirements
    solution: Solution
    measured: Evaluation
    certificate: FixedPoint | None
    bound: float | None
    random: RandomMMD
    estimate: SubsampleEstimate | None
    trace_error: float

    @property
    def mmd(self) -> float:
        """The MMD between the two sides; rounding can make its square a hair negative."""
        return float(max(self.measured.mmd_squared, 0.0) ** 0.5)

    @property
    def converged(self) -> bool:
        """Whether the winning run stopped by itself."""
        return self.solution.converged
