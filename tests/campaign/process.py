"""Runs one command in a forked child: limits on time and memory, everything it says and leaves captured."""

from __future__ import annotations

import atexit
import faulthandler
import gc
import os
import resource
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

GIGABYTE = 1 << 30
MEMORY, FILE_SIZE = 12 * GIGABYTE, GIGABYTE
SECONDS = 60.0
"""Longest any command on such small inputs may take on a busy machine."""
WORDS_TO_DUMP = 0.3
SECONDS_TO_FOLLOW = 3.0
CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Result:
    """How a command ended.

    Attributes
    ----------
    code : exit code, negative for a signal, None if it had to be killed for taking too long.
    out, err : what it wrote; of a hanging command, `err` ends with the stacks of its threads.
    strays : whether it left processes behind.
    """

    words: tuple[str, ...]
    code: int | None
    out: str
    err: str
    seconds: float
    strays: bool

    @property
    def is_done(self) -> bool:
        """Whether the command did what it was asked."""
        return self.code == 0


REHEARSAL = (
    "split rows.csv --effort fast --restarts 2 --out out --tolerance 0.2 --html",
    "split rows.csv --restarts 2 --out parts --parts a=0.5,b=0.5 --solver cbc",
    "split rows.parquet --restarts 2 --out stream --engine stream --nystrom 5 --certify never",
    "kfold rows.csv --restarts 2 --out folds --k 2 --format txt --format parquet --stratify none",
    "split rows.csv --restarts 2 --out families --stratify label --stratify domain --stratify none",
    "baseline greedy rows.csv --out greedy",
    "inspect rows.csv",
    "compare rows.csv --repeats 1 --restarts 2",
    "evaluate rows.csv --search 1 --repeats 1 --jobs 1 --out evaluation",
    "mmd rows.csv --by domain --permutations 5 --witness witness.parquet",
    "verify out",
    "report out --force",
    "split gone.parquet",
)
"""Commands that together use nearly every module."""


def warm_up(place: Path) -> None:
    """Import all that commands use, so that a forked child need not; starts no thread."""
    _keep_parsers()
    lines = [f"{value},{value**2 % 7},{'ab'[value % 2]},{'xy'[value // 2 % 2]}" for value in range(24)]
    fresh(place)
    (place / "work" / "rows.csv").write_text("\n".join(["f0,f1,label,domain", *lines]))
    call(lambda: _as_parquet(place / "work"))
    for number, words in enumerate(REHEARSAL):
        flush()
        pid = os.fork()
        if pid == 0:
            os.environ["CAMPAIGN_MODULES"] = str(place / f"modules-{number}")
            atexit.register(_list_modules)
            _become(words.split(), place, place / "out.txt", place / "err.txt")
        _wait(pid, SECONDS)
        for name in (place / f"modules-{number}").read_text().split():
            if not name.startswith(("__main__", "pandas", "tests.")):
                with suppress(ImportError, AttributeError):
                    import_module(name)
    with suppress(ImportError):
        import_module("distributed")
    _keep_versions()
    gc.collect()
    gc.freeze()


def _keep_versions() -> None:
    """Look up once which libraries there are and of which version, CBC with a process of its own."""
    from threadpoolctl import ThreadpoolController

    from clustersplit_cli.pipeline.summarize import tool_versions

    ThreadpoolController()  # it keeps the real paths
    tool_versions()


def _keep_parsers() -> None:
    """Build what parses command lines once; every child would spend most of its first 50 ms on it."""
    import typer.main

    from clustersplit_cli.cli.app import program as whole

    program: Any = typer.main.get_command(whole())
    typer.main.get_command = lambda _: program
    with program.make_context("clustersplit", [], resilient_parsing=True) as context:
        for name, command in program.commands.items():
            command.make_context(name, [], parent=context, resilient_parsing=True)


def _as_parquet(folder: Path) -> None:
    """Write `rows.csv` as Parquet too."""
    import pyarrow.csv
    import pyarrow.parquet

    table = pyarrow.csv.read_csv(folder / "rows.csv")
    pyarrow.parquet.write_table(table, folder / "rows.parquet")


def _list_modules() -> None:
    """Write down what has been imported."""
    Path(os.environ["CAMPAIGN_MODULES"]).write_text("\n".join(sys.modules))


def call(task: Callable[[], object], *, seconds: float = SECONDS) -> int | None:
    """Run a task in a forked child, because it may start threads; return its exit code."""
    flush()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            os.setpgid(0, 0)
            task()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            flush()
            os._exit(code)
    return _wait(pid, seconds)[0]


def run(words: Sequence[str], place: Path, *, seconds: float = SECONDS) -> Result:
    """Run the program on `words` in `place/work`, with `place/tmp` for its temporary files."""
    out, err = place / "out.txt", place / "err.txt"
    flush()
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _become(words, place, out, err)
    code, took_too_long = _wait(pid, seconds)
    taken = time.monotonic() - started
    strays = not _has_ended(pid) and _end_group(pid)
    return Result(
        tuple(words),
        None if took_too_long else code,
        out.read_bytes().decode("utf-8", "replace"),
        err.read_bytes().decode("utf-8", "replace"),
        taken,
        strays and not took_too_long,
    )


def flush() -> None:
    """Write out what a fork would write twice."""
    sys.stdout.flush()
    sys.stderr.flush()


def _become(words: Sequence[str], place: Path, out: Path, err: Path) -> NoReturn:
    """Be the program, as far as a fork can: its arguments, streams, signals, limits, and its end."""
    code = 99
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for stream, (path, flags) in enumerate(
            ((Path(os.devnull), os.O_RDONLY), (out, os.O_WRONLY), (err, os.O_WRONLY))
        ):
            opened = os.open(path, flags | (os.O_CREAT | os.O_TRUNC if stream else 0))
            os.dup2(opened, stream)
            os.close(opened)
        sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        faulthandler.enable(2)
        faulthandler.register(signal.SIGUSR1, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.environ.update(TMPDIR=str(place / "tmp"), COLUMNS="100")
        import tempfile

        tempfile.tempdir = None
        os.chdir(place / "work")
        sys.argv = ["clustersplit", *words]
        from clustersplit_cli.cli import main

        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        threading._shutdown()  # type: ignore[attr-defined]  # as at the end of any process
        atexit._run_exitfuncs()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        try:
            flush()
        finally:
            os._exit(code)


def _wait(pid: int, seconds: float) -> tuple[int, bool]:
    """Wait for a child, and kill its group if it takes too long; return exit code and whether it did."""
    descriptor, started = os.pidfd_open(pid), time.monotonic()
    try:
        is_late = True
        # On a machine with more to do than it has cores everything takes so much longer.
        while is_late and time.monotonic() - started < seconds * max(1.0, os.getloadavg()[0] / CORES):
            is_late = not select.select([descriptor], [], [], 1.0)[0]
        if is_late:
            os.kill(pid, signal.SIGUSR1)
            time.sleep(WORDS_TO_DUMP)
            _end_group(pid)
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), is_late


def _has_ended(group: int) -> bool:
    """Whether a process group is empty, or soon will be: helpers end when they see that their parent has."""
    until = time.monotonic() + SECONDS_TO_FOLLOW
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return True
        time.sleep(0.02)
    return False


def _end_group(group: int) -> bool:
    """Kill what is left of a process group; whether anything was."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def fresh(place: Path) -> Path:
    """An empty place for one case."""
    shutil.rmtree(place, ignore_errors=True)
    (place / "work").mkdir(parents=True)
    (place / "tmp").mkdir()
    return place
