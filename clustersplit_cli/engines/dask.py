"""The shards of a dataset on the workers of a Dask cluster, and tasks that are sent to them.

A shard's factors never leave its worker. A worker that is lost takes copies with it and nothing else: its
shards are opened again on another, and sums that are exact come out the same.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from clustersplit_cli import __version__
from clustersplit_cli.cleanup import temporary_folder
from clustersplit_cli.data.row_groups import Layout
from clustersplit_cli.data.row_labels import RowLabels
from clustersplit_cli.engines.dask_worker import (
    Brief,
    ForgottenError,
    Opening,
    brief_shard,
    do_task,
    open_shard,
)
from clustersplit_cli.engines.factors import FactorPlan, Numbering
from clustersplit_cli.engines.options import DASK, NO_SPILL, EngineOptions
from clustersplit_cli.engines.shard import portions, without_others
from clustersplit_cli.engines.tasks import Task
from clustersplit_cli.errors import ClusterError, ClusterSplitError, UsageError
from clustersplit_cli.progress import Progress, silent

Result = TypeVar("Result")

SECONDS_FOR_WORKERS = 30
SECONDS_BETWEEN_LOOKS = 0.5
MOST_LOSSES = 20


@dataclass
class _Seat:
    """A shard and where it is."""

    opening: Opening
    address: str
    shard: Any
    losses: int = 0
    told: Any = None  # the task that told it what others knew before it was moved here


class ClusterExecutor:
    """The shards of a dataset on the workers of a cluster."""

    name = DASK

    def __init__(
        self,
        client: Any,
        address: str,
        openings: list[Opening],
        threads: Mapping[str, int],
        notes: tuple[Note, ...],
        progress: Progress,
    ) -> None:
        self._client, self._address, self._progress = client, address, progress
        self.notes = notes
        self._known = dict.fromkeys(threads, True)
        self._briefs = [Brief() for _ in openings]
        seats = [name for name, count in sorted(threads.items()) for _ in range(count)]
        # Neighbours go to the same worker: they are in the same files.
        self._seats = [
            self._open(opening, seats[place * len(seats) // len(openings)])
            for place, opening in enumerate(openings)
        ]

    @property
    def n_workers(self) -> int:
        """Workers that have shards."""
        return len({seat.address for seat in self._seats})

    def tell(self, numbering: Numbering, plan: FactorPlan | None = None) -> None:
        """Tell all shards; there are no factors yet, so this is the time to share with late workers."""
        self._briefs = [
            replace(brief, edition=brief.edition + 1, numbering=numbering, plan=plan)
            for brief in self._briefs
        ]
        self._share_with_newcomers()
        self._brief("tell", with_labels=False)

    def give(self, labels: RowLabels) -> None:
        """Give every shard the labels of its rows and of no others."""
        self._briefs = [
            replace(
                brief,
                edition=brief.edition + 1,
                labels=labels.for_rows(seat.opening.portion.start, seat.opening.portion.n_rows),
            )
            for brief, seat in zip(self._briefs, self._seats, strict=True)
        ]
        self._brief("labels", with_labels=True)

    def run(self, task: Task[Result]) -> list[Result]:
        """Have every shard do a task, where it is."""
        return self._everywhere(do_task, lambda number: (task, self._briefs[number].edition), task.label)

    def _brief(self, label: str, *, with_labels: bool) -> None:
        """Tell all shards what is new; one that was moved or opened again on the way knows it already."""

        def news(number: int) -> tuple[Brief, tuple[int, ...]]:
            brief = self._briefs[number]
            return brief if with_labels else replace(brief, labels=None), (brief.edition - 1, brief.edition)

        self._everywhere(brief_shard, news, label)

    def _everywhere(
        self, function: Any, arguments: Callable[[int], tuple[Any, ...]], label: str
    ) -> list[Any]:
        """Call a function with every shard; shards that are lost on the way are opened again."""
        total = sum(seat.opening.portion.n_rows for seat in self._seats)
        woken = threading.Event()
        results: dict[int, Any] = {}
        pending = {
            number: self._submit(number, function, arguments(number), woken)
            for number in range(len(self._seats))
        }
        done = 0
        self._progress(label, 0, total)
        while pending:
            heard = woken.wait(SECONDS_BETWEEN_LOOKS)
            woken.clear()
            if self._client.status != "running":
                raise _gone(self._address)
            lost = set() if heard else self._lost(pending)
            for number, future in list(pending.items()):
                if number in lost or future.status not in ("finished", "error"):
                    continue
                try:
                    results[number] = future.result()
                except Exception as error:
                    if not _is_loss(error):
                        raise
                    lost.add(number)
                if number in results:
                    del pending[number]
                    done += self._seats[number].opening.portion.n_rows
                    self._progress(label, done, total)
            for number in lost & set(pending):
                self._reopen(number)
                pending[number] = self._submit(number, function, arguments(number), woken)
        return [results[number] for number in range(len(self._seats))]

    def _submit(self, number: int, function: Any, arguments: tuple[Any, ...], woken: threading.Event) -> Any:
        seat = self._seats[number]
        with self._explained():
            future = self._client.submit(
                function,
                seat.shard,
                *arguments,
                after=seat.told,
                workers=[seat.address],
                pure=False,
                priority=1,
            )
        future.add_done_callback(lambda _: woken.set())
        return future

    def _open(self, opening: Opening, address: str) -> _Seat:
        with self._explained():
            shard = self._client.submit(open_shard, opening, workers=[address], pure=False)
        return _Seat(opening, address, shard)

    def _lost(self, pending: dict[int, Any]) -> set[int]:
        """The shards whose workers are no longer there."""
        alive = self._threads()
        return {
            number
            for number, future in pending.items()
            if self._seats[number].address not in alive or future.status in ("cancelled", "lost")
        }

    def _reopen(self, number: int) -> None:
        """Open a lost shard on the worker that has the fewest."""
        seat = self._seats[number]
        if seat.losses >= MOST_LOSSES:
            raise ClusterError(
                f"{seat.losses} workers failed on the same rows",
                hint="they may be short of memory: use fewer --nystrom landmarks, or larger workers",
            )
        alive = self._fit_threads() or self._wait_for_workers()
        taken = [other.address for other in self._seats]
        address = min(sorted(alive), key=lambda name: taken.count(name) / alive[name])
        with suppress(Exception):
            seat.shard.cancel(force=True)
        self._move(number, address)
        self._seats[number].losses += 1

    def _move(self, number: int, address: str) -> None:
        """Open a shard on a worker, and tell it what it must know.

        Nobody waits for that here, because the worker may be lost before it answers: the tasks wait.
        """
        seat = self._seats[number]
        moved = replace(self._open(seat.opening, address), losses=seat.losses)
        with self._explained():
            moved.told = self._client.submit(
                brief_shard, moved.shard, self._briefs[number], workers=[address], pure=False, priority=2
            )
        self._seats[number] = moved

    def _share_with_newcomers(self) -> None:
        """Move shards to workers that came after the last look, until no move makes the fullest less full."""
        before = set(self._known)
        threads = self._fit_threads()
        if set(threads) <= before:
            return
        held = Counter(seat.address for seat in self._seats)
        while True:
            idle = min(sorted(threads), key=lambda name: (held[name] + 1) / threads[name])
            full = max(sorted(threads), key=lambda name: held[name] / threads[name])
            if (held[idle] + 1) / threads[idle] >= held[full] / threads[full]:
                return
            # The last of its shards: those that stay are neighbours, in the same files.
            number = max(n for n, seat in enumerate(self._seats) if seat.address == full)
            self._move(number, idle)
            held[full] -= 1
            held[idle] += 1

    def _fit_threads(self) -> dict[str, int]:
        """The workers that are there and run the same program, and their threads."""
        alive = self._threads()
        for address in sorted(set(alive) - set(self._known)):
            try:
                self.notes += check_versions(self._client, [address])
                self._known[address] = True
            except ClusterError as error:
                self._known[address] = False
                self.notes += (("worker_not_used", f"{error.message}: it is given nothing to do"),)
            except Exception:  # it is gone again, or the scheduler is, which the next call tells
                continue
        return {address: count for address, count in alive.items() if self._known.get(address)}

    def _threads(self) -> dict[str, int]:
        """The workers that are there, and their threads."""
        with self._explained():
            return dict(self._client.nthreads())

    def _wait_for_workers(self) -> dict[str, int]:
        with self._explained():
            try:
                self._client.wait_for_workers(1, timeout=SECONDS_FOR_WORKERS)
            except TimeoutError:
                raise ClusterError(
                    f"the Dask cluster at {self._address} has no workers left",
                    hint="start some, and run again",
                ) from None
        found = self._fit_threads()
        if not found:
            raise ClusterError(
                f"no worker of the Dask cluster at {self._address} runs this version of clustersplit",
                hint="install the same version everywhere",
            )
        return found

    def _explained(self) -> AbstractContextManager[None]:
        return _explained(self._client, self._address)


@contextmanager
def _explained(client: Any, address: str) -> Iterator[None]:
    """A scheduler that is gone shows in many ways; all of them are one line."""
    try:
        yield
    except ClusterSplitError:
        raise
    except Exception as error:
        if client.status != "running" or isinstance(error, OSError):
            raise _gone(address) from error
        raise


def _gone(address: str) -> ClusterError:
    return ClusterError(
        f"the Dask scheduler at {address} is gone", hint="start it again, and run the same command"
    )


def _silence_logs() -> None:
    """Let Dask log nothing: what matters is said here in one line.

    Dask gives some loggers levels of their own, which those of the loggers above them do not change.
    """
    above = ("distributed", "tornado", "asyncio")
    below = [
        name for name in logging.root.manager.loggerDict if name.startswith(tuple(f"{a}." for a in above))
    ]
    for name in (*above, *below):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _is_loss(error: Exception) -> bool:
    """Whether a task failed because its worker did, or its shard was lost."""
    from concurrent.futures import CancelledError

    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker

    return isinstance(error, (ForgottenError, KilledWorker, CommClosedError, CancelledError))


SHARDS_PER_THREAD = 2
SECONDS_TO_CONNECT = 10


@contextmanager
def opened_cluster(
    layout: Layout, engine_options: EngineOptions, threads: int, budget: int, progress: Progress = silent
) -> Iterator[ClusterExecutor]:
    """Connect to the cluster, or start one on this machine, and open the shards; the block ends it.

    Parameters
    ----------
    threads, budget : workers of a cluster on this machine, and the memory that all of them may use.

    Raises
    ------
    UsageError : Dask is not installed.
    ClusterError : there is no scheduler, there are no workers, or they have other versions of this program.
    """
    try:
        import distributed as installed
    except ImportError:
        raise UsageError("--engine dask needs Dask", hint="pip install dask distributed") from None
    distributed: Any = installed  # it has no types
    _silence_logs()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dask's own words on versions: ours come from `_check_versions`
        given = engine_options.scheduler
        with nullcontext(given) if given else _cluster_here(distributed, threads, budget) as address:
            try:
                client = distributed.Client(address, timeout=SECONDS_TO_CONNECT, set_as_default=False)
            except (OSError, ValueError) as error:
                raise ClusterError(
                    f"no Dask scheduler answers at {address}", hint="start one with: dask scheduler"
                ) from error
            try:
                with _explained(client, address):
                    engine = _engine(client, address, layout, engine_options, progress)
                yield engine
            finally:
                with suppress(Exception):
                    client.close(timeout=2)


@contextmanager
def _cluster_here(distributed: Any, threads: int, budget: int) -> Iterator[str]:
    """Start a cluster on this machine; yield its address. What it writes beside its work goes with it."""
    import dask

    with temporary_folder() as folder, dask.config.set({"temporary-directory": folder}):
        own = distributed.LocalCluster(
            n_workers=threads,
            threads_per_worker=1,
            memory_limit=budget // threads,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        )
        try:
            yield own.scheduler_address
        finally:
            with suppress(Exception):
                own.close(timeout=5)


def _engine(
    client: Any, address: str, layout: Layout, options: EngineOptions, progress: Progress
) -> ClusterExecutor:
    try:
        client.wait_for_workers(1, timeout=SECONDS_FOR_WORKERS)
        threads = dict(client.nthreads())
    except TimeoutError:
        raise ClusterError(
            f"the Dask scheduler at {address} has no workers", hint=f"start some with: dask worker {address}"
        ) from None
    notes = check_versions(client, threads)
    # A portion carries the layout, but of the row groups only its own.
    pieces = portions(layout, SHARDS_PER_THREAD * sum(threads.values()))
    beside = -(-len(pieces) // len(threads))
    spill = options.spill_directory and options.spill_directory.absolute()
    openings = [Opening(without_others(piece), beside, spill, options.spill != NO_SPILL) for piece in pieces]
    return ClusterExecutor(client, address, openings, threads, notes, progress)


Note = tuple[str, str]


def versions() -> dict[str, str]:
    """Versions of what the results depend on."""
    from importlib.metadata import version

    return {"clustersplit": __version__, **{name: version(name) for name in ("numpy", "pyarrow")}}


def check_versions(client: Any, addresses: Iterable[str]) -> tuple[Note, ...]:
    """Compare the versions of this process with those of some workers.

    Raises
    ------
    ClusterError
        If a worker has another version of this program, or none.
    """
    own = versions()
    try:
        found: dict[str, dict[str, str]] = client.run(versions, workers=list(addresses))
    except (ImportError, AttributeError) as error:
        raise ClusterError(
            f"the workers do not have clustersplit {own['clustersplit']}: {error}",
            hint="install the same version on every worker",
        ) from error
    notes = []
    for address, theirs in sorted(found.items()):
        if theirs["clustersplit"] != own["clustersplit"]:
            raise ClusterError(
                f"worker {address} has clustersplit {theirs['clustersplit']}, this process has "
                f"{own['clustersplit']}",
                hint="install the same version everywhere",
            )
        differing = [f"{name} {theirs[name]}, not {own[name]}" for name in own if theirs[name] != own[name]]
        if differing:
            notes.append(
                (
                    "versions_differ",
                    f"worker {address} has {', '.join(differing)}: results may differ in the last digits",
                )
            )
    return tuple(notes)
