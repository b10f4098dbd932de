"""Who runs the trials: probes here or in a pool of processes, or the user's own command."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import groupby, islice
from pathlib import Path
from typing import Protocol

import numpy as np

from clustersplit_cli.cleanup import temporary_folder
from clustersplit_cli.errors import TrialError
from clustersplit_cli.evaluation.probes import ProbeData, begin, run_probes, work
from clustersplit_cli.evaluation.trials import Record, Setting, TrainingSet, Trial

BATCH = 20
"""Settings per task: enough to share the projection of a training set, few enough to lose little."""


class Runner(Protocol):
    """Runs trials, in any order; the records do not depend on how many run at a time."""

    def run(self, trials: Sequence[Trial]) -> Iterator[list[Record]]:
        """Yield the records of finished trials, some at a time."""


Task = tuple[TrainingSet, list[Setting]]


def tasks_of(trials: Sequence[Trial]) -> list[Task]:
    """Put trials on the same training set together."""
    tasks: list[Task] = []
    for _, group in groupby(trials, key=lambda trial: id(trial.training)):
        same = list(group)
        for first in range(0, len(same), BATCH):
            some = same[first : first + BATCH]
            tasks.append((some[0].training, [trial.setting for trial in some]))
    return tasks


class ProbeRunner:
    """Probes on one core each, `jobs` at a time."""

    def __init__(self, data: ProbeData, jobs: int) -> None:
        self.data = data
        self.jobs = jobs

    def run(self, trials: Sequence[Trial]) -> Iterator[list[Record]]:
        """Yield the records of one training set after the other."""
        tasks = tasks_of(trials)
        if self.jobs == 1 or len(tasks) < 2:
            for training, settings in tasks:
                yield run_probes(self.data, training, settings)
            return
        with temporary_folder() as folder:
            for name in ("features", "labels", "domains"):
                np.save(Path(folder, f"{name}.npy"), getattr(self.data, name))
            yield from self._in_processes(tasks, folder)

    def _in_processes(self, tasks: Sequence[Task], folder: str) -> Iterator[list[Record]]:
        before = set(multiprocessing.active_children())
        executor = ProcessPoolExecutor(
            self.jobs,
            # Threads of ours may hold locks; a forked copy of them would hold them for ever.
            mp_context=multiprocessing.get_context("spawn"),
            initializer=begin,
            initargs=(folder, self.data.names, self.data.rows),
        )
        source = iter(tasks)
        pending: set[Future[list[Record]]] = set()
        try:
            pending.update(executor.submit(work, *task) for task in islice(source, 2 * self.jobs))
            while pending:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield future.result()
                pending.update(executor.submit(work, *task) for task in islice(source, len(finished)))
        except BrokenProcessPool as error:
            raise TrialError(
                "a worker process was killed, perhaps for lack of memory",
                hint="go on with --resume and fewer --jobs, or fewer --probe-rows",
            ) from error
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
                child.join()
