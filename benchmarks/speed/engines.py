"""How the engines scale: what is claimed in docs/scale.md, measured. Every case is a command of its own.

python -m benchmarks.speed.engines stream FOLDER    more rows than memory, against the same rows in memory
python -m benchmarks.speed.engines cluster FOLDER   two workers, one of them killed, against one process
python -m benchmarks.speed.engines folds FOLDER     five folds: under 2 GB, and with a worker killed
python -m benchmarks.speed.engines growth FOLDER    time against rows, and against workers
python -m benchmarks.speed.engines model FOLDER     what a row costs in every kind of pass

FOLDER holds the generated tables and is left as it was. With --write the page gets the measured lines.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Ran, median, spent
from benchmarks.tables import make_table
from clustersplit_cli.core.parallel import pool
from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.row_groups import open_layout
from clustersplit_cli.data.row_labels import LabelsInMemory
from clustersplit_cli.engines.descent import choose, measure
from clustersplit_cli.engines.options import STREAM, EngineOptions
from clustersplit_cli.engines.plan import plan_stream
from clustersplit_cli.engines.rules import Differences, Labelled
from clustersplit_cli.engines.store import Room
from clustersplit_cli.engines.stream import StreamExecutor
from clustersplit_cli.engines.tasks import Score
from clustersplit_cli.options import SplitOptions, check_options
from clustersplit_cli.pipeline.sharded.engine import ShardedEngine
from clustersplit_cli.progress import Stopwatch, silent

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "scale.md"
PORT = 18_786
SPLIT, KFOLD = ("split",), ("kfold", "--k", "5")


def split(path: Path, out: Path, *options: str, command: Sequence[str] = SPLIT) -> Ran:
    """Run `clustersplit` in a process of its own and keep what it writes."""
    words = _command(path, out, *options, command=command)
    seconds, processor = spent(lambda: subprocess.run(words, check=True, cwd=ROOT))
    return Ran(seconds, json.loads((out / "report.json").read_text("utf-8")), processor)


def _command(path: Path, out: Path, *options: str, command: Sequence[str] = SPLIT) -> list[str]:
    words = [*command, str(path), "--out", str(out), "--quiet", "--force", *options]
    return [sys.executable, "-m", "clustersplit_cli", *words]


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A scheduler and its workers, as processes that speak TCP."""
    folder.mkdir(exist_ok=True)
    address = f"tcp://127.0.0.1:{PORT}"
    starts = [["dask_scheduler", "--host", "127.0.0.1", "--port", str(PORT), "--no-show"]]
    starts += [["dask_worker", address, "--no-nanny", "--nthreads", "1", "--memory-limit", "4GB"]] * workers
    processes = []
    for module, *options in starts:
        words = [sys.executable, "-m", f"distributed.cli.{module}", "--no-dashboard", *options]
        log = subprocess.DEVNULL
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        processes.append(subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log))
        time.sleep(3)
    try:
        yield processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def stream_case(folder: Path, rows: int, features: int, memory: str, local_memory: str) -> Iterator[str]:
    """The first demonstration: a table larger than the memory that is allowed."""
    table = folder / f"table-{rows}-{features}"
    if not table.exists():
        make_table(table, rows, features, 20)
    size = sum(path.stat().st_size for path in table.iterdir())
    mine = split(table, folder / "stream", "--engine", "stream", "--memory", memory, "--nystrom", "500")
    theirs = split(table, folder / "local", "--engine", "local", "--memory", local_memory, "--nystrom", "500")
    ratio = mine.report["mmd"]["value"] / theirs.report["mmd"]["value"]
    passes = mine.report["engine"]["passes"]
    yield f"{rows:,} x {features} float32, {size / 1e9:.1f} GB of Parquet in 20 files, q = 500:"
    for name, ran in ((f"stream with `--memory {memory}`", mine), ("in memory", theirs)):
        mmd = ran.report["mmd"]["value"]
        yield f"{name}: peak {ran.peak / 1e9:.2f} GB, {ran.seconds:.0f} s, MMD {mmd:.6f}"
    yield f"{passes} passes over all rows refined the split; its MMD is {ratio:.6f} of that in memory"


