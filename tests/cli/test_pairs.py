"""Similarities and distances of pairs of rows in place of features, and rows that are nearly the same."""

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
from clustersplit_cli.engines.plan import check_coordinates
from clustersplit_cli.errors import MemoryPlanError

N = 90


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same rows as features, similarities and distances, and what they are labelled."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(N, 5))
    rows[:40, 0] += 3
    squared = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    np.save("rows.npy", rows)
    np.save("inner.npy", rows @ rows.T)
    np.save("far.npy", np.sqrt(squared))
    np.save("near.npy", np.exp(-0.1 * squared))
    about = {"label": np.arange(N) % 3, "domain": np.array(["a", "b"])[rng.integers(0, 2, N)]}
    pq.write_table(pa.table(about), "about.parquet")
    listed = pa.array(list(rows @ rows.T))
    pq.write_table(pa.table({"similarity": listed, **about}), "inner.parquet")
    return tmp_path


@pytest.fixture
def made(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[dict[str, Any], Any]]:
    """Split, verify, and return the report and the part of every row."""

    def call(name: str, *words: str, command: str = "split") -> tuple[dict[str, Any], Any]:
        about = () if name.endswith("parquet") else ("--metadata", "about.parquet")
        quick = ["--effort", "fast", "--restarts", "3"]
        assert run([command, name, *about, *words, *quick, "--out", "out", "--force", "--quiet"]) == 0
        rerun = [] if name == "rows.npy" or "--parts" in words else ["--rerun"]
        assert run(["verify", "out", "--quiet", *rerun]) == 0, capsys.readouterr().err
        report = json.loads((folder / "out" / "report.json").read_text())
        parts = "out/folds.npy" if command == "kfold" else "out/val.npy"
        return report, np.load(parts).tolist()

    return call


@pytest.mark.parametrize(
    ("pairs", "features"),
    [
        ("inner.npy --kernel precomputed", "rows.npy --kernel linear"),
        ("inner.parquet --kernel precomputed", "rows.npy --kernel linear"),
        ("near.npy --kernel precomputed", "rows.npy --gamma 0.1"),
        ("far.npy --distances", "rows.npy"),
        ("far.npy --distances --gamma median", "rows.npy --gamma median"),
        ("far.npy --distances --kernel linear", "rows.npy --kernel linear"),
        ("far.npy --distances --kernel precomputed", "rows.npy --kernel linear"),
        ("far.npy --distances --exclude domain=a", "rows.npy --exclude domain=a"),
        ("inner.npy --kernel precomputed --severity 0.5", "rows.npy --kernel linear --severity 0.5"),
    ],
)
def test_pairs_give_the_split_of_the_features_that_they_were_made_of(
    made: Any, pairs: str, features: str
) -> None:
    report, val = made(*pairs.split())
    other, expected = made(*features.split())
    assert val == expected
    assert report["mmd"]["value"] == pytest.approx(other["mmd"]["value"], rel=1e-6)
    assert report["bound"]["mmd_upper"] == pytest.approx(other["bound"]["mmd_upper"], rel=1e-3)
    assert not [note for note in report["warnings"] if note["code"] == "uneven_spreads"]


@pytest.mark.parametrize("words", [["--parts", "train=0.6,val=0.2,test=0.2"], []])
def test_folds_and_parts_are_made_of_pairs_too(made: Any, words: list[str]) -> None:
    command = "split" if words else "kfold"
    report, parts = made("inner.npy", "--kernel", "precomputed", *words, command=command)
    other, expected = made("rows.npy", "--kernel", "linear", *words, command=command)
    assert parts == expected
    assert report["mmd"]["value"] == pytest.approx(other["mmd"]["value"], rel=1e-6)
    assert report["config"]["kernel"] == "precomputed"


def test_the_report_measures_what_the_matrix_says(made: Any, folder: Path) -> None:
    report, val = made("near.npy", "--kernel", "precomputed")
    kernel = np.load(folder / "near.npy")
    z = np.full(N, -1 / (N - len(val)))
    z[val] = 1 / len(val)
    assert report["mmd"]["squared"] == pytest.approx(z @ kernel @ z, rel=1e-9)


