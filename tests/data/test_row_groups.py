"""A Parquet dataset in pieces holds what reading it whole gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.readers import load
from clustersplit_cli.data.row_groups import open_layout, read_batches
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


def whole(path: Path, **request: Any) -> tuple[np.ndarray, np.ndarray]:
    """All features, and the first row of every batch."""
    layout = open_layout(ReadRequest(path, stratify=(), **request))
    batches = list(read_batches(layout, layout.groups, layout.features.names))
    return np.concatenate([batch.features() for batch in batches]), np.array(
        [batch.first for batch in batches]
    )


@pytest.mark.parametrize("kind", LISTS)
def test_list_columns_come_out_as_when_read_whole(tmp_path: Path, kind: str) -> None:
    x = np.random.default_rng(0).normal(size=(5000, 5))
    folder = write(tmp_path / "t", {"e": pa.array(x.tolist(), LISTS[kind])}, group=3000)
    found, first = whole(folder)
    np.testing.assert_array_equal(found, load(ReadRequest(folder, stratify=())).features)
    assert first.tolist() == [0, 3000]


def test_files_come_in_order_and_partitions_are_columns(tmp_path: Path) -> None:
    for number, domain in enumerate(("b", "a")):
        write(tmp_path / "t" / f"domain={domain}", {"f0": np.arange(3.0) + number, "f1": np.zeros(3)})
    layout = open_layout(ReadRequest(tmp_path / "t", stratify=("domain",)))
    batches = list(read_batches(layout, layout.groups, [*layout.features.names, "domain"]))
    assert [batch.column("domain").to_pylist() for batch in batches] == [["a"] * 3, ["b"] * 3]
    assert [batch.features()[:, 0].tolist() for batch in batches] == [[1.0, 2.0, 3.0], [0.0, 1.0, 2.0]]


def test_batches_never_cross_row_groups_and_have_one_size(tmp_path: Path) -> None:
    n = 12_000
    folder = write(tmp_path / "t", {f"f{j}": np.arange(float(n)) + j for j in range(3)}, group=5000)
    layout = open_layout(ReadRequest(folder, stratify=()), factors=BATCH_FACTORS)
    sizes = [batch.n_rows for batch in read_batches(layout, layout.groups, layout.features.names)]
    assert layout.batch_rows == 2048
    assert sizes == [2048, 2048, 904, 2048, 2048, 904, 2000]


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
        list(read_batches(layout, layout.groups, layout.features.names))
