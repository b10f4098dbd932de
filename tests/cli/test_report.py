"""`clustersplit report` and `split --html`."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run

for library in ("plotly", "jinja2"):
    pytest.importorskip(library, reason="the report needs pip install jinja2 plotly")


@pytest.fixture
def said(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run the program in this process; return its exit code and what it said on stderr."""

    def call(*arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        code = run([*map(str, arguments)])
        out, err = capsys.readouterr()
        assert out == ""
        return code, err

    return call


def command_on(page: Path) -> list[str]:
    found = re.search(r'<pre id="command"[^>]*>(.*?)</pre>', page.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return shlex.split(unescape(found[1]))


def test_report_draws_the_same_page_as_split_html(said: Callable[..., Any], folder: Path) -> None:
    assert said("split", "feats.parquet", "--id", "id", "--html", "--out", "run")[0] == 0
    first = (folder / "run" / "report.html").read_bytes()
    assert said("report", "run", "--force") == (0, "wrote run/report.html\n")
    assert (folder / "run" / "report.html").read_bytes() == first


def test_split_writes_no_page_unless_asked(said: Callable[..., Any], folder: Path) -> None:
    assert said("split", "feats.parquet", "--out", "run")[0] == 0
    assert not (folder / "run" / "report.html").exists()
    assert said("report", "run", "-o", "page.html")[0] == 0
    assert (folder / "page.html").read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--h", "0.3", "--seed", "4", "--stratify", "label", "--gamma", "median", "--format", "txt"],
        ["--kernel", "polynomial", "--degree", "2", "--exclude", "domain=art", "--tolerance", "0.2"],
        ["--kernel", "linear", "--standardize", "zscore", "--stratify", "none", "--columns", "f0,f2"],
        ["--nystrom", "30", "--restarts", "3", "--id", "id", "--rounding", "balanced"],
    ],
)
def test_the_command_on_the_page_makes_the_same_split(
    said: Callable[..., Any], folder: Path, options: list[str]
) -> None:
    assert said("split", "feats.parquet", *options, "--html", "--out", "run")[0] == 0
    name, *words = command_on(folder / "run" / "report.html")
    (folder / "run").rename(folder / "before")
    assert name == "clustersplit"
    assert said(*words)[0] == 0
    suffix = "txt" if "txt" in options else "npy"
    for part in ("train", "val"):
        file = f"{part}.{suffix}"
        assert (folder / "run" / file).read_bytes() == (folder / "before" / file).read_bytes()


def test_baselines_can_be_drawn_and_made_again(said: Callable[..., Any], folder: Path) -> None:
    baseline = ("baseline", "leave-one-domain-out", "feats.parquet", "--leave", "art", "--out", "run")
    assert said(*baseline)[0] == 0
    assert said("report", "run")[0] == 0
    page = (folder / "run" / "report.html").read_text("utf-8")
    assert "leaving out <b>art</b>" in page
    assert command_on(folder / "run" / "report.html")[1:4] == list(baseline[:3])
    before = np.load(folder / "run" / "val.npy")
    assert said(*command_on(folder / "run" / "report.html")[1:], "--force")[0] == 0
    np.testing.assert_array_equal(np.load(folder / "run" / "val.npy"), before)


def test_an_input_that_moved_is_found_where_the_user_says(said: Callable[..., Any], folder: Path) -> None:
    assert said("split", "feats.parquet", "--out", "run")[0] == 0
    shutil.move(folder / "feats.parquet", folder / "elsewhere.parquet")
    code, err = said("report", "run")
    assert code == 2
    assert "feats.parquet is not there any more" in err
    assert said("report", "run", "--features", "elsewhere.parquet")[0] == 0


def test_an_input_that_changed_is_refused(said: Callable[..., Any], folder: Path, table: pa.Table) -> None:
    assert said("split", "feats.parquet", "--out", "run")[0] == 0
    pq.write_table(table.slice(1), folder / "feats.parquet")
    code, err = said("report", "run")
    assert code == 2
    assert err.startswith("error: feats.parquet is not the file that the run was made from\nhint: ")
    assert not (folder / "run" / "report.html").exists()


def test_index_files_that_are_no_split_are_refused(said: Callable[..., Any], folder: Path) -> None:
    assert said("split", "feats.parquet", "--out", "run")[0] == 0
    val = np.load(folder / "run" / "val.npy")
    np.save(folder / "run" / "val.npy", val[1:])
    code, err = said("report", "run")
    assert code == 2
    assert "do not describe a split of the input" in err
    assert "clustersplit verify run" in err


def test_an_earlier_page_is_replaced_only_by_force(said: Callable[..., Any], folder: Path) -> None:
    assert said("split", "feats.parquet", "--out", "run")[0] == 0
    (folder / "page.html").write_text("mine")
    assert said("report", "run", "-o", "page.html")[0] == 2
    assert (folder / "page.html").read_text() == "mine"
    assert said("report", "run", "-o", "page.html", "--force")[0] == 0


