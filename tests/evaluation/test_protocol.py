"""What may be seen when, what is trained once, and that results depend on the seed alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.reports.evaluation.summary import ORACLE, EvaluationReport

from .conftest import poisoned

EVERYTHING = [
    "random",
    "cluster-rbf",
    "cluster-linear",
    "leave-one-domain-out",
    "mix-up",
    "kfold-random:joint",
    "kfold-cluster-rbf:label",
]
Run = Callable[..., EvaluationReport]


def trials(directory: Path) -> dict[str, dict[str, Any]]:
    lines = (directory / "trials.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return {record.pop("key"): {**record, "seconds": None} for record in records}


def tables(report: EvaluationReport) -> tuple[Any, ...]:
    return report.protocols, report.training_sets, report.discrepancy, report.runs


@pytest.fixture(scope="module")
def whole(
    small: Dataset, run: Run, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, EvaluationReport]:
    directory = tmp_path_factory.mktemp("whole") / "out"
    return directory, run(small, directory, strategies=EVERYTHING, refit=True)


def test_nothing_of_the_evaluation_domain_is_seen_before_the_test(
    whole: tuple[Path, EvaluationReport], small: Dataset, run: Run, tmp_path: Path
) -> None:
    """Poisoned features and labels of E change the test scores and nothing else."""
    clean = {key: value for key, value in trials(whole[0]).items() if value["domain"] == "q"}
    report = run(poisoned(small, "q"), tmp_path / "out", strategies=EVERYTHING, domains=("q",))
    dirty = trials(tmp_path / "out")
    assert dirty.keys() == clean.keys()  # same splits, same settings
    for key, record in clean.items():
        assert {**dirty[key], "test": None} == {**record, "test": None}
    assert any(dirty[key]["test"] != record["test"] for key, record in clean.items())
    before = [run for run in whole[1].runs if run.domain == "q" and run.strategy != ORACLE]
    after = [run for run in report.runs if run.strategy != ORACLE]
    assert [(r.strategy, r.setting, r.validation, r.mmd) for r in before] == [
        (r.strategy, r.setting, r.validation, r.mmd) for r in after
    ]


def test_the_result_does_not_depend_on_the_number_of_processes(
    whole: tuple[Path, EvaluationReport], small: Dataset, run: Run, tmp_path: Path
) -> None:
    again = run(small, tmp_path / "out", strategies=EVERYTHING, refit=True, jobs=2)
    assert trials(tmp_path / "out") == trials(whole[0])
    assert tables(again) == tables(whole[1])


def test_a_training_set_and_a_setting_are_trained_once(whole: tuple[Path, EvaluationReport]) -> None:
    lines = (whole[0] / "trials.jsonl").read_text("utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    distinct = {(each["domain"], each["repeat"], each["training"], each["setting"]) for each in found}
    assert len(distinct) == len(found) == whole[1].trials.n_trials
    # Two domains to leave out, 2 × 3 folds, two cluster splits of each kernel, two random ones, of which
    # mix-up shares one, and everything: at most 15 training sets (equal splits are one) × 4 settings × 3.
    assert len({(each["domain"], each["training"]) for each in found}) <= 3 * 15
    assert len(found) == 4 * len({(each["domain"], each["training"]) for each in found})


def test_all_strategies_of_a_round_choose_among_the_same_settings(
    whole: tuple[Path, EvaluationReport],
) -> None:
    settings: dict[tuple[str, int, int], set[str]] = {}
    for record in trials(whole[0]).values():
        place = (record["domain"], record["repeat"], record["setting"])
        settings.setdefault(place, set()).add(json.dumps(record["params"]))
    assert len(settings) == 3 * 4
    assert all(len(found) == 1 for found in settings.values())


def test_validation_is_scored_in_the_domains_of_validation_rows_alone(
    whole: tuple[Path, EvaluationReport],
) -> None:
    for record in trials(whole[0]).values():
        assert record["domain"] not in record["val"]
        assert len(record["val"]) in (0, 1, 2)
    assert sum(record["mixed"] is not None for record in trials(whole[0]).values()) == 3 * 4


def test_the_worst_validation_domain_can_decide(
    whole: tuple[Path, EvaluationReport], small: Dataset, run: Run
) -> None:
    """No training is needed for it, since every trial has the score of every domain."""
    before = (whole[0] / "trials.jsonl").read_bytes()
    worst = run(small, whole[0], strategies=EVERYTHING, refit=True, select="worst", resume=True)
    assert (whole[0] / "trials.jsonl").read_bytes() == before
    records = trials(whole[0]).values()
    for report, pick in ((whole[1], np.mean), (worst, np.min)):
        for run_ in report.runs:
            if run_.strategy == "cluster-rbf:joint":
                scores = [
                    pick(list(record["val"].values()))
                    for record in records
                    if record["domain"] == run_.domain and record["setting"] == run_.setting and record["val"]
                ]
                assert any(np.isclose(score, run_.validation) for score in scores)
    assert tables(worst) != tables(whole[1])


def test_more_repeats_and_settings_keep_the_trials_there_are(
    whole: tuple[Path, EvaluationReport], small: Dataset, run: Run, tmp_path: Path
) -> None:
    few = {"strategies": ["random"], "domains": ("p",), "refit": False}
    run(small, tmp_path / "out", **few, search=2)
    first = trials(tmp_path / "out")
    run(small, tmp_path / "out", **few, search=4, repeats=2, resume=True)
    more = trials(tmp_path / "out")
    assert first.items() <= more.items()
    assert len(more) == 4 * len(first)
