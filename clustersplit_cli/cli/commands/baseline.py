"""`clustersplit baseline`: splits by other strategies, in the same files as ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from clustersplit_cli.cli import engine as scale
from clustersplit_cli.cli import run as pieces
from clustersplit_cli.cli.declarations import STRATEGIES
from clustersplit_cli.cli.options import checked_options
from clustersplit_cli.cli.output import STDOUT, Output, stem
from clustersplit_cli.engines.options import LOCAL
from clustersplit_cli.errors import OutputError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from clustersplit_cli.data.dataset import Categories, Dataset, ReadRequest
    from clustersplit_cli.pipeline.run import Run
    from clustersplit_cli.progress import Progress

_LEAVE_ONE_OUT = "leave-one-domain-out"


def run(context: typer.Context) -> None:
    """Split a feature file by another strategy."""
    _run(context.params["strategy"], context.params["features"], dict(context.params))


def _run(strategy: str, features: Path, given: dict[str, Any]) -> None:
    """Check everything that can be checked, then read, split and write."""
    from clustersplit_cli.cli.console import progress_bar, stderr_console
    from clustersplit_cli.cli.request import inputs_of, read_request, reading_config
    from clustersplit_cli.pipeline import baseline as baselines
    from clustersplit_cli.pipeline.local import opened_local
    from clustersplit_cli.progress import Stopwatch

    watch = Stopwatch()
    _check_strategy(strategy, given)
    checked = checked_options(given)
    request = read_request(features, given)
    output = Output.from_options(features, {**given, "out": given["out"] or f"{stem(features)}_{strategy}"})
    engine = scale.engine_options(given)
    if strategy == "random":
        engine, reason = scale.settle_engine(engine, request, checked)
        if engine.engine != LOCAL:
            return pieces.run_random_in_pieces(request, given, checked, engine, reason, output)
    else:
        scale.refuse_engine(engine, f"baseline {strategy}")
    in_turn = strategy == _LEAVE_ONE_OUT and given["leave"] is None
    console = stderr_console()
    inputs = inputs_of(request)
    if not in_turn:
        output.prepare(inputs, console)
    with ExitStack() as stack:
        with progress_bar(console, quiet=given["quiet"]) as progress:
            with watch.step("read"):
                dataset, domains = load_with_domains(request, strategy == _LEAVE_ONE_OUT, progress)
            output.check(dataset)
            outputs: dict[str | None, Output] = {None: output, given["leave"]: output}
            if in_turn:
                stack.enter_context(_directory_of_directories(output, inputs))
                for name in baselines.domains_to_leave(domains, None):
                    outputs[name] = _below(output, name)
                    outputs[name].prepare(inputs, console)
            local = stack.enter_context(
                opened_local(dataset, baselines.without_search(checked), watch=watch, progress=progress)
            )
            found = list(
                baselines.baseline(
                    strategy,
                    local,
                    domains=domains,
                    leave=given["leave"],
                    config=reading_config(request, dataset, output),
                )
            )
        for left_out, split in found:
            _write(outputs[left_out], dataset, split, console, quiet=given["quiet"])


def load_with_domains(
    request: ReadRequest, wanted: bool, progress: Progress
) -> tuple[Dataset, Categories | None]:
    """Read the rows, and if wanted the domain of each, whether or not domains form cells."""
    from clustersplit_cli.data.readers import load

    family = request.stratify
    if not wanted or family is None or "domain" in family:
        dataset = load(request, progress)
        return dataset, dataset.categories.get("domain")
    dataset = load(replace(request, stratify=(*family, "domain")), progress)
    cells = {word: dataset.categories[word] for word in family}
    return replace(dataset, categories=cells), dataset.categories["domain"]


def _check_strategy(strategy: str, given: Mapping[str, Any]) -> None:
    """Refuse strategies that do not exist, and options that would have no effect."""
    if strategy not in STRATEGIES:
        raise UsageError(f"strategy '{strategy}' is unknown", hint=f"choose one of {', '.join(STRATEGIES)}")
    if strategy != _LEAVE_ONE_OUT and given["leave"] is not None:
        raise UsageError(f"--leave has no meaning for {strategy}", hint=f"use it with {_LEAVE_ONE_OUT}")
    if strategy == _LEAVE_ONE_OUT and given["leave"] is None:
        for option, is_given in {
            "--annotate": given["annotate"] is not None,
            "--json": given["json"],
            f"--out {STDOUT}": given["out"] == STDOUT,
        }.items():
            if is_given:
                raise UsageError(
                    f"{option} is for one split, and {_LEAVE_ONE_OUT} makes one for every domain",
                    hint="choose a domain with --leave NAME",
                )


def _below(output: Output, domain: str) -> Output:
    """The output of one domain: a directory of its name, spelled so that any name makes one."""
    assert output.directory is not None
    spelled = "".join(f"%{ord(c):02X}" if c in "/%" or not c.isprintable() else c for c in domain)
    spelled = f"%2E{spelled[1:]}" if spelled.startswith(".") else spelled or "%00"
    return replace(output, directory=output.directory / spelled)


@contextmanager
def _directory_of_directories(output: Output, inputs: list[Path]) -> Iterator[None]:
    """Make the directory that holds one for every domain; if the block fails, an empty one is removed."""
    from clustersplit_cli.data.destination import check_destination, is_complete, output_error

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


def _write(output: Output, dataset: Dataset, split: Run, console: Console, *, quiet: bool) -> None:
    from clustersplit_cli.reports.terminal import render_summary, render_warnings

    paths = output.write(dataset, split)
    if quiet:
        render_warnings(split.report, console=console)
    else:
        render_summary(split.report, paths, console=console)
