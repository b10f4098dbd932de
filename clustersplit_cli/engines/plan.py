"""How much memory there is to use, and how much a plan takes, before any of it is allocated."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from clustersplit_cli.core.geometry.nystrom import TRACE_ROWS
from clustersplit_cli.data.row_groups import Layout
from clustersplit_cli.errors import MemoryPlanError, UsageError

DEFAULT_SHARE = 0.6
DEFAULT_LANDMARKS = 2000
READING_FACTOR = 2.2
"""The readers' promise: peak memory while reading, over the feature matrix's own bytes."""

LEAST_MEMORY = 10**6
"""A budget below a megabyte is a number whose unit was forgotten."""

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_memory(text: str) -> int:
    """Read a size such as `2GB`, `512MiB` or a number of bytes.

    >>> parse_memory("2GB"), parse_memory("1.5 GiB")
    (2000000000, 1610612736)
    """
    match = re.fullmatch(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*([kmgt]i?)?b?\s*", text.lower())
    size = int(Fraction(match[1]) * (_UNITS | _BINARY)[match[2] or ""]) if match else 0
    if size < 1:
        raise UsageError(
            f"--memory '{text}' is not a size", hint="for example --memory 8GB, 512MiB or a number of bytes"
        )
    return size


def machine_memory(
    control_groups: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> int:
    """Bytes of memory this process may use: the machine's, or the lowest limit of its control groups."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in _limit_files(control_groups, membership):
        try:
            limits.append(int(name.read_text()))
        except (OSError, ValueError):  # no such control group, or the limit is "max"
            continue
    return min(limits)


