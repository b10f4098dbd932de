"""The constraints real projects have, from the command line to the files, the report and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.reports.json_report import report_schema

Said = tuple[int, str]
Call = Callable[..., Said]


def report(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(out, "report.json").read_text())
    jsonschema.validate(found, report_schema())
    return found


def rows(*path: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.load(Path(*path))


def column(name: str) -> np.ndarray[Any, Any]:
    return np.array(pq.read_table("feats.parquet")[name].to_pylist())


def counts(values: np.ndarray[Any, Any], chosen: np.ndarray[Any, Any]) -> dict[Any, int]:
    return {value: int((values[chosen] == value).sum()) for value in np.unique(values).tolist()}


def passes(call: Call, out: str, *words: str) -> None:
    code, said = call("verify", out, *words)
    assert code == 0, said


@pytest.mark.parametrize(
    "families", [("label", "domain"), ("label", "domain", "site"), ("label,site", "none")]
)
def test_several_families_each_keep_their_totals(call: Call, families: tuple[str, ...]) -> None:
    words = [word for family in families for word in ("--stratify", family)]
    code, said = call("split", *words, "--out", "run")
    assert code == 0, said
    found = report("run")
    assert found["config"]["stratify"] == list(families)
    constraints = found["constraints"]
    assert constraints["families"] == list(families)
    assert constraints["all_satisfied"]
    assert constraints["rounding"] == "balanced"
    integral = "total_unimodularity" if len(families) == 2 else "branch_and_bound"
    assert constraints["integral_by"] == integral
    assert found["sizes"]["val"] == 24
    if "domain" in families:
        wanted = {
            cell["cell"]["domain"]: cell["target"]
            for cell in constraints["cells"]
            if "domain" in cell["cell"]
        }
        assert counts(column("domain"), rows("run", "val.npy")) == wanted
    assert found["certificate"]["status"] == "optimal"
    assert found["search"]["programs"]["solved"] > 0
    passes(call, "run", "--rerun")


def test_several_families_replay_to_the_same_rows(call: Call) -> None:
    assert call("split", "--stratify", "label", "--stratify", "domain", "--out", "first")[0] == 0
    assert call("split", "--config", "first/report.json", "--out", "again")[0] == 0
    np.testing.assert_array_equal(rows("first", "val.npy"), rows("again", "val.npy"))
    assert report("first")["config"] == report("again")["config"]


def test_nearest_rounding_of_families_that_differ_in_total_is_infeasible(call: Call) -> None:
    words = ("--stratify", "label", "--stratify", "site", "--rounding", "nearest", "--h", "0.21")
    code, said = call("split", *words)
    assert code == 3
    assert "validation rows, but those of" in said
    assert "--rounding balanced" in said
    assert not Path("feats_split").exists()


def test_units_stay_whole(call: Call) -> None:
    code, said = call("split", "--keep-together", "patient", "--tolerance", "auto", "--out", "run")
    assert code == 0, said
    patient, val = column("patient"), rows("run", "val.npy")
    inside = np.isin(np.arange(120), val)
    assert not set(patient[inside]) & set(patient[~inside])
    found = report("run")["constraints"]
    assert found["units"] == {"column": "patient", "count": 60, "largest": 2, "divided": 0}
    assert found["tolerance"]["was_found"]
    assert found["tolerance"]["proven_smallest"]
    assert found["all_satisfied"]
    assert "60 kept whole" in said
    passes(call, "run", "--rerun")


def test_identical_rows_stay_together(call: Call) -> None:
    assert call("split", "--keep-together", "exact-duplicates", "--tolerance", "auto", "--out", "run")[0] == 0
    inside = np.isin(np.arange(120), rows("run", "val.npy"))
    np.testing.assert_array_equal(inside[::10], inside[1::10])
    assert report("run")["constraints"]["units"]["count"] == 108
    passes(call, "run")


def test_verify_finds_a_unit_that_was_divided(call: Call) -> None:
    assert call("split", "--keep-together", "patient", "--tolerance", "auto", "--out", "run")[0] == 0
    patient, val, train = column("patient"), rows("run", "val.npy"), rows("run", "train.npy")
    label = column("label")
    swap = next(row for row in train if label[row] == label[val[0]] and patient[row] != patient[val[0]])
    np.save("run/val.npy", np.sort(np.append(val[1:], swap)))
    np.save("run/train.npy", np.sort(np.append(train[train != swap], val[0])))
    code, said = call("verify", "run")
    assert code == 1
    assert "failed  units whole" in said


def test_units_that_cannot_meet_a_tolerance_name_the_smallest_that_would_do(call: Call) -> None:
    table = pq.read_table("feats.parquet")
    whole = pa.array(np.repeat(np.arange(8), 15))
    pq.write_table(table.append_column("batch", whole), "feats.parquet")
    code, said = call("split", "--keep-together", "batch", "--stratify", "none")
    assert code == 3
    assert "all rows needs 24 validation rows, which no choice of whole units gives" in said
    assert "--tolerance 0.229167 (the smallest that can be met)" in said
    assert call("split", "--keep-together", "batch", "--stratify", "none", "--tolerance", "0.229167")[0] == 0
    assert report("feats_split")["sizes"]["val"] == 30


def test_forced_rows_are_where_they_were_forced(call: Call) -> None:
    np.save("train.npy", np.array([3, 4]))
    Path("val.txt").write_text("0\n1\n")
    code, said = call("split", "--force-train", "train.npy", "--force-val", "val.txt", "--out", "run")
    assert code == 0, said
    assert set(rows("run", "val.npy")) >= {0, 1}
    assert set(rows("run", "train.npy")) >= {3, 4}
    found = report("run")
    assert found["constraints"]["pinned"] == {"train": 2, "val": 2, "satisfied": True}
    assert found["constraints"]["all_satisfied"]
    assert [file["role"] for file in found["input"]["files"]] == ["features", "force-train", "force-val"]
    assert found["bound"] is not None
    passes(call, "run", "--rerun")


def test_rows_are_forced_by_id_too(call: Call) -> None:
    Path("val.txt").write_text("row 7\nrow 9\n")
    assert (
        call("split", "--id", "id", "--force-val", "val.txt", "--stratify", "domain", "--out", "run")[0] == 0
    )
    assert set(rows("run", "val.npy")) >= {7, 9}
    Path("val.txt").write_text("row 700\n")
    code, said = call("split", "--id", "id", "--force-val", "val.txt", "--out", "other")
    assert code == 2
    assert "ids that column 'id' has not: row 700" in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--force-val", "bad.npy"), "outside 0..119: 120"),
        (("--force-val", "ok.npy", "--force-train", "ok.npy"), "forced to both sides: 0"),
        (("--force-val", "ok.npy", "--exclude", "label=cat"), "forces rows that are excluded: 0"),
    ],
)
def test_rows_that_cannot_be_forced_are_named(call: Call, words: tuple[str, ...], expected: str) -> None:
    np.save("bad.npy", np.array([120]))
    np.save("ok.npy", np.array([0]))
    code, said = call("split", *words)
    assert code == 2
    assert expected in said


def test_more_forced_rows_than_a_cell_may_have_are_infeasible(call: Call) -> None:
    np.save("val.npy", np.flatnonzero(column("label") == "dog")[:12])
    code, said = call("split", "--stratify", "label", "--force-val", "val.npy")
    assert code == 3
    assert "label=dog allows 8 validation rows but 12 of its rows are forced" in said
    assert "--tolerance 'label=dog=0.4375' (12 validation rows)" in said
    words = ("--force-val", "val.npy", "--tolerance", "label=dog=0.4375")
    assert call("split", "--stratify", "label", *words)[0] == 0


def test_a_cell_may_have_a_tolerance_of_its_own(call: Call) -> None:
    words = ("--stratify", "label", "--tolerance", "0", "--tolerance", "label=dog=0.5", "--out", "run")
    assert call("split", *words)[0] == 0
    found = report("run")
    reach = {cell["cell"]["label"]: (cell["lower"], cell["upper"]) for cell in found["constraints"]["cells"]}
    assert reach == {"cat": (8, 8), "dog": (4, 12), "cow": (8, 8)}
    assert found["config"]["tolerance"] == ["0", "label=dog=0.5"]
    assert call("split", "--config", "run/report.json", "--out", "again")[0] == 0
    np.testing.assert_array_equal(rows("run", "val.npy"), rows("again", "val.npy"))
    passes(call, "run")


def test_numbers_are_cut_into_bins_of_equal_size(call: Call) -> None:
    assert call("split", "--label", "age", "--label-bins", 4, "--stratify", "label", "--out", "run")[0] == 0
    cells = report("run")["constraints"]["cells"]
    assert [cell["size"] for cell in cells] == [30] * 4
    assert [cell["actual"] for cell in cells] == [6] * 4
    ages = column("age")
    quarter = ages <= np.sort(ages)[29]
    assert quarter[rows("run", "val.npy")].sum() == 6
    passes(call, "run")


def test_bins_of_words_are_refused(call: Call) -> None:
    code, said = call("split", "--label-bins", 4)
    assert code == 2
    assert "column 'label' holds string, and --label-bins cuts numbers" in said


def test_folds_share_every_cell_and_hold_every_row_once(call: Call) -> None:
    code, said = call("kfold", "--k", 4, "--id", "id", "--format", "npy", "--format", "txt")
    assert code == 0, said
    out = "feats_folds"
    folds = rows(out, "folds.npy")
    assert np.bincount(folds).tolist() == [30] * 4
    cell = np.char.add(column("label").astype(str), column("domain").astype(str))
    for name in np.unique(cell):
        assert np.ptp(np.bincount(folds[cell == name], minlength=4)) <= 1
    for fold in range(4):
        np.testing.assert_array_equal(rows(out, f"fold_{fold}", "val.npy"), np.flatnonzero(folds == fold))
        np.testing.assert_array_equal(rows(out, f"fold_{fold}", "train.npy"), np.flatnonzero(folds != fold))
        ids = Path(out, f"fold_{fold}", "val_ids.txt").read_text().split("\n")[:-1]
        assert ids == [f"row {row}" for row in np.flatnonzero(folds == fold)]
    found = report(out)
    assert found["config"]["k"] == 4
    parts = found["parts"]
    matrix = np.array(parts["mmd"])
    assert matrix.shape == (4, 4)
    assert (matrix.diagonal() == 0).all()
    np.testing.assert_allclose(matrix, matrix.T)
    assert all(part["mmd_rest"] > 0 for part in parts["parts"])
    assert found["objective"]["identity_residual"] < 1e-9
    assert found["constraints"]["integral_by"] == "total_unimodularity"
    assert len(found["constraints"]["cells"]) == 4 * len(np.unique(cell))
    assert found["sizes"] == {"train": None, "val": None}
    assert found["certificate"]["status"] == "optimal"
    passes(call, out, "--rerun")


def test_folds_replay_and_replace_earlier_ones(call: Call) -> None:
    assert call("kfold", "--k", 3, "--out", "first")[0] == 0
    assert call("kfold", "--config", "first/report.json", "--out", "again")[0] == 0
    np.testing.assert_array_equal(rows("first", "folds.npy"), rows("again", "folds.npy"))
    assert call("kfold", "--k", 2, "--out", "first")[0] == 2
    assert call("kfold", "--k", 2, "--out", "first", "--force")[0] == 0
    assert not Path("first", "fold_2").exists()
    Path("first", "fold_1", "mine.md").write_text("notes")
    code, said = call("kfold", "--k", 2, "--out", "first", "--force")
    assert code == 2
    assert "holds things that no run wrote: fold_1" in said


def test_rows_left_out_are_in_no_fold(call: Call) -> None:
    assert call("kfold", "--k", 2, "--exclude", "label=cow", "--annotate", "rows.parquet")[0] == 0
    folds = rows("feats_folds", "folds.npy")
    np.testing.assert_array_equal(folds == -1, column("label") == "cow")
    named = np.array(pq.read_table("rows.parquet")["split"].to_pylist())
    assert set(named) == {"fold_0", "fold_1", "excluded"}
    passes(call, "feats_folds")


def test_verify_finds_folds_that_do_not_agree(call: Call) -> None:
    assert call("kfold", "--k", 3, "--out", "run")[0] == 0
    train = rows("run", "fold_1", "train.npy")
    np.save("run/fold_1/train.npy", train[1:])
    code, said = call("verify", "run")
    assert code == 1
    assert "fold_1/train.npy is not what the other folds are" in said
    np.save("run/fold_1/train.npy", train)
    first, second = rows("run", "fold_0", "val.npy"), rows("run", "fold_1", "val.npy")
    np.save("run/fold_0/val.npy", np.append(first, second[0]))
    code, said = call("verify", "run")
    assert code == 1
    assert "failed  parts disjoint" in said


@pytest.mark.parametrize("words", [("--k", 1), ("--k", "many"), ("--k", 500), ("--k", 3, "--out", "-")])
def test_folds_that_cannot_be_made_are_refused(call: Call, words: tuple[object, ...]) -> None:
    code, said = call("kfold", *words)
    assert code in (2, 3)
    assert said.startswith("error: ")
    assert "Traceback" not in said


def test_folds_keep_one_family(call: Call) -> None:
    code, said = call("kfold", "--stratify", "label", "--stratify", "domain")
    assert code == 2
    assert "2 families of cells cannot be kept by folds" in said


def test_named_parts_have_their_shares_and_files(call: Call) -> None:
    code, said = call("split", "--parts", "train=0.7,val=0.15,test=0.15", "--out", "run")
    assert code == 0, said
    parts = {name: rows("run", f"{name}.npy") for name in ("train", "val", "test")}
    assert [len(part) for part in parts.values()] == [84, 18, 18]
    assert sorted(np.concatenate(list(parts.values()))) == list(range(120))
    found = report("run")
    assert found["sizes"] == {"train": 84, "val": 18}
    assert [part["name"] for part in found["parts"]["parts"]] == ["train", "val", "test"]
    assert found["constraints"]["all_satisfied"]
    assert found["config"]["parts"] == "train=0.7,val=0.15,test=0.15"
    assert "test " in said
    passes(call, "run", "--rerun")
    assert call("split", "--config", "run/report.json", "--out", "again")[0] == 0
    np.testing.assert_array_equal(parts["test"], rows("again", "test.npy"))


def test_parts_heed_forced_rows_and_tolerances(call: Call) -> None:
    np.save("val.npy", np.array([0, 1, 2]))
    words = ("--parts", "train=0.6,val=0.2,rest=0.2", "--stratify", "label", "--tolerance", "0.25")
    assert call("split", *words, "--force-val", "val.npy", "--out", "run")[0] == 0
    assert set(rows("run", "val.npy")) >= {0, 1, 2}
    assert report("run")["constraints"]["pinned"] == {"train": 0, "val": 3, "satisfied": True}
    passes(call, "run")


@pytest.mark.parametrize(
    "words",
    [
        ("--keep-together", "patient", "--solver", "cbc"),
        ("--rounding", "nearest"),
        ("--h", "0.2"),
        ("--bound", "always"),
        ("--bound", "tight"),
        ("--out", "-", "--format", "txt"),
        ("--stratify", "label", "--stratify", "domain"),
    ],
)
def test_options_that_parts_do_not_have_are_refused(call: Call, words: tuple[str, ...]) -> None:
    code, said = call("split", "--parts", "a=0.5,b=0.5", *words)
    assert code == 2
    assert said.startswith("error: ")


def test_parts_and_folds_of_whole_units_pass_their_verification(call: Call) -> None:
    together = ("--keep-together", "patient", "--tolerance", "auto", "--restarts", "3", "--stratify", "label")
    assert call("kfold", "--k", "3", *together, "--out", "folds")[0] == 0
    assert call("split", "--parts", "a=0.5,b=0.3,c=0.2", *together, "--out", "parts")[0] == 0
    patient = pq.read_table("feats.parquet")["patient"].to_numpy(zero_copy_only=False)
    for name, number in (("folds", 3), ("parts", 3)):
        found = report(name)["constraints"]
        assert found["units"]["divided"] == 0
        assert found["all_satisfied"]
        assert len(report(name)["parts"]["parts"]) == number
        passes(call, name, "--rerun")
    fold = np.load("folds/folds.npy")
    assert all(len(set(fold[patient == unit].tolist())) == 1 for unit in set(patient.tolist()))
    moved = np.load("folds/fold_0/val.npy")
    np.save("folds/fold_0/val.npy", moved[1:])
    code, said = call("verify", "folds")
    assert code == 1, said


RECORDINGS = 60, 55, 18, 21, 20, 15, 21, 21, 21, 9, 14, 16


def write_recordings() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Two long recordings make up one label: the smallest tolerance is large, the other label has room."""
    rng = np.random.default_rng(4)
    recording = np.repeat(np.arange(len(RECORDINGS)), RECORDINGS)
    label = np.where(recording < 2, "rare", "frequent")
    features = rng.normal(size=(len(recording), 3)) + 3 * rng.normal(size=(len(RECORDINGS), 3))[recording]
    columns = {f"f{column}": features[:, column] for column in range(3)}
    pq.write_table(pa.table({**columns, "label": label, "recording": recording}), "feats.parquet")
    return label, recording


