"""The tables of small models on frozen features: prints them as Markdown from `results/frozen.json`.

    python -m benchmarks.evidence.frozen

They are what `clustersplit evaluate` found: accuracies and gains in points, shares of the gap in percent,
each with its standard error. `evaluate_probes` and `model_selection.run` put them there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clustersplit_cli.reports.evaluation.terminal import probability

RESULTS = Path(__file__).resolve().parent / "results" / "frozen.json"
Record = dict[str, Any]
PROTOCOLS = ("train", "refit")


def record_of(models: str, dataset: str, report: Record, worst: Record | None = None) -> Record:
    """What is kept of a report of `evaluate`, and of the same trainings chosen by the worst domain."""
    strategies: dict[str, Record] = {}
    for protocol in report["protocols"]:
        for score in protocol["strategies"]:
            strategies.setdefault(score["strategy"], {})[protocol["name"]] = {
                "test": _rounded(score["test"]),
                "gain": _rounded(score["gain"]),
                "gap_closed": _rounded(score["gap_closed"], 1, 0),
            }
    for score in report["training_sets"]:
        strategies[score["strategy"]]["training_set"] = {
            "oracle": _rounded(score["oracle"]),
            "difference": _rounded(score["difference"]),
            "rank_correlation": _rounded(score["rank_correlation"], 1, 2),
            "mmd": _rounded(score["mmd"], 1, 3),
        }
    for score in worst["protocols"][0]["strategies"] if worst else ():
        strategies[score["strategy"]]["worst"] = {"gain": _rounded(score["gain"])}
    found = report["discrepancy"]
    return {
        "models": models,
        "dataset": dataset,
        "trainings": report["trials"]["n_trials"],
        "domains": len(report["input"]["domains"]),
        "repeats": len({run["repeat"] for run in report["runs"]}),
        "settings": report["config"]["search"],
        "strategies": strategies,
        "discrepancy": f"{_correlation(found['strategies'])} over {found['strategies']['n']} strategies, "
        f"{_correlation(found['runs'])} over {found['runs']['n']} runs less their round's mean",
        "verdict": {protocol["name"]: "; ".join(protocol["verdict"]) for protocol in report["protocols"]},
    }


def _rounded(found: Record | None, factor: float = 100, digits: int = 1) -> list[float | None] | None:
    """A mean and its standard error."""
    if found is None:
        return None
    return [
        None if value is None else round(factor * value, digits) + 0.0
        for value in (found["mean"], found["se"])
    ]


def _correlation(found: Record) -> str:
    value = probability(found["p_value"])
    return f"rho {found['rho']:+.2f} (p {value.replace('<', '< ') if value[0] == '<' else f'= {value}'})"


def keep(records: Sequence[Record], path: Path = RESULTS) -> None:
    """Put records in the place of earlier ones of the same models and dataset."""
    kept = {
        (record["models"], record["dataset"]): record
        for record in [*json.loads(path.read_text("utf-8")), *records]
    }
    lines = ",\n".join(json.dumps(record, ensure_ascii=False) for record in kept.values())
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def estimate(found: Sequence[float | None] | None, digits: int = 1, sign: str = "") -> str:
    """A mean and its standard error.

    >>> estimate([1.0, 0.25], sign="+")
    '+1.0 ± 0.2'
    """
    if not found or found[0] is None:
        return ""
    mean = f"{found[0]:{sign}.{digits}f}"
    return mean if found[1] is None else f"{mean} ± {found[1]:.{digits}f}"


def table(record: Record) -> list[str]:
    """Everything kept of one dataset and kind of models."""
    lines = [
        f"### {record['models']}, {record['dataset']}",
        "",
        f"{record['trainings']:,} trainings: {record['domains']} evaluation domains × {record['repeats']} "
        f"repeats × {record['settings']} settings × all training sets.",
        "",
        "| strategy | on T | gain | gap closed, % | retrained | gain | gap closed, % | gain, by worst "
        "| oracle on its T | to random's T | rank correlation | MMD(T,V) |",
        f"|{' --- |' * 12}",
    ]
    for strategy, score in record["strategies"].items():
        cells = [strategy]
        for name in PROTOCOLS:
            found = score[name]
            cells += [
                estimate(found["test"]),
                estimate(found["gain"], sign="+"),
                estimate(found["gap_closed"], 0),
            ]
        own = score.get("training_set", {})
        cells += [
            estimate(score.get("worst", {}).get("gain"), sign="+"),
            estimate(own.get("oracle")),
            estimate(own.get("difference"), sign="+"),
            estimate(own.get("rank_correlation"), 2),
            estimate(own.get("mmd"), 3),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    if "discrepancy" in record:
        lines += [f"MMD(T,V) and test accuracy: {record['discrepancy']}.", ""]
    for name, lead in zip(PROTOCOLS, ("Verdict", "Verdict, retrained"), strict=True):
        lines += [f"{lead}: {record['verdict'][name]}.", ""]
    return lines


def main() -> int:
    """Print all tables."""
    for record in json.loads(RESULTS.read_text("utf-8")):
        print("\n".join(table(record)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
