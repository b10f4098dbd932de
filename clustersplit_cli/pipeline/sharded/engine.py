"""The sharded engine: rows that are read in pieces, on disk or by the workers of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clustersplit_cli.core.assignment.cbc import cbc_version
from clustersplit_cli.core.parallel import Workers, pool
from clustersplit_cli.data.dataset import Dataset, TargetRows
from clustersplit_cli.data.destination import Destination
from clustersplit_cli.data.readers.fingerprint import Fingerprints
from clustersplit_cli.data.readers.naming import as_url
from clustersplit_cli.data.row_groups import Layout
from clustersplit_cli.engines.checks import (
    count_labels,
    give_labels,
)
from clustersplit_cli.engines.executor import Executor
from clustersplit_cli.engines.options import NO_SPILL, STREAM, EngineOptions
from clustersplit_cli.engines.plan import MemoryPlan, StreamPlan
from clustersplit_cli.engines.rules import Labelled, LabelledParts, Rule
from clustersplit_cli.engines.store import Room
from clustersplit_cli.engines.stream import StreamExecutor
from clustersplit_cli.engines.tasks import Survey
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.context import PartitionOptions
from clustersplit_cli.pipeline.result import (
    CountedParts,
    GivenParts,
    PartCounts,
)
from clustersplit_cli.pipeline.sharded.context import nameless, surveyed_dataset
from clustersplit_cli.pipeline.sharded.output import write_rule
from clustersplit_cli.pipeline.sharded.partition import ShardedPartition
from clustersplit_cli.pipeline.sharded.prepare import (
    Surveyed,
    SurveyedParts,
    count_cells,
    prepare_kernel,
    survey_rows,
)
from clustersplit_cli.pipeline.sharded.split import ShardedSplit
from clustersplit_cli.pipeline.sharded.target import see_target
from clustersplit_cli.progress import Progress, Stopwatch, silent
from clustersplit_cli.similarity import Nearness


@dataclass(frozen=True)
class ShardedEngine:
    """The shards of one dataset, whoever holds them, with everything that says how to split it.

    Attributes
    ----------
    executor : holds the shards, and has all of them do the same thing.
    target : rows of where the model will be used, if they were given.
    searching : whether a sample is brought together to search on.
    only_counts : whether there is no plan for a kernel.
    """

    layout: Layout
    options: CheckedOptions
    engine_options: EngineOptions
    plan: StreamPlan
    executor: Executor
    prints: Fingerprints | None
    workers: Workers
    watch: Stopwatch
    progress: Progress
    target: TargetRows | None = None
    searching: bool = True
    into: PartitionOptions | None = None
    only_counts: bool = False

    @property
    def spare_threads(self) -> int:
        """None: every pass keeps all shards busy."""
        return 0

    def describe(self, surveyed: Surveyed | SurveyedParts | None = None) -> Dataset:
        """The columns, and after a survey also how many rows take part, and the files."""
        if surveyed is None:
            return nameless(self.layout)
        return surveyed_dataset(self.layout, surveyed.found, self.prints)

    @property
    def memory(self) -> MemoryPlan:
        """What the work takes, as it was planned."""
        return self.plan.memory

    @property
    def has_kernel(self) -> bool:
        """Unless it was opened to count."""
        return not self.only_counts

    def survey(self) -> Any:
        """Make the first pass."""
        if self.into is not None and self.only_counts:
            counted = count_cells(self.layout, self.executor, Survey(), self.watch)
            return SurveyedParts(counted.found, self.into.of_cells(counted.cells, self.options))
        return survey_rows(self.layout, self.executor, self.options, self.watch, self.into)

    def seeded(self, seed: int) -> ShardedEngine:
        """The same rows with another seed."""
        return replace(self, options=replace(self.options, seed=seed))

    def without_search(self) -> ShardedEngine:
        """The same, for partitions that are given: no sample is brought together."""
        return replace(self, searching=False)

    def count(self, into: PartitionOptions) -> PartCounts:
        """Count cells in one pass, and give every part its quota of them."""
        counted = count_cells(self.layout, self.executor, Survey(), self.watch)
        return PartCounts(
            self.executor.name,
            into.of_cells(counted.cells, self.options),
            None,
            (self.layout.n_rows, counted.found.n_excluded, counted.found.n_invalid),
            (*self.layout.notes, *self.executor.notes),
        )

    def give(self, parts: GivenParts) -> Rule:
        """Hand every shard the labels of its rows."""
        give_labels(self.executor, parts.files, parts.labels)
        return Labelled() if self.into is None else LabelledParts(len(self.into.names))

    def crossing(self, given: Any, near: Nearness) -> None:
        """None: all pairs of rows take all rows in one place."""

    def count_given(self, surveyed: Surveyed | SurveyedParts, parts: GivenParts) -> CountedParts:
        """Count its rows in one pass, by the labels that the shards were given."""
        quotas = surveyed.quotas
        counted = count_labels(self.executor, len(quotas.cells.sizes), quotas.k)
        return CountedParts(
            (quotas,),
            (counted.counts,),
            surveyed.found.n_kept,
            (counted.n_missing, counted.missing),
            (counted.n_extra, counted.extra),
        )

    def state(self, surveyed: Surveyed) -> None:
        """Nothing can be stated ahead; the report states CBC's version, which takes a moment to ask for."""
        cbc_version()

    def prepare(self, surveyed: Surveyed) -> Any:
        """Bring samples together and tell the shards how rows become factors."""
        memory = self.plan.memory
        if memory.landmarks is not None:  # the plan was made before it was known how many rows take part
            memory = replace(memory, landmarks=min(memory.landmarks, surveyed.n))
        kernel = prepare_kernel(
            self.layout,
            self.executor,
            self.options,
            surveyed,
            memory.landmarks,
            self.plan.sample_rows if self.searching and self.options.is_searched_for else 0,
            self.workers,
            self.watch,
            self.target is not None,
        )
        seen = None
        if self.target is not None:
            with self.watch.step("target"):
                assert kernel.tested is not None
                seen = see_target(kernel, kernel.tested, self.target, self.options.seed, self.workers)
        into = ShardedSplit if self.into is None else ShardedPartition
        return into(self, memory, kernel, seen)

    def write(self, parts: Rule, to: Destination) -> list[Path]:
        """Write the rows that the rule chooses, or have the workers of a cluster write them."""
        return write_rule(self.executor, parts, to, self.into)

    def await_hashes(self) -> None:
        """Wait until all files are hashed."""
        self.progress("hash", 0, 0)
        with self.watch.step("hash"):
            if self.prints is not None:
                self.prints.files()


