"""The findings of `clustersplit mmd` as a table, for people at a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersplit_cli.reports.formatting import (
    human_count,
    human_number,
    human_seconds,
    printable,
    worst_case,
)
from clustersplit_cli.reports.mmd.summary import MMDReport, PairSummary
from clustersplit_cli.reports.terminal import Row, render_notices, render_rows, show

if TYPE_CHECKING:
    from rich.console import Console

MATRIX_GROUPS = 16
"""Wider matrices do not fit a terminal; then the pairs that are furthest apart are listed."""
PAIRS_SHOWN = 20
CELLS_SHOWN = 12
UNDEFINED = "undefined"


def render_mmd(report: MMDReport, outputs: Sequence[Path] = (), *, console: Console) -> None:
    """Print the table, matrices if there are more than two groups, the warnings and the paths written."""
    render_rows([row for row in mmd_rows(report) if row is not None], console=console)
    if report.mmd is None:
        for line in matrix_lines(report):
            show(console, (line, ""))
    render_notices(report.warnings, console=console)
    for path in outputs:
        show(console, ("wrote ", "dim"), (printable(path), ""))


def mmd_rows(report: MMDReport) -> list[Row | None]:
    """Put the report into words, in the order in which one would ask."""
    sizes = tuple(f"{printable(group.name)}: {human_count(group.size)} rows" for group in report.groups)
    return [
        Row("compared", sizes[:MATRIX_GROUPS] + (("...",) if len(sizes) > MATRIX_GROUPS else ()), ""),
        *([_main(report)] if report.mmd is not None else []),
        *(_other_pairs(report) if report.mmd is not None else []),
        _validity(report),
        _test(report),
        _within(report),
        _likest(report),
        _columns(report),
        _near_duplicates(report),
        _kernel(report),
        Row("time", (human_seconds(report.timing.total),), ""),
    ]


def _main(report: MMDReport) -> Row:
    return Row("MMD", _estimate(report.pairs[0], report))


def _other_pairs(report: MMDReport) -> list[Row]:
    """The pairs with the evaluation set."""
    return [
        Row(f"{pair.first} to {pair.second}"[:24], _estimate(pair, report), "") for pair in report.pairs[1:]
    ]


def _estimate(pair: PairSummary, report: MMDReport) -> tuple[str, ...]:
    clauses = [_number(pair.value)]
    if report.estimator != "biased":
        clauses.append(report.estimator)
    if pair.cells is not None:
        clauses.append(f"mean over {human_count(len(pair.cells))} cells")
    if pair.p_value is not None:
        clauses.append(f"p {human_number(pair.p_value, 3)}")
    return tuple(clauses)


def _validity(report: MMDReport) -> Row | None:
    found = report.validity
    if found is None:
        return None
    apart, outside = found.train_val, (found.train_evaluation, found.val_evaluation)
    farthest = max((value for value in outside if value is not None), default=None)
    said, why = worst_case(
        passed=found.valid, between=apart, farthest=farthest, rows="the evaluation rows are"
    )
    style = "bold green" if found.valid else "bold red"
    return Row("worst case", (said.removeprefix("worst-case "), why), style)


def _test(report: MMDReport) -> Row | None:
    test = report.permutations
    if test is None:
        return None
    clauses = [f"{human_count(test.n)} permutations"]
    if report.within:
        clauses.append(f"within {' x '.join(map(printable, report.within))}")
    if test.descriptive:
        clauses.append("descriptive: the sides were chosen to be far apart, so p tests no hypothesis")
    return Row("p-values", tuple(clauses), "")


def _within(report: MMDReport) -> Row | None:
    """The cells of the main pair."""
    if report.mmd is None or report.pairs[0].cells is None or not report.pairs[0].cells:
        return None
    lines = []
    for cell in report.pairs[0].cells[:CELLS_SHOWN]:
        line = f"{_name(cell.cell)}: {_number(cell.value)} ({human_count(cell.first_size)} and "
        line += f"{human_count(cell.second_size)} rows)"
        lines.append(line + ("" if cell.p_value is None else f", p {human_number(cell.p_value, 3)}"))
    hidden = len(report.pairs[0].cells) - CELLS_SHOWN
    if hidden > 0:
        lines.append(f"and {human_count(hidden)} more, all of them with --json")
    return Row("within", (lines[0],), "", tuple(lines[1:]))


def _likest(report: MMDReport) -> Row | None:
    found = report.witness
    if found is None or not found.largest:
        return None

    def listed(rows: Sequence[Any]) -> str:
        return ", ".join(
            f"{row.row} of {printable(row.group)} ({human_number(row.value, 3)})" for row in rows
        )

    return Row(
        "witness",
        (f"rows most like {printable(found.second)}: {listed(found.largest)}",),
        "",
        (f"rows most like {printable(found.first)}: {listed(found.smallest)}",),
    )


def _columns(report: MMDReport) -> Row | None:
    if not report.columns:
        return None
    clauses = []
    for shift in report.columns:
        sign = "+" if shift.difference > 0 else ""
        clauses.append(f"{printable(shift.column)} {sign}{human_number(shift.difference, 3)} sd")
    return Row("columns", tuple(clauses), "")


def _near_duplicates(report: MMDReport) -> Row | None:
    found = report.near_duplicates
    if found is None:
        return None
    first, second = (printable(group.name) for group in report.groups[:2])
    clauses = [
        f"{human_count(found.rows)} of {human_count(found.of)} rows of {second} have a row of {first} with a "
        f"{found.measure} of {found.least:g} or more"
    ]
    if found.closest is not None and found.similarity is not None:
        one, other = found.closest
        clauses.append(
            f"most similar: row {other} of {second} and row {one} of {first} "
            f"({human_number(found.similarity, 4)})"
        )
    return Row("near dup.", tuple(clauses), "")


def _kernel(report: MMDReport) -> Row:
    clauses = [report.kernel.name]
    if report.kernel.gamma is not None:
        clauses.append(f"gamma {human_number(report.kernel.gamma)}")
    held = report.method.geometry
    if report.method.landmarks is not None:
        held += f" with {human_count(report.method.landmarks)} landmarks"
    return Row("kernel", (*clauses, f"{held}: {printable(report.method.reason)}"), "")


def matrix_lines(report: MMDReport) -> list[str]:
    """All pairs as a matrix, and one more matrix per cell; a list where there are too many groups."""
    names = [printable(group.name) for group in report.groups]
    if len(names) > MATRIX_GROUPS:
        return _furthest(report)
    pairs = {(pair.first, pair.second): pair for pair in report.pairs}
    heading = f"mean over {' x '.join(map(printable, report.within))}" if report.within else "MMD"
    lines = _matrix(report, names, heading, pairs)
    cells = {_name(cell.cell): None for pair in report.pairs for cell in pair.cells or ()}
    for cell in list(cells)[:CELLS_SHOWN]:
        by_pair = {
            key: next((one for one in pair.cells or () if _name(one.cell) == cell), None)
            for key, pair in pairs.items()
        }
        lines += ["", *_matrix(report, names, cell, by_pair)]
    if len(cells) > CELLS_SHOWN:
        lines += ["", f"and {human_count(len(cells) - CELLS_SHOWN)} more cells, all of them with --json"]
    return lines


def _matrix(
    report: MMDReport, names: Sequence[str], heading: str, found: Mapping[tuple[str, str], Any]
) -> list[str]:
    """The upper triangle, right-aligned."""
    keys = [group.name for group in report.groups]
    table = [[heading, *names[1:]]]
    for row, name in enumerate(names[:-1]):
        values = [
            _cell_text(found[keys[row], keys[column]]) if column > row else ""
            for column in range(1, len(names))
        ]
        table.append([name, *values])
    widths = [max(len(line[column]) for line in table) for column in range(len(names))]
    return [
        "  ".join(
            word.ljust(width) if place == 0 else word.rjust(width)
            for place, (word, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]


def _furthest(report: MMDReport) -> list[str]:
    """The pairs that are furthest apart."""
    order = sorted(report.pairs, key=lambda pair: -(pair.squared if pair.squared is not None else -1.0))
    lines = [
        f"{printable(pair.first)} and {printable(pair.second)}: {_cell_text(pair)}"
        for pair in order[:PAIRS_SHOWN]
    ]
    if len(order) > PAIRS_SHOWN:
        lines.append(f"and {human_count(len(order) - PAIRS_SHOWN)} more pairs, all of them with --json")
    return lines


def _cell_text(found: Any) -> str:
    """One entry of a matrix: the value, and its p-value if there is one."""
    if found is None:
        return "-"
    value = _number(found.value)
    return value if found.p_value is None else f"{value} (p {human_number(found.p_value, 2)})"


def _name(cell: dict[str, Any]) -> str:
    return ", ".join(f"{printable(word)}={printable(str(value))}" for word, value in cell.items())


def _number(value: float | None) -> str:
    return UNDEFINED if value is None else human_number(value)
