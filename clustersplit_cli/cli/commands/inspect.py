"""`clustersplit inspect`: what a split of a file would rest on, before any work is done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from clustersplit_cli.cli.options import checked_options


def run(context: typer.Context) -> None:
    """Inspect a feature file."""
    _run(context.params["features"], context.params)


def _run(features: Path, given: Mapping[str, Any]) -> None:
    """Check the options, read, look and show."""
    from clustersplit_cli.cli.console import progress_bar, stderr_console
    from clustersplit_cli.cli.output import print_to_stdout
    from clustersplit_cli.cli.request import read_request
    from clustersplit_cli.data.readers import load, survey
    from clustersplit_cli.pipeline.inspect import examine
    from clustersplit_cli.reports.inspection import InspectedColumn, render_inspection
    from clustersplit_cli.reports.json_report import render_json
    from clustersplit_cli.reports.terminal import render_notices

    checked = checked_options(given)
    request = read_request(features, given)
    console = stderr_console()
    with progress_bar(console, quiet=given["quiet"]) as progress:
        columns = tuple(InspectedColumn(use.name, use.type_name, use.use) for use in survey(request))
        dataset = load(request, progress)
        progress("inspect", 0, 0)
        found = examine(dataset, checked, path=str(features), columns=columns)
    if given["json"]:
        print_to_stdout(render_json(found))
    if given["json"] or given["quiet"]:
        render_notices(found.warnings, console=console)
    else:
        render_inspection(found, console=console)
