"""`clustersplit mmd`: every form, against discrepancies computed here from the kernel's definition."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run
from clustersplit_cli.reports.json_report import report_schema

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "sample_data" / "gas.parquet"
Array = np.ndarray[Any, Any]
MMD = Callable[..., Any]


@pytest.fixture
def mmd(folder: Path, capsys: pytest.CaptureFixture[str]) -> MMD:
    """Run `clustersplit mmd --json` and return the parsed JSON, which must follow the schema."""

    def call(*arguments: object, code: int = 0) -> Any:
        capsys.readouterr()
        found = run(["mmd", *map(str, arguments), "--json"])
        said = capsys.readouterr()
        assert found == code, said.err
        report = json.loads(said.out)
        jsonschema.Draft202012Validator(report_schema("mmd")).validate(report)
        report["stderr"] = said.err
        return report

    return call


@pytest.fixture
def refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Run a command that must be refused: one line of what is wrong, one of what helps, nothing on stdout."""

    def call(*arguments: object, code: int = 2) -> tuple[str, str]:
        capsys.readouterr()
        assert run(["mmd", *map(str, arguments)]) == code
        said = capsys.readouterr()
        assert said.out == ""
        error, hint = said.err.splitlines()
        return error.removeprefix("error: "), hint.removeprefix("hint: ")

    return call


def features(table: pa.Table) -> Array:
    return np.column_stack([table[f"f{i}"].to_numpy() for i in range(4)]).astype(np.float64)


def squared(x: Array, gamma: float, first: Array, second: Array, estimator: str = "biased") -> float:
    """MMD² by its definition."""

    def mean(a: Array, b: Array) -> float:
        values = np.exp(-gamma * ((x[a][:, None] - x[b][None]) ** 2).sum(axis=2))
        if a is b and estimator == "unbiased":
            return float((values.sum() - len(a)) / (len(a) * (len(a) - 1)))
        return float(values.mean())

    return mean(first, first) + mean(second, second) - 2 * mean(first, second)


def close(value: float) -> Any:
    return pytest.approx(value, rel=2e-5, abs=1e-8)


def rows_of(table: pa.Table, column: str, value: object) -> Array:
    return np.flatnonzero(np.array(table[column].to_pylist(), dtype=object) == value)


@pytest.fixture
def sides(folder: Path) -> tuple[Array, Array]:
    """Index files of a split by someone else; ten rows are on neither side."""
    shuffled = np.random.default_rng(0).permutation(110)
    train, val = np.sort(shuffled[:80]), shuffled[80:]
    np.save(folder / "a.npy", train)
    (folder / "b.txt").write_text("".join(f"{row}\n" for row in val))
    return train, val


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_anyones_index_files_give_the_discrepancy_of_their_rows(
    estimator: str, mmd: MMD, table: pa.Table, sides: tuple[Array, Array]
) -> None:
    report = mmd("feats.parquet", "--train", "a.npy", "--val", "b.txt", "--estimator", estimator)
    x, pooled = features(table), np.concatenate(sides)
    gamma = 1 / x[pooled].var(axis=0).sum()  # resolved on the rows that take part
    assert report["kernel"]["gamma"] == close(gamma)
    wanted = squared(x, gamma, *sides, estimator)
    assert report["mmd"]["squared"] == close(wanted)
    assert report["mmd"]["value"] == close(math.sqrt(max(wanted, 0)))
    assert report["groups"] == [{"name": "train", "size": 80}, {"name": "val", "size": 30}]
    assert report["split"] is None
    assert report["method"]["geometry"] == "exact"


