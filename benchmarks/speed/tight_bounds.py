"""What `--bound tight` proves of splits of a few rows, and how long it takes beside the usual bound.

python -m benchmarks.speed.tight_bounds [--write]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import harness

SIZES, HOLDOUTS, FAMILIES = (100, 200), ("0.2", "0.5"), ("label", "label,domain")


def rows_of(folder: Path, n: int) -> Path:
    """Draw rows of the sample data at random."""
    import pyarrow.parquet as pq

    table = pq.read_table(Path(__file__).resolve().parents[2] / "sample_data" / "gas.parquet")
    chosen = np.sort(np.random.default_rng(0).choice(table.num_rows, n, replace=False))
    path = folder / f"gas_{n}.parquet"
    pq.write_table(table.take(chosen), path)
    return path


def measured(folder: Path, sizes: tuple[int, ...]) -> Iterator[str]:
    """One line of the table for every size, share and kind of cells."""
    for n in sizes:
        path = rows_of(folder, n)
        for cells in FAMILIES:
            for holdout in HOLDOUTS:
                words = ["--standardize", "zscore", "--stratify", cells, "--h", holdout]
                usual, tight = (harness.split(path, *words, "--bound", how) for how in ("always", "tight"))
                loose, found = usual.report["bound"], tight.report["bound"]
                proven = "yes" if found["proven_optimal"] else ""
                shares = f"{loose['fraction']:.3f} | {found['fraction']:.5f}"
                yield (
                    f"| {n} | {cells} | {holdout} | {shares} | {proven} "
                    f"| {usual.processor:.1f} | {tight.processor:.1f} |"
                )


def main() -> None:
    """Print the table as it grows, and write it to the documentation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--write", action="store_true", help="replace the table in docs/benchmarks.md")
    options = parser.parse_args()
    lines = [
        f"On {harness.machine()}; processor seconds of the whole command.",
        "",
        "| rows | cells | h | share of the usual bound | of the tight | proven | seconds, usual | tight |",
        "| ---: | --- | ---: | ---: | ---: | --- | ---: | ---: |",
    ]
    with harness.workspace() as folder:
        for line in measured(folder, tuple(options.sizes)):
            lines.append(line)
            print(line, flush=True)
    if options.write:
        harness.write_table("tight", lines)


if __name__ == "__main__":
    main()
