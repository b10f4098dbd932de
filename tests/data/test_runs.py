"""Index files by any tool, and the directories of earlier runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.data.readers.fingerprint import content_of
from clustersplit_cli.data.runs import load_run, read_indices, report_file
from clustersplit_cli.data.writers import FORMATS, write_run
from clustersplit_cli.errors import InputError

CONTENT: dict[str, Any] = {"schema_version": 1, "config": {}}
REPORT = json.dumps(CONTENT)


def written(folder: Path, *formats: str, report: str = REPORT) -> Path:
    parts = {"train": np.array([4, 0, 2]), "val": np.array([1, 3])}
    write_run(folder / "run", parts=parts, report=report, formats=formats)
    return folder / "run"


def refusal(call: Any, *arguments: Any) -> tuple[str, str | None]:
    with pytest.raises(InputError) as caught:
        call(*arguments)
    assert "\n" not in caught.value.message
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize("name", FORMATS)
def test_a_run_is_read_back_in_every_format_it_can_be_written_in(tmp_path: Path, name: str) -> None:
    run = load_run(written(tmp_path, name), CONTENT)
    assert run.train.tolist() == [0, 2, 4]
    assert run.val.tolist() == [1, 3]
    assert run.train.dtype == np.int64
    assert run.report == CONTENT
    assert json.loads(content_of(report_file(run.directory))) == CONTENT
    assert run.paths["val"] == (tmp_path / "run" / ("split.json" if name == "json" else f"val.{name}"),)


def test_all_index_files_of_a_part_are_listed_and_the_first_is_the_one_read(tmp_path: Path) -> None:
    directory = written(tmp_path, *FORMATS)
    (directory / "val.txt").write_text("7\n")
    run = load_run(directory, CONTENT)
    assert [path.name for path in run.paths["val"]] == [
        "val.npy",
        "val.parquet",
        "val.txt",
        "val.csv",
        "split.json",
    ]
    assert run.val.tolist() == [1, 3]


def test_a_directory_that_is_no_run_is_refused(tmp_path: Path) -> None:
    assert "does not exist" in refusal(report_file, tmp_path / "nowhere")[0]
    assert "does not exist" in refusal(report_file, tmp_path / ("x" * 300))[0]
    (tmp_path / "file").write_text("x")
    assert "is not a directory" in refusal(report_file, tmp_path / "file")[0]
    assert "has no report.json" in refusal(report_file, tmp_path)[0]
    assert (
        "has neither train.npy nor train.parquet nor train.txt nor train.csv nor split.json"
        in refusal(load_run, tmp_path, CONTENT)[0]
    )


def test_a_report_that_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    """Nobody writes into the pipe: a plain `open` would wait for ever."""
    os.mkfifo(tmp_path / "report.json")
    assert "report.json is not a regular file" in refusal(content_of, report_file(tmp_path))[0]
    assert "is not a regular file" in refusal(content_of, Path(os.devnull))[0]
    assert "is not a regular file" in refusal(content_of, tmp_path)[0]
    (tmp_path / "gone").symlink_to("nowhere")
    assert "gone does not exist" in refusal(content_of, tmp_path / "gone")[0]


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.uint64, ">i4"])
def test_integers_of_every_width_are_positions(tmp_path: Path, dtype: Any) -> None:
    np.save(tmp_path / "a.npy", np.array([3, 1, 1], dtype=dtype))
    found = read_indices(tmp_path / "a.npy")
    assert found.dtype == np.int64
    assert found.tolist() == [3, 1, 1]


def test_values_come_back_as_they_are_for_the_caller_to_judge(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([5, -1, 5]))
    (tmp_path / "b.txt").write_text("5\n-1\r\n 5 \n\n")
    pq.write_table(pa.table({"x": [5, -1, 5]}), tmp_path / "c.parquet")
    for name in ("a.npy", "b.txt", "c.parquet"):
        assert read_indices(tmp_path / name).tolist() == [5, -1, 5]


def test_the_content_tells_the_format_where_the_name_does_not(tmp_path: Path) -> None:
    (tmp_path / "positions").write_text("1\n2\n")
    assert read_indices(tmp_path / "positions").tolist() == [1, 2]
    with (tmp_path / "array").open("wb") as stream:
        np.save(stream, np.array([1, 2]))
    assert read_indices(tmp_path / "array").tolist() == [1, 2]


def test_parquet_with_several_columns_is_read_by_the_one_named_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a"], "row": [9]}), tmp_path / "a.parquet")
    assert read_indices(tmp_path / "a.parquet").tolist() == [9]
    pq.write_table(pa.table({"id": [1], "other": [9]}), tmp_path / "b.parquet")
    assert "none is named 'row'" in refusal(read_indices, tmp_path / "b.parquet")[0]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.array([True, False]), "holds a mask"),
        (np.array([0.0, 1.0]), "holds float64, shape (2,), not row positions"),
        (np.array([[0, 1]]), "shape (1, 2)"),
        (np.array(["0"]), "not row positions"),
        (np.array([2**64 - 1], dtype=np.uint64), "no row position of any file"),
    ],
)
def test_arrays_that_hold_no_positions_are_refused(tmp_path: Path, values: Any, said: str) -> None:
    np.save(tmp_path / "a.npy", values)
    message, hint = refusal(read_indices, tmp_path / "a.npy")
    assert said in message
    assert "numpy.flatnonzero" in (hint or "")


def test_pickled_truncated_and_foreign_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([None]), allow_pickle=True)
    assert "pickled" in refusal(read_indices, tmp_path / "a.npy")[0]
    np.save(tmp_path / "b.npy", np.arange(100))
    (tmp_path / "b.npy").write_bytes((tmp_path / "b.npy").read_bytes()[:-8])
    assert "truncated" in refusal(read_indices, tmp_path / "b.npy")[0]
    pq.write_table(pa.table({"row": [1, 2]}), tmp_path / "c.parquet")
    (tmp_path / "c.parquet").write_bytes((tmp_path / "c.parquet").read_bytes()[:-8])
    assert "cannot be read as Parquet" in refusal(read_indices, tmp_path / "c.parquet")[0]
    np.savez(tmp_path / "d.npz", a=np.arange(3))
    assert "cannot hold row positions" in refusal(read_indices, tmp_path / "d.npz")[0]
    (tmp_path / "e.npy").write_text("1\n")
    assert "found text" in refusal(read_indices, tmp_path / "e.npy")[0]
    assert "does not exist" in refusal(read_indices, tmp_path / "f.npy")[0]


def test_parquet_of_other_types_or_with_nulls_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"row": [0.5]}), tmp_path / "a.parquet")
    assert "holds double, not row positions" in refusal(read_indices, tmp_path / "a.parquet")[0]
    pq.write_table(pa.table({"row": pa.array([1, None])}), tmp_path / "b.parquet")
    assert "has 1 nulls" in refusal(read_indices, tmp_path / "b.parquet")[0]


def test_lines_that_are_no_integers_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n\n2.5\nrow\n4\n")
    message, _ = refusal(read_indices, tmp_path / "a.txt")
    assert "3 lines" in message
    assert "line 2 ('')" in message
    assert "line 3 ('2.5')" in message
