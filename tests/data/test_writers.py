from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersplit_cli.data.writers import FORMATS, check_ids, write_index_stream, write_run
from clustersplit_cli.errors import OutputError, UsageError

REPORT = '{"schema_version": 1}'
PARTS = {"train": np.array([0, 2, 3, 5]), "val": np.array([1, 4])}


def _write(destination: Path, *formats: str, ids: Any = None, **more: Any) -> list[Path]:
    return write_run(destination, **{"parts": PARTS, "report": REPORT, "formats": formats, "ids": ids} | more)


def test_positions_are_sorted_int64_in_every_format(tmp_path: Path) -> None:
    shuffled = {"train": np.array([5, 0, 3, 2], np.int32), "val": np.array([4, 1])}
    paths = _write(tmp_path / "run", "npy", "txt", "parquet", parts=shuffled)
    names = ["train.npy", "train.txt", "train.parquet", "val.npy", "val.txt", "val.parquet", "report.json"]
    assert paths == [tmp_path / "run" / name for name in names]
    for part, rows in PARTS.items():
        positions = np.load(tmp_path / "run" / f"{part}.npy", allow_pickle=False)
        assert positions.dtype == np.dtype("<i8")
        np.testing.assert_array_equal(positions, rows)
        assert (tmp_path / "run" / f"{part}.txt").read_bytes() == "".join(f"{r}\n" for r in rows).encode()
        table = pq.read_table(tmp_path / "run" / f"{part}.parquet")
        assert table.equals(pa.table({"row": pa.array(rows, pa.int64())}))
    assert json.loads((tmp_path / "run" / "report.json").read_text()) == {"schema_version": 1}


def test_the_npy_file_is_byte_for_byte_what_numpy_writes(tmp_path: Path) -> None:
    _write(tmp_path / "run", "npy")
    expected = io.BytesIO()
    np.save(expected, PARTS["train"].astype(np.int64))
    assert (tmp_path / "run" / "train.npy").read_bytes() == expected.getvalue()


@pytest.mark.parametrize(
    ("ids", "dtype"),
    [
        (pa.array(["a", "bb", "", "d", "é\U0001f600x", "f"]), "<U3"),
        (pa.array(["a", "bb", "", "d", "é\U0001f600x", "f"]).dictionary_encode(), "<U3"),
        (pa.chunked_array([["a", "bb"], ["", "d", "é\U0001f600x"], ["f"]]), "<U3"),
        (pa.array([10, 11, 12, 13, 14, 15], pa.uint16()), "<u2"),
        (pa.array([True, False, True, True, False, False]), "|b1"),
        (pa.array([0.5, 1.5, 2.5, 3.5, 4.5, 5.5]), "<f8"),
    ],
)
def test_ids_follow_the_order_of_the_positions_in_every_format(tmp_path: Path, ids: Any, dtype: str) -> None:
    _write(tmp_path / "run", "npy", "txt", "parquet", ids=ids, id_name="key")
    for part, rows in PARTS.items():
        expected = [ids[int(row)].as_py() for row in rows]
        stored = np.load(tmp_path / "run" / f"{part}_ids.npy", allow_pickle=False)
        assert stored.tolist() == expected
        if part == "val":
            assert stored.dtype == np.dtype(dtype)
        lines = (tmp_path / "run" / f"{part}_ids.txt").read_text().split("\n")
        assert lines == [*(str(v).lower() if isinstance(v, bool) else str(v) for v in expected), ""]
        assert pq.read_table(tmp_path / "run" / f"{part}_ids.parquet").to_pydict() == {"key": expected}


