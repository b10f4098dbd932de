"""What splits and partitions of rows in memory have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.baselines import RandomMMD
from clustersplit_cli.core.certificate import (
    FixedPoint,
)
from clustersplit_cli.core.constraints.cells import Labels
from clustersplit_cli.core.constraints.quotas import Quotas
from clustersplit_cli.core.geometry.low_rank import LowRankKernel
from clustersplit_cli.core.mmd.definition import by_definition
from clustersplit_cli.core.mmd.estimators import SubsampleEstimate, exact_mmd, subsample_mmd
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.problem import Measures, Members
from clustersplit_cli.core.search.solution import StagedSearch
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.context import (
    LocalKernel,
    Once,
    Streams,
    stated_widths,
    width_candidates,
    workload,
)
from clustersplit_cli.pipeline.portrait import portray
from clustersplit_cli.pipeline.result import About, ByDefinition, Searched, SomeRows
from clustersplit_cli.pipeline.summarize import (
    resolved_options,
)
from clustersplit_cli.pipeline.target import TargetResult
from clustersplit_cli.progress import Progress, Stopwatch
from clustersplit_cli.reports.portrait import Portrait
from clustersplit_cli.reports.summary import EngineSummary

if TYPE_CHECKING:
    from typing_extensions import Self

CBC_CERTIFICATE_ROWS = 50_000
BY_THRESHOLD = "threshold"
"""A way to certify that users cannot ask for: that of engines which never have all rows in one place."""
SUBSAMPLE_ROWS = 2000
SIGMAS = 6.0
"""Standard errors by which an estimate may be off."""


@dataclass(frozen=True)
class Parts:
    """Row positions of every part, ascending, 0-based, in file order, and the part of every row.

    `weights` are those of validation rows, in their order, where they were asked for.
    """

    rows: Mapping[str, NDArray[np.int64]]
    labels: Labels
    weights: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, rows: NDArray[np.int64], names: Sequence[str], labels: Labels) -> Parts:
        """Gather the rows of every part."""
        return cls({name: rows[labels == part] for part, name in enumerate(names)}, labels)

    @property
    def train(self) -> NDArray[np.int64]:
        """The rows of the part of that name."""
        return self.rows["train"]

    @property
    def val(self) -> NDArray[np.int64]:
        """The rows of the part of that name."""
        return self.rows["val"]


@dataclass(frozen=True)
class LocalContext(ABC):
    """Rows in memory, and their kernel."""

    dataset: Dataset
    options: CheckedOptions
    kernel: LocalKernel
    streams: Streams
    workers: Workers
    watch: Stopwatch
    progress: Progress
    low_rank: Once[LowRankKernel] = field(init=False, repr=False)
    """A low-rank approximation of the kernel."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "low_rank", Once(self._make_low_rank))

    @property
    def spare_threads(self) -> int:
        """Threads for work beside the search."""
        return 3

    @abstractmethod
    def _make_low_rank(self) -> LowRankKernel:
        """Make it, from the stream that this kind of search has for it."""

    def _about(self, resolved: Mapping[str, Any], quotas: Quotas) -> About:
        held = self.kernel
        common = resolved_options(self.options, held.memory, held.prepared.kernel)
        return About(
            self.dataset,
            self.options,
            {**common, **resolved, **stated_widths(held.widths)},
            held.memory,
            held.prepared,
            held.spread,
            quotas.names,
            quotas.shares,
            held.geometry.trace_error,
            quotas.drawn,
        )

    def measures(self, found: LocalFound) -> Measures:
        """What the partition measures."""
        measured: Measures = found.measured
        return measured

    def _subsample(self, parts: list[NDArray[np.int64]]) -> SubsampleEstimate | None:
        """Estimate MMD² between parts under the exact kernel, unless that is the kernel."""
        if self.kernel.geometry.landmarks is None:
            return None
        features, kernel = self.kernel.prepared.features, self.kernel.prepared.kernel
        with self.watch.step("subsample"):
            size, rng = 2 * SUBSAMPLE_ROWS // len(parts), deepcopy(self.streams.samples)
            estimate = subsample_mmd(features, kernel, parts, size, rng, self.workers)
        if estimate is None or not self.affords_exact:
            return estimate
        with self.watch.step("exact"):
            found = exact_mmd(features, kernel, parts, self.workers, self.progress)
        return replace(estimate, exact=found)

    @property
    def affords_exact(self) -> bool:
        """Whether one pass over the kernel itself takes less than the rest of the run."""
        landmarks = self.kernel.memory.landmarks
        return landmarks is not None and workload(self.dataset.extent, self.options).affords_exact(landmarks)

    def at(self, level: float) -> Self:
        """The same rows and kernel, for graded partitions of another severity."""
        return replace(self, options=replace(self.options, severity=level, at_mmd=None))

    def with_parts(self, found: LocalFound, parts: NDArray[Any]) -> LocalFound:
        """Other parts than a search found, measured."""
        return self.measure(parts, converged=found.converged)

    @property
    @abstractmethod
    def search(self) -> StagedSearch[Any, Any]:
        """The search for the parts that differ most."""

    def explore(self) -> Any:
        """See where starts lead."""
        with self.watch.step("search"):
            return self.search.explore()

    def account(self, found: LocalFound) -> Searched:
        """Measure where all starts ended."""
        with self.watch.step("search"):
            solution = self.search.account(found.end)
        return Searched(solution.steps, solution.runs, solution.winner, solution.account)

    @abstractmethod
    def measure(self, parts: NDArray[Any], *, converged: bool = True) -> LocalFound:
        """Measure a partition: the part of every row."""

    @property
    def has_all_rows(self) -> bool:
        """They are in memory."""
        return True

    def definition(self, found: LocalFound) -> ByDefinition:
        """Measure it again by definition, from the features themselves."""
        geometry, kernel = self.kernel.geometry, self.kernel.prepared.kernel
        with np.errstate(over="ignore", invalid="ignore"):
            measured = by_definition(
                self.dataset.features,
                found.labels,
                kernel=kernel.name,
                gamma=kernel.gamma,
                degree=kernel.degree,
                standardize=self.options.standardize,
                centred=kernel.origin is not None,
                landmarks=geometry.landmarks,
                workers=self.workers,
                on_done=lambda done, total: self.progress("definition", done, total),
            )
        # The trace of a Nyström kernel, and with it the scatter, may be an estimate.
        error = SIGMAS * geometry.trace_error
        return ByDefinition(measured, self.kernel.memory.geometry, len(found.labels), error)

    @property
    @abstractmethod
    def part_names(self) -> tuple[str, ...] | None:
        """Names of folds or parts; None for the two sides of a split."""

    @abstractmethod
    def random_baseline(self, found: LocalFound | None = None, *, same_size: bool = False) -> RandomMMD:
        """Measure random partitions."""

    def portrait(self, found: LocalFound, random: RandomMMD | None = None) -> Portrait:
        """Gather what an HTML report draws; random partitions not given are drawn anew, the same ones."""
        random = random or self.random_baseline(None if self.part_names is None else found)
        return portray(
            self.dataset,
            self.kernel.geometry,
            self.low_rank().factors(np.arange(len(found.labels))),
            found.labels,
            self.part_names,
            np.array(random.values)[:, None] if random.rest is None else random.rest,
            self.workers,
            np.random.default_rng(self.options.seed),
        )

    def differing(self, found: LocalFound, parts: Labels) -> SomeRows:
        """Rows that are in another part than in a given partition."""
        rows = self.dataset.rows[found.labels != parts]
        return len(rows), rows

    def width_candidates(self) -> dict[str, Any]:
        """The candidates of `--gamma power`, measured again."""
        return stated_widths(width_candidates(self.dataset, self.options, self.workers))

    def wanted_mmd(self, found: Any) -> float:
        """None: targets are for splits in two."""
        raise NotImplementedError

    def aimed(self, found: Any) -> Any:
        """What was found: parts have no other aim."""
        return found

    def beside_target(self, found: Any, best: tuple[float, float] | None) -> TargetResult | None:
        """Nothing: targets are for splits in two."""
        return None

    def engine_summary(self, found: Any) -> EngineSummary | None:
        """Nothing: all rows are in memory."""
        return None

    def has_converged(self, found: LocalFound, certificate: FixedPoint | None) -> bool:
        """Whether the search stopped by itself, or at a fixed point when its iterations were used up."""
        return found.converged or (certificate is not None and certificate.status == "optimal")


@dataclass(frozen=True)
class LocalFound:
    """The part of every row, and what that measures; `end` is where the search ended, if it was searched for.

    Of a split in two, part 1 is validation.
    """

    labels: Labels
    measured: Any
    converged: bool = True
    end: Any = None

    @property
    def members(self) -> Members:
        """The validation rows of a split in two."""
        chosen: Members = self.labels == 1
        return chosen


def by_cbc(n: int, how: str) -> bool:
    """Whether CBC certifies what is found among so many rows or units."""
    return how == "always" or (how not in ("never", BY_THRESHOLD) and n <= CBC_CERTIFICATE_ROWS)
