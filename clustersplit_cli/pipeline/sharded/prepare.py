"""What is known of sharded rows before a split is chosen: their cells, samples of them, and their kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Cells
from clustersplit_cli.core.constraints.quotas import Quotas, ValidationQuotas, split_quotas
from clustersplit_cli.core.geometry.features import Features, Floats, Moments, unit_rows
from clustersplit_cli.core.geometry.kernels import (
    DEGENERACY_SAMPLE,
    MEDIAN_SAMPLE,
    KernelSpread,
    Prepared,
    off_diagonal_spread,
    prepare_with,
    unit_variance,
)
from clustersplit_cli.core.geometry.nystrom import estimated_trace, trace_rows
from clustersplit_cli.core.geometry.protocol import choose_landmarks, shuffled
from clustersplit_cli.core.geometry.pseudo_inverse import inverse_root
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.data.readers.categories import no_value, value_never_occurs
from clustersplit_cli.data.readers.matrix import CURE_OF_INVALID
from clustersplit_cli.data.readers.naming import shown
from clustersplit_cli.data.row_groups import Layout, read_batches
from clustersplit_cli.engines import samples
from clustersplit_cli.engines.executor import Executor
from clustersplit_cli.engines.factors import FactorPlan, Numbering
from clustersplit_cli.engines.survey import Found
from clustersplit_cli.engines.tasks import Survey
from clustersplit_cli.errors import InputError
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.context import PartitionOptions, Streams
from clustersplit_cli.pipeline.target import sampled_rows
from clustersplit_cli.progress import Stopwatch

SMALLEST_DEVIATION = 1e-140
"""Squares of smaller distances from the mean are not summed to all digits."""


@dataclass(frozen=True)
class Surveyed:
    """What the first pass found: how many rows take part, their cells, and the columns' moments."""

    found: Found
    n: int
    quotas: Quotas
    rounding: str
    numbering: Numbering
    moments: Moments

    @property
    def limits(self) -> ValidationQuotas:
        """How many validation rows of every cell there may be."""
        return self.quotas.validation


@dataclass(frozen=True)
class SurveyedParts:
    """What a first pass found where rows go to any number of parts: quotas, and nothing for a kernel."""

    found: Found
    quotas: Quotas


