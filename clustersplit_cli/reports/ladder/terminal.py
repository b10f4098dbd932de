"""A ladder as a short table, for people at a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clustersplit_cli.reports.formatting import human_count, human_number, printable
from clustersplit_cli.reports.ladder.summary import LadderReport
from clustersplit_cli.reports.terminal import Row, render_notices, render_rows, show

if TYPE_CHECKING:
    from rich.console import Console


def render_ladder(report: LadderReport, outputs: Sequence[Path], *, console: Console) -> None:
    """Print a line for every level, the warnings and the paths written."""
    render_rows(ladder_rows(report), console=console)
    render_notices(report.warnings, console=console)
    for path in outputs:
        show(console, ("wrote ", "dim"), (printable(path), ""))


def ladder_rows(report: LadderReport) -> list[Row]:
    """What every level came to."""
    rows = []
    for found in report.levels:
        clauses = [f"MMD {human_number(found.mmd_mean)}"]
        if found.mmd_sd is not None:
            repeats = sum(run.level == found.level for run in report.runs)
            clauses.append(f"sd {human_number(found.mmd_sd, 2)} over {human_count(repeats)} repeats")
        if found.level == 0:
            clauses.append("ordinary random splits")
        rows.append(Row(f"severity {found.level:g}", tuple(clauses)))
    place = report.target
    if place is not None:
        clauses = [f"MMD {human_number(place.mmd)} from all rows (p {human_number(place.p_value, 2)})"]
        if place.severity is not None:
            beyond = ", beyond what your rows can show" if place.severity > 1 else ""
            clauses.append(f"severity {human_number(place.severity, 3)}{beyond}")
        rows.append(Row("target", tuple(clauses)))
    return rows
