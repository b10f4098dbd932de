"""The order of the steps: from a dataset and options to a split and its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.cbc import CBCAssigner
from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.baselines import RandomMMD, random_mmd
from clustersplit_cli.core.duplicates import lowest_rows_first
from clustersplit_cli.core.effort import EFFORTS
from clustersplit_cli.core.geometry.low_rank import make_image
from clustersplit_cli.core.mmd.estimators import subsample_mmd
from clustersplit_cli.core.search.context import SearchContext
from clustersplit_cli.core.search.problem import Evaluation, Members, evaluate
from clustersplit_cli.core.search.programs import CoupledSearch
from clustersplit_cli.core.search.search import SplitSearch, needs_image
from clustersplit_cli.core.search.solution import Solution
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.assessment import (
    CBC_CERTIFICATE_ROWS,
    Ahead,
    drawn_splits,
    measure,
    measure_context,
    prove,
)
from clustersplit_cli.pipeline.context import (
    RANDOM_SPLITS,
    Held,
    Setting,
    Streams,
    build_geometry,
    hold_kernel,
    plan,
    prepared_setting,
)
from clustersplit_cli.pipeline.portrait import portray
from clustersplit_cli.pipeline.result import Outcome
from clustersplit_cli.pipeline.summarize import summarize
from clustersplit_cli.progress import Progress, Stopwatch, silent
from clustersplit_cli.reports.portrait import Portrait
from clustersplit_cli.reports.summary import Report

__all__ = [
    "CBC_CERTIFICATE_ROWS",
    "RANDOM_SPLITS",
    "Held",
    "Setting",
    "Split",
    "Streams",
    "await_hashes",
    "build_geometry",
    "find_split",
    "hold_kernel",
    "plan",
    "prepared_setting",
    "report_on",
    "split",
]

SUBSAMPLE_ROWS = 2000


@dataclass(frozen=True)
class Split:
    """Row positions of both sides, ascending, 0-based, in file order; the report; on request a portrait."""

    train: NDArray[np.int64]
    val: NDArray[np.int64]
    report: Report
    portrait: Portrait | None = None


def split(
    dataset: Dataset,
    options: CheckedOptions,
    *,
    config: Mapping[str, Any] | None = None,
    stopwatch: Stopwatch | None = None,
    progress: Progress = silent,
    with_portrait: bool = False,
) -> Split:
    """Split the dataset and report on it.

    Parameters
    ----------
    config : options outside this function's reach that the report should repeat.
    stopwatch : continues an account begun while reading.
    with_portrait : also gather what an HTML report draws.
    """
    watch = stopwatch or Stopwatch()
    with (
        Ahead(options, watch) as ahead,
        prepared_setting(dataset, options, watch, progress, ahead.state) as setting,
    ):
        ahead.begin(setting)
        with watch.step("search"):
            solution = find_split(setting, progress, announce=ahead.certify, meanwhile=ahead.meanwhile)
        outcome = report_on(
            setting, solution, config=config or {}, stopwatch=watch, ahead=ahead, progress=progress
        )
        members = solution.members
        portrait = portrait_of(setting, members, outcome.random) if with_portrait else None
    await_hashes(dataset, watch, progress)
    return Split(dataset.rows[~members], dataset.rows[members], summarize(outcome, watch), portrait)


def await_hashes(dataset: Dataset, stopwatch: Stopwatch, progress: Progress) -> None:
    """Wait until all files are hashed, which for large ones may take longer than a split."""
    progress("hash", 0, 0)
    with stopwatch.step("hash"):
        _ = dataset.files


def find_split(
    setting: Setting,
    progress: Progress = silent,
    count: int = 1,
    announce: Callable[[Members, Evaluation], None] = lambda members, measured: None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Solution:
    """Search for the split with the largest MMD, and for `count` different ones if that is more than one.

    Parameters
    ----------
    announce : may hear of the split before the account of the search is drawn up.
    meanwhile : is called when the search begins to leave workers idle.
    """
    search = _coupled_search(setting, progress)
    if search is not None:
        found = search.refine(search.explore())
        solution = search.account(found)
        optima = search.different(found, count) if count > 1 else ()
        over_rows = setting.requirements.units is None
        canonical = partial(_lowest_rows_first, setting) if over_rows else lambda members: members
        optima = tuple(canonical(members) for members in optima)
        return replace(solution, members=canonical(solution.members), optima=optima)
    return _find_separable(setting, progress, count, announce, meanwhile)


def _find_separable(
    setting: Setting,
    progress: Progress,
    count: int,
    announce: Callable[[Members, Evaluation], None],
    meanwhile: Callable[[], None],
) -> Solution:
    """Search where the constraints are met cell by cell."""
    options = setting.options
    problem, workers = setting.problem, setting.workers
    by_cbc = options.solver == "cbc"
    assigner = CBCAssigner(problem.constraints, workers) if by_cbc else Selection(problem.constraints)
    context = SearchContext(
        problem, assigner, workers, options.restarts, options.max_iter, EFFORTS[options.effort], progress
    )
    image = setting.image if needs_image(problem) else None
    search = SplitSearch(context, image, setting.streams.search)
    explored = search.explore()
    meanwhile()
    found = search.refine(explored)
    members = _lowest_rows_first(setting, found.members, found.measured.difference)
    if not np.array_equal(members, found.members):
        found = replace(found, members=members, measured=evaluate(setting.problem, members))
    announce(members, found.measured)
    solution = search.account(found)
    optima = search.different(found, count) if count > 1 else ()
    return replace(solution, optima=tuple(_lowest_rows_first(setting, members) for members in optima))


def _lowest_rows_first(
    setting: Setting, members: Members, costs: NDArray[np.float64] | None = None
) -> Members:
    """Among splits that differ only by identical rows, the one with the lowest in validation."""
    codes = setting.problem.constraints.cells.codes
    return lowest_rows_first(members, setting.dataset.features, codes, setting.workers, costs)


def _coupled_search(setting: Setting, progress: Progress) -> CoupledSearch | None:
    """The search where a program makes every assignment step; None where none has to."""
    if setting.requirements.separates:
        return None
    options, coupling = setting.options, setting.coupling
    over_rows = setting.requirements.units is None
    return CoupledSearch(
        coupling,
        setting.image if over_rows else make_image(coupling.problem.geometry, setting.streams.image),
        restarts=options.restarts,
        max_iter=options.max_iter,
        effort=EFFORTS[options.effort],
        rng=setting.streams.search,
        progress=progress,
    )


def report_on(
    setting: Setting,
    solution: Solution,
    *,
    config: Mapping[str, Any],
    stopwatch: Stopwatch,
    ahead: Ahead | None = None,
    progress: Progress = silent,
) -> Outcome:
    """Measure a split, whoever made it, and compare it with random ones.

    Parameters
    ----------
    ahead : what was begun during the search.
    """
    problem, members, options = setting.problem, solution.members, setting.options
    progress("certificate", 0, 0)
    with ThreadPoolExecutor(1) as aside:
        certified = None if ahead is None else ahead.certified
        if certified is None:
            measured = solution.measured or measure(setting, members, stopwatch)
            certified = aside.submit(prove, setting, members, measured, stopwatch)
        known = None if ahead is None else ahead.context()
        left_out = int(members.sum()) if config.get("leave") is not None else None
        context = known or measure_context(setting, stopwatch, left_out)
        measured, certificate = certified.result()
    estimate = None
    if setting.memory.geometry == "nystrom":
        with stopwatch.step("subsample"):
            estimate = subsample_mmd(
                setting.prepared.features,
                setting.prepared.kernel,
                members,
                SUBSAMPLE_ROWS,
                setting.streams.samples,
                setting.workers,
            )
    return Outcome(
        setting.dataset,
        options,
        config,
        setting.memory,
        setting.prepared,
        setting.spread,
        setting.requirements,
        solution,
        measured,
        certificate,
        context.bound,
        context.random,
        estimate,
        problem.geometry.trace_error,
    )


def portrait_of(setting: Setting, members: Members, random: RandomMMD | None = None) -> Portrait:
    """Gather what an HTML report draws; random splits not given are drawn anew, the same ones."""
    return portray(
        setting.dataset,
        setting.problem,
        setting.image.factors(np.arange(setting.problem.n)),
        members,
        random or random_mmd(setting.problem, setting.streams.baseline, drawn_splits(setting)),
        setting.workers,
        np.random.default_rng(setting.options.seed),
    )
