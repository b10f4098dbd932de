"""The checks that look at rows themselves, block by block: by definition, and identical rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run
from clustersplit_cli.core.duplicates import lowest_rows_first
from clustersplit_cli.core.parallel import pool
from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.row_groups import open_layout
from clustersplit_cli.data.row_labels import labels_of
from clustersplit_cli.engines import checks as identical
from clustersplit_cli.engines import shard as shards
from clustersplit_cli.engines.store import Room
from clustersplit_cli.engines.stream import StreamExecutor
from clustersplit_cli.engines.tasks import Survey
from clustersplit_cli.pipeline.sharded.prepare import count_cells
from clustersplit_cli.progress import Stopwatch

N, D = 900, 3


def write_rows(folder: Path, x: np.ndarray, label: np.ndarray) -> Path:
    folder.mkdir()
    table = pa.table({**{f"f{j}": x[:, j] for j in range(D)}, "label": label})
    pq.write_table(table.slice(0, 400), folder / "a.parquet", row_group_size=130)
    pq.write_table(table.slice(400), folder / "b.parquet", row_group_size=90)
    return folder


@contextmanager
def counted(path: Path, val: np.ndarray, n: int = N) -> Iterator[StreamExecutor]:
    with pool(2) as workers:
        layout = open_layout(ReadRequest(path, stratify=("label",)))
        engine = StreamExecutor(layout, Room(0), workers)
        engine.give(labels_of({"train": np.setdiff1d(np.arange(n), val), "val": val}, n))
        count_cells(layout, engine, Survey(), Stopwatch())
        yield engine


def misplaced(path: Path, val: np.ndarray) -> tuple[list[identical.Misplaced], int]:
    with counted(path, val) as engine:
        return identical.find_misplaced(engine, N, D, np.dtype(np.float32))


@pytest.mark.parametrize("at_once", [50, 1 << 22], ids=["many sections", "one section"])
@pytest.mark.parametrize("weak", [False, True], ids=["hashes", "hashes that deceive"])
def test_misplaced_identical_rows_are_those_that_the_convention_would_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, weak: bool
) -> None:
    """The oracle is the function that settles ties in memory."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, D)).astype(np.float32)
    label = rng.integers(3, size=N)
    x[700:740] = x[:40]  # forty rows twice, some of them in another cell
    x[740:745] = x[100]
    x[100, 1], x[741, 1] = 0.0, -0.0  # equal, though their bits are not
    x[740:745, 1] = x[741, 1]
    label[740:745] = label[100]
    label[700:720] = label[:20]
    path = write_rows(tmp_path / "rows", x, label)
    monkeypatch.setattr(identical, "ROWS_AT_ONCE", at_once)
    if weak:
        true_keys = shards.row_identity_keys
        monkeypatch.setattr(
            shards, "row_identity_keys", lambda rows: true_keys(rows) % np.uint64(40) << np.uint64(32)
        )
        monkeypatch.setattr(identical, "LOOKED_AT", 200)
    for seed in range(3):
        members = np.random.default_rng(seed).random(N) < 0.3
        with pool(1) as workers:
            settled = lowest_rows_first(members, x, label, workers)
        wrong = np.flatnonzero(settled != members)
        found, count = misplaced(path, np.flatnonzero(members))
        assert count == len(found) > 0
        for pair in found:
            assert pair.train < pair.val and label[pair.train] == label[pair.val]
            assert (x[pair.train] == x[pair.val]).all()
            assert members[pair.val] and not members[pair.train]
        assert {row for pair in found for row in (pair.train, pair.val)} <= set(wrong.tolist())
        groups = {(x[row] + 0).tobytes() + bytes([label[row]]) for row in wrong.tolist()}
        assert len(found) == len(groups)
        assert misplaced(path, np.flatnonzero(settled)) == ([], 0)