def test_options_of_an_earlier_run_say_that_there_are_distances(made: Any, folder: Path) -> None:
    _, val = made("far.npy", "--distances")
    words = ["split", "--config", "out/report.json", "--out", "again", "--quiet"]
    assert run(words) == 0
    assert np.load(folder / "again" / "val.npy").tolist() == val
    assert run(["mmd", "far.npy", "--split", "again", "--fail-below", "0.1", "--quiet"]) == 0


def test_the_page_and_other_commands_take_pairs(made: Any, folder: Path, capsys: Any) -> None:
    made("inner.npy", "--kernel", "precomputed", "--html")
    assert "coordinate[0]" in (folder / "out" / "report.html").read_text()
    common = ["inner.npy", "--kernel", "precomputed", "--metadata", "about.parquet"]
    for words in (
        ["inspect", *common],
        ["compare", *common, "--repeats", "1", "--effort", "fast"],
        ["baseline", "greedy", *common, "--out", "greedy"],
        ["ladder", *common, "--levels", "0,1", "--repeats", "1", "--effort", "fast", "--out", "steps"],
        ["mmd", *common, "--by", "domain"],
    ):
        assert run([*words, "--quiet"]) == 0, (words, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "rows.npy --kernel precomputed",
            "rows.npy has 90 rows and 5 feature columns, and similarities need",
        ),
        ("far.npy --kernel precomputed", "holds distances and no similarities"),
        ("inner.npy --distances", "from itself"),
        ("inner.npy --kernel precomputed --standardize zscore", "--standardize zscore needs features"),
        ("far.npy --distances --kernel laplacian", "--kernel laplacian needs features"),
        ("far.npy --distances --gamma power", "--gamma power needs features"),
        ("inner.npy --kernel precomputed --gamma 1", "--gamma has no meaning for the precomputed kernel"),
        ("inner.npy --kernel precomputed --nystrom 9", "--nystrom 9 has no meaning"),
        ("inner.npy --kernel precomputed --target rows.npy", "--target needs features"),
        ("inner.npy --kernel precomputed --drop-invalid", "--drop-invalid has no effect on similarities"),
        ("far.npy --distances --impute median", "--impute median has no effect on distances"),
        ("inner.parquet --kernel precomputed --engine stream", "--kernel precomputed needs all rows"),
        ("far.npy --distances --engine stream", "--distances needs all rows"),
        ("inner.npy --keep-together near-duplicates", "needs a similarity"),
        ("inner.npy --keep-together near-duplicates=2", "names no similarity"),
    ],
)
def test_what_pairs_cannot_do_is_refused(folder: Path, capsys: Any, words: str, said: str) -> None:
    about = [] if ".parquet" in words else ["--metadata", "about.parquet"]
    assert run(["split", *words.split(), *about, "--out", "out"]) == 2
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert error.startswith("error: ") and said in error and hint.startswith("hint: ")
    assert not (folder / "out").exists()


def test_what_coordinates_would_not_fit_is_refused_before_it_is_read() -> None:
    check_coordinates(10_000, 4 * 10**9)
    with pytest.raises(MemoryPlanError, match=r"10,000 rows with each other would take 3\.2 GB"):
        check_coordinates(10_000, 3 * 10**9)


def test_pairs_of_one_file_are_not_compared_with_another(folder: Path, capsys: Any) -> None:
    assert run(["mmd", "inner.npy", "inner.npy", "--kernel", "precomputed"]) == 2
    assert "say nothing about those of another" in capsys.readouterr().err


@pytest.fixture
def doubled(folder: Path) -> np.ndarray[Any, Any]:
    """Rows of which twenty are nearly the same as another, but for their length."""
    rng = np.random.default_rng(9)
    rows = rng.normal(size=(N, 5))
    rows[20:40] = 2 * rows[:20] + 1e-3 * rng.normal(size=(20, 5))
    np.save(folder / "rows.npy", rows)
    return rows


def across(rows: np.ndarray[Any, Any], val: list[int], least: float) -> list[int]:
    """Rows of either side with a row of the other that has that cosine similarity with them."""
    unit = rows / np.linalg.norm(rows, axis=1)[:, None]
    is_val = np.isin(np.arange(N), val)
    found = (unit @ unit.T >= least) & (is_val[:, None] != is_val[None])
    return np.flatnonzero(found.any(axis=1)).tolist()


