"""The order of the steps: every engine is asked the same questions in the same order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersplit_cli.cli.app import run as command
from clustersplit_cli.data.dataset import Dataset, InputFile
from clustersplit_cli.engines import plan as plans
from clustersplit_cli.options import CheckedOptions, SplitOptions, check_options
from clustersplit_cli.pipeline import context as contexts
from clustersplit_cli.pipeline.background import Background
from clustersplit_cli.pipeline.context import PartitionOptions
from clustersplit_cli.pipeline.engine import Idle
from clustersplit_cli.pipeline.local import partition as local_partition
from clustersplit_cli.pipeline.local.engine import opened_local, partition, prepared_partition
from clustersplit_cli.pipeline.run import assess, run
from tests.pipeline.fake import FakeEngine

Maker = Callable[..., Dataset]
FOLDS = PartitionOptions(folds=3)


def quick(**given: Any) -> CheckedOptions:
    return check_options(SplitOptions(effort="fast", restarts=2, **given))


@pytest.fixture
def dataset(make_dataset: Maker) -> Dataset:
    rng = np.random.default_rng(0)
    return make_dataset(rng.normal(size=(60, 3)), label=rng.integers(0, 2, 60))


SEARCH = ["explore", "refine", "certify with program", "account"]
REFERENCE = ["bound", "random_baseline"]
START, END = ["survey", "state", "prepare"], ["subsample", "measures", "constraints"]
PARTS = {"split": ("train", "val"), "folds": ("fold_0", "fold_1", "fold_2")}


@pytest.mark.parametrize(
    ("idle_from", "between"),
    [
        (Idle.AFTERWARDS, [*SEARCH, *REFERENCE]),
        (Idle.REFINING, ["explore", *REFERENCE, *SEARCH[1:]]),
        (Idle.EXPLORING, [*REFERENCE, *SEARCH]),
    ],
)
@pytest.mark.parametrize("names", PARTS.values(), ids=PARTS)
def test_bound_and_baseline_are_asked_for_when_workers_are_idle(
    names: tuple[str, ...], idle_from: Idle, between: list[str]
) -> None:
    engine = FakeEngine(names, idle_from)
    found = run(engine, with_portrait=True)
    assert engine.asked == [*START, *between, *END, "portrait", "await_hashes"]
    assert (found.parts, found.portrait) == ("parts of found", "portrait")


@pytest.mark.parametrize("names", PARTS.values(), ids=PARTS)
def test_the_report_of_a_run_repeats_what_the_engine_answered(names: tuple[str, ...]) -> None:
    report = run(FakeEngine(names, threads=2), config={"format": ["npy"]}).report
    assert (report.mmd.value, report.objective.psi, report.objective.ssq_total) == (1.0, 6.0, 8.5)
    assert report.config == {"format": ["npy"], "searched": True}
    assert [(point.phase, point.psi) for point in report.trace] == [("start", 9.0), ("lloyd", 6.0)]
    assert report.search is not None and report.search.gained == {"lloyd": 3.0}
    # The search ran out of iterations, but the certificate shows that nothing was left to gain.
    assert [run.converged for run in report.restarts] == [True]
    assert report.bound is not None and (report.bound.mmd_upper, report.bound.fraction) == (2.0, 0.5)
    assert (report.baselines.random.n, report.baselines.random.mmd_mean) == (20, 0.25)
    assert ("made_up", "converged: True, sized: True") in [
        (note.code, note.message) for note in report.warnings
    ]
    assert (report.parts is None) == (len(names) == 2)
    if report.parts is not None:
        assert [(part.name, part.size) for part in report.parts.parts] == [(name, 3) for name in names]


def test_a_given_partition_is_asked_all_but_the_search() -> None:
    engine = FakeEngine()
    result = assess(engine, engine.measure("given"), {"leave": "art"})
    assert engine.asked == ["measure", "certify", *REFERENCE, *END]
    assert result.searched is None and result.certificate is not None
    assert result.notes == (("made_up", "converged: True, sized: False"),)


@pytest.mark.parametrize("into", [None, FOLDS], ids=["split", "folds"])
def test_a_question_that_is_asked_again_has_the_same_answer(
    into: PartitionOptions | None, dataset: Dataset
) -> None:
    with opened_local(dataset, quick(nystrom="30"), into) as engine:
        context: Any = engine.prepare(engine.survey())
        found = context.refine(context.explore())
        for question in (context.random_baseline, context.subsample, context.certify):
            assert question(found) == question(found)
        assert context.bound() == context.bound()


@pytest.mark.parametrize("into", [None, FOLDS], ids=["split", "folds"])
def test_the_report_waits_for_hashes_and_the_search_does_not(
    into: PartitionOptions | None, dataset: Dataset
) -> None:
    """The file is hashed only once the last question before it has been asked."""
    asked: list[str] = []
    hashed = threading.Event()

    def files() -> tuple[InputFile, ...]:
        assert hashed.wait(60)
        return (InputFile("x.parquet", "features", 1, "00"),)

    slow = Dataset(**{**vars(dataset), "read_from": files})
    with opened_local(slow, quick(), into) as engine:
        heard = engine.__class__.await_hashes

        def await_hashes(self: Any) -> None:
            asked.append("hashes")
            hashed.set()
            heard(self)

        object.__setattr__(engine, "await_hashes", lambda: await_hashes(engine))
        found = run(engine)
    assert asked == ["hashes"] and "hash" in found.report.timing.steps
    assert [file.sha256 for file in found.report.input.files] == ["00"]


@pytest.mark.parametrize("words", [["split"], ["kfold", "--k", "3"], ["baseline", "random"]], ids=" ".join)
def test_a_command_plans_its_memory_once(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: Dataset
) -> None:
    np.save(tmp_path / "x.npy", dataset.features)
    monkeypatch.chdir(tmp_path)
    made: list[Any] = []
    plan_memory = plans.plan_memory

    def counted(*arguments: Any, **more: Any) -> Any:
        made.append(plan_memory(*arguments, **more))
        return made[-1]

    monkeypatch.setattr(contexts, "plan_memory", counted)
    name, *more = words
    place = ["random"] if name == "baseline" else []
    rest = [] if name == "baseline" else [*more, "--effort", "fast"]
    options = ["--stratify", "none", "--quiet", "--out", "out"]
    assert command([name, *place, "x.npy", *rest, *options]) == 0
    assert len(made) == 1


def test_parts_under_nystrom_are_estimated_on_a_subsample(dataset: Dataset) -> None:
    exact = partition(dataset, quick(), FOLDS).report.mmd
    found = partition(dataset, quick(nystrom="40"), FOLDS)
    estimate, labels = found.report.mmd.subsample, found.parts.labels
    assert exact.subsample is None and estimate is not None and estimate.size == 60
    x, gamma = np.asarray(dataset.features, np.float64), found.report.mmd.gamma
    kernel = np.exp(-gamma * ((x[:, None] - x[None]) ** 2).sum(axis=2))  # type: ignore[operator]
    weighted, total = 0.0, 0
    for a in range(3):
        for b in range(a):
            one, other = labels == a, labels == b
            within = [
                (kernel[np.ix_(side, side)].sum() - side.sum()) / (side.sum() * (side.sum() - 1))
                for side in (one, other)
            ]
            weight = int(one.sum()) * int(other.sum())
            weighted += weight * (sum(within) - 2 * kernel[np.ix_(one, other)].mean())
            total += weight
    assert estimate.mmd_squared_unbiased == pytest.approx(weighted / total, rel=1e-9)
    assert estimate.standard_error > 0


def test_what_has_not_begun_is_dropped_and_what_fails_is_heard() -> None:
    begun: list[int] = []
    with Background(1) as background:
        later = background.later(lambda: begun.append(1))
        assert begun == []
        later.begin().result()
        later.begin()
        assert begun == [1]
        failing = background.submit(lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            failing.result()
    with Background(0) as at_once, pytest.raises(ZeroDivisionError):
        at_once.submit(lambda: 1 // 0)


def test_a_partition_is_certified_while_its_baseline_is_drawn(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the two waits for the other to have begun."""
    both = threading.Barrier(2, timeout=60)
    certify, baseline = local_partition.LocalPartition.certify, local_partition.LocalPartition.random_baseline

    def certified(self: Any, *arguments: Any) -> Any:
        both.wait()
        return certify(self, *arguments)

    def drawn(self: Any, *arguments: Any, **more: Any) -> Any:
        both.wait()
        return baseline(self, *arguments, **more)

    monkeypatch.setattr(local_partition.LocalPartition, "certify", certified)
    monkeypatch.setattr(local_partition.LocalPartition, "random_baseline", drawn)
    assert partition(dataset, quick(), FOLDS).report.certificate is not None


def test_a_portrait_drawn_later_is_the_one_of_the_run(dataset: Dataset) -> None:
    found = partition(dataset, quick(), FOLDS, with_portrait=True)
    with prepared_partition(dataset, quick(), FOLDS) as context:
        assert context.portrait(context.measure(found.parts.labels)) == found.portrait
