"""What splits and partitions of rows that are read in pieces have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.baselines import RandomMMD
from clustersplit_cli.core.geometry.factored import FactoredKernel
from clustersplit_cli.core.geometry.features import Features, Floats
from clustersplit_cli.core.geometry.nystrom import trace_rows
from clustersplit_cli.core.geometry.protocol import choose_landmarks
from clustersplit_cli.core.mmd.definition import SpelledKernel, unbiased
from clustersplit_cli.core.mmd.estimators import SubsampleEstimate, subsample_mmd
from clustersplit_cli.core.search.problem import Measures
from clustersplit_cli.data.dataset import Categories, Dataset, InputFile
from clustersplit_cli.data.readers.fingerprint import Fingerprints
from clustersplit_cli.data.readers.matrix import about_dropped
from clustersplit_cli.data.readers.naming import report_path
from clustersplit_cli.data.row_groups import Layout
from clustersplit_cli.engines import samples
from clustersplit_cli.engines.checks import FindDiffering, define_linear, define_nystrom
from clustersplit_cli.engines.executor import Executor
from clustersplit_cli.engines.plan import MemoryPlan
from clustersplit_cli.engines.rules import Rule
from clustersplit_cli.engines.survey import Found as Counted
from clustersplit_cli.engines.tasks import Accounts, CountParts, Ranked
from clustersplit_cli.errors import needs_all_rows
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.context import Streams
from clustersplit_cli.pipeline.engine import Found, Idle
from clustersplit_cli.pipeline.local.context import SUBSAMPLE_ROWS
from clustersplit_cli.pipeline.result import About, ByDefinition, SomeRows
from clustersplit_cli.pipeline.sharded.prepare import (
    ShardedKernel,
)
from clustersplit_cli.pipeline.sharded.target import ShardedTarget
from clustersplit_cli.pipeline.summarize import resolved_options
from clustersplit_cli.pipeline.target import TargetResult
from clustersplit_cli.progress import Progress, Stopwatch
from clustersplit_cli.reports import summary

if TYPE_CHECKING:
    from typing_extensions import Self

    from clustersplit_cli.pipeline.sharded.engine import ShardedEngine


@dataclass(frozen=True)
class ShardedContext(ABC, Generic[Found]):
    """Rows in shards, and their kernel."""

    engine: ShardedEngine
    memory: MemoryPlan
    kernel: ShardedKernel
    target: ShardedTarget | None = None

    def at(self, level: float) -> Self:
        """The same rows and kernel, for graded partitions of another severity."""
        options = replace(self.options, severity=level, at_mmd=None)
        return replace(self, engine=replace(self.engine, options=options))

    @property
    def options(self) -> CheckedOptions:
        """As they were given."""
        return self.engine.options

    @property
    def watch(self) -> Stopwatch:
        """The account of the time."""
        return self.engine.watch

    @property
    def progress(self) -> Progress:
        """Called with how far the work is."""
        return self.engine.progress

    @property
    def executor(self) -> Executor:
        """Holds the shards."""
        return self.engine.executor

    @property
    def spare_threads(self) -> int:
        """None: every pass keeps all shards busy."""
        return 0

    @property
    def idle_from(self) -> Idle:
        """Every pass keeps all shards busy."""
        return Idle.AFTERWARDS

    @property
    def has_all_rows(self) -> bool:
        """No place has them."""
        return False

    @abstractmethod
    def rule_of(self, found: Found) -> Rule:
        """Which part every row is in."""

    def differing(self, found: Found, parts: Rule) -> SomeRows:
        """Rows that are in another part than the labels say that the shards were given."""
        each = self.executor.run(FindDiffering(self.rule_of(found)))
        return sum(count for count, _ in each), np.concatenate([rows for _, rows in each])

    @abstractmethod
    def passes_of(self, found: Found) -> int:
        """Passes over all factors that refined a partition."""

    def sample_factors(self) -> tuple[Floats, Floats]:
        """What is kept of the sample's rows, and their factors in the kernel."""
        kernel = self.kernel
        plan, mixing, sample = kernel.plan, kernel.mixing, kernel.sample
        values = plan.to_store(sample.raw, self.engine.workers)
        if mixing is None:
            return values, Features(sample.raw, plan.steps, plan.dtype).block(0, len(sample.raw))
        return values, values @ mixing.astype(values.dtype)

    def sum_of_sample(self, values: Floats, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """F' weights over the sample, some rows at a time."""
        plan = self.kernel.plan
        total = np.zeros((plan.width, weights.shape[1]))
        for start in range(0, len(values), 4096):
            piece = slice(start, start + 4096)
            total += plan.factors(values[piece]).T @ weights[piece]
        return total

    def whole(self, total: NDArray[np.float64]) -> FactoredKernel:
        """The kernel of all rows, whose factors add up to `total`."""
        kernel = self.kernel
        return FactoredKernel(kernel.surveyed.n, total, kernel.mixing, kernel.trace, kernel.trace_error)

    def subsampled_rows(self, rule: Rule, order: Sequence[int]) -> list[NDArray[np.int64]]:
        """The very rows that the local engine draws of the parts in this order, as numbers among all rows."""
        k = len(order)
        sizes = np.array(self.executor.run(CountParts(rule, k)))
        stream = deepcopy(self.kernel.streams.samples)  # whoever asks again is told the same
        most = 2 * SUBSAMPLE_ROWS // k
        picks = {part: _draw(int(sizes[:, part].sum()), most, stream) for part in order}
        starts = np.cumsum(sizes, axis=0) - sizes
        inside = []
        for start, counts in zip(starts, sizes, strict=True):
            ranks = [picks[part] - start[part] for part in range(k)]
            inside.append(
                tuple(
                    rank[(rank >= 0) & (rank < size)]
                    for rank, size in zip(ranks, counts.tolist(), strict=True)
                )
            )
        found = self.executor.run(Ranked(rule, tuple(inside)))
        return [np.concatenate([part[place] for part in found]) for place in order]

    def estimate(self, found: Found) -> SubsampleEstimate | None:
        """Estimate MMD² under the exact kernel between rows of parts, which are brought together."""
        layout, kernel, sizes = self.engine.layout, self.kernel, self.measures(found).sizes
        order = self.drawing_order
        parts = self.subsampled_rows(self.rule_of(found), order)
        wanted = {str(place): rows for place, rows in enumerate(parts)}
        at_hand = samples.gather(self.executor, wanted, layout.width, layout.features.dtype)
        features = Features(at_hand.raw, kernel.plan.steps, kernel.prepared.features.dtype)
        # All of the rows are drawn again, in order: the estimate is of these rows and no others.
        again = np.random.default_rng(0)
        sides = [at_hand.places(rows) for rows in parts]
        most = 2 * SUBSAMPLE_ROWS // len(parts)
        of = sizes[list(order)].tolist()
        return subsample_mmd(features, kernel.prepared.kernel, sides, most, again, sizes=of)

    def definition(self, found: Found) -> ByDefinition:
        """Measure the labels that the shards were given by definition.

        All rows are summed in float64. The trace of a Nyström kernel, and the estimate under the exact
        kernel, come from the rows that the seed draws for them, which are brought together.
        """
        ahead, layout, options = self.kernel, self.engine.layout, self.options
        kernel, n, sizes = ahead.prepared.kernel, ahead.surveyed.n, self.measures(found).sizes
        spelled = SpelledKernel(kernel.name, kernel.gamma, kernel.degree, options.standardize)
        moments = ahead.surveyed.moments
        shift = moments.mean * (kernel.name != "tanimoto")  # which has a zero of its own
        if options.standardize == "zscore":
            deviation = np.where(moments.deviation > 0, moments.deviation, 1.0)
            spelled = replace(spelled, mean=moments.mean, rest=moments.rest, deviation=deviation)
            shift = np.zeros(layout.width)
        if kernel.origin is not None:
            spelled = replace(spelled, origin=shift)
        if ahead.mixing is None:
            return ByDefinition(define_linear(self.executor, spelled, shift, sizes), "linear", n)
        order = self.drawing_order
        parts = self.subsampled_rows(self.rule_of(found), order)
        wanted = {
            "landmarks": choose_landmarks(n, ahead.plan.width, Streams.from_seed(options.seed).landmarks),
            "trace": trace_rows(n),
            **{str(part): rows for part, rows in zip(order, parts, strict=True)},
        }
        at_hand = samples.gather(self.executor, wanted, layout.width, layout.features.dtype)
        rows = {name: at_hand.rows(numbers) for name, numbers in wanted.items()}
        measured = define_nystrom(self.executor, spelled, shift, sizes, rows["landmarks"], rows["trace"])
        estimate = None
        if min(map(len, parts)) > 1:
            drawn = [spelled.rows(rows[str(part)]) - shift for part in range(len(sizes))]
            estimate = unbiased(spelled, drawn, sizes)
        return ByDefinition(measured, "nystrom", n, estimate=estimate)

    @property
    @abstractmethod
    def drawing_order(self) -> Sequence[int]:
        """The order in which rows of the parts are drawn for the estimate under the exact kernel."""

    @abstractmethod
    def measures(self, found: Found) -> Measures:
        """What the partition measures."""

    def width_candidates(self) -> dict[str, Any]:
        """Refused: they are measured on rows in memory."""
        raise needs_all_rows("--gamma power")

    def wanted_mmd(self, found: Found) -> float:
        """None: targets are for splits in two."""
        raise NotImplementedError

    def aimed(self, found: Found) -> Found:
        """What was found: there is no other aim."""
        return found

    def beside_target(self, found: Found, best: tuple[float, float] | None) -> TargetResult | None:
        """Nothing: targets are for splits in two."""
        return None

    def portrait(self, found: Found, random: RandomMMD) -> Any:
        """Refused: it draws rows."""
        raise needs_all_rows("--html")

    def dataset(self) -> Dataset:
        """The dataset without its rows: what was found out about it, and about the engine."""
        found = surveyed_dataset(self.engine.layout, self.kernel.surveyed.found, self.engine.prints)
        notes, target = (*found.notes, *self.executor.notes), self.engine.target
        if target is None:
            return replace(found, notes=notes)
        return replace(found, notes=notes, read_from=lambda: (*found.read_from(), *target.read_from()))

    def rests_on(self, of_search: Mapping[str, Any], *, searched: bool) -> About:
        """What the run rests on; options of a search are not among those used where there was none."""
        options, engine = self.options, self.engine
        resolved: dict[str, Any] = resolved_options(options, self.memory, self.kernel.prepared.kernel)
        passes = engine.engine_options.max_passes
        resolved |= {"engine": self.executor.name, "passes": passes, **of_search}
        if not searched:
            resolved |= dict.fromkeys(("restarts", "effort", "max_iter", "solver", "passes"))
        kernel = self.kernel
        quotas = kernel.surveyed.quotas
        return About(
            self.dataset(),
            options,
            resolved,
            self.memory,
            kernel.prepared,
            kernel.spread,
            quotas.names,
            quotas.shares,
            kernel.trace_error,
        )

    def engine_summary(self, found: Found) -> summary.EngineSummary:
        """How the rows were gone through."""
        executor = self.executor
        accounts = executor.run(Accounts())
        places = {place for _, place, _ in accounts if place is not None} or {"recompute"}
        passes = self.passes_of(found)
        seconds = max(self.watch.steps.get("refine", 0.0), 1e-9)
        return summary.EngineSummary(
            name=executor.name,
            workers=executor.n_workers,
            shards=len(accounts),
            sample_rows=len(self.kernel.sample.numbers),
            passes=passes,
            factors=places.pop() if len(places) == 1 else "mixed",
            factor_bytes=sum(size for _, _, size in accounts),
            source_bytes=sum(account.source_bytes for account, _, _ in accounts),
            spill_bytes=sum(account.spill_bytes for account, _, _ in accounts),
            rows_per_second=passes * self.kernel.surveyed.n / seconds,
        )


def _draw(total: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Ranks of the rows that `core.mmd` would draw of one side."""
    if total <= size:
        return np.arange(total)
    return np.sort(rng.choice(total, size=size, replace=False)).astype(np.int64)


def nameless(layout: Layout) -> Dataset:
    """A dataset of which no row was looked at: its columns and their roles."""
    nothing: NDArray[np.int32] = np.empty(0, np.int32)
    return Dataset(
        features=np.empty((0, layout.width), layout.features.dtype),
        feature_names=layout.feature_names,
        feature_columns=layout.features.names,
        categories={word: Categories(nothing, ()) for word in layout.family},
        rows=np.empty(0, np.int64),
        n_rows=layout.n_rows,
        notes=layout.notes,
    )


def surveyed_dataset(layout: Layout, found: Counted, prints: Fingerprints | None) -> Dataset:
    """The dataset without its rows: what was found out about it; files behind a URL have no hashes."""
    unhashed = tuple(InputFile(report_path(s.path), "features", s.bytes, None) for s in layout.stamps)
    dropped: tuple[tuple[str, str], ...] = ()
    if found.in_columns is not None:
        names, words = layout.feature_names, tuple(layout.family)
        dropped = (about_dropped(found.in_columns, names, words, found.cells, found.lost),)
    return replace(
        nameless(layout),
        notes=(*layout.notes, *dropped),
        n_excluded=found.n_excluded,
        n_dropped=found.n_invalid,
        read_from=(lambda: unhashed) if prints is None else prints.files,
    )
