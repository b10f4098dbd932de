"""How much memory there is to use, and how much a plan takes, before any of it is allocated."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from clustersplit_cli.errors import MemoryPlanError, UsageError

DEFAULT_SHARE = 0.6
DEFAULT_LANDMARKS = 2000
READING_FACTOR = 2.2
"""The readers' promise: peak memory while reading, over the feature matrix's own bytes."""

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_memory(text: str) -> int:
    """Read a size such as `2GB`, `512MiB` or a number of bytes.

    >>> parse_memory("2GB"), parse_memory("1.5 GiB")
    (2000000000, 1610612736)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", text.lower())
    size = int(float(match[1]) * (_UNITS | _BINARY)[match[2] or ""]) if match else 0
    if size < 1:
        raise UsageError(
            f"--memory '{text}' is not a size", hint="for example --memory 8GB, 512MiB or a number of bytes"
        )
    return size


def machine_memory() -> int:
    """Bytes of memory this process may use: the machine's, or its control group's limit if that is lower."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(name).read_text()))
        except (OSError, ValueError):  # no such control group, or the limit is "max"
            continue
    return min(limits)


def memory_budget(asked: str | None) -> int:
    """Bytes to plan with: what the user asked for, or a share of what the machine has."""
    return parse_memory(asked) if asked else int(DEFAULT_SHARE * machine_memory())


@dataclass(frozen=True)
class MemoryPlan:
    """How the kernel is held, its landmarks if any, the peak bytes expected, the budget, and why."""

    geometry: str  # dense | linear | nystrom
    landmarks: int | None
    bytes: int
    budget: int
    reason: str


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

    def peak(self, kernel_bytes: int) -> int:
        """Peak bytes with a kernel of that size: reading, or the kernel and the search's own arrays."""
        columns = max(self.restarts, 48)
        image = self.n * min(self.n, 512) * self.kernel_itemsize
        search = image + self.n * columns * 32 + 2 * min(self.n, 3000) ** 2 * 8
        tiles = self.threads * (64 << 20)
        return max(int(READING_FACTOR * self.features), self.features + kernel_bytes + search) + tiles

    def dense(self) -> int:
        """Peak bytes with the whole kernel matrix."""
        return self.peak(self.n**2 * self.kernel_itemsize)

    def linear(self) -> int:
        """Peak bytes with the features as their own kernel."""
        return self.peak(0)

    def nystrom(self, q: int) -> int:
        """Peak bytes with q landmarks."""
        return self.peak(self.n * q * self.kernel_itemsize + 5 * q * q * 8 + 2 * q * self.d * 8)


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
    dense = work.dense()
    if nystrom == "off":
        return _within(dense, budget, "dense", None, "the exact kernel was asked for", work)
    if dense <= budget:
        return MemoryPlan("dense", None, dense, budget, "the exact kernel matrix fits")
    q = min(DEFAULT_LANDMARKS, work.n)
    reason = f"the exact kernel matrix would take {_gigabytes(dense)}"
    return _within(work.nystrom(q), budget, "nystrom", q, reason, work)


def _within(
    needed: int, budget: int, geometry: str, q: int | None, reason: str, work: Workload
) -> MemoryPlan:
    if needed <= budget:
        return MemoryPlan(geometry, q, needed, budget, reason)
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
    yield f"allow --memory {-(-needed // 10**8) / 10:g}GB"


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB"
