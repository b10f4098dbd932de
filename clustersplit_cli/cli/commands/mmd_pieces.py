"""`clustersplit mmd --engine`: the sides of a split whose rows are read in pieces."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from clustersplit_cli.cli.engine import refuse_local_urls
from clustersplit_cli.cli.pieces import running_job
from clustersplit_cli.engine_options import AUTO, LOCAL, STREAM, EngineOptions
from clustersplit_cli.errors import ClusterSplitError, InputError, MemoryPlanError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from clustersplit_cli.cli.commands.mmd_input import MMDInput
    from clustersplit_cli.pipeline.mmd_in_pieces import GivenSides
    from clustersplit_cli.reports.mmd_summary import MMDReport


def settled_for_mmd(task: MMDInput, options: EngineOptions) -> EngineOptions:
    """Decide which engine `auto` is: stream for URLs, and for the sides of a split that do not fit memory.

    What cannot be read in pieces is left to the local engine, which says what does not fit.
    """
    from clustersplit_cli.data.row_groups import open_layout

    refuse_local_urls(options, is_remote=task.is_remote)
    if options.engine != AUTO:
        return options
    if task.is_remote:
        return replace(options, engine=STREAM)
    try:
        task.check_memory()
    except MemoryPlanError:
        try:
            _refuse_others(task)
            open_layout(task.request())
        except ClusterSplitError:
            return replace(options, engine=LOCAL)
        if task.checked.nystrom != "off":
            return replace(options, engine=STREAM)
    except InputError:  # told when it is read
        pass
    return replace(options, engine=LOCAL)


def _refuse_others(task: MMDInput) -> None:
    """Refuse what is not about the sides of one split, or is more than their MMD."""
    given = task.given
    in_memory = {
        "several files": len(given["features"]) > 1,
        "--by": given["by"] is not None,
        "--within": given["within"] is not None,
        "--evaluation": given["evaluation"] is not None,
        "--evaluation-domain": given["evaluation_domain"] is not None,
        "--estimator unbiased": given["estimator"] != "biased",
        "--exact": given["exact"],
        "--permutations": given["permutations"] > 0,
        "--witness": given["witness"] is not None,
    }
    for name, is_given in in_memory.items():
        if is_given:
            raise UsageError(f"{name} needs all rows in memory", hint="leave it out, or use --engine local")
    if task.run is None and given["train"] is None:
        raise UsageError(
            "read in pieces, only the sides of a split can be compared",
            hint="give --split, or --train and --val",
        )


def measure_in_pieces(task: MMDInput, engine: EngineOptions, console: Console) -> MMDReport:
    """Check that this is about the sides of one split and nothing else, and measure them."""
    from clustersplit_cli.pipeline.mmd_in_pieces import mmd_in_pieces

    given = task.given
    _refuse_others(task)
    request = task.request()
    asked = given["engine"] != AUTO
    why = "a URL is read in pieces" if task.is_remote else "read in pieces: all rows do not fit memory"
    reason = f"--engine {engine.engine} was asked for" if asked else why
    with running_job(request, given, task.checked, engine, reason, console) as job:
        report = mmd_in_pieces(job, _sides(task, job.layout.n_rows), task.config(), None)
    if task.run is None:
        return report
    stated = [(file.get("bytes"), file.get("sha256")) for file in task.run.report["input"]["files"]]
    same = stated == [(file.bytes, file.sha256) for file in report.input.files]
    return replace(report, split=task.earlier_report(same_input=same))


def _sides(task: MMDInput, n_rows: int) -> GivenSides:
    """The side of every row, from whatever the user named."""
    from clustersplit_cli.data.row_labels import files_of_pair, files_of_sides
    from clustersplit_cli.data.runs import read_indices
    from clustersplit_cli.pipeline.mmd_in_pieces import given_sides
    from clustersplit_cli.verification.files import stated_formats

    if task.run is None:
        train, val = task.given["train"], task.given["val"]
        return given_sides(read_indices(train), read_indices(val), n_rows, files_of_pair(train, val))
    files = files_of_sides(task.run.directory, stated_formats(task.run.report["config"]))
    return given_sides(task.run.train, task.run.val, n_rows, files)
