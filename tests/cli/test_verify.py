"""`verify` passes on what the program writes and fails on everything that was changed afterwards."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run

Report = dict[str, Any]


@dataclass(frozen=True)
class Verified:
    """How a check ended."""

    code: int
    err: str
    checks: dict[str, tuple[str, str]]

    @property
    def failed(self) -> set[str]:
        return {name for name, (status, _) in self.checks.items() if status == "failed"}


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str]) -> Callable[..., Verified]:
    def call(*arguments: object) -> Verified:
        capsys.readouterr()
        code = run(["verify", *map(str, arguments), "--json"])
        said = capsys.readouterr()
        found = json.loads(said.out) if said.out else {"checks": [], "passed": None}
        checks = {check["name"]: (check["status"], check["detail"]) for check in found["checks"]}
        assert found["passed"] in (None, code == 0)
        return Verified(code, said.err, checks)

    return call


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, table: pa.Table) -> Path:
    """A folder with `feats.parquet` and its split `run`, not to be changed."""
    folder = tmp_path_factory.mktemp("original")
    pq.write_table(table, folder / "feats.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run(["split", "feats.parquet", "--out", "run", "--id", "id", "-q"]) == 0
        assert run(["split", "feats.parquet", "--out", "other", "--id", "id", "--h", "0.3", "-q"]) == 0
    return folder


@pytest.fixture
def made(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the original, to be tampered with; the working directory."""
    shutil.copytree(original, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


def rows(part: str) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = np.load(f"run/{part}.npy")
    return found


def rewrite(part: str, values: object) -> None:
    np.save(f"run/{part}.npy", values)


def edit(change: Callable[[Report], object]) -> None:
    path = Path("run/report.json")
    report = json.loads(path.read_text())
    change(report)
    path.write_text(json.dumps(report))


def rewrite_input(change: Callable[[pa.Table], pa.Table], *, with_hash: bool = False) -> None:
    """Change the input; `with_hash`: and the report's idea of it, as a careful forger would."""
    path = Path("feats.parquet")
    pq.write_table(change(pq.read_table(path)), path)
    if with_hash:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        edit(lambda report: report["input"]["files"][0].update(sha256=digest, bytes=path.stat().st_size))


def test_an_untouched_run_passes_every_check(made: Path, verify: Callable[..., Verified]) -> None:
    found = verify("run")
    assert found.code == 0, found.err
    assert {status for status, _ in found.checks.values()} == {"ok"}
    assert {
        *("report", "index files", "rows in range", "rows sorted", "rows distinct", "sides disjoint"),
        *("rows complete", "cell counts", "input", "MMD", "objective", "trace", "certificate", "bound"),
        *("stated cells", "random baseline", "by definition", "identical rows", "id files"),
    } <= set(found.checks)
    assert "ok      MMD" in found.err


def test_searching_again_finds_the_same_split(made: Path, verify: Callable[..., Verified]) -> None:
    assert verify("run", "--rerun").checks["search again"][0] == "ok"


def test_a_row_moved_to_the_other_side_is_named_by_its_cell(
    made: Path, verify: Callable[..., Verified], table: pa.Table
) -> None:
    train, val = rows("train"), rows("val")
    moved = int(val[0])
    rewrite("val", val[1:])
    rewrite("train", np.sort([*train, moved]))
    found = verify("run")
    assert found.code == 1
    assert {"cell counts", "sizes", "MMD", "objective", "stated cells"} <= found.failed
    label, domain = table["label"][moved].as_py(), table["domain"][moved].as_py()
    assert f"label={label}, domain={domain}: " in found.checks["cell counts"][1]
    assert found.err.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize("part", ["train", "val"])
def test_a_row_that_is_duplicated_is_named(part: str, made: Path, verify: Callable[..., Verified]) -> None:
    found = rows(part)
    rewrite(part, np.sort([*found, found[3]]))
    result = verify("run")
    assert result.code == 1
    assert result.checks["rows distinct"] == ("failed", f"{part}: row {found[3]} repeated")


def test_a_row_on_both_sides_is_named(made: Path, verify: Callable[..., Verified]) -> None:
    row = rows("val")[2]
    rewrite("train", np.sort([*rows("train"), row]))
    result = verify("run")
    assert result.checks["sides disjoint"] == ("failed", f"both: row {row} on both sides")


@pytest.mark.parametrize("wrong", [-1, 120, 10**12])
def test_a_row_out_of_range_is_named(wrong: int, made: Path, verify: Callable[..., Verified]) -> None:
    lost = rows("val")[0]
    rewrite("val", np.sort([*rows("val")[1:], wrong]))
    result = verify("run")
    assert result.code == 1
    assert result.checks["rows in range"] == ("failed", f"val: row {wrong} outside 0..119")
    assert result.checks["rows complete"][1].startswith(f"neither side: row {lost}")


@pytest.mark.parametrize("part", ["train", "val"])
def test_a_missing_row_is_named(part: str, made: Path, verify: Callable[..., Verified]) -> None:
    found = rows(part)
    rewrite(part, np.delete(found, 4))
    result = verify("run")
    assert result.code == 1
    assert result.checks["rows complete"] == ("failed", f"neither side: row {found[4]}")
    assert "cell counts" in result.failed


def test_rows_out_of_order_are_named(made: Path, verify: Callable[..., Verified]) -> None:
    val = rows("val")
    val[[1, 2]] = val[[2, 1]]
    rewrite("val", val)
    result = verify("run")
    assert result.code == 1
    assert result.checks["rows sorted"] == ("failed", f"val: row {val[2]} lower than the row before")
    assert "id files" in result.failed


def test_two_rows_swapped_within_a_cell_are_found_out(
    made: Path, verify: Callable[..., Verified], table: pa.Table
) -> None:
    cells = np.array([f"{a}|{b}" for a, b in zip(table["label"], table["domain"], strict=True)])
    train, val = rows("train"), rows("val")
    pairs = [(i, j) for i in val for j in train if cells[i] == cells[j]]
    for place in np.random.default_rng(0).choice(len(pairs), 6, replace=False):
        i, j = pairs[place]
        rewrite("val", np.sort([*val[val != i], j]))
        rewrite("train", np.sort([*train[train != j], i]))
        result = verify("run")
        assert result.code == 1, (i, j)
        assert result.checks["cell counts"][0] == "ok"
        assert {"MMD", "certificate"} <= result.failed


def test_identical_rows_swapped_are_found_out_though_no_number_changes(
    made: Path, verify: Callable[..., Verified]
) -> None:
    X = np.repeat(np.random.default_rng(0).normal(size=(12, 3)), 3, axis=0)
    np.save("x.npy", X)
    assert run(["split", "x.npy", "--stratify", "none", "--out", "run", "--force", "-q"]) == 0
    assert verify("run").code == 0
    train, val = rows("train"), rows("val")  # seven of 36, so one group of three is on both sides
    i, j = next((i, j) for i in val for j in train if (X[i] == X[j]).all())
    rewrite("val", np.sort([*val[val != i], j]))
    rewrite("train", np.sort([*train[train != j], i]))
    assert verify("run").failed == {"identical rows"}


def test_exchanged_files_are_found_out(made: Path, verify: Callable[..., Verified]) -> None:
    train, val = rows("train"), rows("val")
    rewrite("train", val)
    rewrite("val", train)
    result = verify("run")
    assert result.code == 1
    assert {"sizes", "cell counts"} <= result.failed


def test_exchanged_halves_are_found_out_by_searching_again(
    made: Path, verify: Callable[..., Verified]
) -> None:
    """With h = 0.5 and even cells every number is the same for both orders of the sides."""
    table = pq.read_table("feats.parquet").slice(0, 40)
    even = table.set_column(table.column_names.index("label"), "label", pa.array(["a", "b"] * 20))
    pq.write_table(even.drop_columns(["domain", "id"]), "even.parquet")
    assert run(["split", "even.parquet", "--h", "0.5", "--out", "run", "--force", "-q"]) == 0
    train, val = rows("train"), rows("val")
    rewrite("train", val)
    rewrite("val", train)
    assert verify("run", "--rerun").failed >= {"search again"}


@pytest.mark.parametrize(
    ("dtype", "word"), [("float64", "float64"), ("int32", "int32"), ("bool", "bool"), ("<U3", "<U3")]
)
def test_a_wrong_dtype_is_named(dtype: str, word: str, made: Path, verify: Callable[..., Verified]) -> None:
    rewrite("val", rows("val").astype(dtype))
    result = verify("run")
    assert result.code == 1
    assert result.checks["index files"][0] == "failed"
    assert "val.npy" in result.checks["index files"][1]
    if dtype == "int32":
        assert word in result.checks["index files"][1]


def changed_value(table: pa.Table) -> pa.Table:
    values = table["f1"].to_numpy().copy()
    values[17] += np.float32(0.5)
    return table.set_column(1, "f1", pa.array(values))


def reordered(table: pa.Table) -> pa.Table:
    return table.take(pa.array([1, 0, *range(2, len(table))]))


def shortened(table: pa.Table) -> pa.Table:
    return table.slice(0, len(table) - 1)


def changed_label(table: pa.Table) -> pa.Table:
    labels = table["label"].to_pylist()
    labels[5] = "dog" if labels[5] != "dog" else "cat"
    return table.set_column(table.column_names.index("label"), "label", pa.array(labels))


CHANGES = [changed_value, reordered, shortened, changed_label]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_input_is_found_out_by_its_hash(
    change: Callable[[pa.Table], pa.Table], made: Path, verify: Callable[..., Verified]
) -> None:
    rewrite_input(change)
    result = verify("run")
    assert result.code == 1
    assert {"input", "recomputed results"} & set(result.checks)
    if change is shortened:
        assert "rows in range" in result.failed
    else:
        assert "sha256" in result.checks["input"][1]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_input_is_found_out_even_if_the_hash_was_changed_with_it(
    change: Callable[[pa.Table], pa.Table], made: Path, verify: Callable[..., Verified]
) -> None:
    rewrite_input(change, with_hash=True)
    result = verify("run")
    assert result.code == 1
    assert {"MMD", "stated cells", "rows in range", "id files"} & result.failed


EDITS: dict[str, tuple[Callable[[Report], object], str]] = {
    "mmd value": (lambda r: r["mmd"].update(value=r["mmd"]["value"] * (1 + 1e-5)), "MMD"),
    "mmd squared": (lambda r: r["mmd"].update(squared=r["mmd"]["squared"] * (1 + 1e-5)), "MMD"),
    "psi": (lambda r: r["objective"].update(psi=r["objective"]["psi"] * (1 - 1e-5)), "objective"),
    "scatter": (lambda r: r["objective"].update(ssq_total=1.0), "objective"),
    "last psi of the trace": (lambda r: r["trace"][-1].update(psi=r["trace"][-1]["psi"] * 0.999), "trace"),
    "first psi of the trace": (lambda r: r["trace"][0].update(psi=r["trace"][0]["psi"] * 1.001), "trace"),
    "rising trace": (lambda r: r["trace"].insert(0, {"phase": "start", "iteration": 0, "psi": 0.0}), "trace"),
    "no trace": (lambda r: r.update(trace=[]), "trace"),
    "trace of text": (lambda r: r.update(trace="falling"), "report"),
    "bound": (lambda r: r["bound"].update(mmd_upper=r["bound"]["mmd_upper"] * 1.01), "bound"),
    "no bound": (lambda r: r.update(bound=None), "bound"),
    "cell count": (lambda r: r["constraints"]["cells"][2].update(actual=9), "stated cells"),
    "cell size": (lambda r: r["constraints"]["cells"][0].update(size=1), "stated cells"),
    "one cell less": (lambda r: r["constraints"]["cells"].pop(), "stated cells"),
    "satisfaction": (lambda r: r["constraints"].update(all_satisfied=False), "stated cells"),
    "certificate": (lambda r: r["certificate"].update(status="not a fixed point"), "certificate"),
    "no certificate": (lambda r: r.update(certificate=None), "certificate"),
    "sizes": (lambda r: r["sizes"].update(val=3), "sizes"),
    "random baseline": (lambda r: r["baselines"]["random"].update(mmd_mean=0.5), "random baseline"),
    "warning": (lambda r: r["warnings"].append({"code": "made_up", "message": ""}), "warnings"),
    "seed": (lambda r: r.update(seed=5), "seed"),
    "gamma": (lambda r: r["config"].update(gamma=r["config"]["gamma"] * 1.01), "MMD"),
    "holdout": (lambda r: r["config"].update(holdout=0.4), "cell counts"),
    "kernel": (lambda r: r["config"].update(kernel="soup"), "report"),
    "winner": (lambda r: r["search"].update(winner="nobody"), "restarts"),
    "number of rows": (lambda r: r["input"].update(n_rows=121), "input"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_report_is_found_out(name: str, made: Path, verify: Callable[..., Verified]) -> None:
    change, check = EDITS[name]
    edit(change)
    result = verify("run")
    assert result.code == 1
    assert check in result.failed


def test_a_point_inside_the_trace_is_found_out_by_searching_again(
    made: Path, verify: Callable[..., Verified]
) -> None:
    def soften(report: Report) -> None:
        before = report["trace"][0]
        report["trace"].insert(1, {**report["trace"][1], "psi": before["psi"]})
        for number, point in enumerate(report["trace"]):
            point["iteration"] = number

    edit(soften)
    assert "trace" not in verify("run").failed
    assert verify("run", "--rerun").failed == {"search again"}


def test_the_report_of_another_run_is_found_out(made: Path, verify: Callable[..., Verified]) -> None:
    shutil.copy("other/report.json", "run/report.json")
    result = verify("run")
    assert result.code == 1
    assert {"sizes", "cell counts", "MMD"} <= result.failed


@pytest.mark.parametrize("share", [0.0, 0.2, 0.98])
@pytest.mark.parametrize("name", ["train.npy", "val.npy", "report.json", "val_ids.npy", "../feats.parquet"])
def test_a_truncated_file_is_found_out(
    name: str, share: float, made: Path, verify: Callable[..., Verified]
) -> None:
    path = Path("run") / name
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    result = verify("run")
    assert result.code == 1
    assert result.failed


@pytest.mark.parametrize("name", ["train.npy", "val.npy", "train_ids.npy"])
def test_a_lost_file_is_named(name: str, made: Path, verify: Callable[..., Verified]) -> None:
    (made / "run" / name).unlink()
    result = verify("run")
    assert result.code == 1
    assert any(name in result.checks[check][1] for check in result.failed)


def test_ids_that_are_not_those_of_the_rows_are_found_out(
    made: Path, verify: Callable[..., Verified]
) -> None:
    ids = np.load("run/val_ids.npy")
    ids[3] = "row 1000"
    np.save("run/val_ids.npy", ids)
    assert verify("run").checks["id files"] == ("failed", "val_ids.npy is wrong from entry 3 on")


def test_formats_that_disagree_are_found_out(made: Path, verify: Callable[..., Verified]) -> None:
    formats = ("--format", "npy", "--format", "txt", "--format", "parquet")
    assert run(["split", "feats.parquet", "--out", "run", "--force", "-q", *formats]) == 0
    assert verify("run").code == 0
    lines = Path("run/val.txt").read_text().splitlines()
    Path("run/val.txt").write_text("\n".join(lines[:-1]) + "\n")
    result = verify("run")
    assert result.failed == {"index files"}
    assert "val.txt differs from val.npy" in result.checks["index files"][1]


MATRIX = {
    "linear": ("--kernel", "linear"),
    "cosine": ("--kernel", "cosine"),
    "polynomial": ("--kernel", "polynomial", "--degree", "2"),
    "median width": ("--gamma", "median"),
    "standardized": ("--standardize", "zscore"),
    "unit rows": ("--standardize", "l2"),
    "landmarks": ("--nystrom", "30"),
    "landmarks and median width": ("--nystrom", "30", "--gamma", "median"),
    "tolerance": ("--tolerance", "0.2"),
    "balanced": ("--rounding", "balanced", "--h", "0.29"),
    "half": ("--h", "0.5"),
    "label only": ("--stratify", "label"),
    "total only": ("--stratify", "none"),
    "excluded": ("--exclude", "domain=art"),
    "excluded label": ("--exclude", "label=cat", "--stratify", "domain"),
    "text": ("--format", "txt"),
    "parquet and ids": ("--format", "parquet", "--id", "id"),
    "text and ids": ("--format", "txt", "--format", "npy", "--id", "id"),
    "cbc": ("--solver", "cbc", "--restarts", "2"),
    "uncertified": ("--certify", "never"),
    "unbounded": ("--bound", "never"),
    "unconverged": ("--max-iter", "1", "--restarts", "1"),
    "fast": ("--effort", "fast", "--seed", "3"),
    "columns": ("--columns", "f0,f2"),
}


@pytest.mark.parametrize("name", MATRIX)
def test_a_run_with_any_options_passes(name: str, made: Path, verify: Callable[..., Verified]) -> None:
    quick = () if "--effort" in MATRIX[name] else ("--effort", "fast")
    assert run(["split", "feats.parquet", "--out", "any", "-q", *quick, *MATRIX[name]]) == 0
    result = verify("any", "--rerun")
    assert result.code == 0, result.err


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_a_run_on_any_precision_passes(dtype: str, made: Path, verify: Callable[..., Verified]) -> None:
    rng = np.random.default_rng(3)
    np.save("x.npy", rng.normal(size=(90, 5)).astype(dtype))
    np.save("y.npy", rng.integers(0, 3, 90))
    assert run(["split", "x.npy", "--label-file", "y.npy", "-q"]) == 0
    result = verify("x_split")
    assert result.code == 0, result.err


def test_dropped_rows_are_known(made: Path, verify: Callable[..., Verified]) -> None:
    table = pq.read_table("feats.parquet")
    values = table["f0"].to_numpy().copy()
    values[7] = np.nan
    pq.write_table(table.set_column(0, "f0", pa.array(values)), "feats.parquet")
    assert run(["split", "feats.parquet", "--out", "any", "-q", "--drop-invalid"]) == 0
    assert verify("any").code == 0
    np.save("any/val.npy", np.sort([*np.load("any/val.npy"), 7]))
    result = verify("any")
    assert "though excluded or dropped: row 7" in result.checks["rows complete"][1]


def test_the_input_is_looked_for_beside_the_run_and_where_the_user_says(
    made: Path, verify: Callable[..., Verified], monkeypatch: pytest.MonkeyPatch
) -> None:
    (made / "elsewhere").mkdir()
    monkeypatch.chdir(made / "elsewhere")
    assert verify("../run").code == 0
    (made / "feats.parquet").rename(made / "run" / "feats.parquet")
    assert verify("../run").code == 0
    (made / "run" / "feats.parquet").rename(made / "moved.parquet")
    result = verify("../run")
    assert result.code == 2
    assert "--features" in result.err
    assert verify("../run", "--features", "../moved.parquet").code == 0


def test_companions_and_directories_are_found(made: Path, verify: Callable[..., Verified]) -> None:
    table = pq.read_table("feats.parquet")
    for value in ("art", "photo"):
        folder = made / "data" / f"domain={value}"
        folder.mkdir(parents=True)
        part = table.filter(pc.equal(table["domain"], value)).drop_columns(["domain", "label"])
        pq.write_table(part, folder / "part.parquet")
    order = pa.concat_tables([table.filter(pc.equal(table["domain"], v)) for v in ("art", "photo")])
    np.save("labels.npy", np.array(order["label"].to_pylist()))
    assert run(["split", "data", "--label-file", "labels.npy", "--out", "hive", "-q"]) == 0
    result = verify("hive")
    assert result.code == 0, result.err
    np.save("labels.npy", np.roll(np.load("labels.npy"), 1))
    assert verify("hive").code == 1


def test_a_split_by_another_tool_is_checked_against_the_shares_its_user_names(
    made: Path, verify: Callable[..., Verified]
) -> None:
    table = pq.read_table("feats.parquet")
    labels = np.array(table["label"].to_pylist())
    rng = np.random.default_rng(0)
    val = np.concatenate(
        [
            rng.choice(np.flatnonzero(labels == name), round(0.25 * (labels == name).sum()), replace=False)
            for name in np.unique(labels)
        ]
    )
    train = rng.permutation(np.setdiff1d(np.arange(120), val))
    np.save("a.npy", train.astype(np.int32))
    Path("b.txt").write_text("\n".join(map(str, val)))
    arguments = ("feats.parquet", "--train", "a.npy", "--val", "b.txt", "--h", "0.25")
    result = verify(*arguments, "--stratify", "label")
    assert result.code == 0, result.err
    assert result.checks["rows sorted"][0] == "skipped"
    assert verify(*arguments, "--stratify", "label", "--exclude", "domain=art").failed >= {"rows complete"}
    assert verify("feats.parquet", "--train", "a.npy", "--val", "b.txt", "--h", "0.4").failed == {
        "cell counts"
    }
    np.save("a.npy", train[1:])
    assert verify(*arguments, "--stratify", "label").failed == {"rows complete", "cell counts"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--h", "0.2"),
        ("run", "--stratify", "label"),
        ("feats.parquet", "--train", "run/train.npy"),
        ("feats.parquet", "--train", "run/train.npy", "--val", "run/val.npy", "--rerun"),
        ("nowhere",),
        ("feats.parquet",),
        ("feats.parquet", "--train", "run/train.npy", "--val", "nowhere.npy"),
        ("feats.parquet", "--train", "run/train.npy", "--val", "run/val.npy", "--h", "2"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_checked_is_bad_usage(
    arguments: tuple[str, ...], made: Path, verify: Callable[..., Verified]
) -> None:
    result = verify(*arguments)
    assert result.code == 2
    error, hint = result.err.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")


def test_a_quiet_check_shows_only_what_failed(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "run", "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    rewrite("val", rows("val")[1:])
    assert run(["verify", "run", "-q"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert all(line.startswith(("failed", "error: ")) for line in said.err.splitlines())
