"""What commands that read features and write a run directory have in common: the order of their steps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clustersplit_cli.cli.console import progress_bar, stderr_console
from clustersplit_cli.cli.engine import (
    ChosenEngine,
    choose_for_reading,
    choose_if_readable,
    engine_options,
    layout_and_plan,
    refuse_sharded,
)
from clustersplit_cli.cli.options import checked_options
from clustersplit_cli.cli.output import STDOUT, Output, print_to_stdout
from clustersplit_cli.cli.request import inputs_of, read_request, reading_config
from clustersplit_cli.data.readers import load
from clustersplit_cli.data.readers.naming import as_url
from clustersplit_cli.data.row_groups import open_layout
from clustersplit_cli.engines.options import DASK, LOCAL, EngineOptions
from clustersplit_cli.engines.plan import plan_survey
from clustersplit_cli.errors import UsageError
from clustersplit_cli.pipeline.context import PartitionOptions
from clustersplit_cli.pipeline.context import plan as plan_for
from clustersplit_cli.pipeline.local.engine import opened_local
from clustersplit_cli.pipeline.run import run
from clustersplit_cli.progress import Progress, Stopwatch
from clustersplit_cli.reports.json_report import render_json
from clustersplit_cli.reports.summary import Plan
from clustersplit_cli.reports.terminal import render_plan, render_summary, render_warnings

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import Console

    from clustersplit_cli.data.dataset import Dataset, ReadRequest
    from clustersplit_cli.options import CheckedOptions
    from clustersplit_cli.pipeline.engine import Engine
    from clustersplit_cli.pipeline.run import Run
    from clustersplit_cli.pipeline.sharded.engine import ShardedEngine
    from clustersplit_cli.progress import Progress
    from clustersplit_cli.reports.summary import Report


@dataclass(frozen=True)
class Opened:
    """An engine that has the rows, and what a command needs besides: the same on every engine.

    Attributes
    ----------
    config : the options of reading and writing as they were resolved.
    write : writes a run to an output; returns the paths of the files.
    """

    engine: Engine[Any, Any]
    config: dict[str, Any]
    write: Callable[[Output, Run], list[Path]]


@contextmanager
def opened(
    request: ReadRequest,
    given: Mapping[str, Any],
    checked: CheckedOptions,
    chosen: ChosenEngine,
    output: Output,
    into: PartitionOptions | None = None,
    *,
    read: Callable[[ReadRequest, Progress], Dataset] | None = None,
    prepared: bool = False,
) -> Iterator[Opened]:
    """Check everything that can be checked, and open the engine that was chosen.

    Parameters
    ----------
    read : reads the rows for the local engine.
    prepared : whether the output has been.
    """
    console = stderr_console()
    is_local = chosen.options.engine == LOCAL
    if not is_local:
        if output.annotate is not None and as_url(request.path) is not None:
            raise UsageError("--annotate copies files, not URLs", hint="leave it out")
        refuse_sharded({"--html": output.html})
        if chosen.options.engine == DASK and not given["format"] and output.directory is not None:
            output = replace(output, formats=())
    if not prepared:
        output.prepare([path for path in inputs_of(request) if as_url(path) is None], console)
    if is_local:
        with _opened_local(request, given, checked, chosen, output, console, into, read) as found:
            yield found
        return
    with running_job(request, given, checked, chosen.options, chosen.reason, console) as sharded:
        config = reading_config_of(request, sharded, output)
        formats = output.formats
        yield Opened(
            sharded,
            config,
            lambda output, result: write_sharded(replace(output, formats=formats), sharded, result),
        )


@contextmanager
def _opened_local(
    request: ReadRequest,
    given: Mapping[str, Any],
    checked: CheckedOptions,
    chosen: ChosenEngine,
    output: Output,
    console: Console,
    into: PartitionOptions | None,
    read: Callable[[ReadRequest, Progress], Dataset] | None,
) -> Iterator[Opened]:
    """Read, and open the local engine; the plan is shown when the work starts."""
    watch = Stopwatch()
    with progress_bar(console, quiet=given["quiet"]) as progress:
        with watch.step("read"):
            dataset = (read or load)(request, progress)
        output.check(dataset)
        plan = chosen.memory
        if plan is None or dataset.extent != chosen.extent:  # only reading tells how many rows are left
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
            config = reading_config(request, dataset, output)
            is_folds = into is not None and into.folds is not None
            write = partial(Output.write, dataset=dataset, is_folds=is_folds)
            yield Opened(engine, config, lambda output, result: write(output, result=result))


def find_and_write(
    request: ReadRequest,
    given: Mapping[str, Any],
    checked: CheckedOptions,
    output: Output,
    into: PartitionOptions | None = None,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Split or part rows wherever an engine has them, write the result and show it."""
    needing = {} if into is None else {"kfold" if into.folds is not None else "split --parts": True}
    chosen = choose_if_readable(engine_options(given), request, checked, needing)
    with opened(request, given, checked, chosen, output, into) as found:
        result = run(found.engine, config={**found.config, **(options or {})}, with_portrait=output.html)
        paths = found.write(output, result)
    shown = dict.fromkeys(_shown(path, output) for path in paths)
    show_result(result.report, list(shown), quiet=given["quiet"], console=stderr_console())


