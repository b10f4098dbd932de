"""The search on rows that are read in pieces: on a sample, then on all rows; and what measures a split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.baselines import RandomMMD
from clustersplit_cli.core.bound.bound import factored_bound
from clustersplit_cli.core.certificate import FixedPoint
from clustersplit_cli.core.effort import EFFORTS
from clustersplit_cli.core.exact_sum import merged
from clustersplit_cli.core.geometry.factored import FactoredKernel
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.low_rank import make_image
from clustersplit_cli.core.geometry.nystrom import image_geometry
from clustersplit_cli.core.geometry.protocol import split_weights
from clustersplit_cli.core.mmd.estimators import SubsampleEstimate, subsample_mmd
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.context import SearchContext
from clustersplit_cli.core.search.problem import Problem
from clustersplit_cli.core.search.search import SplitSearch, needs_image
from clustersplit_cli.data.row_groups import Layout
from clustersplit_cli.engines import samples
from clustersplit_cli.engines.descent import (
    Ground,
    Held,
    Refined,
    at_target_counts,
    certify,
    choose,
    lowest_rows_first,
    measure,
    propose,
    side_sums,
)
from clustersplit_cli.engines.executor import Engine
from clustersplit_cli.engines.factors import FactorPlan
from clustersplit_cli.engines.finishing import CountSides, Ranked
from clustersplit_cli.engines.rules import ByThreshold, Differences, Rule, Uniform
from clustersplit_cli.engines.tasks import FactorMoments
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.assessment import COSTLY_BOUND
from clustersplit_cli.pipeline.blockwise import Prospect
from clustersplit_cli.progress import Progress, silent

SUBSAMPLE_ROWS = 2000


def explore(
    ahead: Prospect, options: CheckedOptions, workers: Workers, progress: Progress = silent
) -> tuple[NDArray[np.float64], str]:
    """Search on the sample; return the best split's witness, as weights on F, and its start's name."""
    plan, mixing, sample = ahead.plan, ahead.mixing, ahead.sample
    values = plan.to_store(sample.raw, workers)
    if mixing is None:
        factors = Features(sample.raw, plan.steps, plan.dtype).block(0, len(sample.raw))
    else:
        factors = values @ mixing.astype(values.dtype)
    limits = samples.sample_limits(ahead.surveyed.limits, sample.codes)
    problem = Problem(image_geometry(factors, workers), limits)
    context = SearchContext(
        problem,
        Selection(limits),
        workers,
        options.restarts,
        options.max_iter,
        EFFORTS[options.effort],
        progress,
    )
    image = make_image(problem.geometry, ahead.streams.image) if needs_image(problem) else None
    solution = SplitSearch(context, image, ahead.streams.search).solve()
    weights = split_weights(solution.members[:, None])
    sums = sum_factors(plan, values, np.asarray(weights, dtype=np.float64))[:, 0]
    spread = sums if mixing is None else np.asarray(mixing @ (mixing.T @ sums))
    return spread, solution.runs[solution.winner].start


def sum_factors(plan: FactorPlan, values: NDArray[Any], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """F' weights for rows in memory, some at a time."""
    total = np.zeros((plan.width, weights.shape[1]))
    for start in range(0, len(values), 4096):
        piece = slice(start, start + 4096)
        total += plan.factors(values[piece]).T @ weights[piece]
    return total


def lift(engine: Engine, ahead: Prospect, weights: NDArray[np.float64]) -> tuple[Ground, Held]:
    """Carry a split of the sample over to all rows: rank every row by the sample's witness."""
    limits = ahead.surveyed.limits
    source = Differences(weights[:, None], np.zeros(1))
    quotas = at_target_counts(limits)
    rule = ByThreshold(source, choose(engine, source, np.stack([quotas, quotas], axis=1)), column=0)
    return take_stock(engine, ahead, rule)


def take_stock(engine: Engine, ahead: Prospect, rule: Rule) -> tuple[Ground, Held]:
    """Measure a split given as a rule, and with it the kernel as a whole."""
    limits = ahead.surveyed.limits
    sums, counts = side_sums(engine, rule, len(limits.target), with_total=True)
    kernel = FactoredKernel(ahead.surveyed.n, sums[:, -1], ahead.mixing, ahead.trace, ahead.trace_error)
    state = kernel.state(sums[:, 0], int(counts[:, 0].sum()))
    return Ground(engine, limits, kernel), Held(rule, state, counts[:, 0])


