"""`--engine`: which engine a command uses, and the run of a split whose rows are read in pieces."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clustersplit_cli.cli import options as opt
from clustersplit_cli.cli.output import Output
from clustersplit_cli.engine_options import (
    AUTO,
    DASK,
    DEFAULT_PASSES,
    ENGINES,
    LOCAL,
    STREAM,
    EngineOptions,
)
from clustersplit_cli.errors import ClusterSplitError, MemoryPlanError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from clustersplit_cli.data.dataset import ReadRequest
    from clustersplit_cli.data.row_groups import Layout
    from clustersplit_cli.engines.stream_plan import StreamPlan
    from clustersplit_cli.options import CheckedOptions
    from clustersplit_cli.scaling import BlockwiseSplit, Job

SCALE = "Scale"
Engine = Annotated[
    str,
    opt.choice(
        "--engine",
        SCALE,
        "Where rows are held: `local` in memory, `stream` on disk, `dask` on a cluster; `auto`: stream if "
        "memory is too small.",
        *ENGINES,
    ),
]
Passes = Annotated[
    int | None,
    typer.Option(
        "--passes",
        rich_help_panel=SCALE,
        metavar="N",
        parser=opt.integer("--passes", DEFAULT_PASSES),
        help="Most passes over all rows that refine the split, with stream and dask.",
        show_default=str(DEFAULT_PASSES),
    ),
]
Spill = Annotated[
    str | None,
    typer.Option(
        "--spill",
        rich_help_panel=SCALE,
        metavar="DIR",
        help="Where stream keeps what does not fit memory; `none` computes it again on every pass.",
        show_default="the system's temporary directory",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        rich_help_panel=SCALE,
        metavar="ADDRESS",
        help="Dask scheduler, such as tcp://host:8786; needs --engine dask and clustersplit[dask].",
        show_default="a cluster on this machine",
    ),
]


def engine_options(given: Mapping[str, Any]) -> EngineOptions:
    """Read and check the options of the engine."""
    names = ("engine", "passes", "spill", "scheduler")
    found = EngineOptions(**{name: given[name] for name in names if name in given})
    found.check()
    return found


def refuse_engine(options: EngineOptions, command: str) -> None:
    """Say that a command has all its rows in memory."""
    if options.engine not in (AUTO, LOCAL):
        raise UsageError(
            f"{command} keeps all rows in memory and has no --engine {options.engine}",
            hint="leave --engine out, or take a sample of the rows",
        )


def settle_engine(
    options: EngineOptions, request: ReadRequest, checked: CheckedOptions
) -> tuple[EngineOptions, str]:
    """Decide which engine `auto` is, and say why it is not the local one.

    Raises
    ------
    MemoryPlanError
        If the rows do not fit memory and cannot be read in pieces either.
    """
    from dataclasses import replace

    from clustersplit_cli import pipeline
    from clustersplit_cli.data.readers import peek
    from clustersplit_cli.data.readers.naming import as_url
    from clustersplit_cli.data.row_groups import open_layout

    is_remote = as_url(request.path) is not None
    if options.engine == LOCAL and is_remote:
        raise UsageError(
            "the local engine reads files, not URLs", hint="use --engine stream, or copy the files first"
        )
    if options.engine != AUTO:
        return options, f"--engine {options.engine} was asked for"
    if is_remote:
        return replace(options, engine=STREAM), "a URL is read in pieces"
    try:
        pipeline.plan(peek(request), checked)
    except MemoryPlanError as error:
        try:
            open_layout(request)
        except ClusterSplitError:
            raise error from None
        if checked.nystrom == "off" or checked.solver == "cbc" or checked.certify == "always":
            raise
        return replace(options, engine=STREAM), "read in pieces: all rows do not fit memory"
    return replace(options, engine=LOCAL), ""


def layout_and_plan(
    request: ReadRequest, checked: CheckedOptions, options: EngineOptions, reason: str
) -> tuple[Layout, StreamPlan]:
    """Open the dataset and plan for it; refuse what needs all rows in memory."""
    from clustersplit_cli.data.row_groups import open_layout
    from clustersplit_cli.engines.stream_plan import landmarks_of, plan_stream

    needing = {"--solver cbc": checked.solver == "cbc", "--certify always": checked.certify == "always"}
    for name, given in needing.items():
        if given:
            raise UsageError(f"{name} needs all rows in memory", hint="leave it out, or use --engine local")
    landmarks = landmarks_of(checked.nystrom, is_linear=checked.is_linear)
    layout = open_layout(request, landmarks or 0)
    plan = plan_stream(layout, landmarks, budget=checked.budget, threads=checked.threads, reason=reason)
    return layout, plan


@contextmanager
def running_job(
    request: ReadRequest,
    given: Mapping[str, Any],
    checked: CheckedOptions,
    options: EngineOptions,
    reason: str,
    console: Console,
) -> Iterator[Job]:
    """Open the engine, show the plan, and show how far every pass is."""
    from clustersplit_cli.cli.console import progress_bar
    from clustersplit_cli.reports.summary import Plan
    from clustersplit_cli.reports.terminal import render_plan
    from clustersplit_cli.scaling import opened_job
    from clustersplit_cli.stopwatch import Stopwatch

    watch = Stopwatch()
    layout, plan = layout_and_plan(request, checked, options, reason)
    with progress_bar(console, quiet=given["quiet"], time_left=True, unit="rows") as progress:
        if not given["quiet"]:
            line = render_plan(Plan(**vars(plan.memory)), kernel=checked.kernel)
            console.print(f"{options.engine}: {line}", soft_wrap=True)
        with opened_job(layout, checked, options, plan, watch, progress) as job:
            yield job


def run_split_in_pieces(
    request: ReadRequest,
    given: Mapping[str, Any],
    checked: CheckedOptions,
    options: EngineOptions,
    reason: str,
    output: Output,
) -> None:
    """Split a dataset whose rows are read in pieces, and write it."""
    from clustersplit_cli.cli.console import stderr_console
    from clustersplit_cli.cli.session import show_result
    from clustersplit_cli.cli.split import inputs_of
    from clustersplit_cli.scaling import split_blockwise

    if output.html:
        raise UsageError("--html needs all rows in memory", hint="leave it out, or use --engine local")
    console = stderr_console()
    for line in output.prepare(inputs_of(request)):
        console.print(f"note: {line}", soft_wrap=True)
    with running_job(request, given, checked, options, reason, console) as job:
        config = reading_config_of(request, job, output)
        result = split_blockwise(job, config)
        paths = write_in_pieces(output, job, result)
    show_result(result.report, paths, quiet=given["quiet"], console=console)


def reading_config_of(request: ReadRequest, job: Job, output: Output) -> dict[str, Any]:
    """The options of reading and writing as they were resolved."""
    from clustersplit_cli.cli.split import reading_config
    from clustersplit_cli.scaling import nameless

    return reading_config(request, nameless(job.layout), output)


def write_in_pieces(output: Output, job: Job, result: BlockwiseSplit) -> list[Path]:
    """Write everything that was asked for, without a list of all rows."""
    from contextlib import nullcontext

    from clustersplit_cli.cli.output import print_to_stdout
    from clustersplit_cli.data.annotate import staged_annotation
    from clustersplit_cli.data.side_files import SideNames, write_sides, write_stream
    from clustersplit_cli.reports.json_report import render_json

    text = render_json(result.report)
    sides = _sides(job, result)
    annotated = [] if output.annotate is None else [output.annotate]
    writing: Any = nullcontext()
    if output.annotate is not None:
        writing = staged_annotation(output.source, output.annotate, SideNames(sides), force=output.force)
    paths: list[Path] = []
    with writing:
        if output.directory is not None:
            paths = write_sides(
                output.directory, sides, report=text, formats=output.formats, force=output.force
            )
    if output.directory is None:
        write_stream(sides, sys.stdout.buffer)
    elif output.json:
        print_to_stdout(text)
    return paths + annotated


def _sides(job: Job, result: BlockwiseSplit) -> NDArray[np.uint8]:
    import numpy as np

    from clustersplit_cli.engines.tasks import Sides

    return np.concatenate(job.engine.run(Sides(result.rule)))


__all__ = ["DASK", "Engine", "Passes", "Scheduler", "Spill"]
