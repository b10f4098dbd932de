"""Small real files in every format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.data.dataset import Dataset, ReadRequest
from clustersplit_cli.data.readers import load


@pytest.fixture
def features() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((12, 3)).astype(np.float32)


@pytest.fixture
def scalar_table(features: np.ndarray) -> pa.Table:
    """Twelve rows, f0..f2, two labels, three domains, an id, some text."""
    columns: dict[str, Any] = {f"f{j}": features[:, j] for j in range(3)}
    columns["label"] = ["cat", "dog"] * 6
    columns["domain"] = [1, 1, 2, 2, 3, 3] * 2
    columns["key"] = [f"k{i}" for i in range(12)]
    return pa.table(columns)


@pytest.fixture
def list_table(features: np.ndarray, scalar_table: pa.Table) -> pa.Table:
    lists = pa.array(features.tolist(), pa.list_(pa.float32()))
    return scalar_table.drop_columns(["f0", "f1", "f2"]).append_column("embedding", lists)


Saver = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Saver:
    """Write a table or an array in the format its name asks for."""

    def write(data: Any, name: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            pq.write_table(data, path)
        elif path.suffix == ".feather":
            pa.feather.write_feather(data, path)
        elif path.suffix == ".arrow":
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, data.schema) as writer:
                writer.write_table(data, max_chunksize=5)
        elif path.suffix == ".arrows":
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, data.schema) as writer:
                writer.write_table(data, max_chunksize=5)
        elif path.suffix == ".csv":
            pa.csv.write_csv(data, path)
        elif path.suffix == ".npz":
            np.savez(path, **data)
        else:
            np.save(path, data, allow_pickle=True)
        return path

    return write


@pytest.fixture
def read() -> Callable[..., Dataset]:
    """Load with options given as keywords."""

    def run(path: Path, **options: Any) -> Dataset:
        return load(ReadRequest(path, **options))

    return run
