"""`clustersplit ladder`: graded splits at several levels, each in a directory of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from clustersplit_cli.cli.console import stderr_console
from clustersplit_cli.cli.engine import choose_if_readable, engine_options
from clustersplit_cli.cli.options import checked_options
from clustersplit_cli.cli.output import STDOUT, Output, print_to_stdout
from clustersplit_cli.cli.replay import with_earlier_options
from clustersplit_cli.cli.request import read_request
from clustersplit_cli.cli.run import opened
from clustersplit_cli.data.destination import LADDER_NAME, LADDER_PAGE
from clustersplit_cli.data.publish import staged_directory
from clustersplit_cli.errors import UsageError
from clustersplit_cli.pipeline.ladder import climb, parse_levels
from clustersplit_cli.reports.ladder.summary import summarize_ladder, summarize_rung
from clustersplit_cli.reports.ladder.terminal import render_ladder
from clustersplit_cli.reports.readable import render_json
from clustersplit_cli.reports.terminal import render_notices

if TYPE_CHECKING:
    from pathlib import Path

    from clustersplit_cli.cli.run import Opened
    from clustersplit_cli.reports.ladder.summary import LadderReport, Notice, RungSummary
    from clustersplit_cli.reports.summary import Report


def run(context: typer.Context) -> None:
    """Check everything that can be checked, then read, split at every level, and publish all at once."""
    given = with_earlier_options(context, context.params["config"])
    levels, features = parse_levels(given["levels"]), given["features"]
    checked, chosen = checked_options(given), engine_options(given)
    if given["out"] == STDOUT:
        raise UsageError("--out - cannot hold a ladder", hint="name a directory with --out")
    output = Output.from_options(features, {**given, "annotate": None}, "_ladder")
    request = read_request(features, given)
    with opened(
        request,
        given,
        checked,
        choose_if_readable(chosen, request, checked),
        replace(output, json=False, html=False),
    ) as rows:
        report, text = _publish(rows, output, levels, given)
    paths = [output.directory / name for name in _names(output)] if output.directory else []
    if given["quiet"]:
        render_notices(report.warnings, console=stderr_console())
    else:
        render_ladder(report, paths, console=stderr_console())
    if output.json:
        print_to_stdout(text, output.directory)


def _names(output: Output) -> list[str]:
    return [LADDER_NAME, *([LADDER_PAGE] if output.html else [])]


def _publish(
    rows: Opened, output: Output, levels: tuple[float, ...], given: dict[str, Any]
) -> tuple[LadderReport, str]:
    """Write every run as `split` does, into one directory that appears whole."""
    assert output.directory is not None
    rungs: list[RungSummary] = []
    notices: list[Notice] = []
    first: Report | None = None
    with staged_directory(output.directory, force=output.force) as folder:
        for repeat in range(given["repeats"]):
            engine = rows.engine.seeded(given["seed"] + repeat)
            for level, made in climb(engine, levels, rows.config):
                name = f"level_{level:g}/repeat_{repeat}"
                (folder / name).parent.mkdir(exist_ok=True)
                rows.write(replace(output, directory=folder / name, json=False, html=False), made)
                rungs.append(summarize_rung(level, repeat, made.report, name))
                notices += made.report.warnings
                first = first or made.report
        assert first is not None
        report = summarize_ladder(rungs, first, notices)
        text = render_json(report)
        if output.html:
            _write_page(folder / LADDER_PAGE, report, output)
        (folder / LADDER_NAME).write_bytes(text.encode("utf-8", "backslashreplace"))
    return report, text


def _write_page(path: Path, report: LadderReport, output: Output) -> None:
    from clustersplit_cli.reports.ladder.html import render_ladder_page

    page = render_ladder_page(report, title=output.source.name)
    path.write_bytes(page.encode("utf-8", "backslashreplace"))
