"""What runs on the workers of a cluster: a shard is opened there and stays, tasks come to it."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.data.readers.naming import as_url, shown
from clustersplit_cli.data.row_labels import RowLabels
from clustersplit_cli.engines.factors import FactorPlan, Numbering
from clustersplit_cli.engines.plan import memory_budget
from clustersplit_cli.engines.shard import Portion, Shard
from clustersplit_cli.engines.store import Room
from clustersplit_cli.engines.tasks import Task
from clustersplit_cli.errors import ClusterError, InputError

Result = TypeVar("Result")

FACTOR_SHARE = 0.4
"""Of a worker's memory, for factors; Dask itself holds a worker back from 70 % on."""


@dataclass(frozen=True)
class Opening:
    """A shard to open: its portion, how many shards share the worker, and where it may spill."""

    portion: Portion
    n_beside: int
    spill: Path | None
    may_spill: bool


class ForgottenError(Exception):
    """A shard was made anew behind the client's back, and knows nothing of what it was told."""


def open_shard(opening: Opening) -> Shard:
    """Open a shard on the worker that this runs on."""
    from distributed import get_worker

    worker: Any = get_worker()
    limit = worker.memory_manager.memory_limit or memory_budget(None)
    room = Room(
        int(FACTOR_SHARE * limit / opening.n_beside),
        opening.spill or Path(worker.local_directory),
        opening.may_spill,
    )
    return Shard(opening.portion, room, Workers(ThreadPoolExecutor(1), 1))


@dataclass(frozen=True)
class Brief:
    """What a shard must know; the edition tells whether it does.

    Attributes
    ----------
    numbering, plan : how rows are numbered, and how they become factors; None as long as nobody knows.
    labels : of its rows; None if there are none, or it has them.
    """

    edition: int = 0
    numbering: Numbering | None = None
    plan: FactorPlan | None = None
    labels: RowLabels | None = None


def brief_shard(shard: Shard, brief: Brief, editions: tuple[int, ...] = (0,), after: None = None) -> None:
    """Tell a shard what it must know; it must have been told one of some editions before."""
    if shard.edition not in editions:
        raise ForgottenError
    shard.numbering, shard.plan = brief.numbering, brief.plan
    if brief.labels is not None:
        shard.give(brief.labels)
    shard.edition = brief.edition


def do_task(shard: Shard, task: Task[Result], edition: int, after: None = None) -> Result:
    """Do a task with the shard that is here; BLAS on one thread, so that sums are the same everywhere.

    `after` is what the cluster must do before.
    """
    if shard.edition != edition:
        raise ForgottenError
    # What overflows is told by the numbers, not by lines on the stderr of whoever started the workers.
    with _one_blas_thread(), np.errstate(all="ignore"):
        try:
            return task(shard)
        except (InputError, OSError) as error:
            unseen = _unseen_file(shard.portion)
            if unseen is None:
                raise
            raise unseen from error


def _unseen_file(portion: Portion) -> ClusterError | None:
    """Say which file of a portion this worker cannot read, where that is not so for whoever sent it."""
    from distributed import get_worker

    for path in dict.fromkeys(group.path for group in portion.groups):
        if as_url(path) is None and not os.access(path, os.R_OK):
            what = "may not read" if path.exists() else "does not see"
            return ClusterError(
                f"worker {get_worker().address} on {platform.node()} {what} {shown(path)}",
                hint="every worker must see the input under the same path: put it where all of them do, "
                "or name it by an s3:// URL",
            )
    return None


_lock = threading.Lock()
_holders = 0
_limits: Any = None


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Limit BLAS while any task of this process runs; tasks of several threads overlap."""
    global _holders, _limits  # noqa: PLW0603 - the limit is the process's own
    with _lock:
        if _holders == 0:
            _limits = threadpool_limits(limits=1, user_api="blas")
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0:
                _limits.restore_original_limits()
