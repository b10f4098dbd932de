"""The speed of the command against limits measured in the same run; `make bench` runs it.

Writes its table to docs/benchmarks.md. Each row is the median of several repetitions, the command and
the limit taking turns; with dense kernels every repetition has a seed of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks import bare as bare_limits
from benchmarks import harness

PAUSE = 4.0
BEFORE_SEARCH = ("read", "constraints", "prepare", "kernel")


@dataclass(frozen=True)
class Row:
    """One line of the table: a ratio, what it is to, and the limit it should keep."""

    case: str
    what: str
    ratio: float
    limit: float | None
    detail: str

    @property
    def verdict(self) -> str:
        """Whether the limit holds."""
        return "" if self.limit is None else "yes" if self.ratio <= self.limit else "NO"


def start_up() -> float:
    """Seconds the command takes to say its version: what every command pays before any work."""
    command = [sys.executable, "-m", "clustersplit_cli", "--version"]
    return harness.clock(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))


def dense_rows(case: str, rows: Path, run: Callable[[], harness.Ran], repeats: int) -> Iterator[Row]:
    """The whole command and the part after the kernel, against the bare kernel; peak memory.

    Parameters
    ----------
    rows : the features as NPY.
    """
    X = np.load(rows)
    gamma = np.float32(1 / X.var(axis=0, dtype=np.float64).sum())
    bare, again, runs, starts = harness.side_by_side(
        repeats,
        lambda: bare_limits.alone("kernel", rows, gamma)[0],
        lambda: harness.clock(lambda: bare_limits.bare_kernel(X, gamma)),
        run,
        start_up,
        pause=PAUSE,
    )
    kernel, start = harness.median(bare), harness.median(starts)
    whole = harness.median([ran.seconds for ran in runs])
    # Steps overlap, so what comes after the kernel is what remains of the whole.
    after = harness.median([ran.report["timing"]["total"] - ran.steps(*BEFORE_SEARCH) for ran in runs])
    detail = f"{whole:.2f} s, start-up {start:.2f} s, bare kernel {kernel:.2f} s"
    detail += f" ({harness.median(again):.2f} s repeated in one process)"
    yield Row(case, "whole command less start-up, to the bare kernel", (whole - start) / kernel, 1.8, detail)
    yield Row(case, "whole command, to the bare kernel", whole / kernel, 3.0, detail)
    yield Row(case, "all after the kernel, to the bare kernel", after / kernel, 0.6, f"{after:.2f} s")
    needed = X.nbytes + 4 * len(X) ** 2
    peak = harness.median([ran.peak for ran in runs])
    yield Row(case, "peak memory, to features and kernel", peak / needed, 1.35, f"{peak / 1e9:.2f} GB")


def nystrom_rows(arguments: list[str], X: np.ndarray, q: int, repeats: int) -> Iterator[Row]:
    """The whole command against the bare landmark matrix; peak memory."""
    case = f"Nyström, {len(X):,} x {X.shape[1]}, q = {q:,}"
    gamma = np.float32(1 / X[::50].var(axis=0, dtype=np.float64).sum())
    bare, runs, starts = harness.side_by_side(
        repeats,
        lambda: bare_limits.alone("landmarks", Path(arguments[0]), gamma, q)[0],
        lambda: harness.split(Path(arguments[0]), *arguments[1:], "--nystrom", str(q)),
        start_up,
        pause=PAUSE,
    )
    limit, start = harness.median(bare), harness.median(starts)
    whole = harness.median([ran.seconds for ran in runs])
    detail = f"{whole:.1f} s, bare landmark matrix {limit:.1f} s"
    yield Row(
        case, "whole command less start-up, to the bare landmark matrix", (whole - start) / limit, 1.8, detail
    )
    needed = X.nbytes + 4 * len(X) * q
    peak = harness.median([ran.peak for ran in runs])
    yield Row(
        case, "peak memory, to features and landmark matrix", peak / needed, 1.35, f"{peak / 1e9:.2f} GB"
    )
    # At this size the command leaves the bound out unless asked for it, so it has a row of its own.
    with_bound = harness.split(Path(arguments[0]), *arguments[1:], "--nystrom", str(q), "--bound", "always")
    cost = with_bound.steps("bound")
    of = "--bound always: the bound alone, to the bare landmark matrix"
    yield Row(case, of, cost / limit, None, f"{cost:.1f} s")
    steps = runs[-1].report["timing"]["steps"]
    print("steps:", {name: round(seconds, 2) for name, seconds in steps.items()})


def linear_rows(arguments: list[str], X: np.ndarray, repeats: int) -> Iterator[Row]:
    """Everything after reading, in passes over X."""
    passes, runs = harness.side_by_side(
        repeats,
        lambda: harness.clock(lambda: bare_limits.bare_pass(X)),
        lambda: harness.split(Path(arguments[0]), *arguments[1:], "--kernel", "linear", "--bound", "never"),
    )
    once = harness.median(passes)
    work = harness.median([ran.steps("kernel", "search") for ran in runs])
    case, detail = f"linear, {len(X):,} x {X.shape[1]}", f"{work:.2f} s, one pass {once:.2f} s"
    yield Row(case, "kernel and search, in passes over X", work / once, 12, detail)
    with_bound = harness.split(Path(arguments[0]), *arguments[1:], "--kernel", "linear", "--bound", "always")
    cost = with_bound.steps("bound")
    yield Row(case, "the bound alone, in passes over X", cost / once, None, f"{cost:.2f} s")


def growth_rows(folder: Path, repeats: int) -> Iterator[Row]:
    """How the time grows when the rows double."""
    sizes = (50_000, 100_000, 200_000, 400_000)
    cases = [harness.write_generated(folder, n, 64, 2, 4, f"grow{n}") for n in sizes]
    tasks = [
        lambda case=case: (
            harness.split(Path(case[0]), *case[1:], "--nystrom", "1000", "--bound", "never").seconds
        )
        for case in cases
    ]
    seconds = [harness.median(found) for found in harness.side_by_side(repeats, *tasks)]
    for smaller, larger, n in zip(seconds, seconds[1:], sizes[1:], strict=False):
        detail = f"{smaller:.1f} s to {larger:.1f} s"
        yield Row(
            f"growth to {n:,} x 64, q = 1,000", "time for twice the rows", larger / smaller, 2.15, detail
        )


def cbc_rows(folder: Path, repeats: int) -> Iterator[Row]:
    """Every assignment step through CBC, against the closed form."""
    case = harness.write_generated(folder, 5_000, 64, 5, 4, "cbc")
    slow, quick = harness.side_by_side(
        repeats,
        lambda: harness.split(Path(case[0]), *case[1:], "--solver", "cbc", "--effort", "fast").seconds,
        lambda: harness.split(Path(case[0]), *case[1:], "--effort", "fast").seconds,
    )
    cbc, closed = harness.median(slow), harness.median(quick)
    what = "--solver cbc, to the closed form (both --effort fast)"
    yield Row("5,000 x 64, 20 cells", what, cbc / closed, None, f"{cbc:.1f} s and {closed:.1f} s")


def reading_rows(folder: Path, repeats: int) -> Iterator[Row]:
    """Reading with validation and hashing, against the format's own reader."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from clustersplit_cli.data.dataset import ReadRequest
    from clustersplit_cli.data.readers import load

    n, d = 100_000, 256
    X = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    label = np.arange(n) % 5
    pq.write_table(pa.table({f"f{j}": X[:, j] for j in range(d)} | {"label": label}), folder / "wide.parquet")
    rows = pa.FixedSizeListArray.from_arrays(X.reshape(-1), d)
    pq.write_table(pa.table({"embedding": rows, "label": label}), folder / "list.parquet")
    np.save(folder / "plain.npy", X)
    bare = {
        "wide.parquet": lambda: pq.read_table(folder / "wide.parquet"),
        "list.parquet": lambda: pq.read_table(folder / "list.parquet"),
        "plain.npy": lambda: np.load(folder / "plain.npy"),
    }
    time.sleep(2.5)  # files just written are hashed twice, which is not what users meet
    for name, plain in bare.items():
        request = ReadRequest(folder / name, stratify=() if name.endswith("npy") else None)
        ours, theirs = harness.side_by_side(
            repeats,
            lambda request=request: harness.clock(lambda: load(request).files),
            lambda plain=plain: harness.clock(plain),
        )
        mine, least = harness.median(ours), harness.median(theirs)
        detail = f"{mine:.2f} s and {least:.2f} s for 102 MB"
        yield Row(
            f"reading {name}, {n:,} x {d}",
            "load, check and hash, to the bare reader",
            mine / least,
            None,
            detail,
        )


