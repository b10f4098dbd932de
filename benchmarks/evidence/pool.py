"""All evidence together: what choosing on each kind of split gained, with intervals.

A study is one dataset with one kind of models. Of whole networks every choice is at hand; of frozen features
there are the tables of `results/frozen.json`, with means and standard errors over evaluation domains.

The pooled number is the mean over datasets of the mean over their studies of the mean over their domains.
Its interval is a bootstrap over domains within datasets: domains are drawn anew, the same for all networks of
a dataset. Of a table, a normal error of its size is drawn. D domains are few: deviations are widened as
Student's t widens them, and those of a bootstrap also by (D / (D - 1))^1/2.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.evidence.networks import choices
from benchmarks.evidence.networks.pictures import DATASETS
from benchmarks.evidence.networks.strategies import CELLS, REFERENCE
from clustersplit_cli.evaluation.choosing import MEAN, SELECTIONS
from clustersplit_cli.evaluation.statistics import Table, collect, discrepancy_and_test, minus, over_groups
from clustersplit_cli.reports.evaluation.summary import ORACLE, Correlation, EvaluationRun

HERE = Path(__file__).resolve().parent
FROZEN = HERE / "results" / "frozen.json"
GRADED = HERE / "curve.json"
DRAWS = 4_000
Floats = NDArray[np.float64]
Counts = dict[str, Floats]
FEWEST = 4
"""Domains without which a dataset says nothing about its spread."""
SAME_DATA = {"fsdd_logmel800": "spoken"}
"""Datasets that are the same recordings under another name."""


@dataclass(frozen=True)
class Number:
    """A mean, its standard error over domains, and its values by domain if at hand.

    An unknown standard error is taken for 0.
    """

    mean: float
    se: float | None = None
    domains: Floats | None = None

    def draw(self, n_domains: int, rng: np.random.Generator) -> Floats:
        """What other domains might have given: (DRAWS,)."""
        student = widening(n_domains)
        if self.domains is None:
            return self.mean + student * (self.se or 0.0) * rng.standard_normal(DRAWS)
        size = len(self.domains)
        counts = rng.multinomial(size, np.full(size, 1 / size), size=DRAWS).astype(np.float64)
        known = np.isfinite(self.domains)
        weights = counts[:, known]
        total = weights.sum(axis=1)
        drawn = (weights @ self.domains[known]) / np.where(total > 0, total, 1)
        widened = self.mean + (drawn - self.mean) * student * (size / max(size - 1, 1)) ** 0.5
        return np.where(total > 0, widened, self.mean)


def widening(domains: int) -> float:
    """How much wider Student's t is than the normal law at 95 %, for a mean of so many.

    >>> round(widening(6), 2)  # 2.571 / 1.960
    1.31
    """
    return float(stats.t.ppf(0.975, domains - 1) / stats.norm.ppf(0.975))


@dataclass(frozen=True)
class Study:
    """One dataset with one kind of models.

    Attributes
    ----------
    numbers : by strategy and measure; accuracies in points.
    whole : whole networks, not small models on frozen features.
    """

    dataset: str
    models: str
    domains: int
    repeats: float
    trainings: int
    numbers: dict[str, dict[str, Number]] = field(repr=False)
    whole: bool = False

    @property
    def cells(self) -> str:
        """What keeps its share in strategies that do not say."""
        return CELLS.get(self.models, "joint")


def network_studies(results: Path = choices.RESULTS) -> list[Study]:
    """The studies of whole networks that have finished rounds; strategies also by other ways to choose."""
    studies = []
    for dataset in DATASETS:
        for algorithm in CELLS:
            runs = choices.runs_of(dataset, algorithm, results=results)
            rounds = {(run.domain, run.repeat) for run in runs}
            domains = len({domain for domain, _ in rounds})
            if domains > 1:
                trainings = len(choices.lines_of(results / f"{dataset}-{algorithm}.jsonl"))
                numbers = numbers_of([*runs, *_chosen_otherwise(dataset, algorithm, results)])
                repeats = len(rounds) / domains
                studies.append(Study(dataset, algorithm, domains, repeats, trainings, numbers, whole=True))
    return studies


def _chosen_otherwise(dataset: str, algorithm: str, results: Path) -> list[EvaluationRun]:
    """Choices by the worst domain, and so on, named `strategy:way`."""
    return [
        replace(run, strategy=f"{run.strategy}:{select}")
        for select in SELECTIONS
        for run in choices.runs_of(dataset, algorithm, select, results)
        if select != MEAN and run.strategy != ORACLE
    ]


def discrepancy(results: Path = choices.RESULTS) -> Correlation | None:
    """Rank correlation of MMD(T,V) and accuracy over all choices of networks, less their rounds' means."""
    runs = [
        replace(run, domain=f"{study.dataset} {study.models} {run.domain}")
        for study in network_studies(results)
        if study.domains >= FEWEST
        for run in choices.runs_of(study.dataset, study.models, results=results)
    ]
    return discrepancy_and_test(runs).runs


