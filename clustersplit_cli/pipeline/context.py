"""What is known before a split is chosen: the problem, its kernel, and all that went into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from threading import RLock

from clustersplit_cli.core.constraints.requirements import Requirements
from clustersplit_cli.core.geometry.kernels import KernelSpread, Prepared
from clustersplit_cli.core.geometry.low_rank import Image, image_rank, make_image
from clustersplit_cli.core.parallel import Workers, pool
from clustersplit_cli.core.search.problem import Problem
from clustersplit_cli.core.search.programs import Coupling
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.engines.plan import MemoryPlan
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.holding import Streams, hold_kernel
from clustersplit_cli.pipeline.requiring import requirements_of
from clustersplit_cli.progress import Progress, silent
from clustersplit_cli.stopwatch import Stopwatch


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
