"""`clustersplit verify`: is a split what its report, or its user, says it is?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from clustersplit_cli.cli import engine as scale
from clustersplit_cli.cli import run as pieces
from clustersplit_cli.cli.console import progress_bar, stderr_console
from clustersplit_cli.cli.options import checked_options, was_said
from clustersplit_cli.cli.output import Output, print_to_stdout
from clustersplit_cli.cli.replay import replayed_options
from clustersplit_cli.cli.request import read_request, reading_config
from clustersplit_cli.data.destination import REPORT_NAME
from clustersplit_cli.data.readers import load
from clustersplit_cli.data.readers.fingerprint import content_of
from clustersplit_cli.data.readers.naming import shown
from clustersplit_cli.data.runs import is_partition_run, report_file
from clustersplit_cli.engines.options import AUTO, LOCAL, STREAM
from clustersplit_cli.errors import (
    CheckFailedError,
    ClusterSplitError,
    InfeasibleError,
    InputError,
    UsageError,
)
from clustersplit_cli.reports.json_report import load_report, render_json
from clustersplit_cli.reports.verification import FAILED, OK, Check, render_verification, verification
from clustersplit_cli.verification.files import IndexFiles, read_pair, read_run_indices, stated_formats
from clustersplit_cli.verification.in_pieces import verify_run_in_pieces
from clustersplit_cli.verification.inputs import locate_inputs
from clustersplit_cli.verification.parts import PartedClaim, verify_parts
from clustersplit_cli.verification.parts_in_pieces import verify_parts_in_pieces
from clustersplit_cli.verification.run import Claim, verify_run, verify_split

if TYPE_CHECKING:
    from clustersplit_cli.data.dataset import ReadRequest
    from clustersplit_cli.engines.options import EngineOptions
    from clustersplit_cli.options import CheckedOptions
    from clustersplit_cli.progress import Progress

# A run directory has its own configuration; its files may have moved.
_MOVABLE = ("label_file", "domain_file", "metadata", "force_train", "force_val")
_ONLY_FOR_OTHERS = (
    *("train", "val", "columns", "label", "domain", "exclude", "drop_invalid"),
    *("holdout", "stratify", "tolerance", "rounding", "label_bins", "keep_together"),
)
_ONLY_FOR_RUNS = ("features", "rerun")


def run(context: typer.Context) -> None:
    """Check a split by this tool or by another."""
    given = dict(context.params)
    said = {name for name in given if was_said(context, name)}
    by_others = given["train"] is not None or given["val"] is not None
    path, quiet = given["path"], given["quiet"]
    _refuse_mixture(said, by_others)
    console = stderr_console()
    with progress_bar(console, quiet=quiet) as progress:
        checks = _of_others(path, given, progress) if by_others else _of_run(path, given, progress)
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
    indices = read_pair(given["train"], given["val"])
    yield from verify_split(indices, load(request, progress), options)


def _of_run(directory: Path, given: Mapping[str, Any], progress: Progress) -> Iterator[Check]:
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
    formats = stated_formats(report["config"])
    stated = read_request(Path(), earlier)
    located = locate_inputs(
        directory, report, stated, {name: given[name] for name in ("features", *_MOVABLE)}
    )
    parted_run = is_partition_run(report["config"])
    engine = _engine(given, earlier)
    if parted_run and engine.engine not in (AUTO, LOCAL):
        yield from _parts_in_pieces(directory, report, located, options, engine, given, progress)
        return
    if not parted_run:
        # Input that cannot be read is found, and told, by what follows.
        engine, reason = scale.choose_if_readable(engine, located, options)[:2]
        if engine.engine != LOCAL:
            yield from _in_pieces(
                directory, report, located, stated, options, engine, reason, given, progress
            )
            return
    try:
        dataset = load(located, progress)
    except InputError as error:
        if not parted_run:
            yield read_run_indices(directory, formats).check
        yield Check("input", FAILED, error.message)
        return
    config = reading_config(stated, dataset, Output(None, tuple(formats), None, False, False, located.path))
    how, moved = {"rerun": given["rerun"], "progress": progress}, _is_moved(given)
    try:
        if parted_run:
            parted = PartedClaim(directory, report, {**config, **_made(report)}, formats, moved)
            yield from verify_parts(parted, dataset, options, **how)
        else:
            claim = Claim(directory, report, config, read_run_indices(directory, formats), moved)
            yield from verify_run(claim, dataset, options, **how)
    except (
        InputError,
        UsageError,
        InfeasibleError,
    ) as error:  # the input has become one that such a run would refuse
        yield Check("recomputed results", FAILED, error.message)


def _engine(given: Mapping[str, Any], earlier: Mapping[str, Any]) -> EngineOptions:
    """The engine to check with: what was read in pieces is searched for again in pieces."""
    engine = scale.engine_options(given)
    if given["rerun"] and engine.engine == AUTO and earlier.get("engine", AUTO) != AUTO:
        return replace(engine, engine=STREAM)  # finds what Dask finds; a search in memory takes other steps
    return engine


def _in_pieces(
    directory: Path,
    report: Mapping[str, Any],
    located: ReadRequest,
    stated: ReadRequest,
    options: CheckedOptions,
    engine: EngineOptions,
    reason: str,
    given: Mapping[str, Any],
    progress: Progress,
) -> Iterator[Check]:
    """Check a run directory whose rows are read in pieces."""
    if report["plan"]["geometry"] == "dense":
        raise UsageError(
            f"the run in {shown(directory)} has the exact kernel, which takes all rows in one place",
            hint="use --engine local, with --memory enough for it",
        )
    output = Output(None, tuple(stated_formats(report["config"])), None, False, False, located.path)
    passes = report["config"].get("passes")
    engine = replace(engine, passes=passes if isinstance(passes, int) else None)
    with pieces.running_job(located, given, options, engine, reason, stderr_console(), progress) as sharded:
        config = pieces.reading_config_of(stated, sharded, output)
        claim = Claim(directory, report, config, IndexFiles({}, ()), _is_moved(given))
        yield from verify_run_in_pieces(claim, sharded, rerun=given["rerun"])


def _parts_in_pieces(
    directory: Path,
    report: Mapping[str, Any],
    located: ReadRequest,
    options: CheckedOptions,
    engine: EngineOptions,
    given: Mapping[str, Any],
    progress: Progress,
) -> Iterator[Check]:
    """Check what sizes tell of folds or parts whose rows are read in pieces."""
    idle = [f"--{name}" for name in ("rerun", "spill") if given[name]]
    if idle:
        raise UsageError(
            f"{idle[0]} has no effect on folds and parts with --engine {engine.engine}, which only counts",
            hint="leave it out, or use --engine local",
        )
    claim = PartedClaim(directory, report, _made(report), stated_formats(report["config"]), _is_moved(given))
    with pieces.counting_job(located, options, engine, "", progress, hashing=True) as sharded:
        yield from verify_parts_in_pieces(claim, sharded)


def _is_moved(given: Mapping[str, Any]) -> bool:
    """Whether the user says where some of the input is now."""
    return any(given[name] is not None for name in ("features", *_MOVABLE))


def _made(report: Mapping[str, Any]) -> dict[str, Any]:
    """The options that say into what rows were parted."""
    return {name: report["config"][name] for name in ("k", "parts") if name in report["config"]}


def _unsaid() -> dict[str, Any]:
    """Reading options that a run did not use."""
    nothing = dict.fromkeys(("columns", "label", "domain", "stratify", "exclude", "id", *_MOVABLE))
    return {**nothing, "drop_invalid": False}
