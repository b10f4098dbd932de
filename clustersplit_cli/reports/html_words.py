"""The words and tables of the HTML report, from the content of `report.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clustersplit_cli.reports.formatting import human_count, human_number, human_percent, printable
from clustersplit_cli.reports.html_constraints import shares_in_words
from clustersplit_cli.reports.html_page import Tile

CELLS_SHOWN = 400
HEAT_ROWS, HEAT_COLUMNS = 60, 30
HARDLY = 1.1


@dataclass(frozen=True)
class CellRow:
    """One line of the constraint table."""

    name: str
    size: int
    wanted: str
    actual: int
    share: float
    satisfied: bool


@dataclass(frozen=True)
class CellTable:
    """The cells, those farthest from their target first; `hidden` more are not shown."""

    rows: tuple[CellRow, ...]
    n_off_target: int
    n_cells: int
    hidden: int


@dataclass(frozen=True)
class Share:
    """One square of the heat map: validation rows of all rows; `heat` is 0.5 at the holdout fraction."""

    actual: int
    size: int
    share: float
    heat: float


@dataclass(frozen=True)
class HeatMap:
    """Validation shares by two columns; None where no rows are."""

    row_word: str
    column_word: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Share | None, ...]], ...]
    hidden: int


def headline(report: Mapping[str, Any]) -> str:
    """Say in one sentence what the split is worth."""
    random = report["baselines"]["random"]["mmd_mean"]
    ratio = report["mmd"]["value"] / random if random else math.inf
    if not math.isfinite(ratio):
        differs = "Validation and training rows differ, and random splits do not"
    elif ratio < 1 / HARDLY:
        differs = "Validation differs from training less than a random split would"
    elif ratio < HARDLY:
        differs = "Validation differs from training hardly more than a random split would"
    else:
        differs = f"Validation differs from training {times(ratio)} times more than a random split would"
    return f"{differs}; {shares_in_words(report, 'validation has its share of all rows')}."


def times(ratio: float) -> str:
    """Write how many times larger something is."""
    return f"{ratio:.1f}" if ratio < 100 else human_count(round(ratio))


def tiles(report: Mapping[str, Any]) -> tuple[Tile, ...]:
    """The figures one would ask for first."""
    sizes, bound, random = report["sizes"], report["bound"], report["baselines"]["random"]
    total = sizes["train"] + sizes["val"]
    cells = report["constraints"]["cells"]
    kept = sum(cell["satisfied"] for cell in cells)
    found = [
        Tile(
            human_count(sizes["val"]),
            "validation rows",
            f"{human_percent(sizes['val'] / total)}; {human_count(sizes['train'])} are for training",
        ),
        Tile(
            human_number(report["mmd"]["value"], 3),
            "MMD between the sides",
            f"random splits: {human_number(random['mmd_mean'], 3)} ± {human_number(random['mmd_sd'], 2)}",
        ),
        Tile(
            f"{human_count(kept)} of {human_count(len(cells))}",
            "cells within bounds",
            "validation counts per cell",
        ),
    ]
    if bound is not None:
        percent = min(math.floor(100 * bound["fraction"] + 1e-9), 100)
        of = "" if bound["kernel"] == "exact" else ", for the Nyström kernel"
        at_most = f"no split exceeds {human_number(bound['mmd_upper'], 3)}{of}"
        found.insert(2, Tile(f"≥ {percent}%", "of the best possible MMD", at_most))
    return tuple(found)


def cells_by_distance(report: Mapping[str, Any]) -> CellTable:
    """Order the cells: out of bounds first, then by rows off target, then by how far rounding moved them."""
    holdout = _holdout(report)
    cells: Sequence[Mapping[str, Any]] = report["constraints"]["cells"]
    several = len(report["constraints"].get("families") or ()) > 1

    def distance(cell: Mapping[str, Any]) -> tuple[bool, int, float]:
        return (
            cell["satisfied"],
            -abs(cell["actual"] - cell["target"]),
            -abs(cell["actual"] - holdout * cell["size"]) / cell["size"],
        )

    rows = tuple(
        CellRow(
            name=cell_name(cell["cell"], with_words=several),
            size=cell["size"],
            wanted=str(cell["lower"])
            if cell["lower"] == cell["upper"]
            else f"{human_count(cell['lower'])} to {human_count(cell['upper'])}",
            actual=cell["actual"],
            share=cell["actual"] / cell["size"],
            satisfied=cell["satisfied"],
        )
        for cell in sorted(cells, key=distance)[:CELLS_SHOWN]
    )
    off = sum(cell["actual"] != cell["target"] for cell in cells)
    return CellTable(rows, off, len(cells), len(cells) - len(rows))


def cell_name(cell: Mapping[str, Any], *, with_words: bool = False) -> str:
    """Name a cell by its values, and by what they are values of where that is not the same for all."""
    names = [
        f"{printable(word)} {printable(str(value))}" if with_words else printable(str(value))
        for word, value in cell.items()
    ]
    return ", ".join(names) or "all rows"


def heat_map(report: Mapping[str, Any]) -> HeatMap | None:
    """Lay the cells out by their first column and the others; None if there is only one cell."""
    cells: Sequence[Mapping[str, Any]] = report["constraints"]["cells"]
    words = list(cells[0]["cell"])
    cells = [cell for cell in cells if list(cell["cell"]) == words]
    if not words or len(cells) < 2:
        return None
    table: dict[str, dict[str, Mapping[str, Any]]] = {}
    columns: dict[str, int] = {}
    for cell in cells:
        first, *rest = (printable(str(value)) for value in cell["cell"].values())
        column = ", ".join(rest) or "all"
        table.setdefault(first, {})[column] = cell
        columns[column] = columns.get(column, 0) + cell["size"]
    kept_columns = _largest(columns, HEAT_COLUMNS)
    kept_rows = _largest(
        {name: sum(c["size"] for c in row.values()) for name, row in table.items()}, HEAT_ROWS
    )
    holdout = _holdout(report)

    def square(cell: Mapping[str, Any] | None) -> Share | None:
        if cell is None:
            return None
        share = cell["actual"] / cell["size"]
        return Share(cell["actual"], cell["size"], share, min(share / (2 * holdout), 1.0))

    return HeatMap(
        row_word=printable(words[0]),
        column_word=", ".join(map(printable, words[1:])),
        columns=tuple(kept_columns),
        rows=tuple((row, tuple(square(table[row].get(name)) for name in kept_columns)) for row in kept_rows),
        hidden=len(table) * len(columns) - len(kept_rows) * len(kept_columns),
    )


def _largest(sizes: Mapping[str, int], count: int) -> list[str]:
    """The names of the `count` largest, in the order they came in."""
    kept = set(sorted(sizes, key=lambda name: -sizes[name])[:count])
    return [name for name in sizes if name in kept]


def options_in_words(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The options as they were resolved, without those that were not used."""

    def text(value: Any) -> str:
        return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)

    return [
        (name.replace("_", " "), printable(text(value)))
        for name, value in config.items()
        if value not in (None, [], False)
    ]


def _holdout(report: Mapping[str, Any]) -> float:
    stated = report["config"].get("holdout")
    if stated is not None:
        return float(stated)
    return float(report["sizes"]["val"] / (report["sizes"]["train"] + report["sizes"]["val"]))
