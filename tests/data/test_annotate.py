from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.data.annotate import annotate, check_annotation
from clustersplit_cli.errors import InputError, OutputError, UsageError

N = 1_000
PARTS = np.array(["train", "val", "excluded", "dropped"])[np.random.default_rng(0).integers(0, 4, N)]


def _table() -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "x": rng.normal(size=N),
            "n": np.arange(N),
            "label": np.array(["cat", "dog", "é\n,"])[rng.integers(0, 3, N)],
        }
    )


def _stream(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=70)


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "in.parquet": lambda table, path: pq.write_table(table, path, row_group_size=77),
    "in.csv": pa.csv.write_csv,
    "in.feather": lambda table, path: pa.feather.write_feather(table, path, chunksize=77),
    "in.arrows": _stream,
}


@pytest.mark.parametrize("name", WRITERS)
def test_the_copy_has_every_row_in_order_and_its_part(tmp_path: Path, name: str) -> None:
    WRITERS[name](_table(), tmp_path / name)
    annotate(tmp_path / name, tmp_path / "out.parquet", PARTS)
    copy = pq.read_table(tmp_path / "out.parquet")
    assert copy.drop_columns("split").equals(_table())
    assert copy.column("split").to_pylist() == PARTS.tolist()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([name, "out.parquet"])


def test_a_hive_directory_is_copied_in_bytewise_order_with_its_partitions(tmp_path: Path) -> None:
    for domain, name, start in (("b", "1.parquet", 0), ("B", "2.parquet", 2), ("é", "0.parquet", 4)):
        folder = tmp_path / "in" / f"domain={domain}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"x": [start, start + 1]}), folder / name)
    parts = np.array(["train", "val", "train", "train", "val", "excluded"])
    annotate(tmp_path / "in", tmp_path / "out.parquet", parts)
    assert pq.read_table(tmp_path / "out.parquet").to_pydict() == {
        "x": [2, 3, 0, 1, 4, 5],
        "domain": ["B", "B", "b", "b", "é", "é"],
        "split": parts.tolist(),
    }


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_plain_array_becomes_one_list_column(tmp_path: Path, order: str) -> None:
    array = np.random.default_rng(2).normal(size=(N, 7)).astype(np.float32)
    np.save(tmp_path / "in.npy", np.asarray(array, order=order))  # type: ignore[call-overload]
    annotate(tmp_path / "in.npy", tmp_path / "out.parquet", PARTS)
    copy = pq.read_table(tmp_path / "out.parquet")
    assert copy.schema.field("features").type == pa.list_(pa.float32(), 7)
    np.testing.assert_array_equal(np.array(copy.column("features").to_pylist(), np.float32), array)
    assert copy.column("split").to_pylist() == PARTS.tolist()


def test_records_and_archives_keep_their_columns(tmp_path: Path) -> None:
    records = np.zeros(3, dtype=[("v", ">f4", (2,)), ("label", "U3"), ("k", "i8")])
    records["v"], records["label"], records["k"] = [[0, 1], [2, 3], [4, 5]], ["a", "bc", "é"], [7, 8, 9]
    np.save(tmp_path / "in.npy", records)
    columns = {"X": records["v"].astype("f4"), "label": records["label"]}
    np.savez(tmp_path / "in.npz", **columns, classes=np.array(["of", "another", "length", "!"]))
    parts = np.array(["train", "val", "dropped"])
    annotate(tmp_path / "in.npy", tmp_path / "records.parquet", parts)
    annotate(tmp_path / "in.npz", tmp_path / "archive.parquet", parts)
    lists, labels, split = [[0, 1], [2, 3], [4, 5]], ["a", "bc", "é"], parts.tolist()
    expected = {"v": lists, "label": labels, "k": [7, 8, 9], "split": split}
    assert pq.read_table(tmp_path / "records.parquet").to_pydict() == expected
    expected = {"X": lists, "label": labels, "split": split}
    assert pq.read_table(tmp_path / "archive.parquet").to_pydict() == expected


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_columns_that_change_their_look_late_are_copied_unharmed(tmp_path: Path, delimiter: str) -> None:
    n = 600_000  # more than one block, so that the types of the first are wrong later
    numbers = [*map(str, range(n)), "0.5"]
    words = [*["12"] * n, "twelve"]
    big = str(2**53 + 1)
    lines = [f"a{delimiter}w{delimiter}id{delimiter}gap"]
    lines += [f"{a}{delimiter}{w}{delimiter}{big}{delimiter}" for a, w in zip(numbers, words, strict=True)]
    lines[-1] += "end"
    (tmp_path / "in.csv").write_text("\n".join(lines) + "\n")
    annotate(tmp_path / "in.csv", tmp_path / "out.parquet", np.full(n + 1, "val"))
    copy = pq.read_table(tmp_path / "out.parquet")
    assert copy.num_rows == n + 1
    assert copy.column("a")[n].as_py() == 0.5
    assert copy.column("w").slice(n - 1).to_pylist() == ["12", "twelve"]
    assert set(copy.column("id").unique().to_pylist()) == {2**53 + 1}
    assert copy.column("gap")[n].as_py() == "end"


