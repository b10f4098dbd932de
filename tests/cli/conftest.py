"""Small real files, and the command run in this process or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run

ROWS, FEATURES = 120, 4


@dataclass(frozen=True)
class Result:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.err.splitlines()


def make_table(rows: int = ROWS, features: int = FEATURES) -> pa.Table:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(rows, features)).astype(np.float32)
    x[1::10] = x[::10]  # equal rows: their order must not depend on how they were read
    return pa.table(
        {
            **{f"f{column}": x[:, column] for column in range(features)},
            "label": np.array(["cat", "dog", "sea lion"])[rng.integers(0, 3, rows)],
            "domain": np.array(["art", "photo"])[rng.integers(0, 2, rows)],
            "id": [f"row {row}" for row in range(rows)],
        }
    )


def matrix(table: pa.Table) -> np.ndarray[Any, Any]:
    return np.column_stack([table[name].to_numpy() for name in table.column_names if name[0] == "f"])


@pytest.fixture(scope="session")
def table() -> pa.Table:
    return make_table()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: pa.Table) -> Path:
    """A working directory that holds `feats.parquet`."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(table, tmp_path / "feats.parquet")
    return tmp_path


@pytest.fixture
def split(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run `clustersplit split` in this process, with a short search unless the test names its own.

    Whatever it writes has to pass `clustersplit verify`.
    """

    def reports() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in folder.glob("*/report.json")}

    def call(*arguments: object, quick: bool = True) -> Result:
        capsys.readouterr()
        short = ["--effort", "fast"] if quick and "--effort" not in arguments else []
        before = reports()
        code = run(["split", *short, *map(str, arguments)])
        said = capsys.readouterr()
        for path in {path for path, written in reports().items() if before.get(path) != written}:
            assert run(["verify", "--", str(path.parent.relative_to(folder))]) == 0, capsys.readouterr().err
        capsys.readouterr()
        return Result(code, said.out, said.err)

    return call


@pytest.fixture
def process(folder: Path) -> Callable[..., Result]:
    """Run the program in a process of its own."""

    def call(*arguments: str | bytes, **environment: str) -> Result:
        done = subprocess.run(
            command(*arguments),
            capture_output=True,
            env={**os.environ, **environment},
            timeout=120,
            check=False,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


def command(*arguments: str | bytes) -> Sequence[str | bytes]:
    return [sys.executable, "-m", "clustersplit_cli", *arguments]


@pytest.fixture(name="command")
def command_line() -> Callable[..., Sequence[str | bytes]]:
    """The words that start the program in a process of its own."""
    return command


@pytest.fixture
def files(folder: Path) -> Callable[[], set[str]]:
    """What the working directory holds, hidden names too."""
    return lambda: {entry.name for entry in folder.iterdir()}


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Run a short search where `feats.parquet` has patients, sites and ages; return exit code and words."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    n = 120
    x = rng.normal(size=(n, 3)).astype(np.float32)
    x[1::10] = x[::10]
    table = {
        **{f"f{column}": x[:, column] for column in range(3)},
        "label": np.array(["cat", "dog", "cow"])[np.arange(n) % 3],
        "domain": np.array(["art", "photo"])[rng.integers(0, 2, n)],
        "site": rng.integers(0, 3, n),
        "patient": [f"p{number}" for number in np.repeat(np.arange(n // 2), 2)],
        "age": rng.normal(40, 10, n),
        "id": [f"row {row}" for row in range(n)],
    }
    pq.write_table(pa.table(table), "feats.parquet")

    def command(name: str, *words: object) -> tuple[int, str]:
        capsys.readouterr()
        quick = () if name == "verify" else ("--effort", "fast", "--restarts", 3)
        features = () if name == "verify" else ("feats.parquet", "--columns", "f*")
        code = run([str(word) for word in (name, *features, *quick, *words)])
        return code, capsys.readouterr().err

    return command
