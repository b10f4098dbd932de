"""`clustersplit compare`: all strategies side by side on one feature file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from clustersplit_cli.cli.commands.baseline import load_with_domains
from clustersplit_cli.cli.console import progress_bar, stderr_console
from clustersplit_cli.cli.options import checked_options
from clustersplit_cli.cli.output import print_to_stdout
from clustersplit_cli.cli.request import read_request
from clustersplit_cli.data.readers import load, peek
from clustersplit_cli.data.readers.categories import restrict
from clustersplit_cli.data.subset import keep_rows
from clustersplit_cli.errors import InputError, UsageError, readable
from clustersplit_cli.options import is_count
from clustersplit_cli.pipeline import compare as comparing
from clustersplit_cli.pipeline.compare import Evaluation
from clustersplit_cli.pipeline.mmd.groups import aligned
from clustersplit_cli.reports.readable import render_json
from clustersplit_cli.reports.strategy_comparison import render_comparison
from clustersplit_cli.reports.terminal import render_notices

if TYPE_CHECKING:
    from clustersplit_cli.data.dataset import Categories, Dataset, ReadRequest
    from clustersplit_cli.progress import Progress


def run(context: typer.Context) -> None:
    """Compare all strategies."""
    given = dict(context.params)
    checked = checked_options(given)
    evaluation_domain = given["evaluation_domain"]
    if evaluation_domain is not None and given["evaluation"] is not None:
        raise UsageError("--evaluation and --evaluation-domain are both given", hint="give one of them")
    counts = _numbers(given["classes"])
    request = read_request(given["features"], {**given, "id": None})
    console = stderr_console()
    with progress_bar(console, quiet=given["quiet"], time_left=True) as progress:
        dataset, domains = _load(request, evaluation_domain is not None, progress)
        evaluation = None
        if evaluation_domain is not None:
            dataset, domains, evaluation = take_out(dataset, domains, evaluation_domain)
        elif given["evaluation"] is not None:
            dataset, evaluation = _read_outside(dataset, given, progress)
        found = comparing.compare(
            dataset,
            checked,
            repeats=given["repeats"],
            domains=domains,
            evaluation=evaluation,
            classes=counts,
            progress=progress,
        )
    if given["quiet"]:
        render_notices(found.warnings, console=console)
    else:
        render_comparison(found, console=console)
    if given["json"]:
        print_to_stdout(render_json(found))


def _load(
    request: ReadRequest, must_have_domains: bool, progress: Progress
) -> tuple[Dataset, Categories | None]:
    """Read the rows and, where there are any, their domains, whether or not domains form cells."""
    wanted = True
    if not must_have_domains and request.stratify is not None:
        try:
            peek(replace(request, stratify=("domain",)))
        except InputError:
            wanted = False
    return load_with_domains(request, wanted, progress)


def take_out(
    dataset: Dataset, domains: Categories | None, name: str
) -> tuple[Dataset, Categories, Evaluation]:
    """Part the rows into the development set and the evaluation domain."""
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


def _read_outside(
    dataset: Dataset, given: Mapping[str, Any], progress: Progress
) -> tuple[Dataset, Evaluation]:
    """Read the evaluation rows from a file of their own, with the features of the development set."""
    nothing = dict.fromkeys(("label", "domain", "label_file", "domain_file", "metadata", "exclude", "id"))
    request = read_request(given["evaluation"], {**given, **nothing, "stratify": ["none"]})
    (_, features), notes = aligned([dataset, load(request, progress)])
    name = readable(str(given["evaluation"]))
    return replace(dataset, notes=(*dataset.notes, *notes)), Evaluation(name, features)


def _numbers(text: str | None) -> tuple[int, ...]:
    """Read --classes."""
    if text is None:
        return ()
    words = [word.strip() for word in text.split(",")]
    if not all(map(is_count, words)):
        raise UsageError(
            f"--classes '{text}' is no list of positive numbers", hint="for example --classes 1,2,5,10,20,50"
        )
    return tuple(sorted({int(word) for word in words}))
