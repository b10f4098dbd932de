"""Folds and named parts of rows that are read in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.baselines import RandomMMD
from clustersplit_cli.core.certificate import FixedPoint
from clustersplit_cli.core.constraints.quotas import Quotas
from clustersplit_cli.core.effort import EFFORTS
from clustersplit_cli.core.geometry.factored import FactoredKernel
from clustersplit_cli.core.geometry.low_rank import make_low_rank
from clustersplit_cli.core.geometry.nystrom import low_rank_geometry
from clustersplit_cli.core.mmd.estimators import SubsampleEstimate
from clustersplit_cli.core.search.partition import PartAssigner, State, measure, one_hot
from clustersplit_cli.core.search.partition_search import PartitionSearch, sampled_quotas
from clustersplit_cli.core.search.problem import Measures
from clustersplit_cli.core.search.solution import Restart, Step
from clustersplit_cli.core.severity import Path
from clustersplit_cli.engines.descent import (
    PartsByRule,
    RefinedParts,
    assign_parts,
    certify_parts,
    choose,
    descend_parts,
    distances_to,
    measure_parts,
    prices_of,
    side_sums,
)
from clustersplit_cli.engines.rules import Cuts, RandomParts, Rule, Uniform
from clustersplit_cli.errors import needs_all_rows
from clustersplit_cli.pipeline.notices import about_parts
from clustersplit_cli.pipeline.result import About, Notes, Searched
from clustersplit_cli.pipeline.sharded.context import ShardedContext
from clustersplit_cli.pipeline.summarize import summarize_counts
from clustersplit_cli.reports import summary

STREAMS_AT_ONCE = 4
"""Random partitions whose cuts are looked for at once."""


@dataclass(frozen=True)
class FoundParts:
    """Parts as a rule, measured, and how they were arrived at; attributes as of `ShardedFound`."""

    kernel: FactoredKernel
    refined: RefinedParts
    start: str | None = None

    @property
    def rule(self) -> Rule:
        """Which part every row is in."""
        return self.refined.parts.rule


@dataclass(frozen=True)
class ShardedPartition(ShardedContext[FoundParts]):
    """Rows in shards that are to be partitioned, and their kernel."""

    @property
    def quotas(self) -> Quotas:
        """What every part gets of every cell."""
        return self.kernel.surveyed.quotas

    def explore(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], str]:
        """Search on the sample.

        Returns
        -------
        Sums of F over the best partition's parts, (p, k), their sizes, the prices of every cell there, and
        the name of the start.
        """
        kernel, workers, k = self.kernel, self.engine.workers, self.quotas.k
        sample = kernel.sample
        with self.watch.step("search"):
            values, factors = self.sample_factors()
            quotas = sampled_quotas(self.quotas, sample.codes)
            geometry = low_rank_geometry(factors, workers)
            unlike = len(set(self.quotas.shares)) > 1
            assigner = PartAssigner(quotas, workers, unlike)
            solution = PartitionSearch(
                geometry,
                make_low_rank(geometry, kernel.streams.low_rank),
                assigner,
                self.options.restarts,
                self.options.max_iter,
                EFFORTS[self.options.effort],
                kernel.streams.search,
                self.progress,
            ).solve()
            state: State = measure(geometry, solution.labels[:, None], k, np.float64)
            prices = assigner.assign_in_order(state.costs()).prices[0]
            marks = one_hot(solution.labels[:, None], k, np.float64)
            sums = self.sum_of_sample(values, marks)
            return sums, state.sizes[0], prices, solution.runs[solution.winner].start

    def refine(
        self, explored: tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], str]
    ) -> FoundParts:
        """Carry the parts of the sample over to all rows, by their centroids, and descend."""
        sums, sizes, prices, start = explored
        quotas, executor = self.quotas, self.executor
        with self.watch.step("kernel"):
            distances = distances_to(self.whole(np.zeros(len(sums))), sums, sizes, self.kernel.surveyed.n)
            rule = assign_parts(executor, (quotas.target, quotas.target), distances, prices)
            kernel, parts = self.measured_with_kernel(rule)
        with self.watch.step("refine"):
            most = self.engine.engine_options.max_passes
            refined = descend_parts(executor, quotas, kernel, parts, max_passes=most)
            return FoundParts(kernel, refined, start)

    def measured_with_kernel(self, rule: Rule) -> tuple[FactoredKernel, PartsByRule]:
        """Measure parts given as a rule, and with them the kernel as a whole."""
        sums, counts = side_sums(self.executor, rule, len(self.quotas.target), with_total=True)
        whole = self.whole(sums[:, -1])
        self.kernel.prepared.require_digits(whole.ssq_total, whole.trace, whole.n)
        return whole, measure_parts(whole, rule, (sums[:, :-1], counts))

    def account(self, found: FoundParts) -> Searched:
        """Name the one start that was carried over from the sample to all rows, and Psi after every step."""
        psi, measured = found.refined.psi, found.refined.parts.measured
        steps = [Step("start" if number == 0 else "lloyd", number, value) for number, value in enumerate(psi)]
        mmd = float(max(measured.mmd_squared, 0.0) ** 0.5)
        run = Restart(found.start or "", len(psi) - 1, measured.psi, mmd, found.refined.converged)
        return Searched(tuple(steps), (run,), 0)

    def draw(self, strategy: str) -> Rule:
        """Refused: baselines are splits in two."""
        raise needs_all_rows(f"baseline {strategy}")

    def measure(self, parts: Rule, *, converged: bool = True) -> FoundParts:
        """Measure parts that are given as a rule."""
        with self.watch.step("kernel"):
            kernel, held = self.measured_with_kernel(parts)
        return FoundParts(kernel, RefinedParts(held, (held.psi,), 0, converged, None))

    def paths(self, found: FoundParts, draw: int = 0) -> Iterator[Path[Rule]]:
        """Refused: graded parts are looked for among rows in memory."""
        raise needs_all_rows("graded parts")

    def with_parts(self, found: FoundParts, parts: Rule) -> FoundParts:
        """Other parts than a search found, measured."""
        return self.measure(parts, converged=found.refined.converged)

    def has_converged(self, found: FoundParts, certificate: FixedPoint | None) -> bool:
        """Whether nothing, or nothing worth a pass, was left to gain."""
        return found.refined.converged or (certificate is not None and certificate.status == "optimal")

    def certify(self, found: FoundParts, program: Any = None) -> FixedPoint | None:
        """Compare with the assignment step at the parts' own centroids, each serving its own part."""
        if self.options.certification == "never":
            return None
        parts, optimum, quotas = found.refined.parts, found.refined.optimum, self.quotas
        with self.watch.step("certificate"):
            if optimum is None:
                bounds, prices = (quotas.lower, quotas.upper), prices_of(parts, quotas)
                rule = assign_parts(self.executor, bounds, parts.distances, prices, "certificate")
                summed = side_sums(self.executor, rule, len(quotas.target), label="certificate")
                sizes = summed[1].sum(axis=0)
                at = parts.distances
                optimum = found.kernel.trace + float(
                    (sizes * at.lengths).sum() - 2.0 * np.einsum("ij,ij->", summed[0], at.weights)
                )
            return certify_parts(parts, optimum)

    def bound(self, found: FoundParts | None = None, *, with_support: bool = True) -> None:
        """Nothing is known that bounds the MMD of partitions."""

    def random_baseline(self, found: FoundParts | None = None, *, same_size: bool = False) -> RandomMMD:
        """Measure random parts that meet the quotas: the same MMD."""
        assert found is not None
        streams, k = deepcopy(self.kernel.streams.baseline), self.quotas.k
        cuts = np.cumsum(self.quotas.target, axis=1)[:, :-1]
        squared: list[float] = []
        for first in range(0, len(streams), STREAMS_AT_ONCE):
            some = streams[first : first + STREAMS_AT_ONCE]
            source = Cuts(Uniform.of(some), k - 1)
            rule = RandomParts(source, choose(self.executor, source, np.tile(cuts, (1, len(some)))))
            sums, counts = side_sums(self.executor, rule, len(cuts))
            for place in range(len(some)):
                mine = slice(place * k, (place + 1) * k)
                measured = measure_parts(found.kernel, rule, (sums[:, mine], counts[:, mine])).measured
                squared.append(measured.mmd_squared)
        values = np.sqrt(np.maximum(np.array(squared), 0.0))
        return RandomMMD(len(values), float(values.mean()), float(values.std(ddof=1)), tuple(values.tolist()))

    def subsample(self, found: FoundParts) -> SubsampleEstimate | None:
        """Estimate MMD² under the exact kernel; None unless the kernel is approximated."""
        if self.kernel.mixing is None:
            return None
        with self.watch.step("subsample"):
            return self.estimate(found)

    def about(self, *, searched: bool) -> About:
        """What the run rests on; options of a search are not among those used where there was none."""
        return self.rests_on({"solver": "transport"}, searched=searched)

    def measures(self, found: FoundParts) -> Measures:
        """What the parts measure."""
        return found.refined.parts.measured

    @property
    def drawing_order(self) -> range:
        """One part after the other."""
        return range(self.quotas.k)

    def misplaced_ties(self, parts: Rule) -> None:
        """Any part may have any of the identical rows."""

    def constraints(self, found: FoundParts) -> summary.ConstraintsSummary:
        """Compare every cell's count in every part with its bounds."""
        return summarize_counts(self.quotas, found.refined.parts.counts)

    def notes(self, found: FoundParts, *, converged: bool, sized: bool) -> Notes:
        """Warnings about cells, and passes that ran out."""
        most = self.engine.engine_options.max_passes
        left = f"the parts were still improving after {most} passes; raise --passes"
        return (*about_parts(self.quotas), *(() if converged else (("not_converged", left),)))

    def passes_of(self, found: FoundParts) -> int:
        """Passes over all factors that refined the parts."""
        return found.refined.passes

    def written(self, found: FoundParts) -> Rule:
        """Which part every row is in."""
        return found.rule

    def rule_of(self, found: FoundParts) -> Rule:
        """Which part every row is in."""
        return found.rule
