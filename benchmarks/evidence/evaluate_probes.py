"""Do cluster splits choose better probes on the three shared datasets? Prints tables, or keeps their numbers.

    python -m benchmarks.evidence.evaluate_probes [--runs DIR] [--repeats 3] [--jobs N] [--write]

Trials are kept in DIR (default build/evaluation), so that an interrupted run goes on where it ended, and more
repeats add to those there are. Seed 0: the same seed gives the same tables.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.evidence.frozen import keep, record_of, table

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
NAMES = ("gas_drift", "fsdd_logmel800", "pacs_effnetlite0")
OPTIONS = (
    *("--probe", "mixed", "--search", "20", "--seed", "0", "--refit"),
    *("--standardize", "zscore", "--restarts", "4"),
    *("--strategy", "random,leave-one-domain-out,cluster-linear,cluster-rbf,mix-up"),
    *("--strategy", "kfold-random:joint,kfold-cluster-rbf:joint"),
)


def evaluate(name: str, runs: Path, select: str, repeats: int, jobs: int) -> dict[str, Any]:
    """Run `clustersplit evaluate`, or read what an earlier run has; return its report."""
    words = ["evaluate", str(DATA / f"{name}.parquet"), *OPTIONS, "--repeats", str(repeats)]
    words += [
        "--select",
        select,
        "--jobs",
        str(jobs),
        "--resume",
        "--out",
        str(runs / name),
        "--json",
        "--quiet",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "clustersplit_cli", *words], stdout=subprocess.PIPE, check=True, cwd=ROOT
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def main() -> int:
    """Evaluate and print, or with --write keep the numbers among the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=ROOT / "build" / "evaluation")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=list(NAMES))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    given.runs.mkdir(parents=True, exist_ok=True)
    records = []
    for name in given.only:
        mean, worst = (
            evaluate(name, given.runs, select, given.repeats, given.jobs) for select in ("mean", "worst")
        )
        records.append(record_of("probes", name, mean, worst))
        print("\n".join(table(records[-1])))
    if given.write:
        keep(records)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
