"""Folds and named parts: the steps that `kfold` and `split --parts` share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersplit_cli.cli.output import STDOUT, Output
from clustersplit_cli.cli.run import read_and_work, show_result
from clustersplit_cli.errors import UsageError
from clustersplit_cli.options import SplitOptions

if TYPE_CHECKING:
    from clustersplit_cli.pipeline.partitioning import Parting


def run_named_parts(features: Path, given: Mapping[str, Any], holdout_said: bool) -> None:
    """Make the parts of `--parts`; options that only a split in two has are refused."""
    from clustersplit_cli.core.constraints.quotas import parse_parts
    from clustersplit_cli.pipeline.partitioning import Parting

    parts = parse_parts(given["parts"])
    idle = {
        "--h": holdout_said,
        "--rounding": given["rounding"] is not None,
        "--bound": given["bound"] == "always",
    }
    if any(idle.values()):
        names = ", ".join(name for name, is_given in idle.items() if is_given)
        raise UsageError(f"{names} cannot be combined with --parts", hint="drop one or the other")
    _run(features, given, Parting(parts=parts), "_split", {"parts": given["parts"]})


def run_folds(features: Path, given: Mapping[str, Any]) -> None:
    """Make the folds of `kfold`."""
    from clustersplit_cli.pipeline.partitioning import Parting

    check_folds(given["k"])
    _run(features, given, Parting(folds=given["k"]), "_folds", {"k": given["k"]})


def check_folds(k: int) -> None:
    """Refuse a number of folds that makes no sense."""
    if k < 2:
        raise UsageError(f"--k must be at least 2, got {k}", hint="for example --k 5")


def _run(
    features: Path, given: Mapping[str, Any], parting: Parting, suffix: str, options: Mapping[str, Any]
) -> None:
    """Check everything that can be checked, then read, part and write."""
    from clustersplit_cli.cli.commands.split import read_request
    from clustersplit_cli.cli.console import stderr_console
    from clustersplit_cli.options import check_options
    from clustersplit_cli.pipeline.partitioning import partition

    if given["out"] == STDOUT:
        raise UsageError(f"--out - cannot hold {parting.what}", hint="name a directory with --out")
    known = {field.name for field in fields(SplitOptions)} & set(given)
    checked = check_options(SplitOptions(**{name: given[name] for name in known}))
    output = Output.from_options(features, given, suffix)
    console = stderr_console()
    dataset, result = read_and_work(
        read_request(features, given),
        given,
        checked,
        output,
        console,
        lambda dataset, config, watch, progress: partition(
            dataset,
            checked,
            parting,
            config={**config, **options},
            stopwatch=watch,
            progress=progress,
            with_portrait=output.html,
        ),
    )
    paths = output.write_parts(dataset, result, folds=parting.folds is not None)
    inside = {output.directory / name for name in result.parts} if output.directory else set()
    shown = dict.fromkeys(path.parent if path.parent in inside else path for path in paths)
    show_result(result.report, list(shown), quiet=given["quiet"], console=console)
