"""Folds and named parts of rows in memory."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.baselines import RandomMMD
from clustersplit_cli.core.certificate import (
    FixedPoint,
    certify_partition,
)
from clustersplit_cli.core.constraints.cells import Labels
from clustersplit_cli.core.constraints.groups import GroupParts
from clustersplit_cli.core.constraints.quotas import Quotas
from clustersplit_cli.core.effort import EFFORTS
from clustersplit_cli.core.geometry.low_rank import LowRankKernel, make_low_rank
from clustersplit_cli.core.mmd.estimators import SubsampleEstimate
from clustersplit_cli.core.search.groups import GroupPartsSearch
from clustersplit_cli.core.search.partition import (
    PartAssigner,
    evaluate_partition,
    measure,
    rest_squared,
)
from clustersplit_cli.core.search.partition_search import PartitionSearch
from clustersplit_cli.core.severity import PartPath, Path, standardized
from clustersplit_cli.pipeline.engine import Idle
from clustersplit_cli.pipeline.local.context import LocalContext, LocalFound, Parts, by_cbc
from clustersplit_cli.pipeline.notices import about_convergence, about_parts, about_units
from clustersplit_cli.pipeline.result import About, Notes
from clustersplit_cli.pipeline.summarize import (
    summarize_counts,
)
from clustersplit_cli.reports import summary

MANY_ROWS, NARROW_RANK = 50_000, 128
"""Beyond so many rows starts of partitions descend on a kernel of this rank, to fit in memory."""
BATCH = 4
"""Random partitions that are measured at once."""


@dataclass(frozen=True)
class LocalPartition(LocalContext):
    """Rows in memory that are to be partitioned; `units` is None where rows are on their own."""

    quotas: Quotas
    units: GroupParts | None

    @property
    def part_names(self) -> tuple[str, ...]:
        """Names of the parts."""
        return self.quotas.names

    @property
    def idle_from(self) -> Idle:
        """The search of partitions keeps all workers busy."""
        return Idle.AFTERWARDS

    @cached_property
    def assigner(self) -> PartAssigner:
        """The assignment step; centroids are handed out only to parts that are not alike."""
        unlike = len(set(self.quotas.shares)) > 1 or bool((self.quotas.pinned >= 0).any())
        return PartAssigner(self.quotas, self.workers, unlike, self.options.solver)

    def _make_low_rank(self) -> LowRankKernel:
        geometry = self.kernel.geometry
        if geometry.n > MANY_ROWS:
            return make_low_rank(geometry, self.streams.low_rank, NARROW_RANK)
        return make_low_rank(geometry, self.streams.low_rank)

    @cached_property
    def search(self) -> PartitionSearch | GroupPartsSearch:
        """The search, by exchanges of whole units where rows stay together."""
        options, geometry = self.options, self.kernel.geometry
        effort, rng, progress = EFFORTS[options.effort], self.streams.search, self.progress
        restarts, most = options.restarts, options.max_iter
        if self.units is not None:
            return GroupPartsSearch(geometry, self.units, restarts, most, effort, rng, progress)
        return PartitionSearch(
            geometry, self.low_rank(), self.assigner, restarts, most, effort, rng, progress
        )

    def refine(self, explored: Any) -> LocalFound:
        """Refine the best partitions, and measure the best of all."""
        search: Any = self.search
        with self.watch.step("search"):
            found = search.refine(explored)
            measured = evaluate_partition(self.kernel.geometry, found.labels, self.quotas.k)
        return LocalFound(found.labels, measured, found.best.converged, found)

    def find(self) -> Labels:
        """Search, for the parts alone."""
        return self.refine(self.explore()).labels

    def draw(self, strategy: str) -> Labels:
        """Draw parts that meet the quotas."""
        assert strategy == "random"
        return self.random(self.streams.search)

    def random(self, rng: np.random.Generator) -> Labels:
        """Draw parts that meet the quotas; shape (n,)."""
        return self.assigner.random(rng) if self.units is None else self.units.random(rng)

    def measure(self, parts: Labels, *, converged: bool = True) -> LocalFound:
        """Measure a partition: the part of every row."""
        with self.watch.step("measure"):
            return LocalFound(
                parts, evaluate_partition(self.kernel.geometry, parts, self.quotas.k), converged
            )

    def paths(self, found: LocalFound, draw: int = 0) -> Iterator[Path[Labels]]:
        """Ways from random partitions to the best one, to look for graded ones along."""
        costs = found.measured.costs
        towards = standardized(costs - costs.mean(axis=1, keepdims=True), self.quotas.cells)
        units = self.units
        if units is not None:
            towards = np.stack([np.bincount(units.units, weights=part) for part in towards.T], axis=1)
        counts = self.quotas.counts(found.labels)
        for stream in self.streams.noise(draw):
            noise = stream.standard_normal(towards.shape)
            if units is not None:
                noise *= units.sizes[:, None]
            yield PartPath(self.kernel.geometry, self.assigner, units, towards, noise, counts)

    def misplaced_ties(self, parts: Labels) -> None:
        """Any part may have any of the identical rows."""

    def certify(self, found: LocalFound, program: Any = None) -> FixedPoint | None:
        """Solve the assignment step at the partition's own centroids; not where rows stay together."""
        how = self.options.certification
        with self.watch.step("certificate"):
            if how == "never" or self.units is not None:
                return None
            proof = certify_partition(
                found.measured,
                found.labels,
                self.assigner,
                by_cbc=by_cbc(self.kernel.geometry.n, how),
            )
            return proof.lacking(self.kernel.geometry.lacking)

    def bound(self, found: LocalFound | None = None, *, with_support: bool = True) -> None:
        """Nothing is known that bounds the MMD of partitions."""

    def random_baseline(self, found: LocalFound | None = None, *, same_size: bool = False) -> RandomMMD:
        """Measure random partitions that meet the quotas: the same MMD, and each part's to the rest."""
        assert found is not None
        geometry, k = self.kernel.geometry, self.quotas.k
        values: list[float] = []
        rest: list[NDArray[np.float64]] = []
        streams = deepcopy(self.streams.baseline)
        ssq_total, are_one = found.measured.ssq_total, True
        for first in range(0, len(streams), BATCH):
            drawn = [self.random(stream) for stream in streams[first : first + BATCH]]
            are_one &= all(np.array_equal(labels, found.labels) for labels in drawn)
            state = measure(geometry, np.stack(drawn, axis=1), k, geometry.search_dtype)
            sizes = state.sizes.astype(np.float64)
            pairs = (sizes.sum(axis=1) ** 2 - (sizes**2).sum(axis=1)) / 2
            squared = np.maximum(ssq_total - state.psi, 0.0) * geometry.n / pairs
            values += np.sqrt(squared).tolist()
            rest.append(np.sqrt(rest_squared(state)))
        mean, sd = float(np.mean(values)), float(np.std(values, ddof=1))
        return RandomMMD(len(values), mean, sd, tuple(values), np.concatenate(rest), are_one)

    def subsample(self, found: LocalFound) -> SubsampleEstimate | None:
        """Estimate MMD² under the exact kernel; None unless the kernel is approximated."""
        return self._subsample([np.flatnonzero(found.labels == part) for part in range(self.quotas.k)])

    def about(self, *, searched: bool) -> About:
        """What the run rests on; options of a split in two are not among those used."""
        solver = "cbc" if self.options.solver == "cbc" else "transport"
        return self._about({"solver": "exchange" if self.units is not None else solver}, self.quotas)

    def constraints(self, found: LocalFound) -> summary.ConstraintsSummary:
        """Compare every cell's count in every part with its bounds."""
        quotas, labels = self.quotas, found.labels
        counted = summarize_counts(quotas, quotas.counts(labels))
        forced = quotas.forced
        pinned = None
        if forced.any():
            kept = bool((labels[forced] == quotas.pinned[forced]).all())
            to = [quotas.names[part] for part in quotas.pinned[forced].tolist()]
            pinned = summary.PinnedSummary(to.count("train"), to.count("val"), kept)
        units, tolerance = self._units(labels)
        return replace(
            counted,
            all_satisfied=counted.all_satisfied
            and (pinned is None or pinned.satisfied)
            and (units is None or not units.divided),
            integral_by=counted.integral_by if units is None else None,
            tolerance=tolerance,
            units=units,
            pinned=pinned,
        )

    def _units(self, labels: Labels) -> tuple[summary.UnitsSummary | None, summary.ToleranceSummary | None]:
        """What stays together, and how far off that puts the counts."""
        found = self.units
        if found is None:
            return None, None
        first = np.full(len(found.table), -1, dtype=np.int64)
        first[found.units] = labels
        divided = len(np.unique(found.units[labels != first[found.units]]))
        sizes = found.table.sum(axis=1)
        units = summary.UnitsSummary(self.dataset.together or "", len(sizes), int(sizes.max()), divided)
        was_found = self.options.tolerance.is_auto
        # Equal shares cannot be bettered; another tolerance is the best that exchanges led to.
        proven = found.tolerance == 0 if was_found else None
        return units, summary.ToleranceSummary(float(found.tolerance), was_found, proven)

    def notes(self, found: LocalFound, *, converged: bool, sized: bool) -> Notes:
        """Warnings about cells and the search."""
        joined = self.units
        units = () if joined is None else about_units(self.dataset.together, joined.table.sum(axis=1))
        return (*about_parts(self.quotas), *units, *about_convergence(converged, self.options.max_iter))

    def written(self, found: LocalFound) -> Parts:
        """The rows of every part."""
        return Parts.of(self.dataset.rows, self.quotas.names, found.labels)
