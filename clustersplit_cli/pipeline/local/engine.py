"""The local engine: all rows in memory, for splits in two and for partitions into any number of parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from clustersplit_cli.core.assignment.cbc import AssignmentProgram, cbc_version
from clustersplit_cli.core.constraints.groups import GroupParts
from clustersplit_cli.core.constraints.quotas import Quotas
from clustersplit_cli.core.constraints.requirements import Requirements
from clustersplit_cli.core.parallel import Workers, pool
from clustersplit_cli.core.search.problem import Problem
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.engines.options import LOCAL
from clustersplit_cli.engines.plan import MemoryPlan
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.context import (
    PartitionOptions,
    Streams,
    plan,
    prepare_local_kernel,
    requirements_of,
)
from clustersplit_cli.pipeline.local.context import (
    by_cbc,
)
from clustersplit_cli.pipeline.local.partition import LocalPartition
from clustersplit_cli.pipeline.local.split import LocalSplit
from clustersplit_cli.pipeline.result import PartCounts
from clustersplit_cli.pipeline.run import Run, run
from clustersplit_cli.progress import Progress, Stopwatch, silent


@dataclass(frozen=True)
class LocalEngine:
    """All rows in memory; without `into` they are split in two.

    Attributes
    ----------
    memory : the plan, if it has been made.
    """

    dataset: Dataset
    options: CheckedOptions
    memory: MemoryPlan | None
    workers: Workers
    watch: Stopwatch
    progress: Progress = silent
    into: PartitionOptions | None = None
    spare_threads: int = 3

    def survey(self) -> Requirements | tuple[Quotas, GroupParts | None]:
        """Put quotas, tolerances, forced rows and units together."""
        with self.watch.step("constraints"):
            if self.into is None:
                return requirements_of(self.dataset, self.options, self.workers)
            return self.into.arranged(self.dataset, self.options)

    def without_search(self) -> LocalEngine:
        """The same, for partitions that are given."""
        return self

    def count(self, into: PartitionOptions) -> PartCounts:
        """Give every part its quota of every cell."""
        quotas, units = into.arranged(self.dataset, self.options)
        dataset = self.dataset
        left_out = (dataset.n_rows, dataset.n_excluded, dataset.n_dropped)
        return PartCounts(LOCAL, quotas, units, left_out, dataset.notes)

    def state(self, surveyed: Any) -> AssignmentProgram | None:
        """State the program of the constraints, if CBC will certify the split by it."""
        cbc_version()  # the report states it, and asking takes a process
        if not isinstance(surveyed, Requirements) or not surveyed.separates:
            return None
        return AssignmentProgram(surveyed.working) if by_cbc(surveyed.n, self.options.certification) else None

    def prepare(self, surveyed: Any) -> LocalSplit | LocalPartition:
        """Hold the kernel."""
        streams = Streams.from_seed(self.options.seed)
        memory = self.memory or plan(self.dataset.extent, self.options)
        assert memory is not None
        held = prepare_local_kernel(
            self.dataset, self.options, memory, streams, self.workers, self.watch, self.progress
        )
        common: dict[str, Any] = {
            "dataset": self.dataset,
            "options": self.options,
            "kernel": held,
            "streams": streams,
            "workers": self.workers,
            "watch": self.watch,
            "progress": self.progress,
        }
        if isinstance(surveyed, Requirements):
            limits = surveyed.families[0].validation if surveyed.units is not None else surveyed.working
            return LocalSplit(**common, problem=Problem(held.geometry, limits), requirements=surveyed)
        quotas, units = surveyed
        return LocalPartition(**common, quotas=quotas, units=units)

    def await_hashes(self) -> None:
        """Wait until all files are hashed."""
        self.progress("hash", 0, 0)
        with self.watch.step("hash"):
            _ = self.dataset.files


@contextmanager
def opened_local(
    dataset: Dataset,
    options: CheckedOptions,
    into: PartitionOptions | None = None,
    *,
    memory: MemoryPlan | None = None,
    watch: Stopwatch | None = None,
    progress: Progress = silent,
) -> Iterator[LocalEngine]:
    """Open the engine with a pool of workers that ends with the block.

    Parameters
    ----------
    memory : the plan, if it has been made.
    """
    with pool(options.threads) as workers:
        yield LocalEngine(dataset, options, memory, workers, watch or Stopwatch(), progress, into)


@contextmanager
def prepared_split(
    dataset: Dataset, options: CheckedOptions, progress: Progress = silent
) -> Iterator[LocalSplit]:
    """Rows and kernel ready for splits in two."""
    with opened_local(dataset, options, progress=progress) as engine:
        context = engine.prepare(engine.survey())
        assert isinstance(context, LocalSplit)
        yield context


@contextmanager
def prepared_partition(
    dataset: Dataset, options: CheckedOptions, into: PartitionOptions, progress: Progress = silent
) -> Iterator[LocalPartition]:
    """Rows and kernel ready for partitions."""
    with opened_local(dataset, options, into, progress=progress) as engine:
        context = engine.prepare(engine.survey())
        assert isinstance(context, LocalPartition)
        yield context


def partition(
    dataset: Dataset,
    options: CheckedOptions,
    into: PartitionOptions | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    with_portrait: bool = False,
) -> Run:
    """Split or part rows in memory, and report on it; parameters as of `pipeline.run`."""
    with opened_local(dataset, options, into) as engine:
        return run(engine, config=config, with_portrait=with_portrait)
