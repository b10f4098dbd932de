"""What commands that read features and write a run directory have in common: the order of their steps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersplit_cli.cli.engine import layout_and_plan
from clustersplit_cli.cli.options import checked_options
from clustersplit_cli.cli.output import STDOUT, Output
from clustersplit_cli.engines.options import DASK, EngineOptions
from clustersplit_cli.errors import UsageError
from clustersplit_cli.progress import Progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from clustersplit_cli.data.dataset import ReadRequest
    from clustersplit_cli.options import CheckedOptions
    from clustersplit_cli.pipeline.context import PartitionOptions
    from clustersplit_cli.pipeline.local import LocalEngine
    from clustersplit_cli.pipeline.run import Run
    from clustersplit_cli.pipeline.sharded import ShardedEngine
    from clustersplit_cli.progress import Progress
    from clustersplit_cli.reports.summary import Report


@contextmanager
def read_and_work(
    request: ReadRequest,
    given: Mapping[str, Any],
    checked: CheckedOptions,
    output: Output,
    console: Console,
    into: PartitionOptions | None = None,
) -> Iterator[tuple[LocalEngine, dict[str, Any]]]:
    """Check everything that can be checked, read, and open the local engine; the plan is shown when it works.

    Yields
    ------
    The engine, and the options of reading and writing as they were resolved.
    """
    from clustersplit_cli.cli.console import progress_bar
    from clustersplit_cli.cli.request import inputs_of, reading_config
    from clustersplit_cli.data.readers import load, peek
    from clustersplit_cli.progress import Stopwatch
    from clustersplit_cli.reports.summary import Plan
    from clustersplit_cli.reports.terminal import render_plan

    watch = Stopwatch()
    with watch.step("import"):
        from clustersplit_cli.pipeline.context import plan as plan_for
        from clustersplit_cli.pipeline.local import opened_local
    output.prepare(inputs_of(request), console)
    with progress_bar(console, quiet=given["quiet"]) as progress:
        extent, plan = peek(request), None
        if not request.exclude:  # only reading tells how many rows are left
            plan = plan_for(extent, checked)  # a plan that does not fit should cost no time
        with watch.step("read"):
            dataset = load(request, progress)
        output.check(dataset)
        if plan is None or dataset.extent != extent:
            plan = plan_for(dataset.extent, checked)
        shown = plan is None or given["quiet"]

        def show(stage: str, done: int, total: int) -> None:
            """Show the plan when the work starts: by then everything has been checked."""
            nonlocal shown
            if not shown:
                console.print(render_plan(Plan(**vars(plan)), kernel=checked.kernel), soft_wrap=True)
                shown = True
            progress(stage, done, total)

        with opened_local(dataset, checked, into, memory=plan, watch=watch, progress=show) as engine:
            yield engine, reading_config(request, dataset, output)


def show_result(report: Report, paths: list[Path], *, quiet: bool, console: Console) -> None:
    """Print the summary and the paths written, or only the warnings."""
    from clustersplit_cli.reports.terminal import render_summary, render_warnings

    if quiet:
        render_warnings(report, console=console)
    else:
        render_summary(report, paths, console=console)


@contextmanager
def running_job(
    request: ReadRequest,
    given: Mapping[str, Any],
    checked: CheckedOptions,
    options: EngineOptions,
    reason: str,
    console: Console,
    progress: Progress | None = None,
) -> Iterator[ShardedEngine]:
    """Open the engine, show the plan, and show how far every pass is, unless somebody else does."""
    from clustersplit_cli.cli.console import progress_bar
    from clustersplit_cli.pipeline.sharded import opened_sharded
    from clustersplit_cli.progress import Stopwatch
    from clustersplit_cli.reports.summary import Plan
    from clustersplit_cli.reports.terminal import render_plan

    watch = Stopwatch()
    layout, plan = layout_and_plan(request, checked, options, reason)
    if progress is not None:
        with opened_sharded(layout, checked, options, plan, watch, progress) as engine:
            yield engine
        return
    with progress_bar(console, quiet=given["quiet"], time_left=True, rows=layout.n_rows) as shown:
        if not given["quiet"]:
            line = render_plan(Plan(**vars(plan.memory)), kernel=checked.kernel)
            console.print(f"{options.engine}: {line}", soft_wrap=True)
        with opened_sharded(layout, checked, options, plan, watch, shown) as engine:
            yield engine


@contextmanager
def counting_job(
    request: ReadRequest,
    checked: CheckedOptions,
    options: EngineOptions,
    reason: str,
    progress: Progress,
    *,
    hashing: bool = False,
) -> Iterator[ShardedEngine]:
    """Open the engine for passes that count and need no kernel."""
    from clustersplit_cli.data.row_groups import open_layout
    from clustersplit_cli.engines.plan import plan_survey
    from clustersplit_cli.pipeline.sharded import opened_sharded
    from clustersplit_cli.progress import Stopwatch

    layout = open_layout(request)
    plan = plan_survey(layout, budget=checked.budget, threads=checked.threads, reason=reason)
    with opened_sharded(layout, checked, options, plan, Stopwatch(), progress, hashing=hashing) as engine:
        yield engine


def run_split_in_pieces(
    request: ReadRequest,
    given: Mapping[str, Any],
    checked: CheckedOptions,
    options: EngineOptions,
    reason: str,
    output: Output,
) -> None:
    """Split a dataset whose rows are read in pieces, and write it."""
    from clustersplit_cli.pipeline.run import run

    def work(engine: ShardedEngine, config: Mapping[str, Any]) -> Run:
        return run(engine, config=config)

    _run_sharded(request, given, checked, options, reason, output, work)


def run_random_in_pieces(
    request: ReadRequest,
    given: Mapping[str, Any],
    checked: CheckedOptions,
    options: EngineOptions,
    reason: str,
    output: Output,
) -> None:
    """Draw a random split of a dataset whose rows are read in pieces, and write it."""
    from clustersplit_cli.pipeline.baseline import baseline, without_search

    def work(engine: ShardedEngine, config: Mapping[str, Any]) -> Run:
        ((_, found),) = baseline("random", replace(engine, searching=False), config=config)
        return found

    _run_sharded(request, given, without_search(checked), options, reason, output, work)


def _run_sharded(
    request: ReadRequest,
    given: Mapping[str, Any],
    checked: CheckedOptions,
    options: EngineOptions,
    reason: str,
    output: Output,
    work: Callable[[ShardedEngine, Mapping[str, Any]], Run],
) -> None:
    """Check what can be checked, open the engine, do the work, and write its result."""
    from clustersplit_cli.cli.console import stderr_console
    from clustersplit_cli.cli.request import inputs_of
    from clustersplit_cli.data.readers.naming import as_url

    if output.annotate is not None and as_url(request.path) is not None:
        raise UsageError("--annotate copies files, not URLs", hint="leave it out")
    if output.html:
        raise UsageError("--html needs all rows in memory", hint="leave it out, or use --engine local")
    if options.engine == DASK and not given["format"] and output.directory is not None:
        output = replace(output, formats=())
    console = stderr_console()
    local = [path for path in inputs_of(request) if as_url(path) is None]
    output.prepare(local, console)
    with running_job(request, given, checked, options, reason, console) as engine:
        config = reading_config_of(request, engine, output)
        result = work(engine, config)
        paths = write_in_pieces(output, engine, result)
    show_result(result.report, paths, quiet=given["quiet"], console=console)


def reading_config_of(request: ReadRequest, engine: ShardedEngine, output: Output) -> dict[str, Any]:
    """The options of reading and writing as they were resolved."""
    from clustersplit_cli.cli.request import reading_config
    from clustersplit_cli.pipeline.sharded import nameless

    return reading_config(request, nameless(engine.layout), output)


def write_in_pieces(output: Output, engine: ShardedEngine, result: Run) -> list[Path]:
    """Write everything that was asked for, without a list of all rows."""
    from contextlib import nullcontext

    from clustersplit_cli.cli.output import print_to_stdout
    from clustersplit_cli.data.annotate import staged_annotation
    from clustersplit_cli.data.side_files import SideNames, write_sides, write_stream
    from clustersplit_cli.reports.json_report import render_json

    text = render_json(result.report)
    by_workers = engine.executor.name == DASK and output.directory is not None
    needs_sides = bool(output.formats) or output.annotate is not None or output.directory is None
    sides = _sides(engine, result) if needs_sides else None
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
                also=(lambda folder: _rows_by_workers(engine, result, folder)) if by_workers else _nothing,
            )
        else:
            assert sides is not None
            write_stream(sides, sys.stdout.buffer)
    if output.json:
        print_to_stdout(text, output.directory)
    return paths + annotated


def _rows_by_workers(engine: ShardedEngine, result: Run, directory: Path) -> list[str]:
    """Have the workers write the side of every row; name the folder."""
    from clustersplit_cli.data.side_files import ROWS_FOLDER
    from clustersplit_cli.engines.finishing import WriteRows

    folder = (directory / ROWS_FOLDER).resolve()
    folder.mkdir()
    engine.executor.run(WriteRows(result.parts, folder))
    return [ROWS_FOLDER]


def _nothing(directory: Path) -> list[str]:
    return []


def _sides(engine: ShardedEngine, result: Run) -> NDArray[np.uint8]:
    import numpy as np

    from clustersplit_cli.engines.finishing import Sides

    return np.concatenate(engine.executor.run(Sides(result.parts)))


def run_named_parts(features: Path, given: Mapping[str, Any], holdout_said: bool) -> None:
    """Make the parts of `--parts`; options that only a split in two has are refused."""
    from clustersplit_cli.core.constraints.quotas import parse_parts
    from clustersplit_cli.pipeline.context import PartitionOptions

    parts = parse_parts(given["parts"])
    idle = {
        "--h": holdout_said,
        "--rounding": given["rounding"] is not None,
        "--bound": given["bound"] == "always",
    }
    if any(idle.values()):
        names = ", ".join(name for name, is_given in idle.items() if is_given)
        raise UsageError(f"{names} cannot be combined with --parts", hint="drop one or the other")
    _run_partition(features, given, PartitionOptions(parts=parts), "_split", {"parts": given["parts"]})


def run_folds(features: Path, given: Mapping[str, Any]) -> None:
    """Make the folds of `kfold`."""
    from clustersplit_cli.pipeline.context import PartitionOptions

    check_folds(given["k"])
    _run_partition(features, given, PartitionOptions(folds=given["k"]), "_folds", {"k": given["k"]})


def check_folds(k: int) -> None:
    """Refuse a number of folds that makes no sense."""
    if k < 2:
        raise UsageError(f"--k must be at least 2, got {k}", hint="for example --k 5")


def _run_partition(
    features: Path, given: Mapping[str, Any], into: PartitionOptions, suffix: str, options: Mapping[str, Any]
) -> None:
    """Check everything that can be checked, then read, part and write."""
    from clustersplit_cli.cli.console import stderr_console
    from clustersplit_cli.cli.request import read_request
    from clustersplit_cli.pipeline.run import run

    if given["out"] == STDOUT:
        raise UsageError(f"--out - cannot hold {into.what}", hint="name a directory with --out")
    checked = checked_options(given)
    output = Output.from_options(features, given, suffix)
    console = stderr_console()
    request = read_request(features, given)
    with read_and_work(request, given, checked, output, console, into) as (engine, config):
        result = run(engine, config={**config, **options}, with_portrait=output.html)
        dataset = engine.dataset
    paths = output.write_parts(dataset, result, folds=into.folds is not None)
    inside = {output.directory / name for name in result.parts.rows} if output.directory else set()
    shown = dict.fromkeys(path.parent if path.parent in inside else path for path in paths)
    show_result(result.report, list(shown), quiet=given["quiet"], console=console)
