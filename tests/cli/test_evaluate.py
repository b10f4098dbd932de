"""`clustersplit evaluate` from the command line: refusals, files, streams."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run
from clustersplit_cli.reports.json_report import report_schema

SHORT = ("--search", "2", "--repeats", "1", "--effort", "fast", "--restarts", "2", "--jobs", "1")
FEW = ("--strategy", "random:joint,cluster-linear:joint", "--probe", "logreg")


@pytest.fixture
def evaluate(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["evaluate", "feats.parquet", *SHORT, *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_it_writes_a_report_that_follows_its_schema_and_a_page(
    evaluate: Callable[..., tuple[int, str, str]],
) -> None:
    code, out, err = evaluate(*FEW, "--html", "--json", "--refit")
    assert code == 0, err
    text = Path("feats_evaluation", "report.json").read_text("utf-8")
    assert out == text
    report = json.loads(text)
    jsonschema.validate(report, report_schema("evaluation"), jsonschema.Draft202012Validator)
    assert [found["name"] for found in report["protocols"]] == ["train", "refit"]
    assert report["config"]["strategies"] == ["random:joint", "cluster-linear:joint"]
    assert "verdict:" in err
    page = Path("feats_evaluation", "report.html").read_text("utf-8")
    assert "<h1>" in page
    assert "cluster-linear:joint" in page
    assert not re.search(r"(?:src|href)=[\"']?https?:", page)


def test_an_earlier_evaluation_is_kept_unless_it_is_to_be_resumed_or_replaced(
    evaluate: Callable[..., tuple[int, str, str]],
) -> None:
    trials = Path("feats_evaluation", "trials.jsonl")
    assert evaluate(*FEW, "--quiet")[0] == 0
    before = trials.read_bytes()
    code, _, err = evaluate(*FEW)
    assert code == 2
    assert "already holds an evaluation" in err
    assert "--resume" in err
    code, _, err = evaluate(*FEW, "--resume", "--seed", "1")
    assert code == 2
    assert "another seed" in err
    code, _, err = evaluate(*FEW[:2], "--probe", "forest", "--resume")
    assert code == 2
    assert "another training" in err
    assert trials.read_bytes() == before
    assert evaluate(*FEW, "--resume", "--quiet")[0] == 0
    assert trials.read_bytes() == before
    assert evaluate(*FEW, "--force", "--seed", "1", "--quiet")[0] == 0
    assert trials.read_bytes() != before


def test_a_directory_of_something_else_is_never_touched(
    evaluate: Callable[..., tuple[int, str, str]], folder: Path
) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.txt").write_text("all of it")
    for more in ((), ("--force",), ("--resume",)):
        code, _, err = evaluate(*FEW, "--out", "mine", *more)
        assert code == 2
        assert "no evaluation" in err
    assert [path.name for path in (folder / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--probe", "gpt"], "--probe 'gpt' is unknown"),
        (["--strategy", "best"], "--strategy 'best' is unknown"),
        (["--select", "median"], "--select 'median' is unknown"),
        (["--search", "0"], "--search must be at least 1, got 0"),
        (["--folds", "1"], "--folds must be at least 2, got 1"),
        (["--evaluation-domain", "moon"], "--evaluation-domain moon: there is no such domain"),
        (["--space", "s.toml"], "--space has no meaning without --command"),
        (["--timeout", "5"], "--timeout has no meaning without --command"),
        (["--command", "x {train}"], "--command needs --space"),
        (["--command", "x", "--probe", "mlp"], "--probe and --command both train"),
        (["--command", "x", "--space", "none.toml"], "--command lacks {train} {val} {test} {params} {out}"),
        (["--folds", "4", "--strategy", "random"], "--folds has no meaning without a k-fold strategy"),
        (
            ["--command", "x", "--space", "none.toml", "--probe-rows", "50"],
            "--probe-rows has no meaning with --command",
        ),
        (["--resume", "--force"], "--resume goes on and --force starts over"),
        (["--target", "feats.parquet"], "--target is what --curve estimates the accuracy on"),
        (["--curve", "--target", "domain="], "--target 'domain=' names nothing"),
        (
            ["--curve", "--target", "domain=moon"],
            "--target domain=moon: column 'domain' never has the value 'moon'",
        ),
        (["--curve", "--target", "none.parquet"], "none.parquet does not exist"),
        (["--domain", "nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line_and_leaves_nothing(
    evaluate: Callable[..., tuple[int, str, str]],
    files: Callable[[], set[str]],
    arguments: list[str],
    said: str,
) -> None:
    before = files()
    code, out, err = evaluate(*arguments)
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert said in lines[0]
    assert lines[1].startswith("hint: ")
    assert len(lines) == 2
    assert files() == before


def test_accuracy_is_estimated_on_a_target_without_labels_or_domains(
    evaluate: Callable[..., tuple[int, str, str]], table: Any, folder: Path
) -> None:
    is_art = table["domain"].to_numpy(zero_copy_only=False) == "art"
    pq.write_table(table.filter(is_art).drop(["label", "domain"]), "field.parquet")
    pq.write_table(table.filter(~is_art).drop(["domain"]), "feats.parquet")
    given = (
        "--strategy",
        "random:joint,weighted",
        "--probe",
        "logreg",
        "--curve",
        "--target",
        "field.parquet",
    )
    code, out, err = evaluate(*given, "--json", "--html")
    assert code == 0, err
    report = json.loads(out)
    jsonschema.validate(report, report_schema("evaluation"), jsonschema.Draft202012Validator)
    (found,) = report["curve"]["domains"]
    assert (found["domain"], found["is_target"], found["observed"]) == ("field.parquet", True, None)
    assert set(found["scores"]) == {"random:joint", "weighted"}
    said = f"expect (at most )?{100 * found['expected']:.0f} ± {100 * found['error']:.0f} % on field.parquet"
    assert re.search(f"curve: {said}; your random validation set says", err)
    page = Path("feats_evaluation", "report.html").read_text("utf-8")
    assert "<h1>Expect " in page and 'id="curve"' in page and 'id="mmd"' not in page
    assert evaluate(*given, "--quiet")[0] == 2
    assert evaluate(*given, "--quiet", "--resume")[0] == 0
    pq.write_table(table.filter(is_art).select(table.column_names[:1]), "field.parquet")
    code, _, err = evaluate(*given, "--force")
    assert code == 2, err


def test_a_target_that_no_row_is_near_to_is_refused_and_leaves_nothing(
    evaluate: Callable[..., tuple[int, str, str]], table: Any, files: Callable[[], set[str]]
) -> None:
    features = table.drop(["label", "domain"])
    far = [pc.add(column, 1000.0) if pa.types.is_floating(column.type) else column for column in features]
    pq.write_table(pa.table(far, names=features.column_names), "far.parquet")
    before = files()
    code, _, err = evaluate(*FEW, "--curve", "--target", "far.parquet")
    assert code == 2
    assert err.startswith("error: no row is near the target far.parquet")
    assert files() == before


def test_a_command_may_weigh_validation_rows_and_needs_no_labels_of_a_target(
    evaluate: Callable[..., tuple[int, str, str]], table: Any
) -> None:
    pq.write_table(table.drop(["label", "domain"]), "field.parquet")
    Path("train.py").write_text(
        "import json, sys, numpy as np\n"
        "val, test, weights, out = sys.argv[1:5]\n"
        "v, w, t = np.load(val), np.load(weights), np.load(test)\n"
        "said = {'val': 0.5}\n"
        "if len(w):\n"
        "    assert len(w) == len(v) and w.min() >= 0 and abs(w.mean() - 1) < 1e-9\n"
        "    said['weighted'] = 0.25\n"
        "if len(t):\n"
        "    said['test'] = 0.5\n"
        "json.dump(said, open(out, 'w'))\n"
    )
    Path("space.toml").write_text("lr = { uniform = [0, 1] }\n")
    words = "python train.py {val} {test} {weights} {out} {train} {params}"
    given = ("--space", "space.toml", "--curve", "--target", "field.parquet", "--evaluation-domain", "photo")
    given = (*given, "--strategy", "random:joint,weighted", "--command")
    code, out, err = evaluate(*given, words, "--json", "--quiet")
    assert code == 0, err
    report = json.loads(out)
    weighted = [run for run in report["runs"] if run["strategy"] == "weighted"]
    assert {run["validation"] for run in weighted} == {0.25}
    assert [found["expected"] for found in report["curve"]["domains"]] == [0.5, 0.5]
    Path("train.py").write_text(Path("train.py").read_text().replace("if len(w)", "if False"))
    code, _, err = evaluate(*given, words.replace("{weights}", "{val}"), "--out", "other")
    assert code == 0, err
    assert "weighted is left out" in err


def test_one_domain_is_refused_and_of_two_the_one_left_needs_no_domains(
    evaluate: Callable[..., tuple[int, str, str]], table: Any
) -> None:
    pq.write_table(table.filter(table["domain"].to_numpy(zero_copy_only=False) == "art"), "feats.parquet")
    code, _, err = evaluate(*FEW)
    assert code == 2
    assert "there is only one domain, art" in err
    pq.write_table(table, "feats.parquet")
    given = ["--strategy", "random,leave-one-domain-out", "--probe", "logreg"]
    code, _, err = evaluate(*given)
    assert code == 0
    assert "left out" in err
    assert "leave-one-domain-out" in err


def test_a_split_that_cannot_be_made_leaves_no_directory(
    evaluate: Callable[..., tuple[int, str, str]], files: Callable[[], set[str]]
) -> None:
    before = files()
    code, _, err = evaluate(*FEW, "--h", "0.0001")
    assert code == 3, err
    assert files() == before


def test_a_second_process_is_kept_out(evaluate: Callable[..., tuple[int, str, str]], folder: Path) -> None:
    import fcntl

    assert evaluate(*FEW, "--quiet")[0] == 0
    with (folder / "feats_evaluation" / "trials.jsonl").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        code, _, err = evaluate(*FEW, "--resume")
    assert code == 2
    assert "another process is at work" in err
