"""The stream engine against the local one, and against itself with other ways to hold the rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.baselines import random_mmd
from clustersplit_cli.core.duplicates import lowest_rows_first
from clustersplit_cli.core.parallel import pool
from clustersplit_cli.core.search.lloyd import descend as local_descent
from clustersplit_cli.core.search.problem import evaluate
from clustersplit_cli.core.search.starts import random_splits
from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.readers import load
from clustersplit_cli.data.row_groups import Layout, open_layout
from clustersplit_cli.data.row_labels import labels_of
from clustersplit_cli.data.side_files import VAL
from clustersplit_cli.engines import store as stores
from clustersplit_cli.engines.descent import descend
from clustersplit_cli.engines.options import STREAM, EngineOptions
from clustersplit_cli.engines.plan import plan_stream
from clustersplit_cli.engines.rules import Labelled
from clustersplit_cli.engines.shard import Shard
from clustersplit_cli.engines.store import MEMORY, NOWHERE, SPILL, Room, Store
from clustersplit_cli.engines.stream import StreamExecutor
from clustersplit_cli.engines.tasks import Accounts, Sides
from clustersplit_cli.options import CheckedOptions, SplitOptions, check_options
from clustersplit_cli.pipeline.local.engine import partition, prepared_split
from clustersplit_cli.pipeline.local.split import LocalSplit
from clustersplit_cli.pipeline.sharded.engine import ShardedEngine
from clustersplit_cli.pipeline.sharded.split import ShardedSplit
from clustersplit_cli.progress import Stopwatch, silent

LANDMARKS = 60
STEPS = 3
ROOMS = {MEMORY: Room(10**9), SPILL: Room(0), NOWHERE: Room(0, may_spill=False)}


def options(**given: Any) -> CheckedOptions:
    linear = given.get("kernel") in ("linear", "cosine")
    return check_options(SplitOptions(**{**({} if linear else {"nystrom": str(LANDMARKS)}), **given}))


@contextmanager
def streaming(
    path: Path, how: CheckedOptions, room: Room = ROOMS[MEMORY], threads: int = 1, **request: Any
) -> Iterator[tuple[Layout, StreamExecutor, ShardedSplit]]:
    with pool(threads) as workers:
        landmarks = None if how.is_linear else LANDMARKS
        layout = open_layout(ReadRequest(path, **request), landmarks or 0)
        executor, engine_options = StreamExecutor(layout, room, workers), EngineOptions(STREAM)
        plan = plan_stream(layout, landmarks, budget=how.budget, threads=threads, reason="")
        engine = ShardedEngine(
            layout,
            how,
            engine_options,
            replace(plan, sample_rows=2000),
            executor,
            None,
            workers,
            Stopwatch(),
            silent,
        )
        yield layout, executor, engine.prepare(engine.survey())


def give(engine: StreamExecutor, val: np.ndarray, n: int = 6000) -> None:
    engine.give(labels_of({"train": np.setdiff1d(np.arange(n), val), "val": val}, n))


def refined(
    engine: StreamExecutor, context: ShardedSplit, val: np.ndarray, steps: int = STEPS
) -> tuple[np.ndarray, Any]:
    """The validation rows after some steps from a given split, and the descent."""
    give(engine, val)
    problem, start = context.measure_rule(Labelled())
    found = context.lowest_rows_first(problem, descend(problem, start, max_passes=2 * steps))
    return np.flatnonzero(np.concatenate(engine.run(Sides(found.split.rule))) == VAL), found


@contextmanager
def in_memory(path: Path, how: CheckedOptions, **request: Any) -> Iterator[tuple[LocalSplit, np.ndarray]]:
    dataset = load(ReadRequest(path, **request))
    with prepared_split(dataset, how) as setting:
        yield setting, random_splits(setting.problem.constraints, [np.random.default_rng(5)])


def local_rows(setting: LocalSplit, start: np.ndarray, steps: int = STEPS) -> np.ndarray:
    problem = setting.problem
    end = local_descent(problem, start, Selection(problem.constraints), max_iter=steps, dtype=np.float64)
    codes = problem.constraints.cells.codes
    members = lowest_rows_first(end.members[:, 0], setting.dataset.features, codes, setting.workers)
    return setting.dataset.rows[members]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"kernel": "linear"},
        {"kernel": "cosine"},
        {"kernel": "polynomial", "degree": 2},
        {"standardize": "zscore"},
        {"standardize": "l2"},
        {"gamma": "median"},
        {"tolerance": "0.3"},
        {"rounding": "balanced", "holdout": "0.37"},
    ],
    ids=str,
)
def test_from_the_same_split_stream_and_local_go_to_the_same_rows(table: Path, given: dict[str, str]) -> None:
    how = options(**given)
    with in_memory(table, how) as (setting, start):
        val = setting.dataset.rows[start[:, 0]]
        expected = local_rows(setting, start)
        psi = evaluate(setting.problem, np.isin(setting.dataset.rows, expected)).psi
    with streaming(table, how) as (_, engine, context):
        rows, found = refined(engine, context, val)
    np.testing.assert_array_equal(rows, expected)
    assert found.split.state.psi == pytest.approx(psi, rel=1e-8)
    assert list(found.psi) == sorted(found.psi, reverse=True)


def test_rows_that_are_left_out_keep_their_positions(table: Path, tmp_path: Path, write: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    request = {"exclude": (("domain", "1"),), "drop_invalid": True, "stratify": ("label",)}
    broken = write(tmp_path / "broken")
    first = pq.read_table(broken / "part-0.parquet")
    column = first["f3"].to_numpy().copy()
    column[[4, 900, 901]] = np.nan
    pq.write_table(first.set_column(3, "f3", pa.array(column)), broken / "part-0.parquet", row_group_size=300)
    how = options()
    with in_memory(broken, how, **request) as (setting, start):
        val, expected = setting.dataset.rows[start[:, 0]], local_rows(setting, start)
        n_dropped = setting.dataset.n_dropped
    with streaming(broken, how, **request) as (_, engine, context):
        rows, _ = refined(engine, context, val)
        assert context.kernel.surveyed.found.n_invalid == n_dropped > 0
    np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize("place", list(ROOMS))
@pytest.mark.parametrize("threads", [1, 3])
def test_neither_threads_nor_where_factors_are_kept_change_a_bit(
    table: Path, place: str, threads: int
) -> None:
    how = options()
    val = np.arange(0, 6000, 5)
    with streaming(table, how) as (_, engine, context):
        expected, wanted = refined(engine, context, val)
    with streaming(table, how, ROOMS[place], threads) as (_, engine, context):
        rows, found = refined(engine, context, val)
        (_, where, _) = engine.run(Accounts())[0]
    assert where == place
    np.testing.assert_array_equal(rows, expected)
    assert found.psi == wanted.psi
    np.testing.assert_array_equal(found.split.state.weights, wanted.split.state.weights)


def test_landmarks_and_samples_do_not_depend_on_row_groups(table: Path, tmp_path: Path, write: Any) -> None:
    other = write(tmp_path / "other", files=2, group=5000)
    with streaming(table, options()) as (_, _, one), streaming(other, options()) as (_, _, two):
        np.testing.assert_array_equal(one.kernel.plan.centres, two.kernel.plan.centres)
        np.testing.assert_array_equal(one.kernel.sample.numbers, two.kernel.sample.numbers)
        np.testing.assert_array_equal(one.kernel.sample.raw, two.kernel.sample.raw)
        assert one.kernel.prepared.kernel.gamma == pytest.approx(two.kernel.prepared.kernel.gamma, rel=1e-14)


def test_random_baseline_bound_and_subsample_are_those_of_the_local_engine(table: Path) -> None:
    how = options()
    with in_memory(table, how) as (setting, start):
        members = start[:, 0]
        random = random_mmd(setting.problem, setting.streams.baseline)
        bound, tighter = setting.bound(with_support=False), setting.bound()
        assert bound is not None and tighter is not None and tighter.mmd < bound.mmd
        estimate = setting.subsample(setting.measure(members))
        val, trace = setting.dataset.rows[members], setting.problem.trace
    with streaming(table, how) as (_, engine, context):
        give(engine, val)
        held = context.measure(Labelled())
        assert context.random_baseline(held).values == pytest.approx(random.values, rel=1e-5)
        looser = context.bound()
        assert looser is not None and looser.mmd == pytest.approx(bound.mmd, rel=1e-5)
        mine = context.subsample(held)
        assert mine is not None and estimate is not None
        assert mine.mmd_squared == pytest.approx(estimate.mmd_squared, rel=1e-9)
        assert mine == context.subsample(held)
        assert context.kernel.trace == pytest.approx(trace, rel=1e-8)


def test_a_search_on_a_sample_comes_within_a_hundredth_of_a_search_on_all_rows(table: Path) -> None:
    how = options(effort="fast")
    local = partition(load(ReadRequest(table)), how)
    with streaming(table, how) as (_, _, context):
        found = context.refine(context.explore()).refined
    assert len(context.kernel.sample.numbers) < 6000
    assert found.split.state.mmd_squared**0.5 >= 0.99 * local.report.mmd.value
    np.testing.assert_array_equal(found.split.counts, context.kernel.surveyed.limits.target)


def test_a_shard_that_forgets_everything_does_a_task_all_the_same(table: Path) -> None:
    with streaming(table, options()) as (_, engine, context):
        give(engine, np.arange(0, 6000, 5))
        problem, start = context.measure_rule(Labelled())
        found = descend(problem, start, max_passes=2)
        before = engine.run(Sides(found.split.rule))[0]
        old = engine._shard
        engine._shard = Shard(old.portion, old.room, old.workers, old.numbering, old.plan, old.row_labels)
        np.testing.assert_array_equal(engine.run(Sides(found.split.rule))[0], before)


def test_a_spill_file_has_no_name(tmp_path: Path) -> None:
    store = Store(1000, 4, np.dtype(np.float32), Room(0, tmp_path))
    rows = np.arange(4000, dtype=np.float32).reshape(1000, 4)
    store.write(0, rows[:600])
    store.write(600, rows[600:])
    assert store.place == SPILL
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_array_equal(store.read(100, 900), rows[100:900])
    store.close()


def test_a_disk_that_fills_up_while_factors_are_written_means_computing_again(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk takes parts of what it is given before it refuses; nothing must be read back from it then."""
    opened: list[FullDisk] = []

    class FullDisk:
        def __init__(self, room: int) -> None:
            self.room, self.content, self.at, self.closed = room, bytearray(), 0, False
            opened.append(self)

        def seek(self, place: int) -> None:
            self.at = place

        def write(self, view: memoryview) -> int:
            taken = min(len(view), self.room - self.at, 5000)
            if taken <= 0:
                raise OSError(28, "No space left on device")
            self.content[self.at : self.at + taken] = view[:taken]
            self.at += taken
            return taken

        def readinto(self, view: memoryview) -> int:
            taken = min(len(view), 7000)
            view[:taken] = self.content[self.at : self.at + taken]
            self.at += taken
            return taken

        def close(self) -> None:
            self.closed = True

    val = np.arange(0, 6000, 5)
    with streaming(table, options()) as (_, engine, context):
        expected, wanted = refined(engine, context, val)
    for room, place in ((10**9, SPILL), (900_000, NOWHERE)):
        monkeypatch.setattr(stores, "_spill_file", lambda _, size, room=room: FullDisk(room))
        with streaming(table, options(), ROOMS[SPILL]) as (_, engine, context):
            rows, found = refined(engine, context, val)
            assert engine.run(Accounts())[0][1] == place
            engine.close()
        np.testing.assert_array_equal(rows, expected)
        assert found.psi == wanted.psi
        assert opened[-1].closed


def test_a_disk_without_enough_room_means_computing_again(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    store = Store(free // 4000, 2000, np.dtype(np.float32), Room(0, tmp_path))
    assert store.place == NOWHERE
    store.write(0, np.zeros((1, 2000), np.float32))
    assert list(tmp_path.iterdir()) == []
