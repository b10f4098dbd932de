"""`--engine`: the options of engines, and which engine a command uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from clustersplit_cli.data.readers import peek
from clustersplit_cli.data.readers.naming import as_url
from clustersplit_cli.data.row_groups import open_layout
from clustersplit_cli.engines.options import AUTO, LOCAL, STREAM, EngineOptions
from clustersplit_cli.engines.plan import check_reading, landmarks_of, plan_stream
from clustersplit_cli.errors import (
    ClusterSplitError,
    InputError,
    MemoryPlanError,
    UsageError,
    needs_all_rows,
)
from clustersplit_cli.options import NEAREST, SHIFT, TIGHT
from clustersplit_cli.pipeline.context import plan
from clustersplit_cli.similarity import PRECOMPUTED

if TYPE_CHECKING:
    from clustersplit_cli.data.dataset import Extent, ReadRequest
    from clustersplit_cli.data.row_groups import Layout
    from clustersplit_cli.engines.plan import MemoryPlan, StreamPlan
    from clustersplit_cli.options import CheckedOptions


class ChosenEngine(NamedTuple):
    """The engine that does the work, why it is not the local one, and what was found out on the way.

    `extent` and `memory` are the size of the features and the local engine's plan, if they are known.
    """

    options: EngineOptions
    reason: str
    extent: Extent | None = None
    memory: MemoryPlan | None = None


def engine_options(given: Mapping[str, Any]) -> EngineOptions:
    """Read and check the options of the engine."""
    names = ("engine", "passes", "spill", "scheduler")
    found = EngineOptions(**{name: given[name] for name in names if name in given})
    found.check()
    return found


def refuse_sharded(needing: Mapping[str, bool], cure: str | None = None) -> None:
    """Refuse what is asked for, by its name, and works on rows in memory alone."""
    for name, is_asked in needing.items():
        if is_asked:
            raise needs_all_rows(name, cure) if cure else needs_all_rows(name)


def refuse_for_sizes(options: EngineOptions, idle: Mapping[str, Any]) -> None:
    """Refuse what has no effect where an engine only counts the rows of parts."""
    named = [name for name, is_given in idle.items() if is_given]
    if named:
        raise UsageError(
            f"{named[0]} has no effect on folds and parts with --engine {options.engine}, which only counts",
            hint="leave it out, or use --engine local",
        )


def refuse_local_urls(options: EngineOptions, *, is_remote: bool) -> None:
    """Say that the local engine cannot read what is behind a URL."""
    if options.engine == LOCAL and is_remote:
        raise UsageError(
            "the local engine reads files, not URLs", hint="use --engine stream, or copy the files first"
        )


def choose_engine(
    options: EngineOptions,
    request: ReadRequest,
    checked: CheckedOptions,
    needing: Mapping[str, bool] | None = None,
) -> ChosenEngine:
    """Decide which engine `auto` is, and say why it is not the local one.

    Parameters
    ----------
    needing : what is asked for, by its name, and works on rows in memory alone.

    Raises
    ------
    MemoryPlanError
        If the rows do not fit memory and cannot be read in pieces either.
    UsageError
        If another engine was asked for, and something that it cannot do.
    """
    extent: Extent | None = None
    memory: MemoryPlan | None = None

    def fits() -> None:
        nonlocal extent, memory
        extent = peek(request)
        memory = plan(extent, checked)

    chosen, reason, error = _choose(options, request, fits)
    only_local = {**(needing or {}), **_only_local(checked), "--nystrom off": checked.nystrom == "off"}
    if error is not None and any(only_local.values()):
        raise error
    if chosen.engine != LOCAL:
        refuse_sharded(needing or {}, "leave --engine out, or take a sample of the rows")
    return ChosenEngine(chosen, reason, extent, memory)


def choose_for_reading(options: EngineOptions, request: ReadRequest, checked: CheckedOptions) -> ChosenEngine:
    """Do the same for work that reads all rows and needs no kernel."""

    def fits() -> None:
        extent = peek(request)
        if extent.n_rows is not None and extent.n_features is not None and extent.itemsize is not None:
            check_reading(extent.n_rows, extent.n_features, extent.itemsize, checked.budget)

    return ChosenEngine(*_choose(options, request, fits)[:2])


def _choose(
    options: EngineOptions, request: ReadRequest, fits: Callable[[], object]
) -> tuple[EngineOptions, str, MemoryPlanError | None]:
    """Decide what `auto` is; `fits` raises what is returned if not all rows fit memory."""
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


def choose_if_readable(
    options: EngineOptions,
    request: ReadRequest,
    checked: CheckedOptions,
    needing: Mapping[str, bool] | None = None,
) -> ChosenEngine:
    """Do the same; input that cannot be read is left to the local engine, unless another was asked for."""
    try:
        return choose_engine(options, request, checked, needing)
    except InputError:
        if options.engine != AUTO:
            raise
        return ChosenEngine(replace(options, engine=LOCAL), "")


def _only_local(checked: CheckedOptions) -> dict[str, bool]:
    """Options of the search that work on rows in memory alone."""
    return {
        "--solver cbc": checked.solver == "cbc",
        "--certify always": checked.certify == "always",
        f"--aim {checked.aim}": checked.aim in (NEAREST, SHIFT),
        "--weights": checked.weights,
        f"--bound {TIGHT}": checked.bound == TIGHT,
        "--kernel precomputed": checked.kernel == PRECOMPUTED,
        "--distances": checked.distances,
        "--gamma power": checked.gamma == "power",
        "--standardize zscore with --kernel cosine": checked.standardize == "zscore"
        and checked.kernel == "cosine",
    }


def layout_and_plan(
    request: ReadRequest, checked: CheckedOptions, options: EngineOptions, reason: str, parts: int = 0
) -> tuple[Layout, StreamPlan]:
    """Open the dataset and plan for it; refuse what needs all rows in memory.

    Parameters
    ----------
    parts : that rows go to; 0 for a split in two.
    """
    refuse_sharded(_only_local(checked))
    landmarks = landmarks_of(checked.nystrom, is_linear=checked.is_linear)
    layout = open_layout(request, landmarks or 0)
    if landmarks is not None:
        landmarks = min(landmarks, layout.n_rows)
    plan = plan_stream(
        layout, landmarks, budget=checked.budget, threads=checked.threads, reason=reason, parts=parts
    )
    return layout, plan
