"""`verify` passes on runs whose reports have warnings, whoever gave them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run

QUICK = ("--effort", "fast", "--restarts", "3", "--quiet")
WAYS: dict[str, Callable[[str], tuple[str, ...]]] = {
    "split": lambda features: ("split", features, *QUICK),
    "kfold": lambda features: ("kfold", features, "--k", "3", *QUICK),
    "parts": lambda features: ("split", features, "--parts", "train=0.5,val=0.3,test=0.2", *QUICK),
    "baseline": lambda features: ("baseline", "random", features, "--quiet"),
    "stream": lambda features: ("split", features, "--engine", "stream", "--nystrom", "20", *QUICK),
}
ROWS = 90


def table(**columns: Any) -> pa.Table:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(ROWS, 3))
    label = np.array(["cat", "dog"])[rng.integers(0, 2, ROWS)]
    return pa.table({**{f"f{i}": x[:, i] for i in range(3)}, "label": label, **columns})


def directory_with_other_files() -> tuple[str, ...]:
    Path("d/deep").mkdir(parents=True)
    pq.write_table(table(), "d/deep/p.parquet", row_group_size=40)
    Path("d/README.txt").write_text("what this is", encoding="utf-8")
    return ("d", "files_ignored")


def names_that_do_not_count() -> tuple[str, ...]:
    found = table().rename_columns(["width", "height", "depth", "label"])
    pq.write_table(found, "x.parquet", row_group_size=40)
    return ("x.parquet", "feature_columns_guessed")


def column_in_both_files() -> tuple[str, ...]:
    pq.write_table(table(), "x.parquet", row_group_size=40)
    pq.write_table(pa.table({"label": ["cat", "dog", "cow"] * (ROWS // 3)}), "meta.parquet")
    return ("x.parquet", "column_in_both", "--metadata", "meta.parquet")


def labels_that_repeat() -> tuple[str, ...]:
    pq.write_table(table(label=np.repeat([1.0, 2.0, 3.0], ROWS // 3)), "x.parquet")
    return ("x.parquet", "fewer_bins", "--label-bins", "8", "--label", "label")


def many_small_cells() -> tuple[str, ...]:
    pq.write_table(table(label=[f"class {row // 3}" for row in range(ROWS)]), "x.parquet", row_group_size=40)
    return ("x.parquet", "")


def one_wide_column() -> tuple[str, ...]:
    found = table()
    pq.write_table(found.set_column(0, "f0", pa.array(found["f0"].to_numpy() * 1e4)), "x.parquet")
    return ("x.parquet", "uneven_spreads")


def a_kernel_that_is_the_identity() -> tuple[str, ...]:
    pq.write_table(table(), "x.parquet", row_group_size=40)
    return ("x.parquet", "degenerate_kernel", "--gamma", "1e6")


def a_search_that_is_cut_off() -> tuple[str, ...]:
    pq.write_table(table(), "x.parquet", row_group_size=40)
    return ("x.parquet", "", "--max-iter", "1")


INPUTS = (
    directory_with_other_files,
    names_that_do_not_count,
    column_in_both_files,
    labels_that_repeat,
    many_small_cells,
    one_wide_column,
    a_kernel_that_is_the_identity,
    a_search_that_is_cut_off,
)
NOT_FOR = {
    ("stream", column_in_both_files),  # companions and bins need all rows in one place
    ("stream", labels_that_repeat),
    ("baseline", a_search_that_is_cut_off),
    ("baseline", labels_that_repeat),
}


@pytest.mark.parametrize(
    ("way", "given"),
    [(way, given) for way in WAYS for given in INPUTS if (way, given) not in NOT_FOR],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_run_with_warnings_passes_wherever_it_is_verified_from(
    way: str,
    given: Callable[[], tuple[str, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    features, code, *options = given()
    assert run([*WAYS[way](features), *options, "--out", "run"]) == 0, capsys.readouterr().err
    report = json.loads(Path("run/report.json").read_text("utf-8"))
    assert not code or code in {warning["code"] for warning in report["warnings"]}
    assert run(["verify", "run", "--quiet"]) == 0, capsys.readouterr().err
    if way == "stream":
        assert run(["verify", "run", "--quiet", "--engine", "stream"]) == 0, capsys.readouterr().err
    # From elsewhere, paths in the report are looked for beside the run.
    (tmp_path / "elsewhere" / "d").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run(["verify", "../run", "--quiet"]) == 0, capsys.readouterr().err


def test_the_working_directory_as_features_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    directory_with_other_files()
    monkeypatch.chdir(tmp_path / "d")
    assert run(["split", ".", *QUICK, "--out", "../run"]) == 0
    assert run(["verify", "../run", "--quiet"]) == 0, capsys.readouterr().err
    monkeypatch.chdir(tmp_path)  # which is a directory too, but not the one that was read
    assert run(["verify", "run", "--quiet"]) == 2
    assert "the input . is not there any more" in capsys.readouterr().err
    assert run(["verify", "run", "--quiet", "--features", "d"]) == 0, capsys.readouterr().err


def test_what_a_cluster_warned_of_need_not_be_so_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which versions its workers had, and which of them could not be used, no other engine can tell."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(table(), "x.parquet")
    assert run([*WAYS["stream"]("x.parquet"), "--out", "run"]) == 0
    path = Path("run/report.json")
    report = json.loads(path.read_text("utf-8"))
    report["config"]["engine"] = report["engine"]["name"] = "dask"
    of_workers = [{"code": code, "message": "a worker"} for code in ("versions_differ", "worker_not_used")]
    report["warnings"] = of_workers + report["warnings"]
    path.write_text(json.dumps(report))
    assert run(["verify", "run", "--quiet"]) == 0, capsys.readouterr().err


OLDER = {"OPENBLAS_CORETYPE": "Nehalem", "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F"}
"""Has NumPy and OpenBLAS compute as on a processor of long ago, which rounds differently."""


def as_on_an_older_processor(*words: str) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-W", "ignore", *words]
    return subprocess.run(
        start, env={**os.environ, **OLDER}, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize("way", ["split", "kfold"])
def test_runs_of_few_rows_pass_on_another_processor(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if as_on_an_older_processor("-c", "import numpy").returncode:
        pytest.skip("NumPy cannot do without what this processor has")
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(4).normal(size=(43, 2)).astype(np.float32)
    pq.write_table(pa.table({"f0": x[:, 0], "f1": x[:, 1]}), "x.parquet")
    words = (way, "x.parquet", "--stratify", "none", "--gamma", "10", *QUICK, "--out", "run")
    assert run(list(words)) == 0
    done = as_on_an_older_processor("-m", "clustersplit_cli", "verify", "run", "--quiet")
    assert done.returncode == 0, done.stderr
