"""The order of the steps: from a dataset and options to a split and its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment import Assigner, Selection
from clustersplit_cli.core.baselines import RandomMMD, random_mmd
from clustersplit_cli.core.bound import mmd_upper_bound
from clustersplit_cli.core.cbc import CBCAssigner
from clustersplit_cli.core.certificate import (
    FixedPoint,
    certify_by_cbc,
    certify_by_threshold,
    certify_program,
)
from clustersplit_cli.core.constraints import Constraints
from clustersplit_cli.core.coupled import Coupling, coupled_search
from clustersplit_cli.core.duplicates import lowest_rows_first
from clustersplit_cli.core.image import Image, make_image
from clustersplit_cli.core.kernels import KernelSpread, Prepared
from clustersplit_cli.core.mmd import subsample_mmd
from clustersplit_cli.core.problem import Evaluation, Members, Problem, evaluate
from clustersplit_cli.core.requirements import Requirements
from clustersplit_cli.core.search import EFFORTS, Solution, search
from clustersplit_cli.core.workers import Workers, pool
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.engines.memory import MemoryPlan
from clustersplit_cli.holding import RANDOM_SPLITS, Held, Streams, build_geometry, hold_kernel, plan
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.outcome import Outcome
from clustersplit_cli.portray import portray
from clustersplit_cli.progress import Progress, silent
from clustersplit_cli.reports.portrait import Portrait
from clustersplit_cli.reports.summary import Report
from clustersplit_cli.requiring import requirements_of
from clustersplit_cli.stopwatch import Stopwatch
from clustersplit_cli.summarize import summarize

__all__ = [
    "CBC_CERTIFICATE_ROWS",
    "RANDOM_SPLITS",
    "Held",
    "Setting",
    "Split",
    "Streams",
    "build_geometry",
    "find_split",
    "hold_kernel",
    "plan",
    "prepared_setting",
    "report_on",
    "split",
]

CBC_CERTIFICATE_ROWS = 50_000
BY_THRESHOLD = "threshold"
"""A way to certify that users cannot ask for: that of engines which never have all rows in one place."""
RANDOM_UNIT_SPLITS = 10
"""Random splits that keep units whole take a program each."""
COSTLY_BOUND = 4e11
"""Rows times squared factors of the kernel, beyond which the bound takes longer than the split."""
SUBSAMPLE_ROWS = 2000


@dataclass(frozen=True)
class Split:
    """Row positions of both sides, ascending, 0-based, in file order; the report; on request a portrait."""

    train: NDArray[np.int64]
    val: NDArray[np.int64]
    report: Report
    portrait: Portrait | None = None


@dataclass(frozen=True)
class Setting:
    """What is known before a split is chosen: the problem, and all that went into it."""

    dataset: Dataset
    options: CheckedOptions
    memory: MemoryPlan
    prepared: Prepared
    spread: KernelSpread | None
    problem: Problem
    requirements: Requirements
    streams: Streams
    workers: Workers
    lock: RLock = field(default_factory=RLock)

    @cached_property
    def coupling(self) -> Coupling:
        """The problem of rows or units whose cells hang together."""
        return Coupling.of(self.problem, self.requirements, self.options.solver, self.workers)

    @cached_property
    def image(self) -> Image:
        """A low-rank image of the kernel."""
        with self.lock:
            return self.__dict__.get("image") or make_image(self.problem.geometry, self.streams.image)


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
    with prepared_setting(dataset, options, watch, progress) as setting, ThreadPoolExecutor(2) as aside:
        ahead = Ahead(setting, watch, aside)
        with watch.step("search"):
            solution = find_split(setting, progress, announce=ahead.certify)
        outcome = report_on(
            setting, solution, config=config or {}, stopwatch=watch, ahead=ahead, progress=progress
        )
        members = solution.members
        portrait = portrait_of(setting, members, outcome.random) if with_portrait else None
    return Split(dataset.rows[~members], dataset.rows[members], summarize(outcome, watch), portrait)


@contextmanager
def prepared_setting(
    dataset: Dataset, options: CheckedOptions, watch: Stopwatch, progress: Progress = silent
) -> Iterator[Setting]:
    """State the problem and hold its kernel, within a pool of workers that ends with the block."""
    streams = Streams.from_seed(options.seed)
    with pool(options.threads) as workers:
        with watch.step("constraints"):
            requirements = requirements_of(dataset, options, workers)
        held = hold_kernel(dataset, options, streams, workers, watch, progress)
        limits = requirements.families[0] if requirements.units is not None else requirements.working
        problem = Problem(held.geometry, limits)
        memory, prepared, spread = held.memory, held.prepared, held.spread
        yield Setting(dataset, options, memory, prepared, spread, problem, requirements, streams, workers)


def find_split(
    setting: Setting,
    progress: Progress = silent,
    count: int = 1,
    announce: Callable[[Members], None] = lambda members: None,
) -> Solution:
    """Search for the split with the largest MMD, and for `count` different ones if that is more than one.

    Parameters
    ----------
    announce : may hear of the split before the account of the search is drawn up.
    """
    options, constraints, workers = setting.options, setting.problem.constraints, setting.workers
    if not setting.requirements.separates:
        return _find_coupled(setting, progress, count)
    return search(
        setting.problem,
        setting.image,
        partial(_assigner, options, workers),
        workers,
        restarts=options.restarts,
        max_iter=options.max_iter,
        effort=EFFORTS[options.effort],
        nonnegative=setting.prepared.kernel.is_nonnegative,
        rng=setting.streams.search,
        canonical=lambda found: lowest_rows_first(
            found, setting.dataset.features, constraints.cells.codes, workers
        ),
        announce=announce,
        count=count,
        progress=progress,
    )


def _find_coupled(setting: Setting, progress: Progress, count: int) -> Solution:
    """Search where a program makes every assignment step."""
    options, coupling = setting.options, setting.coupling
    over_rows = setting.requirements.units is None
    image = setting.image if over_rows else make_image(coupling.problem.geometry, setting.streams.image)

    def canonical(found: Members) -> Members:
        if not over_rows:
            return found
        codes = setting.problem.constraints.cells.codes
        return lowest_rows_first(found, setting.dataset.features, codes, setting.workers)

    return coupled_search(
        coupling,
        image,
        restarts=options.restarts,
        max_iter=options.max_iter,
        effort=EFFORTS[options.effort],
        nonnegative=setting.prepared.kernel.is_nonnegative and setting.memory.geometry == "dense",
        rng=setting.streams.search,
        canonical=canonical,
        count=count,
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
        certified = ahead and ahead.certified
        certified = certified or aside.submit(measure_and_certify, setting, members, stopwatch)
        context = (ahead and ahead.context.result()) or measure_context(setting, stopwatch)
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


@dataclass(frozen=True)
class Context:
    """What splits can reach: an upper bound on their MMD, and the MMD of random ones."""

    bound: float | None
    random: RandomMMD


def measure_context(setting: Setting, stopwatch: Stopwatch) -> Context:
    """Measure what does not depend on the split that is found."""
    with stopwatch.step("bound"):
        bound = upper_bound(setting)
    with stopwatch.step("baseline"):
        random = random_mmd(setting.problem, setting.streams.baseline, _drawn(setting))
    return Context(bound, random)


def measure_and_certify(
    setting: Setting, members: Members, stopwatch: Stopwatch
) -> tuple[Evaluation, FixedPoint | None]:
    """Measure a split in float64 and prove that it is a fixed point."""
    with stopwatch.step("measure"):
        measured = evaluate(setting.problem, members)
    how, constraints = setting.options.certify, setting.problem.constraints
    with stopwatch.step("certificate"):
        if setting.requirements.separates:
            return measured, certify(measured, members, constraints, how)
        return measured, certify_coupled(measured, members, setting.requirements, how)


class Ahead:
    """What need not wait for the search to end: the context, and the certificate of the split once found."""

    def __init__(self, setting: Setting, stopwatch: Stopwatch, aside: ThreadPoolExecutor) -> None:
        self._setting, self._stopwatch, self._aside = setting, stopwatch, aside
        self.context = aside.submit(self._measure_context)
        self.certified: Future[tuple[Evaluation, FixedPoint | None]] | None = None

    def certify(self, members: Members) -> None:
        """Begin to measure and certify the split that was found."""
        self.certified = self._aside.submit(measure_and_certify, self._setting, members, self._stopwatch)

    def _measure_context(self) -> Context | None:
        """The context, unless it shares random streams with the search: then it has to wait."""
        if not self._setting.requirements.separates:
            return None
        _ = self._setting.problem.row_sums  # the search will need them once it has explored
        return measure_context(self._setting, self._stopwatch)


def _drawn(setting: Setting) -> Members | None:
    """Random splits that keep units whole; None where rows can be drawn one by one."""
    if setting.requirements.units is None:
        return None
    return setting.coupling.random_splits(setting.streams.baseline[:RANDOM_UNIT_SPLITS])


def portrait_of(setting: Setting, members: Members, random: RandomMMD | None = None) -> Portrait:
    """Gather what an HTML report draws; random splits not given are drawn anew, the same ones."""
    return portray(
        setting.dataset,
        setting.problem,
        setting.image.factors(np.arange(setting.problem.n)),
        members,
        random or random_mmd(setting.problem, setting.streams.baseline, _drawn(setting)),
        setting.workers,
        np.random.default_rng(setting.options.seed),
    )


def upper_bound(setting: Setting) -> float | None:
    """Bound the MMD of all splits with these counts; None with tolerances, or where it costs too much."""
    if setting.options.bound == "never" or not all(f.is_exact for f in setting.requirements.families):
        return None
    if setting.options.bound == "auto" and setting.memory.geometry != "dense":
        factors = setting.memory.landmarks or setting.dataset.features.shape[1]
        # Their eigenvalues cost as much as fifty products.
        if max(setting.problem.n, 50 * factors) * factors**2 > COSTLY_BOUND:
            return None
    if setting.requirements.separates:
        return mmd_upper_bound(setting.problem, setting.image)
    # Splits that meet several families meet each of them: the smallest of their bounds holds.
    problems = [replace(setting.problem, constraints=family) for family in setting.requirements.families]
    return min(mmd_upper_bound(problem, setting.image) for problem in problems)


def certify(measured: Evaluation, members: Members, constraints: Constraints, how: str) -> FixedPoint | None:
    """Certify the split by CBC, or above the size where that pays by thresholds."""
    if how == "never":
        return None
    if how == "always" or (how != BY_THRESHOLD and constraints.n <= CBC_CERTIFICATE_ROWS):
        return certify_by_cbc(measured, members, constraints)
    return certify_by_threshold(measured, members, constraints)


def certify_coupled(
    measured: Evaluation, members: Members, requirements: Requirements, how: str
) -> FixedPoint | None:
    """Certify a split whose cells hang together by CBC, or above the size where that pays by HiGHS."""
    if how == "never":
        return None
    by_cbc = how == "always" or requirements.n_atoms <= CBC_CERTIFICATE_ROWS
    return certify_program(measured, members, requirements, "cbc" if by_cbc else "highs")


def _assigner(options: CheckedOptions, workers: Workers, constraints: Constraints) -> Assigner:
    return CBCAssigner(constraints, workers) if options.solver == "cbc" else Selection(constraints)