def _limit_files(control_groups: Path, membership: Path) -> Iterator[Path]:
    """Where the limits of this process's control group and of those around it would be."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        lines = []
    own = [line.split(":", 2)[2] for line in lines if line.count(":") >= 2]
    for path in {"/", *own}:
        inner = Path(path.lstrip("/"))
        for group in (inner, *inner.parents):
            yield control_groups / group / "memory.max"
            yield control_groups / "memory" / group / "memory.limit_in_bytes"


def memory_budget(asked: str | None) -> int:
    """Bytes to plan with: what the user asked for, or a share of what the machine has."""
    if not asked:
        return int(DEFAULT_SHARE * machine_memory())
    size = parse_memory(asked)
    if size < LEAST_MEMORY:
        meant = f"{asked.strip()}GB" if asked.strip().isdigit() and size < 10_000 else "512MB"
        raise UsageError(
            f"--memory '{asked}' is {size} byte{'s' * (size != 1)}, less than any run takes",
            hint=f"name a unit, as in --memory {meant}",
        )
    return size


@dataclass(frozen=True)
class MemoryPlan:
    """How the kernel is held, its landmarks if any, the peak bytes expected, the budget, and why.

    Attributes
    ----------
    seconds : the time that a split is expected to take, from the sizes alone; None where nothing tells.
    rank : columns of the factors of a low-rank kernel.
    residual : for a low-rank kernel, what its factors may lack of the kernel's trace.
    """

    geometry: str  # dense | linear | low-rank | nystrom; none where no kernel is needed
    landmarks: int | None
    bytes: int
    budget: int
    reason: str
    seconds: float | None = None
    rank: int | None = None
    residual: float = 0.0

    def of_parts(self, k: int) -> MemoryPlan:
        """The same for so many parts, which take longer than a split in two."""
        if k == 2 or self.seconds is None:
            return self
        return replace(self, seconds=self.seconds * (1.0 + k / PARTS_PER_SPLIT))


PARTS_PER_SPLIT = 4
"""So many parts take the time of one split more."""


@dataclass(frozen=True)
class Workload:
    """The sizes that memory depends on."""

    n: int
    d: int
    itemsize: int
    restarts: int
    threads: int
    stored: int | None = None  # bytes of sparse features

    @property
    def features(self) -> int:
        """Bytes of the feature matrix; sparse ones are scaled, centred and sliced in copies of their own."""
        if self.stored is not None:
            return 4 * self.stored + self.d * 8 * 2 * max(self.restarts, 48)
        return self.n * self.d * self.itemsize

    @property
    def kernel_itemsize(self) -> int:
        """Bytes of one kernel value: float32 for features of up to 32 bits."""
        return 4 if self.itemsize <= 4 else 8

    def converted(self, rows: int) -> int:
        """Bytes of that many rows of features in float64, with the copy made on the way."""
        return rows * self.d * (8 + min(self.itemsize, 4)) if self.stored is None else 0

    def peak(self, kernel_bytes: int, converted_rows: int) -> int:
        """Peak bytes with a kernel of that size: reading, or the kernel and the search's own arrays.

        `converted_rows` are those whose features are held in float64 at the same time.
        """
        columns = max(self.restarts, 48)
        explored = self.n if self.n <= 16_384 else 8_192
        low_rank = explored * min(self.n, 512) * self.kernel_itemsize
        search = low_rank + self.n * columns * 32 + 2 * min(self.n, 2000) ** 2 * 8
        working = self.features + kernel_bytes + search + self.converted(converted_rows)
        return max(int(READING_FACTOR * self.features), working) + self.threads * (48 << 20)

    def dense(self) -> int:
        """Peak bytes with the kernel matrix, which is symmetric: strips of 512 rows, half of them all told.

        Every thread makes a tile from two blocks of rows. Where the rows are smaller than the kernel, they
        are all mapped beforehand.
        """
        kernel = self.n * (self.n + 512) // 2 * self.kernel_itemsize
        mapped = self.n * self.d * self.kernel_itemsize if self.d <= self.n else 0
        return self.peak(kernel + mapped, 2 * self.threads * min(self.n, 512))

    def linear(self) -> int:
        """Peak bytes with the features as their own kernel: tiles, or the candidates of a polish.

        Up to a width of 2000 the bound diagonalises the features' products among themselves.
        """
        return self.peak(
            5 * min(self.d, 2000) ** 2 * 8, max(self.threads * min(self.n, 2048), 2 * min(self.n, 2000))
        )

    def nystrom(self, q: int) -> int:
        """Peak bytes with q landmarks: tiles beside the landmarks, or the subsample of an estimate."""
        held = self.n * q * self.kernel_itemsize + 5 * q * q * 8 + 2 * q * self.d * 8
        return self.peak(held, max(2 * self.threads * min(self.n, 512), min(self.n, 4000)))

    def low_rank(self, rank: int) -> int:
        """Peak bytes with factors of that many columns, in float64: tiles beside them."""
        return self.peak(self.n * (rank + 128) * 8 + 10 * rank * rank * 8, self.threads * 2048)

    def affords_exact(self, landmarks: int) -> bool:
        """Whether one pass over the exact kernel takes less than a split with so many landmarks."""
        value = self.d * _MULTIPLICATION + _KERNEL_VALUE
        return self.stored is None and self.n**2 / 2 * value <= self.seconds("nystrom", landmarks)

    def seconds(self, geometry: str, width: int = 0) -> float:
        """Estimated time of a split whose kernel is held that way, with so many landmarks or factors."""
        value = self.d * _MULTIPLICATION + _KERNEL_VALUE
        made = {
            "dense": self.n * self.n / 2 * value,
            "linear": self.n * self.d * 100 * _MULTIPLICATION,
            "nystrom": self.n * width * value + width**3 * _EIGENVALUE,
            "low-rank": self.n * width * (2 * value + width * _EIGENVALUE / 4) + width**3 * _EIGENVALUE,
        }[geometry]
        return _START + made * (1 if self.itemsize <= 4 else 2)


def plan_memory(work: Workload, *, is_linear: bool, nystrom: str | int, budget: int) -> MemoryPlan:
    """Choose how to hold the kernel within the budget.

    Parameters
    ----------
    nystrom : "auto", "off", or a number of landmarks.

    Raises
    ------
    MemoryPlanError
        When nothing allowed fits; the message has the numbers.
    """
    if is_linear:
        return _within(work.linear(), budget, "linear", None, "the kernel is never formed", work)
    if isinstance(nystrom, int):
        q = min(nystrom, work.n)
        return _within(work.nystrom(q), budget, "nystrom", q, f"{q} landmarks were asked for", work)
    dense, q = work.dense(), min(DEFAULT_LANDMARKS, work.n)
    if nystrom == "off":
        return _within(dense, budget, "dense", None, "the exact kernel was asked for", work)
    seconds = work.seconds("dense")
    is_quick = work.n <= FEW_ROWS or seconds <= max(LONG, work.seconds("nystrom", q))
    if dense <= budget and is_quick:
        return _within(dense, budget, "dense", None, "the exact kernel matrix fits", work)
    reason = f"the exact kernel matrix would take {_gigabytes(dense)}"
    if dense <= budget and work.nystrom(q) <= budget:
        reason += f" and about {seconds:.0f} s; --nystrom off computes it"
    return _within(work.nystrom(q), budget, "nystrom", q, reason, work)


def most_factors(work: Workload, budget: int) -> int:
    """Columns of factors that a low-rank kernel may have to be worth it; 0 where rows are few."""
    if work.n <= FEW_ROWS or work.stored is not None:
        return 0
    fitting = (rank for rank in range(MOST_FACTORS, 0, -FACTOR_STEP) if work.low_rank(rank) <= budget)
    return min(work.n // ROWS_PER_FACTOR, next(fitting, 0))


def plan_low_rank(work: Workload, budget: int, rank: int, residual: float) -> MemoryPlan:
    """Hold the kernel as factors of at most so many columns."""
    needed, seconds = work.low_rank(rank), work.seconds("low-rank", rank)
    reason = "factors hold it to a millionth of MMD²"
    return MemoryPlan("low-rank", None, needed, budget, reason, seconds, rank, residual)


def check_reading(n: int, d: int, itemsize: int, budget: int) -> None:
    """Refuse to read a feature matrix that does not fit the budget.

    Raises
    ------
    MemoryPlanError
    """
    needed = int(READING_FACTOR * n * d * itemsize)
    if needed > budget:
        raise MemoryPlanError(
            f"reading {n:,} rows of {d:,} features would take {_gigabytes(needed)}, "
            f"more than the budget of {_gigabytes(budget)}",
            hint=f"allow --memory {-(-needed // 10**8) / 10:.1f}GB, or use --engine stream on Parquet",
        )


def check_coordinates(n: int, budget: int) -> None:
    """Refuse similarities or distances of so many rows that no coordinates can be made of them.

    Raises
    ------
    MemoryPlanError
    """
    needed = 4 * 8 * n**2
    if needed > budget:
        raise MemoryPlanError(
            f"similarities or distances of {n:,} rows with each other would take {_gigabytes(needed)}, more "
            f"than the budget of {_gigabytes(budget)}",
            hint=f"allow --memory {-(-needed // 10**8) / 10:.1f}GB, or pass features",
        )


def _within(
    needed: int, budget: int, geometry: str, q: int | None, reason: str, work: Workload
) -> MemoryPlan:
    if needed <= budget:
        return MemoryPlan(geometry, q, needed, budget, reason, work.seconds(geometry, q or 0))
    what = {"dense": "the exact kernel", "linear": "the features", "nystrom": f"{q} landmarks"}[geometry]
    raise MemoryPlanError(
        f"{what} for {work.n:,} rows of {work.d:,} features would take {_gigabytes(needed)}, "
        f"more than the budget of {_gigabytes(budget)}",
        hint=" or ".join(_cures(geometry, needed, budget, work)),
    )


def _cures(geometry: str, needed: int, budget: int, work: Workload) -> Iterable[str]:
    fitting = [q for q in (2000, 1000, 500, 200, 100) if q <= work.n and work.nystrom(q) <= budget]
    if geometry != "linear" and fitting:
        yield f"use --nystrom {fitting[0]}"
    yield f"allow --memory {-(-needed // 10**8) / 10:.1f}GB"


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB"


LONGEST = 60.0
"""Seconds of exact work beyond which landmarks are used unless the user says otherwise."""

# Seconds on two ordinary cores, in float32. Taken from the sizes alone and not from a measurement, so that a
# command gives the same number on every machine and on every day.
_MULTIPLICATION = 1.75e-11
_KERNEL_VALUE = 4e-9
_EIGENVALUE, _START = 1.5e-10, 1.0
FEW_ROWS = 16_384
"""Up to so many rows the exact kernel takes a second or two."""
LONG = 10.0
"""Seconds of a split on the exact kernel up to which nobody minds what landmarks would take."""
MOST_FACTORS, FACTOR_STEP, ROWS_PER_FACTOR = 1536, 128, 16


@dataclass(frozen=True)
class MeasuringTask:
    """The sizes that time and memory depend on.

    Attributes
    ----------
    n, d, itemsize : of the pool of rows.
    groups : number of groups.
    sums : rows of each pass that sums the kernel (one, or one per cell).
    tests : rows of each permutation test.
    permutations : regroupings per test.
    """

    n: int
    d: int
    itemsize: int
    groups: int
    sums: Sequence[int]
    tests: Sequence[int]
    permutations: int
    threads: int

    @property
    def exact_seconds(self) -> float:
        """Estimated time of the exact sums."""
        value = self.d * _MULTIPLICATION + _KERNEL_VALUE
        tested = value + self.permutations * _MULTIPLICATION
        seconds = sum(n * n / 2 * value for n in self.sums) + sum(n * n / 2 * tested for n in self.tests)
        return seconds * (1 if self.itemsize <= 4 else 2)

    @property
    def bytes(self) -> int:
        """Peak memory without landmarks: reading, or features, sums per row, regroupings and tiles."""
        features = self.n * self.d * self.itemsize
        columns = 1 + self.permutations if self.tests else 0
        # Regroupings are drawn row by row and then transposed, so two copies exist for a moment.
        arrays = self.n * 8 * min(self.groups, 3) + 2 * max(self.tests, default=0) * columns
        tiles = self.threads * (48 << 20) + self.threads * 512 * columns * 24
        return max(int(READING_FACTOR * features), 2 * features + arrays) + tiles


@dataclass(frozen=True)
class MeasuringPlan:
    """How the kernel is summed, the landmarks if any, the bytes expected, the budget, and why."""

    geometry: str  # exact | linear | nystrom
    landmarks: int | None
    exact_seconds: float
    bytes: int
    budget: int
    reason: str


def plan_measuring(task: MeasuringTask, *, is_linear: bool, nystrom: str | int, budget: int) -> MeasuringPlan:
    """Choose how to sum the kernel.

    Parameters
    ----------
    nystrom : "auto", "off", or a number of landmarks.

    Raises
    ------
    MemoryPlanError
        If even that does not fit the budget.
    """
    seconds = task.exact_seconds
    if is_linear:
        return _affordable(
            MeasuringPlan("linear", None, 0.0, task.bytes, budget, "the kernel is never formed")
        )
    if nystrom == "off" or (nystrom == "auto" and seconds <= LONGEST):
        reason = "exact was asked for" if nystrom == "off" else f"about {seconds:.1g} s"
        return _affordable(MeasuringPlan("exact", None, seconds, task.bytes, budget, f"in tiles, {reason}"))
    asked = nystrom if isinstance(nystrom, int) else DEFAULT_LANDMARKS
    q = min(asked, task.n)
    reason = (
        f"{q} landmarks were asked for"
        if isinstance(nystrom, int)
        else f"the exact sums would take about {seconds / 60:.2g} minutes; --exact computes them"
    )
    extra = 5 * q * q * 8 + 2 * q * task.d * 8 + task.threads * 2048 * q * 12 + task.permutations * q * 16
    return _affordable(MeasuringPlan("nystrom", q, seconds, task.bytes + extra, budget, reason))


def _affordable(plan: MeasuringPlan) -> MeasuringPlan:
    if plan.bytes <= plan.budget:
        return plan
    raise MemoryPlanError(
        f"the comparison would take {plan.bytes / 1e9:.3g} GB, "
        f"more than the budget of {plan.budget / 1e9:.3g} GB",
        hint=f"allow --memory {-(-plan.bytes // 10**8) / 10:.1f}GB, or use fewer rows or --permutations",
    )


MOST_SAMPLED, LEAST_SAMPLED = 40_000, 4_000
SAMPLE_SHARE = 0.3
"""Of the budget, for the sample that is searched."""
ROW_STATE = 24
"""Bytes of every row that stay in memory: whether it takes part, its cell, its witness, its side."""
PART_COPIES, SLICE_ROWS = 6, 1 << 17
"""Copies of distances while they are compared, and the rows that are compared at a time."""
FEW_LANDMARKS = 500
PIECES = 9
"""Batches in memory at a time: three of each of Arrow's columns, the features, and the factors."""


