"""`clustersplit inspect`: what a split of a file would rest on, before any work is done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from clustersplit_cli.cli.console import progress_bar, stderr_console
from clustersplit_cli.cli.engine import choose_for_reading, engine_options, refuse_sharded
from clustersplit_cli.cli.options import checked_options, was_said
from clustersplit_cli.cli.output import print_to_stdout
from clustersplit_cli.cli.request import read_request
from clustersplit_cli.cli.run import folds, named_parts, opened_engine
from clustersplit_cli.data.readers import load, survey
from clustersplit_cli.data.readers.naming import report_path
from clustersplit_cli.engines.options import AUTO, LOCAL
from clustersplit_cli.errors import UsageError
from clustersplit_cli.pipeline.inspect import examine, size_parts
from clustersplit_cli.reports.inspection import InspectedColumn, render_inspection
from clustersplit_cli.reports.part_sizes import render_part_sizes
from clustersplit_cli.reports.readable import render_json
from clustersplit_cli.reports.terminal import render_notices

_IDLE = (
    *("kernel", "gamma", "degree", "standardize", "nystrom", "restarts", "effort", "seed"),
    *("holdout", "rounding", "target"),
)
"""Options that have no effect on the sizes of parts."""


def run(context: typer.Context) -> None:
    """Inspect a feature file, or size the parts it would be divided into."""
    given = context.params
    if given["k"] is not None or given["parts"] is not None:
        return _size(context, given)
    options = engine_options(given)
    if options.engine not in (AUTO, LOCAL):
        refuse_sharded({"inspect without --k or --parts": True})
    _run(given["features"], given)


def _size(context: typer.Context, given: Mapping[str, Any]) -> None:
    """Check everything that can be checked, then count and show."""
    if given["k"] is not None and given["parts"] is not None:
        raise UsageError("--k and --parts cannot be combined", hint="leave one of them out")
    option = "--k" if given["k"] is not None else "--parts"
    idle = [option_name(name) for name in _IDLE if was_said(context, name)]
    if idle:
        raise UsageError(
            f"{', '.join(idle)} has no effect with {option}", hint="sizes need no kernel: leave it out"
        )
    into = folds(given) if given["k"] is not None else named_parts(given, holdout_said=False)
    checked = checked_options({name: value for name, value in given.items() if name not in _IDLE})
    request, engine = read_request(given["features"], given), engine_options(given)
    console, chosen = stderr_console(), choose_for_reading(engine, request, checked)
    with (
        progress_bar(console, quiet=given["quiet"], time_left=True) as progress,
        opened_engine(request, checked, chosen, progress, only_counts=True) as counting,
    ):
        found = size_parts(counting, into, report_path(request.path))
    if given["json"]:
        print_to_stdout(render_json(found))
    if given["quiet"]:
        render_notices(found.warnings, console=console)
    else:
        render_part_sizes(found, console=console)


def option_name(name: str) -> str:
    """As it is given on the command line."""
    return "--h" if name == "holdout" else f"--{name.replace('_', '-')}"


def _run(features: Path, given: Mapping[str, Any]) -> None:
    """Check the options, read, look and show."""
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
