"""Folds and named parts of rows that are read in pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersplit_cli.cli.app import run
from clustersplit_cli.cli.engine import layout_and_plan
from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.engines.options import DASK, STREAM, EngineOptions
from clustersplit_cli.engines.tasks import Sides
from clustersplit_cli.options import SplitOptions, check_options
from clustersplit_cli.pipeline.context import PartitionOptions
from clustersplit_cli.pipeline.sharded.engine import ShardedEngine, opened_sharded
from clustersplit_cli.pipeline.sharded.partition import ShardedPartition
from clustersplit_cli.progress import Stopwatch

QUICK = ["--restarts", "4", "--nystrom", "60", "--effort", "fast"]
OPTIONS = check_options(SplitOptions(nystrom="60", effort="fast", threads=1, restarts=4))
FOLDS = PartitionOptions(folds=4)


@contextmanager
def job(path: Path, scheduler: str | None = None) -> Iterator[tuple[ShardedEngine, ShardedPartition]]:
    engine = EngineOptions(STREAM if scheduler is None else DASK, scheduler=scheduler)
    layout, plan = layout_and_plan(ReadRequest(path), OPTIONS, engine, "", 4)
    with opened_sharded(layout, OPTIONS, engine, plan, Stopwatch()) as opened:
        parting = replace(opened, into=FOLDS)
        yield parting, parting.prepare(parting.survey())


def folds_of(opened: ShardedEngine, context: ShardedPartition, explored: Any) -> tuple[np.ndarray, Any]:
    found = context.refine(explored)
    return np.concatenate(opened.executor.run(Sides(found.rule))), found.refined.psi


def made(path: Path, *words: str) -> dict[str, Any]:
    out = path.parent / "made"
    assert run([words[0], str(path), *QUICK, *words[1:], "--quiet", "--force", "--out", str(out)]) == 0
    found: dict[str, Any] = json.loads((out / "report.json").read_text())
    return found


def test_folds_hold_their_quotas_and_agree_with_those_made_in_memory(table: Path) -> None:
    report = made(table, "kfold", "--k", "4", "--engine", "stream")
    assert report["constraints"]["all_satisfied"]
    assert all(cell["actual"] == cell["target"] for cell in report["constraints"]["cells"])
    psi = [step["psi"] for step in report["trace"]]
    assert psi == sorted(psi, reverse=True)
    assert report["certificate"]["status"] == "optimal"
    labels = np.load(table.parent / "made" / "folds.npy")
    assert np.bincount(labels[labels >= 0]).tolist() == [part["size"] for part in report["parts"]["parts"]]
    local = made(table, "kfold", "--k", "4", "--engine", "local")
    assert report["objective"]["psi"] == pytest.approx(local["objective"]["psi"], rel=2e-3)
    assert report["objective"]["ssq_total"] == pytest.approx(local["objective"]["ssq_total"], rel=1e-6)


@pytest.mark.parametrize(
    "words",
    [
        ["kfold", "--k", "3", "--kernel", "linear", "--nystrom", "auto"],
        ["split", "--parts", "train=0.6,val=0.25,test=0.15", "--tolerance", "0.1"],
    ],
)
def test_what_was_made_is_verified_found_again_and_replayed(
    table: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    report = made(table, *words, "--engine", "stream", "--format", "npy", "--format", "txt")
    out = str(table.parent / "made")
    capsys.readouterr()
    assert run(["verify", out, "--rerun", "--json", "--quiet"]) == 0
    said = {check["name"]: check["status"] for check in json.loads(capsys.readouterr().out)["checks"]}
    for name in (
        "MMD",
        "objective",
        "by definition",
        "certificate",
        "random baseline",
        "cell counts",
        "search again",
    ):
        assert said[name] == "ok"
    again = ["--config", f"{out}/report.json", "--out", str(table.parent / "again"), "--quiet", "--force"]
    assert run([words[0], *again]) == 0
    replayed = json.loads((table.parent / "again" / "report.json").read_text())
    assert replayed["objective"] == report["objective"]
    assert replayed["config"] == report["config"]


def test_numbers_that_are_forged_differ_from_their_definitions(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All rows are summed again, and the estimate weighs pairs of parts by the sizes of the parts."""
    report = made(table, "split", "--parts", "a=0.6,b=0.25,c=0.15", "--engine", "stream")
    assert report["mmd"]["subsample"] is not None
    path = table.parent / "made" / "report.json"

    def said(engine: str) -> str:
        capsys.readouterr()
        run(["verify", str(path.parent), "--engine", engine, "--json", "--quiet"])
        checks = json.loads(capsys.readouterr().out)["checks"]
        return next(check["detail"] for check in checks if check["name"] == "by definition")

    assert said("stream").endswith("in float64") and said("local").endswith("in float64")
    for change, where in (
        ({"objective": {"psi": 1.01}}, "objective.psi"),
        ({"mmd": {"value": 0.99}}, "mmd.value"),
        ({"mmd": {"subsample": {"mmd_squared_unbiased": 1.01}}}, "mmd.subsample"),
    ):
        forged = json.loads(json.dumps(report))
        ((part, keys),) = change.items()
        place, key = forged[part], next(iter(keys))
        factor = keys[key]
        if isinstance(factor, dict):
            ((inner, factor),) = factor.items()
            place, key = place[key], inner
        place[key] *= factor
        path.write_text(json.dumps(forged))
        assert where in said("stream")
    forged = json.loads(json.dumps(report))
    forged["parts"]["mmd"][0][2] *= 1.01
    path.write_text(json.dumps(forged))
    assert "the MMD² of a and c" in said("stream")


