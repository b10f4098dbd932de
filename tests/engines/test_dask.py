"""The Dask engine on a real cluster: a scheduler and workers that are processes of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run
from clustersplit_cli.cli.engine import layout_and_plan
from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.row_labels import LabelsInMemory, files_of_sides, labels_of
from clustersplit_cli.engines import checks as claimed
from clustersplit_cli.engines.descent import ShardedProblem, SplitByRule, descend, propose, side_sums
from clustersplit_cli.engines.options import DASK, STREAM, EngineOptions
from clustersplit_cli.engines.rules import Labelled
from clustersplit_cli.engines.tasks import Sides
from clustersplit_cli.errors import ClusterError
from clustersplit_cli.options import SplitOptions, check_options
from clustersplit_cli.pipeline.run import grade
from clustersplit_cli.pipeline.sharded.engine import ShardedEngine, opened_sharded
from clustersplit_cli.pipeline.sharded.split import ShardedSplit
from clustersplit_cli.progress import Stopwatch

Client = pytest.importorskip("distributed").Client

OPTIONS = check_options(SplitOptions(nystrom="60", effort="fast", threads=1))


@pytest.fixture(scope="module")
def running(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@contextmanager
def job(path: Path, scheduler: str | None) -> Iterator[tuple[ShardedEngine, ShardedSplit]]:
    engine = EngineOptions(STREAM if scheduler is None else DASK, scheduler=scheduler)
    layout, plan = layout_and_plan(ReadRequest(path), OPTIONS, engine, "")
    with opened_sharded(layout, OPTIONS, engine, plan, Stopwatch()) as opened:
        yield opened, opened.prepare(opened.survey())


def as_labels(val: np.ndarray, n: int) -> LabelsInMemory:
    return labels_of({"train": np.setdiff1d(np.arange(n), val), "val": val}, n)


@dataclass(frozen=True)
class CannotRead:
    """A machine that does not see the client's files."""

    files: Any
    label: str = "labels"

    def __call__(self, shard: Any) -> bool:
        return False


def started(opened: ShardedEngine, context: ShardedSplit) -> tuple[ShardedProblem, SplitByRule]:
    opened.executor.give(as_labels(np.arange(0, context.kernel.surveyed.n, 5), context.kernel.surveyed.n))
    return context.measure_rule(Labelled())


def finished(
    opened: ShardedEngine, context: ShardedSplit, problem: ShardedProblem, start: SplitByRule
) -> tuple[np.ndarray, tuple[float, ...]]:
    found = context.lowest_rows_first(problem, descend(problem, start, max_passes=4))
    return np.concatenate(opened.executor.run(Sides(found.split.rule))), found.psi


@pytest.fixture(scope="module")
def expected(table: Path) -> tuple[np.ndarray, tuple[float, ...]]:
    """What one process with one shard gives."""
    with job(table, None) as (opened, context):
        return finished(opened, context, *started(opened, context))


def test_two_workers_give_what_one_process_gives_to_the_last_bit(
    table: Path, running: Any, expected: tuple[np.ndarray, tuple[float, ...]]
) -> None:
    with job(table, running.address) as (opened, context):
        assert opened.executor.n_workers == 2
        sides, psi = finished(opened, context, *started(opened, context))
    np.testing.assert_array_equal(sides, expected[0])
    assert psi == expected[1]


def test_a_graded_split_is_the_same_on_two_workers_as_in_one_process(table: Path, running: Any) -> None:
    found = []
    for address in (running.address, None):
        with job(table, address) as (opened, context):
            best = context.refine(context.explore())
            made, graded = grade(context.at(0.4), best, context.random_baseline(best))
            assert abs(graded.reached - graded.asked) <= 0.01 * graded.scale.width
            found.append((np.concatenate(opened.executor.run(Sides(made.rule))), graded))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_a_worker_that_is_killed_changes_nothing(
    cluster: Any, table: Path, tmp_path: Path, expected: tuple[np.ndarray, tuple[float, ...]]
) -> None:
    with cluster(tmp_path) as own, job(table, own.address) as (opened, context):
        start = started(opened, context)
        own.kill_worker(0)
        sides, psi = finished(opened, context, *start)
        np.testing.assert_array_equal(sides, expected[0])
        assert psi == expected[1]
        own.scheduler.kill()
        own.scheduler.wait()
        with pytest.raises(ClusterError, match="is gone"):
            opened.executor.run(Sides(start[1].rule))


