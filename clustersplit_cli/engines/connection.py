"""The way to a Dask cluster: connect, or start one on this machine, and deal the rows out to its workers."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from clustersplit_cli.data.row_groups import Layout
from clustersplit_cli.engine_options import NO_SPILL, EngineOptions
from clustersplit_cli.engines.dask import SECONDS_FOR_WORKERS, ClusterEngine
from clustersplit_cli.engines.dask_worker import Opening
from clustersplit_cli.engines.portions import portions, without_others
from clustersplit_cli.engines.versions import check_versions
from clustersplit_cli.errors import ClusterError, UsageError
from clustersplit_cli.progress import Progress, silent

SHARDS_PER_THREAD = 2
SECONDS_TO_CONNECT = 10


@contextmanager
def opened_cluster(
    layout: Layout, engine_options: EngineOptions, threads: int, budget: int, progress: Progress = silent
) -> Iterator[ClusterEngine]:
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
        raise UsageError("--engine dask needs Dask", hint="pip install 'clustersplit[dask]'") from None
    distributed: Any = installed  # it has no types
    # What Dask would log is said here in one line, or is no concern of the user's.
    for name in ("distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dask's own words on versions: ours come from `_check_versions`
        own: Any = None
        try:
            address = engine_options.scheduler
            if address is None:
                own = distributed.LocalCluster(
                    n_workers=threads,
                    threads_per_worker=1,
                    memory_limit=budget // threads,
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                )
                address = own.scheduler_address
            try:
                client = distributed.Client(address, timeout=SECONDS_TO_CONNECT, set_as_default=False)
            except (OSError, ValueError) as error:
                raise ClusterError(
                    f"no Dask scheduler answers at {address}", hint="start one with: dask scheduler"
                ) from error
            try:
                yield _engine(client, address, layout, engine_options, progress)
            finally:
                with suppress(Exception):
                    client.close(timeout=2)
        finally:
            if own is not None:
                with suppress(Exception):
                    own.close(timeout=5)


def _engine(
    client: Any, address: str, layout: Layout, options: EngineOptions, progress: Progress
) -> ClusterEngine:
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
    openings = [
        Opening(without_others(piece), beside, options.spill_directory, options.spill != NO_SPILL)
        for piece in pieces
    ]
    return ClusterEngine(client, address, openings, threads, notes, progress)
