"""Middle-sized tables: what the command takes of a bare dense kernel's time, its bound included.

    python -m benchmarks.speed.low_rank [--write]

Ratios are of processor seconds as well as of wall-clock seconds, since only the former stay as they are on a
machine that others use.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import bare, harness

REPEATS = 3
THINNED = 3
"""The bare kernel is made of every third row, and taken nine times: all of it fills many gigabytes."""
HEAD = (
    *("case", "kernel held as", "ratio, processor", "ratio, clock", "limit", "kept", "processor seconds"),
    *("peak memory", "share of the bound"),
)


@dataclass(frozen=True)
class Case:
    """A table, the width of its kernel, and how much of the bare kernel's time a split may take."""

    name: str
    words: list[str]
    gamma: float
    limit: float


def write_electricity(folder: Path, n: int = 45_312) -> list[str]:
    """Make half-hourly prices and demands of two states, one of which joins the market after a while.

    The columns spread as those of the electricity prices of New South Wales do (Harries 1999).
    """
    rng = np.random.default_rng(7)
    joined = np.arange(n) > 0.4 * n
    period, day = np.arange(n) % 48, np.arange(n) // 48 % 7
    demand = np.sin(2 * np.pi * (period / 48 - 0.3)) + 0.05 * rng.standard_normal(n)
    price = np.exp(0.35 * rng.standard_normal(n) + 0.5 * demand)
    noise = rng.standard_normal((3, n))
    columns = (
        day,
        period,
        price,
        demand,
        np.exp(0.3 * noise[0]),
        demand + 0.1 * noise[1],
        0.15 * noise[2] - demand,
    )
    spreads = (0.70, 0.71, 0.04, 0.16, 0.01, 0.12, 0.15)
    rows = np.stack(
        [column * (spread / np.std(column)) for column, spread in zip(columns, spreads, strict=True)], 1
    )
    rows[~joined, 4:] = rows[joined, 4:].mean(axis=0)
    path, companions = folder / "electricity.npy", []
    np.save(path, rows.astype(np.float32))
    for role, values in (("label", price > np.median(price)), ("domain", np.arange(n) // 5_035)):
        companion = folder / f"electricity_{role}.npy"
        np.save(companion, values.astype(np.int64))
        companions += [f"--{role}-file", str(companion)]
    return [str(path), *companions]


def measured(case: Case, folder: Path) -> str:
    """One line of the table."""
    both: list[list[tuple[float, float]]] = [[], [], []]
    reports = []

    def split() -> tuple[float, float]:
        ran = harness.split(Path(case.words[0]), *case.words[1:])
        reports.append(ran.report)
        return ran.seconds, ran.processor

    def kernel() -> tuple[float, float]:
        return bare.alone("kernel", folder / f"part_{Path(case.words[0]).name}", case.gamma)

    np.save(folder / f"part_{Path(case.words[0]).name}", np.load(case.words[0])[::THINNED])
    for _ in range(REPEATS):
        for task, found in zip((split, kernel, harness.start), both, strict=True):
            found.append(task())
    (wall, cpu), (part_wall, part_cpu), (start_wall, start_cpu) = (
        tuple(harness.median([pair[place] for pair in found]) for place in (0, 1)) for found in both
    )
    bare_wall, bare_cpu = THINNED**2 * part_wall, THINNED**2 * part_cpu
    ratio = (cpu - start_cpu) / bare_cpu
    report = reports[-1]
    width = report["plan"]["rank"] or report["plan"]["landmarks"]
    cells = (
        case.name,
        f"{report['plan']['geometry']}, {width:,}",
        f"{ratio:.2f}",
        f"{(wall - start_wall) / bare_wall:.2f}",
        case.limit,
        "yes" if ratio <= case.limit else "no",
        f"{cpu:.1f} s, bare kernel {bare_cpu:.1f} s",
        f"{report['timing']['peak_memory_bytes'] / 1e9:.2f} GB",
        f"{report['bound']['fraction']:.3f}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Measure all cases."""
    with harness.workspace() as folder:
        electricity = write_electricity(folder)
        wide = harness.write_generated(folder, 60_000, 512, 5, 4, "wide")
        cases = (
            Case("electricity-like, 45,312 x 7", electricity, 5.0, 0.5),
            Case("generated, 60,000 x 512", wide, 0.002, 0.35),
        )
        lines = [
            f"Medians of {REPEATS} repetitions on {harness.machine()}.",
            "",
            f"| {' | '.join(HEAD)} |",
            "| --- | --- | ---: | ---: | ---: | --- | --- | ---: | ---: |",
            *(measured(case, folder) for case in cases),
        ]
    print("\n".join(lines))
    if "--write" in sys.argv:
        harness.write_table("low rank", lines)


if __name__ == "__main__":
    main()
