"""`--severity` and `--at-mmd`: splits between random and worst case, wherever the rows are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit import ClusterShuffleSplit, cluster_folds, cluster_parts, cluster_split
from clustersplit_cli.cli.app import run
from clustersplit_cli.core.severity import WITHIN

Split = Callable[..., Any]
N = 360


def rows() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(N, 4)).astype(np.float32)
    x[:, 0] += 2.0 * rng.integers(0, 3, N)
    x[:, 1:] *= 1.5  # no column has most of the variance
    return x, np.array(["cat", "dog"])[rng.integers(0, 2, N)], np.array(["a", "b"])[rng.integers(0, 2, N)]


@pytest.fixture
def graded(folder: Path) -> Path:
    x, label, domain = rows()
    columns = {f"f{column}": x[:, column] for column in range(4)}
    more = {"unit": np.arange(N) // 3, "label": label, "domain": domain}
    pq.write_table(pa.table({**columns, **more}), folder / "graded.parquet")
    return folder


COLUMNS = ("graded.parquet", "--columns", "f*")


def report(folder: Path, out: str = "graded_split") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / out / "report.json").read_text())
    return found


def assert_as_asked(content: dict[str, Any], within: float = WITHIN) -> dict[str, Any]:
    grade = content["graded"]
    width = grade["best_mmd"] - grade["random_mmd"]
    assert grade["asked"] == pytest.approx(grade["random_mmd"] + grade["severity"] * width)
    assert abs(grade["reached"] - grade["asked"]) <= within * width
    assert grade["reached"] == content["mmd"]["value"]
    assert grade["random_mmd"] == content["baselines"]["random"]["mmd_mean"]
    assert content["constraints"]["all_satisfied"]
    assert content["certificate"] is None
    return dict(grade)


CONSTRAINTS = {
    "plain": (),
    "nystrom": ("--nystrom", "50"),
    "balanced": ("--rounding", "balanced", "--h", "0.13"),
    "tolerance": ("--tolerance", "0.2"),
    "families": ("--stratify", "label", "--stratify", "domain"),
    "units": ("--keep-together", "unit", "--tolerance", "0.1"),
    "forced": ("--force-val", "pins.txt"),
    "stream": ("--engine", "stream", "--nystrom", "50"),
    "parts": ("--parts", "train=0.6,val=0.2,test=0.2"),
    "parts with room": ("--parts", "train=0.6,val=0.2,test=0.2", "--tolerance", "0.2"),
    "parts of units": ("--parts", "train=0.6,val=0.4", "--keep-together", "unit", "--tolerance", "auto"),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_graded_splits_are_where_they_were_asked_for_and_verify(
    split: Split, graded: Path, name: str
) -> None:
    """The fixture verifies every run."""
    (graded / "pins.txt").write_text("3\n17\n29\n", encoding="utf-8")
    reached = []
    for severity in (0, 0.6):
        result = split(*COLUMNS, *CONSTRAINTS[name], "--severity", severity, "--force", "--restarts", 3)
        assert result.code == 0, result.err
        reached.append(assert_as_asked(report(graded))["reached"])
        assert result.err.count("severity_missed") == 0
    assert reached == sorted(reached)


def test_folds_are_graded_too(graded: Path) -> None:
    words = ("kfold", *COLUMNS, "--k", "3", "--effort", "fast", "--quiet", "--force")
    for severity in ("0", "0.5"):
        assert run([*words, "--severity", severity]) == 0
        assert_as_asked(report(graded, "graded_folds"))
        assert run(["verify", "graded_folds", "--rerun"]) == 0


def test_severity_1_is_the_split_without_it(split: Split, graded: Path) -> None:
    assert split(*COLUMNS, "--out", "plain").code == 0
    assert split(*COLUMNS, "--severity", "1", "--out", "hardest").code == 0
    plain, hardest = report(graded, "plain"), report(graded, "hardest")
    assert (graded / "plain/val.npy").read_bytes() == (graded / "hardest/val.npy").read_bytes()
    assert plain["config"] == hardest["config"]
    assert hardest["graded"] is None
    assert hardest["certificate"]["status"] == "optimal"


def test_severity_0_says_that_it_is_an_ordinary_random_split(split: Split, graded: Path) -> None:
    said = split(*COLUMNS, "--severity", "0", "--verbose").err
    assert "severity     0: an ordinary stratified random split" in said
    assert "certificate  none: a graded split is not locally optimal" in said
    assert "bound        the best found has at least" in said
    assert "warning" not in said


def test_an_mmd_is_asked_for_and_replayed(split: Split, graded: Path) -> None:
    assert split(*COLUMNS, "--severity", "0.5", "--out", "half").code == 0
    half = report(graded, "half")["graded"]
    wanted = f"{half['asked']:.8f}"
    assert split(*COLUMNS, "--at-mmd", wanted, "--out", "at").code == 0
    at = report(graded, "at")
    assert at["graded"]["asked"] == float(wanted)
    assert at["graded"]["severity"] == pytest.approx(0.5, abs=1e-4)
    assert (at["config"]["severity"], at["config"]["at_mmd"]) == (None, float(wanted))
    assert (graded / "at/val.npy").read_bytes() == (graded / "half/val.npy").read_bytes()
    for earlier in ("half", "at"):
        assert split("--config", f"{earlier}/report.json", "--out", f"{earlier}_again").code == 0
        same = (graded / f"{earlier}_again/val.npy").read_bytes() == (graded / "half/val.npy").read_bytes()
        assert same
        assert report(graded, f"{earlier}_again")["graded"] == report(graded, earlier)["graded"]
    # What is said of one overrules the other.
    assert split("--config", "at/report.json", "--severity", "0.2", "--out", "other").code == 0
    assert report(graded, "other")["graded"]["severity"] == 0.2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--severity", "1.5"], "error: --severity must lie between 0 and 1, got 1.5"),
        (["--severity", "-0.1"], "error: --severity must lie between 0 and 1, got -0.1"),
        (["--severity", "nan"], "error: --severity must lie between 0 and 1, got nan"),
        (["--severity", "hard"], "error: --severity 'hard' is not a number"),
        (["--at-mmd", "-1"], "error: --at-mmd must not be negative or infinite, got -1"),
        (["--at-mmd", "x"], "error: --at-mmd 'x' is not a number"),
        (["--at-mmd", "0.2", "--severity", "0.5"], "error: --severity and --at-mmd both say how hard"),
        (["--severity", "0.5", "--certify", "always"], "error: --certify always cannot be combined"),
        (["--at-mmd", "9"], "error: --at-mmd 9 cannot be reached: splits of these rows range from 0."),
        (["--at-mmd", "9", "--engine", "stream", "--nystrom", "20"], "error: --at-mmd 9 cannot be reached"),
        (["--at-mmd", "0"], "error: --at-mmd 0 cannot be reached: splits of these rows range from 0."),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    split: Split, graded: Path, words: list[str], message: str
) -> None:
    result = split(*COLUMNS, *words)
    assert result.code == 2
    assert result.err.count(message) == 1
    assert not (graded / "graded_split").exists()


def test_few_rows_that_leave_gaps_get_a_warning(split: Split, folder: Path) -> None:
    x = np.array([[0.0], [0.0], [0.0], [10.0]], dtype=np.float32)
    np.save(folder / "four.npy", x)
    words = ("four.npy", "--stratify", "none", "--h", "0.25", "--gamma", "1")
    result = split(*words, "--severity", "0.4")
    assert result.code == 0
    assert "no split was found within 1 % of the range" in result.err


def test_a_range_that_was_changed_is_found_out(split: Split, graded: Path) -> None:
    assert split(*COLUMNS, "--severity", "0.5", "--restarts", "3").code == 0
    path = graded / "graded_split" / "report.json"
    honest = path.read_text()
    for key in json.loads(honest)["graded"]:
        content = json.loads(honest)
        content["graded"][key] *= 0.999
        path.write_text(json.dumps(content), encoding="utf-8")
        assert run(["verify", "graded_split", "--quiet"]) == 1, key
    path.write_text(honest, encoding="utf-8")
    assert run(["verify", "graded_split", "--rerun", "--quiet"]) == 0


def test_a_streamed_one_verifies_on_both_engines_and_again(split: Split, graded: Path) -> None:
    words = (*COLUMNS, "--engine", "stream", "--nystrom", "50", "--severity", "0.4", "--threads", "1")
    assert split(*words).code == 0
    assert run(["verify", "graded_split", "--rerun", "--quiet"]) == 0
    assert run(["verify", "graded_split", "--engine", "local", "--quiet"]) == 0
    first = (graded / "graded_split/val.npy").read_bytes()
    assert split(*words[:-1], "2", "--force").code == 0
    assert (graded / "graded_split/val.npy").read_bytes() == first


def test_the_page_of_a_graded_split_says_so(split: Split, graded: Path) -> None:
    assert split(*COLUMNS, "--severity", "0.25", "--html").code == 0
    page = (graded / "graded_split/report.html").read_text(encoding="utf-8")
    assert "Severity 0.25 was asked for. The scale goes from random splits" in page
    assert "severity, 0 random to 1 hardest" in page
    assert "--severity 0.25" in page


def test_python_makes_the_same_graded_splits(split: Split, graded: Path) -> None:
    x, label, domain = rows()
    assert split(*COLUMNS, "--severity", "0.5").code == 0
    wanted = np.load(graded / "graded_split/val.npy")
    found = cluster_split(x, label, domain, severity=0.5, effort="fast")
    assert np.array_equal(found.val, wanted)
    assert found.report.graded is not None
    assert found.report.graded.severity == 0.5
    again = cluster_split(x, label, domain, at_mmd=found.report.graded.asked, effort="fast")
    assert np.array_equal(again.val, wanted)
    ((_, val),) = ClusterShuffleSplit(severity=0.5, effort="fast").split(x, label, domains=domain)
    assert np.array_equal(val, wanted)
    shares = {"train": 0.6, "val": 0.4}
    for partition in (
        cluster_parts(x, label, parts=shares, severity=0.3, effort="fast"),
        cluster_folds(x, label, k=3, severity=0.3, effort="fast"),
    ):
        assert partition.report.graded is not None
        assert partition.report.graded.severity_reached == pytest.approx(0.3, abs=WITHIN)
    with pytest.raises(ValueError, match="severity must lie between 0 and 1"):
        cluster_split(x, severity=2)


def test_several_graded_splits_differ_and_are_as_hard() -> None:
    x, label, domain = rows()
    cv = ClusterShuffleSplit(3, severity=0.4, effort="fast")
    found = [val for _, val in cv.split(x, label, domains=domain)]
    assert len(found) == 3
    assert cv.get_n_splits(x, label, domains=domain) == 3
    one = cluster_split(x, label, domain, severity=0.4, effort="fast")
    assert np.array_equal(found[0], one.val)
    shared = [len(np.intersect1d(found[0], other)) / len(found[0]) for other in found[1:]]
    assert max(shared) < 0.7
