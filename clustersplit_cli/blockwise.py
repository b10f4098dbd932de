"""The order of the steps where rows are read in pieces: from row groups to a split as a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment import Selection
from clustersplit_cli.core.baselines import RandomMMD
from clustersplit_cli.core.bound import factored_bound
from clustersplit_cli.core.centroids import FactoredKernel
from clustersplit_cli.core.certificate import FixedPoint
from clustersplit_cli.core.constraints import Cells, Constraints, make_constraints
from clustersplit_cli.core.exact_sum import merged
from clustersplit_cli.core.features import Affine, Features, Moments, unit_rows
from clustersplit_cli.core.geometry import choose_landmarks, image_geometry, inverse_root
from clustersplit_cli.core.image import make_image
from clustersplit_cli.core.kernels import (
    DEGENERACY_SAMPLE,
    MEDIAN_SAMPLE,
    KernelSpread,
    Prepared,
    off_diagonal_spread,
    prepare_with,
)
from clustersplit_cli.core.mmd import SubsampleEstimate, subsample_mmd
from clustersplit_cli.core.problem import Problem, split_weights
from clustersplit_cli.core.search import EFFORTS, search
from clustersplit_cli.core.workers import Workers
from clustersplit_cli.data.readers.categories import no_value, value_never_occurs
from clustersplit_cli.data.readers.naming import shown
from clustersplit_cli.data.row_groups import Layout, read_batches
from clustersplit_cli.engines import samples
from clustersplit_cli.engines.descent import (
    Ground,
    Held,
    Refined,
    at_target_counts,
    certify,
    choose,
    descend,
    measure,
    propose,
    side_sums,
)
from clustersplit_cli.engines.engine import Engine
from clustersplit_cli.engines.factors import FactorPlan, Numbering
from clustersplit_cli.engines.rules import ByThreshold, Differences, Rule, Uniform
from clustersplit_cli.engines.survey import Found
from clustersplit_cli.engines.tasks import CountSides, FactorMoments, Ranked, Survey
from clustersplit_cli.engines.ties import lowest_rows_first
from clustersplit_cli.errors import InputError
from clustersplit_cli.holding import Streams
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.progress import Progress, silent
from clustersplit_cli.stopwatch import Stopwatch

COSTLY_BOUND = 4e11
SUBSAMPLE_ROWS = 2000


@dataclass(frozen=True)
class Surveyed:
    """What the first pass found: how many rows take part, their cells, and the columns' moments."""

    found: Found
    n: int
    limits: Constraints
    rounding: str
    numbering: Numbering
    moments: Moments


@dataclass(frozen=True)
class Prospect:
    """Everything before a split is chosen: the kernel, the landmarks, and a sample to search on.

    Attributes
    ----------
    mixing : (q, r) for landmarks; None for linear kernels.
    trace, trace_error : of the kernel.
    sample : the rows that the search explores.
    """

    surveyed: Surveyed
    prepared: Prepared
    spread: KernelSpread | None
    plan: FactorPlan
    mixing: NDArray[np.float64] | None
    trace: float
    trace_error: float
    sample: samples.Gathered
    streams: Streams

    @property
    def geometry(self) -> str:
        """How the kernel is held."""
        return "linear" if self.mixing is None else "nystrom"


def look(layout: Layout, engine: Engine, options: CheckedOptions, watch: Stopwatch) -> Surveyed:
    """Make the first pass, and give every cell its share.

    Raises
    ------
    InputError : values that cannot be used.
    InfeasibleError : the quotas cannot be met.
    """
    with watch.step("read"):
        steps = _stateless_steps(options)
        parts = engine.run(Survey(_typical_row(layout, steps), steps))
        found: Found = reduce(_merged, parts)
        _refuse(layout, found)
    with watch.step("constraints"):
        cells = _cells(layout, found)
        rounding = options.rounding or "nearest"
        general = options.tolerance.of_cells([cells])[0]
        allowed = [value if value is not None else 0 for value in general]
        limits = make_constraints(cells, options.holdout, _fractions(allowed), rounding)
        offsets = np.cumsum([0, *(part.n_kept for part in parts)])[:-1].tolist()
        order = {tuple(name.values()): number for number, name in enumerate(cells.names)}
        numbering = Numbering(order, tuple(offsets))
        assert found.columns is not None
        moments = found.columns.moments(found.n_kept)
    engine.tell(numbering)
    return Surveyed(found, found.n_kept, limits, rounding, numbering, moments)


