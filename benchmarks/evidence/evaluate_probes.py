"""Do cluster splits choose better probes on the three shared datasets? Makes tables of docs/evaluation.md.

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

from clustersplit_cli.reports.evaluation.terminal import probability

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
PAGE = ROOT / "docs" / "evaluation.md"
NAMES = ("gas_drift", "fsdd_logmel800", "pacs_effnetlite0")
OPTIONS = (
    *("--probe", "mixed", "--search", "20", "--seed", "0", "--refit"),
    *("--standardize", "zscore", "--restarts", "4"),
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


def estimate(found: dict[str, Any] | None, factor: float = 100, digits: int = 1, sign: str = "") -> str:
    """A mean and its standard error."""
    if found is None:
        return ""
    mean = f"{round(factor * found['mean'], digits) + 0.0:{sign}.{digits}f}"
    return mean if found["se"] is None else f"{mean} ± {factor * found['se']:.{digits}f}"


def correlation(found: dict[str, Any]) -> str:
    """Spearman's rho with its p-value."""
    value = probability(found["p_value"])
    return f"rho {found['rho']:+.2f} (p {value.replace('<', '< ') if value[0] == '<' else f'= {value}'})"


def section(name: str, mean: dict[str, Any], worst: dict[str, Any]) -> list[str]:
    """The tables of one dataset."""
    repeats = len({run["repeat"] for run in mean["runs"]})
    lines = [
        f"### {name}",
        "",
        f"{mean['trials']['n_trials']:,} trainings: {len(mean['input']['domains'])} evaluation domains × "
        f"{repeats} {'repeats' if repeats > 1 else 'repeat'} × {mean['config']['search']} settings "
        f"× all training sets, {mean['trials']['n_failed']} failed.",
        "",
        "| strategy | on T | gain | gap closed, % | retrained | gain | gap closed, % | gain, by worst |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    by_worst = {score["strategy"]: score for score in worst["protocols"][0]["strategies"]}
    again = {score["strategy"]: score for score in mean["protocols"][1]["strategies"]}
    for score in mean["protocols"][0]["strategies"]:
        refit = again[score["strategy"]]
        cells = [
            score["strategy"],
            estimate(score["test"]),
            estimate(score["gain"], sign="+"),
            estimate(score["gap_closed"], 1, 0),
            estimate(refit["test"]),
            estimate(refit["gain"], sign="+"),
            estimate(refit["gap_closed"], 1, 0),
            estimate(by_worst[score["strategy"]]["gain"], sign="+"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "| strategy | oracle on its T | to random's T | rank correlation | MMD(T,V) |",
        "| --- | --- | --- | --- | --- |",
    ]
    for score in mean["training_sets"]:
        cells = [
            score["strategy"],
            estimate(score["oracle"]),
            estimate(score["difference"], sign="+"),
            estimate(score["rank_correlation"], 1, 2),
            estimate(score["mmd"], 1, 3),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    found = mean["discrepancy"]
    lines += [
        "",
        f"MMD(T,V) and test accuracy: {correlation(found['strategies'])} over {found['strategies']['n']} "
        f"strategies, {correlation(found['runs'])} over {found['runs']['n']} runs less their round's mean.",
        "",
    ]
    for protocol in mean["protocols"]:
        lead = "Verdict" if protocol["name"] == "train" else "Verdict, retrained"
        lines += [f"{lead}: {'; '.join(protocol['verdict'])}.", ""]
    return lines


def replace_between(page: str, mark: str, lines: list[str]) -> str:
    """Put lines between the two comments of a mark."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return before + begin + "\n\n" + "\n".join(lines) + "\n" + end + after


def main() -> int:
    """Evaluate and print, or with --write put the tables into the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=ROOT / "build" / "evaluation")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=list(NAMES))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    given.runs.mkdir(parents=True, exist_ok=True)
    lines = []
    for name in given.only:
        mean, worst = (
            evaluate(name, given.runs, select, given.repeats, given.jobs) for select in ("mean", "worst")
        )
        lines += section(name, mean, worst)
    if given.write:
        text = replace_between(PAGE.read_text("utf-8"), "probes", lines)
        PAGE.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    else:
        print("\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
