"""The order of the steps: from a dataset and options to a split and its report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment import Assigner, Selection
from clustersplit_cli.core.baselines import RandomMMD, random_mmd
from clustersplit_cli.core.bound import mmd_upper_bound
from clustersplit_cli.core.cbc import CBCAssigner
from clustersplit_cli.core.certificate import FixedPoint, certify_by_cbc, certify_by_threshold
from clustersplit_cli.core.constraints import Constraints, joint_cells, make_constraints
from clustersplit_cli.core.duplicates import lowest_rows_first
from clustersplit_cli.core.geometry import (
    Geometry,
    choose_landmarks,
    dense_geometry,
    linear_geometry,
    nystrom_geometry,
)
from clustersplit_cli.core.image import Image, make_image
from clustersplit_cli.core.kernels import KernelSpread, Prepared, off_diagonal_spread
from clustersplit_cli.core.mmd import subsample_mmd
from clustersplit_cli.core.problem import Evaluation, Members, Problem, evaluate
from clustersplit_cli.core.search import EFFORTS, Solution, search
from clustersplit_cli.core.sparse import SparseFeatures, sparse_geometry
from clustersplit_cli.core.workers import Workers, pool
from clustersplit_cli.data.dataset import Dataset, Extent
from clustersplit_cli.engines.memory import MemoryPlan, Workload, plan_memory
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.outcome import Outcome
from clustersplit_cli.portray import portray
from clustersplit_cli.preparation import prepare_features
from clustersplit_cli.progress import Progress, silent
from clustersplit_cli.reports.portrait import Portrait
from clustersplit_cli.reports.summary import Report
from clustersplit_cli.stopwatch import Stopwatch
from clustersplit_cli.summarize import summarize

CBC_CERTIFICATE_ROWS = 50_000
RANDOM_SPLITS = 20
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
class Streams:
    """Independent random streams, one per purpose, so that a change in one never shifts another."""

    landmarks: np.random.Generator
    samples: np.random.Generator
    baseline: tuple[np.random.Generator, ...]
    image: np.random.Generator
    search: np.random.Generator

    @classmethod
    def from_seed(cls, seed: int) -> Streams:
        """Spawn all streams from one seed."""
        landmarks, samples, baseline, image, search = np.random.default_rng(seed).spawn(5)
        return cls(landmarks, samples, tuple(baseline.spawn(RANDOM_SPLITS)), image, search)


def plan(extent: Extent, options: CheckedOptions) -> MemoryPlan | None:
    """Decide how to hold the kernel before anything is read; None if only reading can tell the size."""
    if extent.n_rows is None or extent.n_features is None or extent.itemsize is None:
        return None
    work = Workload(
        extent.n_rows, extent.n_features, extent.itemsize, options.restarts, options.threads, extent.stored
    )
    return plan_memory(work, is_linear=options.is_linear, nystrom=options.nystrom, budget=options.budget)


@dataclass(frozen=True)
class Setting:
    """What is known before a split is chosen: the problem, and all that went into it."""

    dataset: Dataset
    options: CheckedOptions
    memory: MemoryPlan
    prepared: Prepared
    spread: KernelSpread | None
    problem: Problem
    streams: Streams
    workers: Workers

    @cached_property
    def image(self) -> Image:
        """A low-rank image of the kernel."""
        return make_image(self.problem.geometry, self.streams.image)


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
    with prepared_setting(dataset, options, watch, progress) as setting:
        with watch.step("search"):
            solution = find_split(setting, progress)
        outcome = report_on(setting, solution, config=config or {}, stopwatch=watch, progress=progress)
        members = solution.members
        portrait = portrait_of(setting, members, outcome.random) if with_portrait else None
    return Split(dataset.rows[~members], dataset.rows[members], summarize(outcome, watch), portrait)


@contextmanager
def prepared_setting(
    dataset: Dataset, options: CheckedOptions, watch: Stopwatch, progress: Progress = silent
) -> Iterator[Setting]:
    """State the problem and hold its kernel, within a pool of workers that ends with the block."""
    streams = Streams.from_seed(options.seed)
    n = dataset.features.shape[0]
    constraints = make_constraints(
        joint_cells({word: (c.codes, c.values) for word, c in dataset.categories.items()}, n),
        options.holdout,
        options.tolerance,
        options.rounding,
    )
    memory = plan(dataset.extent, options)
    assert memory is not None
    with pool(options.threads) as workers:
        with watch.step("prepare"):
            prepared = prepare_features(dataset.features, options, workers, streams.samples)
            spread = off_diagonal_spread(prepared, streams.samples) if options.kernel == "rbf" else None
        with watch.step("kernel"):
            geometry = build_geometry(prepared, memory, streams.landmarks, workers, progress)
        problem = Problem(geometry, constraints)
        yield Setting(dataset, options, memory, prepared, spread, problem, streams, workers)


def find_split(setting: Setting, progress: Progress = silent, count: int = 1) -> Solution:
    """Search for the split with the largest MMD, and for `count` different ones if that is more than one."""
    options, constraints, workers = setting.options, setting.problem.constraints, setting.workers
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
        count=count,
        progress=progress,
    )


def report_on(
    setting: Setting,
    solution: Solution,
    *,
    config: Mapping[str, Any],
    stopwatch: Stopwatch,
    progress: Progress = silent,
) -> Outcome:
    """Measure a split, whoever made it, and compare it with random ones."""
    problem, members, options = setting.problem, solution.members, setting.options
    with stopwatch.step("search"):
        measured = evaluate(problem, members)
    progress("certificate", 0, 0)

    def certified() -> FixedPoint | None:
        with stopwatch.step("certificate"):
            return certify(measured, members, problem.constraints, options.certify)

    # CBC is a process of its own: the bound and the baseline need not wait for it.
    with ThreadPoolExecutor(1) as aside:
        pending = aside.submit(certified)
        with stopwatch.step("bound"):
            bound = upper_bound(setting)
        with stopwatch.step("baseline"):
            random = random_mmd(problem, setting.streams.baseline)
        certificate = pending.result()
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
        problem.constraints,
        solution,
        measured,
        certificate,
        bound,
        random,
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
        random or random_mmd(setting.problem, setting.streams.baseline),
        setting.workers,
        np.random.default_rng(setting.options.seed),
    )


def upper_bound(setting: Setting) -> float | None:
    """Bound the MMD of all splits with these counts; None with tolerances, or where it costs too much."""
    if setting.options.bound == "never" or not setting.problem.constraints.is_exact:
        return None
    if setting.options.bound == "auto" and setting.memory.geometry != "dense":
        factors = setting.memory.landmarks or setting.dataset.features.shape[1]
        # Their eigenvalues cost as much as fifty products.
        if max(setting.problem.n, 50 * factors) * factors**2 > COSTLY_BOUND:
            return None
    return mmd_upper_bound(setting.problem, setting.image)


def build_geometry(
    prepared: Prepared,
    memory: MemoryPlan,
    rng: np.random.Generator,
    workers: Workers,
    progress: Progress,
) -> Geometry:
    """Hold the kernel the way the plan says."""
    if isinstance(prepared.features, SparseFeatures):
        return sparse_geometry(prepared.features, workers)
    if memory.geometry == "linear":
        return linear_geometry(prepared.features, prepared.kernel, workers)
    if memory.geometry == "dense":
        return dense_geometry(prepared.features, prepared.kernel, workers, progress)
    assert memory.landmarks is not None
    landmarks = choose_landmarks(prepared.features.shape[0], memory.landmarks, rng)
    return nystrom_geometry(prepared.features, prepared.kernel, landmarks, workers, progress)


def certify(measured: Evaluation, members: Members, constraints: Constraints, how: str) -> FixedPoint | None:
    """Certify the split by CBC, or above the size where that pays by thresholds."""
    if how == "never":
        return None
    if how == "always" or constraints.n <= CBC_CERTIFICATE_ROWS:
        return certify_by_cbc(measured, members, constraints)
    return certify_by_threshold(measured, members, constraints)


def _assigner(options: CheckedOptions, workers: Workers, constraints: Constraints) -> Assigner:
    return CBCAssigner(constraints, workers) if options.solver == "cbc" else Selection(constraints)