def prospect(
    layout: Layout,
    engine: Engine,
    options: CheckedOptions,
    surveyed: Surveyed,
    landmarks: int | None,
    sample_rows: int,
    workers: Workers,
    watch: Stopwatch,
) -> Prospect:
    """Bring samples together, resolve the kernel, and tell the engine how rows become factors."""
    streams, n = Streams.from_seed(options.seed), surveyed.n
    dtype = layout.features.dtype
    with watch.step("sample"):
        (width_stream,) = streams.samples.spawn(1)
        wanted = {"first": np.zeros(1, np.int64)}
        if options.gamma == "median":
            wanted["median"] = np.sort(width_stream.choice(n, size=min(n, MEDIAN_SAMPLE), replace=False))
        if options.kernel == "rbf":
            wanted["spread"] = np.sort(streams.samples.choice(n, size=min(n, DEGENERACY_SAMPLE), replace=False))
        if landmarks is not None:
            wanted["landmarks"] = choose_landmarks(n, landmarks, streams.landmarks)
            wanted["trace"] = samples.trace_numbers(n)
        if sample_rows:
            (draws,) = streams.image.spawn(1)
            wanted["search"] = samples.stratified_numbers(
                engine, surveyed.limits.cells.sizes, sample_rows, draws
            )
        at_hand = samples.gather(engine, wanted, layout.width, dtype)
    with watch.step("prepare"):
        features = _standardized(Features(at_hand.rows(wanted.get("median", wanted["first"]))), options, surveyed)
        prepared = prepare_with(
            features.features, features.moments, n, options.kernel, options.gamma, options.degree, width_stream
        )
        whole = Features(at_hand.raw, prepared.features.steps, prepared.features.dtype)
        spread = None
        if "spread" in wanted:
            seen = Features(at_hand.rows(wanted["spread"]), whole.steps, whole.dtype)
            spread = off_diagonal_spread(Prepared(prepared.kernel, seen, 1.0), np.random.default_rng(0))
    with watch.step("kernel"):
        stored = np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)
        centres, mixing = None, None
        trace, trace_error = n * features.moments.total_variance, 0.0
        if landmarks is not None:
            at = at_hand.places(wanted["landmarks"])
            exact = whole.take(at, np.float64)
            mixing = inverse_root(prepared.kernel.tile(exact, exact), stored)
            centres = whole.take(at)
        plan = FactorPlan(
            prepared.kernel,
            whole.steps,
            np.dtype(whole.dtype),
            centres,
            stored if landmarks is not None else dtype,
            layout.width,
        )
        if mixing is not None:
            values = plan.to_store(at_hand.rows(wanted["trace"]), workers)
            trace, trace_error = samples.estimated_trace(values, mixing.astype(stored), n, workers)
    engine.tell(surveyed.numbering, plan)
    chosen = wanted.get("search", np.empty(0, np.int64))
    places = at_hand.places(chosen)
    sample = samples.Gathered(chosen, at_hand.raw[places], at_hand.codes[places])
    return Prospect(surveyed, prepared, spread, plan, mixing, trace, trace_error, sample, streams)


def explore(
    ahead: Prospect, options: CheckedOptions, workers: Workers, progress: Progress = silent
) -> tuple[NDArray[np.float64], str]:
    """Search on the sample; return the best split's witness, as weights on F, and the start that led to it."""
    plan, mixing, sample = ahead.plan, ahead.mixing, ahead.sample
    values = plan.to_store(sample.raw, workers)
    if mixing is None:
        factors = Features(sample.raw, plan.steps, plan.dtype).block(0, len(sample.raw))
    else:
        factors = values @ mixing.astype(values.dtype)
    limits = samples.sample_limits(ahead.surveyed.limits, sample.codes)
    problem = Problem(image_geometry(factors, workers), limits)
    solution = search(
        problem,
        make_image(problem.geometry, ahead.streams.image),
        Selection,
        workers,
        restarts=options.restarts,
        max_iter=options.max_iter,
        effort=EFFORTS[options.effort],
        nonnegative=ahead.prepared.kernel.is_nonnegative,
        rng=ahead.streams.search,
        progress=progress,
    )
    weights = split_weights(solution.members[:, None])
    sums = sum_factors(plan, values, np.asarray(weights, dtype=np.float64))[:, 0]
    spread = sums if mixing is None else np.asarray(mixing @ (mixing.T @ sums))
    return spread, solution.runs[solution.winner].start


