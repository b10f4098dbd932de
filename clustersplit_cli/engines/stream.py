"""One machine: a single shard whose passes read from disk while they compute."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.data.row_groups import Layout
from clustersplit_cli.data.row_labels import RowLabels
from clustersplit_cli.engines.factors import FactorPlan, Numbering
from clustersplit_cli.engines.options import STREAM
from clustersplit_cli.engines.shard import Shard, portion_of
from clustersplit_cli.engines.store import Room
from clustersplit_cli.engines.tasks import Task
from clustersplit_cli.progress import Progress, silent

Result = TypeVar("Result")


class StreamExecutor:
    """All row groups, one after the other, in this process."""

    name = STREAM
    notes: tuple[tuple[str, str], ...] = ()

    def __init__(self, layout: Layout, room: Room, workers: Workers, progress: Progress = silent) -> None:
        self._shard = Shard(portion_of(layout, 0, 0, layout.n_rows), room, workers)
        self._progress = progress
        self._total = layout.n_rows
        self.n_workers = workers.count

    def tell(self, numbering: Numbering, plan: FactorPlan | None = None) -> None:
        """Tell the shard."""
        self._shard.numbering, self._shard.plan = numbering, plan

    def give(self, labels: RowLabels) -> None:
        """Give the shard the labels of all rows."""
        self._shard.give(labels)

    def run(self, task: Task[Result]) -> list[Result]:
        """Do the task here."""
        with self._heard(task.label):
            return [task(self._shard)]

    def close(self) -> None:
        """Give back memory and spill files."""
        self._shard.close()

    @contextmanager
    def _heard(self, label: str) -> Iterator[None]:
        """Pass on how many rows the task has been through, and how fast."""
        self._shard.on_rows = RowMeter(label, self._total, self._progress)
        self._progress(label, 0, self._total)
        try:
            yield
        finally:
            self._shard.on_rows = lambda rows: None


class RowMeter:
    """Counts rows for a progress bar, with their speed in its words."""

    def __init__(self, label: str, total: int, progress: Progress) -> None:
        self._label, self._total, self._progress = label, total, progress
        self._done, self._began, self._lock = 0, time.perf_counter(), threading.Lock()

    def __call__(self, rows: int) -> None:
        """Note some more rows."""
        with self._lock:
            self._done = min(self._done + rows, self._total)
            self._progress(self._label, self._done, self._total)
