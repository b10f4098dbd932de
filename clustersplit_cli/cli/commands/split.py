"""`clustersplit split`: from a feature file to index files and a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from clustersplit_cli.cli.engine import engine_options
from clustersplit_cli.cli.options import checked_options, was_said
from clustersplit_cli.cli.output import Output
from clustersplit_cli.cli.replay import with_earlier_options
from clustersplit_cli.cli.request import read_request
from clustersplit_cli.cli.run import find_and_write, named_parts, run_partition, run_several
from clustersplit_cli.errors import UsageError

if TYPE_CHECKING:
    pass


def run(context: typer.Context) -> None:
    """Split a feature file into two parts, or into named ones."""
    given = with_earlier_options(context, context.params["config"])
    if given["n_splits"] is not None:
        return run_several(given, given["n_splits"])
    if given["parts"] is not None:
        if given["target"] is not None:
            raise UsageError(
                "--target cannot be combined with --parts: it is for training and validation rows",
                hint="leave --parts out, or split again those rows that are not for testing",
            )
        return run_partition(given, named_parts(given, holdout_said=was_said(context, "holdout")))
    checked = checked_options(given)
    engine_options(given)  # refused before anything is read
    request = read_request(given["features"], given)
    find_and_write(request, given, checked, Output.from_options(given["features"], given))
