"""What is known before a split is chosen: the problem, its kernel, and all that went into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.baselines import RandomMMD
from clustersplit_cli.core.certificate import FixedPoint
from clustersplit_cli.core.constraints.cells import Cells, joint_cells
from clustersplit_cli.core.constraints.groups import UnitParts
from clustersplit_cli.core.constraints.quotas import PartQuotas
from clustersplit_cli.core.constraints.requirements import Requirements, make_requirements
from clustersplit_cli.core.duplicates import row_identities
from clustersplit_cli.core.geometry.dense import dense_geometry
from clustersplit_cli.core.geometry.features import Features, Floats
from clustersplit_cli.core.geometry.kernels import (
    KernelSpread,
    Prepared,
    off_diagonal_spread,
    prepare,
    standardize,
)
from clustersplit_cli.core.geometry.low_rank import Image, image_rank, make_image
from clustersplit_cli.core.geometry.nystrom import linear_geometry, nystrom_geometry
from clustersplit_cli.core.geometry.protocol import Geometry, choose_landmarks
from clustersplit_cli.core.geometry.sparse import SparseFeatures, prepare_sparse, sparse_geometry
from clustersplit_cli.core.parallel import Workers, pool
from clustersplit_cli.core.search.partition import Labels, PartAssigner, PartitionMeasures
from clustersplit_cli.core.search.partition_search import PartitionSolution
from clustersplit_cli.core.search.problem import Problem
from clustersplit_cli.core.search.programs import Coupling
from clustersplit_cli.data.dataset import EXACT_DUPLICATES, Dataset, Extent
from clustersplit_cli.engines.plan import MemoryPlan, Workload, plan_memory
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.progress import Progress, Stopwatch, silent


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
            return self.__dict__.get("image") or self._make_image()

    def _make_image(self) -> Image:
        geometry = self.problem.geometry
        image = make_image(geometry, self.streams.image, image_rank(geometry.n))
        # The search and the bound look along the same directions, unless there are several families of cells.
        return image.turned(self.problem.constraints, self.workers) if self.requirements.separates else image


@contextmanager
def prepared_setting(
    dataset: Dataset,
    options: CheckedOptions,
    watch: Stopwatch,
    progress: Progress = silent,
    heard: Callable[[Requirements], None] = lambda requirements: None,
) -> Iterator[Setting]:
    """State the problem and hold its kernel, within a pool of workers that ends with the block.

    Parameters
    ----------
    heard : is told the requirements when the kernel is about to be computed.
    """
    streams = Streams.from_seed(options.seed)
    with pool(options.threads) as workers:
        with watch.step("constraints"):
            requirements = requirements_of(dataset, options, workers)
        held = hold_kernel(
            dataset, options, streams, workers, watch, progress, before=lambda: heard(requirements)
        )
        limits = requirements.families[0] if requirements.units is not None else requirements.working
        problem = Problem(held.geometry, limits)
        memory, prepared, spread = held.memory, held.prepared, held.spread
        yield Setting(dataset, options, memory, prepared, spread, problem, requirements, streams, workers)


WIDE_IMAGE_ROWS, NARROW_RANK = 50_000, 128
"""Beyond so many rows the image that starts descend on is made narrower, to fit in memory."""


@dataclass(frozen=True)
class PartedSetting:
    """What is known before the parts are chosen; `units` is None where rows are on their own."""

    dataset: Dataset
    options: CheckedOptions
    held: Held
    quotas: PartQuotas
    units: UnitParts | None
    streams: Streams
    workers: Workers

    @cached_property
    def assigner(self) -> PartAssigner:
        """The assignment step; centroids are handed out only to parts that are not alike."""
        unlike = len(set(self.quotas.shares)) > 1 or bool((self.quotas.pinned >= 0).any())
        return PartAssigner(self.quotas, self.workers, unlike, self.options.solver)

    def random(self, rng: np.random.Generator) -> Labels:
        """Draw parts that meet the quotas; shape (n,)."""
        return self.assigner.random(rng) if self.units is None else self.units.random(rng)

    @cached_property
    def image(self) -> Image:
        """A low-rank image of the kernel."""
        geometry = self.held.geometry
        if geometry.n > WIDE_IMAGE_ROWS:
            return make_image(geometry, self.streams.image, NARROW_RANK)
        return make_image(geometry, self.streams.image)


@dataclass(frozen=True)
class PartedOutcome:
    """A finished run, as the reports need it.

    `random_rest` is the MMD of each part with all other rows, for every random partition; shape (r, k).
    """

    setting: PartedSetting
    config: Mapping[str, Any]
    solution: PartitionSolution
    measured: PartitionMeasures
    certificate: FixedPoint | None
    random: RandomMMD
    random_rest: NDArray[np.float64]


RANDOM_SPLITS = 20


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
class Held:
    """A kernel, ready to be multiplied by, and how it came about."""

    memory: MemoryPlan
    prepared: Prepared
    spread: KernelSpread | None
    geometry: Geometry


def hold_kernel(
    dataset: Dataset,
    options: CheckedOptions,
    streams: Streams,
    workers: Workers,
    watch: Stopwatch,
    progress: Progress = silent,
    before: Callable[[], None] = lambda: None,
) -> Held:
    """Plan, prepare the features, and hold the kernel the way the plan says.

    Parameters
    ----------
    before : is called when the kernel is about to be computed.
    """
    memory = plan(dataset.extent, options)
    assert memory is not None
    with watch.step("prepare"):
        prepared = prepare_features(dataset.features, options, workers, streams.samples)
    before()
    with watch.step("kernel"), ThreadPoolExecutor(1) as aside:
        # What the kernel's values are like is asked for at the end, by the report.
        is_rbf = options.kernel == "rbf"
        seen = aside.submit(off_diagonal_spread, prepared, streams.samples) if is_rbf else None
        geometry = build_geometry(prepared, memory, streams.landmarks, workers, progress)
        spread = None if seen is None else seen.result()
    return Held(memory, prepared, spread, geometry)


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
        return linear_geometry(prepared.features, prepared.kernel, workers, prepared.moments)
    if memory.geometry == "dense":
        return dense_geometry(prepared.features, prepared.kernel, workers, progress)
    assert memory.landmarks is not None
    landmarks = choose_landmarks(prepared.features.shape[0], memory.landmarks, rng)
    return nystrom_geometry(prepared.features, prepared.kernel, landmarks, workers, progress)


def requirements_of(dataset: Dataset, options: CheckedOptions, workers: Workers) -> Requirements:
    """Put families, quotas, tolerances, forced rows and units together.

    Raises
    ------
    InfeasibleError
        If they cannot be met at once.
    """
    return make_requirements(
        families_of(dataset),
        options.holdout,
        options.tolerance,
        options.rounding,
        dataset.pinned,
        units_of(dataset, workers),
    )


def families_of(dataset: Dataset) -> list[Cells]:
    """The cells of every family."""
    families = dataset.families or (tuple(dataset.categories),)
    return [
        joint_cells(
            {word: (dataset.categories[word].codes, dataset.categories[word].values) for word in words},
            len(dataset.rows),
        )
        for words in families
    ]


def units_of(dataset: Dataset, workers: Workers) -> NDArray[np.int64] | None:
    """The unit of every row; None if rows are on their own."""
    if dataset.together == EXACT_DUPLICATES:
        identity = row_identities(dataset.features, workers)
        return np.unique(identity, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return dataset.units


def prepare_features(
    raw: Floats, options: CheckedOptions, workers: Workers, samples: np.random.Generator
) -> Prepared:
    """Standardize the features and resolve the kernel's width."""
    if hasattr(raw, "indptr"):
        return prepare_sparse(raw, options.kernel, options.standardize)
    features = standardize(Features(raw), options.standardize, workers)
    # A stream of its own: a width given as a number leaves the other samples as they are.
    (width_stream,) = samples.spawn(1)
    return prepare(features, options.kernel, options.gamma, options.degree, workers, width_stream)
