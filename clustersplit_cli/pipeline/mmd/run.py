"""The order of the steps of `clustersplit mmd`: from a comparison and options to its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.tolerance import Tolerance
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import Prepared, off_diagonal_spread, prepare, standardize
from clustersplit_cli.core.geometry.protocol import choose_landmarks
from clustersplit_cli.core.mmd.sums import Factors, geometry_sums, nystrom_factors
from clustersplit_cli.core.near_duplicates import near_across
from clustersplit_cli.core.parallel import Workers, pool
from clustersplit_cli.core.search.problem import evaluate
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.engines.plan import MeasuringPlan, MeasuringTask, plan_measuring
from clustersplit_cli.errors import MemoryPlanError
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.context import Streams, similarities_of
from clustersplit_cli.pipeline.local.engine import prepared_split
from clustersplit_cli.pipeline.mmd.groups import Comparison, Question
from clustersplit_cli.pipeline.mmd.measure import Known, Ruler, Unit, measure, units_of
from clustersplit_cli.pipeline.mmd.notices import about_comparison
from clustersplit_cli.pipeline.mmd.summarize import Findings, summarize_mmd
from clustersplit_cli.pipeline.notices import about_kernel
from clustersplit_cli.progress import Progress, Stopwatch, silent
from clustersplit_cli.reports.mmd.summary import MMDReport, NearDuplicates
from clustersplit_cli.similarity import Nearness

# A stream for permutations that no stream of a split shares.
_PERMUTATION_KEY = 0x6D6D64


@dataclass(frozen=True)
class Answer:
    """The report, and the witness at every row of the pool if there is a main pair."""

    report: MMDReport
    witness: NDArray[np.float64] | None


def compare(
    comparison: Comparison,
    options: CheckedOptions,
    question: Question,
    *,
    config: Mapping[str, Any] | None = None,
    stopwatch: Stopwatch | None = None,
    progress: Progress = silent,
) -> Answer:
    """Measure the discrepancies of a comparison and report on them.

    Parameters
    ----------
    options : the kernel, its width, the seed, memory and threads; all else in them is ignored.
    config : options outside this function's reach that the report should repeat.
    """
    watch = stopwatch or Stopwatch()
    streams = Streams.from_seed(options.seed)
    units = units_of(comparison)
    plan = plan_of(comparison, units, options, question.permutations)
    notes = list(comparison.notes)
    known = None
    if question.reuses_report and comparison.cells is None:
        with watch.step("kernel"):
            try:
                known, plan = _as_reported(comparison, options, plan, progress)
            except MemoryPlanError as error:
                reason = f"not in the report's geometry, so last digits may differ: {error.message}"
                notes.append(("other_geometry", reason))
    with pool(options.threads) as workers:
        with watch.step("prepare"):
            fitted = Features(comparison.features[: comparison.n_fitted])
            (width_stream,) = streams.samples.spawn(1)
            prepared = prepare(
                standardize(fitted, options.standardize, workers),
                options.kernel,
                options.gamma,
                options.degree,
                workers,
                width_stream,
            )
            spread = off_diagonal_spread(prepared, streams.samples) if options.is_stationary else None
            prepared = prepared.resolving(spread)
            ruler = _ruler(comparison, prepared, plan, question.estimator, streams.landmarks, workers)
        with watch.step("measure"):
            measured = measure(
                comparison,
                units,
                ruler,
                permutations=question.permutations,
                rng=np.random.default_rng([options.seed, _PERMUTATION_KEY]),
                known=known,
                progress=progress,
            )
        near = None
        if question.near is not None:
            with watch.step("near-duplicates"):
                near = _near_duplicates(comparison, options, question.near, workers, progress)
    notes += about_kernel(prepared, spread, options, comparison.feature_names)
    notes += about_comparison(comparison, measured, plan, question, chosen=options.nystrom != "auto")
    findings = Findings(
        comparison,
        options,
        prepared.kernel,
        plan,
        measured,
        question,
        dict(config or {}),
        tuple(notes),
        near,
    )
    return Answer(summarize_mmd(findings, watch), measured.witness)


def _near_duplicates(
    comparison: Comparison, options: CheckedOptions, near: Nearness, workers: Workers, progress: Progress
) -> NearDuplicates | None:
    """Count the rows of the second group that are nearly the same as a row of the first."""
    if comparison.main_pair is None:
        return None
    first, second = (comparison.parts[place].rows for place in comparison.main_pair)
    parts = np.full(len(comparison.features), -1)
    parts[first], parts[second] = 0, 1
    similar = similarities_of(comparison.features, options, near, workers)
    found = near_across(similar, near.least, parts, workers, progress)
    closest, similarity = None, None
    if found.closest is not None:
        one, other = sorted(found.closest[:2], key=lambda row: int(parts[row]))
        closest = int(comparison.positions[one]), int(comparison.positions[other])
        similarity = found.closest[2]
    return NearDuplicates(
        near.least, near.name, int((parts[found.rows] == 1).sum()), len(second), closest, similarity
    )


def plan_of(
    comparison: Comparison, units: list[Unit], options: CheckedOptions, permutations: int
) -> MeasuringPlan:
    """Decide how to sum the kernel, from sizes alone."""
    n, d = comparison.features.shape
    tests = [
        len(groups[0]) + len(groups[1])
        for pair in comparison.pairs
        for unit in units
        if permutations and (groups := unit.pair(pair)) is not None
    ]
    task = MeasuringTask(
        n=n,
        d=d,
        itemsize=comparison.features.dtype.itemsize,
        groups=len(comparison.parts),
        sums=[sum(map(len, unit.rows)) for unit in units],
        tests=tests,
        permutations=permutations,
        threads=options.threads,
    )
    return plan_measuring(task, is_linear=options.is_linear, nystrom=options.nystrom, budget=options.budget)


def _ruler(
    comparison: Comparison,
    prepared: Prepared,
    plan: MeasuringPlan,
    estimator: str,
    rng: np.random.Generator,
    workers: Workers,
) -> Ruler:
    """Carry the kernel that was fitted on some rows to all rows."""
    features = prepared.carried_to(comparison.features, comparison.n_fitted)
    factors = None
    if plan.geometry == "linear":
        factors = Factors(features, prepared.kernel)
    elif plan.landmarks is not None:
        landmarks = choose_landmarks(comparison.n_fitted, plan.landmarks, rng)
        factors = nystrom_factors(features, prepared.kernel, landmarks)
    return Ruler(features, prepared, factors, estimator, workers)


def _as_reported(
    comparison: Comparison, options: CheckedOptions, plan: MeasuringPlan, progress: Progress
) -> tuple[Known, MeasuringPlan]:
    """Measure train and val in the report's own geometry, step by step as `split` did: to the last bit."""
    rows = comparison.positions[: comparison.n_fitted]
    # Cells and quotas have no part in measuring: one cell of any size will do.
    dataset = Dataset(
        comparison.features[: comparison.n_fitted],
        comparison.feature_names,
        comparison.feature_columns,
        {},
        rows,
        n_rows=len(rows),
    )
    neutral = replace(options, holdout=Fraction(1, 2), tolerance=Tolerance(Fraction(0)), rounding="nearest")
    members = np.zeros(len(rows), np.bool_)
    members[comparison.parts[1].rows] = True
    with prepared_split(dataset, neutral, progress) as context:
        squared = evaluate(context.problem, members).mmd_squared
        sums = None
        if comparison.n_fitted == len(comparison.features):  # there is nothing but train and val
            sums = geometry_sums(context.problem.geometry, [part.rows for part in comparison.parts])
        memory = context.kernel.memory
    reason = "as in the report of the split"
    geometry = memory.geometry if sums is not None else plan.geometry
    most = max(memory.bytes, plan.bytes)
    return Known(sums, squared), replace(plan, geometry=geometry, bytes=most, reason=reason)
