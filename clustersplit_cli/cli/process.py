"""What the operating system may do to a running command: signals, and streams that are closed."""

from __future__ import annotations

import gc
import io
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from clustersplit_cli.cleanup import refuse_new_blocks, undo_open_blocks
from clustersplit_cli.environment import keep_blas_to_one_thread

INTERRUPTED = 128 + signal.SIGINT
CLEAN = "no half-written output was left behind; the same command starts over"
SECONDS_TO_STOP = 0.8
"""How long a command has to end by itself after a signal."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A polite kill, as an exception so that temporary files are removed on the way out."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.exit_code = 128 + signal_number
        self.name = signal.Signals(signal_number).name


def prepare() -> None:
    """Make signals that end a process clean up, closed streams harmless, and starting quick."""
    _fill_closed_streams()
    _keep_stdout()
    _let_messages_fail()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # A signal that the parent chose to ignore (nohup) stays ignored.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)
    _watch_signals()
    keep_blas_to_one_thread()
    # Where numbers overflow the command says so itself, or refuses them.
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    # Modules and programs are many objects that stay: looking for cycles among them as often as usual takes
    # some hundredths of a short run. What is large here is freed by counting references.
    gc.set_threshold(200_000, 10, 10)
    sys.meta_path.insert(0, _NoPandas())


def leave(code: int, message: str | None = None) -> NoReturn:
    """End the process; after a signal at once, without waiting for threads that are still at work.

    Parameters
    ----------
    message : what to tell of a signal, if nothing has been said of it.
    """
    if code in [128 + number for number in _ENDING]:
        _end(code, message)
    gc.freeze()  # spares the interpreter a last look for cycles among all modules and programs
    raise SystemExit(code)


def say_when_stopped(hint: str) -> None:
    """Give this hint, instead of the usual one, if a signal ends the command."""
    _Words.hint = hint


def mark_reported() -> None:
    """Say no more about a signal: the user has been told."""
    _Words.is_told = True


class _Words:
    hint = CLEAN
    is_told = False


def _watch_signals() -> None:
    """Have a thread end the process if the main one does not do so itself soon after a signal.

    Python's handlers run in the main thread alone, between two steps of it: not while it waits in a long
    call, and the exception they raise waits for other threads on its way out.
    """
    read_end, written = os.pipe()
    os.set_blocking(written, False)
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    threading.Thread(target=_end_after_signal, args=(read_end,), name="signals", daemon=True).start()


def _end_after_signal(read_end: int) -> None:
    number = 0
    while number not in _ENDING:
        number = os.read(read_end, 1)[0]
    time.sleep(SECONDS_TO_STOP)
    name = signal.Signals(number).name
    _end(128 + number, "interrupted" if number == signal.SIGINT else f"stopped by {name}")


_is_last = threading.Lock()


def _end(code: int, message: str | None = None) -> NoReturn:
    """End the processes that were started, undo what is half done, say so, and end this process."""
    _is_last.acquire()  # who comes second waits here for the end
    stderr = os.dup(2)
    mute(2)  # what threads and libraries say of the processes that are killed now is of no use to anybody
    refuse_new_blocks()
    _kill_descendants()
    undo_open_blocks()
    _kill_descendants()  # those that were just being started
    if message and not _Words.is_told:
        shown = "\x1b[?25h" if os.isatty(stderr) else ""  # a bar of progress hides the cursor
        with suppress(OSError):
            os.write(stderr, f"{shown}error: {message}\nhint: {_Words.hint}\n".encode())
    os._exit(code)


def _kill_descendants() -> None:
    """Kill all processes that come from this one: solvers, training commands, workers."""
    parents = _parents()
    found, look = set[int](), [os.getpid()]
    while look:
        parent = look.pop()
        children = {pid for pid, above in parents.items() if above == parent} - found
        found |= children
        look.extend(children)
    for pid in found:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _parents() -> dict[int, int]:
    """The parent of every process that can be seen."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, timeout=1, check=False
        )
        return {int(pid): int(above) for pid, above in map(str.split, listed.stdout.splitlines())}
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # The name before the parent is in brackets and may hold anything.
                words = (entry / "stat").read_bytes().rsplit(b")", 1)[1].split()
                parents[int(entry.name)] = int(words[1])
    return parents


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


def _keep_stdout() -> None:
    """Give stdout a descriptor of its own: what libraries print themselves, such as HiGHS, goes nowhere."""
    own = os.dup(sys.stdout.fileno())
    sys.stdout = open(own, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)  # noqa: PTH123, SIM115
    sys.__stdout__ = sys.stdout  # type: ignore[misc]  # where the width of the terminal is asked for
    mute(1)


class _UnfailingFile(io.FileIO):
    """A file that takes whatever is written, whether the system does or not."""

    def write(self, data: Any, /) -> int:
        """Write as much as the system takes; what it refuses is lost."""
        try:
            return super().write(data) or memoryview(data).nbytes
        except OSError:
            return memoryview(data).nbytes


def _let_messages_fail() -> None:
    """Let a stderr that is full, or whose reader has gone, cost nobody the result."""
    assert sys.stderr is not None
    file = io.BufferedWriter(_UnfailingFile(sys.stderr.fileno(), "w", closefd=False))
    encoding = sys.stderr.encoding
    sys.stderr = io.TextIOWrapper(file, encoding, errors="backslashreplace", line_buffering=True)
