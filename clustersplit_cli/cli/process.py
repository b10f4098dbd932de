"""What the operating system may do to a running command: signals, and streams that are closed."""

from __future__ import annotations

import gc
import os
import signal
import sys
from importlib.abc import MetaPathFinder
from types import FrameType
from typing import NoReturn

from clustersplit_cli.environment import keep_blas_to_one_thread

INTERRUPTED = 128 + signal.SIGINT


class Stopped(BaseException):
    """A polite kill, as an exception so that temporary files are removed on the way out."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.exit_code = 128 + signal_number
        self.name = signal.Signals(signal_number).name


def prepare() -> None:
    """Make signals that end a process clean up, closed streams harmless, and starting quick."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        # A signal that the parent chose to ignore (nohup) stays ignored.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)
    _fill_closed_streams()
    keep_blas_to_one_thread()
    # Modules and programs are many objects that stay: looking for cycles among them as often as usual takes
    # some hundredths of a short run. What is large here is freed by counting references.
    gc.set_threshold(200_000, 10, 10)
    sys.meta_path.insert(0, _NoPandas())


def leave_quickly() -> None:
    """Spare the interpreter, which is about to end, a last look for cycles among all modules and programs."""
    gc.freeze()


class _NoPandas(MetaPathFinder):
    """Arrow imports pandas, where it is installed, only to ask whether an array is a series.

    No command needs it, and importing it takes longer than splitting a small file.
    """

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Find nothing, and let nobody else look."""
        if fullname == "pandas":
            raise ModuleNotFoundError("commands do without pandas", name="pandas")


def mute(descriptor: int) -> None:
    """Send what is still written to a stream nowhere: its reader has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    raise Stopped(number)


def _fill_closed_streams() -> None:
    """Open the standard streams that are closed, so that no file gets their numbers.

    A closed stdout becomes one that refuses writing: what was meant for it must not vanish in silence.
    """
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")  # noqa: PTH123, SIM115