def start_up_rows(repeats: int) -> Iterator[Row]:
    """`clustersplit --help` against importing numpy."""

    def timed(*command: str) -> Callable[[], float]:
        return lambda: harness.clock(
            lambda: subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
        )

    ours, numpy = harness.side_by_side(
        2 * repeats + 1, timed("-m", "clustersplit_cli", "--help"), timed("-c", "import numpy")
    )
    mine, theirs = harness.median(ours), harness.median(numpy)
    yield Row("start-up", "clustersplit --help, to import numpy", mine / theirs, 2.5, f"{mine:.2f} s")


def all_rows(folder: Path, repeats: int, only: str) -> Iterator[Row]:
    """Every part of the suite whose name contains `only`."""

    def wanted(part: str) -> bool:
        return only in part

    if wanted("startup"):
        yield from start_up_rows(repeats)
    if wanted("reading"):
        yield from reading_rows(folder, repeats)
    pacs = harness.SHARED_DATA / "pacs_effnetlite0.parquet"
    if wanted("pacs") and pacs.exists():
        import pyarrow.parquet as pq

        column = pq.read_table(pacs, columns=["embedding"])["embedding"].combine_chunks()
        X = column.flatten().to_numpy().reshape(len(column), -1)
        np.save(folder / "pacs.npy", X)
        case = f"PACS, {len(X):,} x {X.shape[1]}"
        seeds = count()  # one of them may be lucky
        yield from dense_rows(
            case,
            folder / "pacs.npy",
            lambda: harness.split(pacs, "--seed", str(next(seeds))),
            repeats,
        )
    if wanted("dense25"):
        seeds = count()
        case = harness.write_generated(folder, 25_000, 512, 4, 3, "dense")
        yield from dense_rows(
            "generated, 25,000 x 512",
            Path(case[0]),
            lambda: harness.split(Path(case[0]), *case[1:], "--memory", "9GB", "--seed", str(next(seeds))),
            repeats,
        )
    if wanted("cbc"):
        yield from cbc_rows(folder, repeats)
    if wanted("growth"):
        yield from growth_rows(folder, repeats)
    if wanted("nystrom") or wanted("linear"):
        case = harness.write_generated(folder, 455_954, 512, 2, 4, "large")
        X = np.load(case[0])
        if wanted("nystrom"):
            yield from nystrom_rows(case, X, 2000, repeats)
        if wanted("linear"):
            yield from linear_rows(case, X, repeats)


