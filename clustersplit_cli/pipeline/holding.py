"""Holding the kernel: the memory plan, the random streams, and the geometry they lead to."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from clustersplit_cli.core.geometry.dense import dense_geometry
from clustersplit_cli.core.geometry.kernels import KernelSpread, Prepared, off_diagonal_spread
from clustersplit_cli.core.geometry.nystrom import linear_geometry, nystrom_geometry
from clustersplit_cli.core.geometry.protocol import Geometry, choose_landmarks
from clustersplit_cli.core.geometry.sparse import SparseFeatures, sparse_geometry
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.data.dataset import Dataset, Extent
from clustersplit_cli.engines.plan import MemoryPlan, Workload, plan_memory
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.preparation import prepare_features
from clustersplit_cli.progress import Progress, silent
from clustersplit_cli.stopwatch import Stopwatch

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
