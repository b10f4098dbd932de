"""What folds and named parts take, beside a split of the same file in the same run.

    python -m benchmarks.speed.folds [--rows 10000,100000] [--columns 128] [--repeats 3] [--options ...]

Generated rows in 80 cells. Ratios are of seconds of CPU time, which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import harness

LABELS, DOMAINS, CLUSTERS = 10, 8, 40
BLOCK = 50_000
ASKED = {
    "kfold --k 5": ("kfold", ("--k", "5"), 3.0),
    "three parts": ("split", ("--parts", "train=0.7,val=0.15,test=0.15"), 2.5),
}
"""The command, its options, and how many splits it may take."""
HEAD = "| rows | what | CPU s | a split | ratio | at most | MMD |" + "\n|" + 7 * " --- |"


def write_rows(path: Path, n: int, d: int) -> None:
    """Clusters that labels and domains shift, in row groups."""
    rng = np.random.default_rng(0)
    means = [0.7 * rng.normal(size=(count, d)) for count in (CLUSTERS, LABELS, DOMAINS)]
    writer: pq.ParquetWriter | None = None
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        kinds = [rng.integers(0, len(some), m) for some in means]
        rows = sum((some[kind] for some, kind in zip(means, kinds, strict=True)), np.zeros((m, d)))
        features = (rows + rng.normal(size=(m, d)) * np.linspace(1.5, 0.3, d)).astype(np.float32)
        columns = {f"f{column}": features[:, column] for column in range(d)}
        table = pa.table({**columns, "label": kinds[1], "domain": kinds[2]})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def cpu(task: Callable[[], harness.Ran]) -> tuple[float, harness.Ran]:
    """Seconds of CPU time of the processes a task starts, and what it returns."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = task()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, ran


def main() -> None:
    """Measure, and print a line for every size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", default="10000,100000")
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=[], help="of all three commands")
    asked = parser.parse_args()
    print(HEAD)
    with harness.workspace() as folder:
        for n in map(int, asked.rows.split(",")):
            path = folder / f"{n}.parquet"
            write_rows(path, n, asked.columns)
            tasks = [lambda path=path: cpu(lambda: harness.split(path, *asked.options))]
            for command, options, _ in ASKED.values():
                tasks.append(
                    lambda path=path, command=command, options=options: cpu(
                        lambda: harness.split(path, *options, *asked.options, command=command)
                    )
                )
            base, *others = harness.side_by_side(asked.repeats, *tasks)
            split = harness.median([seconds for seconds, _ in base])
            for (what, (_, _, most)), runs in zip(ASKED.items(), others, strict=True):
                seconds = harness.median([seconds for seconds, _ in runs])
                mmd = runs[0][1].report["mmd"]["value"]
                ratio = f"{seconds / split:.2f} | {most:g}"
                print(f"| {n:,} | {what} | {seconds:.1f} | {split:.1f} | {ratio} | {mmd:.5g} |", flush=True)


if __name__ == "__main__":
    main()
