"""Commands whose rows are read in pieces: open the engine, do the work, write what came out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersplit_cli.cli.engine import layout_and_plan
from clustersplit_cli.cli.output import Output
from clustersplit_cli.engine_options import DASK, EngineOptions
from clustersplit_cli.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from clustersplit_cli.data.dataset import ReadRequest
    from clustersplit_cli.options import CheckedOptions
    from clustersplit_cli.pipeline.sharded import BlockwiseSplit, Job
    from clustersplit_cli.progress import Progress


@contextmanager
def running_job(
    request: ReadRequest,
    given: Mapping[str, Any],
    checked: CheckedOptions,
    options: EngineOptions,
    reason: str,
    console: Console,
    progress: Progress | None = None,
) -> Iterator[Job]:
    """Open the engine, show the plan, and show how far every pass is, unless somebody else does."""
    from clustersplit_cli.cli.console import progress_bar
    from clustersplit_cli.pipeline.sharded import opened_job
    from clustersplit_cli.reports.summary import Plan
    from clustersplit_cli.reports.terminal import render_plan
    from clustersplit_cli.stopwatch import Stopwatch

    watch = Stopwatch()
    layout, plan = layout_and_plan(request, checked, options, reason)
    if progress is not None:
        with opened_job(layout, checked, options, plan, watch, progress) as job:
            yield job
        return
    with progress_bar(console, quiet=given["quiet"], time_left=True, rows=layout.n_rows) as shown:
        if not given["quiet"]:
            line = render_plan(Plan(**vars(plan.memory)), kernel=checked.kernel)
            console.print(f"{options.engine}: {line}", soft_wrap=True)
        with opened_job(layout, checked, options, plan, watch, shown) as job:
            yield job


@contextmanager
def counting_job(
    request: ReadRequest,
    checked: CheckedOptions,
    options: EngineOptions,
    reason: str,
    progress: Progress,
) -> Iterator[Job]:
    """Open the engine for passes that count and need no kernel."""
    from clustersplit_cli.data.row_groups import open_layout
    from clustersplit_cli.engines.stream_plan import plan_survey
    from clustersplit_cli.pipeline.sharded import opened_job
    from clustersplit_cli.stopwatch import Stopwatch

    layout = open_layout(request)
    plan = plan_survey(layout, budget=checked.budget, threads=checked.threads, reason=reason)
    with opened_job(layout, checked, options, plan, Stopwatch(), progress) as job:
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
    from clustersplit_cli.pipeline.sharded import split_blockwise

    _run(request, given, checked, options, reason, output, split_blockwise)


def run_random_in_pieces(
    request: ReadRequest,
    given: Mapping[str, Any],
    checked: CheckedOptions,
    options: EngineOptions,
    reason: str,
    output: Output,
) -> None:
    """Draw a random split of a dataset whose rows are read in pieces, and write it."""
    from clustersplit_cli.pipeline.sharded import measure_blockwise

    def work(job: Job, config: Mapping[str, Any]) -> BlockwiseSplit:
        return measure_blockwise(job, None, {"strategy": "random", "leave": None, **config}, certified=False)

    plain = replace(checked, certify="never", bound="never")
    _run(request, given, plain, options, reason, output, work)


def _run(
    request: ReadRequest,
    given: Mapping[str, Any],
    checked: CheckedOptions,
    options: EngineOptions,
    reason: str,
    output: Output,
    work: Callable[[Job, Mapping[str, Any]], BlockwiseSplit],
) -> None:
    """Check what can be checked, open the engine, do the work, and write its result."""
    from clustersplit_cli.cli.commands.split import inputs_of
    from clustersplit_cli.cli.console import stderr_console
    from clustersplit_cli.cli.run import show_result
    from clustersplit_cli.data.readers.naming import as_url

    if output.annotate is not None and as_url(request.path) is not None:
        raise UsageError("--annotate copies files, not URLs", hint="leave it out")
    if output.html:
        raise UsageError("--html needs all rows in memory", hint="leave it out, or use --engine local")
    if options.engine == DASK and not given["format"] and output.directory is not None:
        output = replace(output, formats=())
    console = stderr_console()
    local = [path for path in inputs_of(request) if as_url(path) is None]
    for line in output.prepare(local):
        console.print(f"note: {line}", soft_wrap=True)
    with running_job(request, given, checked, options, reason, console) as job:
        config = reading_config_of(request, job, output)
        result = work(job, config)
        paths = write_in_pieces(output, job, result)
    show_result(result.report, paths, quiet=given["quiet"], console=console)


def reading_config_of(request: ReadRequest, job: Job, output: Output) -> dict[str, Any]:
    """The options of reading and writing as they were resolved."""
    from clustersplit_cli.cli.commands.split import reading_config
    from clustersplit_cli.pipeline.sharded import nameless

    return reading_config(request, nameless(job.layout), output)


def write_in_pieces(output: Output, job: Job, result: BlockwiseSplit) -> list[Path]:
    """Write everything that was asked for, without a list of all rows."""
    from contextlib import nullcontext

    from clustersplit_cli.cli.output import print_to_stdout
    from clustersplit_cli.data.annotate import staged_annotation
    from clustersplit_cli.data.side_files import SideNames, write_sides, write_stream
    from clustersplit_cli.reports.json_report import render_json

    text = render_json(result.report)
    by_workers = job.engine.name == DASK and output.directory is not None
    needs_sides = bool(output.formats) or output.annotate is not None or output.directory is None
    sides = _sides(job, result) if needs_sides else None
    annotated = [] if output.annotate is None else [output.annotate]
    writing: Any = nullcontext()
    if output.annotate is not None:
        assert sides is not None
        writing = staged_annotation(output.source, output.annotate, SideNames(sides), force=output.force)
    paths: list[Path] = []
    with writing:
        if output.directory is not None:
            paths = write_sides(
                output.directory,
                sides if output.formats else None,
                report=text,
                formats=output.formats,
                force=output.force,
                also=(lambda folder: _rows_by_workers(job, result, folder)) if by_workers else _nothing,
            )
    if output.directory is None:
        assert sides is not None
        write_stream(sides, sys.stdout.buffer)
    elif output.json:
        print_to_stdout(text)
    return paths + annotated


def _rows_by_workers(job: Job, result: BlockwiseSplit, directory: Path) -> list[str]:
    """Have the workers write the side of every row; name the folder."""
    from clustersplit_cli.data.row_sides import ROWS_FOLDER
    from clustersplit_cli.engines.finishing import WriteRows

    folder = (directory / ROWS_FOLDER).resolve()
    folder.mkdir()
    job.engine.run(WriteRows(result.rule, folder))
    return [ROWS_FOLDER]


def _nothing(directory: Path) -> list[str]:
    return []


def _sides(job: Job, result: BlockwiseSplit) -> NDArray[np.uint8]:
    import numpy as np

    from clustersplit_cli.engines.finishing import Sides

    return np.concatenate(job.engine.run(Sides(result.rule)))
