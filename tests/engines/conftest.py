"""Datasets of several files and row groups, and real processes that serve them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


def write_table(
    folder: Path, rows: int = 6000, features: int = 8, *, files: int = 3, group: int = 700
) -> Path:
    """Rows in clusters, a fifth of them twice, in files of several row groups."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(7, features))
    x = (centres[rng.integers(7, size=rows)] + 0.7 * rng.normal(size=(rows, features))).astype(np.float32)
    label = np.array(["ape", "bee", "cow"])[rng.integers(3, size=rows)]
    domain = rng.integers(2, size=rows)
    half, fifth = rows // 2, rows // 5
    for column in (x, label, domain):
        column[half : half + fifth] = column[:fifth]
    table = pa.table({**{f"f{j}": x[:, j] for j in range(features)}, "label": label, "domain": domain})
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(np.array_split(np.arange(rows), files)):
        pq.write_table(table.take(pa.array(part)), folder / f"part-{number}.parquet", row_group_size=group)
    return folder


@pytest.fixture(scope="session")
def write() -> Callable[..., Path]:
    """The function that writes such a dataset."""
    return write_table


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 6,000 rows."""
    return write_table(tmp_path_factory.mktemp("data") / "table")