def test_near_duplicates_are_kept_together(made: Any, doubled: Any, capsys: Any) -> None:
    _, divided = made("rows.npy")
    report, val = made("rows.npy", "--keep-together", "near-duplicates=0.99", "--tolerance", "auto")
    assert across(doubled, divided, 0.99) and not across(doubled, val, 0.99)
    assert report["constraints"]["units"]["column"] == "near-duplicates=0.99"
    assert report["constraints"]["units"]["divided"] == 0
    _, folds = made("rows.npy", "--keep-together", "near-duplicates=0.99", command="kfold")
    assert all(folds[row] == folds[row + 20] for row in range(20))


def test_near_duplicates_may_be_those_of_the_kernel(made: Any, doubled: Any) -> None:
    squared = ((doubled[:, None] - doubled[None]) ** 2).sum(axis=2)
    gamma = 1 / doubled.var(axis=0).sum()
    units = int((np.exp(-gamma * squared) >= 0.9).sum())
    assert units > N
    report, val = made("rows.npy", "--keep-together", "near-duplicates=kernel:0.9", "--tolerance", "auto")
    is_val = np.isin(np.arange(N), val)
    assert not ((np.exp(-gamma * squared) >= 0.9) & (is_val[:, None] != is_val[None])).any()
    assert report["constraints"]["units"]["count"] < N


def test_near_duplicates_across_the_sides_are_counted(made: Any, doubled: Any, capsys: Any) -> None:
    _, val = made("rows.npy")
    rows = across(doubled, val, 0.99)
    capsys.readouterr()
    assert run(["mmd", "rows.npy", "--split", "out", "--near-duplicates", "0.99", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["near_duplicates"]
    assert found["rows"] == len(set(rows) & set(val)) > 0
    assert (found["of"], found["least"], found["measure"]) == (len(val), 0.99, "cosine similarity")
    train, in_val = found["closest"]
    assert abs(train - in_val) == 20 and in_val in val and train not in val
    assert run(["verify", "out", "--near-duplicates", "0.99", "--json"]) == 1
    (check,) = [
        each for each in json.loads(capsys.readouterr().out)["checks"] if each["name"] == "near duplicates"
    ]
    assert check["status"] == "failed" and check["detail"].startswith(f"{len(rows)} rows have a row")
    assert run(["verify", "out", "--near-duplicates", "0.99999999"]) == 0
    assert run(["verify", "out", "--near-duplicates", "2"]) == 2


def test_near_duplicates_are_those_of_two_groups(folder: Path, doubled: Any, capsys: Any) -> None:
    words = ["mmd", "rows.npy", "--metadata", "about.parquet", "--near-duplicates", "0.99", "--json"]
    assert run([*words, "--by", "label"]) == 2
    assert "compares two groups, but there are 3" in capsys.readouterr().err
    assert run([*words, "--by", "domain"]) == 0
    assert json.loads(capsys.readouterr().out)["near_duplicates"]["rows"] > 0


def test_near_duplicates_across_a_split_by_another_tool_fail_its_check(
    folder: Path, doubled: Any, capsys: Any
) -> None:
    val = np.arange(20)
    np.save("val.npy", val)
    np.save("train.npy", np.arange(20, N))
    words = ["verify", "rows.npy", "--train", "train.npy", "--val", "val.npy", "--stratify", "none"]
    assert run([*words, "--h", "0.2222"]) == 0
    assert run([*words, "--h", "0.2222", "--near-duplicates", "0.99"]) == 1
    assert "40 rows have a row of cosine similarity of 0.99" in capsys.readouterr().err


def test_a_similarity_that_joins_most_rows_is_warned_of(made: Any, doubled: Any) -> None:
    report, _ = made("rows.npy", "--keep-together", "near-duplicates=0.6", "--tolerance", "auto")
    (said,) = [note["message"] for note in report["warnings"] if note["code"] == "joined_rows"]
    assert said.startswith("near-duplicates=0.6 joins") and f"of {N} rows" in said
