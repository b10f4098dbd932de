"""What commands that read features and write a run directory have in common: the order of their steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersplit_cli.cli.console import progress_bar, stderr_console
from clustersplit_cli.cli.engine import (
    ChosenEngine,
    choose_if_readable,
    engine_options,
    layout_and_plan,
    refuse_sharded,
)
from clustersplit_cli.cli.options import checked_options
from clustersplit_cli.cli.output import STDOUT, Output
from clustersplit_cli.cli.request import inputs_of, read_request, reading_config
from clustersplit_cli.core.parallel import pool
from clustersplit_cli.data.destination import check_destination, is_complete, output_error
from clustersplit_cli.data.readers import load, load_target
from clustersplit_cli.data.readers.naming import as_url
from clustersplit_cli.data.row_groups import open_layout
from clustersplit_cli.data.side_files import MOST_PARTS
from clustersplit_cli.engines.options import LOCAL
from clustersplit_cli.engines.plan import plan_survey
from clustersplit_cli.errors import OutputError, UsageError
from clustersplit_cli.options import TIGHT
from clustersplit_cli.pipeline.baseline import several
from clustersplit_cli.pipeline.context import PartitionOptions, plan_local
from clustersplit_cli.pipeline.local.engine import opened_local
from clustersplit_cli.pipeline.run import run
from clustersplit_cli.pipeline.summarize import summarize_plan
from clustersplit_cli.progress import Progress, Stopwatch
from clustersplit_cli.reports.summary import Notice
from clustersplit_cli.reports.terminal import render_notices, render_plan, render_summary, render_warnings

if TYPE_CHECKING:
    from rich.console import Console

    from clustersplit_cli.data.dataset import Dataset, ReadRequest
    from clustersplit_cli.engines.plan import MemoryPlan
    from clustersplit_cli.options import CheckedOptions
    from clustersplit_cli.pipeline.engine import Engine
    from clustersplit_cli.pipeline.run import Run
    from clustersplit_cli.progress import Progress
    from clustersplit_cli.reports.summary import Report


@dataclass(frozen=True)
class Opened:
    """An engine that has the rows, and what a command needs besides: the same on every engine.

    Attributes
    ----------
    config : the options of reading and writing as they were resolved.
    formats : of index files, if any are written.
    """

    engine: Engine[Any, Any]
    config: dict[str, Any]
    formats: tuple[str, ...]

    def write(self, output: Output, result: Run) -> list[Path]:
        """Write a run; return the paths of the files."""
        return replace(output, formats=self.formats).write(self.engine, result)


@contextmanager
def opened(
    request: ReadRequest,
    given: Mapping[str, Any],
    checked: CheckedOptions,
    chosen: ChosenEngine,
    output: Output,
    into: PartitionOptions | None = None,
    *,
    read: Callable[[ReadRequest, Progress], Dataset] = load,
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
    rows = None
    if not is_local:
        if output.annotate is not None and as_url(request.path) is not None:
            raise UsageError("--annotate copies files, not URLs", hint="leave it out")
        refuse_sharded({"--html": output.html})
    if not prepared:
        output.prepare([path for path in inputs_of(request) if as_url(path) is None], console)
    if not is_local:
        rows = open_layout(request).n_rows
    with progress_bar(console, quiet=given["quiet"], time_left=not is_local, rows=rows) as progress:
        shown = PlanShown(progress, console)
        with opened_engine(request, checked, chosen, shown, into=into, read=read) as engine:
            output.check(engine.describe())
            if given["verbose"] or not (given["quiet"] or is_local):
                name = "" if is_local else f"{chosen.options.engine}: "
                shown.announce(name, engine.memory, checked.kernel)
            yield Opened(engine, reading_config(request, engine.describe(), output), output.formats)


class PlanShown:
    """Progress that shows the memory plan when the work starts: by then everything has been checked."""

    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress, self._console = progress, console
        self._line: str | None = None

    def announce(self, engine: str, plan: MemoryPlan | None, kernel: str) -> None:
        """Show it with the next step of the work."""
        if plan is not None:
            self._line = f"{engine}{render_plan(summarize_plan(plan), kernel=kernel)}"

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show how far the work is."""
        line, self._line = self._line, None
        if line is not None:
            self._console.print(line, soft_wrap=True)
        self._progress(stage, done, total)


@contextmanager
def opened_engine(
    request: ReadRequest,
    checked: CheckedOptions,
    chosen: ChosenEngine,
    progress: Progress,
    *,
    into: PartitionOptions | None = None,
    read: Callable[[ReadRequest, Progress], Dataset] = load,
    only_counts: bool = False,
    only_sizes: bool = False,
) -> Iterator[Engine[Any, Any]]:
    """Open the engine that was chosen: the one place that tells engines apart.

    Parameters
    ----------
    read : reads the rows for the local engine.
    only_counts : whether neither a kernel nor hashes of files are asked for.
    only_sizes : whether shards need no kernel.
    """
    watch, options = Stopwatch(), chosen.options
    if options.engine == LOCAL:
        with watch.step("read"):
            dataset = read(request, progress)
        plan = None
        if not only_counts:
            with watch.step("plan"), pool(checked.threads) as workers:
                # Only reading tells how many rows are left.
                known = chosen.memory if dataset.extent == chosen.extent else None
                plan = plan_local(dataset, checked, workers, into, memory=known)
        with opened_local(dataset, checked, into, memory=plan, watch=watch, progress=progress) as engine:
            yield engine
        return
    from clustersplit_cli.pipeline.sharded.engine import opened_sharded  # with what only shards need

    if only_counts or only_sizes:
        layout = open_layout(request)
        shards = plan_survey(layout, budget=checked.budget, threads=checked.threads, reason=chosen.reason)
    else:
        n_parts = 0 if into is None else len(into.names)
        layout, shards = layout_and_plan(request, checked, options, chosen.reason, n_parts)
    with opened_sharded(
        layout, checked, options, shards, watch, progress, hashing=not only_counts
    ) as sharded:
        target = load_target(request, progress) if request.target and into is None else None
        counting = only_counts or only_sizes
        yield replace(sharded, into=into, target=target, only_counts=counting)