def test_within_the_smallest_tolerance_the_total_is_as_near_as_can_be(call: Call) -> None:
    label, recording = write_recordings()
    together = ("--keep-together", "recording", "--tolerance", "auto")
    code, said = call("split", *together, "--out", "run")
    assert code == 0, said
    found = report("run")
    cells = {cell["cell"]["label"]: cell for cell in found["constraints"]["cells"]}
    nearest = min(
        abs(int(chosen.sum()) - 0.2 * len(label))
        for units in product([False, True], repeat=len(RECORDINGS))
        for chosen in [np.array(units)[recording]]
        if all(
            cell["lower"] <= int(chosen[label == name].sum()) <= cell["upper"] for name, cell in cells.items()
        )
    )
    assert found["constraints"]["tolerance"]["proven_smallest"]
    assert abs(found["sizes"]["val"] - 0.2 * len(label)) == pytest.approx(nearest)
    assert found["constraints"]["all_satisfied"] and found["certificate"]["status"] == "optimal"
    passes(call, "run", "--rerun")


def test_what_a_solver_prints_by_itself_is_not_in_the_json(process: Callable[..., Any]) -> None:
    write_recordings()
    words = ("--keep-together", "recording", "--tolerance", "auto", "--json", "--threads", "1")
    found = process("split", "feats.parquet", *words)
    assert found.code == 0, found.err
    assert json.loads(found.out)["sizes"]["val"] == 58


def test_hundreds_of_tiny_cells_need_balanced_rounding(call: Call) -> None:
    rng = np.random.default_rng(0)
    pq.write_table(
        pa.table({"f0": rng.normal(size=1000), "f1": rng.normal(size=1000), "label": np.arange(1000) // 2}),
        "feats.parquet",
    )
    code, said = call("split")
    assert code == 3
    assert "--rounding balanced" in said
    assert call("split", "--rounding", "balanced")[0] == 0
    assert report("feats_split")["sizes"] == {"train": 800, "val": 200}
    passes(call, "feats_split")
