"""Descent on rows that are not in memory: thresholds from histograms, centroids from sums of factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.prices import Nearest, PricedParts, find_prices
from clustersplit_cli.core.assignment.thresholds import Thresholds, find_thresholds, ordered_keys
from clustersplit_cli.core.certificate import GAP_TOLERANCE, SMALLEST_OBJECTIVE, FixedPoint
from clustersplit_cli.core.constraints.quotas import Quotas, ValidationQuotas
from clustersplit_cli.core.exact_sum import merged
from clustersplit_cli.core.geometry.factored import FactoredKernel, SplitState
from clustersplit_cli.core.search.partition import PartitionMeasures, measure_sums
from clustersplit_cli.core.search.starts import at_targets
from clustersplit_cli.engines.executor import Executor
from clustersplit_cli.engines.rules import (
    ByPrices,
    ByThreshold,
    Differences,
    Distances,
    KeySource,
    Rule,
    Worth,
)
from clustersplit_cli.engines.tasks import (
    CountKeys,
    CountMargins,
    CountNegative,
    CountOnEdge,
    Identities,
    NearPrices,
    NearThreshold,
    Score,
    SumSides,
)

NOISE = 1e-13
"""Smaller gains, relative to the scatter explained so far, are rounding; as in `lloyd`, for float64."""


@dataclass(frozen=True)
class ShardedProblem:
    """Where a descent takes place: the rows, what they must meet, and their kernel."""

    executor: Executor
    limits: ValidationQuotas
    kernel: FactoredKernel


@dataclass(frozen=True)
class SplitByRule:
    """A split as a rule, measured, with its validation rows per cell."""

    rule: Rule
    state: SplitState
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class Proposal:
    """Both orientations of the assignment step at a split's centroids, and their costs."""

    splits: tuple[SplitByRule, SplitByRule]
    costs: tuple[float, float]

    @property
    def best(self) -> SplitByRule:
        """The cheaper one; ties keep the present orientation."""
        return self.splits[int(self.costs[1] < self.costs[0])]


@dataclass(frozen=True)
class Refined:
    """Where a descent ended.

    Attributes
    ----------
    psi : of the initial split and after every step that was taken.
    passes : passes over all factors.
    converged : whether it stopped by itself.
    proposal : the assignment step at the final split; None if passes ran out before.
    """

    split: SplitByRule
    psi: tuple[float, ...]
    passes: int
    converged: bool
    proposal: Proposal | None


def choose(executor: Executor, source: KeySource, quotas: NDArray[np.int64]) -> Thresholds:
    """Find the thresholds that choose `quotas`, of shape (cells, columns), of the smallest keys."""
    return find_thresholds(
        quotas,
        lambda interval: _added(executor.run(CountKeys(source, interval))),
        lambda edges, interval: _added(executor.run(CountOnEdge(source, edges, interval))),
    )


def at_target_counts(limits: ValidationQuotas) -> NDArray[np.int64]:
    """Every cell's target, adjusted where a side would be empty."""
    return at_targets(limits).constraints.lower


def measure(problem: ShardedProblem, rule: Rule) -> list[SplitByRule]:
    """Measure all splits of a rule in one pass."""
    sums, counts = side_sums(problem.executor, rule, len(problem.limits.target))
    return [
        SplitByRule(_column(rule, column), problem.kernel.state(sums[:, column], int(count.sum())), count)
        for column, count in enumerate(counts.T)
    ]


