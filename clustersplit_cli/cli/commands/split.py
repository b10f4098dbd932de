"""`clustersplit split`: from a feature file to index files and a report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from clustersplit_cli.cli import engine as scale
from clustersplit_cli.cli import run as pieces
from clustersplit_cli.cli.options import checked_options, was_said
from clustersplit_cli.cli.output import Output
from clustersplit_cli.cli.replay import with_earlier_options
from clustersplit_cli.cli.request import read_request
from clustersplit_cli.cli.run import read_and_work, run_named_parts, show_result
from clustersplit_cli.engines.options import LOCAL

if TYPE_CHECKING:
    pass


def run(context: typer.Context) -> None:
    """Split a feature file into two parts, or into named ones."""
    given = with_earlier_options(context, context.params["config"])
    features = given["features"]
    if given["parts"] is None:
        _run(features, given)
    else:
        scale.refuse_engine(scale.engine_options(given), "split --parts")
        run_named_parts(features, given, was_said(context, "holdout"))


def _run(features: Path, given: Mapping[str, Any]) -> None:
    """Check everything that can be checked, then read, split and write."""
    from clustersplit_cli.cli.console import stderr_console

    checked = checked_options(given)
    engine = scale.engine_options(given)
    request = read_request(features, given)
    output = Output.from_options(features, given)
    engine, reason = scale.settled_if_readable(engine, request, checked)
    if engine.engine != LOCAL:
        return pieces.run_split_in_pieces(request, given, checked, engine, reason, output)
    console = stderr_console()

    with read_and_work(request, given, checked, output, console) as (local, config):
        from clustersplit_cli.pipeline import run as pipeline

        result = pipeline.run(local, config=config, with_portrait=output.html)
        dataset = local.dataset
    show_result(result.report, output.write(dataset, result), quiet=given["quiet"], console=console)