def find_and_write(
    request: ReadRequest,
    given: Mapping[str, Any],
    checked: CheckedOptions,
    output: Output,
    into: PartitionOptions | None = None,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Split or partition rows wherever an engine has them, write the result and show it."""
    needing = {} if into is None else only_in_memory(into, checked)
    chosen = choose_if_readable(engine_options(given), request, checked, needing)
    with opened(request, given, checked, chosen, output, into) as found:
        result = run(found.engine, config={**found.config, **(options or {})}, with_portrait=output.html)
        paths = found.write(output, result)
    shown = dict.fromkeys(_shown(path, output) for path in paths)
    show_result(result.report, list(shown), given, console=stderr_console())


def run_several(given: Mapping[str, Any], count: int) -> None:
    """Find different good splits, and write each into a directory of its own, the best first."""
    name = f"--n-splits {count}"
    for option, is_given in {
        "--parts": given["parts"] is not None,
        "--annotate": given["annotate"] is not None,
        "--target": given["target"] is not None,
        "--severity": given["severity"] is not None,
        "--at-mmd": given["at_mmd"] is not None,
        "--html": given["html"],
        "--json": given["json"],
        f"--out {STDOUT}": given["out"] == STDOUT,
    }.items():
        if is_given:
            raise UsageError(f"{option} cannot be combined with {name}", hint=f"drop {option}")
    checked, request = checked_options(given), read_request(given["features"], given)
    output = Output.from_options(given["features"], given, "_splits")
    chosen = choose_if_readable(engine_options(given), request, checked, {"--n-splits": True})
    console = stderr_console()
    with ExitStack() as stack:
        rows = stack.enter_context(opened(request, given, checked, chosen, output, prepared=True))
        stack.enter_context(directory_of_directories(output, inputs_of(request)))
        assert output.directory is not None
        outputs = [replace(output, directory=output.directory / f"split_{place}") for place in range(count)]
        for each in outputs:
            each.prepare(inputs_of(request), console)
        made = list(several(rows.engine, count, rows.config))
        written = [(split, rows.write(each, split)) for each, split in zip(outputs, made, strict=False)]
    for split, paths in written:
        show_result(split.report, paths, given, console=console)
    if len(made) < count:
        found = f"{len(made)} good split{'s that differ' if len(made) > 1 else ''}"
        render_notices(
            [Notice("few_optima", f"there are {found} in many rows, not {count}")], console=console
        )


@contextmanager
def directory_of_directories(output: Output, inputs: list[Path]) -> Iterator[None]:
    """Make the directory that holds one for every split; if the block fails, an empty one is removed."""
    path = output.directory
    assert path is not None
    if is_complete(path):
        raise OutputError(f"{path} is an earlier run of one split", hint="choose another --out")
    if not path.is_dir():
        check_destination(path, force=False, inputs=inputs)
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise output_error(path, error) from error
    try:
        yield
    except BaseException:
        with suppress(OSError):
            path.rmdir()
        raise


def only_in_memory(into: PartitionOptions, checked: CheckedOptions) -> dict[str, bool]:
    """What is asked of parts, by its name, and works on rows in memory alone."""
    return {
        f"more than {MOST_PARTS} parts": len(into.names) > MOST_PARTS,
        "--severity or --at-mmd of folds and parts": checked.is_graded,
        "a part drawn at random": bool(into.random),
    }


def _shown(path: Path, output: Output) -> Path:
    """Of a file in a folder of its own, as those of folds are, the folder."""
    directory = output.directory
    return path.parent if directory is not None and path.parent.parent == directory else path


def show_result(report: Report, paths: list[Path], given: Mapping[str, Any], *, console: Console) -> None:
    """Print the summary and the paths written, or only the warnings."""
    if given["quiet"]:
        render_warnings(report, console=console)
    else:
        render_summary(report, paths, console=console, verbose=given["verbose"])


def named_parts(given: Mapping[str, Any], *, holdout_said: bool) -> PartitionOptions:
    """Read `--parts`; options that only a split in two has are refused."""
    into = PartitionOptions.of_text(given["parts"])
    idle = {
        "--h": holdout_said,
        "--rounding": given["rounding"] is not None,
        "--bound": given.get("bound") in ("always", TIGHT),
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
    """Check everything that can be checked, then read, partition and write."""
    features, is_folds = given["features"], into.folds is not None
    if given["out"] == STDOUT:
        raise UsageError(f"--out - cannot hold {into.what}", hint="name a directory with --out")
    output = Output.from_options(features, given, "_folds" if is_folds else "_split")
    options = {"k": given["k"]} if is_folds else {"parts": given["parts"]}
    find_and_write(read_request(features, given), given, checked_options(given), output, into, options)