def sum_factors(
    plan: FactorPlan, values: NDArray[Any], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
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
    quotas = at_target_counts(limits, ahead.surveyed.n)
    rule = ByThreshold(source, choose(engine, source, np.stack([quotas, quotas], axis=1)), column=0)
    return take_stock(engine, ahead, rule)


def take_stock(engine: Engine, ahead: Prospect, rule: Rule) -> tuple[Ground, Held]:
    """Measure a split given as a rule, and with it the kernel as a whole."""
    limits = ahead.surveyed.limits
    sums, counts = side_sums(engine, rule, len(limits.target), with_total=True)
    kernel = FactoredKernel(ahead.surveyed.n, sums[:, -1], ahead.mixing, ahead.trace, ahead.trace_error)
    state = kernel.state(sums[:, 0], int(counts[:, 0].sum()))
    return Ground(engine, limits, kernel), Held(rule, state, counts[:, 0])


def refine(
    ground: Ground, ahead: Prospect, start: Held, max_passes: int, *, certified: bool
) -> tuple[Refined, FixedPoint | None]:
    """Descend on all rows, settle ties, and certify the result."""
    refined = descend(ground, start, max_passes=max_passes)
    split, proposal = refined.split, refined.proposal
    if isinstance(split.rule, ByThreshold) and isinstance(split.rule.source, Differences):
        largest = _largest_factor(ahead)
        rule = lowest_rows_first(ground.engine, split.rule, largest, ahead.plan.stored)
        if rule is not split.rule:
            (split,) = measure(ground, rule)
            proposal = None
    if proposal is None and certified:
        proposal = propose(ground, split, ("certificate", "certificate"))
    certificate = certify(ground, split, proposal) if certified and proposal is not None else None
    settled = Refined(split, (*refined.psi[:-1], split.state.psi), refined.passes, refined.converged, proposal)
    return settled, certificate


def random_baseline(ground: Ground, streams: tuple[np.random.Generator, ...]) -> RandomMMD:
    """Measure random splits that meet every cell's target: the very ones that the local engine draws."""
    quotas = at_target_counts(ground.limits, ground.kernel.n)
    source = Uniform.of(streams)
    rule = ByThreshold(source, choose(ground.engine, source, np.repeat(quotas[:, None], len(streams), axis=1)))
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


def subsample(layout: Layout, ground: Ground, ahead: Prospect, rule: Rule) -> SubsampleEstimate | None:
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
    at_hand = samples.gather(
        ground.engine, {"val": val, "train": train}, layout.width, layout.features.dtype
    )
    members = np.zeros(len(at_hand.numbers), dtype=bool)
    members[at_hand.places(val)] = True
    features = Features(at_hand.raw, ahead.plan.steps, ahead.prepared.features.dtype)
    # All of the rows are drawn again, in order: the estimate is of these rows and no others.
    return subsample_mmd(
        features, ahead.prepared.kernel, members, SUBSAMPLE_ROWS, np.random.default_rng(0)
    )


def _draw(total: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Ranks of the rows that `core.mmd` would draw of one side."""
    if total <= size:
        return np.arange(total)
    return np.sort(rng.choice(total, size=size, replace=False)).astype(np.int64)


@dataclass(frozen=True)
class _Standardized:
    features: Features
    moments: Moments


def _stateless_steps(options: CheckedOptions) -> tuple[Any, ...]:
    """Maps that need no statistics, so that the first pass can look at what they give."""
    if options.standardize == "l2" or (options.kernel == "cosine" and options.standardize == "none"):
        return (unit_rows,)
    return ()


def _standardized(raw: Features, options: CheckedOptions, surveyed: Surveyed) -> _Standardized:
    """The rows after `--standardize`, and for cosine kernels of length one, with their moments."""
    found = surveyed.moments
    if options.standardize == "zscore":
        if options.kernel == "cosine":
            raise InputError(
                "--standardize zscore with --kernel cosine needs all rows in memory",
                hint="use --standardize l2, another kernel, or --engine local",
            )
        varies = found.deviation > 0
        scale = 1 / np.where(varies, found.deviation, 1)
        assert surveyed.found.columns is not None
        reach = np.maximum(
            np.abs(surveyed.found.columns.low - found.mean), np.abs(surveyed.found.columns.high - found.mean)
        )
        after = Moments(np.zeros_like(scale), varies.astype(np.float64), float((reach * scale).max()))
        return _Standardized(raw.then(Affine(found.mean, scale)), after)
    features = raw
    if options.standardize == "l2":
        features = features.then(unit_rows)
    if options.kernel == "cosine":
        features = features.then(unit_rows)
    return _Standardized(features, found)


def _typical_row(layout: Layout, steps: tuple[Any, ...]) -> NDArray[np.float64]:
    """A value of each column from the middle of the first rows; sums are taken of distances from it."""
    for batch in read_batches(layout, layout.groups[:1], layout.features.names):
        raw = batch.features()
        raw = raw[np.isfinite(raw).all(axis=1)][:1024]
        if len(raw):
            rows = Features(raw, steps).block(0, len(raw), np.float64)
            return np.asarray(np.partition(rows, len(rows) // 2, axis=0)[len(rows) // 2], dtype=np.float64)
    return np.zeros(layout.width)


def _merged(one: Found, other: Found) -> Found:
    one.merge(other)
    return one


def _fractions(values: list[Any]) -> list[Any]:
    from fractions import Fraction

    return [Fraction(value) for value in values]


def _largest_factor(ahead: Prospect) -> float:
    """A bound on the absolute entries of F."""
    if ahead.prepared.kernel.name == "rbf":
        return 1.0
    values = ahead.plan.factors(ahead.plan.to_store(ahead.sample.raw[:1024], _alone()))
    return float(np.abs(values).max(initial=1.0))


def _alone() -> Workers:
    from concurrent.futures import ThreadPoolExecutor

    return Workers(ThreadPoolExecutor(1), 1)


def _cells(layout: Layout, found: Found) -> Cells:
    """Number the cells as `joint_cells` does: by the values of the columns, in their order."""
    columns = [sorted({cell[place] for cell in found.cells}) for place in range(len(layout.family))]
    rank: list[Mapping[Any, int]] = [
        {value: number for number, value in enumerate(column)} for column in columns
    ]
    ordered = sorted(found.cells, key=lambda cell: [rank[place][value] for place, value in enumerate(cell)])
    names = tuple(dict(zip(layout.family, cell, strict=True)) for cell in ordered)
    sizes = np.array([found.cells[cell] for cell in ordered], dtype=np.int64)
    return Cells(np.empty(0, np.int64), names, sizes)


def _refuse(layout: Layout, found: Found) -> None:
    """Refuse what no split can be made from."""
    for place, (word, _, value) in enumerate(layout.exclude):
        if not found.excluded[place]:
            raise value_never_occurs(word, value, found.spelled[place])
    for word, (count, first) in found.missing.items():
        raise no_value(word, count, first)
    kept = found.n_kept + (found.n_invalid if not layout.drop_invalid else 0)
    if found.n_invalid and not layout.drop_invalid:
        more = f" and {found.n_invalid - 3} more" if found.n_invalid > 3 else ""
        raise InputError(
            f"{found.n_invalid} of {kept} rows of {shown(layout.path)} have missing, NaN or infinite "
            f"features: {', '.join(found.invalid[:3])}{more}",
            hint="leave those rows out with --drop-invalid; row numbers stay as they are in the file",
        )
    if kept < 2:
        left_out = f"only {kept} of {layout.n_rows} rows are left"
        raise InputError(left_out, hint="a split needs at least two rows")
