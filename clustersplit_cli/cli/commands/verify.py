"""`clustersplit verify`: is a split what its report, or its user, says it is?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from clustersplit_cli.cli.console import progress_bar, stderr_console
from clustersplit_cli.cli.engine import choose_if_readable, engine_options, refuse_for_sizes
from clustersplit_cli.cli.options import checked_options, near_of, was_said
from clustersplit_cli.cli.output import Output, print_to_stdout
from clustersplit_cli.cli.replay import replayed_options
from clustersplit_cli.cli.request import read_request, reading_config
from clustersplit_cli.cli.run import opened_engine
from clustersplit_cli.data.destination import REPORT_NAME
from clustersplit_cli.data.readers import load
from clustersplit_cli.data.readers.fingerprint import content_of
from clustersplit_cli.data.readers.naming import shown
from clustersplit_cli.data.runs import report_file
from clustersplit_cli.engines.options import AUTO, LOCAL, STREAM
from clustersplit_cli.errors import (
    CheckFailedError,
    ClusterSplitError,
    InfeasibleError,
    InputError,
    UsageError,
)
from clustersplit_cli.pipeline.baseline import without_search
from clustersplit_cli.pipeline.local.context import BY_THRESHOLD
from clustersplit_cli.pipeline.local.engine import opened_local
from clustersplit_cli.reports.json_report import load_report
from clustersplit_cli.reports.readable import render_json
from clustersplit_cli.reports.verification import FAILED, OK, Check, render_verification, verification
from clustersplit_cli.verification.files import read_pair, stated_formats
from clustersplit_cli.verification.inputs import locate_inputs
from clustersplit_cli.verification.recorded import RecordedRun
from clustersplit_cli.verification.verify import verify_run, verify_split

if TYPE_CHECKING:
    from clustersplit_cli.cli.engine import ChosenEngine
    from clustersplit_cli.data.dataset import ReadRequest
    from clustersplit_cli.options import CheckedOptions
    from clustersplit_cli.progress import Progress

# A run directory has its own configuration; its files may have moved.
_MOVABLE = ("label_file", "domain_file", "metadata", "force_train", "force_val")
_ONLY_FOR_OTHERS = (
    *("train", "val", "columns", "label", "domain", "exclude", "drop_invalid", "impute"),
    *("holdout", "stratify", "tolerance", "rounding", "label_bins", "keep_together"),
)
_ONLY_FOR_RUNS = ("features", "target", "rerun")


def run(context: typer.Context) -> None:
    """Check a split by this tool or by another."""
    given = dict(context.params)
    said = {name for name in given if was_said(context, name)}
    by_others = given["train"] is not None or given["val"] is not None
    path, quiet = given["path"], given["quiet"]
    _refuse_mixture(said, by_others)
    near_of(given)
    console = stderr_console()
    with progress_bar(console, quiet=quiet) as progress:
        checks = _of_others(path, given, progress) if by_others else checks_of_run(path, given, progress)
        found = verification(str(path), tuple(checks))
    render_verification(found, console=console, failures_only=quiet)
    if given["json"]:
        print_to_stdout(render_json(found))
    if not found.passed:
        names = ", ".join(check.name for check in found.failures)
        raise CheckFailedError(f"{len(found.failures)} of {len(found.checks)} checks failed: {names}")


def _refuse_mixture(said: set[str], by_others: bool) -> None:
    """Refuse options that would have no effect."""
    if by_others and not {"train", "val"} <= said:
        missing = "--val" if "train" in said else "--train"
        raise UsageError(f"{missing} is missing", hint="give both --train FILE and --val FILE")
    idle = said & set(_ONLY_FOR_RUNS if by_others else _ONLY_FOR_OTHERS)
    if idle:
        flags = ", ".join(
            "--h" if name == "holdout" else f"--{name.replace('_', '-')}" for name in sorted(idle)
        )
        raise UsageError(
            f"{flags} has no effect here",
            hint="it belongs to the check of a run directory"
            if by_others
            else "a run directory has its own configuration; give --train and --val for a split by others",
        )


def _of_others(path: Path, given: Mapping[str, Any], progress: Progress) -> Iterator[Check]:
    """Check a split of which only the index files are known."""
    options = checked_options({name: given[name] for name in ("holdout", "tolerance", "rounding", "memory")})
    request = read_request(path, {**given, "id": None})
    files = read_pair(given["train"], given["val"])
    with opened_local(load(request, progress), options) as engine:
        yield from verify_split(files, engine, near=near_of(given))


def checks_of_run(directory: Path, given: Mapping[str, Any], progress: Progress) -> Iterator[Check]:
    """Check a run directory; what cannot even be read is a check that failed."""
    text = content_of(report_file(directory))
    try:
        report = load_report(text, source=REPORT_NAME)
        earlier = {**_unsaid(), **replayed_options(report["config"], directory / REPORT_NAME)}
        options = checked_options({**earlier, "memory": given["memory"], "threads": given["threads"]})
    except ClusterSplitError as error:
        yield Check("report", FAILED, error.message)
        return
    yield Check("report", OK, f"readable, schema version {report['schema_version']}")
    stated = read_request(Path(), earlier)
    moved = {name: given[name] for name in ("features", "target", *_MOVABLE)}
    located = locate_inputs(directory, report, stated, moved)
    output = Output(None, tuple(stated_formats(report["config"])), None, False, False, located.path)
    run = RecordedRun(directory, report, {}, any(path is not None for path in moved.values()))
    if run.is_baseline:
        options = without_search(options)
    elif run.is_sharded and options.certify != "never":
        options = replace(options, certify=BY_THRESHOLD)
    chosen = _engine(run, given, located, options)
    is_open = False
    try:
        only_sizes = run.into is not None and not run.is_sharded
        with opened_engine(
            located, options, chosen, progress, into=run.into, only_sizes=only_sizes
        ) as engine:
            is_open = True
            run = replace(run, config=reading_config(stated, engine.describe(), output))
            yield from verify_run(run, engine, rerun=given["rerun"], near=near_of(given))
    except (InputError, UsageError, InfeasibleError) as error:
        if is_open:  # the input has become one that such a run would refuse
            yield Check("recomputed results", FAILED, error.message)
        elif isinstance(error, InputError):
            yield run.index_files().check
            yield Check("input", FAILED, error.message)
        else:
            raise


def _engine(
    run: RecordedRun, given: Mapping[str, Any], located: ReadRequest, options: CheckedOptions
) -> ChosenEngine:
    """The engine to check with: what shards made is searched for again by shards."""
    engine, report = engine_options(given), run.report
    if given["rerun"] and engine.engine == AUTO and run.is_sharded:
        engine = replace(engine, engine=STREAM)  # finds what Dask finds; a search in memory takes other steps
    if run.into is not None and engine.engine == AUTO and run.is_sharded:
        engine = replace(engine, engine=STREAM)  # random parts in memory are other ones
    # Input that cannot be read is found, and said, by what follows.
    chosen = choose_if_readable(engine, located, options)
    if chosen.options.engine == LOCAL:
        return chosen
    if run.into is not None and not run.is_sharded:
        refuse_for_sizes(chosen.options, {f"--{name}": given[name] for name in ("rerun", "spill")})
    elif run.into is None and report["plan"]["geometry"] in ("dense", "low-rank"):
        raise UsageError(
            f"the run in {shown(run.directory)} has the exact kernel, or factors of it, "
            "which take all rows in one place",
            hint="use --engine local, with --memory enough for it",
        )
    passes = report["config"].get("passes")
    passes = passes if isinstance(passes, int) else None
    return chosen._replace(options=replace(chosen.options, passes=passes))


def _unsaid() -> dict[str, Any]:
    """Reading options that a run did not use."""
    nothing = dict.fromkeys(("columns", "label", "domain", "stratify", "exclude", "id", *_MOVABLE))
    return {**nothing, "drop_invalid": False, "impute": "none"}