def test_the_value_is_the_same_for_every_number_of_threads(mmd: MMD, sides: Any) -> None:
    call = ("feats.parquet", "--train", "a.npy", "--val", "b.txt", "--permutations", 50)
    first, second = (mmd(*call, "--threads", threads) for threads in (1, 3))
    assert first["pairs"] == second["pairs"]
    assert first["witness"] == second["witness"]


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--kernel", "linear"),
        ("--nystrom", "30"),
        ("--kernel", "polynomial", "--standardize", "zscore"),
        ("--gamma", "median", "--seed", "5"),
        ("--exclude", "domain=art", "--format", "parquet"),
    ],
)
def test_the_discrepancy_of_our_own_split_is_the_reports_to_the_last_digit(
    options: tuple[str, ...], mmd: MMD, split: Callable[..., Any], folder: Path
) -> None:
    assert split("feats.parquet", "--out", "run", *options).code == 0
    stated = json.loads((folder / "run" / "report.json").read_text())["mmd"]
    report = mmd("feats.parquet", "--split", "run")
    assert report["mmd"] == {"value": stated["value"], "squared": stated["squared"]}
    assert report["split"]["reused"]
    assert report["split"]["same_input"]
    assert report["method"]["geometry"] == stated["geometry"]
    assert not [warning for warning in report["warnings"] if warning["code"] == "not_as_reported"]
    exact = mmd("feats.parquet", "--split", "run", "--exact")
    assert exact["method"]["geometry"] in ("exact", "linear")
    if stated["geometry"] != "nystrom":
        assert exact["mmd"]["squared"] == pytest.approx(stated["squared"], rel=1e-5)
    else:
        assert exact["mmd"]["squared"] > stated["squared"] * (1 + 1e-6)  # landmarks see less


