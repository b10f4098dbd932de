"""Two versions of this tool on the same commands, in turn: processor time, elapsed time and peak memory.

`python -m benchmarks.speed.two_trees BEFORE AFTER`, each a checkout of the repository.
"""

from __future__ import annotations

import argparse
import compileall
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import harness

WIDTH, LABELS, DOMAINS = 64, 4, 3


@dataclass(frozen=True)
class Case:
    """A command on generated rows, and how often it is run."""

    command: str
    rows: int
    options: str = ""
    repeats: int = 5


CASES = {
    "--help": Case("--help", 0, repeats=15),
    "split --help": Case("split --help", 0, repeats=15),
    "split of 200 rows": Case("split", 200, repeats=15),
    "split of 10,000 rows": Case("split", 10_000),
    "split of 10,000 rows, 500 landmarks": Case("split", 10_000, "--nystrom 500"),
    "split of 100,000 rows, 500 landmarks": Case("split", 100_000, "--nystrom 500", repeats=3),
    "five folds of 2,000 rows": Case("kfold", 2_000, "--k 5"),
}


@dataclass(frozen=True)
class Cost:
    """What one run took, children included."""

    processor: float
    elapsed: float
    peak: float


def measured(tree: Path, words: list[str]) -> Cost:
    """Run the command of a tree; seconds, seconds and bytes."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        out = [] if "--help" in words else ["--quiet", "--out", f"{folder}/run"]
        start = time.perf_counter()
        running = subprocess.Popen(
            [sys.executable, "-m", "clustersplit_cli", *words, *out],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(tree.resolve())},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(running.pid, 0)
        elapsed = time.perf_counter() - start
        running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode:
        raise SystemExit(f"{tree}: {' '.join(words)} failed with exit code {running.returncode}")
    return Cost(used.ru_utime + used.ru_stime, elapsed, 1024.0 * used.ru_maxrss)


def compared(name: str, case: Case, trees: list[Path], folder: Path) -> str:
    """A row of the table: medians of both trees, and their ratio."""
    words = case.command.split()
    if case.rows:
        generated = harness.write_generated(folder, case.rows, WIDTH, LABELS, DOMAINS, f"rows_{case.rows}")
        words = [*words, *generated, *case.options.split()]
    tasks: list[Callable[[], Cost]] = [partial(measured, tree, words) for tree in trees]
    before, after = harness.side_by_side(case.repeats, *tasks)
    cells = []
    for part, unit, scale in (("processor", "s", 1.0), ("elapsed", "s", 1.0), ("peak", "MiB", 2.0**-20)):
        one, other = (harness.median([getattr(cost, part) for cost in costs]) for costs in (before, after))
        digits = 0 if unit == "MiB" else 2
        cells.append(
            f"{scale * one:.{digits}f} {unit}, {scale * other:.{digits}f} {unit} ({other / one:.2f})"
        )
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--only", action="append", choices=list(CASES), help="of the cases")
    given = parser.parse_args()
    trees = [given.before, given.after]
    for tree in trees:
        compileall.compile_dir(tree / "clustersplit_cli", quiet=1)
    print(f"{harness.machine()}; medians before and after (ratio)\n")
    print("| | processor time | elapsed | peak memory |")
    print("| --- | --- | --- | --- |")
    with harness.workspace() as folder:
        for name in given.only or CASES:
            print(compared(name, CASES[name], trees, folder), flush=True)


if __name__ == "__main__":
    main()
