"""The same rows in other files and row groups, for other numbers of threads and workers: the same report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run

ROWS = 5000
KERNELS = {
    "linear": ["--kernel", "linear"],
    "zscore": ["--kernel", "linear", "--standardize", "zscore"],
    "rbf": ["--nystrom", "60"],
    "laplacian": ["--kernel", "laplacian", "--nystrom", "60"],
}
COMMANDS = {
    "folds": ["kfold", "--k", "3", "--nystrom", "60", "--restarts", "4"],
    "parts": ["split", "--parts", "train=0.6,val=0.3,test=0.1", "--kernel", "linear", "--restarts", "4"],
}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Rows of four clusters and two cells; some take no part."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(ROWS, 6)) + 100.0 + 2.0 * rng.integers(0, 4, ROWS)[:, None]
    features[rng.permutation(ROWS)[:40], 0] = np.nan
    label = rng.integers(0, 2, ROWS)
    return pa.table({**{f"f{column}": features[:, column] for column in range(6)}, "label": label})


def write(table: pa.Table, folder: Path, seed: int | None) -> Path:
    """The rows in one file and row group, or in some of each that the seed tells."""
    rng = np.random.default_rng(seed)
    cuts = [] if seed is None else np.sort(rng.choice(np.arange(1, ROWS), rng.integers(1, 5), replace=False))
    folder.mkdir(parents=True)
    for number, part in enumerate(np.split(np.arange(ROWS), cuts)):
        size = ROWS if seed is None else int(rng.integers(100, 2000))
        pq.write_table(table.take(pa.array(part)), folder / f"{number}.parquet", row_group_size=size)
    return folder


def numbers(path: Path, kernel: str, engine: str, *options: str) -> str:
    """All that a report says, but for where the rows are, how long it took, and with what."""
    out = path.parent / f"out-{engine}"
    command, *more = COMMANDS.get(kernel, ["split", *KERNELS.get(kernel, [])])
    words = [command, str(path), *more, "--drop-invalid", "--effort", "fast", "--engine", engine]
    assert run([*words, *options, "--format", "npy", "--quiet", "--force", "--out", str(out)]) == 0
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    for name in ("timing", "plan", "engine"):
        del report[name]
    del report["input"]["files"]
    for name in ("features", "threads", "engine", "scheduler"):
        report["config"].pop(name, None)
    return json.dumps([report, np.load(out / ("folds.npy" if command == "kfold" else "val.npy")).tolist()])


@pytest.fixture(scope="module")
def one_worker(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("one"), workers=1) as own:
        yield own.address


@pytest.fixture(scope="module")
def three_workers(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("three"), workers=3) as own:
        yield own.address


@pytest.mark.parametrize("kernel", [*KERNELS, *COMMANDS])
def test_reports_do_not_depend_on_files_row_groups_threads_or_workers(
    kernel: str, rows: pa.Table, tmp_path: Path, one_worker: str, three_workers: str
) -> None:
    expected = numbers(write(rows, tmp_path / "whole" / "rows", None), kernel, "stream", "--threads", "1")
    for seed in range(3):
        path = write(rows, tmp_path / str(seed) / "rows", seed)
        assert numbers(path, kernel, "stream", "--threads", str(1 + seed)) == expected
    for address in (one_worker, three_workers):
        assert numbers(path, kernel, "dask", "--scheduler", address) == expected
