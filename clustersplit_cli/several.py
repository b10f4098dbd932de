"""Several different splits of one dataset, without the parts of a report that nobody would read."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.search.problem import evaluate
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.partitioning import Parting, partition
from clustersplit_cli.pipeline.run import find_split, prepared_setting, report_on
from clustersplit_cli.pipeline.summarize import summarize
from clustersplit_cli.reports.summary import Notice
from clustersplit_cli.stopwatch import Stopwatch

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class SeveralSplits:
    """Row positions (train, val) of different splits and their MMD, with warnings.

    Local optima come with the largest MMD first, folds in their own order.
    """

    splits: tuple[tuple[Indices, Indices], ...]
    mmd: tuple[float, ...]
    warnings: tuple[Notice, ...]


def several_splits(dataset: Dataset, options: CheckedOptions, count: int) -> SeveralSplits:
    """Find up to `count` local optima that differ in many rows; for one, that is what `split` finds."""
    watch = Stopwatch()
    options = replace(options, certify="never", bound="never")
    with prepared_setting(dataset, options, watch) as setting:
        solution = find_split(setting, count=count)
        outcome = report_on(setting, solution, config={}, stopwatch=watch)
        members = solution.optima if count > 1 else (solution.members,)
        squares = [evaluate(setting.problem, found).mmd_squared for found in members]
    order = sorted(range(len(members)), key=lambda place: -squares[place])
    return SeveralSplits(
        tuple((dataset.rows[~members[place]], dataset.rows[members[place]]) for place in order),
        tuple(float(max(squares[place], 0.0) ** 0.5) for place in order),
        summarize(outcome, watch).warnings,
    )


def all_folds(dataset: Dataset, options: CheckedOptions, parting: Parting) -> SeveralSplits:
    """Make folds, and validate on each in turn."""
    found = partition(dataset, replace(options, certify="never"), parting)
    report = found.report.parts
    assert report is not None
    splits = tuple(
        (dataset.rows[found.labels != fold], dataset.rows[found.labels == fold])
        for fold in range(len(found.parts))
    )
    return SeveralSplits(splits, tuple(part.mmd_rest for part in report.parts), found.report.warnings)
