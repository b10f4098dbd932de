"""Processes killed, interrupted and racing while they publish.

Run as a script, this file is a server: it reads one JSON task per line from stdin, forks a child for it and
prints the child's pid. Forking from a process that has everything imported lets a test kill a hundred
publishers in a few seconds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow.compute
import pyarrow.parquet  # noqa: F401 - imported here so that a forked child need not
import pytest

from clustersplit_cli.data.publish import recover
from clustersplit_cli.data.writers import write_run
from clustersplit_cli.errors import OutputError

FILES = {"train.npy", "train.txt", "val.npy", "val.txt", "report.json"}
SIZE = 2_000
FILE_OPERATIONS = {
    "open",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.remove",
    "os.link",
    "os.scandir",
    "os.listdir",
}


def _publish(destination: Path, number: int, *, force: bool) -> None:
    """Publish a run every byte of which follows from its number."""
    write_run(
        destination,
        parts={"train": np.arange(number, number + SIZE), "val": np.arange(number + SIZE, number + 2 * SIZE)},
        report=json.dumps({"schema_version": 1, "run": number}),
        formats=["npy", "txt"],
        force=force,
    )


def _number_of(directory: Path) -> int:
    """Return the number of the run in `directory`, having checked that it is whole and unmixed."""
    assert {entry.name for entry in directory.iterdir()} == FILES
    number = int(json.loads((directory / "report.json").read_text())["run"])
    for part, start in (("train", number), ("val", number + SIZE)):
        expected = np.arange(start, start + SIZE)
        np.testing.assert_array_equal(np.load(directory / f"{part}.npy", allow_pickle=False), expected)
        np.testing.assert_array_equal(np.loadtxt(directory / f"{part}.txt", dtype=np.int64), expected)
    return number


def _leftovers(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir() if entry.name.startswith("."))


def _seconds_to_publish(directory: Path) -> float:
    start = time.perf_counter()
    for number in range(5):
        _publish(directory / "rehearsal", number, force=True)
    return (time.perf_counter() - start) / 5


class _Publishers:
    """A fork server; each task is one publishing process."""

    def __enter__(self) -> _Publishers:
        self._living: set[int] = set()
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for pid in self._living:
            os.kill(pid, signal.SIGKILL)
        self._server.communicate()

    def start(self, **task: Any) -> int:
        pid = self._ask(task)
        self._living.add(pid)
        return pid

    def wait(self, pid: int) -> int:
        """Return the exit code, negative for a signal."""
        code = self._ask({"wait": pid})
        self._living.remove(pid)
        return code

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        assert self.wait(pid) == -signal.SIGKILL

    def _ask(self, task: dict[str, Any]) -> int:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(task, default=str) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())


def _disturb(after: int, action: str) -> None:
    """Die, or be interrupted as by Ctrl-C, just before file operation number `after`."""
    steps = count()

    def hook(event: str, _: tuple[Any, ...]) -> None:
        if event in FILE_OPERATIONS and next(steps) == after:
            if action == "interrupt":
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _work(task: dict[str, Any]) -> int:
    destination = Path(task["destination"])
    if "disturb" in task:
        _disturb(task["after"], task["disturb"])
    try:
        if task.get("forever") == "same":
            for number in count(task["number"]):
                recover(destination)
                _publish(destination, number, force=True)
        elif task.get("forever") == "fresh":
            for number in count(task["number"]):
                _publish(destination.with_name(f"{destination.name}-{number}"), number, force=False)
        else:
            for number in range(task["number"], task["number"] + task.get("times", 1)):
                _publish(destination, number, force=task["force"])
    except KeyboardInterrupt:
        return 130
    except OutputError as error:
        return 2 if error.hint else 70
    return 0


def _serve() -> None:
    with tempfile.TemporaryDirectory() as warm_up:
        _publish(Path(warm_up, "run"), 0, force=False)
    for line in sys.stdin:
        task = json.loads(line)
        if "wait" in task:
            _, status = os.waitpid(task["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                os._exit(_work(task))
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


@pytest.fixture(scope="module")
def publishers() -> Iterator[_Publishers]:
    with _Publishers() as server:
        yield server


def test_random_kills_while_replacing_an_earlier_run_leave_a_whole_one(
    publishers: _Publishers, tmp_path: Path
) -> None:
    destination = tmp_path / "run"
    _publish(destination, 0, force=False)
    delays, killed_at_work, last = random.Random(1), 0, 0
    longest = 3 * _seconds_to_publish(tmp_path)
    for _ in range(40):
        pid = publishers.start(destination=destination, number=last + 1, forever="same")
        time.sleep(delays.uniform(0.0, longest))
        publishers.kill(pid)
        if destination.exists():
            _number_of(destination)
        else:  # moved aside, and whole there
            assert [_number_of(aside) for aside in tmp_path.glob(".*/old")]
        killed_at_work += bool(_leftovers(tmp_path))
        recover(destination)
        assert _leftovers(tmp_path) == []
        assert _number_of(destination) >= last
        last = _number_of(destination)
    assert killed_at_work > 5
    assert last > 0


def test_random_kills_while_publishing_to_fresh_places_leave_whole_runs_only(
    publishers: _Publishers, tmp_path: Path
) -> None:
    delays, killed_at_work, number = random.Random(2), 0, 0
    longest = 3 * _seconds_to_publish(tmp_path)
    for _ in range(40):
        pid = publishers.start(destination=tmp_path / "run", number=number, forever="fresh")
        time.sleep(delays.uniform(0.0, longest))
        publishers.kill(pid)
        killed_at_work += bool(_leftovers(tmp_path))
        while (published := tmp_path / f"run-{number}").exists():
            assert _number_of(published) == number
            number += 1
            recover(published)  # killed after the rename, before the staging area was gone
        recover(published)
        assert _leftovers(tmp_path) == []
    assert killed_at_work > 5
    assert number > 0


@pytest.mark.parametrize("force", [True, False])
def test_a_kill_before_any_file_operation_leaves_the_old_run_or_the_new(
    publishers: _Publishers, tmp_path: Path, force: bool
) -> None:
    ends, moved_aside = set(), 0
    for after in range(1_000):
        (tmp_path / str(after)).mkdir()
        destination = tmp_path / str(after) / "run"
        if force:
            _publish(destination, 1, force=False)
        task = {"destination": destination, "number": 2, "force": force, "disturb": "kill", "after": after}
        code = publishers.wait(publishers.start(**task))
        if code == 0:
            break
        assert code == -signal.SIGKILL
        if force and not destination.exists():
            moved_aside += 1
            assert [_number_of(aside) for aside in destination.parent.glob(".*/old")] == [1]
        had_leftovers = bool(_leftovers(destination.parent))
        lines = recover(destination)
        assert bool(lines) <= had_leftovers
        assert _leftovers(destination.parent) == []
        ends.add(_number_of(destination) if destination.exists() else None)
    assert after > 20
    assert ends == ({1, 2} if force else {None, 2})
    assert bool(moved_aside) == force


def test_an_interrupt_before_any_file_operation_leaves_the_destination_whole(
    publishers: _Publishers, tmp_path: Path
) -> None:
    ends = []
    for after in range(1_000):
        destination = tmp_path / str(after) / "run"
        destination.parent.mkdir()
        _publish(destination, 1, force=False)
        task = {
            "destination": destination,
            "number": 2,
            "force": True,
            "disturb": "interrupt",
            "after": after,
        }
        code = publishers.wait(publishers.start(**task))
        ends.append(_number_of(destination))
        if code == 0:
            break
        assert code == 130
        assert _leftovers(destination.parent) == []
    assert after > 20
    assert ends == sorted(ends)
    assert set(ends) == {1, 2}


def test_of_many_runs_without_force_one_wins_and_the_others_say_so(
    publishers: _Publishers, tmp_path: Path
) -> None:
    for attempt in range(5):
        destination = tmp_path / f"run-{attempt}"
        pids = [publishers.start(destination=destination, number=n, force=False) for n in range(6)]
        codes = [publishers.wait(pid) for pid in pids]
        assert sorted(codes) == [0, 2, 2, 2, 2, 2]
        assert _number_of(destination) == codes.index(0)
    assert _leftovers(tmp_path) == []


def test_of_many_runs_with_force_each_replaces_the_others_whole(
    publishers: _Publishers, tmp_path: Path
) -> None:
    destination = tmp_path / "run"
    task = {"destination": destination, "force": True, "times": 40}
    pids = [publishers.start(number=1_000 * k, **task) for k in range(4)]
    assert [publishers.wait(pid) for pid in pids] == [0] * 4
    assert _number_of(destination) % 1_000 == 39
    assert _leftovers(tmp_path) == []


def test_kills_among_racing_runs_leave_a_whole_one_and_the_living_unharmed(
    publishers: _Publishers, tmp_path: Path
) -> None:
    destination = tmp_path / "run"
    _publish(destination, 0, force=False)
    delays, longest = random.Random(3), 3 * _seconds_to_publish(tmp_path)
    racing = [publishers.start(destination=destination, number=k * 10_000, forever="same") for k in range(3)]
    for k in range(30):
        time.sleep(delays.uniform(0.0, longest))
        publishers.kill(racing.pop(0))
        racing.append(publishers.start(destination=destination, number=k * 100_000, forever="same"))
    for pid in racing:
        publishers.kill(pid)
    recover(destination)
    _number_of(destination)
    assert _leftovers(tmp_path) == []


if __name__ == "__main__":
    _serve()