def table(rows: list[Row], repeats: int) -> list[str]:
    """The rows as Markdown."""
    lines = [
        f"Measured on {date.today().isoformat()} on {harness.machine()}; medians of {repeats} repetitions.",
        "",
        "| case | ratio of | ratio | limit | kept | measured |",
        "| --- | --- | ---: | ---: | --- | --- |",
    ]
    for row in rows:
        limit = "" if row.limit is None else f"{row.limit:g}"
        lines.append(
            f"| {row.case} | {row.what} | {row.ratio:.2f} | {limit} | {row.verdict} | {row.detail} |"
        )
    return lines


def merged(before: list[str], now: list[str]) -> list[str]:
    """Replace rows of a table by rows of the same case and ratio, made on the same day and machine.

    Raises
    ------
    SystemExit : the two tables were not made alike, so their rows cannot stand in one.
    """
    if before[:4] != now[:4]:
        raise SystemExit(f"the table in {harness.PAGE.name} was made otherwise: {before[0]}\nrun all parts")
    fresh = {_key(line): line for line in now[4:]}
    kept = [fresh.pop(_key(line), line) for line in before[4:]]
    return [*now[:4], *kept, *fresh.values()]


def _key(line: str) -> tuple[str, ...]:
    return tuple(line.split(" | ")[:2])


def main() -> None:
    """Run the suite, print the table as it grows, and write it to the documentation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--only", default="", help="part of: startup reading pacs dense25 cbc growth nystrom linear"
    )
    parser.add_argument("--write", action="store_true", help="replace the table in docs/benchmarks.md")
    options = parser.parse_args()
    harness.compile_package()
    rows: list[Row] = []
    with harness.workspace() as folder:
        for row in all_rows(folder, options.repeats, options.only):
            rows.append(row)
            limit = "" if row.limit is None else f" (limit {row.limit:g})"
            print(f"{row.case}: {row.what}: {row.ratio:.2f}{limit}  [{row.detail}]", flush=True)
    if options.write:
        lines = table(rows, options.repeats)
        harness.write_table("suite", merged(harness.read_table("suite"), lines) if options.only else lines)


if __name__ == "__main__":
    main()
