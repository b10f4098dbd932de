"""A ladder as one HTML page that works offline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clustersplit_cli.reports.formatting import human_count, human_number
from clustersplit_cli.reports.html_page import Tile, render_page
from clustersplit_cli.reports.html_words import options_in_words
from clustersplit_cli.reports.ladder.summary import LadderReport, TargetPlace


def render_ladder_page(report: LadderReport, *, title: str) -> str:
    """Render the page; `title` is what was split."""
    return render_page(
        "ladder.html",
        report=report,
        title=title,
        headline=headline(report),
        tiles=tiles(report),
        chart_data=chart_data(report),
        options=options_in_words(report.config),
    )


def headline(report: LadderReport) -> str:
    """The first thing to know, as a sentence."""
    first, last = report.levels[0], report.levels[-1]
    if len(report.levels) == 1:
        return f"Splits of severity {first.level:g} have an MMD of {human_number(first.mmd_mean, 3)}."
    return (
        f"From severity {first.level:g} to {last.level:g}, the MMD between training and validation goes from "
        f"{human_number(first.mmd_mean, 3)} to {human_number(last.mmd_mean, 3)}."
    )


def tiles(report: LadderReport) -> tuple[Tile, ...]:
    """The figures one would ask for first."""
    random = [run.random_mmd for run in report.runs]
    best = [run.best_mmd for run in report.runs]
    width = max(max(best) - min(random), 1e-300)
    off = max(abs(run.mmd - run.asked) for run in report.runs) / width
    repeats = report.config["repeats"]
    return (
        Tile(
            human_count(len(report.runs)),
            "splits",
            f"{len(report.levels)} levels, {repeats} repeat{'s' * (repeats != 1)} each",
        ),
        Tile(human_number(min(random), 3), "MMD of random splits", "severity 0: their mean"),
        Tile(human_number(max(best), 3), "MMD of the hardest found", "severity 1"),
        Tile(f"{100 * off:.1f}%", "of the range, at most, off", "the MMD that was asked for"),
        *_of_target(report.target),
    )


def _of_target(place: TargetPlace | None) -> Iterator[Tile]:
    if place is not None and place.severity is not None:
        beyond = ": beyond what your rows can show" if place.severity > 1 else ""
        remark = f"{place.name} is at MMD {human_number(place.mmd, 3)} from all rows{beyond}"
        yield Tile(human_number(place.severity, 3), "severity of the target", remark)


def chart_data(report: LadderReport) -> dict[str, Any]:
    """What the page's script draws."""
    return {
        "runs": [{"level": run.level, "repeat": run.repeat, "mmd": run.mmd} for run in report.runs],
        "levels": [{"level": found.level, "mmd": found.mmd_mean} for found in report.levels],
        "target": None if report.target is None else report.target.mmd,
    }
