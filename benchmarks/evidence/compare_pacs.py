"""Is the cluster split the one with the highest MMD, on every seed, among those that meet the constraints?

Runs `clustersplit compare` on pacs_effnetlite0 and prints its table as Markdown, what beats what on every
seed, and where leaving one domain out lies.

    python benchmarks/evidence/compare_pacs.py [FILE] [--repeats 5]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PACS = Path(__file__).resolve().parents[3] / "shared" / "data" / "pacs_effnetlite0.parquet"
OURS = "cluster-rbf"


def figure(found: dict[str, Any] | None, digits: int) -> str:
    """Mean and standard deviation."""
    if found is None:
        return ""
    spread = "" if found["sd"] is None else f" ± {found['sd']:.2g}"
    return f"{found['mean']:.{digits}f}{spread}"


def main() -> int:
    """Compare and print; 1 if another strategy is higher."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=PACS)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    command = ["compare", str(given.file), "--repeats", str(given.repeats), "--json", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "clustersplit_cli", *command], stdout=subprocess.PIPE, check=True
    )
    found = json.loads(done.stdout)

    print(f"{found['n_rows']} rows, {found['kernel']} kernel, h = {found['holdout']}\n")
    print("| strategy | runs | MMD | Psi | cells met | seconds |\n| --- | --- | --- | --- | --- | --- |")
    for line in found["strategies"]:
        met = line["constraints_met"]
        print(
            f"| {line['strategy']} | {line['n_runs']} | {figure(line['mmd'], 4)} | {figure(line['psi'], 1)} "
            f"| {'' if met is None else format(met['mean'], '.0%')} | {line['seconds']['mean']:.2f} |"
        )

    meeting = [run for run in found["runs"] if run["constraints_met"] == 1.0]
    ours = {run["seed"]: run["mmd"] for run in meeting if run["strategy"] == OURS}
    above = [run for run in meeting if run["mmd"] > ours[run["seed"]] * (1 + 1e-9)]
    equal = [
        f"{run['strategy']} (seed {run['seed']})"
        for run in meeting
        if run["strategy"] != OURS and abs(run["mmd"] / ours[run["seed"]] - 1) <= 1e-9
    ]
    print(
        f"\n{OURS} is highest on every seed among {len(meeting)} runs that meet all constraints: {not above}"
    )
    print(f"as high as {OURS}: {', '.join(equal) or 'none'}")
    means = {line["strategy"]: line["mmd"]["mean"] for line in found["strategies"]}
    if "leave-one-domain-out" in means:
        where = "above" if means["leave-one-domain-out"] > means["random"] else "below"
        print(f"leave-one-domain-out lies {where} random")
        for run in found["runs"]:
            if run["left_out"] is not None:
                print(f"  {run['left_out']} left out: MMD {run['mmd']:.4f}")
    return int(bool(above))


if __name__ == "__main__":
    raise SystemExit(main())
