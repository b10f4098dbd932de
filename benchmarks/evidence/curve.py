"""How far off are estimates of the accuracy on an unseen domain? Makes a table of docs/evaluation.md.

    python -m benchmarks.evidence.curve [--runs DIR] [--jobs N] [--only NAME ...] [--write]

`clustersplit evaluate --curve` on the seven shared datasets, every domain left out in turn. Trials are kept
in DIR (default build/curve), so that an interrupted run goes on where it ended. What it found is kept in
curve.json beside this file, dataset by dataset; --write puts the table into the page from there alone.
Seed 0: the same seed gives the same table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from math import ceil
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pyarrow.parquet as pq

from benchmarks.evidence.frozen import estimate
from benchmarks.evidence.page import put

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
PAGE = ROOT / "docs" / "evaluation.md"
KEPT = Path(__file__).with_name("curve.json")
NAMES = {
    "heart_hospitals": "heart",
    "mnist_usps": "MNIST and USPS",
    "fsdd_logmel800": "speech",
    "gas_drift": "gas",
    "pacs_effnetlite0": "PACS",
    "amazon_reviews_svd128": "reviews",
    "elec2": "electricity",
}
STRATEGIES = "random:joint,cluster-rbf:joint,leave-one-domain-out,weighted,target-lookalike,target-nearest"
OPTIONS = (
    *("--probe", "mixed", "--search", "12", "--seed", "0", "--refit", "--curve"),
    *("--standardize", "zscore", "--restarts", "4", "--strategy", STRATEGIES),
)
ROWS = {
    "random:joint": "random validation set",
    "cluster-rbf:joint": "cluster split",
    "leave-one-domain-out": "leave one domain out",
    "weighted": "random, weighted by kernel mean matching",
    "target-lookalike": "rows that look like E",
    "target-nearest": "rows distributed like E",
    "curve": "accuracy over graded splits, read at MMD(S,E)",
}
ABOUT = (
    "What `python -m benchmarks.evidence.curve` found, by dataset. `curve` is that of report.json of "
    "`clustersplit evaluate --curve`: for every domain that was left out (E) the accuracy over graded "
    "splits, what it says of E and what was found there; `estimators` are the mean error and mean "
    "absolute error of every estimate. `protocols` are the tables of gains over random:joint, and "
    "`runs` one line per domain, repeat and strategy: validation_mean is the validation accuracy of the "
    "chosen setting, test its accuracy on E, refit that after retraining on all development rows, "
    "oracle the best of all settings on E with the same training rows. Class-balanced accuracies "
    "between 0 and 1."
)
OF_RUNS = ("domain", "repeat", "strategy", "mmd", "validation_mean", "test", "refit", "oracle")


MOST_ROWS = 7000
"""Of larger datasets, every second, third ... row is taken: probes train on a thousand."""


def thinned(name: str, runs: Path) -> tuple[Path, int]:
    """A dataset of at most so many rows, and which part of its rows that is."""
    source = DATA / f"{name}.parquet"
    step = ceil(pq.read_metadata(source).num_rows / MOST_ROWS)
    if step == 1:
        return source, step
    path = runs / f"{name}.parquet"
    table = pq.read_table(source)
    pq.write_table(table.take(list(range(0, table.num_rows, step))), path)
    return path, step


def evaluate(name: str, runs: Path, repeats: int, jobs: int) -> dict[str, Any]:
    """Run `clustersplit evaluate`, or go on with an earlier run; return what is kept of its report."""
    path, step = thinned(name, runs)
    words = ["evaluate", str(path), *OPTIONS, "--repeats", str(repeats), "--jobs", str(jobs)]
    words += ["--resume", "--out", str(runs / name), "--json", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "clustersplit_cli", *words], stdout=subprocess.PIPE, check=True, cwd=ROOT
    )
    report = json.loads(done.stdout)
    return {
        "options": [*OPTIONS, "--repeats", str(repeats)],
        "every_row": step,
        "n_rows": report["input"]["n_rows"],
        "domains": report["input"]["domains"],
        "trials": report["trials"]["n_trials"],
        "failed": report["trials"]["n_failed"],
        "curve": rounded(report["curve"]),
        "protocols": rounded(report["protocols"]),
        "runs": [rounded({key: run[key] for key in OF_RUNS}) for run in report["runs"]],
    }


def rounded(value: Any) -> Any:
    """Numbers with six digits, which is more than they mean and keeps the file small."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def keep(found: dict[str, Any]) -> None:
    """Write what was found: one line for every run, so that changes can be read."""
    datasets = []
    for name, kept in found.items():
        content = ",\n".join(f"  {json.dumps(key)}: {in_lines(value)}" for key, value in kept.items())
        datasets.append(f" {json.dumps(name)}: {{\n{content}\n }}")
    text = f'{{"about": {json.dumps(ABOUT)},\n"datasets": {{\n' + ",\n".join(datasets) + "\n}}\n"
    KEPT.write_text(text, encoding="utf-8")