def test_traffic_per_pass_does_not_grow_with_the_rows(
    tmp_path: Path, running: Any, wire_tap: Any, write: Callable[..., Path]
) -> None:
    traffic = []
    for rows in (4000, 16_000):
        path = write(tmp_path / str(rows), rows, group=rows // 8)
        tap = wire_tap(running.address)
        with job(path, tap.address) as (opened, context):
            problem, start = started(opened, context)
            proposal = propose(problem, start)
            before = tap.bytes
            for _ in range(5):
                side_sums(opened.executor, proposal.best.rule, len(problem.limits.target))
            traffic.append((tap.bytes - before) / 5)
            client = opened.executor._client  # type: ignore[attr-defined]
            moved = client.run(lambda dask_worker: len(dask_worker.transfer_incoming_log))
            assert set(moved.values()) == {0}, "rows went from worker to worker"
        tap.close()
    assert traffic[1] < 1.1 * traffic[0]
    assert traffic[0] < 1e5


def test_a_worker_that_comes_before_the_factors_is_given_shards(
    cluster: Any, table: Path, tmp_path: Path, expected: tuple[np.ndarray, tuple[float, ...]]
) -> None:
    with cluster(tmp_path, workers=1) as own:
        engine_options = EngineOptions(DASK, scheduler=own.address)
        layout, plan = layout_and_plan(ReadRequest(table), OPTIONS, engine_options, "")
        with opened_sharded(layout, OPTIONS, engine_options, plan, Stopwatch()) as opened:
            surveyed = opened.survey()
            assert opened.executor.n_workers == 1
            own.add_worker()
            own.wait()
            context = opened.prepare(surveyed)
            assert opened.executor.n_workers == 2
            start = started(opened, context)
            # The one that was there from the start goes, and the newcomer takes over what it had.
            own.kill_worker(0)
            sides, psi = finished(opened, context, *start)
            assert opened.executor.n_workers == 1
    np.testing.assert_array_equal(sides, expected[0])
    assert psi == expected[1]


def test_a_late_worker_of_another_version_is_given_nothing(cluster: Any, table: Path, tmp_path: Path) -> None:
    other = tmp_path / "other_version.py"
    other.write_text("import clustersplit_cli\nclustersplit_cli.__version__ = '9.9.9'\n")
    with cluster(tmp_path, workers=1) as own:
        engine_options = EngineOptions(DASK, scheduler=own.address)
        layout, plan = layout_and_plan(ReadRequest(table), OPTIONS, engine_options, "")
        with opened_sharded(layout, OPTIONS, engine_options, plan, Stopwatch()) as opened:
            own.add_worker("--preload", str(other))
            own.wait()
            opened.survey()
            assert opened.executor.n_workers == 1
            ((code, message),) = opened.executor.notes
    assert code == "worker_not_used"
    assert "has clustersplit 9.9.9" in message and message.endswith("it is given nothing to do")


def test_a_shard_that_was_made_anew_behind_our_back_is_told_everything_again(
    table: Path, running: Any, expected: tuple[np.ndarray, tuple[float, ...]]
) -> None:
    """As the cluster does when a worker is cut off for a moment and comes back under the same address."""
    with job(table, running.address) as (opened, context):
        start = started(opened, context)
        engine: Any = opened.executor
        seat = engine._seats[1]
        engine._seats[1] = engine._open(seat.opening, seat.address)
        sides, psi = finished(opened, context, *start)
        assert [seat.losses for seat in engine._seats] == [0, 1, 0, 0]
    np.testing.assert_array_equal(sides, expected[0])
    assert psi == expected[1]


@pytest.mark.parametrize("shared", [True, False], ids=["files that workers see", "files that they do not"])
def test_labels_are_read_where_the_rows_are_or_sent_once(
    tmp_path: Path,
    running: Any,
    wire_tap: Any,
    write: Callable[..., Path],
    shared: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not shared:
        monkeypatch.setattr(claimed, "CanRead", CannotRead)
    traffic, sizes = [], (4000, 64_000)
    for rows in sizes:
        path = write(tmp_path / str(rows), rows, group=rows // 8)
        directory = tmp_path / f"run-{rows}"
        directory.mkdir()
        members = np.random.default_rng(0).random(rows) < 0.2
        np.save(directory / "val.npy", np.flatnonzero(members))
        np.save(directory / "train.npy", np.flatnonzero(~members))
        files = files_of_sides(directory, ["npy"])
        labels = as_labels(np.flatnonzero(members), rows)
        tap = wire_tap(running.address)
        engine_options = EngineOptions(DASK, scheduler=tap.address)
        layout, plan = layout_and_plan(ReadRequest(path), OPTIONS, engine_options, "")
        with opened_sharded(layout, OPTIONS, engine_options, plan, Stopwatch()) as opened:
            surveyed = opened.survey()
            before = tap.bytes
            assert claimed.give_labels(opened.executor, files, labels) == shared
            for _ in range(5):
                found = claimed.count_labels(opened.executor, len(surveyed.limits.target), 2)
            traffic.append(tap.bytes - before)
            assert found.counts.sum(axis=0).tolist() == [(~members).sum(), members.sum()]
        tap.close()
    if shared:
        assert traffic[1] < 1.1 * traffic[0]
    else:  # a fraction of a byte per row, and once, though there are five tasks
        assert traffic[1] - traffic[0] < 0.4 * (sizes[1] - sizes[0])


def test_the_command_writes_the_files_that_stream_writes_and_verifies(
    table: Path, running: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--nystrom", "60", "--effort", "fast", "--quiet"]
    on_cluster = ["--engine", "dask", "--scheduler", running.address]
    assert run(["split", str(table), *common, "--engine", "stream", "--out", str(tmp_path / "one")]) == 0
    assert run(["split", str(table), *common, *on_cluster, "--out", str(tmp_path / "two")]) == 0
    names = ["report.json", "train.npy", "val.npy"]
    assert sorted(entry.name for entry in (tmp_path / "two").iterdir()) == names
    for name in names[1:]:
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    assert run(["verify", str(tmp_path / "two"), "--quiet"]) == 0, capsys.readouterr().err
    assert run(["verify", str(tmp_path / "two"), "--quiet", "--rerun", *on_cluster]) == 0
    again = ["--format", "txt", "--force", "--out", str(tmp_path / "two")]
    assert run(["split", str(table), *common, *on_cluster, *again]) == 0
    assert (
        np.loadtxt(tmp_path / "two" / "val.txt", dtype=int).tolist()
        == np.load(tmp_path / "one" / "val.npy").tolist()
    )


def test_rows_that_look_like_a_target_are_the_same_on_a_cluster_on_stream_and_in_memory(
    table: Path, running: Any, tmp_path: Path
) -> None:
    field = tmp_path / "field.parquet"
    rows = pq.read_table(table).slice(0, 150)
    pq.write_table(rows, field)
    engines = {
        "local": ["--engine", "local"],
        "stream": ["--engine", "stream"],
        "dask": ["--engine", "dask", "--scheduler", running.address],
    }
    aim = ["--nystrom", "60", "--target", str(field), "--aim", "lookalike", "--effort", "fast", "--quiet"]
    found = []
    for name, words in engines.items():
        assert run(["split", str(table), *aim, *words, "--out", str(tmp_path / name)]) == 0
        found.append(np.load(tmp_path / name / "val.npy").tolist())
        stated = json.loads((tmp_path / name / "report.json").read_text())["target"]
        assert stated["certificate"]["status"] == "optimal"
    assert found[0] == found[1] == found[2]


def test_sizes_of_folds_and_their_verification_are_those_of_one_process(
    table: Path, running: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_cluster = ["--engine", "dask", "--scheduler", running.address]
    found = []
    for words in (["--engine", "stream"], on_cluster):
        capsys.readouterr()
        assert run(["inspect", str(table), "--k", "7", "--json", "--quiet", *words]) == 0
        found.append({**json.loads(capsys.readouterr().out), "engine": None})
    assert found[0] == found[1]
    rng = np.random.default_rng(0)
    small = tmp_path / "small.parquet"
    columns = {f"f{j}": rng.normal(size=300).astype(np.float32) for j in range(3)}
    pq.write_table(pa.table({**columns, "label": np.arange(300) % 3}), small, row_group_size=50)
    out = tmp_path / "folds"
    assert run(["kfold", str(small), "--k", "3", "--effort", "fast", "--quiet", "--out", str(out)]) == 0
    assert run(["verify", str(out), "--quiet", *on_cluster]) == 0
    folds = np.load(out / "folds.npy")
    first, second = np.flatnonzero(folds == 0)[0], np.flatnonzero(folds == 1)
    other = second[(second - first) % 3 != 0][0]  # of another label
    folds[first], folds[other] = 1, 0
    np.save(out / "folds.npy", folds)
    for fold in range(3):
        np.save(out / f"fold_{fold}" / "val.npy", np.flatnonzero(folds == fold))
        np.save(out / f"fold_{fold}" / "train.npy", np.flatnonzero(folds != fold))
    capsys.readouterr()
    assert run(["verify", str(out), "--quiet", *on_cluster]) == 1
    assert "2 of 3 cells: " in capsys.readouterr().err


def test_workers_find_files_that_are_named_from_the_folder_of_the_command(
    table: Path, tmp_path: Path, running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(table.parent)
    on_cluster = ["--engine", "dask", "--scheduler", running.address]
    options = ["--nystrom", "20", "--effort", "fast", "--quiet", "--out", str(tmp_path / "out")]
    assert run(["split", table.name, *options, *on_cluster]) == 0
    stated = json.loads((tmp_path / "out" / "report.json").read_text())["input"]["files"]
    assert [file["path"] for file in stated] == [f"{table.name}/part-{number}.parquet" for number in range(3)]


def test_a_cluster_on_this_machine_needs_no_address(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    options = ["--nystrom", "60", "--effort", "fast", "--quiet", "--threads", "2", "--engine", "dask"]
    assert run(["split", str(table), *options, "--format", "npy", "--out", str(tmp_path / "own")]) == 0
    train, val = (np.load(tmp_path / "own" / f"{side}.npy") for side in ("train", "val"))
    assert sorted([*train.tolist(), *val.tolist()]) == list(range(6000))
    assert not list(temporary.iterdir())


def test_a_scheduler_that_is_not_there_is_one_line(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from clustersplit_cli.engines import dask as engine

    monkeypatch.setattr(engine, "SECONDS_TO_CONNECT", 1)
    out = tmp_path / "none"
    code = run(
        ["split", str(table), "--engine", "dask", "--scheduler", "tcp://127.0.0.1:9", "--out", str(out), "-q"]
    )
    assert code == 4
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "error: no Dask scheduler answers at tcp://127.0.0.1:9"
    assert len(said) == 2
    assert not out.exists()


def test_a_worker_of_another_version_is_named(cluster: Any, table: Path, tmp_path: Path) -> None:
    other = tmp_path / "other_version.py"
    other.write_text("import clustersplit_cli\nclustersplit_cli.__version__ = '9.9.9'\n")
    with cluster(tmp_path, workers=0) as own:
        own.add_worker("--preload", str(other))
        with (
            pytest.raises(ClusterError, match=r"has clustersplit 9\.9\.9, this process has"),
            job(table, own.address),
        ):
            pass


def test_a_mistake_in_the_input_is_told_as_if_it_were_read_here(
    running: Any, tmp_path: Path, write: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "bad", 2000)
    options: list[Any] = ["--exclude", "label=dodo", "--engine", "dask", "--scheduler", running.address, "-q"]
    assert run(["split", str(path), *options, "--out", str(tmp_path / "out")]) == 2
    assert "never has the value 'dodo'" in capsys.readouterr().err


def shards_are_open(dask_scheduler: Any) -> bool:
    """Asked on the scheduler: whether a worker holds anything."""
    return any(worker.has_what for worker in dask_scheduler.workers.values())


def in_the_background(*arguments: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "clustersplit_cli", *arguments]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_scheduler_that_is_killed_on_the_way_is_one_line_and_a_hint(
    cluster: Any, table: Path, tmp_path: Path
) -> None:
    with cluster(tmp_path) as own:
        options = ["--engine", "dask", "--scheduler", own.address, "--nystrom", "500", "--quiet"]
        out = tmp_path / "out"
        with Client(own.address, set_as_default=False) as watching:
            command = in_the_background("split", str(table), *options, "--passes", "400", "--out", str(out))
            while not watching.run_on_scheduler(shards_are_open):
                assert command.poll() is None, command.communicate()
                time.sleep(0.01)
            own.scheduler.kill()
        said = command.communicate(timeout=120)[1]
    assert command.returncode == 4
    assert said.splitlines() == [
        f"error: the Dask scheduler at {options[3]} is gone",
        "hint: start it again, and run the same command",
    ]
    assert not out.exists()


def test_a_scheduler_that_is_gone_while_versions_are_compared_is_no_bug_of_ours(
    running: Any, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed.comm.core import CommClosedError

    from clustersplit_cli.engines import dask as engine

    def closed(client: Any, addresses: Any) -> Any:
        raise CommClosedError("in <TCP (closed) ConnectionPool.broadcast>: Stream is closed")

    monkeypatch.setattr(engine, "check_versions", closed)
    with pytest.raises(ClusterError, match="is gone"), job(table, running.address):
        pass


def test_a_worker_that_does_not_see_the_files_is_named_with_what_it_lacks(
    cluster: Any, write: Callable[..., Path], tmp_path: Path
) -> None:
    if subprocess.run(["unshare", "--map-root-user", "--mount", "true"], check=False).returncode:
        pytest.skip("this machine gives no process a view of the file system of its own")
    path = write(tmp_path / "hidden", 2000)
    with cluster(tmp_path, workers=0) as own:
        own.add_worker(hidden=path)
        own.wait()
        with pytest.raises(ClusterError) as caught, job(path, own.address):
            pass
    assert caught.value.exit_code == 4
    expected = rf"worker tcp://127\.0\.0\.1:\d+ on \S+ does not see {re.escape(str(path / 'part-0.parquet'))}"
    assert re.fullmatch(expected, caught.value.message)
    assert "under the same path" in str(caught.value.hint)


def test_numbers_that_overflow_on_a_worker_are_no_lines_on_stderr(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    features = {f"f{column}": 1e200 * rng.normal(size=400) for column in range(3)}
    table = pa.table({**features, "label": rng.integers(0, 2, 400)})
    pq.write_table(table, tmp_path / "large.parquet", row_group_size=100)
    for engine in ("stream", "dask"):
        options = ["--engine", engine, "--nystrom", "50", "--effort", "fast", "--quiet", "--threads", "2"]
        options += ["--standardize", "zscore", "--out", str(tmp_path / engine)]
        command = in_the_background("split", str(tmp_path / "large.parquet"), *options)
        assert "RuntimeWarning" not in command.communicate(timeout=120)[1]
