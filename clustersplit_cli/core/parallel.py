"""Spread fixed tiles over threads so that results do not depend on how many threads there are.

A multi-threaded BLAS splits its work by the number of threads, which changes the last bits of a product
and, on data with duplicate rows, the split. Here BLAS runs on one thread and our own pool runs
tiles whose shapes depend on the data alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import chain, islice
from threading import Lock
from typing import TypeVar

from threadpoolctl import threadpool_limits

TURN_SECONDS = 2e-4
Job = TypeVar("Job")
Result = TypeVar("Result")


def available_cores() -> int:
    """Count the cores this process may use: its affinity mask, or fewer if OMP_NUM_THREADS says so."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(wanted)) if wanted.isdigit() and int(wanted) > 0 else cores


class Workers:
    """A pool of threads that runs independent jobs; use `pool()` to make one."""

    def __init__(self, executor: ThreadPoolExecutor, count: int) -> None:
        self._executor = executor
        self.count = count

    def alone(self) -> Workers:
        """One worker that runs jobs where it is called: for jobs within a job."""
        return Workers(self._executor, 1)

    def _look(self, jobs: Iterable[Job]) -> tuple[Iterator[Job], bool]:
        """The jobs, and whether to do them here: one alone is done sooner than handed out."""
        source = iter(jobs)
        first = list(islice(source, 2))
        return chain(first, source), self.count == 1 or len(first) < 2

    def map(self, task: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        """Yield `task(job)` in the order of `jobs`, at most a few ahead of the consumer.

        In-order results make sums over tiles reproducible; the bounded look-ahead keeps finished
        tiles from piling up in memory.
        """
        source, is_alone = self._look(jobs)
        if is_alone:
            yield from map(task, source)
            return
        pending: list[Future[Result]] = []
        try:
            pending.extend(self._executor.submit(task, job) for job in islice(source, 2 * self.count))
            while pending:
                yield pending.pop(0).result()
                pending.extend(self._executor.submit(task, job) for job in islice(source, 1))
        finally:
            for future in pending:
                future.cancel()

    def run(
        self,
        task: Callable[[Job], object],
        jobs: Iterable[Job],
        on_done: Callable[[int], None] | None = None,
    ) -> None:
        """Run `task` on every job for its effect, in any order; `on_done` hears the number finished."""
        source, is_alone = self._look(jobs)
        if is_alone:
            for done, job in enumerate(source, 1):
                task(job)
                if on_done is not None:
                    on_done(done)
            return
        pending: set[Future[object]] = set()
        done = 0
        try:
            pending.update(self._executor.submit(task, job) for job in islice(source, 2 * self.count))
            while pending:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
                    done += 1
                pending.update(self._executor.submit(task, job) for job in islice(source, len(finished)))
                if on_done is not None:
                    on_done(done)
        finally:
            for future in pending:
                future.cancel()


@contextmanager
def pool(threads: int | None = None) -> Iterator[Workers]:
    """Limit BLAS to one thread and open a pool of `threads` workers (default: the cores available)."""
    count = threads or available_cores()
    with (
        threadpool_limits(limits=1, user_api="blas"),
        _quick_turns,
        ThreadPoolExecutor(count) as executor,
    ):
        yield Workers(executor, count)


class _QuickTurns:
    """Lets threads take turns in the interpreter more often than usual while any pool is open.

    A thread needs the interpreter for a moment between two tiles. Beside one that runs Python alone it would
    wait for 5 ms each time, far longer than a tile takes.
    """

    def __init__(self) -> None:
        self._lock, self._open, self._usual = Lock(), 0, 0.0

    def __enter__(self) -> None:
        with self._lock:
            if self._open == 0:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, TURN_SECONDS))
            self._open += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._open -= 1
            if self._open == 0:
                sys.setswitchinterval(self._usual)


_quick_turns = _QuickTurns()


def tiles(total: int, size: int) -> list[tuple[int, int]]:
    """Cut `range(total)` into consecutive (start, stop) pieces of `size`.

    >>> tiles(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(start, min(total, start + size)) for start in range(0, total, size)]
