"""The curve over graded splits: what it says where the truth is known, and what it may see."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clustersplit_cli.data.dataset import Dataset, TargetRows
from clustersplit_cli.reports.evaluation.summary import EvaluationReport

Run = Callable[..., EvaluationReport]
SLOPE, FLOOR = 0.12, 0.05


def falling(rng: np.random.Generator, n: int, shift: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows whose labels are wrong the more often the larger their first feature is.

    It is exponential, so that the rows that are furthest from the others are those with the largest.
    """
    u = rng.exponential(size=n) + shift
    side = rng.choice([-1.0, 1.0], n)
    wrong = rng.random(n) < FLOOR + SLOPE * u
    rows = np.column_stack([3.0 * u, 0.5 * side + 0.05 * rng.normal(size=n)])
    return rows, (np.where(wrong, -side, side) > 0).astype(int)


def accuracy(shift: float) -> float:
    """Of the best model: as many labels are right as are not wrong."""
    return 1.0 - FLOOR - SLOPE * (1.0 + shift)


@pytest.mark.parametrize(("shift", "seed"), [(0.25, 5), (0.75, 6), (1.25, 7)])
def test_where_accuracy_falls_linearly_with_the_shift_the_estimate_is_right_within_its_error(
    shift: float, seed: int, make_dataset: Callable[..., Dataset], run: Run, tmp_path: Path
) -> None:
    rng = np.random.default_rng(seed)
    X, y = falling(rng, 1500, 0.0)
    E, _ = falling(rng, 500, shift)
    report = run(
        replace(make_dataset(X, label=y), target=TargetRows(E, "field", len(E))),
        tmp_path / "out",
        strategies=["random:joint"],
        probe="logreg",
        probe_rows=1500,
        search=2,
        repeats=3,
        curve=True,
        refit=False,
        options={"gamma": "0.002", "holdout": "0.1"},
    )
    assert report.curve is not None
    (found,) = report.curve.domains
    assert found.is_target and found.observed is None
    assert abs(found.expected - accuracy(shift)) <= found.error < 0.05
    assert found.scores["random:joint"] == pytest.approx(accuracy(0), abs=0.06)
    assert found.points[0].accuracy - found.points[-1].accuracy > 0.15
    assert report.curve.verdict[0].startswith(f"expect {100 * found.expected:.0f} ± ")
    assert "± is chance alone" in report.curve.verdict[1]
    assert (report.protocols, report.runs, report.curve.estimators) == ((), (), ())


EVERYTHING = ["random:joint", "cluster-rbf:joint", "target-lookalike", "target-nearest", "weighted"]
SEEING = EVERYTHING[2:]


