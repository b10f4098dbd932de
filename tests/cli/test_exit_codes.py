"""How a run ends: each exit code, signals, and what is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

Process = Callable[..., Any]
Command = Callable[..., Sequence[str]]


@pytest.fixture
def script(folder: Path) -> Callable[[str, str], str]:
    """Make an executable file and return its path."""

    def make(name: str, text: str) -> str:
        path = folder / name
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    return make


def test_done_is_0(process: Process) -> None:
    assert process("split", "feats.parquet", "-q").code == 0


def test_bad_usage_and_bad_input_are_2(process: Process) -> None:
    assert process("splot").code == 2
    assert process("split", "feats.parquet", "--h", "2").code == 2
    assert process("split", "missing.parquet").code == 2


def test_constraints_that_cannot_be_met_are_3(process: Process) -> None:
    assert process("split", "feats.parquet", "--h", "0.001").code == 3


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("#!/bin/sh\nkill -SEGV $$\n", "CBC failed on the assignment program"),
        ("not a program", "CBC failed on the assignment program"),
    ],
)
def test_a_solver_that_fails_is_4_and_nothing_is_written(
    text: str, wrong: str, process: Process, script: Callable[[str, str], str], files: Callable[[], set[str]]
) -> None:
    result = process("split", "feats.parquet", "-q", CLUSTERSPLIT_CBC=script("cbc", text))
    assert result.code == 4
    error, hint = result.lines
    assert error.startswith(f"error: {wrong}")
    assert hint.startswith("hint: ")
    assert files() == {"feats.parquet", "cbc"}


def test_a_solver_that_is_missing_is_4_and_never_needed_with_certify_never(process: Process) -> None:
    result = process("split", "feats.parquet", "-q", CLUSTERSPLIT_CBC="/nowhere/cbc")
    assert result.code == 4
    assert result.lines[0] == "error: CLUSTERSPLIT_CBC=/nowhere/cbc is not an executable file"
    assert "pip install 'pulp[cbc]'" in result.lines[1]
    quick = ("--effort", "fast", "--certify", "never")
    assert process("split", "feats.parquet", *quick, CLUSTERSPLIT_CBC="/nowhere/cbc").code == 0


BUG = """
import sys
import clustersplit_cli.data.readers as readers

def load(request, progress):
    raise ZeroDivisionError("a bug\\nof ours")

readers.load = load
from clustersplit_cli.cli import main
main()
"""


def test_a_bug_of_ours_is_70_and_asks_for_a_report(folder: Path, files: Callable[[], set[str]]) -> None:
    def provoke(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", BUG, "split", "feats.parquet", *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
            timeout=60,
            check=False,
        )

    lines = [
        "error: ZeroDivisionError: a bug\\nof ours",
        "hint: this is a bug in clustersplit: "
        "please report it with the output of the same command and --debug",
    ]
    plain = provoke()
    assert (plain.returncode, plain.stdout, plain.stderr.splitlines()) == (70, "", lines)
    for debugged in (provoke("--debug"), provoke(CLUSTERSPLIT_DEBUG="1")):
        assert debugged.returncode == 70
        assert debugged.stderr.startswith("Traceback (most recent call last):")
        assert debugged.stderr.splitlines()[-2:] == lines
    assert files() == {"feats.parquet"}


def test_debug_shows_where_an_expected_error_came_from(process: Process) -> None:
    assert "Traceback" in process("split", "feats.parquet", "--h", "2", "--debug").err
    assert "Traceback" not in process("split", "feats.parquet", "--h", "2").err


# A shell's background jobs ignore interrupts, and so would all that they start.
HEEDING = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def long_run(folder: Path, command: Command) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a run that would last a while, over an earlier result, and wait until it is at work."""
    rng = np.random.default_rng(0)
    columns = {f"f{column}": rng.normal(size=4000) for column in range(32)}
    pq.write_table(pa.table({**columns, "label": rng.integers(0, 3, 4000)}), folder / "long.parquet")

    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        words = command("split", "long.parquet", "--restarts", "300", "--max-iter", "10000", "-v", *arguments)
        heeding = [sys.executable, "-c", HEEDING, *words]
        running = subprocess.Popen(heeding, stderr=subprocess.PIPE, text=True, start_new_session=True)
        started.append(running)
        assert running.stderr is not None
        assert running.stderr.readline().startswith("kernel: ")
        time.sleep(0.3)
        return running

    yield start
    for running in started:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


@pytest.mark.parametrize(
    ("number", "code", "wrong", "arguments"),
    [
        (signal.SIGINT, 130, "interrupted", ("--certify", "never")),
        (signal.SIGINT, 130, "interrupted", ("--solver", "cbc")),
        (signal.SIGTERM, 143, "stopped by SIGTERM", ("--solver", "cbc")),
        (signal.SIGHUP, 129, "stopped by SIGHUP", ("--certify", "never")),
    ],
)
def test_a_signal_ends_a_run_with_its_code_and_leaves_everything_as_it_was(
    number: signal.Signals,
    code: int,
    wrong: str,
    arguments: tuple[str, ...],
    long_run: Callable[..., subprocess.Popen[str]],
    folder: Path,
    files: Callable[[], set[str]],
) -> None:
    running = long_run(*arguments)
    os.killpg(running.pid, number)  # as a terminal does: the solver's processes hear it too
    _, said = running.communicate(timeout=30)
    assert running.returncode == code
    assert said.splitlines() == [
        f"error: {wrong}",
        "hint: no half-written output was left behind; the same command starts over",
    ]
    assert files() == {"feats.parquet", "long.parquet"}


def test_a_signal_that_the_parent_ignores_stays_ignored(folder: Path, command: Command) -> None:
    probe = (
        "import signal; from clustersplit_cli.cli.process import prepare; prepare(); "
        "print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
    )
    done = subprocess.run(
        ["bash", "-c", 'trap "" HUP; exec "$0" -c "$1"', sys.executable, probe],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "True\n"