def settle(
    ground: Ground, ahead: Prospect, refined: Refined, *, certified: bool
) -> tuple[Refined, FixedPoint | None]:
    """Give places among identical rows to the lowest of them, and certify the result."""
    split, proposal = refined.split, refined.proposal
    if isinstance(split.rule, ByThreshold) and isinstance(split.rule.source, Differences):
        # Rows of linear kernels are converted before anything is multiplied.
        precision = np.dtype(np.float64) if ahead.mixing is None else ahead.plan.stored
        rule = lowest_rows_first(ground.engine, split.rule, _largest_factor(ahead), precision)
        if rule is not split.rule:
            (split,) = measure(ground, rule)
            proposal = None
    if proposal is None and certified:
        proposal = propose(ground, split, ("certificate", "certificate"))
    certificate = certify(ground, split, proposal) if certified and proposal is not None else None
    psi = (*refined.psi[:-1], split.state.psi)
    return Refined(split, psi, refined.passes, refined.converged, proposal), certificate


def random_baseline(ground: Ground, streams: tuple[np.random.Generator, ...]) -> RandomMMD:
    """Measure random splits that meet every cell's target: the very ones that the local engine draws."""
    quotas = at_target_counts(ground.limits)
    source = Uniform.of(streams)
    rule = ByThreshold(
        source, choose(ground.engine, source, np.repeat(quotas[:, None], len(streams), axis=1))
    )
    squared = np.array([held.state.mmd_squared for held in measure(ground, rule)])
    values = np.sqrt(np.maximum(squared, 0.0))
    return RandomMMD(len(values), float(values.mean()), float(values.std(ddof=1)), tuple(values.tolist()))


def upper_bound(ground: Ground, ahead: Prospect, how: str) -> float | None:
    """Bound the MMD of all splits with these counts; None with tolerances, or where it costs too much."""
    if how == "never" or not ground.limits.is_exact:
        return None
    width = ahead.plan.width
    if how == "auto" and max(ground.kernel.n, 50 * width) * width**2 > COSTLY_BOUND:
        return None
    parts = ground.engine.run(FactorMoments(ahead.mixing, len(ground.limits.target)))
    gram, sums = (merged(column) for column in zip(*parts, strict=True))
    precision = np.dtype(ahead.plan.stored if ahead.mixing is not None else ahead.plan.dtype)
    return factored_bound(ground.limits, gram, sums, precision)


@dataclass(frozen=True)
class Subsampled:
    """An estimate, and the rows it rests on: their numbers among all that take part."""

    estimate: SubsampleEstimate | None
    val: NDArray[np.int64]
    train: NDArray[np.int64]


def subsample(layout: Layout, ground: Ground, ahead: Prospect, rule: Rule) -> Subsampled | None:
    """Estimate MMD² under the exact kernel on the very subsample that the local engine draws."""
    if ahead.mixing is None:
        return None
    sizes = ground.engine.run(CountSides(rule))
    picks = [
        _draw(sum(size[side] for size in sizes), SUBSAMPLE_ROWS, ahead.streams.samples) for side in range(2)
    ]
    starts = np.cumsum([[0, 0], *sizes], axis=0)[:-1]
    ranks = tuple(tuple(picks[side] - start[side] for side in range(2)) for start in starts)
    inside = tuple(
        tuple(rank[(rank >= 0) & (rank < size)] for rank, size in zip(pair, counts, strict=True))
        for pair, counts in zip(ranks, sizes, strict=True)
    )
    found = ground.engine.run(Ranked(rule, inside))
    val, train = (np.concatenate([part[side] for part in found]) for side in range(2))
    at_hand = samples.gather(ground.engine, {"val": val, "train": train}, layout.width, layout.features.dtype)
    members = np.zeros(len(at_hand.numbers), dtype=bool)
    members[at_hand.places(val)] = True
    features = Features(at_hand.raw, ahead.plan.steps, ahead.prepared.features.dtype)
    # All of the rows are drawn again, in order: the estimate is of these rows and no others.
    kernel, again = ahead.prepared.kernel, np.random.default_rng(0)
    return Subsampled(subsample_mmd(features, kernel, members, SUBSAMPLE_ROWS, again), val, train)


def _draw(total: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Ranks of the rows that `core.mmd` would draw of one side."""
    if total <= size:
        return np.arange(total)
    return np.sort(rng.choice(total, size=size, replace=False)).astype(np.int64)


def _largest_factor(ahead: Prospect) -> float:
    """A bound on the absolute entries of F."""
    if ahead.prepared.kernel.name == "rbf":
        return 1.0
    values = ahead.plan.factors(ahead.plan.to_store(ahead.sample.raw[:1024], _alone()))
    return float(np.abs(values).max(initial=1.0))


def _alone() -> Workers:
    from concurrent.futures import ThreadPoolExecutor

    return Workers(ThreadPoolExecutor(1), 1)
