"""`clustersplit kfold`: from a feature file to folds that differ as much as the constraints allow."""

from __future__ import annotations

import typer

from clustersplit_cli.cli import engine as scale
from clustersplit_cli.cli import options as opt
from clustersplit_cli.cli.commands.fold_sizes import SizesOnly, run_fold_sizes
from clustersplit_cli.cli.replay import OF_FOLDS, with_earlier_options
from clustersplit_cli.cli.run import run_folds


def kfold(
    context: typer.Context,
    features: opt.Features,
    k: opt.Folds = 5,
    columns: opt.Columns = None,
    label: opt.Label = None,
    domain: opt.Domain = None,
    label_file: opt.LabelFile = None,
    domain_file: opt.DomainFile = None,
    metadata: opt.Metadata = None,
    id: opt.IdColumn = None,
    exclude: opt.Exclude = None,
    drop_invalid: opt.DropInvalid = False,
    stratify: opt.Stratify = None,
    tolerance: opt.Tolerance = None,
    label_bins: opt.LabelBins = None,
    keep_together: opt.KeepTogether = None,
    kernel: opt.Kernel = "rbf",
    gamma: opt.Gamma = None,
    degree: opt.Degree = None,
    standardize: opt.Standardize = "none",
    nystrom: opt.Nystrom = "auto",
    restarts: opt.Restarts = 10,
    effort: opt.Effort = "normal",
    max_iter: opt.MaxIter = 100,
    seed: opt.Seed = 0,
    solver: opt.Solver = "auto",
    certify: opt.Certify = "auto",
    memory: opt.Memory = None,
    threads: opt.Threads = None,
    sizes_only: SizesOnly = False,
    engine: scale.Engine = "auto",
    scheduler: scale.Scheduler = None,
    out: opt.FoldsOut = None,
    format: opt.Format = None,
    annotate: opt.Annotate = None,
    html: opt.Html = False,
    force: opt.Force = False,
    config: opt.Config = None,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
    debug: opt.Debug = False,
) -> None:
    """Part a feature file into k folds of equal share in every cell.

    The folds differ from each other as much as possible, so that each of them in turn is a validation set
    unlike what was trained on. Writes the fold of every row, fold_0/train and fold_0/val and so on, and
    report.json. With --sizes-only it only counts, and then takes every --engine.
    """
    given = with_earlier_options(context, config, OF_FOLDS)
    if sizes_only:
        return run_fold_sizes(context, features, given)
    scale.refuse_engine(scale.engine_options(given), "kfold", unless="--sizes-only")
    run_folds(features, given)