def test_positions_are_those_in_the_file_when_rows_are_left_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, D)).astype(np.float32)
    x[850] = x[500]
    label = np.where(np.arange(N) < 450, "out", "in")
    path = write_rows(tmp_path / "rows", x, label)
    with pool(1) as workers:
        request = ReadRequest(path, stratify=("label",), exclude=(("label", "out"),))
        layout = open_layout(request)
        engine = StreamExecutor(layout, Room(0), workers)
        val = np.array([850, 600])
        engine.give(labels_of({"train": np.setdiff1d(np.arange(450, N), val), "val": val}, N))
        count_cells(layout, engine, Survey(), Stopwatch())
        found = identical.find_misplaced(engine, 450, D, np.dtype(np.float32))
    assert found == ([identical.Misplaced(500, 850)], 1)


@pytest.fixture
def made(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    options = ["--nystrom", "60", "--effort", "fast", "--engine", "stream", "--quiet"]
    assert run(["split", str(table), *options, "--out", "made"]) == 0
    return tmp_path / "made"


def checks(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, tuple[str, str]]:
    capsys.readouterr()
    run(["verify", "made", "--engine", "stream", "--json", "--quiet", *words])
    said = json.loads(capsys.readouterr().out)
    return {check["name"]: (check["status"], check["detail"]) for check in said["checks"]}


def test_a_run_is_checked_by_definition_and_for_identical_rows(
    made: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = checks(capsys)
    assert {status for status, _ in said.values()} == {"ok"}
    stated = json.loads((made / "report.json").read_text("utf-8"))
    assert f"MMD {stated['mmd']['value']:.4g}"[:9] in said["by definition"][1]
    for place, key in (("mmd", "value"), ("objective", "psi"), ("objective", "ssq_total")):
        forged = json.loads(json.dumps(stated))
        forged[place][key] *= 1.01
        (made / "report.json").write_text(json.dumps(forged))
        assert checks(capsys)["by definition"][0] == "failed", key
    forged = json.loads(json.dumps(stated))
    forged["mmd"]["subsample"]["mmd_squared_unbiased"] *= 1.001
    (made / "report.json").write_text(json.dumps(forged))
    assert "mmd.subsample" in checks(capsys)["by definition"][1]
    (made / "report.json").write_text(json.dumps(stated))
    # Exchange two identical rows of one cell: nothing that is measured changes.
    x = np.concatenate([_features(path) for path in sorted(table.iterdir())])
    val = np.load(made / "val.npy")
    twins = next(row for row in range(1200) if row in val and row + 3000 not in val)
    assert (x[twins] == x[twins + 3000]).all()
    train = np.load(made / "train.npy")
    np.save(made / "val.npy", np.sort(np.where(val == twins, twins + 3000, val)))
    np.save(made / "train.npy", np.sort(np.where(train == twins + 3000, twins, train)))
    said = checks(capsys)
    # The subsample is drawn by rank, so that its estimate rests on other rows; nothing else differs.
    failed = {name: detail for name, (status, detail) in said.items() if status == "failed"}
    assert {"identical rows"} <= set(failed) <= {"identical rows", "MMD", "by definition"}
    assert "mmd.value" not in "".join(failed.values())
    assert said["identical rows"][1].endswith(f"in validation: rows {twins}, {twins + 3000}")


def _features(path: Path) -> np.ndarray:
    table = pq.read_table(path)
    return np.column_stack([table[f"f{j}"].to_numpy() for j in range(8)])


@pytest.mark.parametrize(
    "words",
    [
        ["--kernel", "linear"],
        ["--kernel", "cosine"],
        ["--kernel", "polynomial", "--degree", "2", "--nystrom", "60"],
        ["--standardize", "zscore", "--nystrom", "60"],
        ["--standardize", "l2", "--nystrom", "60"],
    ],
    ids=" ".join,
)
def test_every_kernel_agrees_with_its_definition(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    common = ["--effort", "fast", "--engine", "stream", "--quiet", "--out", "made", "--force"]
    assert run(["split", str(table), *words, *common]) == 0
    said = checks(capsys)
    assert said["by definition"][0] == "ok", said["by definition"]
    report = json.loads(Path("made/report.json").read_text("utf-8"))
    report["mmd"]["value"] *= 1.02
    Path("made/report.json").write_text(json.dumps(report))
    assert checks(capsys)["by definition"][0] == "failed"
    shutil.rmtree("made")
