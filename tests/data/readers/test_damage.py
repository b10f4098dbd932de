"""Damaged files of every format: an error that names the file, or a dataset; never anything else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

COPIES = int(os.environ.get("CLUSTERSPLIT_DAMAGED_COPIES", "150"))
N = 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
LABELS = [("cat", "dog", "sea lion")[i % 3] for i in range(N)]
SCALARS = pa.table({**{f"f{i}": X[:, i] for i in range(3)}, "label": LABELS, "id": range(N)})
LISTS = SCALARS.select(["label", "id"]).append_column("v", pa.array(X.tolist()))
CATEGORIES = SCALARS.set_column(3, "label", pa.array(LABELS).dictionary_encode())
RECORDS = np.zeros(N, [("x", "f4", 3), ("label", "U8"), ("id", "i8")])
RECORDS["x"], RECORDS["label"] = X, LABELS


def write_ipc(table: pa.Table, path: Path, opener: Callable[..., Any], codec: str | None = None) -> None:
    with (
        pa.OSFile(str(path), "wb") as sink,
        opener(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer,
    ):
        writer.write_table(table, max_chunksize=25)


WRITERS: dict[str, Callable[[Path], object]] = {
    "scalars.parquet": lambda path: pq.write_table(SCALARS, path, row_group_size=25),
    "lists.parquet": lambda path: pq.write_table(LISTS, path, compression="zstd"),
    "plain.parquet": lambda path: pq.write_table(
        CATEGORIES, path, compression="none", use_dictionary=False, data_page_version="2.0"
    ),
    "rows.parquet": lambda path: pq.write_table(pa.table({"row": range(N)}), path),
    "categories.arrow": lambda path: write_ipc(CATEGORIES, path, pa.ipc.new_file),
    "lists.arrow": lambda path: write_ipc(LISTS, path, pa.ipc.new_file, "lz4"),
    "stream.arrow": lambda path: write_ipc(CATEGORIES, path, pa.ipc.new_stream),
    "scalars.feather": lambda path: pa.feather.write_feather(SCALARS, path),
    "table.csv": lambda path: pa.csv.write_csv(SCALARS, path),
    "matrix.npy": lambda path: np.save(path, X),
    "columns.npy": lambda path: np.save(path, np.asfortranarray(X)),
    "rows.npy": lambda path: np.save(path, np.arange(N)),
    "records.npy": lambda path: np.save(path, RECORDS),
    "stored.npz": lambda path: np.savez(path, X=X, label=np.array(LABELS), id=np.arange(N)),
    "deflated.npz": lambda path: np.savez_compressed(path, X=X, label=np.array(LABELS), id=np.arange(N)),
    "rows.txt": lambda path: path.write_text("\n".join(map(str, range(N)))),
}


@pytest.mark.parametrize("name", WRITERS)
def test_damaged_copies_are_read_or_refused_in_words(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    program = Path(__file__).with_name("damage.py")
    done = subprocess.run(
        [sys.executable, program, path, "0", str(COPIES)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60 + COPIES,
    )
    assert "Traceback" not in done.stdout, done.stdout[-3000:]
    assert done.stdout.endswith("done\n"), (done.returncode, done.stdout[-20:], done.stderr[-3000:])
