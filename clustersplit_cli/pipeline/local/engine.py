"""The local engine: all rows in memory, for splits in two and for partitions into any number of parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.cbc import AssignmentProgram, cbc_version
from clustersplit_cli.core.constraints.cells import Labels
from clustersplit_cli.core.constraints.groups import GroupParts
from clustersplit_cli.core.constraints.quotas import FREE, Quotas
from clustersplit_cli.core.constraints.requirements import Requirements
from clustersplit_cli.core.near_duplicates import Crossing, near_across
from clustersplit_cli.core.parallel import Workers, pool
from clustersplit_cli.core.search.problem import Problem
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.data.destination import Destination
from clustersplit_cli.data.row_labels import NOBODY
from clustersplit_cli.engines.options import LOCAL
from clustersplit_cli.engines.plan import MemoryPlan
from clustersplit_cli.options import TIGHT, CheckedOptions
from clustersplit_cli.pipeline.context import (
    PartitionOptions,
    Streams,
    plan_local,
    prepare_local_kernel,
    requirements_of,
    similarities_of,
    with_width,
)
from clustersplit_cli.pipeline.local.context import Parts, by_cbc
from clustersplit_cli.pipeline.local.output import write_parts
from clustersplit_cli.pipeline.local.split import LocalSplit, refuse_tight_bound
from clustersplit_cli.pipeline.local.target import see_target
from clustersplit_cli.pipeline.result import CountedParts, ForcedRows, GivenParts, PartCounts, SomeRows
from clustersplit_cli.pipeline.run import Run, run
from clustersplit_cli.progress import Progress, Stopwatch, silent
from clustersplit_cli.similarity import Nearness

if TYPE_CHECKING:
    from clustersplit_cli.pipeline.local.partition import LocalPartition


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
                return requirements_of(self.dataset, self.options, self.workers, self.progress)
            return self.into.arranged(self.dataset, self.options)

    def describe(self, surveyed: Any = None) -> Dataset:
        """All of the dataset."""
        return self.dataset

    @property
    def has_kernel(self) -> bool:
        """For any number of parts."""
        return True

    def seeded(self, seed: int) -> LocalEngine:
        """The same rows with another seed."""
        return replace(self, options=replace(self.options, seed=seed))

    def without_search(self) -> LocalEngine:
        """The same, for partitions that are given."""
        return self

    def count(self, into: PartitionOptions) -> PartCounts:
        """Give every part its quota of every cell."""
        quotas, units = into.arranged(self.dataset, self.options)
        dataset = self.dataset
        left_out = (dataset.n_rows, dataset.n_excluded, dataset.n_dropped)
        return PartCounts(LOCAL, quotas, units, left_out, dataset.notes)

    def give(self, parts: GivenParts) -> Labels:
        """The part of every row that takes part."""
        labels: Labels = parts.labels.labels[self.dataset.rows].astype(np.int64)
        return labels

    def count_given(self, surveyed: Any, parts: GivenParts) -> CountedParts:
        """Count its rows, and compare them with what was asked for."""
        dataset, labels = self.dataset, self.give(parts)
        if isinstance(surveyed, Requirements):
            families, units = surveyed.families, surveyed.units
        else:
            families, units = (surveyed[0],), None if surveyed[1] is None else surveyed[1].units
        placed = labels >= 0
        counts = []
        for quotas in families:
            flat = quotas.cells.codes[placed] * quotas.k + labels[placed]
            shape = (len(quotas.cells.sizes), quotas.k)
            counts.append(np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape))
        extra = np.setdiff1d(np.flatnonzero(parts.labels.labels != NOBODY), dataset.rows)
        missing, names = dataset.rows[~placed], families[0].names
        pinned, is_forced, drawn = families[0].pinned, families[0].forced, families[0].drawn

        def placed_in(rows: NDArray[np.bool_]) -> ForcedRows | None:
            """Rows whose part is fixed, and which of them are elsewhere."""
            astray = {
                name: dataset.rows[rows & (pinned == part) & (labels != part)]
                for part, name in enumerate(names)
            }
            return ForcedRows(int(rows.sum()), astray) if rows.any() else None

        divided = None
        if units is not None:
            divided = (dataset.together or "", int(units.max()) + 1, self._divided(units, labels))
        return CountedParts(
            tuple(families),
            tuple(counts),
            len(dataset.rows),
            (len(missing), missing),
            (len(extra), extra),
            divided,
            placed_in(is_forced),
            placed_in(np.isin(pinned, drawn)),
        )

    def _divided(self, units: Labels, labels: Labels) -> SomeRows:
        """How many units are divided, and all of their rows."""
        first = np.full(int(units.max()) + 1, FREE, dtype=np.int64)
        first[units] = labels
        divided = np.unique(units[labels != first[units]])
        return len(divided), self.dataset.rows[np.isin(units, divided)]

    def crossing(self, given: Labels, near: Nearness) -> Crossing | None:
        """Compare all rows with each other."""
        similar = similarities_of(self.dataset.features, self.options, near, self.workers)
        found = near_across(similar, near.least, given, self.workers, self.progress)
        rows, closest = self.dataset.rows, found.closest
        named = None if closest is None else (int(rows[closest[0]]), int(rows[closest[1]]), closest[2])
        return Crossing(rows[found.rows], named)

    def state(self, surveyed: Any) -> AssignmentProgram | None:
        """State the program of the constraints, if CBC will certify the split by it."""
        cbc_version()  # the report states it, and asking takes a process
        if not isinstance(surveyed, Requirements) or not surveyed.separates:
            return None
        return AssignmentProgram(surveyed.working) if by_cbc(surveyed.n, self.options.certification) else None

    def prepare(self, surveyed: Any) -> LocalSplit | LocalPartition:
        """Hold the kernel."""
        if isinstance(surveyed, Requirements) and self.options.bound == TIGHT:
            refuse_tight_bound(surveyed)
        streams = Streams.from_seed(self.options.seed)
        memory = self.memory or plan_local(self.dataset, self.options, self.workers, self.into)
        options, widths = with_width(self.dataset, self.options, self.workers)
        held = prepare_local_kernel(
            self.dataset, options, memory, streams, self.workers, self.watch, self.progress
        )
        held = replace(held, widths=widths)
        common: dict[str, Any] = {
            "dataset": self.dataset,
            "options": options,
            "kernel": held,
            "streams": streams,
            "workers": self.workers,
            "watch": self.watch,
            "progress": self.progress,
        }
        if isinstance(surveyed, Requirements):
            limits = surveyed.families[0].validation if surveyed.units is not None else surveyed.working
            problem, rows, target = Problem(held.geometry, limits), self.dataset, None
            if rows.target is not None:
                with self.watch.step("target"):
                    target = see_target(
                        held, problem, rows.features, rows.target, self.options.seed, self.workers
                    )
            return LocalSplit(**common, problem=problem, requirements=surveyed, target=target)
        from clustersplit_cli.pipeline.local.partition import LocalPartition  # not needed for splits

        quotas, units = surveyed
        return LocalPartition(**common, quotas=quotas, units=units)

    def write(self, parts: Parts, to: Destination) -> list[Path]:
        """Write the rows of every part."""
        are_folds = self.into is not None and self.into.folds is not None
        return write_parts(self.dataset, parts, to, are_folds=are_folds)

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
    from clustersplit_cli.pipeline.local.partition import LocalPartition

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
    progress: Progress = silent,
) -> Run:
    """Split or partition rows in memory, and report on it; parameters as of `pipeline.run`."""
    with opened_local(dataset, options, into, progress=progress) as engine:
        return run(engine, config=config, with_portrait=with_portrait)
