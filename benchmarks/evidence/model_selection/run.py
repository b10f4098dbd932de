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

from benchmarks.evidence.evaluate_probes import DATA, NAMES, PAGE, ROOT, estimate, replace_between

HERE = Path(__file__).resolve().parent
SOCKET = "build/heads.socket"
CELLS = {"dann": "joint", "coral": "label"}
PLACES = ("features", "train", "val", "test", "mixup", "params", "out", "seed")
PAPER = "| in the paper, % | | 0 | 28.2 | 55.2 | 46.9 | 10.4 | 100 |"


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
    command = f"python3 -S -E benchmarks/model_selection/ask.py {SOCKET} {asked}"
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


def section(algorithm: str, reports: dict[str, dict[str, Any]]) -> list[str]:
    """Gap closed and accuracy by dataset, beside the paper's numbers."""
    cells = CELLS[algorithm]
    columns = ["random:joint", "leave-one-domain-out", f"cluster-linear:{cells}", f"cluster-rbf:{cells}"]
    columns += ["mix-up", "oracle"]
    lines = [f"### {algorithm.upper()}, {cells} cells", ""]
    lines += [f"| dataset | repeats | {' | '.join(columns)} |", f"|{' --- |' * (len(columns) + 2)}"]
    for name, report in reports.items():
        repeats = len({run["repeat"] for run in report["runs"]})
        for protocol in report["protocols"]:
            scores = {score["strategy"]: score for score in protocol["strategies"]}
            what = "" if protocol["name"] == "train" else ", retrained"
            accuracy = [estimate(scores[column]["test"]) for column in columns]
            closed = [estimate(scores[column]["gap_closed"], 1, 0) for column in columns]
            lines.append(f"| {name}{what}, accuracy | {repeats} | {' | '.join(accuracy)} |")
            lines.append(f"| {name}{what}, gap closed, % | {repeats} | {' | '.join(closed)} |")
    lines += [PAPER, ""]
    for name, report in reports.items():
        failed = report["trials"]["n_failed"]
        lines.append(f"{name}: {report['trials']['n_trials']:,} trainings, {failed} failed.")
        for protocol in report["protocols"]:
            what = "" if protocol["name"] == "train" else " (retrained)"
            lines.append(f"{name}{what}: {'; '.join(protocol['verdict'])}.")
        lines.append("")
    return lines


def main() -> int:
    """Evaluate and print, or with --write put the tables into the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=ROOT / "build" / "model_selection")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=list(NAMES))
    parser.add_argument("--algorithms", nargs="*", default=list(CELLS), choices=list(CELLS))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    given.runs.mkdir(parents=True, exist_ok=True)
    lines = []
    for algorithm in given.algorithms:
        reports = {
            name: evaluate(algorithm, name, given.runs, given.repeats, given.jobs) for name in given.only
        }
        lines += section(algorithm, reports)
    if given.write:
        text = replace_between(PAGE.read_text("utf-8"), "heads", lines)
        PAGE.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    else:
        print("\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
