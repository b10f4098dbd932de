"""What commands that read features and write a run directory have in common: the order of their steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from clustersplit_cli.cli.output import Output
from clustersplit_cli.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console

    from clustersplit_cli.data.dataset import Dataset, ReadRequest
    from clustersplit_cli.options import CheckedOptions
    from clustersplit_cli.reports.summary import Report
    from clustersplit_cli.stopwatch import Stopwatch

Result = TypeVar("Result")
Work = Callable[["Dataset", dict[str, Any], "Stopwatch", Progress], Result]


def read_and_work(
    request: ReadRequest,
    given: Mapping[str, Any],
    checked: CheckedOptions,
    output: Output,
    console: Console,
    work: Work[Result],
) -> tuple[Dataset, Result]:
    """Check everything that can be checked, read, and do the work; the plan is shown when it starts.

    Parameters
    ----------
    work : gets the dataset, the options of reading and writing as resolved, a stopwatch, and a progress.
    """
    from clustersplit_cli.cli.commands.split import inputs_of, reading_config
    from clustersplit_cli.cli.console import progress_bar
    from clustersplit_cli.data.dataset import Extent
    from clustersplit_cli.data.readers import load, peek
    from clustersplit_cli.pipeline.holding import plan as plan_for
    from clustersplit_cli.reports.summary import Plan
    from clustersplit_cli.reports.terminal import render_plan
    from clustersplit_cli.stopwatch import Stopwatch

    watch = Stopwatch()
    for line in output.prepare(inputs_of(request)):
        console.print(f"note: {line}", soft_wrap=True)
    with progress_bar(console, quiet=given["quiet"]) as progress:
        extent = peek(request)
        if not request.exclude:  # only reading tells how many rows are left
            plan_for(extent, checked)  # a plan that does not fit should cost no time
        with watch.step("read"):
            dataset = load(request, progress)
        output.check(dataset)
        n, d = dataset.features.shape
        plan = plan_for(Extent(n, d, dataset.features.dtype.itemsize), checked)
        shown = plan is None or given["quiet"]

        def show(stage: str, done: int, total: int) -> None:
            """Show the plan when the work starts: by then everything has been checked."""
            nonlocal shown
            if not shown:
                console.print(render_plan(Plan(**vars(plan)), kernel=checked.kernel), soft_wrap=True)
                shown = True
            progress(stage, done, total)

        return dataset, work(dataset, reading_config(request, dataset, output), watch, show)


def show_result(report: Report, paths: list[Path], *, quiet: bool, console: Console) -> None:
    """Print the summary and the paths written, or only the warnings."""
    from clustersplit_cli.reports.terminal import render_summary, render_warnings

    if quiet:
        render_warnings(report, console=console)
    else:
        render_summary(report, paths, console=console)
