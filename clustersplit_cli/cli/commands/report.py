"""`clustersplit report`: an earlier run as a page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from clustersplit_cli.cli.console import progress_bar, stderr_console
from clustersplit_cli.cli.replay import earlier_run, reproducing_command
from clustersplit_cli.data.destination import PAGE_NAME
from clustersplit_cli.data.publish import check_file_destination, recover, staged_file
from clustersplit_cli.data.readers import load
from clustersplit_cli.data.runs import SplitRun, is_partition_run, load_parts, load_run
from clustersplit_cli.errors import InputError
from clustersplit_cli.pipeline.local.engine import opened_local
from clustersplit_cli.reports.html import render_html
from clustersplit_cli.reports.html_page import check_available
from clustersplit_cli.verification.recorded import recorded_partition, report_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from clustersplit_cli.data.dataset import Dataset
    from clustersplit_cli.data.runs import PartitionRun


def run(context: typer.Context) -> None:
    """Draw an earlier run."""
    check_available()
    given = dict(context.params)
    directory, quiet = given["directory"], given["quiet"]
    target = given["output"] or directory / PAGE_NAME
    console = stderr_console()
    for line in recover(target):
        console.print(f"note: {line}", soft_wrap=True)
    content = report_of(directory)
    run = (load_parts if is_partition_run(content["config"]) else load_run)(directory, content)
    check_file_destination(target, force=given["force"])
    with progress_bar(console, quiet=quiet) as progress:
        page = _page(run, given, progress)
        with staged_file(target, force=given["force"]) as file:
            file.write_bytes(page.encode("utf-8", "backslashreplace"))
    if not quiet:
        console.print(f"wrote {target}", soft_wrap=True, markup=False)


def _page(run: SplitRun | PartitionRun, given: Mapping[str, Any], progress: Any) -> str:
    """Compute what the page draws and render it."""
    content = run.report
    earlier = earlier_run(run.directory, content, given)
    dataset = load(earlier.request, progress)
    refuse_other_input(content, dataset)
    parts = [run.train, run.val] if isinstance(run, SplitRun) else list(run.parts.values())
    _refuse_other_rows(run.directory, parts, dataset)
    labels = np.zeros(dataset.n_rows, np.int64)
    for part, rows in enumerate(parts):
        labels[rows] = part
    into = recorded_partition(content["config"])
    with opened_local(dataset, earlier.options, into, progress=progress) as engine:
        context = engine.prepare(engine.survey())
        portrait = context.portrait(context.measure(labels[dataset.rows]))
    source = given["features"] or earlier.stated_features
    command = reproducing_command(content, source, run.directory)
    return render_html(content, portrait, title=source.name, command=command)


def refuse_other_input(report: Mapping[str, Any], dataset: Dataset) -> None:
    """A map of other rows under the old numbers would mislead."""
    then = sorted((file["role"], file["sha256"]) for file in report["input"]["files"])
    now = sorted((file.role, file.sha256) for file in dataset.files)
    if then != now:
        changed = next((file.path for file in dataset.files if (file.role, file.sha256) not in then), None)
        what = f"{changed} is not the file" if changed else "these are not the files"
        raise InputError(
            f"{what} that the run was made from",
            hint="name the original with --features, or make the split again",
        )


def _refuse_other_rows(directory: Path, parts: list[NDArray[np.int64]], dataset: Dataset) -> None:
    together = np.sort(np.concatenate(parts))
    if not (all(map(len, parts)) and np.array_equal(together, dataset.rows)):
        raise InputError(
            f"the index files of {directory} do not describe a split of the input",
            hint=f"see what is wrong with clustersplit verify {directory}",
        )
