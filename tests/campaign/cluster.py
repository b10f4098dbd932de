"""A Dask cluster on the loopback that many cases share; run as a module, one process of it."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.campaign.isolation import isolate

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 2
SECONDS_TO_START = 60.0
SET_DEATH_SIGNAL = 1
ADDRESS_UNKNOWN = "tcp://127.0.0.1:1"
"""Nothing answers there: what a case is given where there can be no cluster."""


class Cluster:
    """A scheduler and workers, each a process; started when it is first asked for, and ended by `stop`."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._running: list[subprocess.Popen[bytes]] = []
        self._owner = os.getpid()
        self._address = ""

    def address(self) -> str:
        """Where the scheduler listens; there is a cluster from then on, and all its processes run."""
        if self._owner != os.getpid() or any(process.poll() is not None for process in self._running):
            self.stop()
        if not self._running:
            self._start()
        return self._address

    def stop(self) -> None:
        """End the processes that this process started."""
        if self._owner == os.getpid():
            for process in self._running:
                process.kill()
                process.wait()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
        self._running, self._folder, self._owner = [], None, os.getpid()

    def _start(self) -> None:
        try:
            import distributed  # noqa: F401
        except ImportError:
            self._address = ADDRESS_UNKNOWN
            return
        self._folder = Path(tempfile.mkdtemp(prefix="campaign-cluster-"))
        told, until = self._folder / "scheduler.json", time.monotonic() + SECONDS_TO_START
        here = ("--host", "127.0.0.1", "--no-dashboard")
        self._launch("dask_scheduler", "--port", "0", "--no-show", "--scheduler-file", str(told), *here)
        for _ in range(WORKERS):
            given = ("--scheduler-file", str(told), "--nthreads", "1", "--memory-limit", "1GB", "--no-nanny")
            self._launch("dask_worker", *given, *here)
        self._address = self._wait(told, until)

    def _launch(self, module: str, *options: str) -> None:
        assert self._folder is not None
        words = (sys.executable, "-m", "tests.campaign.cluster", module, *options)
        with (self._folder / f"{len(self._running)}.log").open("wb") as log:
            quiet = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self._running.append(subprocess.Popen(words, cwd=ROOT, **quiet))

    def _wait(self, told: Path, until: float) -> str:
        """Ask in a process of its own, because a client starts threads, until all workers are there."""
        code = (
            "import sys; from distributed import Client\n"
            f"client = Client(scheduler_file=sys.argv[1], timeout={SECONDS_TO_START}, set_as_default=False)\n"
            f"client.wait_for_workers({WORKERS}, timeout={SECONDS_TO_START})\n"
            "print(client.scheduler.address)\n"
            "client.close()\n"
        )
        while not told.exists() and time.monotonic() < until and self._running[0].poll() is None:
            time.sleep(0.02)
        words = [sys.executable, "-c", code, str(told)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS_TO_START, check=False)
        if done.returncode != 0:
            logs = "".join(path.read_text("utf-8", "replace") for path in told.parent.glob("*.log"))
            self.stop()
            raise RuntimeError(f"the cluster does not start: {done.stderr[-500:]}{logs[-1500:]}")
        return done.stdout.split()[-1]


SHARED = Cluster()
"""The cluster of this process."""


def main(module: str) -> None:
    """Be a process of the cluster, which ends with the one that started it and reaches no other machine."""
    with suppress(OSError):
        ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
    isolate()
    from importlib import import_module

    import_module(f"distributed.cli.{module}").main()


if __name__ == "__main__":
    main(sys.argv.pop(1))
