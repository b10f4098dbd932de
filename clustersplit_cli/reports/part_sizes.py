"""What the sizes of cells tell about folds and named parts before any are made: one summary, its table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from clustersplit_cli.reports.formatting import human_count, printable
from clustersplit_cli.reports.summary import Notice
from clustersplit_cli.reports.terminal import Row, render_notices, render_rows

if TYPE_CHECKING:
    from rich.console import Console

_CELLS_SHOWN = 200


@dataclass(frozen=True)
class PartTotal:
    """The rows of one part, or of a cell in it; the two differ with tolerances or rows that stay together."""

    name: str
    fewest: int
    most: int


@dataclass(frozen=True)
class SizedCell:
    """A cell: its rows, the fewest and the most of them in any part, and whether some part gets none.

    `parts` are the counts in every part, where parts have shares of their own.
    """

    cell: dict[str, Any]
    size: int
    fewest: int
    most: int
    too_small: bool
    parts: tuple[PartTotal, ...] = ()


@dataclass(frozen=True)
class PartSizes:
    """Everything that `inspect --k` and `inspect --parts` say; `k` is the number of folds, or None."""

    path: str
    engine: str
    k: int | None
    n_rows: int
    n_excluded: int
    n_dropped: int
    parts: tuple[PartTotal, ...]
    cells: tuple[SizedCell, ...]
    too_small: int
    units: int | None  # that stay together
    tolerance: float  # within which their cells are met
    warnings: tuple[Notice, ...]


def render_part_sizes(found: PartSizes, *, console: Console) -> None:
    """Print the table and the warnings."""
    render_rows(list(_rows(found)), console=console)
    render_notices(found.warnings, console=console)


def _rows(found: PartSizes) -> Iterator[Row]:
    clauses = [f"{human_count(found.n_rows)} rows"]
    if found.n_excluded:
        clauses.append(f"{human_count(found.n_excluded)} excluded")
    if found.n_dropped:
        clauses.append(f"{human_count(found.n_dropped)} dropped as not finite")
    yield Row("input", (*clauses, printable(found.path)))
    if found.units is not None:
        within = "exactly" if found.tolerance == 0 else f"within a tolerance of {found.tolerance:g}"
        yield Row("units", (f"{human_count(found.units)} stay whole", f"all cells are met {within}"))
    what = "parts" if found.k is None else "folds"
    yield Row(what, (human_count(len(found.parts)),), items=tuple(_totals(found.parts)))
    problems = (
        f"{human_count(found.too_small)} too small for all {what}" if found.too_small else "no problems"
    )
    # The ones to look at come first, because the list may be cut.
    listed = sorted(found.cells, key=lambda cell: not cell.too_small)
    items = [_cell(cell) for cell in listed[:_CELLS_SHOWN]]
    if len(listed) > _CELLS_SHOWN:
        items.append(f"and {human_count(len(listed) - _CELLS_SHOWN)} more; see --json")
    count = f"{human_count(len(found.cells))} cell{'s' * (len(found.cells) != 1)}"
    yield Row("cells", (count, problems), "bold red" if found.too_small else "bold", tuple(items))


def _totals(parts: Sequence[PartTotal]) -> Iterator[str]:
    """Neighbouring parts of as many rows are one line."""
    for (fewest, most), group in groupby(parts, key=lambda part: (part.fewest, part.most)):
        first, *others = [part.name for part in group]
        names, each = (f"{first} to {others[-1]}", " each") if others else (first, "")
        yield f"{names}: {_between(fewest, most)} rows{each}"


def _cell(cell: SizedCell) -> str:
    name = ", ".join(f"{printable(word)}={printable(str(value))}" for word, value in cell.cell.items())
    each = [f"{_between(part.fewest, part.most)} in {printable(part.name)}" for part in cell.parts]
    counts = ", ".join(each) or f"{_between(cell.fewest, cell.most)} in a fold"
    text = f"{name or 'all rows'}: {human_count(cell.size)} rows, {counts}"
    return f"{text} (too small)" if cell.too_small else text


def _between(fewest: int, most: int) -> str:
    return human_count(fewest) if fewest == most else f"{human_count(fewest)} to {human_count(most)}"