def records(directory: Path) -> dict[str, dict[str, Any]]:
    lines = (directory / "trials.jsonl").read_text("utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return {record.pop("key"): {**record, "seconds": None, "test": None} for record in found}


def splits(directory: Path) -> dict[str, NDArray[Any]]:
    with np.load(directory / "splits" / "1-0.npz") as found:
        return dict(found)


@pytest.fixture(scope="module")
def whole(
    small: Dataset, run: Run, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, EvaluationReport]:
    directory = tmp_path_factory.mktemp("whole") / "out"
    return directory, run(small, directory, strategies=EVERYTHING, curve=True, domains=("q",))


def test_labels_of_the_evaluation_domain_change_nothing_but_the_test(
    whole: tuple[Path, EvaluationReport], small: Dataset, run: Run, tmp_path: Path
) -> None:
    label, domain = small.categories["label"], small.categories["domain"]
    inside = domain.codes == domain.values.index("q")
    codes = np.where(inside, np.random.default_rng(4).permutation(label.codes), label.codes)
    corrupted = replace(small, categories={"label": replace(label, codes=codes), "domain": domain})
    report = run(corrupted, tmp_path / "out", strategies=EVERYTHING, curve=True, domains=("q",))
    assert records(tmp_path / "out") == records(whole[0])
    for one, other in zip(report.runs, whole[1].runs, strict=True):
        if one.strategy != "oracle":
            assert (one.setting, one.validation, one.mmd) == (other.setting, other.validation, other.mmd)
    assert [run.test for run in report.runs] != [run.test for run in whole[1].runs]
    assert report.curve is not None and whole[1].curve is not None
    (one,), (other,) = report.curve.domains, whole[1].curve.domains
    assert (one.mmd, one.p_value, one.points, one.expected) == (
        other.mmd,
        other.p_value,
        other.points,
        other.expected,
    )
    assert one.observed != other.observed


def test_features_of_the_evaluation_domain_are_seen_by_strategies_of_targets_alone(
    whole: tuple[Path, EvaluationReport], small: Dataset, run: Run, tmp_path: Path
) -> None:
    inside = small.categories["domain"].codes == small.categories["domain"].values.index("q")
    moved = replace(small, features=np.where(inside[:, None], small.features[:, ::-1] - 1.5, small.features))
    run(moved, tmp_path / "out", strategies=EVERYTHING, curve=True, domains=("q",))
    before, after = splits(whole[0]), splits(tmp_path / "out")
    changed = {name.partition("/")[0] for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {*SEEING, "reach"}


def test_the_curve_is_of_what_the_reference_chose_and_goes_through_the_hardest_split(
    whole: tuple[Path, EvaluationReport],
) -> None:
    directory, report = whole
    assert report.curve is not None
    (found,) = report.curve.domains
    random, cluster = (run for run in report.runs if run.strategy in EVERYTHING[:2])
    kept = records(directory).values()
    accuracies = {
        (each["training"], each["setting"]): np.mean([*each["val"].values()]) for each in kept if each["val"]
    }
    chosen = {value for (_, setting), value in accuracies.items() if setting == random.setting}
    assert {point.accuracy for point in found.points} <= chosen
    assert found.points[-1].mmd == cluster.mmd
    mmds = [point.mmd for point in found.points]
    assert mmds == sorted(mmds)
    low, high = min(p.accuracy for p in found.points), max(p.accuracy for p in found.points)
    assert low <= found.expected <= high
    assert found.observed == random.test
    curve = next(each for each in report.curve.estimators if each.name == "curve")
    assert curve.bias.mean == pytest.approx(found.expected - found.observed)
    assert curve.absolute.mean == pytest.approx(abs(found.expected - found.observed))


def test_optimism_is_the_validation_score_less_that_on_the_evaluation_domain(
    whole: tuple[Path, EvaluationReport],
) -> None:
    report = whole[1]
    for protocol in report.protocols:
        for score in protocol.strategies:
            found = next(run for run in report.runs if run.strategy == score.strategy)
            tested = found.test if protocol.name == "train" else found.refit
            if score.strategy == "oracle":
                assert score.optimism is None
                continue
            assert found.validation_mean is not None and tested is not None and score.optimism is not None
            assert score.optimism.mean == pytest.approx(found.validation_mean - tested)
    assert report.curve is not None
    by_name = {each.name: each for each in report.curve.estimators}
    first = {score.strategy: score.optimism for score in report.protocols[0].strategies}
    assert all(by_name[name].bias == first[name] for name in EVERYTHING)


def test_weights_are_the_matched_ones_and_the_score_is_weighted_by_them(
    whole: tuple[Path, EvaluationReport],
) -> None:
    directory, report = whole
    kept = splits(directory)
    assert np.array_equal(kept["weighted/folds"], kept["random:joint/folds"])
    weights = kept["weighted/weights"]
    assert len(weights) == kept["weighted/folds"].sum()
    assert weights.min() >= 0 and weights.mean() == pytest.approx(1.0)
    scores = [each["weighted"] for each in records(directory).values() if each["weighted"] is not None]
    assert len(scores) == 4  # one a setting
    run = next(run for run in report.runs if run.strategy == "weighted")
    assert run.validation == run.validation_mean == max(scores)


def test_targets_and_known_domains_are_evaluated_together_and_go_on_from_what_is_kept(
    small: Dataset, run: Run, tmp_path: Path
) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 5)) + 1.0
    dataset = replace(small, target=TargetRows(rows, "field", 40))
    given: dict[str, Any] = {"strategies": ["random:joint", "weighted"], "curve": True, "refit": False}
    report = run(dataset, tmp_path / "out", **given)
    assert report.curve is not None
    assert [found.domain for found in report.curve.domains] == ["field", "p", "q", "r"]
    assert {run.domain for run in report.runs} == {"p", "q", "r"}
    field = report.curve.domains[0]
    errors = [found.expected - found.observed for found in report.curve.domains if found.observed is not None]
    assert field.error >= np.sqrt(np.mean(np.square(errors))) - 1e-12
    before = (tmp_path / "out" / "trials.jsonl").read_bytes()
    again = run(dataset, tmp_path / "out", **given, resume=True)
    assert (again.curve, again.runs) == (report.curve, report.runs)
    assert (tmp_path / "out" / "trials.jsonl").read_bytes() == before


def test_the_curve_does_not_depend_on_who_else_takes_part(
    whole: tuple[Path, EvaluationReport], small: Dataset, run: Run, tmp_path: Path
) -> None:
    alone = run(small, tmp_path / "out", strategies=["random:joint"], curve=True, domains=("q",))
    assert alone.curve is not None and whole[1].curve is not None
    (one,), (other,) = alone.curve.domains, whole[1].curve.domains
    assert replace(one, scores={}) == replace(other, scores={})


def test_a_curve_is_added_to_a_finished_evaluation(small: Dataset, run: Run, tmp_path: Path) -> None:
    given: dict[str, Any] = {"strategies": ["random:joint"], "domains": ("q",), "refit": False}
    without = run(small, tmp_path / "out", **given)
    assert without.curve is None
    before = (tmp_path / "out" / "trials.jsonl").read_bytes()
    report = run(small, tmp_path / "out", **given, curve=True, resume=True)
    after = (tmp_path / "out" / "trials.jsonl").read_bytes()
    assert after.startswith(before) and len(after) > len(before)
    assert report.runs == without.runs
    at_once = run(small, tmp_path / "other", **given, curve=True)
    assert at_once.curve == report.curve
