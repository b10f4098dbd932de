"""One small run of every kind, and every leaf of its report."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run

Place = tuple[str | int, ...]
Report = dict[str, Any]
QUICK = ("--effort", "fast", "--restarts", "4", "--threads", "1", "--quiet", "--out", "run")
MADE = {
    "split": ("split", "feats.parquet", "--id", "id", *QUICK),
    "nystrom": ("split", "feats.parquet", "--nystrom", "12", "--tolerance", "0.2", *QUICK),
    "groups": ("split", "feats.parquet", "--keep-together", "id", "--force-val", "pins.txt", *QUICK),
    "kfold": ("kfold", "feats.parquet", "--k", "3", *QUICK),
    "parts": ("split", "feats.parquet", "--parts", "train=0.5,val=0.3,test=0.2", *QUICK),
    "graded": ("split", "feats.parquet", "--severity", "0.5", *QUICK),
    "baseline": ("baseline", "random", "feats.parquet", "--quiet", "--out", "run"),
    "stream": ("split", "feats.parquet", "--engine", "stream", "--nystrom", "12", *QUICK),
}


def leaves(value: Any, place: Place = ()) -> Iterator[Place]:
    """The places of all values that are neither objects nor lists, and of those that are empty."""
    entries: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for name, item in entries:
        if isinstance(item, (dict, list)) and item:
            yield from leaves(item, (*place, name))
        else:
            yield (*place, name)


def at(report: Report, place: Place) -> tuple[Any, str | int]:
    """What holds the value at a place, and its name there."""
    holder: Any = report
    for name in place[:-1]:
        holder = holder[name]
    return holder, place[-1]


def write_features(folder: Path, rows: int = 48) -> None:
    rng = np.random.default_rng(11)
    x = rng.normal(size=(rows, 3)).astype(np.float32)
    x[1::6] = x[::6]
    table = pa.table(
        {
            **{f"f{column}": x[:, column] for column in range(3)},
            "label": np.array(["cat", "dog"])[rng.integers(0, 2, rows)],
            "domain": np.array(["art", "photo"])[rng.integers(0, 2, rows)],
            "id": [f"row {row}" for row in range(rows)],
        }
    )
    pq.write_table(table, folder / "feats.parquet", row_group_size=20)
    (folder / "pins.txt").write_text("3\n8\n", encoding="utf-8")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a run of one kind, not to be changed: the features, and the directory `run`."""
    folders: dict[str, Path] = {}

    def find(kind: str) -> Path:
        if kind not in folders:
            folders[kind] = tmp_path_factory.mktemp(kind)
            write_features(folders[kind])
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folders[kind])
                assert run(list(MADE[kind])) == 0
        return folders[kind]

    return find


@pytest.fixture
def copied(
    made: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Report]:
    """Copy a run into the working directory, and return its report."""

    def copy(kind: str) -> Report:
        shutil.copytree(made(kind), tmp_path / "copy")
        monkeypatch.chdir(tmp_path / "copy")
        found: Report = json.loads(Path("run/report.json").read_text(encoding="utf-8"))
        return found

    return copy
