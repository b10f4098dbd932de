"""`inspect`, `compare` and `evaluate` of rows in memory say what the commands say of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersplit import compare, evaluate, inspect
from clustersplit_cli.cli.app import run

QUICK = ["--restarts", "2", "--effort", "fast", "--json", "--quiet"]


@pytest.fixture
def files(data: Any, tmp_path: Path) -> list[str]:
    for name, rows in zip(("X", "y", "d"), data, strict=True):
        np.save(tmp_path / f"{name}.npy", rows)
    X, y, d = (str(tmp_path / f"{name}.npy") for name in ("X", "y", "d"))
    return [X, "--label-file", y, "--domain-file", d]


def test_inspect_says_what_the_command_says(
    data: Any, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", *files, "--standardize", "zscore", "--h", "0.3", "--json"]) == 0
    theirs = json.loads(capsys.readouterr().out)
    found = inspect(*data, test_size=0.3, standardize="zscore")
    ours = found.to_dict()
    for key in ("path", "estimate", "columns"):
        ours.pop(key), theirs.pop(key)
    assert ours == theirs
    assert "5/15" in found.summary()


@pytest.mark.filterwarnings("ignore::clustersplit.ClusterSplitWarning")
def test_compare_says_what_the_command_says(
    data: Any, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", *files, "--repeats", "1", "--evaluation-domain", "1", *QUICK]) == 0
    theirs = json.loads(capsys.readouterr().out)
    found = compare(*data, repeats=1, evaluation_domain=1, restarts=2, effort="fast")
    ours = found.to_dict()
    assert len(ours["runs"]) == len(theirs["runs"]) > 5
    for one, other in zip(ours["runs"], theirs["runs"], strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    assert "cluster-rbf" in found.summary()


def test_domains_are_left_out_though_they_form_no_cells(data: Any) -> None:
    found = compare(*data, stratify="label", repeats=1, restarts=2, effort="fast")
    assert {run.left_out for run in found.runs} == {None, "0", "1"}
    assert found.stratify == ("label",)


@pytest.mark.filterwarnings("ignore::clustersplit.ClusterSplitWarning")
def test_evaluate_says_what_the_command_says(
    data: Any, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    asked = ["--search", "2", "--repeats", "1", "--probe", "logreg", "--strategy", "cluster-rbf"]
    assert run(["evaluate", *files, *asked, "--out", str(tmp_path / "theirs"), "--quiet", "--json"]) == 0
    theirs = json.loads(capsys.readouterr().out)
    options: dict[str, Any] = {"repeats": 1, "probe": "logreg", "strategies": ["cluster-rbf"]}
    found = evaluate(*data, search=2, out=tmp_path / "ours", **options)
    assert found.to_dict()["runs"] == theirs["runs"]
    assert json.loads((tmp_path / "ours" / "report.json").read_text("utf-8"))["runs"] == theirs["runs"]
    assert "verdict" in found.summary()
    before = (tmp_path / "ours" / "trials.jsonl").stat().st_size
    longer = evaluate(*data, search=3, out=tmp_path / "ours", resume=True, **options)
    assert longer.trials.n_trials > found.trials.n_trials
    assert (tmp_path / "ours" / "trials.jsonl").stat().st_size > before
    with pytest.raises(ValueError, match="another input"):
        evaluate(data.X + 1, data.y, data.domains, search=3, out=tmp_path / "ours", resume=True, **options)
    with pytest.raises(ValueError, match="already holds an evaluation; resume=True goes on"):
        evaluate(*data, search=2, out=tmp_path / "ours", **options)


def test_the_accuracy_on_a_target_is_that_of_the_command(
    data: Any, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    target = data.X[:30] + 0.5
    np.save(tmp_path / "field.npy", target)
    words = ["--search", "2", "--repeats", "1", "--probe", "logreg", "--strategy", "random:joint", "--curve"]
    words += ["--target", str(tmp_path / "field.npy"), "--out", str(tmp_path / "theirs"), "--quiet", "--json"]
    assert run(["evaluate", *files, *words]) == 0
    (theirs, *_) = json.loads(capsys.readouterr().out)["curve"]["domains"]
    options: dict[str, Any] = {"repeats": 1, "search": 2, "probe": "logreg", "strategies": ["random:joint"]}
    found = evaluate(*data, curve=True, target=target, **options)
    (ours, *_) = found.to_dict()["curve"]["domains"]
    assert ours["domain"] == "target"
    # Trials are named by the target, the splits and the settings are not.
    assert {**ours, "domain": None} == {**theirs, "domain": None}
    assert "curve: expect " in found.summary()
    alone = evaluate(data.X, data.y, curve=True, target=target, **options)
    assert [each.is_target for each in alone.curve.domains] == [True]
    assert alone.runs == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": np.zeros((5, 4))}, "target is what curve estimates the accuracy on"),
        ({"resume": True}, "for a directory that is kept; pass out"),
        ({"out": "x", "resume": True, "force": True}, "use one of them"),
        ({"search": 0}, "search must be at least 1"),
        ({"probe": "net"}, "probe='net' is unknown"),
        ({"strategies": ["best"]}, "strategies='best' is unknown"),
        (
            {"evaluation_domains": [9]},
            "evaluation_domains=9: there is no such domain",
        ),
        ({"domains": np.zeros(90, int)}, "there is only one domain"),
    ],
)
def test_what_cannot_be_evaluated_is_said(options: dict[str, Any], message: str, data: Any) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(**{"X": data.X, "y": data.y, "domains": data.domains, **options})


def test_what_cannot_be_compared_is_said(data: Any) -> None:
    with pytest.raises(ValueError, match="repeats must be an integer of at least 1, got 0"):
        compare(*data, repeats=0)
    with pytest.raises(ValueError, match="there is no such domain; choose one of 0, 1"):
        compare(*data, evaluation_domain="sea")
