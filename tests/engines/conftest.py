"""Datasets of several row groups, clusters of real processes, and a wire-tap between two of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 180.0
"""Seconds; a busy machine is no failure."""


class Cluster:
    """A scheduler and its workers, each a process that speaks TCP."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / "scheduler.json"
        self.scheduler = self._start(
            "dask_scheduler",
            "--port",
            "0",
            "--host",
            "127.0.0.1",
            "--no-show",
            "--scheduler-file",
            str(self._file),
        )
        self.workers: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                return str(json.loads(self._file.read_text())["address"])
            except (OSError, ValueError):
                time.sleep(0.05)
        raise TimeoutError("the scheduler did not start")

    def add_worker(self, *options: str, hidden: Path | None = None) -> None:
        """Start a worker, from which a folder may be hidden: in a view of the file system of its own."""
        address = self.address
        cover = f'mount -t tmpfs none "{hidden}" && exec "$0" "$@"'
        within = () if hidden is None else ("unshare", "--map-root-user", "--mount", "sh", "-c", cover)
        self.workers.append(
            self._start(
                "dask_worker",
                address,
                "--no-nanny",
                "--nthreads",
                "1",
                "--memory-limit",
                "1GB",
                *options,
                within=within,
            )
        )

    def wait(self) -> None:
        """Wait until the scheduler knows all workers."""
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(len(self.workers), timeout=PATIENCE)

    def kill_worker(self, number: int) -> None:
        self.workers[number].send_signal(signal.SIGKILL)
        self.workers[number].wait()

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()

    def _start(self, module: str, *options: str, within: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        log = (self._folder / f"{module}-{time.monotonic_ns()}.log").open("wb")
        with log:
            return subprocess.Popen(
                [*within, sys.executable, "-m", f"distributed.cli.{module}", "--no-dashboard", *options],
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
            )


@contextmanager
def running_cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """Start a cluster; the block ends it."""
    running = Cluster(folder)
    try:
        for _ in range(workers):
            running.add_worker()
        if workers:
            running.wait()
        yield running
    finally:
        running.close()


class WireTap:
    """Passes everything between its own port and another, and counts the bytes."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listener]
        self.bytes = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            there = socket.create_connection(self._target)
            self._sockets += [here, there]
            for source, sink in ((here, there), (there, here)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                self.bytes += len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return


def write_table(
    folder: Path, rows: int = 6000, features: int = 8, *, files: int = 3, group: int = 700
) -> Path:
    """Rows in clusters, a fifth of them twice, in files of several row groups."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(7, features))
    x = (centres[rng.integers(7, size=rows)] + 0.7 * rng.normal(size=(rows, features))).astype(np.float32)
    label = np.array(["ape", "bee", "cow"])[rng.integers(3, size=rows)]
    domain = rng.integers(2, size=rows)
    half, fifth = rows // 2, rows // 5
    for column in (x, label, domain):
        column[half : half + fifth] = column[:fifth]
    table = pa.table({**{f"f{j}": x[:, j] for j in range(features)}, "label": label, "domain": domain})
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(np.array_split(np.arange(rows), files)):
        pq.write_table(table.take(pa.array(part)), folder / f"part-{number}.parquet", row_group_size=group)
    return folder


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give schedulers and workers on a busy machine more time than a user would."""
    from clustersplit_cli.engines import dask as cluster
    from clustersplit_cli.engines import dask as connection

    monkeypatch.setattr(connection, "SECONDS_TO_CONNECT", PATIENCE)
    for module in (cluster, connection):
        monkeypatch.setattr(module, "SECONDS_FOR_WORKERS", PATIENCE)


@pytest.fixture(scope="session")
def write() -> Callable[..., Path]:
    """The function that writes such a dataset."""
    return write_table


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 6,000 rows."""
    return write_table(tmp_path_factory.mktemp("data") / "table")


@pytest.fixture(scope="session")
def cluster() -> Callable[..., AbstractContextManager[Cluster]]:
    """The function that starts a cluster for the length of a block."""
    return running_cluster


@pytest.fixture(scope="session")
def wire_tap() -> type[WireTap]:
    """What counts the bytes that go to an address."""
    return WireTap
