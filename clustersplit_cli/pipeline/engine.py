"""What every engine answers, wherever its rows are: local, stream and dask alike.

An engine counts rows and holds their kernel. What it hands over then, a context, answers all questions about
partitions of these rows. `pipeline.run` asks them in order, and knows no engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from clustersplit_cli.core import severity
from clustersplit_cli.core.baselines import RandomMMD
from clustersplit_cli.core.bound.bound import UpperBound
from clustersplit_cli.core.certificate import FixedPoint
from clustersplit_cli.core.mmd.estimators import SubsampleEstimate
from clustersplit_cli.core.near_duplicates import Crossing
from clustersplit_cli.core.search.problem import Measures
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.data.destination import Destination
from clustersplit_cli.engines.plan import MemoryPlan
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.context import PartitionOptions
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
from clustersplit_cli.pipeline.target import TargetResult
from clustersplit_cli.progress import Progress, Stopwatch
from clustersplit_cli.reports.portrait import Portrait
from clustersplit_cli.reports.summary import ConstraintsSummary, EngineSummary
from clustersplit_cli.similarity import Nearness

Found = TypeVar("Found")
"""A partition in an engine's own form, and what it measures."""
Surveyed = TypeVar("Surveyed")


class Idle(Enum):
    """The stage of a search from which on other work does not slow it."""

    EXPLORING = 1
    REFINING = 2
    AFTERWARDS = 3


class Context(Protocol[Found]):
    """Rows, their kernel and what is asked of parts: answers every question about partitions.

    Only a search uses up random numbers: any other question that is asked again has the same answer.
    """

    @property
    def options(self) -> CheckedOptions:
        """As they were given."""

    @property
    def watch(self) -> Stopwatch:
        """The account of the time."""

    @property
    def progress(self) -> Progress:
        """Called with how far the work is."""

    @property
    def spare_threads(self) -> int:
        """Threads for work beside the search; 0: one thing after another."""

    @property
    def idle_from(self) -> Idle:
        """From when on there are idle workers."""

    @property
    def has_all_rows(self) -> bool:
        """Whether all rows are in memory: some proofs and bounds take them."""

    def explore(self) -> Any:
        """Begin the search: see where starts lead."""

    def refine(self, explored: Any) -> Found:
        """Go on with it: refine the best partitions."""

    def account(self, found: Found) -> Searched | None:
        """End it: measure where all starts ended; None if nothing was searched for."""

    def draw(self, strategy: str) -> Any:
        """Choose parts by another strategy, without a search."""

    def measure(self, parts: Any, *, converged: bool = True) -> Found:
        """Measure a partition, whoever made it."""

    def at(self, level: float) -> Context[Found]:
        """The same rows and kernel, for graded partitions of another severity."""

    def paths(self, found: Found, draw: int = 0) -> Iterator[severity.Path[Any]]:
        """Ways from random partitions to the one found, to look for graded ones along.

        Every draw has chance of its own.
        """

    def with_parts(self, found: Found, parts: Any) -> Found:
        """Other parts than a search found, measured."""

    def wanted_mmd(self, found: Found) -> float:
        """The MMD of all rows and the target, for a split that is as hard."""

    def width_candidates(self) -> dict[str, Any]:
        """The candidates of `--gamma power`, as reports have them, measured again."""

    def aimed(self, found: Found) -> Found:
        """The partition for the aim that was asked for; `found` is the hardest, if one was searched for."""

    def beside_target(self, found: Found, best: tuple[float, float] | None) -> TargetResult | None:
        """What a split and the target measure; None where there is no target.

        `best` is MMD and Psi of the hardest split found, if one was searched for.
        """

    def has_converged(self, found: Found, certificate: FixedPoint | None) -> bool:
        """Whether the search for it stopped by itself."""

    def certify(self, found: Found, program: Any = None) -> FixedPoint | None:
        """Prove that it is a fixed point; `program` is what the engine stated before."""

    def bound(self, found: Found | None = None, *, with_support: bool = True) -> UpperBound | None:
        """No partition with these counts has a larger MMD; None where that is not known.

        Parameters
        ----------
        found : if no other can be larger, there is no need to go on looking.
        with_support : whether to use support functions, where all rows are in memory.
        """

    def random_baseline(self, found: Found | None = None, *, same_size: bool = False) -> RandomMMD:
        """Measure random partitions that meet the constraints, or have as many validation rows as `found`.

        `found` saves measuring the kernel as a whole again, if there is one.
        """

    def subsample(self, found: Found) -> SubsampleEstimate | None:
        """Estimate MMD² under the exact kernel; None unless the kernel is approximated."""

    def definition(self, found: Found) -> ByDefinition:
        """Measure it again by definition, from the features themselves."""

    def misplaced_ties(self, parts: Any) -> SomeRows | None:
        """Rows in validation while a lower, identical one of their cell is not; None where any may be."""

    def differing(self, found: Found, parts: Any) -> SomeRows:
        """Rows that are in another part than in a given partition."""

    def portrait(self, found: Found, random: RandomMMD) -> Portrait:
        """Gather what an HTML report draws."""

    def about(self, *, searched: bool) -> About:
        """What the run rests on."""

    def measures(self, found: Found) -> Measures:
        """What the partition measures."""

    def constraints(self, found: Found) -> ConstraintsSummary:
        """Every cell's quota, and whether all hold."""

    def notes(self, found: Found, *, converged: bool, sized: bool) -> Notes:
        """Warnings about constraints and search; `sized`: also about the number of validation rows."""

    def engine_summary(self, found: Found) -> EngineSummary | None:
        """How rows that are not all in memory were gone through."""

    def written(self, found: Found) -> Any:
        """The partition as it is returned and written: rows of the parts, or a rule."""


