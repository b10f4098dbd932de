"""Runs killed at random moments never leave a partial or mixed result.

A few kills are enough for every day. All hundred: CLUSTERSPLIT_KILLS=100 pytest tests/cli/test_killed.py
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.data.publish import is_complete

KILLS = int(os.environ.get("CLUSTERSPLIT_KILLS", "12"))
AT_ONCE = 2
QUICK = ("--restarts", "2", "--effort", "fast", "--certify", "never", "--quiet")
FORMATS = ("--format", "npy", "--format", "txt", "--format", "parquet", "--id", "id")

Files = dict[str, bytes]


def words(seed: int, *arguments: str) -> list[str]:
    options = (*QUICK, *FORMATS, "--seed", str(seed), *arguments)
    return [sys.executable, "-m", "clustersplit_cli", "split", "feats.parquet", *options]


def index_files(directory: Path) -> Files:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "report.json"}


@pytest.fixture
def earlier_and_new(folder: Path, table: pa.Table) -> tuple[Path, Files, Files]:
    """A complete earlier result, its index files, and those the killed runs would write."""
    results = []
    for seed, name in ((1, "earlier"), (2, "new")):
        subprocess.run(words(seed, "--h", f"0.{seed}", "--out", name), check=True, timeout=60)
        results.append(index_files(folder / name))
    return folder / "earlier", results[0], results[1]


def is_staging(home: Path) -> bool:
    return any(home.glob(".clustersplit-*"))


@dataclass(frozen=True)
class Typical:
    """Seconds that a run takes in all, and for how many of them it has a staging area."""

    whole: float
    staging: float


def time_a_run(home: Path) -> Typical:
    started = time.monotonic()
    running = subprocess.Popen(words(2, "--h", "0.2", "--out", "timed"), cwd=home)
    staged: list[float] = []
    while running.poll() is None:
        if is_staging(home):
            staged.append(time.monotonic())
        time.sleep(0.0002)
    assert running.returncode == 0
    return Typical(time.monotonic() - started, staged[-1] - staged[0] if staged else 0.0)


def kill_a_run(home: Path, moment: random.Random, typical: Typical, *, force: bool) -> str:
    """Start a run in `home` and kill it; most of the times while its staging area exists."""
    words_of_run = words(2, "--h", "0.2", "--out", "out", *(("--force",) if force else ()))
    running = subprocess.Popen(words_of_run, cwd=home, stderr=subprocess.DEVNULL)
    if moment.random() < 0.3:
        time.sleep(moment.uniform(0, 1.2 * typical.whole))
    else:
        while running.poll() is None and not is_staging(home):
            time.sleep(0.0002)
        time.sleep(moment.uniform(0, 1.2 * typical.staging))
    running.kill()
    running.wait()
    return "ended before" if running.returncode == 0 else "killed"


@pytest.mark.parametrize("force", [False, True], ids=["fresh", "over an earlier result"])
def test_a_kill_at_any_moment_leaves_the_old_or_the_new_result_whole(
    force: bool, earlier_and_new: tuple[Path, Files, Files], folder: Path
) -> None:
    earlier, old, new = earlier_and_new
    typical = time_a_run(folder)

    def one(number: int) -> Counter[str]:
        home = folder / f"home {number}"
        home.mkdir()
        (home / "feats.parquet").symlink_to(folder / "feats.parquet")
        if force:
            shutil.copytree(earlier, home / "out")
        seen = Counter([kill_a_run(home, random.Random(number), typical, force=force)])
        seen.update(look_at(home))
        if "leftovers" in seen and number % 2 == 0:
            recover(home)
        return seen

    def look_at(home: Path) -> list[str]:
        """Say what is at the destination, which must be nothing or a whole result."""
        out, areas = home / "out", list(home.glob(".clustersplit-*"))
        leftovers = ["leftovers"] if areas else []
        if not out.exists():
            if force:  # between the two renames: the earlier result is whole, aside
                (kept,) = [area / "old" for area in areas if (area / "old").exists()]
                assert is_complete(kept)
                assert index_files(kept) == old
            return ["nothing", *leftovers]
        assert is_complete(out)
        found = index_files(out)
        assert found in ((old, new) if force else (new,))
        sizes = json.loads((out / "report.json").read_text())["sizes"]
        assert sizes["val"] == len(found["val.txt"].splitlines())
        return ["old" if found == old else "new", *leftovers]

    def recover(home: Path) -> None:
        """The next run ends well and leaves nothing hidden."""
        subprocess.run(
            words(2, "--h", "0.2", "--out", "out", "--force"),
            cwd=home,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=60,
        )
        assert index_files(home / "out") == new
        assert {path.name for path in home.iterdir()} == {"feats.parquet", "out"}

    with ThreadPoolExecutor(AT_ONCE) as pool:
        seen: Counter[str] = sum(pool.map(one, range(KILLS // 2)), Counter())
    # Where writing takes a few milliseconds, some more kills may be needed for one that hits it.
    for number in range(KILLS // 2, 3 * KILLS):
        if seen["leftovers"]:
            break
        seen += one(number)
    assert seen["killed"] > KILLS // 8
    assert seen["leftovers"] > 0  # else no kill hit the writing, and the test shows nothing


def test_annotations_survive_kills_whole_too(folder: Path, table: pa.Table) -> None:
    def one(number: int) -> None:
        home = folder / f"home {number}"
        home.mkdir()
        pq.write_table(table, home / "feats.parquet")
        moment = random.Random(number)
        running = subprocess.Popen(
            words(2, "--out", "out", "--annotate", "annotated.parquet"), cwd=home, stderr=subprocess.DEVNULL
        )
        while running.poll() is None and not is_staging(home):
            time.sleep(0.0005)
        time.sleep(moment.uniform(0, 0.04))
        running.kill()
        running.wait()
        if (home / "annotated.parquet").exists():
            assert pq.read_table(home / "annotated.parquet").num_rows == len(table)
        if (home / "out").exists():
            assert is_complete(home / "out")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, range(max(KILLS // 6, 2))))
