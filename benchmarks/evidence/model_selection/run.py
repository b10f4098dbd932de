"""The paper's experiment on frozen features: DANN and CORAL heads chosen through `evaluate --command`.

    python -m benchmarks.evidence.model_selection.run [--runs DIR] [--repeats 3] [--jobs N] [--write]
        [--only NAME...]

DANN: joint cells, h = 0.2, half of E without labels for adaptation. CORAL: label-only cells. Ten settings as
DomainBed draws them, seed 0. Every finished training is kept in DIR (default build/model_selection): an
interrupted run goes on where it ended, and more repeats add to those there are. Needs clustersplit[bench].
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.evidence.evaluate_probes import DATA, NAMES, ROOT
from benchmarks.evidence.frozen import keep, record_of, table

HERE = Path(__file__).resolve().parent
SOCKET = "build/heads.socket"
CELLS = {"dann": "joint", "coral": "label"}
PLACES = ("features", "train", "val", "test", "mixup", "params", "out", "seed")


@contextmanager
def serving(features: Path) -> Iterator[None]:
    """A server of trainings for one dataset, ended with the block."""
    path = ROOT / SOCKET
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    words = [sys.executable, "-m", "benchmarks.evidence.model_selection.serve", SOCKET, str(features)]
    process = subprocess.Popen(words, cwd=ROOT)
    try:
        while not path.exists():
            if process.poll() is not None:
                raise RuntimeError(f"the server ended with {process.returncode}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()
        path.unlink(missing_ok=True)


def evaluate(algorithm: str, name: str, runs: Path, repeats: int, jobs: int) -> dict[str, Any]:
    """Run `clustersplit evaluate --command`, or read what an earlier run has; return its report."""
    features, cells = DATA / f"{name}.parquet", CELLS[algorithm]
    places = [*PLACES, *(["adapt"] if algorithm == "dann" else [])]
    asked = " ".join(f"--{place} {{{place}}}" for place in places)
    strategies = f"random:{cells},leave-one-domain-out,cluster-linear:{cells},cluster-rbf:{cells},mix-up"
    out = runs / f"{algorithm}-{name}"
    # The same words wherever the project lies: they are part of what is resumed.
    command = f"python3 -S -E benchmarks/evidence/model_selection/ask.py {SOCKET} {asked}"
    with serving(features):
        words = ["evaluate", str(features), "--space", str(HERE / f"{algorithm}.toml"), "--command", command]
        words += ["--strategy", strategies, "--search", "10", "--repeats", str(repeats), "--refit"]
        words += ["--h", "0.2", "--standardize", "zscore", "--seed", "0", "--jobs", str(jobs)]
        words += ["--timeout", "900", "--resume", "--out", str(out), "--json", "--quiet"]
        done = subprocess.run(
            [sys.executable, "-m", "clustersplit_cli", *words], stdout=subprocess.PIPE, check=True, cwd=ROOT
        )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def main() -> int:
    """Evaluate and print, or with --write keep the numbers among the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=ROOT / "build" / "model_selection")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=list(NAMES))
    parser.add_argument("--algorithms", nargs="*", default=list(CELLS), choices=list(CELLS))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    given.runs.mkdir(parents=True, exist_ok=True)
    records = []
    for algorithm in given.algorithms:
        for name in given.only:
            report = evaluate(algorithm, name, given.runs, given.repeats, given.jobs)
            records.append(record_of(algorithm, name, report))
            print("\n".join(table(records[-1])))
    if given.write:
        keep(records)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