@dataclass(frozen=True)
class StreamPlan:
    """How rows are held, how many are searched on, and how many bytes of factors may stay in memory."""

    memory: MemoryPlan
    sample_rows: int
    factors: int


def landmarks_of(nystrom: str | int, *, is_linear: bool) -> int | None:
    """The number of landmarks; None for linear kernels.

    Raises
    ------
    UsageError
        If the exact kernel was asked for.
    """
    if is_linear:
        return None
    if nystrom == "off":
        raise UsageError(
            "--nystrom off keeps the exact kernel in memory, which only the local engine does",
            hint="use --nystrom 2000, --kernel linear, or --engine local",
        )
    return nystrom if isinstance(nystrom, int) else DEFAULT_LANDMARKS


def plan_survey(layout: Layout, *, budget: int, threads: int, reason: str) -> StreamPlan:
    """Plan for one pass that counts, and makes no factors.

    Raises
    ------
    MemoryPlanError
        If the budget is too small even for that.
    """
    needed = _fixed(layout, threads)
    _refuse_beyond(layout, needed, budget)
    return StreamPlan(MemoryPlan("none", None, needed, budget, reason), 0, 0)


def plan_stream(
    layout: Layout, landmarks: int | None, *, budget: int, threads: int, reason: str, parts: int = 0
) -> StreamPlan:
    """Plan for the rows of a dataset on one machine.

    Parameters
    ----------
    parts : that rows go to, of which each row has a distance; 0 for a split in two.

    Raises
    ------
    MemoryPlanError
        If the budget is too small even so.
    """
    n, d, itemsize = layout.n_rows, layout.width, layout.features.dtype.itemsize
    width = landmarks or d
    landmark_bytes = 0 if landmarks is None else 5 * landmarks**2 * 8 + 2 * landmarks * d * 8
    distances = parts * 8 * (n + threads * PART_COPIES * SLICE_ROWS)
    fixed = _fixed(layout, threads) + landmark_bytes + distances
    sampled = TRACE_ROWS * (2 * d * itemsize + width * 4)
    per_row = 2 * d * itemsize + 3 * width * max(itemsize, 4) + 48 * 32
    _refuse_beyond(layout, fixed + sampled + min(LEAST_SAMPLED, n) * per_row, budget, landmarks)
    room = min(SAMPLE_SHARE * budget, budget - fixed - sampled) / per_row
    sample = min(max(int(min(MOST_SAMPLED, room)), LEAST_SAMPLED), n)
    needed = fixed + sampled + sample * per_row
    factors = n * width * (itemsize if landmarks is None else max(itemsize, 4))
    free = budget - needed
    held = factors if factors <= free else 0
    geometry = "linear" if landmarks is None else "nystrom"
    memory = MemoryPlan(geometry, landmarks, needed + held, budget, reason)
    return StreamPlan(memory, sample, held)


def _fixed(layout: Layout, threads: int) -> int:
    """Bytes that any pass takes: the state of all rows, batches that are read ahead, and a row group."""
    batch = min(layout.batch_rows, layout.n_rows) * layout.row_bytes
    return layout.n_rows * ROW_STATE + PIECES * batch + 2 * _largest_group(layout) + threads * (16 << 20)


def _largest_group(layout: Layout) -> int:
    return max(group.bytes for group in layout.groups)


def _refuse_beyond(layout: Layout, needed: int, budget: int, landmarks: int | None = None) -> None:
    if needed <= budget:
        return
    cure = f"allow --memory {-(-needed // 10**8) / 10:.1f}GB"
    if landmarks is not None and landmarks > FEW_LANDMARKS:
        cure += f", or take fewer landmarks with --nystrom {FEW_LANDMARKS}"
    if 2 * _largest_group(layout) > budget / 2:
        cure += ", or write the files again with smaller row groups"
    raise MemoryPlanError(
        f"{layout.n_rows:,} rows of {layout.width:,} features, read in pieces, would take "
        f"{needed / 1e9:.3g} GB, more than the budget of {budget / 1e9:.3g} GB",
        hint=cure,
    )