def test_rows_that_change_parts_fail_the_verification(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(table, "split", "--parts", "a=0.6,b=0.2,c=0.2", "--stratify", "none", "--engine", "stream")
    out = table.parent / "made"
    one, other = np.load(out / "a.npy"), np.load(out / "b.npy")
    one[:200], other[:200] = other[:200].copy(), one[:200].copy()
    np.save(out / "a.npy", np.sort(one))
    np.save(out / "b.npy", np.sort(other))
    capsys.readouterr()
    assert run(["verify", str(out), "--json", "--quiet"]) == 1
    said = {check["name"]: check["status"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert said["cell counts"] == "ok"
    assert said["MMD"] == said["objective"] == "failed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["kfold", "--k", "300"], "more than 254 parts needs all rows in memory"),
        (["kfold", "--html"], "--html needs all rows in memory"),
        (["kfold", "--keep-together", "label"], "--keep-together needs all rows in memory"),
        (["kfold", "--tolerance", "0.1"], "--tolerance has no effect on folds"),
        (["kfold", "--severity", "0.5"], "--severity or --at-mmd of folds and parts needs all rows"),
        (["kfold", "--k", "1"], "--k must be at least 2"),
        (["split", "--parts", "a=0.5,b=0.4"], "add up to 0.9"),
    ],
)
def test_what_cannot_be_parted_in_pieces_is_refused_with_a_cure(
    table: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = table.parent / "refused"
    command = [words[0], str(table), "--engine", "stream", *words[1:], "--quiet", "--out", str(out)]
    assert run(command) == 2
    lines = capsys.readouterr().err.splitlines()
    assert said in lines[-2]
    assert lines[-1].startswith("hint: ")
    assert not out.exists()


def test_a_worker_that_is_killed_changes_no_fold(cluster: Any, table: Path, tmp_path: Path) -> None:
    with job(table) as (opened, context):
        expected, psi = folds_of(opened, context, context.explore())
    with cluster(tmp_path) as own, job(table, own.address) as (opened, context):
        explored = context.explore()
        own.kill_worker(0)
        found, again = folds_of(opened, context, explored)
    np.testing.assert_array_equal(found, expected)
    assert again == psi