def numbers_of(runs: Sequence[EvaluationRun]) -> dict[str, dict[str, Number]]:
    """What every strategy gained, and how far its validation was from the truth."""

    by_name: dict[str, Callable[[EvaluationRun], float | None]] = {
        "gain": lambda run: run.test,
        "retrained": lambda run: run.refit,
    }
    found: dict[str, dict[str, Number | None]] = {}
    for strategy in dict.fromkeys(run.strategy for run in runs):
        mine = {(run.domain, run.repeat) for run in runs if run.strategy == strategy}
        same = [run for run in runs if (run.domain, run.repeat) in mine]
        numbers = found[strategy] = {}
        for name, what, factor in (
            ("optimism", optimism, 100.0),
            ("rank_correlation", lambda run: run.rank_correlation, 1.0),
            ("best", lambda run: run.oracle, 100.0),
        ):
            whole = collect(same, strategy, what)
            numbers[f"{name}_itself"] = number(whole, factor)
            numbers[name] = number(minus(whole, collect(same, REFERENCE, what)), factor)
        for name, tested in by_name.items():
            base = collect(same, REFERENCE, tested)
            numbers[name] = number(minus(collect(same, strategy, tested), base))
            numbers[f"gap_{name}"] = number(minus(collect(same, ORACLE, tested), base))
    return {
        strategy: {name: value for name, value in numbers.items() if value is not None}
        for strategy, numbers in found.items()
    }


def optimism(run: EvaluationRun) -> float | None:
    """How much better the chosen model looked in validation than it is on E."""
    return None if run.validation_mean is None or run.test is None else run.validation_mean - run.test


def number(found: dict[tuple[str, int], float | None], factor: float = 100) -> Number | None:
    """The mean over domains of the means over repeats."""
    table = Table.of(found)
    estimate = over_groups(table)
    if estimate is None:
        return None
    domains = [np.nanmean(row) if np.isfinite(row).any() else np.nan for row in table.values]
    se = None if estimate.se is None else factor * estimate.se
    return Number(factor * estimate.mean, se, factor * np.array(domains))


def frozen_studies(path: Path = FROZEN) -> list[Study]:
    """Read the studies of small models on frozen features.

    The cells of their strategies are joint, of CORAL label; strategies with other cells keep their name.
    """
    studies = []
    for table in json.loads(path.read_text("utf-8")):
        cells = CELLS.get(table["models"], "joint")
        scores = table["strategies"]
        base = scores.pop(f"{REFERENCE}:joint")
        numbers: dict[str, dict[str, Number]] = {}
        for strategy, score in scores.items():
            mine = numbers[strategy.removesuffix(f":{cells}")] = {}
            for name, protocol in (("gain", "train"), ("retrained", "refit")):
                if score[protocol]["gain"] is not None:
                    mine[name] = Number(*score[protocol]["gain"])
                oracle = scores[ORACLE][protocol]
                difference = oracle["test"][0] - base[protocol]["test"][0]
                mine[f"gap_{name}"] = Number(*(oracle["gain"] or [difference, None]))
            if "training_set" in score:
                pair = [found["training_set"]["rank_correlation"] for found in (score, base)]
                error = float(np.hypot(pair[0][1], pair[1][1]))
                mine["rank_correlation"] = Number(pair[0][0] - pair[1][0], error)
                mine["best"] = Number(*score["training_set"]["difference"])
        name = SAME_DATA.get(table["dataset"], table["dataset"])
        counts = (table["domains"], table["repeats"], table["trainings"])
        studies.append(Study(name, table["models"], *counts, numbers))
    return studies


def graded_studies(path: Path = GRADED) -> list[Study]:
    """Read the studies of probes that were evaluated beside graded splits, choice by choice."""
    studies = []
    for dataset, kept in json.loads(path.read_text("utf-8"))["datasets"].items():
        runs = [
            EvaluationRun(
                **{**run, "strategy": run["strategy"].removesuffix(":joint")},
                setting=None,
                validation=None,
                rank_correlation=None,
            )
            for run in kept["runs"]
        ]
        domains = len({run.domain for run in runs})
        repeats = len({run.repeat for run in runs})
        name = SAME_DATA.get(dataset, dataset)
        studies.append(Study(name, "graded", domains, repeats, kept["trials"], numbers_of(runs)))
    return studies


