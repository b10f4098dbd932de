"""`inspect --k`, `inspect --parts` and `verify --engine` on folds, against parts that were really made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run

QUICK = ["--effort", "fast", "--restarts", "2", "--quiet"]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Two files with uneven cells, one of them of three rows, and two rows that are not finite."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    n = 331
    x = rng.normal(size=(n, 5)).astype(np.float32)
    x[[7, 300], 2] = np.nan
    label = np.array(["ant", "bat", "cat"])[rng.choice(3, size=n, p=[0.6, 0.3, 0.1])]
    label[:3] = "dab"
    whole = pa.table(
        {**{f"f{j}": x[:, j] for j in range(5)}, "label": label, "domain": rng.integers(2, size=n)}
    )
    Path("rows").mkdir()
    pq.write_table(whole.slice(0, 150), "rows/a.parquet", row_group_size=60)
    pq.write_table(whole.slice(150), "rows/b.parquet", row_group_size=60)
    return {"label": label, "domain": whole["domain"].to_numpy(), "kept": np.isfinite(x).all(axis=1)}


def found(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["inspect", "rows", "--drop-invalid", "--json", "--quiet", *words]) == code
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


@pytest.mark.parametrize("engine", ["local", "stream"])
def test_sizes_are_those_of_the_folds_that_kfold_makes(
    table: dict[str, Any], engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--k", "4", "--exclude", "domain=1", "--stratify", "label"]
    sizes = found(capsys, *words, "--engine", engine)
    assert run(["kfold", "rows", "--drop-invalid", *words, *QUICK, "--out", "made"]) == 0
    report = json.loads(Path("made/report.json").read_text("utf-8"))
    folds = np.load("made/folds.npy")
    taken = (table["domain"] == 0) & table["kept"]
    np.testing.assert_array_equal(folds >= 0, taken)
    assert [fold["name"] for fold in sizes["parts"]] == [f"fold_{fold}" for fold in range(4)]
    totals = np.bincount(folds[folds >= 0]).tolist()
    assert [fold["fewest"] for fold in sizes["parts"]] == [fold["most"] for fold in sizes["parts"]] == totals
    for cell in sizes["cells"]:
        counts = np.bincount(folds[taken & (table["label"] == cell["cell"]["label"])], minlength=4)
        assert (cell["size"], cell["fewest"], cell["most"]) == (counts.sum(), counts.min(), counts.max())
        assert cell["too_small"] == (counts.min() == 0)
    assert sizes["too_small"] == sum(cell["too_small"] for cell in sizes["cells"]) > 0
    about_sizes = [note for note in report["warnings"] if note["code"] == "cells_missing_in_parts"]
    assert (
        [note for note in sizes["warnings"] if note["code"] == "cells_missing_in_parts"] == about_sizes != []
    )
    stated = report["input"]
    assert (sizes["n_rows"], sizes["n_excluded"], sizes["n_dropped"], sizes["engine"]) == (
        *(stated[name] for name in ("n_rows", "n_excluded", "n_dropped")),
        engine,
    )
    assert not Path("rows_folds").exists()


@pytest.mark.parametrize("engine", ["local", "stream"])
def test_sizes_are_those_of_the_parts_that_split_makes(
    table: dict[str, Any], engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--parts", "fit=0.7,pick=0.2,try=0.1", "--stratify", "label", "--tolerance", "0.1"]
    sizes = found(capsys, *words, "--engine", engine)
    assert run(["split", "rows", "--drop-invalid", *words, *QUICK, "--out", "made"]) == 0
    report = json.loads(Path("made/report.json").read_text("utf-8"))
    made = {part["name"]: part["size"] for part in report["parts"]["parts"]}
    assert [part["name"] for part in sizes["parts"]] == list(made) and sizes["k"] is None
    assert all(part["fewest"] <= made[part["name"]] <= part["most"] for part in sizes["parts"])
    bounds = {
        (cell["cell"]["label"], part["name"]): (part["fewest"], part["most"])
        for cell in sizes["cells"]
        for part in cell["parts"]
    }
    stated = report["constraints"]["cells"]
    assert bounds == {
        (cell["cell"]["label"], cell["part"]): (cell["lower"], cell["upper"]) for cell in stated
    }


def test_all_else_that_inspect_says_needs_rows_in_memory(
    table: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", "rows", "--drop-invalid", "--engine", "stream"]) == 2
    assert "inspect without --k or --parts needs all rows in memory" in capsys.readouterr().err


def test_folds_of_units_stay_within_the_sizes(
    table: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--k", "3", "--keep-together", "exact-duplicates", "--tolerance", "auto", "--stratify", "label"]
    sizes = found(capsys, *words)
    assert run(["kfold", "rows", "--drop-invalid", *words, *QUICK, "--out", "made"]) == 0
    folds = np.load("made/folds.npy")
    assert sizes["units"] == table["kept"].sum()
    for fold, total in enumerate(sizes["parts"]):
        assert total["fewest"] <= (folds == fold).sum() <= total["most"]


def test_the_table_names_folds_and_cells(table: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["inspect", "rows", "--drop-invalid", "--engine", "stream", "--stratify", "label"]
    assert run([*words, "--k", "4"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "input  331 rows, 2 dropped as not finite, rows"
    assert lines[1:4] == ["folds  4", "       fold_0: 83 rows", "       fold_1 to fold_3: 82 rows each"]
    assert lines[4] == "cells  4 cells, 1 too small for all folds"
    assert lines[5] == "       label=dab: 3 rows, 0 to 1 in a fold (too small)"
    assert lines[-1].startswith("warning: 1 of 4 cells are too small for all parts (label=dab: 3 rows)")


@pytest.mark.parametrize("engine", ["local", "stream"])
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--k", "330"], 3, "329 rows cannot make 330 folds"),
        (["--k", "1"], 2, "--k must be at least 2"),
        (["--k", "5", "--tolerance", "0.1"], 2, "--tolerance has no effect on folds of single rows"),
        (["--k", "5", "--kernel", "linear"], 2, "--kernel has no effect with --k"),
        (
            ["--parts", "a=0.5,b=0.5", "--h", "0.3", "--seed", "1"],
            2,
            "--seed, --h has no effect with --parts",
        ),
        (["--k", "5", "--parts", "a=0.5,b=0.5"], 2, "--k and --parts cannot be combined"),
        (["--parts", "a=0.5,b=0.4"], 2, "add up to"),
        (["--k", "5", "--exclude", "label=dog"], 2, "never has the value 'dog'"),
        (["--k", "5", "--stratify", "label", "--stratify", "domain"], 2, ""),
    ],
)
def test_what_kfold_refuses_sizes_refuse_alike(
    table: dict[str, Any],
    engine: str,
    words: list[str],
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["inspect", "rows", "--drop-invalid", "--engine", engine, *words]) == code
    lines = capsys.readouterr().err.splitlines()
    assert said in lines[0]
    assert [line.split(":")[0] for line in lines] == ["error", "hint"]


def test_values_that_are_not_finite_are_refused_alike(
    table: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    for engine in ("local", "stream"):
        assert run(["inspect", "rows", "--k", "5", "--engine", engine]) == 2
        told.append(capsys.readouterr().err)
    assert "row 7 (f2), row 300 (f2)" in told[0]
    assert told[0] == told[1]


def test_stream_is_chosen_when_the_rows_do_not_fit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "wide.parquet"
    wide = {f"f{j}": rng.normal(size=60_000) for j in range(40)}
    pq.write_table(pa.table({**wide, "label": np.arange(60_000) % 2}), path, row_group_size=2000)
    words = ["inspect", str(path), "--k", "5", "--json", "-q", "--threads", "1", "--memory"]
    for memory, engine in (("40MB", "stream"), ("60MB", "local")):
        assert run([*words, memory]) == 0
        assert json.loads(capsys.readouterr().out)["engine"] == engine


@pytest.fixture
def folds(table: dict[str, Any]) -> Path:
    words = ["--drop-invalid", "--stratify", "label", "--k", "4", "--format", "npy", "--format", "txt"]
    assert run(["kfold", "rows", *words, *QUICK, "--out", "made"]) == 0
    return Path("made")


def checks(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, tuple[str, str]]]:
    capsys.readouterr()
    code = run(["verify", "made", "--engine", "stream", "--json", "--quiet", *words])
    said = json.loads(capsys.readouterr().out)
    return code, {check["name"]: (check["status"], check["detail"]) for check in said["checks"]}


def test_folds_are_verified_by_their_sizes_and_the_rest_is_said_to_be_skipped(
    folds: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = checks(capsys)
    assert code == 0
    fine = {name for name, (status, _) in said.items() if status == "ok"}
    assert fine == {
        *("report", "index files", "folds agree", "rows complete", "cell counts", "part totals"),
        *("engine and plan", "restarts"),
        *("rows in range", "rows sorted", "rows distinct", "parts disjoint"),
        *("input", "stated cells", "warnings", "trace"),
    }
    skipped = {name: detail for name, (status, detail) in said.items() if status == "skipped"}
    assert set(skipped) == {
        *("MMD", "objective", "certificate", "random baseline", "configuration", "geometry"),
        *("by definition", "identical rows"),
    }
    assert set(skipped.values()) == {"needs all rows in one place: use --engine local"}
    assert run(["verify", "made", "--engine", "stream", "--rerun"]) == 2
    assert "--rerun has no effect on folds" in capsys.readouterr().err


def rewrite(folds: np.ndarray) -> None:
    """Write folds as `kfold` would."""
    np.save("made/folds.npy", folds)
    np.savetxt("made/folds.txt", folds, fmt="%d")
    for fold in range(4):
        for name, rows in (("val", folds == fold), ("train", (folds >= 0) & (folds != fold))):
            np.save(f"made/fold_{fold}/{name}.npy", np.flatnonzero(rows))
            np.savetxt(f"made/fold_{fold}/{name}.txt", np.flatnonzero(rows), fmt="%d")


def test_forged_folds_fail_in_pieces(
    folds: Path, table: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree("made", "saved")
    true = np.load("made/folds.npy")

    def failing() -> dict[str, str]:
        code, said = checks(capsys)
        shutil.rmtree("made")
        shutil.copytree("saved", "made")
        failed = {name: detail for name, (status, detail) in said.items() if status == "failed"}
        assert code == (1 if failed else 0)
        return failed

    ant, bat = (np.flatnonzero((table["label"] == name) & table["kept"]) for name in ("ant", "bat"))
    moved = true.copy()  # a row to another fold, another one back: totals stay, cells do not
    one = ant[true[ant] == 0][0]
    other = bat[true[bat] == 1][0]
    moved[one], moved[other] = 1, 0
    rewrite(moved)
    assert set(failing()) == {"cell counts", "stated cells"}
    gone = true.copy()
    gone[one] = -1
    rewrite(gone)
    lost = failing()
    assert lost.pop("rows complete") == f"no part: row {one}"
    assert set(lost) == {"cell counts"}
    extra = true.copy()
    extra[7] = 2  # it was dropped
    rewrite(extra)
    assert failing() == {"rows complete": "a part though excluded or dropped: row 7"}
    np.save("made/fold_1/val.npy", np.append(np.load("made/fold_1/val.npy"), one))
    np.savetxt("made/fold_1/val.txt", np.load("made/fold_1/val.npy"), fmt="%d")
    twice = failing()
    assert twice["parts disjoint"] == f"all: row {one} in two parts"
    assert set(twice) >= {"rows sorted", "folds agree"}
    np.save("made/fold_2/train.npy", np.load("made/fold_2/train.npy")[1:])
    assert failing() == {"folds agree": "fold_2/train.npy is not what the other folds are"}
    report = json.loads(Path("made/report.json").read_text("utf-8"))
    report["parts"]["parts"][0]["size"] += 1
    report["warnings"] = []
    Path("made/report.json").write_text(json.dumps(report))
    assert set(failing()) == {"part totals", "warnings", "restarts"}
    assert failing() == {}


def test_named_parts_are_verified_by_their_sizes(
    table: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--drop-invalid",
        "--stratify",
        "label",
        "--parts",
        "train=0.7,val=0.2,test=0.1",
        "--tolerance",
        "0.2",
    ]
    assert run(["split", "rows", *words, *QUICK, "--out", "made"]) == 0
    code, said = checks(capsys)
    assert code == 0
    assert said["cell counts"][0] == said["part totals"][0] == "ok"
