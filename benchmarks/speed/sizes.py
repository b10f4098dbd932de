"""What splits, folds and named parts take at every size: beside a bare kernel, and beside each other.

    python -m benchmarks.speed.sizes [--rows 10000,100000] [--kernels rbf] [--repeats 1] [--write]

Generated rows in 80 cells. Ratios are of processor seconds, which other work on the machine disturbs least:
to the bare kernel, or beyond `DENSE` rows to the bare matrix of 2,000 landmarks; and to a split of the same
file in the same run. With --write, lines of the same case in docs/benchmarks.md are replaced, others kept.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import bare, harness

SIZES = (2_000, 10_000, 60_000, 100_000, 455_954, 1_000_000)
KERNELS = ("rbf", "linear")
LABELS, DOMAINS, CLUSTERS = 10, 8, 40
BLOCK = 50_000
DENSE, THINNED, LANDMARKS = 60_000, 20_000, 2_000
"""Rows up to which the bare kernel is the measure, and up to which it is made of all of them."""
ASKED = {
    "split": ("split", (), None),
    "kfold --k 5": ("kfold", ("--k", "5"), 3.0),
    "three parts": ("split", ("--parts", "train=0.7,val=0.15,test=0.15"), 2.5),
}
"""The command, its options, and how many splits it may take."""
HEAD = (
    *("rows", "kernel", "what", "held as", "processor s", "clock s", "planned s", "peak GB"),
    "to the bare kernel",
    *("to a split", "at most"),
)


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


def bare_seconds(path: Path, n: int, gamma: float) -> float:
    """Processor seconds of a kernel in plain numpy; of many rows, of every third, nine times."""
    table = pq.read_table(path)
    X = np.stack([table[name].to_numpy() for name in table.schema.names if name[0] == "f"], axis=1)
    every, what = (3, "kernel") if THINNED < n <= DENSE else (1, "kernel" if n <= DENSE else "landmarks")
    rows = path.with_suffix(".npy")
    np.save(rows, X[::every])
    found = bare.alone(what, rows, gamma, *([LANDMARKS] if what == "landmarks" else []))[1]
    rows.unlink()
    return every**2 * found


def measured(folder: Path, n: int, d: int, kernels: list[str], repeats: int) -> Iterator[list[str]]:
    """The lines of one size."""
    path = folder / f"{n}.parquet"
    write_rows(path, n, d)
    limit = bare_seconds(path, n, 1.0 / d)
    for kernel in kernels:
        tasks = [
            lambda command=command, words=words, kernel=kernel: harness.split(
                path, "--kernel", kernel, *words, command=command
            )
            for command, words, _ in ASKED.values()
        ]
        split = 0.0
        for (what, (_, _, most)), runs in zip(
            ASKED.items(), harness.side_by_side(repeats, *tasks), strict=True
        ):
            spent = harness.median([ran.processor for ran in runs])
            split = split or spent
            plan = runs[0].report["plan"]
            width = plan["rank"] or plan["landmarks"]
            yield [
                *(f"{n:,}", kernel, what, plan["geometry"] + (f", {width:,}" if width else "")),
                *(f"{spent:.1f}", f"{harness.median([ran.seconds for ran in runs]):.1f}"),
                f"{plan['seconds']:.1f}",
                *(f"{runs[0].peak / 1e9:.2f}", f"{spent / limit:.2f}"),
                *(f"{spent / split:.2f}", "" if most is None else f"{most:g}"),
            ]
    path.unlink()


def main() -> None:
    """Measure, and print a line for every case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", default=",".join(map(str, SIZES)))
    parser.add_argument("--kernels", default=",".join(KERNELS))
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="replace these lines in docs/benchmarks.md")
    asked = parser.parse_args()
    head = [f"| {' | '.join(HEAD)} |", "| ---: | --- | --- | --- |" + 7 * " ---: |"]
    print("\n".join(head))
    with harness.workspace() as folder:
        for n in map(int, asked.rows.split(",")):
            fresh = []
            for line in measured(folder, n, asked.columns, asked.kernels.split(","), asked.repeats):
                fresh.append(f"| {' | '.join(line)} |")
                print(fresh[-1], flush=True)
            if asked.write:
                write(fresh, [f"{asked.columns} features, on {harness.machine()}.", "", *head])


def write(fresh: list[str], head: list[str]) -> None:
    """Put lines in the place of those of the same case."""
    known = {_case(line): line for line in harness.read_table("sizes") if line[2:3].isdigit()}
    known |= {_case(line): line for line in fresh}
    order = [f"{n:,}" for n in SIZES], list(KERNELS), list(ASKED)
    lines = sorted(
        known.values(),
        key=lambda line: [known.index(word) for known, word in zip(order, _case(line), strict=True)],
    )
    harness.write_table("sizes", [*head, *lines])


def _case(line: str) -> tuple[str, ...]:
    return tuple(line.strip("| ").split(" | ")[:3])


if __name__ == "__main__":
    main()
