"""The readers agree with a plain read of real files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.data.dataset import Extent, ReadRequest
from clustersplit_cli.data.readers import load, peek

FOLDER = Path(__file__).parents[4] / "shared" / "data"


@pytest.mark.parametrize(
    ("name", "width", "n_labels", "n_domains"),
    [
        ("gas_drift.parquet", 128, 6, 8),
        ("fsdd_logmel800.parquet", 800, 10, 6),
        ("pacs_effnetlite0.parquet", 1280, 7, 4),
    ],
)
def test_real_files_are_read_whole(name, width, n_labels, n_domains) -> None:
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"{name} is not in shared/data beside the repository")
    dataset = load(ReadRequest(path))
    table = pq.read_table(path)
    if "embedding" in table.column_names:
        expected = table.column("embedding").combine_chunks().flatten().to_numpy().reshape(-1, width)
    else:
        expected = np.column_stack([table.column(f"f{j}").to_numpy() for j in range(width)])
    assert dataset.features.dtype == np.float32
    np.testing.assert_array_equal(dataset.features, expected)
    assert peek(ReadRequest(path)) == Extent(len(expected), width, 4)
    for word, count in (("label", n_labels), ("domain", n_domains)):
        column = dataset.categories[word]
        assert len(column.values) == count
        assert [column.values[code] for code in column.codes] == table.column(word).to_pylist()