def all_studies() -> list[Study]:
    """Everything there is, of datasets with enough domains."""
    studies = [*network_studies(), *frozen_studies(), *graded_studies()]
    return [study for study in studies if study.domains >= FEWEST]


@dataclass(frozen=True)
class Interval:
    """A pooled number with its 95 % interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, mean: float, draws: Floats) -> Interval:
        """Take the middle 95 % of the draws."""
        low, high = np.nanpercentile(draws, [2.5, 97.5])
        return cls(round(mean, 2), round(float(low), 2), round(float(high), 2))


@dataclass(frozen=True)
class Pooled:
    """One strategy over all studies that had it.

    Attributes
    ----------
    above : of how many datasets the mean gain is above 0.
    gain, retrained : in points, over the random split with the same cells: of models trained on T, and of
        their settings trained again on all development rows.
    share, share_retrained : the same in percent of what the oracle gains, if that is above 0.
    optimism : by how many points more than on the random split the chosen model looked better than it is.
    rank_correlation : of validation and test accuracy over settings, less that on the random split.
    best : what a perfect choice reaches on this T, less what it reaches on the random T; in points.
    """

    strategy: str
    studies: int
    datasets: int
    above: int
    trainings: int
    gain: Interval
    share: Interval | None
    retrained: Interval | None
    share_retrained: Interval | None
    optimism: Interval | None
    rank_correlation: Interval | None
    best: Interval | None


class Pool:
    """Studies, and what other domains might have given."""

    def __init__(self, studies: Sequence[Study], seed: int = 0) -> None:
        self.studies = studies
        self.seed = seed

    def draws(self, studies: Sequence[Study], strategy: str, measure: str) -> tuple[float, Floats]:
        """The mean over datasets, and the same for domains drawn anew."""
        datasets: dict[str, list[tuple[float, Floats]]] = {}
        for study in studies:
            found = study.numbers[strategy][measure]
            datasets.setdefault(study.dataset, []).append((found.mean, self._draw(study, found, measure)))
        means = [np.mean([mean for mean, _ in found]) for found in datasets.values()]
        drawn = [np.mean([draw for _, draw in found], axis=0) for found in datasets.values()]
        return float(np.mean(means)), np.asarray(np.mean(drawn, axis=0))

    def _draw(self, study: Study, found: Number, measure: str) -> Floats:
        """The domains drawn are the same for all measures, strategies and networks of a dataset."""
        same = "" if found.domains is not None else f" {study.models} {measure}"
        words = f"{study.dataset}{same}".encode()
        return found.draw(study.domains, np.random.default_rng([self.seed, *words]))

    def having(self, strategy: str, *measures: str) -> list[Study]:
        """The studies that can tell."""
        return [
            study
            for study in self.studies
            if all(measure in study.numbers.get(strategy, {}) for measure in measures)
        ]

    def pooled(self, strategy: str) -> Pooled:
        """Pool a strategy."""
        studies = self.having(strategy, "gain", "gap_gain")
        again = self.having(strategy, "retrained", "gap_retrained")
        datasets = {study.dataset for study in studies}
        above = [
            float(np.mean([s.numbers[strategy]["gain"].mean for s in studies if s.dataset == dataset])) > 0
            for dataset in sorted(datasets)
        ]
        return Pooled(
            strategy=strategy,
            studies=len(studies),
            datasets=len(datasets),
            above=sum(above),
            trainings=sum(study.trainings for study in studies),
            gain=Interval.of(*self.draws(studies, strategy, "gain")),
            share=self.share(studies, strategy, "gain"),
            retrained=self.interval(strategy, "retrained"),
            share_retrained=self.share(again, strategy, "retrained") if again else None,
            optimism=self.interval(strategy, "optimism"),
            rank_correlation=self.interval(strategy, "rank_correlation"),
            best=self.interval(strategy, "best"),
        )

    def share(self, studies: Sequence[Study], strategy: str, measure: str) -> Interval | None:
        """Percent of the gap; None where the gap may be nothing, for then no share has a meaning."""
        (mean, drawn), (gap, gaps) = (
            self.draws(studies, strategy, name) for name in (measure, f"gap_{measure}")
        )
        if np.percentile(gaps, 0.5) <= 0:
            return None
        return Interval.of(100 * mean / gap, 100 * drawn / gaps)

    def interval(self, strategy: str, measure: str) -> Interval | None:
        """The pooled number of a strategy's measure."""
        studies = self.having(strategy, measure)
        return Interval.of(*self.draws(studies, strategy, measure)) if studies else None
