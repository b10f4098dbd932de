"""The warnings of `clustersplit mmd`: what a user should know before trusting its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

from clustersplit_cli.engines.plan import MeasuringPlan
from clustersplit_cli.pipeline.mmd.groups import Comparison, Question
from clustersplit_cli.pipeline.mmd.measure import Measured

CELLS_NAMED = 3
SAME = 1e-6
"""Relative difference below which two values of one MMD, summed in different orders, are the same."""


def about_comparison(
    comparison: Comparison, measured: Measured, plan: MeasuringPlan, question: Question, *, chosen: bool
) -> Iterator[tuple[str, str]]:
    """Collect the warnings, most fundamental first.

    Parameters
    ----------
    chosen : whether the user decided about landmarks.
    """
    if plan.landmarks is not None and not chosen:
        yield "nystrom", f"approximated with {plan.landmarks} landmarks: {plan.reason}"
    yield from _about_report(comparison, measured, question)
    undefined = [
        pair for pair in measured.pairs if not all(math.isfinite(unit.squared) for unit in pair.units)
    ]
    if undefined:
        yield (
            "undefined",
            f"{len(undefined)} of {len(measured.pairs)} pairs have a group of one row, for which the "
            "unbiased estimate is undefined",
        )
    if comparison.cells is not None and (alone := _cells_of_one_group(comparison, measured)):
        names = "; ".join(comparison.cells.describe(cell) for cell in alone[:CELLS_NAMED])
        more = f" and {len(alone) - CELLS_NAMED} more" if len(alone) > CELLS_NAMED else ""
        yield (
            "cells_left_out",
            f"{len(alone)} cells do not occur in every group and are left out of the pairs that lack them: "
            f"{names}{more}",
        )


def _about_report(
    comparison: Comparison, measured: Measured, question: Question
) -> Iterator[tuple[str, str]]:
    """Compare with what the report of the split says."""
    earlier = question.earlier
    if earlier is None:
        return
    if not earlier.same_input:
        yield (
            "other_features",
            "the features are not those that the split was made from, but the kernel is still the report's",
        )
    elif question.reuses_report and earlier.mmd is not None and comparison.cells is None:
        found = math.sqrt(max(measured.pairs[0].squared, 0.0))
        if abs(found - earlier.mmd) > SAME * max(found, earlier.mmd):
            yield (
                "not_as_reported",
                f"the report of the split says {earlier.mmd:.6g}, but its files give {found:.6g}",
            )


def _cells_of_one_group(comparison: Comparison, measured: Measured) -> list[int]:
    """Cells that some pair of parts cannot be compared in."""
    assert comparison.cells is not None
    cells = set(range(len(comparison.cells.names)))
    compared = [{unit.cell for unit in pair.units if unit.cell is not None} for pair in measured.pairs]
    return sorted(cells - cells.intersection(*compared))