@pytest.mark.parametrize("words", [["split", "feats.parquet", "--html"], ["report", "nowhere"]])
def test_without_the_extra_nothing_starts(
    said: Callable[..., Any],
    folder: Path,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    files: Callable[[], set[str]],
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert said(*words) == (
        2,
        "error: an HTML report needs plotly\nhint: pip install jinja2 plotly\n",
    )
    assert files() == {"feats.parquet"}


def test_a_page_cannot_go_to_stdout(said: Callable[..., Any]) -> None:
    code, err = said("split", "feats.parquet", "--out", "-", "--format", "txt", "--html")
    assert code == 2
    assert "--out - writes no report.html" in err


@pytest.mark.parametrize(
    "words",
    [
        ["kfold", "feats.parquet", "--k", "3", "--seed", "4"],
        [
            "kfold",
            "feats.parquet",
            "--k",
            "3",
            "--keep-together",
            "id",
            "--tolerance",
            "auto",
            "--stratify",
            "label",
        ],
        [
            "split",
            "feats.parquet",
            "--parts",
            "train=0.6,val=0.2,test=0.2",
            "--tolerance",
            "0.1",
            "--id",
            "id",
        ],
    ],
)
def test_folds_and_parts_are_drawn_at_once_and_later_and_can_be_made_again(
    said: Callable[..., Any], folder: Path, words: list[str]
) -> None:
    assert said(*words, "--html", "--restarts", "3", "--out", "run")[0] == 0
    page = folder / "run" / "report.html"
    first = page.read_bytes()
    assert said("report", "run", "--force") == (0, "wrote run/report.html\n")
    assert page.read_bytes() == first
    name, *again = command_on(page)
    assert (name, again[0]) == ("clustersplit", words[0])
    shutil.move(folder / "run", folder / "before")
    assert said(*again)[0] == 0
    for file in (folder / "before").rglob("*.npy"):
        assert (folder / "run" / file.relative_to(folder / "before")).read_bytes() == file.read_bytes()
    code, err = said("verify", "run")
    assert code == 0, err


def test_folds_of_units_say_how_even_they_are(
    said: Callable[..., Any], folder: Path, table: pa.Table
) -> None:
    units = np.repeat(np.arange(7), [60, 10, 10, 10, 10, 10, 10])
    pq.write_table(table.append_column("patient", pa.array(units)), folder / "feats.parquet")
    options = ("--keep-together", "patient", "--tolerance", "auto", "--restarts", "2", "--stratify", "label")
    assert said("kfold", "feats.parquet", "--k", "3", *options, "--html", "--out", "run")[0] == 0
    page = unescape((folder / "run" / "report.html").read_text("utf-8").partition('id="plotly"')[0])
    assert "every class keeps its share, as far as whole units allow, in every fold." in page
    assert "Rows with the same patient stay together: 7 units of up to 60 rows, none divided." in page
    assert "the smallest found, for the cells that need it." in page
    code, err = said("kfold", "feats.parquet", "--k", "3", "--keep-together", "patient", "--out", "exact")
    assert code == 3
    assert "hint: with --tolerance" in err
    code, err = said("kfold", "feats.parquet", "--tolerance", "0.1", "--out", "loose")
    assert (code, "--tolerance has no effect on folds of single rows" in err) == (2, True)


def test_folds_that_are_none_of_the_input_are_refused(said: Callable[..., Any], folder: Path) -> None:
    assert said("kfold", "feats.parquet", "--k", "2", "--out", "run")[0] == 0
    val = folder / "run" / "fold_1" / "val.npy"
    np.save(val, np.load(val)[1:])
    code, err = said("report", "run")
    assert code == 2
    assert "do not describe a split of the input" in err


def test_units_pins_and_families_are_told_in_words(said: Callable[..., Any], folder: Path) -> None:
    (folder / "val.txt").write_text("3\n8\n")
    options = ("--stratify", "label", "--stratify", "domain", "--force-val", "val.txt", "--tolerance", "0.1")
    assert said("split", "feats.parquet", *options, "--html", "--out", "run")[0] == 0
    page = unescape((folder / "run" / "report.html").read_text("utf-8").partition('id="plotly"')[0])
    assert "every class and every domain keeps its share within 10.0% of it." in page
    assert "Each of 2 families of cells keeps its shares: label; domain." in page
    assert "0 rows are forced into training and 2 into validation; all of them are there." in page
    assert '<th scope="row">label cat</th>' in page
    options = ("--keep-together", "exact-duplicates", "--tolerance", "auto", "--stratify", "label")
    assert said("split", "feats.parquet", *options, "--html", "--out", "run", "--force")[0] == 0
    page = unescape((folder / "run" / "report.html").read_text("utf-8").partition('id="plotly"')[0])
    assert "Identical rows stay together: 108 different ones, up to 2 times each, none divided." in page
    assert re.search(r"The tolerance is [0-9.]+( \(exact\))?, the smallest that can be met\.", page)