@contextmanager
def opened_sharded(
    layout: Layout,
    options: CheckedOptions,
    engine_options: EngineOptions,
    plan: StreamPlan,
    watch: Stopwatch,
    progress: Progress = silent,
    *,
    hashing: bool = True,
    target: TargetRows | None = None,
) -> Iterator[ShardedEngine]:
    """Open the engine; it ends with the block. Files are hashed beside the passes, unless nobody asks."""
    may_spill = engine_options.spill != NO_SPILL
    hashes = fingerprints(layout) if hashing else nullcontext()
    with pool(options.threads) as workers, hashes as prints:

        def engine(executor: Executor) -> ShardedEngine:
            return ShardedEngine(
                layout, options, engine_options, plan, executor, prints, workers, watch, progress, target
            )

        if engine_options.engine == STREAM:
            room = Room(plan.factors, engine_options.spill_directory, may_spill)
            with closing(StreamExecutor(layout, room, workers, progress)) as executor:
                yield engine(executor)
            return
        from clustersplit_cli.engines.dask import opened_cluster

        with opened_cluster(layout, engine_options, options.threads, options.budget, progress) as cluster:
            yield engine(cluster)


@contextmanager
def fingerprints(layout: Layout) -> Iterator[Fingerprints | None]:
    """Hash the files while they are read; those behind a URL are not read once more for that."""
    if as_url(layout.path) is not None:
        yield None
        return
    with Fingerprints([(stamp, "features") for stamp in layout.stamps]) as prints:
        yield prints