class Engine(Protocol[Surveyed, Found]):
    """Where the rows of one dataset are."""

    @property
    def spare_threads(self) -> int:
        """Threads for work beside the search; 0: one thing after another."""

    def describe(self, surveyed: Surveyed | None = None) -> Dataset:
        """What is known of the dataset: all of it, or all but its rows; of these more after a survey."""

    @property
    def memory(self) -> MemoryPlan | None:
        """What the kernel takes, as it was planned."""

    @property
    def has_kernel(self) -> bool:
        """Whether a kernel can be prepared for such partitions; if not, sizes are all there is."""

    def seeded(self, seed: int) -> Engine[Surveyed, Found]:
        """The same rows with another seed."""

    def without_search(self) -> Engine[Surveyed, Found]:
        """The same, for partitions that are given."""

    def count(self, into: PartitionOptions) -> PartCounts:
        """Count cells, and give every part its quota of them; no kernel is needed.

        Raises
        ------
        InfeasibleError, UsageError : as where parts are made.
        """

    def survey(self) -> Surveyed:
        """Count rows and cells, and give every cell its quota.

        Raises
        ------
        InfeasibleError : the quotas cannot be met.
        """

    def give(self, parts: GivenParts) -> Any:
        """Take over a partition that was made before; return it in the engine's own form."""

    def count_given(self, surveyed: Surveyed, parts: GivenParts) -> CountedParts:
        """Count its rows, and compare them with what was asked for."""

    def crossing(self, given: Any, near: Nearness) -> Crossing | None:
        """Rows that are nearly the same as rows of other parts; None where not all rows are in memory."""

    def state(self, surveyed: Surveyed) -> Any:
        """State before the search what certifies whatever will be found."""

    def prepare(self, surveyed: Surveyed) -> Context[Found]:
        """Resolve the kernel and hold it."""

    def write(self, parts: Any, to: Destination) -> list[Path]:
        """Write a partition in the engine's form; return the paths of the files."""

    def await_hashes(self) -> None:
        """Wait until all files are hashed, which for large ones may take longer than a split."""
