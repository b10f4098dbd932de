"""An engine without rows, kernel or search: its answers are made up, and it writes down what it is asked."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from clustersplit_cli.core.baselines import RandomMMD
from clustersplit_cli.core.bound.bound import SPECTRAL, UpperBound
from clustersplit_cli.core.certificate import FixedPoint
from clustersplit_cli.core.geometry.features import ColumnSpreads, Features
from clustersplit_cli.core.geometry.kernels import Kernel, Prepared
from clustersplit_cli.core.mmd.definition import Definition
from clustersplit_cli.core.mmd.estimators import SubsampleEstimate
from clustersplit_cli.core.search.problem import Measures
from clustersplit_cli.core.search.solution import Restart, Step
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.data.destination import Destination
from clustersplit_cli.engines.plan import MemoryPlan
from clustersplit_cli.options import CheckedOptions, SplitOptions, check_options
from clustersplit_cli.pipeline.context import PartitionOptions
from clustersplit_cli.pipeline.engine import Idle
from clustersplit_cli.pipeline.result import (
    About,
    ByDefinition,
    CountedParts,
    GivenParts,
    Notes,
    PartCounts,
    Searched,
    SomeRows,
)
from clustersplit_cli.progress import Stopwatch
from clustersplit_cli.reports.summary import ConstraintsSummary, EngineSummary

FEATURES = np.arange(20.0).reshape(10, 2)
DATASET = Dataset(FEATURES, ("a", "b"), ("a", "b"), {}, np.arange(10), 10)
PLAN = MemoryPlan("dense", None, 800, 1000, "made up")


class FakeEngine:
    """Answers every question of `Engine` and of `Context`.

    Parameters
    ----------
    names : of the parts.
    idle_from : from when on there would be idle workers.
    """

    def __init__(
        self, names: tuple[str, ...] = ("train", "val"), idle_from: Idle = Idle.AFTERWARDS, threads: int = 0
    ) -> None:
        self.asked: list[str] = []
        self.names, self.idle_from, self.spare_threads = names, idle_from, threads
        self.options: CheckedOptions = check_options(SplitOptions())
        self.watch, self.memory = Stopwatch(), PLAN
        self.has_kernel = self.has_all_rows = True

    def progress(self, stage: str, done: int, total: int) -> None:
        """Nobody looks."""

    def without_search(self) -> FakeEngine:
        return self

    def describe(self, surveyed: str | None = None) -> Dataset:
        return DATASET

    def count(self, into: PartitionOptions) -> PartCounts:
        raise NotImplementedError

    def survey(self) -> str:
        self.asked.append("survey")
        return "surveyed"

    def give(self, parts: GivenParts) -> str:
        return "given"

    def count_given(self, surveyed: str, parts: GivenParts) -> CountedParts:
        raise NotImplementedError

    def state(self, surveyed: str) -> str:
        assert surveyed == "surveyed"
        self.asked.append("state")
        return "program"

    def prepare(self, surveyed: str) -> FakeEngine:
        assert surveyed == "surveyed"
        self.asked.append("prepare")
        return self

    def write(self, parts: str, to: Destination) -> list[Path]:
        raise NotImplementedError

    def await_hashes(self) -> None:
        self.asked.append("await_hashes")

    def explore(self) -> str:
        self.asked.append("explore")
        return "explored"

    def refine(self, explored: str) -> str:
        assert explored == "explored"
        self.asked.append("refine")
        return "found"

    def account(self, found: str) -> Searched:
        self.asked.append("account")
        return Searched(
            (Step("start", 0, 9.0), Step("lloyd", 1, 6.0)), (Restart("random-0", 1, 6.0, 1.0, False),), 0
        )

    def draw(self, strategy: str) -> str:
        return strategy

    def measure(self, parts: str, *, converged: bool = True) -> str:
        self.asked.append("measure")
        return parts

    def has_converged(self, found: str, certificate: FixedPoint | None) -> bool:
        return certificate is not None and certificate.status == "optimal"

    def certify(self, found: str, program: str | None = None) -> FixedPoint:
        self.asked.append("certify" if program is None else f"certify with {program}")
        return FixedPoint("threshold", "optimal", 6.0, 0.0, True, 2)

    def bound(self, found: str | None = None, *, with_support: bool = True) -> UpperBound:
        self.asked.append("bound")
        return UpperBound(2.0, SPECTRAL)

    def random_baseline(self, found: str | None = None, *, same_size: bool = False) -> RandomMMD:
        self.asked.append("random_baseline")
        return RandomMMD(20, 0.25, 0.125)

    def beside_target(self, found: str, best: tuple[float, float] | None) -> None:
        """There is no target."""

    def aimed(self, found: str) -> str:
        return found

    def wanted_mmd(self, found: str) -> float:
        raise NotImplementedError

    def width_candidates(self) -> dict[str, Any]:
        raise NotImplementedError

    def subsample(self, found: str) -> SubsampleEstimate | None:
        self.asked.append("subsample")
        return None

    def definition(self, found: str) -> ByDefinition:
        return ByDefinition(Definition(1.0, 6.0, 8.4), "dense", 10)

    def misplaced_ties(self, parts: str) -> SomeRows | None:
        return None

    def differing(self, found: str, parts: str) -> SomeRows:
        return 0, np.empty(0, np.int64)

    def portrait(self, found: str, random: RandomMMD) -> Any:
        self.asked.append("portrait")
        assert random.n == 20
        return "portrait"

    def about(self, *, searched: bool) -> About:
        prepared = Prepared(Kernel("rbf", 1.0, None), Features(FEATURES), ColumnSpreads.of(np.ones(2)))
        shares = (Fraction(1, len(self.names)),) * len(self.names)
        resolved = {"searched": searched}
        return About(DATASET, self.options, resolved, PLAN, prepared, None, self.names, shares, 0.0)

    def measures(self, found: str) -> Measures:
        self.asked.append("measures")
        k = len(self.names)
        sizes = np.full(k, 10 // k)
        if k == 2:
            return Measures(sizes=sizes, mmd_squared=1.0, psi=6.0, ssq_total=8.5, identity_residual=0.0)
        pairs = 1.0 - np.eye(k)
        return Measures(
            sizes=sizes,
            mmd_squared=1.0,
            psi=6.0,
            ssq_total=8.5,
            identity_residual=0.0,
            pairs=pairs,
            rest_squared=np.ones(k),
        )

    def constraints(self, found: str) -> ConstraintsSummary:
        self.asked.append("constraints")
        return ConstraintsSummary(all_satisfied=True, cells=())

    def notes(self, found: str, *, converged: bool, sized: bool) -> Notes:
        return (("made_up", f"converged: {converged}, sized: {sized}"),)

    def engine_summary(self, found: str) -> EngineSummary | None:
        return None

    def written(self, found: str) -> str:
        return f"parts of {found}"