@dataclass(frozen=True)
class ShardedKernel:
    """The kernel, the landmarks, and a sample to search on.

    Attributes
    ----------
    mixing : (q, r) for landmarks; None for linear kernels.
    trace, trace_error : of the kernel.
    sample : the rows that the search explores.
    tested : raw rows to compare with a target; None where there is none.
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
    tested: Floats | None = None


@dataclass(frozen=True)
class Counted:
    """What a pass over the rows found, their cells without codes, and how both are numbered."""

    found: Found
    cells: Cells
    numbering: Numbering


def count_cells(layout: Layout, executor: Executor, task: Survey, watch: Stopwatch) -> Counted:
    """Make a first pass over all rows, and tell the engine how they and their cells are numbered.

    Raises
    ------
    InputError : values that cannot be used.
    """
    with watch.step("read"):
        parts = executor.run(task)
        offsets = np.cumsum([0, *(part.n_kept for part in parts)])[:-1].tolist()
        found: Found = reduce(_merged, parts)
        _refuse(layout, found)
    cells = _cells(layout, found)
    order = {tuple(name.values()): number for number, name in enumerate(cells.names)}
    numbering = Numbering(order, tuple(offsets))
    executor.tell(numbering)
    return Counted(found, cells, numbering)


def survey_rows(
    layout: Layout,
    executor: Executor,
    options: CheckedOptions,
    watch: Stopwatch,
    into: PartitionOptions | None = None,
) -> Surveyed:
    """Make the first pass, and give every cell its share, of two sides or of other parts.

    Raises
    ------
    InputError : values that cannot be used.
    InfeasibleError : the quotas cannot be met.
    """
    steps = _stateless_steps(options)
    counted = count_cells(layout, executor, Survey(_typical_row(layout, steps), steps), watch)
    found, cells = counted.found, counted.cells
    with watch.step("constraints"):
        rounding = options.rounding or "nearest"
        # The smallest tolerance that one family of cells can be met with is none.
        allowed = [value or Fraction(0) for value in options.tolerance.of_cells([cells])[0]]
        if into is None:
            quotas = split_quotas(cells, options.holdout, allowed, rounding)
        else:
            quotas = into.of_cells(cells, options)
        assert found.columns is not None
        moments = found.columns.moments(found.n_kept)
    return Surveyed(found, found.n_kept, quotas, rounding, counted.numbering, moments)


def prepare_kernel(
    layout: Layout,
    executor: Executor,
    options: CheckedOptions,
    surveyed: Surveyed,
    landmarks: int | None,
    sample_rows: int,
    workers: Workers,
    watch: Stopwatch,
    with_tested: bool = False,
) -> ShardedKernel:
    """Bring samples together, resolve the kernel, and tell the engine how rows become factors."""
    streams, n = Streams.from_seed(options.seed), surveyed.n
    dtype = layout.features.dtype
    with watch.step("sample"):
        (width_stream,) = streams.samples.spawn(1)
        wanted = {"first": np.zeros(1, np.int64)}
        if options.gamma == "median":
            wanted["median"] = np.sort(width_stream.choice(n, size=min(n, MEDIAN_SAMPLE), replace=False))
        if options.is_stationary:
            wanted["spread"] = np.sort(
                streams.samples.choice(n, size=min(n, DEGENERACY_SAMPLE), replace=False)
            )
        if with_tested:
            wanted["tested"] = sampled_rows(n, options.seed)
        if landmarks is not None:
            wanted["landmarks"] = choose_landmarks(n, landmarks, streams.landmarks)
            wanted["trace"] = trace_rows(n)
        if sample_rows:
            (draws,) = streams.low_rank.spawn(1)
            wanted["search"] = samples.stratified_numbers(
                executor, surveyed.quotas.cells.sizes, sample_rows, draws
            )
        at_hand = samples.gather(executor, wanted, layout.width, dtype)
    with watch.step("prepare"):
        features = _standardized(
            Features(at_hand.rows(wanted.get("median", wanted["first"]))), options, surveyed
        )
        prepared = prepare_with(
            features.features,
            features.moments,
            n,
            options.kernel,
            options.gamma,
            options.degree,
            width_stream,
        )
        whole = Features(at_hand.raw, prepared.features.steps, prepared.features.dtype)
        spread = None
        if "spread" in wanted:
            seen = Features(at_hand.rows(wanted["spread"]), whole.steps, whole.dtype)
            spread = off_diagonal_spread(replace(prepared, features=seen), np.random.default_rng(0))
        prepared = prepared.resolving(spread)
        whole = Features(at_hand.raw, prepared.features.steps, prepared.features.dtype)
    with watch.step("kernel"):
        stored = np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)
        centres, mixing = None, None
        trace, trace_error = n * features.moments.total_variance, 0.0
        if landmarks is not None:
            at = at_hand.places(shuffled(wanted["landmarks"]))
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
            trace, trace_error = estimated_trace(values, mixing.astype(stored), n, workers)
    executor.tell(surveyed.numbering, plan)
    chosen = wanted.get("search", np.empty(0, np.int64))
    places = at_hand.places(chosen)
    sample = samples.Gathered(chosen, at_hand.raw[places], at_hand.codes[places])
    tested = at_hand.rows(wanted["tested"]) if with_tested else None
    return ShardedKernel(
        surveyed, prepared, spread, plan, mixing, trace, trace_error, sample, streams, tested
    )


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
    """The rows after `--standardize`, and for cosine kernels of length one, with their moments.

    Unit rows of standardized columns would take another pass, and are refused before any.
    """
    found = surveyed.moments
    if options.standardize == "zscore":
        varies = found.deviation > 0
        if not np.isfinite(found.deviation).all() or (found.deviation[varies] < SMALLEST_DEVIATION).any():
            raise InputError(
                f"features are too large or too small to square: the largest absolute value is "
                f"{found.largest:.3g}",
                hint="use --engine local, or rescale the features",
            )
        scale = 1 / np.where(varies, found.deviation, 1)
        assert surveyed.found.columns is not None
        largest = np.maximum(
            np.abs(surveyed.found.columns.low - found.mean), np.abs(surveyed.found.columns.high - found.mean)
        )
        after = Moments(
            np.zeros_like(scale),
            varies.astype(np.float64),
            float((largest * scale).max()),
            reach=None if found.reach is None else found.reach * scale,
            lowest=float(((surveyed.found.columns.low - found.mean) * scale).min()),
        )
        return _Standardized(unit_variance(raw, found), after)
    features = raw
    if options.standardize == "l2":
        features = features.then(unit_rows)
    if options.kernel == "cosine":
        features = features.then(unit_rows)
    return _Standardized(features, found)


def _typical_row(layout: Layout, steps: tuple[Any, ...]) -> NDArray[np.float64]:
    """A value of each column from the middle of the first rows; sums are taken of distances from it."""
    for batch in read_batches(layout, layout.groups, layout.features.names, 0, layout.n_rows):
        raw = batch.features()
        raw = raw[np.isfinite(raw).all(axis=1)][:1024]
        if len(raw):
            rows = Features(raw, steps).block(0, len(raw), np.float64)
            return np.asarray(np.partition(rows, len(rows) // 2, axis=0)[len(rows) // 2], dtype=np.float64)
    return np.zeros(layout.width)


def _merged(one: Found, other: Found) -> Found:
    one.merge(other)
    return one


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
    for place, (word, name, value) in enumerate(layout.exclude):
        if not found.excluded[place]:
            raise value_never_occurs(word, name, value, found.spelled[place])
    for word, (count, first) in found.missing.items():
        raise no_value(layout.family[word], count, first)
    kept = found.n_kept + (found.n_invalid if not layout.drop_invalid else 0)
    if found.n_invalid and not layout.drop_invalid:
        more = f" and {found.n_invalid - 3} more" if found.n_invalid > 3 else ""
        raise InputError(
            f"{found.n_invalid} of {kept} rows of {shown(layout.path)} have missing, NaN or infinite "
            f"features: {', '.join(found.invalid[:3])}{more}",
            hint=CURE_OF_INVALID,
        )
    if kept < 2:
        left_out = f"only {kept} of {layout.n_rows} rows are left"
        raise InputError(left_out, hint="a split needs at least two rows")