def in_lines(value: Any) -> str:
    """JSON with one line for every entry of a list of objects."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n   " + ",\n   ".join(json.dumps(each) for each in value) + "\n  ]"
    return json.dumps(value)


def pair(found: dict[str, float | None] | None, sign: str = "") -> str:
    """A mean and its standard error in points."""
    values = [] if found is None else [found["mean"], found["se"]]
    return estimate([None if value is None else round(100 * value, 1) + 0.0 for value in values], sign=sign)


def table(found: dict[str, Any]) -> list[str]:
    """One row for every estimate, one column for every dataset, and their means."""
    names = [name for name in NAMES if name in found]
    lines = [
        f"| | {' | '.join(NAMES[name] for name in names)} | mean of absolute values | mean absolute error |",
        f"| --- |{' --- |' * (len(names) + 2)}",
    ]
    for key, said in ROWS.items():
        own = {
            name: next((each for each in found[name]["curve"]["estimators"] if each["name"] == key), None)
            for name in names
        }
        cells = [pair(each and each["bias"], "+") for each in own.values()]
        known = [each for each in own.values() if each is not None]
        for what in ("bias", "absolute"):
            values = [abs(each[what]["mean"]) for each in known]
            se = stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
            cells.append(pair({"mean": fmean(values), "se": se}, ""))
        lines.append(f"| {said} | {' | '.join(cells)} |")
    return lines


def coverage(found: dict[str, Any]) -> str:
    """How often the accuracy that was found lies within what the curve states."""
    names = [name for name in NAMES if name in found]
    parts = {name: found[name]["every_row"] for name in names if found[name]["every_row"] > 1}
    thinner = [f"one row in {step} of {NAMES[name]}" for name, step in parts.items()]
    curves = [each for dataset in found.values() for each in dataset["curve"]["domains"]]
    off = [abs(each["expected"] - each["observed"]) / each["error"] for each in curves]
    within = [sum(value <= errors for value in off) for errors in (1, 2)]
    beyond = sum(each["severity"] is not None and each["severity"] > 1 for each in curves)
    return (
        f"Of {len(curves)} domains, {within[0]} have the accuracy that the curve gives within one stated "
        f"error and {within[1]} within two; {beyond} lie beyond the hardest split. "
        f"Repeats: {', '.join(f'{NAMES[name]} {repeats(found[name])}' for name in names)}. "
        f"{'Taken were ' if thinner else ''}{', '.join(thinner)}{'. ' if thinner else ''}"
        f"{sum(dataset['trials'] for dataset in found.values()):,} trainings, "
        f"{sum(dataset['failed'] for dataset in found.values())} failed."
    )


def repeats(found: dict[str, Any]) -> int:
    """How often every domain of a dataset was left out."""
    return len({run["repeat"] for run in found["runs"]})


def main() -> int:
    """Evaluate what is asked for, keep it, and print the table or put it into the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=ROOT / "build" / "curve")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=list(NAMES), choices=list(NAMES))
    parser.add_argument("--write", action="store_true", help="only put what is kept into the page")
    given = parser.parse_args()
    found = json.loads(KEPT.read_text("utf-8"))["datasets"] if KEPT.exists() else {}
    given.runs.mkdir(parents=True, exist_ok=True)
    for name in () if given.write else given.only:
        found[name] = evaluate(name, given.runs, given.repeats, given.jobs)
        keep({each: found[each] for each in NAMES if each in found})
    lines = [*table(found), "", coverage(found)]
    if given.write:
        PAGE.write_text(put(PAGE.read_text("utf-8"), "curve", lines), encoding="utf-8")
    else:
        print("\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
