"""`clustersplit kfold`: from a feature file to folds that differ as much as the constraints allow."""

from __future__ import annotations

import typer

from clustersplit_cli.cli import engine as scale
from clustersplit_cli.cli.commands.fold_sizes import run_fold_sizes
from clustersplit_cli.cli.replay import with_earlier_options
from clustersplit_cli.cli.run import run_folds


def run(context: typer.Context) -> None:
    """Part a feature file into folds, or only count what each would get."""
    given = with_earlier_options(context, context.params["config"])
    if given["sizes_only"]:
        return run_fold_sizes(context, given["features"], given)
    scale.refuse_engine(scale.engine_options(given), "kfold", unless="--sizes-only")
    run_folds(given["features"], given)
