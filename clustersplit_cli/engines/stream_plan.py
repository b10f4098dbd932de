"""What reading rows in pieces takes: memory, the sample that is searched, and room for factors."""

from __future__ import annotations

from dataclasses import dataclass

from clustersplit_cli.core.geometry.nystrom import TRACE_ROWS
from clustersplit_cli.data.row_groups import Layout
from clustersplit_cli.engines.plan import DEFAULT_LANDMARKS, MemoryPlan
from clustersplit_cli.errors import MemoryPlanError, UsageError

MOST_SAMPLED, LEAST_SAMPLED = 40_000, 4_000
SAMPLE_SHARE = 0.3
"""Of the budget, for the sample that is searched."""
ROW_STATE = 24
"""Bytes of every row that stay in memory: whether it takes part, its cell, its witness, its side."""
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
    layout: Layout, landmarks: int | None, *, budget: int, threads: int, reason: str
) -> StreamPlan:
    """Plan for the rows of a dataset on one machine.

    Raises
    ------
    MemoryPlanError
        If the budget is too small even so.
    """
    n, d, itemsize = layout.n_rows, layout.width, layout.features.dtype.itemsize
    width = landmarks or d
    landmark_bytes = 0 if landmarks is None else 5 * landmarks**2 * 8 + 2 * landmarks * d * 8
    fixed = _fixed(layout, threads) + landmark_bytes
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
    batch = min(layout.batch_rows, max(group.n_rows for group in layout.groups)) * layout.row_bytes
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
