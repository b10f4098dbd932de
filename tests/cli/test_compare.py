"""`compare` measures every strategy under one kernel."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run

Compare = Callable[..., dict[str, Any]]
PACS = Path(__file__).resolve().parents[3] / "shared" / "data" / "pacs_effnetlite0.parquet"
QUICK = ("--effort", "fast", "--restarts", "4")


@pytest.fixture
def compare(folder: Path, capsys: pytest.CaptureFixture[str]) -> Compare:
    def call(*arguments: object) -> dict[str, Any]:
        capsys.readouterr()
        code = run(["compare", *map(str, arguments), "--json", *QUICK])
        said = capsys.readouterr()
        assert code == 0, said.err
        found: dict[str, Any] = json.loads(said.out)
        found["table"] = said.err
        return found

    return call


def runs_of(found: dict[str, Any], strategy: str) -> list[dict[str, Any]]:
    return [run for run in found["runs"] if run["strategy"] == strategy]


def test_every_strategy_is_in_the_table_with_its_runs(compare: Compare) -> None:
    found = compare("feats.parquet", "--repeats", 2)
    counts = {line["strategy"]: line["n_runs"] for line in found["strategies"]}
    assert counts == {
        **dict.fromkeys(("cluster-rbf", "cluster-linear", "greedy-rbf", "greedy-linear"), 2),
        **dict.fromkeys(("nearest-neighbours", "nearest-neighbours-total", "random", "mix-up"), 2),
        **{"unconstrained": 2, "leave-one-domain-out": 2},
    }
    for line in found["strategies"]:
        assert line["strategy"] in found["table"]
        runs = runs_of(found, line["strategy"])
        assert line["mmd"]["mean"] == pytest.approx(np.mean([run["mmd"] for run in runs]))
        assert line["mmd"]["sd"] == pytest.approx(np.std([run["mmd"] for run in runs], ddof=1))
    assert all(run["psi"] is None and run["constraints_met"] is None for run in runs_of(found, "mix-up"))


def test_ours_is_the_highest_of_those_that_meet_the_constraints(compare: Compare) -> None:
    found = compare("feats.parquet", "--repeats", 3)
    ours = {run["seed"]: run["mmd"] for run in runs_of(found, "cluster-rbf")}
    others = [run for run in found["runs"] if run["constraints_met"] == 1.0]
    assert len(others) >= 12
    assert all(run["mmd"] <= ours[run["seed"]] * (1 + 1e-9) for run in others)


def test_ours_is_the_highest_on_real_features_too(compare: Compare, folder: Path) -> None:
    if not PACS.exists():
        pytest.skip("the PACS features are not beside the repository")
    table = pq.read_table(PACS)
    pq.write_table(table.take(np.arange(0, len(table), 8)), "some.parquet")
    found = compare("some.parquet", "--repeats", 2)
    ours = {run["seed"]: run["mmd"] for run in runs_of(found, "cluster-rbf")}
    others = [run for run in found["runs"] if run["constraints_met"] == 1.0]
    assert all(run["mmd"] <= ours[run["seed"]] * (1 + 1e-9) for run in others)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear", "polynomial"])
def test_the_numbers_are_those_of_split_and_baseline_reports(
    kernel: str, compare: Compare, folder: Path
) -> None:
    found = compare("feats.parquet", "--repeats", 2, "--kernel", kernel)
    for seed in (0, 1):
        assert (
            run(["baseline", "random", "feats.parquet", "--kernel", kernel, "--seed", str(seed), "--force"])
            == 0
        )
        report = json.loads((folder / "feats_random" / "report.json").read_text())
        mine = runs_of(found, "random")[seed]
        assert mine["mmd"] == pytest.approx(report["mmd"]["value"], rel=1e-6)
        assert mine["psi"] == pytest.approx(report["objective"]["psi"], rel=1e-6)
    if kernel in ("rbf", "linear"):
        assert run(["split", "feats.parquet", "--kernel", kernel, "--seed", "1", "-q", *QUICK]) == 0
        report = json.loads((folder / "feats_split" / "report.json").read_text())
        mine = runs_of(found, f"cluster-{kernel}")[1]
        assert mine["mmd"] == pytest.approx(report["mmd"]["value"], rel=1e-6)


def test_the_distance_to_an_evaluation_domain_is_the_definition(compare: Compare, folder: Path) -> None:
    found = compare("feats.parquet", "--evaluation-domain", "photo", "--repeats", 1)
    table = pq.read_table("feats.parquet")
    X = np.column_stack([table[f"f{column}"].to_numpy() for column in range(4)]).astype(np.float64)
    photo = np.array(table["domain"].to_pylist()) == "photo"
    assert (found["n_rows"], found["n_evaluation"]) == ((~photo).sum(), photo.sum())
    assert found["evaluation_domain"] == "photo"
    random = ["baseline", "random", "feats.parquet", "--exclude", "domain=photo"]
    assert run(random) == 0
    val = np.load("feats_random/val.npy")
    gamma = found["gamma"]

    def mmd(a: np.ndarray, b: np.ndarray) -> float:
        def mean(x: np.ndarray, y: np.ndarray) -> float:
            return float(np.exp(-gamma * ((x[:, None] - y[None]) ** 2).sum(axis=2)).mean())

        return math.sqrt(mean(a, a) + mean(b, b) - 2 * mean(a, b))

    (mine,) = runs_of(found, "random")
    train = np.setdiff1d(np.flatnonzero(~photo), val)
    assert mine["mmd"] == pytest.approx(mmd(X[train], X[val]), rel=1e-5)
    assert mine["mmd_train_evaluation"] == pytest.approx(mmd(X[train], X[photo]), rel=1e-5)
    assert mine["mmd_val_evaluation"] == pytest.approx(mmd(X[val], X[photo]), rel=1e-5)
    for each in found["runs"]:
        both = (each["mmd_train_evaluation"], each["mmd_val_evaluation"])
        assert each["valid"] == (each["mmd"] > max(both))
    assert "MMD(V,E)" in found["table"]
    assert {warning["code"] for warning in found["warnings"]} == {"no_domains"}


def test_more_classes_leave_less_room_to_differ(compare: Compare) -> None:
    found = compare("feats.parquet", "--evaluation-domain", "photo", "--repeats", 1, "--classes", "1,2,10,5")
    rows = found["classes"]
    assert [row["classes"] for row in rows] == [1, 2, 5, 10]
    assert rows[0]["mmd"] > rows[1]["mmd"] > rows[3]["mmd"]
    for row in rows:
        assert row["valid"] == (row["mmd"] > max(row["mmd_train_evaluation"], row["mmd_val_evaluation"]))
    free = runs_of(found, "unconstrained")[0]["mmd"]
    assert rows[0]["mmd"] == pytest.approx(free, rel=0.02)


def test_without_domains_nothing_is_left_out_and_that_is_said(compare: Compare, folder: Path) -> None:
    table = pq.read_table("feats.parquet")
    pq.write_table(table.drop_columns(["domain"]), "plain.parquet")
    for options in ((), ("--stratify", "label")):
        found = compare("plain.parquet", "--repeats", 1, *options)
        assert not runs_of(found, "leave-one-domain-out")
        assert "leave-one-domain-out is left out" in found["table"]


def test_domains_that_form_no_cells_are_left_out_in_turn(compare: Compare) -> None:
    found = compare("feats.parquet", "--repeats", 1, "--stratify", "label")
    assert {run["left_out"] for run in runs_of(found, "leave-one-domain-out")} == {"art", "photo"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--repeats", "0"),
        ("--repeats", "many"),
        ("--classes", "1,x"),
        ("--classes", "0"),
        ("--classes", "61"),
        ("--evaluation-domain", "sketch"),
        ("--evaluation-domain", "art", "--nystrom", "20"),
        ("--kernel", "soup"),
    ],
    ids=" ".join,
)
def test_bad_usage_is_one_line_with_a_cure(
    arguments: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", "feats.parquet", *arguments]) == 2
    said = capsys.readouterr()
    error, hint = said.err.splitlines()[-2:]
    assert said.out == ""
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")


def test_quiet_and_json_leave_only_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "feats.parquet", "--repeats", "1", "-q", "--json", *QUICK]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert json.loads(said.out)["repeats"] == 1


def test_evaluation_rows_may_be_in_a_file_of_their_own(compare: Compare, folder: Path) -> None:
    table = pq.read_table(folder / "feats.parquet")
    photo = np.asarray(table["domain"]) == "photo"
    pq.write_table(table.filter(pa.array(~photo)), folder / "here.parquet")
    # Columns in another order, and no label: only the features matter.
    names = [name for name in table.column_names if name.startswith("f")][::-1]
    pq.write_table(table.filter(pa.array(photo)).select(names), folder / "there.parquet")
    inside = compare("feats.parquet", "--evaluation-domain", "photo", "--repeats", 1)
    outside = compare("here.parquet", "--evaluation", "there.parquet", "--repeats", 1)
    assert (outside["n_rows"], outside["n_evaluation"]) == (inside["n_rows"], inside["n_evaluation"])
    assert outside["evaluation_domain"] == "there.parquet"
    mine, theirs = ({run["strategy"]: run for run in found["runs"]} for found in (outside, inside))
    for name in ("cluster-rbf", "random"):
        for key in ("mmd", "mmd_train_evaluation", "mmd_val_evaluation"):
            assert mine[name][key] == pytest.approx(theirs[name][key], rel=1e-5)
    refused = ["compare", "feats.parquet", "--evaluation", "there.parquet", "--evaluation-domain", "photo"]
    assert run(refused) == 2
