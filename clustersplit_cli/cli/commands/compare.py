"""`clustersplit compare`: all strategies side by side on one feature file."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Annotated

import typer

from clustersplit_cli.cli import options as opt
from clustersplit_cli.errors import InputError, UsageError
from clustersplit_cli.options import SplitOptions

if TYPE_CHECKING:
    from clustersplit_cli.data.dataset import Categories, Dataset, ReadRequest
    from clustersplit_cli.pipeline.compare import Evaluation
    from clustersplit_cli.progress import Progress

COMPARISON = "Comparison"
Repeats = Annotated[
    int,
    typer.Option(
        "--repeats",
        rich_help_panel=COMPARISON,
        metavar="N",
        parser=opt.integer("--repeats", 5),
        help="Seeds per strategy, counted up from --seed.",
    ),
]
EvaluationDomain = Annotated[
    str | None,
    typer.Option(
        "--evaluation-domain",
        rich_help_panel=COMPARISON,
        metavar="NAME",
        help="Take this domain out as E: also MMD(T,E), MMD(V,E), and whether MMD(T,V) is above both.",
    ),
]
Classes = Annotated[
    str | None,
    typer.Option(
        "--classes",
        rich_help_panel=COMPARISON,
        metavar="N,N,...",
        help="Also split with so many synthetic classes of equal size instead of the cells.",
    ),
]
Kernel = Annotated[
    str,
    typer.Option(
        "--kernel",
        rich_help_panel=opt.METHOD,
        metavar="rbf|linear|cosine|polynomial",
        help="The common kernel under which all splits are measured.",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", rich_help_panel=opt.OUTPUT, help="Also print every run to stdout.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", rich_help_panel=opt.OUTPUT, help="No progress and no tables.")
]


def compare(
    context: typer.Context,
    features: opt.Features,
    columns: opt.Columns = None,
    label: opt.Label = None,
    domain: opt.Domain = None,
    label_file: opt.LabelFile = None,
    domain_file: opt.DomainFile = None,
    metadata: opt.Metadata = None,
    exclude: opt.Exclude = None,
    drop_invalid: opt.DropInvalid = False,
    holdout: opt.Holdout = "0.2",
    stratify: opt.Stratify = None,
    tolerance: opt.Tolerance = None,
    rounding: opt.Rounding = None,
    repeats: Repeats = 5,
    evaluation_domain: EvaluationDomain = None,
    classes: Classes = None,
    kernel: Kernel = "rbf",
    gamma: opt.Gamma = None,
    degree: opt.Degree = None,
    standardize: opt.Standardize = "none",
    nystrom: opt.Nystrom = "auto",
    restarts: opt.Restarts = 10,
    effort: opt.Effort = "normal",
    max_iter: opt.MaxIter = 100,
    seed: opt.Seed = 0,
    memory: opt.Memory = None,
    threads: opt.Threads = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: opt.Debug = False,
) -> None:
    """Split a feature file by every strategy and compare the results.

    cluster-rbf and cluster-linear are `split` with those kernels; the others are those of `baseline`, and
    mix-up: a random split whose validation rows are mixed in pairs. All MMDs and Psi are under one kernel,
    so they can be compared. Nothing is written; --json prints every run.
    """
    from clustersplit_cli.cli.commands.split import read_request
    from clustersplit_cli.cli.console import progress_bar, stderr_console
    from clustersplit_cli.cli.output import print_to_stdout
    from clustersplit_cli.options import check_options
    from clustersplit_cli.pipeline import compare as comparing
    from clustersplit_cli.reports.json_report import render_json
    from clustersplit_cli.reports.strategy_comparison import render_comparison
    from clustersplit_cli.reports.terminal import render_notices

    given = dict(context.params)
    names = {field.name for field in fields(SplitOptions)} & set(given)
    checked = check_options(SplitOptions(**{name: given[name] for name in names}))
    if repeats < 1:
        raise UsageError(f"--repeats must be at least 1, got {repeats}", hint="for example --repeats 5")
    counts = _numbers(classes)
    request = read_request(features, {**given, "id": None})
    console = stderr_console()
    with progress_bar(console, quiet=quiet, time_left=True) as progress:
        dataset, domains = _load(request, evaluation_domain is not None, progress)
        evaluation = None
        if evaluation_domain is not None:
            dataset, domains, evaluation = _take_out(dataset, domains, evaluation_domain)
        found = comparing.compare(
            dataset,
            checked,
            repeats=repeats,
            domains=domains,
            evaluation=evaluation,
            classes=counts,
            progress=progress,
        )
    if quiet:
        render_notices(found.warnings, console=console)
    else:
        render_comparison(found, console=console)
    if json:
        print_to_stdout(render_json(found))


def _load(
    request: ReadRequest, must_have_domains: bool, progress: Progress
) -> tuple[Dataset, Categories | None]:
    """Read the rows and, where there are any, their domains, whether or not domains form cells."""
    from clustersplit_cli.cli.commands.baseline import load_with_domains
    from clustersplit_cli.data.readers import peek

    wanted = True
    if not must_have_domains and request.stratify is not None:
        try:
            peek(replace(request, stratify=("domain",)))
        except InputError:
            wanted = False
    return load_with_domains(request, wanted, progress)


def _take_out(
    dataset: Dataset, domains: Categories | None, name: str
) -> tuple[Dataset, Categories, Evaluation]:
    """Part the rows into the development set and the evaluation domain."""
    from clustersplit_cli.data.readers.categories import restrict
    from clustersplit_cli.data.subset import keep_rows
    from clustersplit_cli.pipeline.compare import Evaluation

    if domains is None:
        raise InputError(
            "--evaluation-domain needs a column of domains, and there is none",
            hint="use --domain NAME or --domain-file FILE",
        )
    values = [str(value) for value in domains.values]
    if name not in values:
        raise UsageError(
            f"--evaluation-domain {name}: there is no such domain",
            hint=f"choose one of {', '.join(values[:10])}",
        )
    kept = domains.codes != values.index(name)
    if kept.sum() < 2:
        raise InputError(f"only {kept.sum()} rows are left without {name}", hint="choose another domain")
    return keep_rows(dataset, kept), restrict(domains, kept), Evaluation(name, dataset.features[~kept])


def _numbers(text: str | None) -> tuple[int, ...]:
    """Read --classes."""
    if text is None:
        return ()
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) >= 1 for word in words):
        raise UsageError(
            f"--classes '{text}' is no list of positive numbers", hint="for example --classes 1,2,5,10,20,50"
        )
    return tuple(sorted({int(word) for word in words}))
