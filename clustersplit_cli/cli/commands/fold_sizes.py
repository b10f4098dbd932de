"""`clustersplit kfold --sizes-only`: what folds would get of every cell, in one pass and without a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from clustersplit_cli.cli import engine as scale
from clustersplit_cli.cli.options import checked_options, was_said
from clustersplit_cli.engines.options import LOCAL
from clustersplit_cli.errors import UsageError

_IDLE = (
    *("kernel", "gamma", "degree", "standardize", "nystrom", "restarts", "effort", "max_iter", "seed"),
    *("solver", "certify", "out", "format", "annotate", "html", "force"),
)


def run_fold_sizes(context: typer.Context, features: Path, given: Mapping[str, Any]) -> None:
    """Check everything that can be checked, then count and show."""
    from clustersplit_cli.cli.console import progress_bar, stderr_console
    from clustersplit_cli.cli.output import print_to_stdout
    from clustersplit_cli.cli.request import read_request
    from clustersplit_cli.cli.run import check_folds, counting_job
    from clustersplit_cli.data.readers import load
    from clustersplit_cli.data.readers.naming import report_path
    from clustersplit_cli.pipeline.fold_sizes import sizes_in_memory, sizes_in_pieces
    from clustersplit_cli.reports.fold_sizes import render_fold_sizes
    from clustersplit_cli.reports.json_report import render_json
    from clustersplit_cli.reports.terminal import render_notices

    idle = [f"--{name.replace('_', '-')}" for name in _IDLE if was_said(context, name)]
    if idle:
        raise UsageError(
            f"{', '.join(idle)} has no effect with --sizes-only", hint="it writes nothing and needs no kernel"
        )
    check_folds(given["k"])
    engine = scale.engine_options(given)
    checked = checked_options({name: value for name, value in given.items() if name not in _IDLE})
    request = read_request(features, given)
    engine, reason = scale.settle_for_reading(engine, request, checked)
    console = stderr_console()
    with progress_bar(console, quiet=given["quiet"], time_left=True) as progress:
        if engine.engine == LOCAL:
            dataset = load(request, progress)
            found = sizes_in_memory(dataset, checked, given["k"], report_path(request.path))
        else:
            with counting_job(request, checked, engine, reason, progress) as sharded:
                found = sizes_in_pieces(sharded, given["k"], report_path(request.path))
    if given["json"]:
        print_to_stdout(render_json(found))
    if given["quiet"]:
        render_notices(found.warnings, console=console)
    else:
        render_fold_sizes(found, console=console)