def _shown(path: Path, output: Output) -> Path:
    """Of a file in a folder of its own, as those of folds are, the folder."""
    directory = output.directory
    return path.parent if directory is not None and path.parent.parent == directory else path


def show_result(report: Report, paths: list[Path], *, quiet: bool, console: Console) -> None:
    """Print the summary and the paths written, or only the warnings."""
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
    from clustersplit_cli.pipeline.sharded.engine import opened_sharded

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
    from clustersplit_cli.pipeline.sharded.engine import opened_sharded

    layout = open_layout(request)
    plan = plan_survey(layout, budget=checked.budget, threads=checked.threads, reason=reason)
    with opened_sharded(layout, checked, options, plan, Stopwatch(), progress, hashing=hashing) as engine:
        yield engine


@contextmanager
def counting_engine(
    request: ReadRequest, checked: CheckedOptions, options: EngineOptions, progress: Progress
) -> Iterator[Engine[Any, Any]]:
    """Open an engine for counting, which needs no kernel."""
    chosen, reason = choose_for_reading(options, request, checked)
    if chosen.engine == LOCAL:
        with opened_local(load(request, progress), checked, progress=progress) as engine:
            yield engine
    else:
        with counting_job(request, checked, chosen, reason, progress) as sharded:
            yield sharded


def reading_config_of(request: ReadRequest, engine: ShardedEngine, output: Output) -> dict[str, Any]:
    """The options of reading and writing as they were resolved."""
    from clustersplit_cli.pipeline.sharded.engine import nameless

    return reading_config(request, nameless(engine.layout), output)


def write_sharded(output: Output, engine: ShardedEngine, result: Run) -> list[Path]:
    """Write everything that was asked for, without a list of all rows."""
    from clustersplit_cli.data.annotate import staged_annotation
    from clustersplit_cli.data.side_files import SideNames, write_sides, write_stream

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
    from clustersplit_cli.engines.tasks import WriteRows

    folder = (directory / ROWS_FOLDER).resolve()
    folder.mkdir()
    engine.executor.run(WriteRows(result.parts, folder))
    return [ROWS_FOLDER]


def _nothing(directory: Path) -> list[str]:
    return []


def _sides(engine: ShardedEngine, result: Run) -> NDArray[np.uint8]:
    from clustersplit_cli.engines.tasks import Sides

    return np.concatenate(engine.executor.run(Sides(result.parts)))


def named_parts(given: Mapping[str, Any], *, holdout_said: bool) -> PartitionOptions:
    """Read `--parts`; options that only a split in two has are refused."""
    into = PartitionOptions.of_text(given["parts"])
    idle = {
        "--h": holdout_said,
        "--rounding": given["rounding"] is not None,
        "--bound": given.get("bound") == "always",
    }
    if any(idle.values()):
        names = ", ".join(name for name, is_given in idle.items() if is_given)
        raise UsageError(f"{names} cannot be combined with --parts", hint="drop one or the other")
    return into


def folds(given: Mapping[str, Any]) -> PartitionOptions:
    """Read `--k`; refuse a number of folds that makes no sense."""
    if given["k"] < 2:
        raise UsageError(f"--k must be at least 2, got {given['k']}", hint="for example --k 5")

    return PartitionOptions(folds=given["k"])


def run_partition(given: Mapping[str, Any], into: PartitionOptions) -> None:
    """Check everything that can be checked, then read, part and write."""
    features, is_folds = given["features"], into.folds is not None
    if given["out"] == STDOUT:
        raise UsageError(f"--out - cannot hold {into.what}", hint="name a directory with --out")
    output = Output.from_options(features, given, "_folds" if is_folds else "_split")
    options = {"k": given["k"]} if is_folds else {"parts": given["parts"]}
    find_and_write(read_request(features, given), given, checked_options(given), output, into, options)
