"""Constraints that contradict each other, come together, or whose results were tampered with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run

Call = Callable[..., tuple[int, str]]
PARTS = "train=0.6,val=0.2,test=0.2"


def rows(*path: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.load(Path(*path))


def add_column(name: str, values: Any) -> None:
    table = pq.read_table("feats.parquet")
    pq.write_table(table.append_column(name, pa.array(values)), "feats.parquet")


def report(out: str = "run") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(out, "report.json").read_text())
    return found


@pytest.mark.parametrize("tolerance", ["0", "auto", "5"])
def test_rows_that_are_all_one_unit_cannot_be_split(call: Call, tolerance: str) -> None:
    add_column("hospital", ["only one"] * 120)
    code, said = call("split", "--keep-together", "hospital", "--tolerance", tolerance, "--out", "run")
    assert code == 3
    assert said.startswith("error: ")
    assert "hint: " in said
    assert not Path("run").exists()


def test_a_unit_too_large_for_validation_goes_to_training(call: Call) -> None:
    add_column("hospital", np.where(np.arange(120) < 90, 0, np.arange(120)))
    words = ("--keep-together", "hospital", "--stratify", "none", "--tolerance", "auto", "--out", "run")
    assert call("split", *words)[0] == 0
    assert rows("run", "val.npy").min() >= 90
    assert report()["constraints"]["units"]["largest"] == 90


def test_rows_without_a_unit_are_named(call: Call) -> None:
    add_column("nurse", [None if row == 7 else "n" for row in range(120)])
    code, said = call("split", "--keep-together", "nurse")
    assert code == 2
    assert "column 'nurse', which keeps rows together, has no value in 1 rows: 7" in said


def test_all_rows_forced_to_one_side_leave_no_split(call: Call) -> None:
    np.save("all.npy", np.arange(120))
    code, said = call("split", "--force-train", "all.npy", "--tolerance", "1")
    assert code == 3
    assert "all rows needs at least 1 validation rows but only 0 of its rows" in said


def test_a_unit_forced_to_both_sides_is_refused(call: Call) -> None:
    np.save("train.npy", [0])
    np.save("val.npy", [1])
    words = ("--keep-together", "patient", "--force-train", "train.npy", "--force-val", "val.npy")
    code, said = call("split", *words)
    assert code == 3
    assert "row 0 to training and row 1 to validation" in said


def test_a_cell_that_does_not_exist_has_no_tolerance(call: Call) -> None:
    code, said = call("split", "--tolerance", "label=dgo=0.2")
    assert code == 2
    assert "label=dog" in said


def test_families_units_and_forced_rows_are_kept_together(call: Call) -> None:
    np.save("val.npy", [4, 5, 6])
    families = ("--stratify", "label", "--stratify", "domain")
    words = ("--keep-together", "patient", "--tolerance", "auto", "--force-val", "val.npy", "--out", "run")
    code, said = call("split", *families, *words)
    assert code == 0, said
    inside = np.isin(np.arange(120), rows("run", "val.npy"))
    assert inside[4:8].all()  # row 7 is of the patient of row 6
    np.testing.assert_array_equal(inside[::2], inside[1::2])
    constraints = report()["constraints"]
    assert constraints["all_satisfied"]
    assert constraints["families"] == ["label", "domain"]
    assert constraints["integral_by"] == "branch_and_bound"
    assert constraints["pinned"]["satisfied"]
    assert call("verify", "run", "--rerun")[0] == 0
    assert call("split", "--config", "run/report.json", "--out", "again")[0] == 0
    np.testing.assert_array_equal(rows("run", "val.npy"), rows("again", "val.npy"))


def test_overlapping_indicator_columns_each_keep_their_share(call: Call) -> None:
    rng = np.random.default_rng(0)
    names = ("has_cat", "has_dog", "has_cow", "has_owl")
    for name in names:
        add_column(name, rng.integers(0, 2, 120))
    code, said = call("split", *(word for name in names for word in ("--stratify", name)), "--out", "run")
    assert code == 0, said
    constraints = report()["constraints"]
    assert constraints["integral_by"] == "branch_and_bound"
    table = pq.read_table("feats.parquet")
    val = rows("run", "val.npy")
    for cell in constraints["cells"]:
        ((name, value),) = cell["cell"].items()
        assert (table[name].to_numpy()[val] == value).sum() == cell["actual"] == cell["target"]
    assert call("verify", "run")[0] == 0


def test_a_conflict_between_two_families_names_both(call: Call) -> None:
    """All dogs but two were filmed in winter, and winter may give none of its rows."""
    label = np.array(pq.read_table("feats.parquet")["label"].to_pylist())
    dogs = np.flatnonzero(label == "dog")
    winter = np.isin(np.arange(120), dogs[2:])
    add_column("season", np.where(winter, "winter", "summer"))
    np.save("train.npy", dogs[2:])
    families = ("--stratify", "label", "--stratify", "season")
    code, said = call("split", *families, "--force-train", "train.npy", "--tolerance", "season=winter=1")
    assert code == 3
    assert "label=dog needs at least 8 validation rows but only 2 of its rows" in said
    assert "hint: use --tolerance" in said


def test_the_cure_of_an_infeasible_split_makes_it_feasible(call: Call) -> None:
    add_column("batch", np.repeat(np.arange(12), 10))
    words = ("--keep-together", "batch", "--stratify", "label", "--out", "run")
    code, said = call("split", *words)
    assert code == 3
    cure = said.partition("--tolerance ")[2].partition(" (")[0]
    assert call("split", *words, "--tolerance", cure)[0] == 0
    code, _ = call("split", *words, "--tolerance", f"{float(cure) - 1e-6:.6f}", "--force")
    assert code == 3


def test_verify_finds_folds_that_were_changed(call: Call) -> None:
    assert call("kfold", "--k", 3, "--out", "run")[0] == 0
    folds = rows("run", "folds.npy")
    other = folds.copy()
    other[0] = (other[0] + 1) % 3
    np.save("run/folds.npy", other)
    code, said = call("verify", "run")
    assert code == 1
    assert "failed" in said
    assert "folds.npy" in said


def test_verify_finds_rows_that_changed_parts(call: Call) -> None:
    assert call("split", "--parts", PARTS, "--out", "run")[0] == 0
    val, test = rows("run", "val.npy"), rows("run", "test.npy")
    np.save("run/val.npy", np.sort(np.append(val[1:], test[0])))
    np.save("run/test.npy", np.sort(np.append(test[1:], val[0])))
    code, said = call("verify", "run")
    assert code == 1
    assert "failed" in said


def test_verify_finds_a_forced_row_that_was_moved(call: Call) -> None:
    np.save("val.npy", [3])
    for words in ((), ("--parts", PARTS)):
        assert call("split", "--force-val", "val.npy", *words, "--out", "run", "--force")[0] == 0
        label = np.array(pq.read_table("feats.parquet")["label"].to_pylist())
        domain = np.array(pq.read_table("feats.parquet")["domain"].to_pylist())
        train, val = rows("run", "train.npy"), rows("run", "val.npy")
        swap = next(row for row in train if (label[row], domain[row]) == (label[3], domain[3]))
        np.save("run/val.npy", np.sort(np.append(val[val != 3], swap)))
        np.save("run/train.npy", np.sort(np.append(train[train != swap], 3)))
        code, said = call("verify", "run")
        assert code == 1
        assert "forced" in said


def test_folds_and_parts_are_no_split_in_two(call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("kfold", "--k", 3, "--out", "folds")[0] == 0
    assert call("split", "--parts", PARTS, "--out", "parts")[0] == 0
    for directory, words in (("folds", "folds, not a split in two"), ("parts", "named parts, not a split")):
        assert run(["mmd", "feats.parquet", "--columns", "f*", "--split", directory]) == 2
        assert words in capsys.readouterr().err


def test_more_folds_than_a_cell_has_rows_leave_some_without_it(call: Call) -> None:
    add_column("rare", np.where(np.arange(120) < 3, "few", "many"))
    code, said = call("kfold", "--k", 5, "--stratify", "rare", "--out", "run")
    assert code == 0
    assert "1 of 2 cells are too small for all parts" in said
    assert np.bincount(rows("run", "folds.npy")).tolist() == [24] * 5
    assert call("verify", "run")[0] == 0


def test_wide_tolerances_leave_no_part_empty(call: Call) -> None:
    words = ("--parts", "a=0.9,b=0.05,c=0.05", "--stratify", "none", "--tolerance", "10", "--out", "run")
    code, said = call("split", *words)
    assert code == 0, said
    assert all(len(rows("run", f"{name}.npy")) > 0 for name in "abc")
    assert call("verify", "run")[0] == 0


def test_a_page_can_be_drawn_of_any_split_in_two(call: Call) -> None:
    pytest.importorskip("plotly")
    words = ("--keep-together", "patient", "--tolerance", "auto", "--tolerance", "label=dog=0.5")
    code, said = call("split", *words, "--html", "--out", "run")
    assert code == 0, said
    assert Path("run", "report.html").exists()


def test_what_is_inspected_is_what_split_would_meet(call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    add_column("batch", np.repeat(np.arange(12), 10))
    words = ["feats.parquet", "--columns", "f*", "--stratify", "label", "--keep-together", "batch"]
    assert run(["inspect", *words]) == 3
    assert run(["inspect", *words, "--tolerance", "auto", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["units"] == 12
    assert call("split", *words[3:], "--tolerance", "auto", "--out", "run")[0] == 0
    assert report()["constraints"]["tolerance"]["general"] == found["tolerance"]