def test_printed_and_reported_discrepancies_have_the_same_digits(
    split: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = split("feats.parquet", "--out", "run").err
    assert run(["mmd", "feats.parquet", "--split", "run"]) == 0
    again = capsys.readouterr().err

    def number(text: str) -> str:
        (line,) = [line for line in text.splitlines() if line.startswith("MMD ")]
        return line.split()[1].rstrip(",")

    assert number(shown) == number(again)


def test_a_report_that_was_edited_is_noticed(mmd: MMD, split: Callable[..., Any], folder: Path) -> None:
    split("feats.parquet", "--out", "run")
    path = folder / "run" / "report.json"
    report = json.loads(path.read_text())
    report["mmd"]["value"] += 0.001
    path.write_text(json.dumps(report))
    warnings = {warning["code"] for warning in mmd("feats.parquet", "--split", "run")["warnings"]}
    assert "not_as_reported" in warnings


def test_a_report_whose_geometry_does_not_fit_is_measured_in_tiles(
    mmd: MMD, split: Callable[..., Any], folder: Path
) -> None:
    split("feats.parquet", "--out", "run")
    stated = json.loads((folder / "run" / "report.json").read_text())["mmd"]["value"]
    report = mmd("feats.parquet", "--split", "run", "--memory", "50.5MB", "--threads", 1)
    assert report["method"]["geometry"] == "exact"
    assert "other_geometry" in {warning["code"] for warning in report["warnings"]}
    assert report["mmd"]["value"] == pytest.approx(stated, rel=1e-5)


def test_other_features_than_the_splits_are_measured_and_said_to_be_others(
    mmd: MMD, split: Callable[..., Any], folder: Path, table: pa.Table
) -> None:
    split("feats.parquet", "--out", "run")
    changed = table.set_column(0, "f0", pa.array(table["f0"].to_numpy() * 2))
    pq.write_table(changed, folder / "other.parquet")
    report = mmd("other.parquet", "--split", "run")
    assert not report["split"]["same_input"]
    assert "other_features" in {warning["code"] for warning in report["warnings"]}


def test_options_given_beside_a_split_win_over_its_reports(mmd: MMD, split: Callable[..., Any]) -> None:
    split("feats.parquet", "--out", "run", "--kernel", "linear")
    report = mmd("feats.parquet", "--split", "run", "--kernel", "rbf", "--gamma", "0.5")
    assert report["kernel"] == {"name": "rbf", "gamma": 0.5, "degree": None, "standardize": "none"}
    assert not report["split"]["reused"]


def test_a_column_makes_the_matrix_between_its_groups(mmd: MMD, table: pa.Table) -> None:
    report = mmd("feats.parquet", "--by", "label")
    x = features(table)
    gamma = 1 / x.var(axis=0).sum()
    names = ["cat", "dog", "sea lion"]
    assert [group["name"] for group in report["groups"]] == names
    assert [(pair["first"], pair["second"]) for pair in report["pairs"]] == [
        ("cat", "dog"),
        ("cat", "sea lion"),
        ("dog", "sea lion"),
    ]
    for pair in report["pairs"]:
        groups = [rows_of(table, "label", pair[side]) for side in ("first", "second")]
        assert pair["squared"] == close(squared(x, gamma, *groups))
        assert pair["p_value"] is None
        assert pair["cells"] is None
    assert report["mmd"] is None
    assert report["witness"] is None


def test_files_are_compared_all_with_all(mmd: MMD, table: pa.Table, folder: Path) -> None:
    pieces = [np.arange(0, 50), np.arange(50, 90), np.arange(90, 120)]
    for name, rows in zip("abc", pieces, strict=True):
        part = table.take(rows)
        if name == "b":  # the order of columns in a file does not matter
            part = part.select(["domain", "f3", "f1", "f0", "f2", "label", "id"])
        pq.write_table(part, folder / f"{name}.parquet")
    report = mmd("a.parquet", "b.parquet", "c.parquet")
    x = features(table)
    gamma = 1 / x.var(axis=0).sum()
    assert report["kernel"]["gamma"] == close(gamma)
    wanted = [squared(x, gamma, pieces[i], pieces[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert [pair["squared"] for pair in report["pairs"]] == [close(value) for value in wanted]
    assert report["pairs"][0]["first"] == "a.parquet"
    assert len(report["input"]["files"]) == 3


def test_a_file_against_itself_is_at_distance_zero(mmd: MMD) -> None:
    report = mmd("feats.parquet", "feats.parquet")
    assert report["mmd"]["value"] < 1e-4
    assert [group["name"] for group in report["groups"]] == ["feats.parquet", "feats.parquet (2)"]


def test_files_whose_columns_have_other_names_are_matched_by_position(
    mmd: MMD, table: pa.Table, folder: Path
) -> None:
    np.save(folder / "same.npy", features(table).astype(np.float32))
    report = mmd("feats.parquet", "same.npy")
    assert report["mmd"]["value"] < 1e-4
    assert "columns_by_position" in {warning["code"] for warning in report["warnings"]}


def test_within_labels_a_difference_of_class_shares_is_no_shift(mmd: MMD, folder: Path) -> None:
    rng = np.random.default_rng(3)
    label = np.repeat([0, 1], [140, 260])
    x = rng.normal(size=(400, 4)) + 4 * label[:, None]
    domain = np.where(rng.random(400) < np.where(label == 1, 0.8, 0.2), "b", "a")
    columns = {f"f{i}": x[:, i] for i in range(4)}
    pq.write_table(pa.table({**columns, "label": label, "domain": domain}), folder / "x.parquet")
    apart = mmd("x.parquet", "--by", "domain", "--permutations", 99)
    inside = mmd("x.parquet", "--by", "domain", "--within", "label", "--permutations", 99)
    assert apart["pairs"][0]["p_value"] == 0.01
    assert inside["pairs"][0]["p_value"] > 0.05
    assert inside["mmd"]["value"] < apart["mmd"]["value"] / 2
    gamma = 1 / x.var(axis=0).sum()
    squares, sizes = [], []
    for cell, value in zip(inside["pairs"][0]["cells"], (0, 1), strict=True):
        groups = [np.flatnonzero((label == value) & (domain == name)) for name in "ab"]
        assert cell["cell"] == {"label": value}
        assert [cell["first_size"], cell["second_size"]] == [len(group) for group in groups]
        assert cell["squared"] == close(squared(x, gamma, *groups))
        assert 0.01 <= cell["p_value"] <= 1
        squares.append(cell["squared"])
        sizes.append(len(groups[0]) + len(groups[1]))
    assert inside["mmd"]["squared"] == pytest.approx(np.average(squares, weights=sizes), rel=1e-12)
    assert inside["within"] == ["label"]


def test_labels_are_matched_by_value_across_files(mmd: MMD, table: pa.Table, folder: Path) -> None:
    no_cats = table.filter(pa.array([label != "cat" for label in table["label"].to_pylist()]))
    pq.write_table(no_cats, folder / "rest.parquet")
    report = mmd("feats.parquet", "rest.parquet", "--within", "label")
    assert [cell["cell"]["label"] for cell in report["pairs"][0]["cells"]] == ["dog", "sea lion"]
    assert report["mmd"]["value"] < 1e-4
    (note,) = [warning for warning in report["warnings"] if warning["code"] == "cells_left_out"]
    assert "label=cat" in note["message"]


@pytest.fixture
def shifted(folder: Path) -> Path:
    """Three domains along a line: `far` is off by much."""
    rng = np.random.default_rng(4)
    domain = np.repeat(["near", "mid", "far"], 60)
    x = rng.normal(size=(180, 3)).astype(np.float32)
    x[:, 0] += np.repeat([0, 1, 6], 60)
    label = np.tile(["a", "b"], 90)
    columns = {f"f{i}": x[:, i] for i in range(3)}
    pq.write_table(pa.table({**columns, "label": label, "domain": domain}), folder / "x.parquet")
    np.save(folder / "near.npy", np.arange(60))
    np.save(folder / "mid.npy", np.arange(60, 120))
    np.save(folder / "far.npy", np.arange(120, 180))
    return folder


def test_an_evaluation_domain_is_taken_out_of_the_features(mmd: MMD, shifted: Path) -> None:
    call = ("x.parquet", "--train", "near.npy", "--val", "mid.npy", "--evaluation-domain", "far")
    report = mmd(*call)
    between, to_train, to_val = (pair["value"] for pair in report["pairs"])
    assert report["validity"] == {
        "valid": False,
        "train_val": between,
        "train_evaluation": to_train,
        "val_evaluation": to_val,
    }
    assert report["groups"][2] == {"name": "evaluation", "size": 60}
    table = pq.read_table(shifted / "x.parquet")
    x = np.column_stack([table[f"f{i}"].to_numpy() for i in range(3)]).astype(np.float64)
    wanted = squared(x, 1 / x.var(axis=0).sum(), np.arange(60), np.arange(120, 180))
    assert report["pairs"][1]["squared"] == close(wanted)
    failed = mmd(*call, "--fail-if-invalid", code=1)
    assert "worst-case check failed" in failed["stderr"].splitlines()[-1]


def test_an_evaluation_file_gives_the_same_numbers(mmd: MMD, shifted: Path) -> None:
    table = pq.read_table(shifted / "x.parquet")
    pq.write_table(table.slice(120), shifted / "e.parquet")
    call = ("x.parquet", "--train", "near.npy", "--val", "mid.npy")
    by_domain = mmd(*call, "--evaluation-domain", "far")
    by_file = mmd(*call, "--evaluation", "e.parquet")
    assert by_file["pairs"] == by_domain["pairs"]


def test_a_split_with_most_of_the_shift_between_its_sides_is_valid(mmd: MMD, shifted: Path) -> None:
    call = ("x.parquet", "--train", "near.npy", "--val", "far.npy", "--evaluation-domain", "mid")
    report = mmd(*call, "--fail-if-invalid")
    assert report["validity"]["valid"]


def test_a_split_closer_than_one_side_is_to_evaluation_is_not_valid(mmd: MMD, shifted: Path) -> None:
    report = mmd("x.parquet", "--train", "mid.npy", "--val", "far.npy", "--evaluation-domain", "near")
    found = report["validity"]
    assert found["train_evaluation"] < found["train_val"] < found["val_evaluation"]
    assert not found["valid"]


def test_our_split_without_a_domain_is_compared_with_that_domain(
    mmd: MMD, split: Callable[..., Any], shifted: Path
) -> None:
    options = ("--exclude", "domain=far", "--standardize", "zscore")
    assert split("x.parquet", "--out", "run", *options).code == 0
    stated = json.loads((shifted / "run" / "report.json").read_text())["mmd"]["value"]
    report = mmd("x.parquet", "--split", "run", "--evaluation-domain", "far", "--permutations", 20)
    # Width and standardization are the split's own: the evaluation rows must not move them.
    assert report["mmd"]["value"] == stated
    assert [group["size"] for group in report["groups"]] == [96, 24, 60]
    table = pq.read_table(shifted / "x.parquet")
    x = np.column_stack([table[f"f{i}"].to_numpy() for i in range(3)]).astype(np.float64)
    x = (x - x[:120].mean(axis=0)) / x[:120].std(axis=0)
    train = np.load(shifted / "run" / "train.npy")
    wanted = squared(x, report["kernel"]["gamma"], train, np.arange(120, 180))
    assert report["pairs"][1]["squared"] == close(wanted)
    assert report["permutations"] == {"n": 20, "descriptive": True}
    assert "descriptive" in report["stderr"]
    for pair in report["pairs"]:
        assert pair["p_value"] >= 1 / 21


def test_p_values_of_a_random_baseline_are_not_called_descriptive(mmd: MMD, folder: Path) -> None:
    assert run(["baseline", "random", "feats.parquet", "--out", "run", "-q"]) == 0
    report = mmd("feats.parquet", "--split", "run", "--permutations", 39)
    assert report["permutations"] == {"n": 39, "descriptive": False}
    assert report["mmd"]["value"] == json.loads((folder / "run" / "report.json").read_text())["mmd"]["value"]


def test_the_witness_file_holds_every_row_and_the_json_its_ends(
    mmd: MMD, table: pa.Table, sides: tuple[Array, Array], folder: Path
) -> None:
    call = ("feats.parquet", "--train", "a.npy", "--val", "b.txt", "--witness", "w.parquet")
    report = mmd(*call)
    written = pq.read_table(folder / "w.parquet")
    assert written.column_names == ["group", "row", "witness"]
    group, row = written["group"].to_pylist(), written["row"].to_numpy()
    train, val = sides
    assert sorted(row.tolist()) == sorted([*train, *val])
    assert {r: g for g, r in zip(group, row.tolist(), strict=True)} == {
        **dict.fromkeys(train.tolist(), "train"),
        **dict.fromkeys(val.tolist(), "val"),
    }
    x, gamma = features(table), report["kernel"]["gamma"]

    def mean(rows: Array, others: Array) -> Array:
        return np.exp(-gamma * ((x[rows][:, None] - x[others][None]) ** 2).sum(axis=2)).mean(axis=1)

    values = written["witness"].to_numpy()
    np.testing.assert_allclose(values, mean(row, val) - mean(row, train), atol=1e-6)
    ends = report["witness"]
    assert [end["value"] for end in ends["largest"]] == sorted(values, reverse=True)[:5]
    assert [end["value"] for end in ends["smallest"]] == sorted(values)[:5]
    assert all(values[row.tolist().index(end["row"])] == end["value"] for end in ends["largest"])
    assert f"wrote {'w.parquet'}" in report["stderr"]


def test_the_witness_file_is_replaced_only_by_force(
    refused: Callable[..., tuple[str, str]], mmd: MMD, sides: Any, folder: Path
) -> None:
    call = ("feats.parquet", "--train", "a.npy", "--val", "b.txt", "--witness", "w.parquet")
    mmd(*call)
    before = (folder / "w.parquet").read_bytes()
    error, hint = refused(*call)
    assert error == "w.parquet exists already"
    assert "--force" in hint
    mmd(*call, "--force")
    assert (folder / "w.parquet").read_bytes() == before
    assert "is, or holds, the input" in refused(*call[:-1], "feats.parquet", "--force")[0]


def test_the_columns_that_moved_most_come_first(mmd: MMD, shifted: Path) -> None:
    report = mmd("x.parquet", "--train", "near.npy", "--val", "far.npy")
    assert report["columns"][0]["column"] == "f0"
    table = pq.read_table(shifted / "x.parquet")
    column = table["f0"].to_numpy().astype(np.float64)
    both = np.concatenate([column[:60], column[120:]])
    wanted = (column[120:].mean() - column[:60].mean()) / both.std()
    assert report["columns"][0]["difference"] == pytest.approx(wanted, rel=1e-6)
    assert len(report["columns"]) == 3


def test_list_columns_have_no_column_names_to_show(mmd: MMD, folder: Path) -> None:
    shutil.copy(ROOT / "sample_data" / "gas_list.parquet", folder / "lists.parquet")
    np.save(folder / "a.npy", np.arange(1000))
    np.save(folder / "b.npy", np.arange(1000, 2061))
    report = mmd("lists.parquet", "--train", "a.npy", "--val", "b.npy", "--standardize", "zscore")
    assert report["columns"] is None
    assert report["witness"] is not None


def test_gates_end_with_one_line_why_and_exit_code_one(
    mmd: MMD, sides: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ("feats.parquet", "--train", "a.npy", "--val", "b.txt")
    value = mmd(*call)["mmd"]["value"]
    assert mmd(*call, "--fail-above", value, "--fail-below", value)["mmd"]["value"] == value
    for option, limit, word in (("--fail-above", value / 2, "above"), ("--fail-below", value * 2, "below")):
        last = mmd(*call, option, limit, code=1)["stderr"].splitlines()[-1]
        assert last.startswith("error: the MMD of train and val is ")
        assert f", {word} the {limit:g} of {option}" in last
    capsys.readouterr()
    assert run(["mmd", *call, "--fail-above", "0", "--quiet"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1


def test_p_values_below_a_level_fail(mmd: MMD, shifted: Path) -> None:
    call = ("x.parquet", "--by", "domain", "--permutations", "99")
    smallest = min(pair["p_value"] for pair in mmd(*call)["pairs"])
    assert smallest == 0.01  # 1 / (1 + 99)
    said = mmd(*call, "--fail-p", "0.05", code=1)["stderr"].splitlines()[-1]
    assert said.startswith("error: the p-value of the MMD of ") and "is 0.01, below the 0.05" in said
    assert mmd("x.parquet", "x.parquet", *call[3:], "--fail-p", "0.05")["pairs"][0]["p_value"] > 0.05


def test_a_multiple_of_the_random_mean_is_a_gate(mmd: MMD, shifted: Path) -> None:
    call = ("x.parquet", "--by", "domain", "--permutations", "50")
    pairs = mmd(*call)["pairs"]
    least = min(pair["value"] / pair["random_mean"] for pair in pairs)
    assert least > 1
    assert mmd(*call, "--fail-below-random", least * 0.999)["pairs"] == pairs
    said = mmd(*call, "--fail-below-random", least * 1.001, code=1)["stderr"].splitlines()[-1]
    assert "times the random mean" in said


def test_the_random_mean_of_a_split_is_that_of_its_report(mmd: MMD, folder: Path) -> None:
    assert run(["split", "feats.parquet", "--effort", "fast", "--nystrom", "30", "--out", "run", "-q"]) == 0
    stated = json.loads((folder / "run" / "report.json").read_text())
    times = stated["mmd"]["value"] / stated["baselines"]["random"]["mmd_mean"]
    for engine in ("local", "stream"):
        call = ("feats.parquet", "--split", "run", "--engine", engine)
        assert mmd(*call, "--fail-below-random", times * 0.999)["split"]["random_mean"] > 0
        assert "times the random mean" in mmd(*call, "--fail-below-random", times * 1.01, code=1)["stderr"]
    assert run(["mmd", "feats.parquet", "--split", "run", "--gamma", "1", "--fail-below-random", "3"]) == 2


def test_gates_look_at_every_pair_of_groups(mmd: MMD, shifted: Path) -> None:
    report = mmd("x.parquet", "--by", "domain")
    values = sorted(pair["value"] for pair in report["pairs"])
    middle = (values[0] + values[1]) / 2
    assert "of mid and near" in mmd("x.parquet", "--by", "domain", "--fail-below", middle, code=1)["stderr"]
    assert "above" in mmd("x.parquet", "--by", "domain", "--fail-above", middle, code=1)["stderr"]


def test_the_unbiased_estimate_of_a_single_row_is_null_and_fails_gates(mmd: MMD, folder: Path) -> None:
    np.save(folder / "a.npy", np.array([3]))
    np.save(folder / "b.npy", np.arange(10, 40))
    call = ("feats.parquet", "--train", "a.npy", "--val", "b.npy", "--estimator", "unbiased")
    report = mmd(*call, "--permutations", 5)
    assert report["mmd"] == {"value": None, "squared": None}
    assert report["pairs"][0]["p_value"] is None
    assert "undefined" in {warning["code"] for warning in report["warnings"]}
    assert "is undefined" in mmd(*call, "--fail-below", "0", code=1)["stderr"]


def test_permutations_depend_on_the_seed_alone(mmd: MMD, sides: Any) -> None:
    call = ("feats.parquet", "--train", "a.npy", "--val", "b.txt", "--permutations", 200)
    one, again, other = (mmd(*call, "--seed", seed)["pairs"][0]["p_value"] for seed in (0, 0, 1))
    assert one == again
    assert one != other
    assert one * 201 == pytest.approx(round(one * 201))


def test_long_sums_are_approximated_and_that_is_said(mmd: MMD, folder: Path) -> None:
    rng = np.random.default_rng(1)
    np.save(folder / "a.npy", rng.normal(size=(3000, 3)).astype(np.float32))
    np.save(folder / "b.npy", rng.normal(size=(3000, 3)).astype(np.float32) + 0.3)
    call = ("a.npy", "b.npy", "--permutations", 300_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clustersplit_cli.engines.plan.LONGEST", 0.001)
        report = mmd(*call[:2])
    assert report["method"]["geometry"] == "nystrom"
    assert report["method"]["landmarks"] == 2000
    (note,) = [warning for warning in report["warnings"] if warning["code"] == "nystrom"]
    assert "--exact" in note["message"]
    exact = mmd(*call[:2], "--exact")
    assert exact["method"]["geometry"] == "exact"
    assert report["mmd"]["squared"] == pytest.approx(exact["mmd"]["squared"], rel=1e-3)


def test_companions_and_their_columns_serve_as_in_split(mmd: MMD, folder: Path) -> None:
    for name in ("gas.npy", "gas_label.npy", "gas_domain.npy"):
        shutil.copy(ROOT / "sample_data" / name, folder / name)
    companions = ("--label-file", "gas_label.npy", "--domain-file", "gas_domain.npy")
    arrays = mmd("gas.npy", "--by", "domain", "--within", "label", "--standardize", "zscore", *companions)
    table = mmd(SAMPLE, "--by", "domain", "--within", "label", "--standardize", "zscore")
    assert arrays["pairs"] == table["pairs"]


@pytest.mark.parametrize(
    ("arguments", "said", "helps"),
    [
        (("feats.parquet",), "nothing to compare feats.parquet with", "--split"),
        (("feats.parquet", "--train", "a.npy"), "--val is missing", "both"),
        (("feats.parquet", "--by", "label", "--split", "run"), "--split and --by cannot be combined", "one"),
        (("feats.parquet", "feats.parquet", "--by", "label"), "--by and several files", "one"),
        (("feats.parquet", "--by", "lable"), "there is no column 'lable'", "closest: 'label'"),
        (("feats.parquet", "--by", "id"), "column 'id' has 120", None),
        (("feats.parquet", "--by", "label", "--within", "label"), "--by and --within both name", "another"),
        (("feats.parquet", "--by", "label", "--within", "label,,x"), "empty or repeated", "--within label"),
        (("feats.parquet", "--by", "label", "--evaluation", "x"), "is for the sides of a split", "--train"),
        (
            ("feats.parquet", "--by", "label", "--target", "x"),
            "--target is for the sides of a split",
            "--train",
        ),
        (("feats.parquet", "--by", "label", "--fail-if-invalid"), "needs an evaluation set", "--evaluation"),
        (("feats.parquet", "--by", "label", "--fail-above", "-1"), "--fail-above '-1' is no MMD", "0.1"),
        (("feats.parquet", "--by", "label", "--fail-above", "x"), "--fail-above 'x' is no MMD", "0.1"),
        (("feats.parquet", "--by", "label", "--fail-p", "2"), "'2' is no level", "--fail-p 0.05"),
        (("feats.parquet", "--by", "label", "--fail-p", "0.05"), "needs permutations", "--permutations 1000"),
        (
            ("feats.parquet", "--by", "label", "--fail-p", "0.05", "--permutations", "19"),
            "with 19 no p-value is below it",
            "--permutations 1000",
        ),
        (("feats.parquet", "--by", "label", "--fail-below-random", "3"), "needs random regroupings", "100"),
        (
            ("feats.parquet", "--by", "label", "--fail-above", "1", "--fail-below", "2"),
            "no MMD is at least 2 and at most 1",
            "--fail-below",
        ),
        (("feats.parquet", "--by", "label", "--estimator", "best"), "'best' is unknown", "biased, unbiased"),
        (("feats.parquet", "--by", "label", "--permutations", "-1"), "at least 0", "1000"),
        (("feats.parquet", "--by", "label", "--permutations", "many"), "not an integer", "1000"),
        (("feats.parquet", "--by", "label", "--exact", "--nystrom", "5"), "contradict", "one of them"),
        (("feats.parquet", "--by", "label", "--kernel", "cubic"), "--kernel 'cubic' is unknown", "rbf"),
        (("feats.parquet", "--by", "label", "--witness", "w"), "but there are 3", "two files"),
        (("feats.parquet", "--by", "label", "--memory", "1MB"), "more than the budget", "--memory"),
        (("feats.parquet", "--split", "nowhere"), "nowhere does not exist", "report.json"),
        (("feats.parquet", "--split", "."), ". has no report.json", "report.json"),
        (("nowhere.parquet", "--by", "label"), "nowhere.parquet does not exist", None),
        (("feats.parquet", "feats.parquet", "--metadata", "x"), "belong to one file", "columns"),
    ],
)
def test_bad_usage_is_one_line_and_a_cure(
    arguments: tuple[str, ...], said: str, helps: str | None, refused: Callable[..., tuple[str, str]]
) -> None:
    if said.startswith("column 'id'"):
        pytest.MonkeyPatch().setattr("clustersplit_cli.pipeline.mmd.groups.MOST_GROUPS", 100)
    error, hint = refused(*arguments)
    assert said in error
    assert (helps or "") in hint


@pytest.mark.parametrize(
    ("train", "val", "said"),
    [
        ([0, 1, 120], [2], "1 train rows are not among the 120 rows of the features: 120"),
        ([0, -1], [2], "not among the 120 rows of the features: -1"),
        ([0, 1, 1], [2], "1 train rows are listed more than once: 1"),
        ([0, 1], [1, 2], "1 rows are in both train and val: 1"),
        ([], [1, 2], "there are no train rows"),
    ],
)
def test_index_files_that_make_no_split_are_refused(
    train: list[int], val: list[int], said: str, refused: Callable[..., tuple[str, str]], folder: Path
) -> None:
    np.save(folder / "a.npy", np.array(train, np.int64))
    np.save(folder / "b.npy", np.array(val, np.int64))
    assert said in refused("feats.parquet", "--train", "a.npy", "--val", "b.npy")[0]


def test_rows_that_were_excluded_cannot_be_on_a_side(
    refused: Callable[..., tuple[str, str]], sides: Any
) -> None:
    call = ("feats.parquet", "--train", "a.npy", "--val", "b.txt", "--exclude", "domain=art")
    assert "were left out by --exclude" in refused(*call)[0]


def test_an_evaluation_domain_must_exist_and_be_on_no_side(
    refused: Callable[..., tuple[str, str]], sides: Any
) -> None:
    call = ("feats.parquet", "--train", "a.npy", "--val", "b.txt", "--evaluation-domain")
    error, hint = refused(*call, "arts")
    assert "no row has the domain 'arts'" in error
    assert "art, photo" in hint
    error, hint = refused(*call, "art")
    assert "rows of the evaluation domain 'art' are in train or val" in error
    assert "--exclude domain=art" in hint


def test_files_with_other_numbers_of_features_are_refused(
    refused: Callable[..., tuple[str, str]], folder: Path
) -> None:
    np.save(folder / "wide.npy", np.random.default_rng(0).normal(size=(9, 7)))
    error, hint = refused("feats.parquet", "wide.npy")
    assert error == "wide.npy has 7 features but feats.parquet has 4"
    assert "--columns" in hint


def shell(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in bash with pipefail, with `clustersplit` being this one."""
    program = f"clustersplit() {{ '{sys.executable}' -m clustersplit_cli \"$@\"; }}\nset -o pipefail\n"
    return subprocess.run(
        ["bash", "-c", program + script], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_pipelines_get_numbers_and_exit_codes(folder: Path) -> None:
    read = f"'{sys.executable}' -c 'import json, sys; print(json.load(sys.stdin)[\"mmd\"][\"value\"])'"
    made = shell(folder, f"clustersplit split feats.parquet --out run --json --quiet | {read}")
    assert (made.returncode, made.stderr) == (0, "")
    again = shell(folder, f"clustersplit mmd feats.parquet --split run --json --quiet | {read}")
    assert (again.returncode, again.stdout) == (0, made.stdout)
    value = float(made.stdout)
    gate = "clustersplit mmd feats.parquet --split run --quiet --fail-below"
    assert shell(folder, f"{gate} {value}").returncode == 0
    failed = shell(folder, f"{gate} {value + 0.01} --json | {read}")
    assert failed.returncode == 1
    assert failed.stdout == made.stdout  # the numbers come all the same
    assert failed.stderr.startswith("error: the MMD of train and val is ")


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_jq_reads_the_value(folder: Path) -> None:
    found = shell(folder, "clustersplit split feats.parquet --out run --json -q | jq .mmd.value")
    assert found.returncode == 0
    assert float(found.stdout) > 0


def test_a_reader_that_leaves_early_ends_the_command_quietly(folder: Path) -> None:
    found = shell(folder, "clustersplit mmd feats.parquet --by domain --json --quiet | head -1")
    assert (found.returncode, found.stdout, found.stderr) == (0, "{\n", "")
