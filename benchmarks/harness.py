"""What the benchmarks share: data, bare limits measured in the same run, commands run as users run them."""

from __future__ import annotations

import compileall
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

Check = Callable[[Path], None]
PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@dataclass(frozen=True)
class Ran:
    """One run of the command: wall-clock seconds as a user sees them, its report, and processor seconds.

    The last are what other work on the machine disturbs least.
    """

    seconds: float
    report: dict[str, Any]
    processor: float

    def steps(self, *names: str) -> float:
        """Seconds of the named steps together."""
        return sum(self.report["timing"]["steps"].get(name, 0.0) for name in names)

    @property
    def peak(self) -> int:
        """Peak resident bytes."""
        return int(self.report["timing"]["peak_memory_bytes"])


def split(features: Path, *options: str, command: str = "split", check: Check | None = None) -> Ran:
    """Run `clustersplit split`, or another command that writes a run, in a process of its own.

    Parameters
    ----------
    check : looks at the directory before it is removed.
    """
    compile_package()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        out = Path(folder) / "run"
        words = [command, str(features), "--out", str(out), "--quiet", *options]
        run = [sys.executable, "-m", "clustersplit_cli", *words]
        seconds, processor = spent(lambda: subprocess.run(run, check=True, stderr=subprocess.DEVNULL))
        if check is not None:
            check(out)
        return Ran(seconds, json.loads((out / "report.json").read_text(encoding="utf-8")), processor)


@lru_cache(maxsize=1)
def compile_package() -> None:
    """Compile the working tree's modules, as pip does when it installs them."""
    compileall.compile_dir(Path(__file__).resolve().parents[1] / "clustersplit_cli", quiet=1)


def clock(task: Callable[[], object]) -> float:
    """Seconds one call takes."""
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def spent(task: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock seconds of a call, and processor seconds of the processes that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = clock(task)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def start() -> tuple[float, float]:
    """What it takes to start the command: wall-clock and processor seconds."""
    words = [sys.executable, "-m", "clustersplit_cli", "--help"]
    return spent(lambda: subprocess.run(words, check=True, stdout=subprocess.DEVNULL))


def side_by_side(repeats: int, *tasks: Callable[[], Any], pause: float = 0.0) -> list[list[Any]]:
    """Run the tasks in turn, several times over, so that a slow minute of the machine hits all of them.

    Parameters
    ----------
    pause : seconds before every task. A virtual machine returns freed memory to its host after a while, and
        whoever takes it before then gets it several times faster: after a pause all tasks start alike.
    """
    results: list[list[Any]] = [[] for _ in tasks]
    for _ in range(repeats):
        for task, found in zip(tasks, results, strict=True):
            time.sleep(pause)
            found.append(task())
    return results


def median(values: list[float]) -> float:
    """The middle one."""
    return statistics.median(values)


def write_generated(
    folder: Path, n: int, d: int, labels: int, domains: int, name: str = "generated"
) -> list[str]:
    """Make labelled clusters under domain shift as NPY with companions; return the command's arguments."""
    rng = np.random.default_rng(7)
    label, domain, group = (
        rng.integers(labels, size=n),
        rng.integers(domains, size=n),
        rng.integers(12, size=n),
    )
    centres = [rng.normal(size=(k, d)).astype(np.float32) for k in (labels, domains, 12)]
    spread = rng.gamma(2.0, 0.5, size=d).astype(np.float32)
    path = folder / f"{name}.npy"
    X = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, d))
    for start in range(0, n, 50_000):
        rows = slice(start, min(n, start + 50_000))
        noise = rng.standard_normal((rows.stop - start, d), dtype=np.float32) * spread
        X[rows] = (
            0.5 * centres[0][label[rows]] + 0.5 * centres[1][domain[rows]] + centres[2][group[rows]] + noise
        )
    X.flush()
    companions = []
    for role, values in (("label", label), ("domain", domain)):
        companion = folder / f"{name}_{role}.npy"
        np.save(companion, values)
        companions += [f"--{role}-file", str(companion)]
    return [str(path), *companions]


@contextmanager
def workspace() -> Iterator[Path]:
    """A temporary folder for generated data."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        yield Path(folder)


def write_table(name: str, lines: Sequence[str]) -> None:
    """Replace what stands between the marks of that name in docs/benchmarks.md."""
    start, end = f"<!-- {name}: start -->", f"<!-- {name}: end -->"
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(start)[0], page.split(end)[1]
    PAGE.write_text("\n".join([f"{before}{start}", *lines, f"{end}{after}"]), encoding="utf-8")


def read_table(name: str) -> list[str]:
    """What stands between the marks of that name in docs/benchmarks.md."""
    page = PAGE.read_text(encoding="utf-8")
    return page.split(f"<!-- {name}: start -->\n")[1].split(f"\n<!-- {name}: end -->")[0].split("\n")


def machine() -> str:
    """Describe the machine in one line."""
    model = platform.processor() or platform.machine()
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        model = next(
            line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")
        )
    except (OSError, StopIteration):
        pass
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return (
        f"{cores} cores ({model}), {memory:.0f} GiB, {platform.system()}, "
        f"Python {platform.python_version()}, numpy {np.__version__}"
    )