def side_sums(
    executor: Executor, rule: Rule, n_cells: int, *, with_total: bool = False, label: str = "sum"
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Sums of factors over the validation rows, (p, splits), and their counts, (cells, splits)."""
    parts = executor.run(SumSides(rule, n_cells, with_total, label))
    return merged([part.factors for part in parts]), _added([part.counts for part in parts])


def propose(
    problem: ShardedProblem, split: SplitByRule, labels: tuple[str, str] = ("score", "sum")
) -> Proposal:
    """Make the assignment step at a split's centroids, in two passes that go by the given labels."""
    state, limits = split.state, problem.limits
    source = Differences(state.weights[:, None], np.array([state.shift]))
    problem.executor.run(Score(source.weights, labels[0]))
    if limits.is_exact:
        quotas = np.stack([limits.target, limits.target], axis=1)
    else:
        negative = _added(problem.executor.run(CountNegative(source, len(limits.target))))
        quotas = np.clip(negative, limits.lower[:, None], limits.upper[:, None])
    rule = ByThreshold(source, choose(problem.executor, source, quotas))
    n_val = quotas.sum(axis=0)
    if not ((n_val > 0) & (n_val < problem.kernel.n)).all():
        # With tolerances a side may come out empty; then that orientation is no split, and not cheaper.
        quotas = np.where((n_val > 0) & (n_val < problem.kernel.n), quotas, split.counts[:, None])
        rule = ByThreshold(source, choose(problem.executor, source, quotas))
    sums, counts = side_sums(problem.executor, rule, len(limits.target), label=labels[1])
    kept, turned = (
        SplitByRule(
            _column(rule, column),
            problem.kernel.state(sums[:, column], int(counts[:, column].sum())),
            counts[:, column],
        )
        for column in range(2)
    )
    every = (
        state.training_cost
        - 2.0 * float(problem.kernel.total @ state.weights)
        + problem.kernel.n * state.shift
    )
    costs = (
        state.cost(sums[:, 0], kept.state.n_val),
        # The other way round, the rows that are not chosen go to the validation centroid.
        every - (state.cost(sums[:, 1], turned.state.n_val) - state.training_cost),
    )
    return Proposal((kept, turned), costs)


def descend(problem: ShardedProblem, start: SplitByRule, *, max_passes: int) -> Refined:
    """Alternate centroids and assignment until nothing changes or the passes are used up.

    Psi never rises: a step that does not lower it is not taken.
    """
    split, psi, passes = start, [start.state.psi], 0
    while passes + 2 <= max_passes:
        labels = [f"pass {number} of {max_passes}" for number in (passes + 1, passes + 2)]
        proposal = propose(problem, split, (labels[0], labels[1]))
        passes += 2
        best = proposal.best
        gain = split.state.psi - best.state.psi
        if not gain > NOISE * max(problem.kernel.ssq_total - split.state.psi, 0.0):
            return Refined(split, tuple(psi), passes, True, proposal)
        split = best
        psi.append(best.state.psi)
    return Refined(split, tuple(psi), passes, False, None)


def certify(problem: ShardedProblem, split: SplitByRule, proposal: Proposal) -> FixedPoint:
    """Compare a split's own cost with that of the assignment step at its centroids."""
    optimum, own = min(proposal.costs), split.state.own_cost
    gap = (own - optimum) / max(optimum, SMALLEST_OBJECTIVE * problem.kernel.trace)
    status = "optimal" if gap <= GAP_TOLERANCE else "not a fixed point"
    return FixedPoint("threshold", status, optimum, gap, True, 0)


def _column(rule: Rule, column: int) -> Rule:
    return replace(rule, column=column) if isinstance(rule, ByThreshold) and rule.n_columns > 1 else rule


def _added(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Add counts; a shard without rows has none to add."""
    return np.asarray(sum(part for part in parts if part.size), dtype=np.int64)


ROUNDING = 16.0
"""Equal rows' witnesses differ by no more than this many roundings of the largest factor's contribution."""


def lowest_rows_first(
    executor: Executor, rule: ByThreshold, largest: float, precision: np.dtype[Any]
) -> ByThreshold:
    """Give the validation places among identical rows of a cell to the lowest of them.

    The witness of a row depends a little on its place in a block, so equal rows need not tie exactly.
    Those that a threshold could have torn apart lie within rounding of it; they are compared by hashes.

    Parameters
    ----------
    largest : the largest absolute factor.
    precision : in which factors are kept.
    """
    source = rule.source
    assert isinstance(source, Differences) and rule.column is not None
    size = float(np.linalg.norm(source.weights[:, rule.column % source.weights.shape[1]]))
    margin = ROUNDING * float(np.finfo(precision).eps) * largest * size
    edges = _values(rule.thresholds.edges[:, rule.column])
    near = NearThreshold(rule, ordered_keys(edges - margin), ordered_keys(edges + margin))
    numbers, cells, sides = (np.concatenate(part) for part in zip(*executor.run(near), strict=True))
    torn = _both_sides(cells, sides)
    if not torn.any():
        return rule
    numbers, cells, sides = numbers[torn], cells[torn], sides[torn]
    keys = np.empty(len(numbers), np.uint64)
    for places, found in executor.run(Identities(numbers)):
        keys[places] = found
    _, groups = np.unique(np.stack([cells.astype(np.uint64), keys]), axis=1, return_inverse=True)
    moved = _lowest_first(groups.reshape(-1), sides)
    changed = np.flatnonzero(moved != sides)
    if not len(changed):
        return rule
    return replace(rule, moved=(numbers[changed], moved[changed]))


def _both_sides(groups: NDArray[np.int64], sides: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the rows of groups that have rows on both sides."""
    if not len(groups):
        return np.zeros(0, dtype=bool)
    chosen, total = np.bincount(groups[sides], minlength=groups.max() + 1), np.bincount(groups)
    return np.asarray(((chosen > 0) & (chosen < total))[groups])


def _lowest_first(groups: NDArray[np.int64], sides: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Within each group, as many chosen rows as before, but the first ones."""
    sizes = np.bincount(groups)
    places = np.bincount(groups[sides], minlength=len(sizes))
    order = np.argsort(groups, kind="stable")
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rank = np.arange(len(groups)) - np.repeat(first, sizes)
    moved = np.empty_like(sides)
    moved[order] = rank < np.repeat(places, sizes)
    return moved


def _values(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The numbers that keys stand for."""
    positive = (keys >> np.uint64(63)).astype(bool)
    bits = np.where(positive, keys & np.uint64((1 << 63) - 1), ~keys)
    return np.nan_to_num(bits.view(np.float64))


TIES = 1e-9
"""Share of the longest distance by which the order of rows may tip the choice between parts."""


@dataclass(frozen=True)
class PartsByRule:
    """A partition as a rule, and what it measures.

    Attributes
    ----------
    sums : (p, k), of the factors of every part.
    counts : (cells, k)
    measured : all that follows from them.
    distances : to its centroids.
    own_cost : the sum of the rows' distances to their own centroids.
    """

    rule: Rule
    sums: NDArray[np.float64]
    counts: NDArray[np.int64]
    measured: PartitionMeasures
    distances: Distances
    own_cost: float

    @property
    def psi(self) -> float:
        """Its objective."""
        return self.measured.psi

    def cost(self, other: PartsByRule) -> float:
        """What another partition costs at these centroids."""
        at = self.distances
        sizes = other.counts.sum(axis=0)
        return self.measured.trace + float(
            (sizes * at.lengths).sum() - 2.0 * np.einsum("ij,ij->", other.sums, at.weights)
        )


@dataclass(frozen=True)
class RefinedParts:
    """Where a descent of parts ended; attributes as of `Refined`, and the last proposal's cost."""

    parts: PartsByRule
    psi: tuple[float, ...]
    passes: int
    converged: bool
    optimum: float | None


def distances_to(
    kernel: FactoredKernel, sums: NDArray[np.float64], sizes: NDArray[np.int64], n: int
) -> Distances:
    """Distances to the centroids of parts whose factors add up to `sums`, (p, k), over `sizes` rows."""
    means = sums / np.maximum(sizes, 1)
    lengths = kernel.square(means)
    return Distances(kernel.weigh(means), lengths, TIES * float(lengths.max(initial=0.0)), n)


def measure_parts(kernel: FactoredKernel, rule: Rule, summed: tuple[Any, NDArray[np.int64]]) -> PartsByRule:
    """Measure a partition by the sums over its parts and their counts."""
    sums, counts = summed
    sizes = counts.sum(axis=0)
    inner = kernel.mixed(sums)
    measured = measure_sums(inner.T @ inner, sizes, kernel.trace)
    found = PartsByRule(rule, sums, counts, measured, distances_to(kernel, sums, sizes, kernel.n), 0.0)
    return replace(found, own_cost=found.cost(found))


def assign_parts(
    executor: Executor,
    bounds: tuple[NDArray[np.int64], NDArray[np.int64]],
    distances: Distances,
    prices: NDArray[np.float64],
    label: str = "score",
) -> ByPrices:
    """Make the assignment step: one pass over the factors, and counts of what it gives.

    Parameters
    ----------
    bounds : the least and the most rows of every cell that go to each part, each (cells, k).
    prices : (cells, k), to begin from.
    """
    executor.run(Score(distances.weights, label))
    lower, upper = bounds
    means = (lower + upper) // 2

    def price(prices: NDArray[np.float64], part: int) -> NDArray[np.float64]:
        edges = choose(executor, Worth(distances, prices, part), means[:, [part]]).edges
        # A row on the edge is the last that comes, or the first that does not.
        return -_values(edges[:, 0])

    def gather(prices: NDArray[np.float64], wanted: NDArray[np.int64]) -> Nearest:
        parts = executor.run(NearPrices(distances, prices, wanted))
        return Nearest.joined(parts, prices.shape[1]).nearest(prices, wanted)

    found: PricedParts = find_prices(
        lower,
        upper,
        prices,
        4.0 * float(np.sqrt(distances.lengths.max(initial=0.0))),
        lambda margins: _added(executor.run(CountMargins(distances, margins))),
        price,
        gather,
    )
    return ByPrices(distances, found)


def prices_of(parts: PartsByRule, quotas: Quotas) -> NDArray[np.float64]:
    """Prices to begin from, (cells, k): those that made the parts, if any did."""
    rule = parts.rule
    return rule.found.prices if isinstance(rule, ByPrices) else np.zeros(quotas.lower.shape)


def descend_parts(
    executor: Executor, quotas: Quotas, kernel: FactoredKernel, start: PartsByRule, *, max_passes: int
) -> RefinedParts:
    """Alternate centroids and assignment until nothing changes or the passes are used up; Psi never rises."""
    parts, psi, passes = start, [start.psi], 0
    bounds, n_cells = (quotas.lower, quotas.upper), len(quotas.target)
    while passes + 2 <= max_passes:
        labels = [f"pass {number} of {max_passes}" for number in (passes + 1, passes + 2)]
        rule = assign_parts(executor, bounds, parts.distances, prices_of(parts, quotas), labels[0])
        passes += 2
        summed = side_sums(executor, rule, n_cells, label=labels[1])
        if (summed[1].sum(axis=0) == 0).any():  # wide tolerances allow that, and it is no partition
            return RefinedParts(parts, tuple(psi), passes, True, None)
        proposed = measure_parts(kernel, rule, summed)
        gain = parts.psi - proposed.psi
        if not gain > NOISE * max(kernel.ssq_total - parts.psi, 0.0):
            return RefinedParts(parts, tuple(psi), passes, True, parts.cost(proposed))
        parts = proposed
        psi.append(parts.psi)
    return RefinedParts(parts, tuple(psi), passes, False, None)


def certify_parts(parts: PartsByRule, optimum: float) -> FixedPoint:
    """Compare a partition's own cost with that of the assignment step at its centroids, as they are."""
    optimum = min(optimum, parts.own_cost)
    gap = (parts.own_cost - optimum) / max(optimum, SMALLEST_OBJECTIVE * parts.measured.trace)
    status = "optimal" if gap <= GAP_TOLERANCE else "not a fixed point"
    return FixedPoint("transport", status, optimum, gap, True, 0)
