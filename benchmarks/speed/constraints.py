"""What the constraints of real projects cost and bring: families, folds, and units that stay together.

    python -m benchmarks.speed.constraints [--only families|folds|units] [--repeats 3] [--write]

Families and folds run on PACS, units on a generated file of 50,000 rows and on spoken digits. Every run is
checked against the input itself, not against its report.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import harness
from benchmarks.bare import bare_kernel

PACS = harness.SHARED_DATA / "pacs_effnetlite0.parquet"
DIGITS = harness.SHARED_DATA / "fsdd_logmel800.parquet"
FOLDS, SLOWEST = 5, 20.0
"""Folds, and how many bare kernels they may take with ten restarts."""
Line = tuple[str, str, str]


def cells_of(path: Path) -> np.ndarray:
    """A number per row, equal where label and domain are."""
    table = pq.read_table(path, columns=["label", "domain"])
    label, domain = (np.array(table[name].to_pylist()).astype(str) for name in table.column_names)
    both = np.char.add(np.char.add(label, "/"), domain)
    return np.unique(both, return_inverse=True)[1].reshape(-1)


def families(repeats: int) -> Iterator[Line]:
    """Label totals and domain totals apart leave more freedom than joint cells."""
    joint, apart = harness.side_by_side(
        repeats,
        lambda: harness.split(PACS, "--stratify", "label,domain"),
        lambda: harness.split(PACS, "--stratify", "label", "--stratify", "domain"),
    )
    values = [runs[0].report["mmd"]["value"] for runs in (joint, apart)]
    if values[1] < values[0]:
        raise SystemExit(f"two families reach MMD {values[1]}, less than joint cells with {values[0]}")
    seconds = [harness.median([ran.seconds for ran in runs]) for runs in (joint, apart)]
    programs = apart[0].report["search"]["programs"]
    yield (
        "PACS, label and domain as two families",
        f"MMD {values[1]:.4f}, with joint cells {values[0]:.4f}",
        f"{seconds[1]:.1f} s ({programs['solved']} programs), joint cells {seconds[0]:.1f} s",
    )


def folds(repeats: int) -> Iterator[Line]:
    """Ten restarts, against the bare kernel, and what they spend their time on."""
    column = pq.read_table(PACS, columns=["embedding"])["embedding"].combine_chunks()
    X = column.flatten().to_numpy().reshape(len(column), -1)
    gamma = np.float32(1 / X.var(axis=0, dtype=np.float64).sum())
    cells = cells_of(PACS)

    def evenly(out: Path) -> None:
        fold = np.load(out / "folds.npy")
        counts = np.bincount(cells * FOLDS + fold, minlength=FOLDS * (cells.max() + 1)).reshape(-1, FOLDS)
        if np.ptp(counts, axis=1).max() > 1 or np.ptp(np.bincount(fold)) > 1:
            raise SystemExit("folds differ by more than one row")

    bare, runs = harness.side_by_side(
        repeats,
        lambda: harness.clock(lambda: bare_kernel(X, gamma)),
        lambda: harness.split(PACS, "--k", str(FOLDS), command="kfold", check=evenly),
    )
    kernel, whole = harness.median(bare), harness.median([ran.seconds for ran in runs])
    middle = sorted(runs, key=lambda ran: ran.seconds)[len(runs) // 2]
    steps = sorted(middle.report["timing"]["steps"].items(), key=lambda step: -step[1])
    spent = ", ".join(f"{name} {seconds / kernel:.1f}" for name, seconds in steps[:4])
    yield (
        f"PACS, k = {FOLDS}, ten restarts: {cells.max() + 1} cells within one row in every fold",
        f"{whole / kernel:.1f} bare kernels (limit {SLOWEST:g})",
        f"{whole:.1f} s, bare kernel {kernel:.2f} s; in bare kernels: {spent}",
    )


def whole_units(units: np.ndarray) -> harness.Check:
    """Refuse a run that divides a unit."""

    def check(out: Path) -> None:
        inside = np.zeros(len(units), dtype=bool)
        inside[np.load(out / "val.npy")] = True
        sizes, taken = np.bincount(units), np.bincount(units[inside], minlength=units.max() + 1)
        if ((taken > 0) & (taken < sizes)).any():
            raise SystemExit("a unit was divided")

    return check


def write_mixed_units(path: Path, n: int = 50_000, n_units: int = 2_000) -> np.ndarray:
    """Rows of 30 cells in units of skewed sizes, whose rows lie close together and are of several cells."""
    rng = np.random.default_rng(11)
    weights = rng.pareto(1.2, n_units) + 0.2
    units = np.concatenate(
        [np.arange(n_units), rng.choice(n_units, size=n - n_units, p=weights / weights.sum())]
    )
    label, domain = rng.integers(6, size=n), rng.integers(5, size=n)
    centre = rng.normal(size=(n_units, 32))
    X = (centre[units] + 0.7 * rng.normal(size=(n, 32))).astype(np.float32)
    rows = pa.FixedSizeListArray.from_arrays(X.reshape(-1), 32)
    pq.write_table(pa.table({"embedding": rows, "label": label, "domain": domain, "unit": units}), path)
    return units


def write_takes(path: Path) -> np.ndarray:
    """Runs of takes of one digit by one speaker, of skewed lengths, as units beside the spoken digits."""
    rng = np.random.default_rng(5)
    cells = cells_of(DIGITS)
    order = np.lexsort((pq.read_table(DIGITS, columns=["take"])["take"].to_numpy(), cells))
    begins = np.diff(cells[order], prepend=-1) != 0
    begins |= rng.random(len(order)) < rng.choice([0.05, 0.5], size=len(order))
    units = np.empty(len(order), dtype=np.int64)
    units[order] = np.cumsum(begins) - 1
    pq.write_table(pa.table({"unit": units}), path)
    return units


def together(folder: Path) -> Iterator[Line]:
    """Units across cells and within one: the smallest tolerance, and the time."""
    mixed, takes = folder / "mixed.parquet", folder / "takes.parquet"
    cases = [("generated, mixed cells", write_mixed_units(mixed), mixed, ("--nystrom", "1000"))]
    if DIGITS.exists():
        beside = ("--metadata", str(takes), "--columns", "f*")
        cases.append(("spoken digits, one label each", write_takes(takes), DIGITS, beside))
    for name, units, path, words in cases:
        keep = ("--keep-together", "unit", "--tolerance", "auto")
        ran = harness.split(path, *keep, *words, check=whole_units(units))
        constraints = ran.report["constraints"]
        if not constraints["all_satisfied"]:
            raise SystemExit("a cell is outside its bounds")
        tolerance, sizes = constraints["tolerance"], np.bincount(units)
        proven = "proven smallest" if tolerance["proven_smallest"] else "smallest found"
        yield (
            f"{name}: {len(units):,} rows in {len(sizes):,} units of up to {sizes.max():,}",
            f"{len(constraints['cells'])} cells within {tolerance['general']:g} ({proven})",
            f"{ran.seconds:.1f} s, of which constraints {ran.steps('constraints'):.1f} s, "
            f"search {ran.steps('search'):.1f} s, certificate {ran.steps('certificate'):.1f} s",
        )


def main() -> None:
    """Run what was asked for, print every line, and write them to the documentation."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=("families", "folds", "units"))
    parser.add_argument("--write", action="store_true", help="replace the table in docs/benchmarks.md")
    given = parser.parse_args()
    lines: list[Line] = []
    with harness.workspace() as folder:
        parts = {
            "families": lambda: families(given.repeats) if PACS.exists() else iter(()),
            "folds": lambda: folds(given.repeats) if PACS.exists() else iter(()),
            "units": lambda: together(folder),
        }
        for name, part in parts.items():
            for line in part() if given.only in (None, name) else ():
                lines.append(line)
                print(" | ".join(line), flush=True)
    if given.write:
        table = [
            f"Measured on {date.today().isoformat()} on {harness.machine()}; times of families and folds are "
            f"medians of {given.repeats}.",
            "",
            "| case | result | time |",
            "| --- | --- | --- |",
            *(f"| {' | '.join(line)} |" for line in lines),
        ]
        harness.write_table("constraints", table)


if __name__ == "__main__":
    main()
