"""`clustersplit baseline`: splits by other strategies, in the same files as ours."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from clustersplit_cli.cli.console import stderr_console
from clustersplit_cli.cli.declarations import STRATEGIES
from clustersplit_cli.cli.engine import choose_if_readable, engine_options
from clustersplit_cli.cli.options import checked_options
from clustersplit_cli.cli.output import STDOUT, Output, stem
from clustersplit_cli.cli.request import inputs_of, read_request
from clustersplit_cli.cli.run import directory_of_directories, opened, show_result
from clustersplit_cli.data.readers import load
from clustersplit_cli.errors import UsageError
from clustersplit_cli.pipeline import baseline as baselines

if TYPE_CHECKING:
    from clustersplit_cli.data.dataset import Categories, Dataset, ReadRequest
    from clustersplit_cli.progress import Progress

_LEAVE_ONE_OUT = "leave-one-domain-out"


def run(context: typer.Context) -> None:
    """Split a feature file by another strategy."""
    _run(context.params["strategy"], context.params["features"], dict(context.params))


def _run(strategy: str, features: Path, given: dict[str, Any]) -> None:
    """Check everything that can be checked, then read, split and write."""
    _check_strategy(strategy, given)
    checked = baselines.without_search(checked_options(given))
    request = read_request(features, given)
    output = Output.from_options(features, {**given, "out": given["out"] or f"{stem(features)}_{strategy}"})
    needing = {f"baseline {strategy}": strategy != "random"}
    chosen = choose_if_readable(engine_options(given), request, checked, needing)
    leaves_out = strategy == _LEAVE_ONE_OUT
    domains: list[Categories | None] = []
    in_turn = leaves_out and given["leave"] is None

    def read(request: ReadRequest, progress: Progress) -> Dataset:
        dataset, found = load_with_domains(request, leaves_out, progress)
        domains.append(found)
        return dataset

    console, inputs = stderr_console(), inputs_of(request)
    with ExitStack() as stack:
        rows = stack.enter_context(
            opened(request, given, checked, chosen, output, read=read, prepared=in_turn)
        )
        outputs: dict[str | None, Output] = {None: output, given["leave"]: output}
        domain = domains[0] if domains else None
        if in_turn:
            stack.enter_context(directory_of_directories(output, inputs))
            for name in baselines.domains_to_leave(domain, None):
                outputs[name] = _below(output, name)
                outputs[name].prepare(inputs, console)
        engine = rows.engine.without_search()
        made = list(
            baselines.baseline(strategy, engine, domains=domain, leave=given["leave"], config=rows.config)
        )
        written = [(split, rows.write(outputs[left_out], split)) for left_out, split in made]
    for split, paths in written:
        show_result(split.report, paths, given, console=console)


def load_with_domains(
    request: ReadRequest, wanted: bool, progress: Progress
) -> tuple[Dataset, Categories | None]:
    """Read the rows, and if wanted the domain of each, whether or not domains form cells."""
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
