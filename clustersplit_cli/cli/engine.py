"""`--engine`: the options of engines, and which engine a command uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clustersplit_cli.engines.options import AUTO, LOCAL, STREAM, EngineOptions
from clustersplit_cli.errors import ClusterSplitError, InputError, MemoryPlanError, UsageError

if TYPE_CHECKING:
    from clustersplit_cli.data.dataset import ReadRequest
    from clustersplit_cli.data.row_groups import Layout
    from clustersplit_cli.engines.plan import StreamPlan
    from clustersplit_cli.options import CheckedOptions


def engine_options(given: Mapping[str, Any]) -> EngineOptions:
    """Read and check the options of the engine."""
    names = ("engine", "passes", "spill", "scheduler")
    found = EngineOptions(**{name: given[name] for name in names if name in given})
    found.check()
    return found


def refuse_engine(options: EngineOptions, command: str, *, unless: str | None = None) -> None:
    """Say that a command has all its rows in memory, unless it is asked for less."""
    if options.engine not in (AUTO, LOCAL):
        but = "" if unless is None else f" without {unless}"
        cure = "" if unless is None else f", add {unless}"
        raise UsageError(
            f"{command} keeps all rows in memory and has no --engine {options.engine}{but}",
            hint=f"leave --engine out{cure}, or take a sample of the rows",
        )


def refuse_local_urls(options: EngineOptions, *, is_remote: bool) -> None:
    """Say that the local engine cannot read what is behind a URL."""
    if options.engine == LOCAL and is_remote:
        raise UsageError(
            "the local engine reads files, not URLs", hint="use --engine stream, or copy the files first"
        )


def settle_engine(
    options: EngineOptions, request: ReadRequest, checked: CheckedOptions
) -> tuple[EngineOptions, str]:
    """Decide which engine `auto` is, and say why it is not the local one.

    Raises
    ------
    MemoryPlanError
        If the rows do not fit memory and cannot be read in pieces either.
    """
    from clustersplit_cli.data.readers import peek
    from clustersplit_cli.pipeline.context import plan

    def fits() -> None:
        plan(peek(request), checked)

    settled, reason, error = _settled(options, request, fits)
    if error is not None and (
        checked.nystrom == "off" or checked.solver == "cbc" or checked.certify == "always"
    ):
        raise error
    return settled, reason


def settle_for_reading(
    options: EngineOptions, request: ReadRequest, checked: CheckedOptions
) -> tuple[EngineOptions, str]:
    """Do the same for work that reads all rows and needs no kernel."""
    from clustersplit_cli.data.readers import peek
    from clustersplit_cli.engines.plan import check_reading

    def fits() -> None:
        extent = peek(request)
        if extent.n_rows is not None and extent.n_features is not None and extent.itemsize is not None:
            check_reading(extent.n_rows, extent.n_features, extent.itemsize, checked.budget)

    return _settled(options, request, fits)[:2]


def _settled(
    options: EngineOptions, request: ReadRequest, fits: Callable[[], object]
) -> tuple[EngineOptions, str, MemoryPlanError | None]:
    """Decide what `auto` is; `fits` raises what is returned if not all rows fit memory."""
    from clustersplit_cli.data.readers.naming import as_url
    from clustersplit_cli.data.row_groups import open_layout

    is_remote = as_url(request.path) is not None
    refuse_local_urls(options, is_remote=is_remote)
    if options.engine != AUTO:
        return options, f"--engine {options.engine} was asked for", None
    if is_remote:
        return replace(options, engine=STREAM), "a URL is read in pieces", None
    try:
        fits()
    except MemoryPlanError as error:
        try:
            open_layout(request)
        except ClusterSplitError:
            raise error from None
        return replace(options, engine=STREAM), "read in pieces: all rows do not fit memory", error
    return replace(options, engine=LOCAL), "", None


def settled_if_readable(
    options: EngineOptions, request: ReadRequest, checked: CheckedOptions
) -> tuple[EngineOptions, str]:
    """Do the same; input that cannot be read is left to the local engine, unless another was asked for."""
    try:
        return settle_engine(options, request, checked)
    except InputError:
        if options.engine != AUTO:
            raise
        return replace(options, engine=LOCAL), ""


def layout_and_plan(
    request: ReadRequest, checked: CheckedOptions, options: EngineOptions, reason: str
) -> tuple[Layout, StreamPlan]:
    """Open the dataset and plan for it; refuse what needs all rows in memory."""
    from clustersplit_cli.data.row_groups import open_layout
    from clustersplit_cli.engines.plan import landmarks_of, plan_stream

    needing = {
        "--solver cbc": checked.solver == "cbc",
        "--certify always": checked.certify == "always",
        "--standardize zscore with --kernel cosine": checked.standardize == "zscore"
        and checked.kernel == "cosine",
    }
    for name, given in needing.items():
        if given:
            raise UsageError(f"{name} needs all rows in memory", hint="leave it out, or use --engine local")
    landmarks = landmarks_of(checked.nystrom, is_linear=checked.is_linear)
    layout = open_layout(request, landmarks or 0)
    if landmarks is not None:
        landmarks = min(landmarks, layout.n_rows)
    plan = plan_stream(layout, landmarks, budget=checked.budget, threads=checked.threads, reason=reason)
    return layout, plan
