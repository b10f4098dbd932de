"""Interrupts and polite kills end every command within two seconds, whatever it does, and leave nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 2.0
INTERRUPT, TERMINATE = (signal.SIGINT, 130), (signal.SIGTERM, 143)

BUSY = """
import os, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from clustersplit_cli.cli.process import leave, prepare
prepare()
from clustersplit_cli.cleanup import temporary_folder
from clustersplit_cli.data.publish import staged_directory

SLEEP = [sys.executable, "-c", "import time; time.sleep(1000)", "{folder}"]

def loop():
    while True:
        pass

def waiting_for_a_worker():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(loop).result()

def waiting_for_a_program():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(subprocess.run, SLEEP).result()

def missing_a_program_that_is_killed():
    def complain():
        subprocess.run(SLEEP)
        while True:
            os.write(2, b"where is it?\\n")

    with ThreadPoolExecutor(2) as pool:
        pool.submit(complain)
        pool.submit(loop).result()

if "{what}" == "in_one_long_call":  # what it takes is there before the signal comes
    import numpy as np
    rows = np.random.default_rng(0).normal(size=(5000, 5000))
    rows += rows.T.copy()

def in_one_long_call():
    np.linalg.eigvalsh(rows)

def refusing_to_end():
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            continue

subprocess.Popen(SLEEP, start_new_session=True)
with temporary_folder("{folder}") as aside, staged_directory(Path("{folder}/out"), force=True) as place:
    (place / "half").write_text("half of it")
    sys.stderr.write("at work\\n")
    sys.stderr.flush()
    {what}()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for work, from which no process may remain."""
    (tmp_path / "tmp").mkdir()
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    yield place
    for pid in processes_of(place):
        os.kill(pid, signal.SIGKILL)


def processes_of(place: Path) -> list[int]:
    """The processes that name a folder, or work there."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words, here = (entry / "cmdline").read_bytes(), (entry / "cwd").resolve()
        except OSError:
            continue
        if int(entry.name) != os.getpid() and (str(place).encode() in words or here == place):
            found.append(int(entry.name))
    return found


def ended(running: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    """Send a signal; the exit code and what was said, if the process ends in time."""
    sent = time.monotonic()
    running.send_signal(number)
    try:
        _, said = running.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        running.kill()
        pytest.fail("it goes on after the signal")
    took = time.monotonic() - sent
    assert took < SECONDS, f"it took {took:.1f} s to end"
    return running.returncode, said


def check_nothing_is_left(place: Path, *names: str) -> None:
    time.sleep(0.1)  # processes that were killed are still listed for a moment
    assert processes_of(place) == [os.getpid()] or processes_of(place) == []
    assert {entry.name for entry in place.iterdir()} == set(names)
    assert list((place.parent / "tmp").glob("clustersplit-*")) == []


@pytest.mark.parametrize("number_and_code", [INTERRUPT, TERMINATE], ids=["interrupt", "terminate"])
@pytest.mark.parametrize(
    "what",
    [
        "waiting_for_a_worker",
        "waiting_for_a_program",
        "missing_a_program_that_is_killed",
        "in_one_long_call",
        "refusing_to_end",
    ],
)
def test_whatever_its_threads_do_a_process_ends_and_cleans_up(
    what: str, number_and_code: tuple[signal.Signals, int], folder: Path
) -> None:
    number, code = number_and_code
    (folder / "out").mkdir()
    (folder / "out" / "report.json").write_text('{"schema_version": 1}')
    program = BUSY.format(folder=folder, what=what)
    running = subprocess.Popen(heeding(sys.executable, "-c", program), stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    assert running.stderr.readline() == "at work\n"
    time.sleep(0.5)
    found, said = ended(running, number)
    assert found == code
    assert said.splitlines() == [
        "error: interrupted" if number == signal.SIGINT else "error: stopped by SIGTERM",
        "hint: no half-written output was left behind; the same command starts over",
    ]
    check_nothing_is_left(folder, "out")
    assert [entry.name for entry in (folder / "out").iterdir()] == ["report.json"]


def heeding(*words: str) -> list[str]:
    """A command that heeds interrupts, which a shell's background jobs ignore."""
    heed = "import os, signal, sys; signal.signal(2, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-c", heed, *words]


def write_rows(n: int, width: int) -> None:
    rng = np.random.default_rng(0)
    columns = {f"f{j}": rng.normal(size=n).astype(np.float32) for j in range(width)}
    pq.write_table(
        pa.table({**columns, "label": np.arange(n) % 3, "domain": np.arange(n) // 3 % 4}),
        "rows.parquet",
        row_group_size=5_000,
    )


LONG = ("--restarts", "300", "--max-iter", "10000")
COMMANDS = {
    "split": (5_000, 32, 2.0, ("split", *LONG)),
    "split, by CBC": (5_000, 8, 2.0, ("split", *LONG, "--solver", "cbc", "--certify", "never")),
    "split, linear": (100_000, 32, 1.5, ("split", *LONG, "--kernel", "linear")),
    "kfold": (8_000, 32, 2.5, ("kfold", *LONG)),
    "parts, by CBC": (2_000, 8, 2.0, ("split", *LONG, "--solver", "cbc", "--parts", "a=0.5,b=0.3,c=0.2")),
    "evaluate": (5_000, 16, 6.0, ("evaluate", "--search", "200", "--jobs", "2")),
    "stream": (100_000, 16, 2.0, ("split", *LONG, "--engine", "stream", "--nystrom", "300")),
    "dask": (100_000, 16, 6.0, ("split", *LONG, "--engine", "dask", "--nystrom", "300", "--threads", "2")),
}


@pytest.mark.parametrize("number_and_code", [INTERRUPT, TERMINATE], ids=["interrupt", "terminate"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_at_work_ends_within_two_seconds(
    name: str, number_and_code: tuple[signal.Signals, int], folder: Path
) -> None:
    number, code = number_and_code
    n, width, seconds, words = COMMANDS[name]
    if name == "dask":
        pytest.importorskip("distributed")
    if name == "evaluate":
        pytest.importorskip("sklearn")
    write_rows(n, width)
    command = (sys.executable, "-m", "clustersplit_cli", words[0], "rows.parquet", *words[1:], "--out", "out")
    running = subprocess.Popen(heeding(*command, "--quiet"), stderr=subprocess.PIPE, text=True)
    time.sleep(seconds)
    assert running.poll() is None, "it had ended before the signal"
    found, said = ended(running, number)
    assert found == code
    wrong, hint, *more = said.splitlines()
    assert more == []
    is_resumable = name == "evaluate"
    polite = number == signal.SIGINT or is_resumable
    assert wrong.startswith("error: interrupted" if polite else "error: stopped by SIGTERM")
    assert hint.startswith("hint: what is finished" if is_resumable else "hint: no half-written")
    check_nothing_is_left(folder, "rows.parquet", *(["out"] if is_resumable else []))


STARTING = """
import os, sys
class SignalOnImport:
    def find_spec(self, name, path, target=None):
        if name == "clustersplit_cli.cli.app":
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, SignalOnImport())
from clustersplit_cli.cli import main
main()
"""


@pytest.mark.parametrize(("sent", "code"), [INTERRUPT, TERMINATE], ids=["SIGINT", "SIGTERM"])
def test_a_signal_while_the_program_is_imported_ends_it_in_words(sent: signal.Signals, code: int) -> None:
    script = STARTING.format(number=int(sent))
    done = subprocess.run(
        [sys.executable, "-c", script, "--version"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    said = done.stderr.splitlines()
    assert [line.partition(":")[0] for line in said] == ["error", "hint"], done.stderr
    assert done.stdout == ""
