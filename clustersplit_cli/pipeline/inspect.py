"""From an input to what should be known about it before it is split."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.effort import EFFORTS
from clustersplit_cli.core.geometry.features import Features, moments
from clustersplit_cli.core.geometry.kernels import (
    WIDTH_RULES,
    Prepared,
    off_diagonal_spread,
    off_diagonal_values,
    prepare,
    standardize,
)
from clustersplit_cli.core.geometry.low_rank import explored_rows, landmarks_in_two
from clustersplit_cli.core.parallel import Workers, pool
from clustersplit_cli.core.search.problem import SMALL
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.engines.plan import MemoryPlan
from clustersplit_cli.errors import ClusterSplitError, InputError, UsageError
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.context import (
    PartitionOptions,
    Streams,
    plan_local,
    requirements_of,
    with_width,
)
from clustersplit_cli.pipeline.engine import Engine
from clustersplit_cli.pipeline.local.context import CBC_CERTIFICATE_ROWS
from clustersplit_cli.pipeline.notices import SMALL_CELL, about_cells, about_kernel, about_parts
from clustersplit_cli.pipeline.summarize import summarize_plan
from clustersplit_cli.pipeline.target import look_for_shift, sampled_rows
from clustersplit_cli.reports import inspection
from clustersplit_cli.reports.part_sizes import PartSizes, PartTotal, SizedCell
from clustersplit_cli.reports.summary import Notice

NEAR = 0.01
"""Kernel values within this distance of 0 or 1 say that two rows are unrelated, or the same."""
TIMED_ROWS, TIMED_COLUMNS, TIMED_SECONDS = 512, 24, 0.1
# Steps of one run, and columns of products with the kernel, that splits of several real datasets took.
STEPS_EXPLORING, STEPS_REFINING, COLUMNS_BOUNDING = 10, 60, 400
SECONDS_PER_CERTIFIED_ROW = 6e-5
FIXED_SECONDS = 1.2
"""Starting up and writing."""


def examine(
    dataset: Dataset,
    options: CheckedOptions,
    *,
    path: str,
    columns: tuple[inspection.InspectedColumn, ...],
) -> inspection.Inspection:
    """Look at everything that decides how a split will go, without making one."""
    notes = [Notice(*note) for note in dataset.notes]
    memory: MemoryPlan | None = None
    try:
        with pool(options.threads) as workers:
            memory = plan_local(dataset, options, workers)
    except ClusterSplitError as error:  # the one thing that inspecting should survive
        cure = f"; {error.hint}" if error.hint else ""
        notes.append(Notice("plan_does_not_fit", f"{error.message}{cure}"))
    with pool(options.threads) as workers:
        asked = requirements_of(dataset, options, workers)
        options, candidates = with_width(dataset, options, workers)
        features = standardize(Features(dataset.features), options.standardize, workers)
        spread = _spread(dataset, features, workers)

        def prepared(gamma: str | float) -> Prepared:
            # The stream that `split` would use, so that a sampled width is the same.
            (stream,) = Streams.from_seed(options.seed).samples.spawn(1)
            return prepare(features, options.kernel, gamma, options.degree, workers, stream)

        chosen = prepared(options.gamma)
        number = "power" if candidates else "given"
        widths = tuple(_widths(options, prepared, number)) if options.is_stationary else ()
        extremes = (
            off_diagonal_spread(chosen, Streams.from_seed(options.seed).samples)
            if options.is_stationary
            else None
        )
        of_kernel = about_kernel(chosen, extremes, options, dataset.feature_names)
        notes += [Notice(*note) for note in of_kernel]
        estimate = None if memory is None else _estimate(chosen, memory, options, workers)
        target = None
        if dataset.target is not None:
            sample = dataset.features[sampled_rows(len(dataset.rows), options.seed)]
            ruler = chosen.resolving(extremes)
            test = look_for_shift(sample, dataset.target, ruler, options.seed, workers)
            target = inspection.InspectedTarget(dataset.target.name, dataset.target.n_rows, **vars(test))
    validation = int(asked.families[0].validation.target.sum())
    for place, quotas in enumerate(asked.families):
        total = validation if place == 0 else None
        notes += [Notice(*note) for note in about_cells(quotas, options, asked.rounding, total)]
    return inspection.Inspection(
        path=path,
        n_rows=dataset.n_rows,
        n_excluded=dataset.n_excluded,
        n_dropped=dataset.n_dropped,
        n_features=dataset.features.shape[1],
        dtype=str(dataset.features.dtype),
        columns=columns,
        spread=spread,
        holdout=float(options.holdout),
        validation=validation,
        cells=tuple(cell for quotas in asked.families for cell in _cells(quotas.validation)),
        units=None if asked.units is None else asked.n_units,
        tolerance=float(asked.tolerance),
        widths=widths,
        plan=None if memory is None else summarize_plan(memory),
        estimate=estimate,
        warnings=tuple(notes),
        target=target,
    )


def _spread(dataset: Dataset, features: Features, workers: Workers) -> inspection.FeatureSpread:
    """Find the columns that vary least and most."""
    deviation = moments(features, workers).deviation
    varying = np.flatnonzero(deviation > 0)
    if not len(varying):
        raise InputError(
            "all features are constant, so every split has an MMD of zero",
            hint="choose other columns with --columns",
        )
    low, high = varying[deviation[varying].argmin()], varying[deviation[varying].argmax()]
    names = dataset.feature_names
    return inspection.FeatureSpread(
        narrowest=names[low],
        narrowest_deviation=float(deviation[low]),
        widest=names[high],
        widest_deviation=float(deviation[high]),
        constant=tuple(names[column] for column in np.flatnonzero(deviation == 0)),
    )


def _cells(limits: ValidationQuotas) -> Iterator[inspection.InspectedCell]:
    for cell, name in enumerate(limits.cells.names):
        size, lower, upper = (
            int(counts[cell]) for counts in (limits.cells.sizes, limits.lower, limits.upper)
        )
        problem = None
        if upper == 0:
            problem = "no validation row"
        elif lower == size:
            problem = "no training row"
        elif size < SMALL_CELL:
            problem = f"fewer than {SMALL_CELL} rows"
        yield inspection.InspectedCell(dict(name), size, int(limits.target[cell]), lower, upper, problem)


def _widths(
    options: CheckedOptions, prepared: Callable[[str | float], Prepared], number: str
) -> Iterator[inspection.WidthChoice]:
    """Try the rules, and the number that was asked for, on one sample of rows.

    Parameters
    ----------
    number : where such a number comes from.
    """
    rules: list[str | float] = [*WIDTH_RULES]
    if options.gamma not in rules:
        rules.insert(0, options.gamma)
    for rule in rules:
        try:
            found = prepared(rule)
        except (InputError, UsageError):  # the rule's width is 0, or too small or large for these rows
            continue
        values = off_diagonal_values(found, Streams.from_seed(options.seed).samples)
        assert found.kernel.gamma is not None
        yield inspection.WidthChoice(
            rule=str(rule) if isinstance(rule, str) else number,
            gamma=found.kernel.gamma,
            near_zero=float((values < NEAR).mean()),
            near_one=float((values > 1 - NEAR).mean()),
            median=float(np.median(values)),
            chosen=rule == options.gamma,
        )


def _estimate(
    prepared: Prepared, memory: MemoryPlan, options: CheckedOptions, workers: Workers
) -> inspection.TimeEstimate:
    """Time a few tiles of the kernel and of a product, and count how many a split takes."""
    n, d = prepared.features.shape
    block = prepared.features.block(0, min(n, TIMED_ROWS))
    matrix = prepared.kernel.tile(block, block)
    columns = np.ones((len(block), TIMED_COLUMNS), dtype=matrix.dtype)
    per_value = _seconds(lambda: prepared.kernel.tile(block, block), workers) / matrix.size
    per_product = _seconds(lambda: matrix @ columns, workers) / (matrix.size * TIMED_COLUMNS)
    effort = EFFORTS[options.effort]
    q = memory.landmarks or memory.rank or 0
    made = {"dense": n * n / 2, "linear": 0, "nystrom": n * q, "low-rank": 2 * n * q}[memory.geometry]
    # Of one product with the kernel.
    width = {"dense": n, "linear": 2 * d, "nystrom": 2 * q, "low-rank": 2 * q}[memory.geometry]
    explored = n * width if n <= SMALL else 2 * explored_rows(n) * landmarks_in_two(n)
    exploring = explored * (options.restarts + effort.max_rounds * effort.batch) * STEPS_EXPLORING
    # Where the kernel is held as factors, one product measures all splits, and few rows are looked up later.
    is_followed = memory.geometry != "dense" and n > SMALL
    refined = (options.restarts if is_followed else 0) + effort.candidates * (
        1 if is_followed else STEPS_REFINING
    )
    refining = n * width * (refined + effort.exact_rounds * effort.batch * STEPS_REFINING)
    bounding = 0 if options.bound == "never" else n * width * COLUMNS_BOUNDING
    seconds = made * per_value + (exploring + refining + bounding) * per_product
    if options.certify != "never":
        seconds += min(n, CBC_CERTIFICATE_ROWS) * SECONDS_PER_CERTIFIED_ROW
    return inspection.TimeEstimate(FIXED_SECONDS + float(seconds), 1.0 / max(per_value, 1e-12))


def _seconds(task: Callable[[], object], workers: Workers) -> float:
    """Seconds per task with all workers at it, others on the machine included."""
    task()
    jobs = 2 * workers.count
    done, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < TIMED_SECONDS:
        workers.run(lambda _: task(), range(jobs))
        done += jobs
    return spent / done


def size_parts(engine: Engine[Any, Any], into: PartitionOptions, path: str) -> PartSizes:
    """Size folds or named parts as they would be made, from cells alone.

    Raises
    ------
    InfeasibleError, UsageError
        As where they are made.
    """
    counts = engine.count(into)
    quotas, units = counts.quotas, counts.units
    is_folds = into.folds is not None
    cells = tuple(
        SizedCell(
            dict(name),
            int(size),
            int(lower.min()),
            int(upper.max()),
            bool((upper == 0).any()),
            () if is_folds else _totals(quotas.names, lower, upper),
        )
        for name, size, lower, upper in zip(
            quotas.cells.names, quotas.cells.sizes, quotas.lower, quotas.upper, strict=True
        )
    )
    return PartSizes(
        path,
        counts.engine,
        into.folds,
        *counts.left_out,
        parts=_totals(quotas.names, quotas.lower.sum(axis=0), quotas.upper.sum(axis=0)),
        cells=cells,
        too_small=sum(cell.too_small for cell in cells),
        units=None if units is None else len(units.table),
        tolerance=0.0 if units is None else float(units.tolerance),
        warnings=tuple(Notice(*note) for note in (*counts.notes, *about_parts(quotas))),
    )


def _totals(
    names: Sequence[str], fewest: NDArray[np.int64], most: NDArray[np.int64]
) -> tuple[PartTotal, ...]:
    return tuple(
        PartTotal(name, int(least), int(largest))
        for name, least, largest in zip(names, fewest, most, strict=True)
    )
