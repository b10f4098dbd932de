"""How to sum a kernel between groups: exactly, or through landmarks when that would take too long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clustersplit_cli.engines.plan import DEFAULT_LANDMARKS, READING_FACTOR
from clustersplit_cli.errors import MemoryPlanError

LONGEST = 60.0
"""Seconds of exact work beyond which landmarks are used unless the user says otherwise."""

# Seconds on two ordinary cores, in float32. Taken from the sizes alone and not from a measurement, so that a
# command gives the same number on every machine and on every day.
_MULTIPLICATION = 1.75e-11
_KERNEL_VALUE = 4e-9


@dataclass(frozen=True)
class Task:
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


def plan_measuring(task: Task, *, is_linear: bool, nystrom: str | int, budget: int) -> MeasuringPlan:
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
        return _within(MeasuringPlan("linear", None, 0.0, task.bytes, budget, "the kernel is never formed"))
    if nystrom == "off" or (nystrom == "auto" and seconds <= LONGEST):
        reason = "exact was asked for" if nystrom == "off" else f"about {seconds:.1g} s"
        return _within(MeasuringPlan("exact", None, seconds, task.bytes, budget, f"in tiles, {reason}"))
    asked = nystrom if isinstance(nystrom, int) else DEFAULT_LANDMARKS
    q = min(asked, task.n)
    reason = (
        f"{q} landmarks were asked for"
        if isinstance(nystrom, int)
        else f"the exact sums would take about {seconds / 60:.2g} minutes; --exact computes them"
    )
    extra = 5 * q * q * 8 + 2 * q * task.d * 8 + task.threads * 2048 * q * 12 + task.permutations * q * 16
    return _within(MeasuringPlan("nystrom", q, seconds, task.bytes + extra, budget, reason))


def _within(plan: MeasuringPlan) -> MeasuringPlan:
    if plan.bytes <= plan.budget:
        return plan
    raise MemoryPlanError(
        f"the comparison would take {plan.bytes / 1e9:.3g} GB, "
        f"more than the budget of {plan.budget / 1e9:.3g} GB",
        hint=f"allow --memory {-(-plan.bytes // 10**8) / 10:.1f}GB, or use fewer rows or --permutations",
    )
