"""A Parquet dataset in pieces holds what reading it whole gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.readers import load
from clustersplit_cli.data.row_groups import Batch, Layout, open_layout, read_batches, read_pieces
from clustersplit_cli.errors import InputError, UsageError

LISTS = {
    "fixed": pa.list_(pa.float32(), 5),
    "list": pa.list_(pa.float32()),
    "large": pa.large_list(pa.float64()),
}


def write(folder: Path, columns: dict[str, Any], name: str = "a.parquet", group: int = 700) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / name, row_group_size=group)
    return folder


def all_batches(layout: Layout, *more: str) -> list[Batch]:
    names = [*layout.features.names, *more]
    return list(read_batches(layout, layout.groups, names, 0, layout.n_rows))


def whole(path: Path, **request: Any) -> tuple[np.ndarray, np.ndarray]:
    """All features, and the first row of every batch."""
    layout = open_layout(ReadRequest(path, stratify=(), **request))
    batches = all_batches(layout)
    return np.concatenate([batch.features() for batch in batches]), np.array(
        [batch.first for batch in batches]
    )


@pytest.mark.parametrize("kind", LISTS)
def test_list_columns_come_out_as_when_read_whole(tmp_path: Path, kind: str) -> None:
    x = np.random.default_rng(0).normal(size=(5000, 5))
    folder = write(tmp_path / "t", {"e": pa.array(x.tolist(), LISTS[kind])}, group=3000)
    found, first = whole(folder)
    np.testing.assert_array_equal(found, load(ReadRequest(folder, stratify=())).features)
    assert first.tolist() == list(range(0, 5000, 5000 // 64))


def test_files_come_in_order_and_partitions_are_columns(tmp_path: Path) -> None:
    for number, domain in enumerate(("b", "a")):
        write(tmp_path / "t" / f"domain={domain}", {"f0": np.arange(3.0) + number, "f1": np.zeros(3)})
    layout = open_layout(ReadRequest(tmp_path / "t", stratify=("domain",)))
    batches = all_batches(layout, "domain")
    (batch,) = batches
    assert batch.column("domain").to_pylist() == ["a"] * 3 + ["b"] * 3
    assert batch.features()[:, 0].tolist() == [1.0, 2.0, 3.0, 0.0, 1.0, 2.0]


@pytest.mark.parametrize("groups", [[12_000], [5000], [1], [700, 2048, 4097]])
def test_batches_are_the_same_whatever_the_files_and_row_groups_are(
    tmp_path: Path, groups: list[int]
) -> None:
    n = 12_000 if groups != [1] else 300
    word = pa.array(np.array(["x", "y", None])[np.arange(n) % 3]).dictionary_encode()
    table = pa.table({**{f"f{j}": np.arange(float(n)) + j for j in range(3)}, "label": word})
    (tmp_path / "t").mkdir()
    for number, part in enumerate(np.array_split(np.arange(n), len(groups))):
        file = tmp_path / "t" / f"{number}.parquet"
        pq.write_table(table.take(pa.array(part)), file, row_group_size=groups[number])
    layout = open_layout(ReadRequest(tmp_path / "t", stratify=("label",)))
    batches = all_batches(layout, "label")
    height = max(16, n // 64)
    assert layout.batch_rows == height
    assert [batch.first for batch in batches] == list(range(0, n, height))
    assert np.concatenate([batch.features()[:, 1] for batch in batches]).tolist() == list(range(1, n + 1))
    words = [value for batch in batches for value in batch.column("label").to_pylist()]
    assert words == word.to_pylist()
    some = list(read_batches(layout, layout.groups, ["f0"], 2 * height, 3 * height + 1))
    assert [(batch.first, batch.n_rows) for batch in some] == [(2 * height, height), (3 * height, 1)]
    pieces = list(read_pieces(layout, layout.groups, ["f0"]))
    assert sum(piece.n_rows for piece in pieces) == n


def test_batches_of_many_rows_are_a_multiple_of_what_is_summed_at_a_time(tmp_path: Path) -> None:
    n = 200_000
    folder = write(tmp_path / "t", {f"f{j}": np.arange(float(n)) + j for j in range(3)}, group=50_000)
    few = open_layout(ReadRequest(folder, stratify=()), factors=BATCH_FACTORS)
    assert few.batch_rows == 2048
    assert open_layout(ReadRequest(folder, stratify=())).batch_rows == 2048
    assert replace(few, n_rows=400_000, row_bytes=8).batch_rows == 3 * 2048


BATCH_FACTORS = 1000
"""So many factors of eight bytes that a batch of 16 MB has about 2,048 rows."""


def test_nulls_are_nan_and_lists_of_other_lengths_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", {"e": pa.array([None, [1.0, 2.0], None], pa.list_(pa.float32()))})
    found, _ = whole(folder)
    assert np.isnan(found[[0, 2]]).all()
    assert found[1].tolist() == [1.0, 2.0]
    ragged = write(tmp_path / "r", {"e": pa.array([[1.0, 2.0], [3.0]], pa.list_(pa.float32()))})
    with pytest.raises(InputError, match="differ in length"):
        whole(ragged)


def test_what_is_not_parquet_is_refused_with_a_cure(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    with pytest.raises(UsageError, match="is not Parquet") as caught:
        open_layout(ReadRequest(tmp_path / "x.npy", stratify=()))
    assert "--engine local" in (caught.value.hint or "")


def test_a_file_that_is_cut_short_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", {"f0": np.arange(5000.0), "f1": np.arange(5000.0)})
    layout = open_layout(ReadRequest(folder, stratify=()))
    content = (folder / "a.parquet").read_bytes()
    (folder / "a.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"a\.parquet cannot be read as Parquet"):
        all_batches(layout)
