"""What `inspect` found out about an input before any split is made: one summary, and its table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clustersplit_cli.reports.formatting import (
    human_bytes,
    human_count,
    human_number,
    human_percent,
    human_seconds,
    printable,
)
from clustersplit_cli.reports.readable import Readable
from clustersplit_cli.reports.summary import NO_SHIFT, Notice, Plan
from clustersplit_cli.reports.terminal import Row, render_notices, render_rows

if TYPE_CHECKING:
    from rich.console import Console

_COLUMNS_SHOWN, _CELLS_SHOWN, _ROWS_SHOWN = 12, 24, 40
_INDENT = 10
"""Width of the labels, `features` and two spaces."""


@dataclass(frozen=True)
class InspectedColumn:
    """A column of the features file or of the metadata, and what it is used for."""

    name: str
    type: str
    use: str  # feature | label | domain | cells | exclude | id | unused


@dataclass(frozen=True)
class FeatureSpread:
    """How much the feature columns vary, after `--standardize`."""

    narrowest: str
    narrowest_deviation: float
    widest: str
    widest_deviation: float
    constant: tuple[str, ...]


@dataclass(frozen=True)
class InspectedCell:
    """A cell, its quota, and why it will be a problem, if it will."""

    cell: dict[str, Any]
    size: int
    target: int
    lower: int
    upper: int
    problem: str | None


@dataclass(frozen=True)
class WidthChoice:
    """A rule for the kernel's width and what it gives: shares of sampled off-diagonal values near 0 and 1."""

    rule: str
    gamma: float
    near_zero: float
    near_one: float
    median: float
    chosen: bool


@dataclass(frozen=True)
class TimeEstimate:
    """Seconds that `split` would take after reading, from the speed of a few tiles; a rough estimate."""

    seconds: float
    kernel_values_per_second: float


@dataclass(frozen=True)
class InspectedTarget:
    """Target rows beside those that would be split, on a seeded sample of both.

    `n_rows` rows of the split were compared with `n_target` of the target.
    """

    name: str
    size: int
    p_value: float
    permutations: int
    n_rows: int
    n_target: int
    mmd: float


@dataclass(frozen=True)
class Inspection(Readable):
    """Everything `inspect` says."""

    renderer = "inspection:render_inspection"

    path: str
    n_rows: int
    n_excluded: int
    n_dropped: int
    n_features: int
    dtype: str
    columns: tuple[InspectedColumn, ...]
    spread: FeatureSpread
    holdout: float
    validation: int
    cells: tuple[InspectedCell, ...]
    units: int | None  # that stay together
    tolerance: float  # of cells without one of their own, found if it was to be found
    widths: tuple[WidthChoice, ...]
    plan: Plan | None
    estimate: TimeEstimate | None
    warnings: tuple[Notice, ...]
    target: InspectedTarget | None = None


def render_inspection(found: Inspection, *, console: Console) -> None:
    """Print the tables and the warnings; nothing is cut to fit, lines wrap between clauses."""
    render_rows(inspection_rows(found, console.width), console=console)
    render_notices(found.warnings, console=console)


def inspection_rows(found: Inspection, width: int) -> list[Row]:
    """Put the inspection into words, in the order in which one would ask, for lines of `width` characters."""
    rows = [
        _input(found),
        Row("columns", (f"{human_count(len(found.columns))} in all",), items=tuple(_columns(found.columns))),
        _features(found),
        _cells(found, width - _INDENT),
        _units(found),
        *_widths(found.widths),
        _target(found.target),
        _memory(found.plan),
        _time(found.estimate),
    ]
    return [row for row in rows if row is not None]


def _target(target: InspectedTarget | None) -> Row | None:
    if target is None:
        return None
    sizes = f"on {human_count(target.n_rows)} and {human_count(target.n_target)} rows"
    shift = "a shift is seen" if target.p_value <= NO_SHIFT else "no shift is seen"
    found = f"MMD {human_number(target.mmd)} from these rows", f"p {human_number(target.p_value, 2)}"
    return Row("target", (f"{human_count(target.size)} rows", *found, shift, sizes))


def _input(found: Inspection) -> Row:
    clauses = [f"{human_count(found.n_rows)} rows"]
    if found.n_excluded:
        clauses.append(f"{human_count(found.n_excluded)} excluded")
    if found.n_dropped:
        clauses.append(f"{human_count(found.n_dropped)} dropped as not finite")
    return Row("input", (*clauses, printable(found.path)))


def _columns(columns: Sequence[InspectedColumn]) -> Iterable[str]:
    """Name the columns by their use; features of one type are one line, however many they are."""
    features: dict[str, list[str]] = {}
    for column in columns:
        if column.use == "feature":
            features.setdefault(column.type, []).append(printable(column.name))
    for kind, names in features.items():
        shown = names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]} ({human_count(len(names))})"
        yield f"feature: {shown}, {printable(kind)}"
    others = [column for column in columns if column.use != "feature"]
    for column in others[:_COLUMNS_SHOWN]:
        yield f"{column.use}: {printable(column.name)}, {printable(column.type)}"
    if len(others) > _COLUMNS_SHOWN:
        yield f"and {human_count(len(others) - _COLUMNS_SHOWN)} more"


