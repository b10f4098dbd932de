"""What the sizes of cells tell about folds before any are made: one summary, and its table."""

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
class FoldTotal:
    """The rows of one fold; the two differ only where rows stay together."""

    name: str
    fewest: int
    most: int


@dataclass(frozen=True)
class FoldCell:
    """A cell: its rows, the fewest and the most of them in any fold, and whether some fold gets none."""

    cell: dict[str, Any]
    size: int
    fewest: int
    most: int
    too_small: bool


@dataclass(frozen=True)
class FoldSizes:
    """Everything that `kfold --sizes-only` says."""

    path: str
    engine: str
    k: int
    n_rows: int
    n_excluded: int
    n_dropped: int
    folds: tuple[FoldTotal, ...]
    cells: tuple[FoldCell, ...]
    too_small: int
    units: int | None  # that stay together
    tolerance: float  # within which their cells are met
    warnings: tuple[Notice, ...]


def render_fold_sizes(found: FoldSizes, *, console: Console) -> None:
    """Print the table and the warnings."""
    render_rows(list(_rows(found)), console=console)
    render_notices(found.warnings, console=console)


def _rows(found: FoldSizes) -> Iterator[Row]:
    clauses = [f"{human_count(found.n_rows)} rows"]
    if found.n_excluded:
        clauses.append(f"{human_count(found.n_excluded)} excluded")
    if found.n_dropped:
        clauses.append(f"{human_count(found.n_dropped)} dropped as not finite")
    yield Row("input", (*clauses, printable(found.path)))
    if found.units is not None:
        within = "exactly" if found.tolerance == 0 else f"within a tolerance of {found.tolerance:g}"
        yield Row("units", (f"{human_count(found.units)} stay whole", f"all cells are met {within}"))
    yield Row(
        "folds",
        (human_count(found.k),),
        items=tuple(_totals(found.folds)),
    )
    problems = f"{human_count(found.too_small)} too small for all folds" if found.too_small else "no problems"
    # The ones to look at come first, because the list may be cut.
    listed = sorted(found.cells, key=lambda cell: not cell.too_small)
    items = [_cell(cell) for cell in listed[:_CELLS_SHOWN]]
    if len(listed) > _CELLS_SHOWN:
        items.append(f"and {human_count(len(listed) - _CELLS_SHOWN)} more; see --json")
    count = f"{human_count(len(found.cells))} cell{'s' * (len(found.cells) != 1)}"
    yield Row("cells", (count, problems), "bold red" if found.too_small else "bold", tuple(items))


def _totals(folds: Sequence[FoldTotal]) -> Iterator[str]:
    """Neighbouring folds of as many rows are one line."""
    for (fewest, most), group in groupby(folds, key=lambda fold: (fold.fewest, fold.most)):
        first, *others = [fold.name for fold in group]
        names, each = (f"{first} to {others[-1]}", " each") if others else (first, "")
        yield f"{names}: {_between(fewest, most)} rows{each}"


def _cell(cell: FoldCell) -> str:
    name = ", ".join(f"{printable(word)}={printable(str(value))}" for word, value in cell.cell.items())
    text = (
        f"{name or 'all rows'}: {human_count(cell.size)} rows, {_between(cell.fewest, cell.most)} in a fold"
    )
    return f"{text} (too small)" if cell.too_small else text


def _between(fewest: int, most: int) -> str:
    return human_count(fewest) if fewest == most else f"{human_count(fewest)} to {human_count(most)}"
