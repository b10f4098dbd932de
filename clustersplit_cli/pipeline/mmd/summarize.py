"""From the findings of `clustersplit mmd` to the one summary that its reports render."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from clustersplit_cli.core.geometry.kernels import Kernel
from clustersplit_cli.engines.plan import MeasuringPlan
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.mmd.groups import Comparison, Question
from clustersplit_cli.pipeline.mmd.measure import Measured, PairMeasure, UnitMeasure
from clustersplit_cli.pipeline.summarize import tool_versions
from clustersplit_cli.progress import Stopwatch, peak_memory
from clustersplit_cli.reports.mmd import summary
from clustersplit_cli.reports.summary import FileSummary, Notice, Timing

ROWS_SHOWN = 5
COLUMNS_SHOWN = 10


@dataclass(frozen=True)
class Findings:
    """Everything a comparison brought to light."""

    comparison: Comparison
    options: CheckedOptions
    kernel: Kernel
    plan: MeasuringPlan
    measured: Measured
    question: Question
    config: dict[str, Any]
    notes: tuple[tuple[str, str], ...]
    near_duplicates: summary.NearDuplicates | None = None


def summarize_mmd(found: Findings, watch: Stopwatch) -> summary.MMDReport:
    """Put every number in its place."""
    comparison, options, kernel, plan = found.comparison, found.options, found.kernel, found.plan
    question = found.question
    pairs = tuple(_pair(comparison, pair) for pair in found.measured.pairs)
    return summary.MMDReport(
        schema_version=summary.MMD_SCHEMA_VERSION,
        command="mmd",
        tool=tool_versions(),
        input=summary.MMDInput(
            files=tuple(
                dict.fromkeys(
                    FileSummary(file.path, file.role, file.bytes, file.sha256) for file in comparison.files
                )
            ),
            n_rows=len(comparison.features),
            n_features=comparison.features.shape[1],
            columns=comparison.feature_columns,
            n_excluded=comparison.n_excluded,
            n_dropped=comparison.n_dropped,
        ),
        config={
            **found.config,
            "kernel": kernel.name,
            "gamma": kernel.gamma,
            "degree": kernel.degree,
            "standardize": options.standardize,
            "nystrom": plan.landmarks if plan.landmarks is not None else "off",
            "seed": options.seed,
            "estimator": question.estimator,
            "permutations": question.permutations,
            "memory": options.budget,
            "threads": options.threads,
        },
        seed=options.seed,
        kernel=summary.KernelSummary(kernel.name, kernel.gamma, kernel.degree, options.standardize),
        method=summary.Method(**vars(plan)),
        estimator=question.estimator,
        within=() if comparison.cells is None else tuple(comparison.cells.names[0]),
        groups=tuple(summary.GroupSummary(part.name, len(part.rows)) for part in comparison.parts),
        mmd=None if comparison.main_pair is None else summary.Discrepancy(pairs[0].value, pairs[0].squared),
        pairs=pairs,
        permutations=summary.Permutations(question.permutations, question.optimised)
        if question.permutations
        else None,
        validity=_validity(comparison, pairs),
        witness=_witness(found),
        columns=_columns(found),
        near_duplicates=found.near_duplicates,
        split=question.earlier,
        timing=Timing(dict(watch.steps), watch.total, peak_memory()),
        warnings=tuple(Notice(*note) for note in found.notes),
    )


def _pair(comparison: Comparison, pair: PairMeasure) -> summary.PairSummary:
    return summary.PairSummary(
        first=comparison.parts[pair.first].name,
        second=comparison.parts[pair.second].name,
        value=_root(pair.squared),
        squared=_defined(pair.squared),
        p_value=None if pair.permuted is None else pair.permuted.p_value,
        random_mean=None if pair.permuted is None else pair.permuted.random_mean,
        cells=None if comparison.cells is None else tuple(_cell(comparison, unit) for unit in pair.units),
    )


def _cell(comparison: Comparison, unit: UnitMeasure) -> summary.CellDiscrepancy:
    assert comparison.cells is not None and unit.cell is not None
    return summary.CellDiscrepancy(
        cell=dict(comparison.cells.names[unit.cell]),
        first_size=unit.sizes[0],
        second_size=unit.sizes[1],
        value=_root(unit.squared),
        squared=_defined(unit.squared),
        p_value=unit.p_value,
    )


def _defined(squared: float) -> float | None:
    return squared if math.isfinite(squared) else None


def _root(squared: float) -> float | None:
    """MMD from its square, which rounding or the unbiased estimator can make negative."""
    return math.sqrt(max(squared, 0.0)) if math.isfinite(squared) else None


def _validity(comparison: Comparison, pairs: tuple[summary.PairSummary, ...]) -> summary.Validity | None:
    if not comparison.sides or len(comparison.parts) < 3:
        return None
    squared = [pair.squared for pair in pairs]
    between, *others = (-math.inf if square is None else square for square in squared)
    # Squares, because the unbiased ones may be negative and their roots would all be 0.
    valid = between > max(others) and all(square is not None for square in squared)
    return summary.Validity(valid, *(pair.value for pair in pairs))


def _witness(found: Findings) -> summary.WitnessSummary | None:
    main, values = found.comparison.main_pair, found.measured.witness
    if main is None or values is None:
        return None
    parts = [found.comparison.parts[place] for place in main]
    rows = np.concatenate([part.rows for part in parts])
    names = np.repeat([0, 1], [len(part.rows) for part in parts])
    order = np.argsort(rows, kind="stable")
    rows, names = rows[order], names[order]
    names, rows = names[np.isfinite(values[rows])], rows[np.isfinite(values[rows])]

    def rank(signed: np.ndarray[Any, Any]) -> tuple[summary.WitnessRow, ...]:
        best = np.argsort(signed, kind="stable")[:ROWS_SHOWN]
        return tuple(
            summary.WitnessRow(
                parts[names[place]].name,
                int(found.comparison.positions[rows[place]]),
                float(values[rows[place]]),
            )
            for place in best.tolist()
        )

    return summary.WitnessSummary(
        parts[0].name, parts[1].name, largest=rank(-values[rows]), smallest=rank(values[rows])
    )


def _columns(found: Findings) -> tuple[summary.ColumnShift, ...] | None:
    shifts = found.measured.shifts
    if shifts is None:
        return None
    largest = np.argsort(-np.abs(shifts), kind="stable")[:COLUMNS_SHOWN]
    return tuple(
        summary.ColumnShift(found.comparison.feature_names[column], float(shifts[column]))
        for column in largest.tolist()
    )
