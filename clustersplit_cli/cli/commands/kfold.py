"""`clustersplit kfold`: from a feature file to folds that differ as much as the constraints allow."""

from __future__ import annotations

import typer

from clustersplit_cli.cli.replay import with_earlier_options
from clustersplit_cli.cli.run import folds, run_partition


def run(context: typer.Context) -> None:
    """Part a feature file into folds."""
    given = with_earlier_options(context, context.params["config"])
    run_partition(given, folds(given))
