"""`clustersplit inspect`: what a split of a file would rest on, before any work is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from clustersplit_cli.cli import options as opt
from clustersplit_cli.options import SplitOptions

Json = Annotated[
    bool,
    typer.Option("--json", rich_help_panel=opt.OUTPUT, help="Print the findings to stdout as JSON instead."),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", rich_help_panel=opt.OUTPUT, help="Show only the warnings.")
]


def inspect(
    context: typer.Context,
    features: opt.Features,
    columns: opt.Columns = None,
    label: opt.Label = None,
    domain: opt.Domain = None,
    label_file: opt.LabelFile = None,
    domain_file: opt.DomainFile = None,
    metadata: opt.Metadata = None,
    id: opt.IdColumn = None,
    exclude: opt.Exclude = None,
    drop_invalid: opt.DropInvalid = False,
    holdout: opt.Holdout = "0.2",
    stratify: opt.Stratify = None,
    tolerance: opt.Tolerance = None,
    rounding: opt.Rounding = None,
    label_bins: opt.LabelBins = None,
    keep_together: opt.KeepTogether = None,
    force_train: opt.ForceTrain = None,
    force_val: opt.ForceVal = None,
    kernel: opt.Kernel = "rbf",
    gamma: opt.Gamma = None,
    degree: opt.Degree = None,
    standardize: opt.Standardize = "none",
    nystrom: opt.Nystrom = "auto",
    restarts: opt.Restarts = 10,
    effort: opt.Effort = "normal",
    seed: opt.Seed = 0,
    memory: opt.Memory = None,
    threads: opt.Threads = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: opt.Debug = False,
) -> None:
    """Look at a feature file before splitting it.

    Shows what the columns are used for, every cell with its quota and the cells that will be a problem, how
    much the features spread, what the kernel would look like for each width, and the memory and time that
    `split` with the same options would take.
    """
    _run(features, context.params)


def _run(features: Path, given: Mapping[str, Any]) -> None:
    """Check the options, read, look and show."""
    from clustersplit_cli.cli.commands.split import read_request
    from clustersplit_cli.cli.console import progress_bar, stderr_console
    from clustersplit_cli.cli.output import print_to_stdout
    from clustersplit_cli.data.readers import load, survey
    from clustersplit_cli.options import check_options
    from clustersplit_cli.pipeline.inspect import examine
    from clustersplit_cli.reports.inspection import InspectedColumn, render_inspection
    from clustersplit_cli.reports.json_report import render_json
    from clustersplit_cli.reports.terminal import render_notices

    known = [field.name for field in fields(SplitOptions) if field.name in given]
    checked = check_options(SplitOptions(**{name: given[name] for name in known}))
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
