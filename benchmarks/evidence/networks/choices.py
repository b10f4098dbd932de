"""What every strategy would have chosen, from the lines of the trainings, as `evaluate` reports it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.evidence.networks.strategies import CELLS, EVERYTHING, REFERENCE
from clustersplit_cli.evaluation.choosing import MEAN, SELECTIONS, rank_correlation
from clustersplit_cli.reports.evaluation.summary import ORACLE, EvaluationRun

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
Scores = NDArray[np.float64]
Key = tuple[str, int, str]


@dataclass(frozen=True)
class Scored:
    """Of one strategy in one round, by fold and setting: accuracies on validation domains, and on E.

    Attributes
    ----------
    val : (folds, settings, domains); NaN where a domain has no validation rows.
    test : (folds, settings)
    """

    val: Scores
    test: Scores

    def validation(self, select: str) -> Scores:
        """What settings are chosen by: the mean over validation domains, or what `--select` names."""
        by_setting = np.moveaxis(self.val, 1, 0).reshape(self.val.shape[1], -1)
        return np.array([SELECTIONS[select](row[np.isfinite(row)].tolist()) for row in by_setting])

    def subset(self, settings: Sequence[int]) -> Scored:
        """As if only these settings had been drawn."""
        return Scored(self.val[:, settings], self.test[:, settings])


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; none without one."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def read(results: Path, dataset: str, algorithm: str) -> dict[Key, Scored]:
    """Scores by evaluation domain, repeat and strategy; rounds that are not complete are left out."""
    found: dict[Key, dict[tuple[int, int], dict[str, Any]]] = {}
    for line in lines_of(results / f"{dataset}-{algorithm}.jsonl"):
        found.setdefault((line["e"], line["r"], line["s"]), {})[line["f"], line["p"]] = line
    scored = {}
    for key, trained in found.items():
        folds, settings = (1 + max(place[axis] for place in trained) for axis in (0, 1))
        wanted = found.get((*key[:2], REFERENCE), {})
        if len(trained) != folds * settings or settings != 1 + max((p for _, p in wanted), default=-1):
            continue
        ordered = [[trained[fold, setting] for setting in range(settings)] for fold in range(folds)]
        val = [[[np.nan if v is None else v for v in line["v"] or [None]] for line in row] for row in ordered]
        test = [[line["t"] for line in row] for row in ordered]
        scored[key] = Scored(np.array(val, dtype=np.float64), np.array(test, dtype=np.float64))
    return scored


def choose(
    scored: dict[Key, Scored], mmds: dict[Key, float] | None = None, select: str = MEAN
) -> list[EvaluationRun]:
    """The choice of every strategy in every round, and of the oracle on the reference's training set."""
    runs = []
    for (domain, repeat, strategy), scores in scored.items():
        everything = scored.get((domain, repeat, EVERYTHING))
        if strategy == EVERYTHING or everything is None or (domain, repeat, REFERENCE) not in scored:
            continue
        refit, test = everything.test[0], scores.test.mean(axis=0)
        validation = scores.validation(select)
        chosen = int(np.argmax(validation))
        runs.append(
            EvaluationRun(
                domain=domain,
                repeat=repeat,
                strategy=strategy,
                mmd=(mmds or {}).get((domain, repeat, strategy)),
                setting=chosen,
                validation=float(validation[chosen]),
                test=float(test[chosen]),
                refit=float(refit[chosen]),
                oracle=float(test.max()),
                rank_correlation=rank_correlation(validation, test),
                validation_mean=float(scores.validation(MEAN)[chosen]),
            )
        )
        if strategy == REFERENCE:
            best = float(test.max())
            oracle = (None, int(test.argmax()), None, best, float(refit.max()), best, None, None)
            runs.append(EvaluationRun(domain, repeat, ORACLE, *oracle))
    return runs


def discrepancies(results: Path, dataset: str, algorithm: str) -> dict[Key, float]:
    """MMD(T,V) by round and strategy, the mean over folds."""
    found: dict[Key, list[float]] = {}
    for line in lines_of(results / f"{dataset}-splits.jsonl"):
        if line["c"] == CELLS[algorithm]:
            found.setdefault((line["e"], line["r"], line["s"]), []).append(line["mmd"])
    return {key: float(np.mean(values)) for key, values in found.items()}


def runs_of(dataset: str, algorithm: str, select: str = MEAN, results: Path = RESULTS) -> list[EvaluationRun]:
    """All choices on a dataset."""
    mmds = discrepancies(results, dataset, algorithm)
    return choose(read(results, dataset, algorithm), mmds, select)