def test_a_split_column_is_an_error_with_a_cure(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0], "split": ["mine"]}), tmp_path / "in.parquet")
    with pytest.raises(InputError, match="has a column named 'split' already") as caught:
        check_annotation(tmp_path / "in.parquet", tmp_path / "out.parquet")
    assert caught.value.hint is not None and "rename" in caught.value.hint
    with pytest.raises(InputError, match="has a column named 'split' already"):
        annotate(tmp_path / "in.parquet", tmp_path / "out.parquet", np.array(["val"]))
    assert [entry.name for entry in tmp_path.iterdir()] == ["in.parquet"]


@pytest.mark.parametrize("n", [N - 1, N + 1])
def test_an_input_whose_length_changed_is_an_error_and_nothing_is_written(tmp_path: Path, n: int) -> None:
    pq.write_table(_table(), tmp_path / "in.parquet")
    with pytest.raises(InputError, match="changed while it was used"):
        annotate(tmp_path / "in.parquet", tmp_path / "out.parquet", np.full(n, "val"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["in.parquet"]


def test_the_input_is_never_replaced_by_its_copy(tmp_path: Path) -> None:
    pq.write_table(_table(), tmp_path / "in.parquet")
    (tmp_path / "link.parquet").symlink_to("in.parquet")
    for destination in ("in.parquet", "link.parquet"):
        with pytest.raises(OutputError, match="is, or holds, the input"):
            annotate(tmp_path / "in.parquet", tmp_path / destination, PARTS, force=True)
    assert pq.read_table(tmp_path / "in.parquet").equals(_table())


def test_an_earlier_copy_is_replaced_only_with_force(tmp_path: Path) -> None:
    pq.write_table(_table(), tmp_path / "in.parquet")
    (tmp_path / "out.parquet").write_text("earlier")
    with pytest.raises(OutputError, match="exists already"):
        annotate(tmp_path / "in.parquet", tmp_path / "out.parquet", PARTS)
    assert (tmp_path / "out.parquet").read_text() == "earlier"
    annotate(tmp_path / "in.parquet", tmp_path / "out.parquet", PARTS, force=True)
    assert pq.read_table(tmp_path / "out.parquet").num_rows == N


def test_a_damaged_input_is_an_input_error_and_nothing_is_written(tmp_path: Path) -> None:
    pq.write_table(_table(), tmp_path / "in.parquet", row_group_size=100, compression="zstd")
    content = bytearray((tmp_path / "in.parquet").read_bytes())
    content[len(content) // 3 : len(content) // 2] = bytes(len(content) // 2 - len(content) // 3)
    (tmp_path / "in.parquet").write_bytes(content)
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        annotate(tmp_path / "in.parquet", tmp_path / "out.parquet", PARTS)
    assert [entry.name for entry in tmp_path.iterdir()] == ["in.parquet"]


def test_memory_does_not_grow_with_the_number_of_rows(tmp_path: Path) -> None:
    def peak(n_groups: int) -> int:
        source = tmp_path / f"{n_groups}.parquet"
        block = pa.table({f"x{i}": np.random.default_rng(i).normal(size=20_000) for i in range(20)})
        with pq.ParquetWriter(source, block.schema) as writer:
            for _ in range(n_groups):
                writer.write_table(block)
        program = (
            "import resource, sys, numpy as np; from pathlib import Path\n"
            "from clustersplit_cli.data.annotate import annotate\n"
            "annotate(Path(sys.argv[1]), Path(sys.argv[2]), np.full(int(sys.argv[3]), 'val'))\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        rows = str(20_000 * n_groups)
        command = [sys.executable, "-c", program, str(source), f"{source}.out.parquet", rows]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    # 80 MB more of input; what is allowed are the metadata and the noise of the allocator.
    assert peak(30) - peak(5) < 30_000


READERS: dict[str, Callable[[Path], pa.Table]] = {
    "out.csv": lambda path: pa.csv.read_csv(path, parse_options=pa.csv.ParseOptions(newlines_in_values=True)),
    "out.feather": pa.feather.read_table,
    "out.PQ": pq.read_table,
}


@pytest.mark.parametrize("name", READERS)
def test_the_suffix_of_the_name_is_the_format_of_the_copy(tmp_path: Path, name: str) -> None:
    table = _table().append_column("breed", _table()["label"].dictionary_encode())
    pq.write_table(table, tmp_path / "in.parquet")
    annotate(tmp_path / "in.parquet", tmp_path / name, PARTS)
    expected = table.append_column("split", pa.array(PARTS)).to_pydict()
    assert READERS[name](tmp_path / name).to_pydict() == expected


@pytest.mark.parametrize("name", ["out", "out.npy", "out.csv.gz"])
def test_a_name_that_tells_no_format_is_refused(tmp_path: Path, name: str) -> None:
    pq.write_table(_table(), tmp_path / "in.parquet")
    with pytest.raises(UsageError, match=f"--annotate .*/{name}: the name does not say the format"):
        check_annotation(tmp_path / "in.parquet", tmp_path / name)


def test_a_list_column_does_not_fit_csv(tmp_path: Path) -> None:
    pq.write_table(pa.table({"embedding": [[1.0, 2.0]]}), tmp_path / "in.parquet")
    with pytest.raises(InputError, match=r"column 'embedding' .* of type list.*too much for CSV") as caught:
        check_annotation(tmp_path / "in.parquet", tmp_path / "out.csv")
    assert ".feather" in caught.value.hint