def folds_case(folder: Path, rows: int, features: int, memory: str) -> Iterator[str]:
    """Five folds of a table larger than the memory that is allowed, and of a quarter of it on a cluster."""
    table = folder / f"table-{rows}-{features}"
    if not table.exists():
        make_table(table, rows, features, 20)
    options = ("--engine", "stream", "--memory", memory, "--nystrom", "200")
    ran = split(table, folder / "stream", *options, command=KFOLD)
    folds = np.load(folder / "stream" / "folds.npy")
    least, most = np.bincount(folds).min(), np.bincount(folds).max()
    yield f"five folds of {rows:,} x {features}, q = 200, `--memory {memory}`: peak {ran.peak / 1e9:.2f} GB"
    yield (
        f"{ran.processor:.0f} s of processor, {ran.seconds:.0f} s by the clock, "
        f"{ran.report['engine']['passes']} passes; folds of {least:,} to {most:,} rows"
    )
    yield from cluster_case(folder, rows // 4, features, KFOLD)


def cluster_case(folder: Path, rows: int, features: int, command: Sequence[str] = SPLIT) -> Iterator[str]:
    """The second: the same split on two workers, and with one of them killed in the middle."""
    table = folder / f"table-{rows}-{features}"
    if not table.exists():
        make_table(table, rows, features, 8)
    options = ["--nystrom", "200", "--format", "npy"]
    alone = split(table, folder / "alone", "--engine", "stream", *options, command=command)
    on_cluster = ["--engine", "dask", "--scheduler", f"tcp://127.0.0.1:{PORT}", *options]
    with cluster(folder / "cluster", 2):
        both = split(table, folder / "both", *on_cluster, command=command)
    with cluster(folder / "cluster", 2) as workers:
        start = time.perf_counter()
        process = subprocess.Popen(_command(table, folder / "killed", *on_cluster, command=command), cwd=ROOT)
        time.sleep(both.seconds / 2)
        workers[0].send_signal(signal.SIGKILL)
        assert process.wait() == 0
        seconds = time.perf_counter() - start
    file = "val.npy" if command == SPLIT else "folds.npy"
    rows_of = {name: np.load(folder / name / file) for name in ("alone", "both", "killed")}
    same = all(np.array_equal(rows_of["alone"], found) for found in rows_of.values())
    yield f"{rows:,} x {features}, q = 200, one process: {alone.seconds:.0f} s"
    yield f"two workers: {both.seconds:.0f} s"
    yield f"one of the two workers killed after {both.seconds / 2:.0f} s: {seconds:.0f} s"
    what = "validation rows" if command == SPLIT else "folds"
    yield f"the same {what} in all three" if same else "THE SPLITS DIFFER"


def growth_case(folder: Path, rows: int, features: int, repeats: int) -> Iterator[str]:
    """The third: twice the rows, and twice the workers; and the numbers of the cost model."""
    tables = [folder / f"grow-{count}-{features}" for count in (rows, 2 * rows)]
    for count, table in zip((rows, 2 * rows), tables, strict=True):
        if not table.exists():
            make_table(table, count, features, 8)
    options = ["--nystrom", "200", "--effort", "fast", "--certify", "never", "--bound", "never"]
    taken: dict[Any, list[Ran]] = {}
    work: dict[Any, list[float]] = {}
    for _ in range(repeats):
        for table in tables:
            ran = split(table, folder / "grow", "--engine", "stream", *options)
            work.setdefault(table, []).append(ran.processor)
            taken.setdefault(table, []).append(ran)
    seconds = [median([ran.report["timing"]["total"] for ran in taken[table]]) for table in tables]
    last = taken[tables[1]][-1].report["engine"]
    sizes = f"{rows:,} to {2 * rows:,} x {features}"
    yield f"stream, {sizes}: {seconds[0]:.1f} s to {seconds[1]:.1f} s, ratio {seconds[1] / seconds[0]:.2f}"
    used = [median(work[table]) for table in tables]
    yield f"processor time: {used[0]:.1f} s to {used[1]:.1f} s, ratio {used[1] / used[0]:.2f}"
    rate = median([ran.report["engine"]["rows_per_second"] for ran in taken[tables[1]]])
    read = median([2 * rows / ran.report["timing"]["steps"]["read"] for ran in taken[tables[1]]])
    yield f"first pass, {features} features, {last['workers']} threads: {read:,.0f} rows/s"
    yield f"a pass over 200 factors per row, kept in {last['factors']}: {rate:,.0f} rows/s"
    timed = {}
    for workers in (1, 2):
        with cluster(folder / "cluster", workers):
            runs = [
                split(
                    tables[1],
                    folder / "grow",
                    *("--engine", "dask", "--scheduler", f"tcp://127.0.0.1:{PORT}", *options),
                )
                for _ in range(repeats)
            ]
        timed[workers] = median([ran.report["timing"]["total"] for ran in runs])
    yield f"dask, {2 * rows:,} x {features}: one worker {timed[1]:.1f} s, two workers {timed[2]:.1f} s"


def model_case(folder: Path, rows: int, features: int, landmarks: int) -> Iterator[str]:
    """Processor time per row of every kind of pass, on one thread; and the sum for a large table."""
    table = make_table(folder / "model", rows, features, 2)
    options = check_options(SplitOptions(nystrom=str(landmarks), threads=1, memory="16GB"))
    layout = open_layout(ReadRequest(table), landmarks)
    cost: dict[str, float] = {}

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        start = time.process_time()
        yield
        cost[name] = (time.process_time() - start) / rows

    with pool(1) as workers, closing(StreamExecutor(layout, Room(0, folder), workers)) as engine:
        plan = plan_stream(layout, landmarks, budget=options.budget, threads=1, reason="")
        sharded = ShardedEngine(
            *(layout, options, EngineOptions(STREAM), plan, engine, None, workers, Stopwatch(), silent),
            searching=False,
        )
        with timed("survey"):
            surveyed = sharded.survey()
        context = sharded.prepare(surveyed)
        engine.give(LabelsInMemory((np.arange(rows) % 5 == 0).astype(np.int8)))
        rule = Labelled()
        with timed("factors"):
            problem, split = context.measure_rule(rule)
        with timed("sum"):
            split = measure(problem, rule)[0]
        found = context.measure(rule)
        source = Differences(split.state.weights[:, None], np.array([split.state.shift]))
        with timed("score"):
            engine.run(Score(source.weights))
        with timed("select"):
            target = problem.limits.target
            choose(engine, source, np.stack([target, target], axis=1))
        with timed("random"):
            context.random_baseline(found)
        with timed("gather"):
            context.subsample(found)
    words = ", ".join(f"{name} {1e6 * seconds:.2f}" for name, seconds in cost.items())
    yield f"d = {features}, q = {landmarks:,}, microseconds of one core per row: {words}"
    # Survey, two gathers, factors with the first scores; sums and scores of three steps and a certificate.
    steps = 4 * (cost["score"] + cost["select"] + cost["sum"])
    per_row = cost["survey"] + 2 * cost["gather"] + cost["factors"] + cost["select"] + steps + cost["random"]
    large, workers_there = 10**8, 16
    seconds = large * per_row / workers_there
    read, kept = 4 * large * features * 4, large * landmarks * 4
    yield f"{large:,} x {features} on {workers_there} workers of one core: {seconds / 60:.0f} minutes of work"
    shares = (f"{size / 1e12:.1f} TB, {size / workers_there / 1e9:.0f} GB a worker" for size in (read, kept))
    yield f"reading the input four times: {next(shares)}"
    yield f"factors: {next(shares)}, read ten times"


def write(case: str, lines: list[str]) -> None:
    """Put measured lines into the page, between the marks of their case."""
    text = PAGE.read_text("utf-8")
    start, end = f"<!-- {case}: start -->", f"<!-- {case}: end -->"
    head, _, rest = text.partition(start)
    _, _, tail = rest.partition(end)
    body = "".join(f"- {line}\n" for line in lines)
    PAGE.write_text(f"{head}{start}\n{body}{end}{tail}", "utf-8")


def main() -> None:
    """Run one case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", choices=("stream", "cluster", "folds", "growth", "model"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--features", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--landmarks", type=int, default=2000, help="of the model")
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--local-memory", default="20GB")
    parser.add_argument("--write", action="store_true", help="put the lines into docs/scale.md")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="engines-") as name:
        folder = Path(name)
        for kept in given.folder.glob("table-*"):
            (folder / kept.name).symlink_to(kept.resolve())
        if given.case == "stream":
            found = stream_case(
                folder, given.rows or 4_000_000, given.features or 256, given.memory, given.local_memory
            )
        elif given.case == "cluster":
            found = cluster_case(folder, given.rows or 1_000_000, given.features or 128)
        elif given.case == "folds":
            found = folds_case(folder, given.rows or 4_000_000, given.features or 64, given.memory)
        elif given.case == "model":
            found = model_case(folder, given.rows or 40_000, given.features or 768, given.landmarks)
        else:
            found = growth_case(folder, given.rows or 250_000, given.features or 128, given.repeats)
        lines = []
        for line in found:
            print(line, flush=True)
            lines.append(line)
        shutil.rmtree(folder / "cluster", ignore_errors=True)
    if given.write:
        write(given.case, lines)


if __name__ == "__main__":
    main()