def _features(found: Inspection) -> Row:
    spread = found.spread
    items = [
        f"narrowest: {printable(spread.narrowest)}, sd {human_number(spread.narrowest_deviation)}",
        f"widest: {printable(spread.widest)}, sd {human_number(spread.widest_deviation)}",
    ]
    if spread.constant:
        names = ", ".join(map(printable, spread.constant[:3]))
        more = f" and {len(spread.constant) - 3} more" if len(spread.constant) > 3 else ""
        items.append(f"constant: {names}{more}")
    return Row("features", (f"{human_count(found.n_features)} of {found.dtype}",), items=tuple(items))


def _cells(found: Inspection, width: int) -> Row:
    problems = [cell for cell in found.cells if cell.problem is not None]
    clauses = [
        f"{human_count(len(found.cells))} cell{'s' * (len(found.cells) != 1)}",
        f"{human_count(found.validation)} validation rows at h={found.holdout:g}",
        f"{human_count(len(problems))} will be a problem" if problems else "no problems",
    ]
    style = "bold red" if problems else "bold"
    grid = _grid(found.cells, width)
    # Problems first: they are what to look at, and the list may be cut.
    listed = problems if grid else [*problems, *(cell for cell in found.cells if cell.problem is None)]
    items = [_cell(cell) for cell in listed[:_CELLS_SHOWN]]
    if len(listed) > _CELLS_SHOWN:
        items.append(f"and {human_count(len(listed) - _CELLS_SHOWN)} more; see --json")
    return Row("cells", tuple(clauses), style, (*grid, *items))


def _units(found: Inspection) -> Row | None:
    if found.units is None:
        return None
    within = "exactly" if found.tolerance == 0 else f"within a tolerance of {found.tolerance:g}"
    return Row("units", (f"{human_count(found.units)} stay whole", f"all cells can be met {within}"))


def _grid(cells: Sequence[InspectedCell], width: int) -> list[str]:
    """Quotas and sizes of the cells of two columns as a table; nothing if it is not two, or does not fit."""
    if not cells or len(cells[0].cell) != 2:
        return []
    pairs = [tuple(printable(str(value)) for value in cell.cell.values()) for cell in cells]
    rows, columns = (list(dict.fromkeys(pair[place] for pair in pairs)) for place in (0, 1))
    columns.sort(key=lambda name: (len(name), name) if name.isdigit() else (0, name))
    entry = {pair: f"{cell.target}/{cell.size}" for pair, cell in zip(pairs, cells, strict=True)}
    side = max(map(len, rows))
    widths = [max(len(name), *(len(entry.get((row, name), "")) for row in rows)) for name in columns]
    if side + sum(2 + size for size in widths) > width - 1 or len(rows) > _ROWS_SHOWN:
        return []
    words = " x ".join(map(printable, cells[0].cell))
    lines = [" " * side + "".join(f"  {name:>{size}}" for name, size in zip(columns, widths, strict=True))]
    for row in rows:
        numbers = (
            f"  {entry.get((row, name), '-'):>{size}}" for name, size in zip(columns, widths, strict=True)
        )
        lines.append(f"{row:<{side}}" + "".join(numbers))
    return [f"validation/all rows, {words}:", *lines]


def _cell(cell: InspectedCell) -> str:
    name = ", ".join(f"{printable(word)}={printable(str(value))}" for word, value in cell.cell.items())
    quota = human_count(cell.lower)
    if cell.lower != cell.upper:
        quota = f"{quota} to {human_count(cell.upper)}"
    text = f"{name or 'all rows'}: {quota} of {human_count(cell.size)}"
    return text if cell.problem is None else f"{text} ({cell.problem})"


def _widths(widths: Sequence[WidthChoice]) -> list[Row]:
    return [
        Row(
            "gamma" if place == 0 else "",
            (
                f"{width.rule} = {human_number(width.gamma)}" + (" (chosen)" if width.chosen else ""),
                f"{human_percent(width.near_zero)} of kernel values near 0",
                f"{human_percent(width.near_one)} near 1",
                f"median {human_number(width.median, 2)}",
            ),
            "bold" if width.chosen else "",
        )
        for place, width in enumerate(widths)
    ]


def _memory(plan: Plan | None) -> Row | None:
    if plan is None:
        return None
    held = plan.geometry
    if plan.landmarks is not None:
        held += f" with {human_count(plan.landmarks)} landmarks"
    needed = f"{human_bytes(plan.bytes)} of {human_bytes(plan.budget)} budget"
    return Row("memory", (needed, held, printable(plan.reason)))


def _time(estimate: TimeEstimate | None) -> Row | None:
    if estimate is None:
        return None
    return Row(
        "time", (f"about {human_seconds(estimate.seconds)}", "a rough estimate for split after reading")
    )
