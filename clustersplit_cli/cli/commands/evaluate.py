"""`clustersplit evaluate`: does the split choose better models on this data?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from clustersplit_cli.cli.console import progress_bar, stderr_console
from clustersplit_cli.cli.options import checked_options
from clustersplit_cli.cli.output import print_to_stdout, stem
from clustersplit_cli.cli.process import INTERRUPTED, Stopped, say_when_stopped
from clustersplit_cli.cli.request import inputs_of, read_request
from clustersplit_cli.core.parallel import available_cores
from clustersplit_cli.data.destination import check_destination, is_vacant, resolve
from clustersplit_cli.data.publish import staged_file
from clustersplit_cli.data.readers import load
from clustersplit_cli.errors import UnfinishedError, UsageError
from clustersplit_cli.evaluation import probes
from clustersplit_cli.evaluation.choosing import SELECTIONS
from clustersplit_cli.evaluation.commands import Template
from clustersplit_cli.evaluation.run import EvaluationPlan
from clustersplit_cli.evaluation.run import evaluate as evaluate_dataset
from clustersplit_cli.evaluation.space import read_space
from clustersplit_cli.evaluation.strategies import folds_for, parse_strategies
from clustersplit_cli.options import check_target
from clustersplit_cli.progress import Stopwatch
from clustersplit_cli.reports.evaluation.html import render_evaluation_page
from clustersplit_cli.reports.evaluation.terminal import render_evaluation
from clustersplit_cli.reports.html_page import check_available
from clustersplit_cli.reports.readable import render_json
from clustersplit_cli.reports.terminal import render_notices

if TYPE_CHECKING:
    from rich.console import Console

    from clustersplit_cli.data.dataset import Dataset
    from clustersplit_cli.options import CheckedOptions
    from clustersplit_cli.reports.evaluation.summary import EvaluationReport

PROBE_ROWS = 1000
RESUMABLE = "what is finished is kept: the same command with --resume goes on"


def run(context: typer.Context) -> None:
    """Evaluate strategies on a feature file."""
    _run(context.params["features"], dict(context.params))


def _run(features: Path, given: dict[str, Any]) -> None:
    """Check everything that can be checked, then read, evaluate and write."""
    watch = Stopwatch()
    checked = checked_options(given)
    plan = plan_of(given, checked)
    if given["resume"] and given["force"]:
        raise UsageError("--resume goes on and --force starts over", hint="use one of them")
    directory = given["out"] or Path(f"{stem(features)}_evaluation")
    request = read_request(features, {**given, "id": None, "stratify": None})
    if request.target is None:  # which alone needs no domains
        request = replace(request, stratify=("label", "domain"))
    if is_vacant(resolve(directory)):
        check_destination(directory, force=False, inputs=inputs_of(request))
    if given["html"]:
        check_available()
    console = stderr_console()
    how_far = ""
    with progress_bar(console, quiet=given["quiet"], time_left=True) as progress:

        def note(stage: str, done: int, total: int) -> None:
            nonlocal how_far
            how_far = f" after {done} of {total} trials" if stage == "training" else ""
            progress(stage, done, total)

        with watch.step("read"):
            dataset = load(request, progress)
        say_when_stopped(RESUMABLE)
        try:
            report = evaluate_dataset(
                dataset,
                features,
                checked,
                plan,
                directory,
                config=config_of(given, checked, plan, dataset),
                resume=given["resume"],
                force=given["force"],
                stopwatch=watch,
                progress=note,
            )
        except (KeyboardInterrupt, Stopped) as stop:
            code = stop.exit_code if isinstance(stop, Stopped) else INTERRUPTED
            raise UnfinishedError(
                f"interrupted{how_far}",
                hint=RESUMABLE,
                exit_code=code,
            ) from stop
    _write(report, directory, features, given, console)


def plan_of(given: Mapping[str, Any], checked: CheckedOptions) -> EvaluationPlan:
    """Check the options of the evaluation itself."""
    for flag, least in {"search": 1, "repeats": 1, "folds": 2, "jobs": 1, "probe_rows": 10}.items():
        if given[flag] is not None and given[flag] < least:
            name = f"--{flag.replace('_', '-')}"
            raise UsageError(
                f"{name} must be at least {least}, got {given[flag]}", hint=f"try {name} {least}"
            )
    if given["select"] not in SELECTIONS:
        raise UsageError(
            f"--select '{given['select']}' is unknown", hint=f"choose one of {', '.join(SELECTIONS)}"
        )
    _check_target(given)
    template, space, probe = None, None, given["probe"]
    if given["command"] is not None:
        if probe is not None:
            raise UsageError("--probe and --command both train", hint="use one of them")
        if given["space"] is None:
            raise UsageError("--command needs --space, the hyper-parameters to draw", hint="name a TOML file")
        if given["probe_rows"] is not None:
            raise UsageError("--probe-rows has no meaning with --command", hint="drop --probe-rows")
        template, space = Template.parse(given["command"]), read_space(given["space"])
    else:
        for flag in ("space", "timeout"):
            if given[flag] is not None:
                raise UsageError(f"--{flag} has no meaning without --command", hint=f"drop --{flag}")
        probe = probe or "mixed"
        probes.probe_space(probe)
        probes.check_available()
    if given["timeout"] is not None and not given["timeout"] > 0:
        raise UsageError(
            f"--timeout must be above 0, got {given['timeout']:g}", hint="for example --timeout 600"
        )
    strategies = parse_strategies(given["strategy"], with_curve=given["curve"])
    if given["folds"] is not None and not any(name.startswith("kfold-") for name in strategies):
        raise UsageError("--folds has no meaning without a k-fold strategy", hint="drop --folds")
    return EvaluationPlan(
        strategies=strategies,
        search=given["search"],
        repeats=given["repeats"],
        folds=given["folds"] or folds_for(checked.holdout),
        select=given["select"],
        refit=given["refit"],
        domains=tuple(dict.fromkeys(given["evaluation_domain"] or ())) or None,
        jobs=given["jobs"] or (1 if template else available_cores()),
        probe=probe,
        probe_rows=given["probe_rows"] or PROBE_ROWS,
        command=template,
        space=space,
        timeout=given["timeout"],
        curve=given["curve"],
    )


def _check_target(given: Mapping[str, Any]) -> None:
    check_target(given["target"])
    if given["target"] is not None and not given["curve"]:
        raise UsageError("--target is what --curve estimates the accuracy on", hint="add --curve")


def config_of(
    given: Mapping[str, Any], checked: CheckedOptions, plan: EvaluationPlan, dataset: Dataset
) -> dict[str, Any]:
    """All options as resolved."""
    return {
        "probe": plan.probe,
        "probe_rows": plan.probe_rows if plan.probe else None,
        "command": given["command"],
        "space": None if given["space"] is None else str(given["space"]),
        "timeout": plan.timeout,
        "search": plan.search,
        "repeats": plan.repeats,
        "evaluation_domain": list(plan.domains or ()),
        "strategies": list(plan.strategies),
        "folds": plan.folds,
        "select": plan.select,
        "curve": plan.curve,
        "target": None if dataset.target is None else dataset.target.name,
        "refit": plan.refit,
        "holdout": float(checked.holdout),
        "rounding": checked.rounding,
        "gamma": checked.gamma,
        "standardize": checked.standardize,
        "nystrom": checked.nystrom,
        "restarts": checked.restarts,
        "effort": checked.effort,
        "max_iter": checked.max_iter,
        "columns": list(dataset.feature_columns),
        "exclude": list(given["exclude"] or ()),
        "drop_invalid": given["drop_invalid"],
        "impute": given.get("impute", "none"),
        "distances": given.get("distances", False),
        "jobs": plan.jobs,
    }


def _write(
    report: EvaluationReport, directory: Path, features: Path, given: Mapping[str, Any], console: Console
) -> None:
    """Write the report, the page and the tables."""
    text = render_json(report)
    paths = [directory / "report.json"]
    with staged_file(paths[0], force=True) as file:
        file.write_text(text, encoding="utf-8")
    if given["html"]:
        paths.append(directory / "report.html")
        page = render_evaluation_page(report, title=features.name)
        with staged_file(paths[-1], force=True) as file:
            file.write_bytes(page.encode("utf-8", "backslashreplace"))
    if given["quiet"]:
        render_notices(report.warnings, console=console)
    else:
        render_evaluation(report, paths, console=console)
    if given["json"]:
        print_to_stdout(text, directory)