@given(values=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_any_text_survives_the_fixed_width_array(values: list[str], tmp_path_factory: Any) -> None:
    directory = tmp_path_factory.mktemp("ids")
    everything = {"train": np.arange(len(values))}
    _write(directory / "run", "npy", ids=pa.array(values, pa.string()), parts=everything)
    assert np.load(directory / "run" / "train_ids.npy").tolist() == values


@pytest.mark.parametrize(
    ("ids", "formats", "message"),
    [
        (["a\nb", "c"], ["txt"], "ids hold line breaks in 1 rows (first: 0), which txt cannot hold"),
        (["a", "b\r"], ["npy", "txt"], "ids hold line breaks in 1 rows (first: 1), which txt cannot hold"),
        (["a", "b\0"], ["npy"], "ids end in a NUL character in 1 rows (first: 1), which npy cannot hold"),
        (["a", None], ["npy"], "ids are missing in 1 rows (first: 1), which npy cannot hold"),
        ([b"a", b"b"], ["npy", "txt"], "ids are of type binary, which npy and txt cannot hold"),
        ([[1], [2]], ["txt"], "ids are of type list<item: int64>, which txt cannot hold"),
    ],
)
def test_ids_that_a_format_cannot_hold_are_refused_with_a_cure(
    tmp_path: Path, ids: list[Any], formats: list[str], message: str
) -> None:
    parts = {"train": np.array([0]), "val": np.array([1])}
    with pytest.raises(OutputError) as caught:
        _write(tmp_path / "run", *formats, ids=pa.array(ids), parts=parts)
    assert (caught.value.message, caught.value.hint) == (message, "use --format parquet only")
    assert list(tmp_path.iterdir()) == []
    _write(tmp_path / "run", "parquet", ids=pa.array(ids), parts=parts)
    assert pq.read_table(tmp_path / "run" / "val_ids.parquet").to_pydict() == {"id": ids[1:]}


def test_a_nul_or_a_line_break_that_the_format_can_hold_is_kept(tmp_path: Path) -> None:
    ids = pa.array(["a\0b", "\n", "", "c", "d", "e"])
    check_ids(ids, ["npy"])
    _write(tmp_path / "run", "npy", ids=ids)
    assert np.load(tmp_path / "run" / "train_ids.npy").tolist() == ["a\0b", "", "c", "e"]
    assert np.load(tmp_path / "run" / "val_ids.npy").tolist() == ["\n", "d"]


def test_an_empty_part_is_an_empty_file_in_every_format(tmp_path: Path) -> None:
    parts = {"val": np.array([], np.int64)}
    _write(tmp_path / "run", *FORMATS, ids=pa.array(["a"]), parts=parts)
    for stem in ("val", "val_ids"):
        assert np.load(tmp_path / "run" / f"{stem}.npy").shape == (0,)
        assert (tmp_path / "run" / f"{stem}.txt").read_bytes() == b""
        assert pq.read_table(tmp_path / "run" / f"{stem}.parquet").num_rows == 0


@pytest.mark.parametrize(
    ("formats", "message"), [(["xml"], "unknown output format 'xml'"), ([], "no output format is given")]
)
def test_unknown_formats_are_a_usage_error(tmp_path: Path, formats: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        _write(tmp_path / "run", *formats)
    assert caught.value.hint == "use one or more of npy, txt, csv, parquet, json"
    assert list(tmp_path.iterdir()) == []


def test_a_format_given_twice_is_written_once(tmp_path: Path) -> None:
    assert [path.name for path in _write(tmp_path / "run", "txt", "txt")] == [
        "train.txt",
        "val.txt",
        "report.json",
    ]


def test_a_report_that_names_a_path_which_is_not_text_stays_json(tmp_path: Path) -> None:
    report = json.dumps({"schema_version": 1, "path": "caf\udce9", "é": 1}, ensure_ascii=False)
    _write(tmp_path / "run", "txt", report=report)
    assert json.loads((tmp_path / "run" / "report.json").read_bytes()) == json.loads(report)


def test_the_stream_gets_sorted_lines_and_nothing_else() -> None:
    stream = io.BytesIO()
    write_index_stream(np.array([30, 4, 100]), stream)
    assert stream.getvalue() == b"4\n30\n100\n"


def test_a_full_device_behind_the_stream_is_one_line_with_a_cure() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with (
        pytest.raises(OutputError, match="cannot write /dev/full: no space left") as caught,
        Path("/dev/full").open("wb", buffering=0) as stream,
    ):
        write_index_stream(np.arange(10), stream)
    assert caught.value.hint


def test_a_reader_that_goes_away_is_a_broken_pipe() -> None:
    program = (
        "import sys, numpy as np; from clustersplit_cli.data.writers import write_index_stream\n"
        "try: write_index_stream(np.arange(1_000_000), sys.stdout.buffer)\n"
        "except BrokenPipeError: sys.stderr.write('gone'); sys.stderr.flush(); import os; os._exit(0)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        assert process.stderr.read() == b"gone"


def test_millions_of_rows_take_seconds_in_every_format(tmp_path: Path) -> None:
    n = 2_000_000
    ids = pa.array(np.arange(n)).cast(pa.string())
    parts = {"train": np.arange(0, n, 2), "val": np.arange(1, n, 2)}
    start = time.process_time()
    _write(tmp_path / "run", *FORMATS, ids=ids, parts=parts)
    assert time.process_time() - start < 8  # a Python loop over the rows takes several times as long
    np.testing.assert_array_equal(
        np.loadtxt(tmp_path / "run" / "val.txt", np.int64, max_rows=5), [1, 3, 5, 7, 9]
    )
    np.testing.assert_array_equal(np.load(tmp_path / "run" / "val_ids.npy")[-1:], [str(n - 1)])
