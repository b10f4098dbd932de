"""What reading costs: memory, and time to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

N, WIDTH = 40_000, 1000  # 160 MB of float32

READ = """
import sys
from pathlib import Path
import pyarrow.compute, pyarrow.dataset, pyarrow.feather, pyarrow.parquet
from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.readers import load

def peak():
    # Not ru_maxrss: that starts at the size of the parent process.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

before = peak()
features = load(ReadRequest(Path(sys.argv[1]), stratify=())).features
print((peak() - before) / features.nbytes, features.shape, float(features[-1, -1]))
"""


def as_table(values: np.ndarray, *, lists: bool) -> pa.Table:
    if lists:
        return pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), WIDTH)})
    return pa.table({f"x{j}": column for j, column in enumerate(np.ascontiguousarray(values.T))})


def write(values: np.ndarray, kind: str, path: Path) -> None:
    """Write everything as one row group or batch, the worst case for the reader."""
    if kind == "npy":
        np.save(path, values)
    elif kind == "fortran npy":
        np.save(path, np.asfortranarray(values))
    elif kind == "parquet scalars":
        pq.write_table(as_table(values, lists=False), path, use_dictionary=False, compression=None)
    elif kind == "parquet lists":
        pq.write_table(as_table(values, lists=True), path, use_dictionary=False, compression=None)
    elif kind == "feather lists":
        pa.feather.write_feather(as_table(values, lists=True), path, chunksize=N)
    else:
        table = as_table(values, lists=False)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs /proc to see a process's peak memory"
)
@pytest.mark.parametrize(
    "kind", ["npy", "fortran npy", "parquet scalars", "parquet lists", "feather lists", "stream of scalars"]
)
def test_reading_takes_at_most_2_2_times_the_matrix(kind, tmp_path) -> None:
    values = np.random.default_rng(0).standard_normal((N, WIDTH), dtype=np.float32)
    path = tmp_path / ("data.npy" if "npy" in kind else "data")
    write(values, kind, path)
    result = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True
    )
    ratio, rest = result.stdout.split(" ", 1)
    assert rest.strip() == f"({N}, {WIDTH}) {float(values[-1, -1])}"
    assert 0.9 < float(ratio) <= 2.2
    path.unlink()


def test_importing_the_readers_does_not_import_arrow() -> None:
    code = "import sys, clustersplit_cli.data.readers; print([m for m in sys.modules if 'pyarrow' in m])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
