"""The warnings of a run: what a user should know before trusting the split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.baselines import RandomMMD
from clustersplit_cli.core.constraints.quotas import Quotas
from clustersplit_cli.core.geometry.kernels import KernelSpread, Prepared
from clustersplit_cli.core.severity import Grade
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.context import NEGLIGIBLE
from clustersplit_cli.pipeline.result import RunResult
from clustersplit_cli.pipeline.target import about_target
from clustersplit_cli.similarity import Nearness

SMALL_CELL = 5
CELLS_NAMED = 3
ROUNDING = 1e-4


def notices(result: RunResult) -> tuple[tuple[str, str], ...]:
    """Collect all warnings, most fundamental first."""
    about, measures, grade = result.about, result.measures, result.graded
    squared = measures.mmd_squared if grade is None else grade.scale.best**2
    scatter = measures.ssq_total / measures.n_rows
    what = "splits" if measures.pairs is None else "parts"
    # A random split is as hard as random splits are.
    is_sought = about.options.is_searched_for and result.config.get("strategy") != "random"
    return (
        *about.dataset.notes,
        *about_kernel(about.prepared, about.spread, about.options, about.dataset.feature_names),
        *result.notes,
        *about_error(measures.mmd_squared, result.error),
        *(about_discrepancy(squared, result.random, scatter, parts=what) if is_sought else ()),
        *about_grade(grade),
        *about_target(result.target),
    )


def about_grade(grade: Grade | None) -> Iterator[tuple[str, str]]:
    """Warn of a graded split whose MMD is not what was asked for."""
    if grade is not None and grade.is_missed:
        yield (
            "severity_missed",
            f"no split was found within 1 % of the range of MMD {grade.asked:.4g}; this one has "
            f"{grade.reached:.4g}: few rows, or whole units, leave gaps between the MMDs that can be had",
        )


def about_kernel(
    prepared: Prepared, spread: KernelSpread | None, options: CheckedOptions, names: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Warn of a kernel that hardly tells rows apart, or sees few of the columns, called `names`."""
    gamma = prepared.kernel.gamma
    if spread is not None and spread.is_near_zero:
        yield (
            "degenerate_kernel",
            f"the kernel is almost the identity (gamma={gamma:.3g}: 99 % of sampled off-diagonal values are "
            f"below {spread.high:.1g}), so all splits are much alike; try --gamma scale or median",
        )
    if spread is not None and spread.is_near_one:
        yield (
            "degenerate_kernel",
            f"the kernel is almost constant (gamma={gamma:.3g}: 99 % of sampled off-diagonal values are "
            f"within {1 - spread.low:.1g} of 1), so it hardly tells rows apart; try --gamma scale or median",
        )
    standardize = options.standardize
    if not prepared.kernel.is_stationary or standardize == "l2" or options.is_square:
        return
    columns = prepared.spreads
    is_uneven = columns.is_uneven and standardize == "none"
    if is_uneven:
        held = ", ".join(
            f"{names[column]} {100 * share:.3g} %" for column, share in columns.largest if share > 0
        )
        yield (
            "uneven_spreads",
            f"few of the {columns.varying} columns that vary have most of the variance ({held}), so the "
            f"{prepared.kernel.name} kernel depends mostly on them; try --standardize zscore",
        )
    near = columns.nearly_constant
    if near and (is_uneven or standardize == "zscore"):
        named = ", ".join(names[column] for column in near[:CELLS_NAMED])
        named += f" and {len(near) - CELLS_NAMED} more" if len(near) > CELLS_NAMED else ""
        one = len(near) == 1
        yield (
            "nearly_constant_columns",
            f"{len(near)} column{'' if one else 's'} hardly var{'ies' if one else 'y'} but in few rows "
            f"({named}), and --standardize zscore gives {'it' if one else 'them'} the same weight as the "
            f"others; leave {'it' if one else 'them'} out with --columns",
        )


def about_cells(
    quotas: Quotas, options: CheckedOptions, rounding: str, n_val: int | None
) -> Iterator[tuple[str, str]]:
    """Warn of cells that keep no share, and of a total far from what was asked for.

    Parameters
    ----------
    n_val : validation rows; None to say nothing about the total.
    """
    limits, sizes = quotas.validation, quotas.cells.sizes
    holdout = float(options.holdout)
    balancing = "" if rounding == "balanced" else "--rounding balanced"
    fewer = f"try {balancing}{', or ' if balancing else ''}fewer columns in --stratify"
    none, every = np.flatnonzero(limits.upper == 0), np.flatnonzero(limits.lower == sizes)
    if len(none):
        yield (
            "cells_without_validation",
            f"{_cells(len(none), len(sizes))} too small for a validation row at h={holdout:g} "
            f"({_named(quotas, none)}); {fewer}",
        )
    if len(every):
        yield (
            "cells_without_training",
            f"{_cells(len(every), len(sizes))} wholly in validation at h={holdout:g} "
            f"({_named(quotas, every)}); {fewer}",
        )
    actual = holdout if n_val is None else n_val / limits.n
    if abs(actual - holdout) > 0.1 * holdout:
        yield (
            "holdout_missed",
            f"validation holds {actual:.3g} of the rows, more than 10 % off h={holdout:g}; "
            + (fewer if limits.is_exact else _closer(options)),
        )
    small = int((sizes < SMALL_CELL).sum())
    if 2 * small > len(sizes):
        yield (
            "too_many_cells",
            f"{small} of {len(sizes)} cells have fewer than {SMALL_CELL} rows, which leaves the split little "
            "freedom to differ; try fewer columns in --stratify",
        )


def about_units(together: str | None, sizes: NDArray[np.int64]) -> Iterator[tuple[str, str]]:
    """Warn of near-duplicates that join most rows; `sizes` are those of the units."""
    if Nearness.of_together(together) is not None and 2 * sizes.max() > sizes.sum():
        yield (
            "joined_rows",
            f"{together} joins {sizes.max()} of {sizes.sum()} rows, which then stay on one side; use a "
            "higher similarity in --keep-together",
        )


def about_parts(quotas: Quotas) -> Iterator[tuple[str, str]]:
    """Warn of cells of which some part gets no row."""
    empty = np.flatnonzero((quotas.upper == 0).any(axis=1))
    if len(empty):
        yield (
            "cells_missing_in_parts",
            f"{len(empty)} of {len(quotas.cells.sizes)} cells are too small for all parts "
            f"({quotas.cells.describe(int(empty[0]))}: {quotas.cells.sizes[empty[0]]} rows); "
            "try fewer columns in --stratify",
        )


def about_convergence(converged: bool, max_iter: int) -> Iterator[tuple[str, str]]:
    """Warn of a search that steps ran out on."""
    if not converged:
        yield (
            "not_converged",
            f"the best run had not converged after {max_iter} iterations; raise --max-iter",
        )


def about_error(mmd_squared: float, error: float | None) -> Iterator[tuple[str, str]]:
    """Warn where factors may lack more of MMD² than was planned for."""
    if error and error > NEGLIGIBLE * mmd_squared:
        yield (
            "low_rank_error",
            f"the factors of the kernel are proven to hold MMD² = {mmd_squared:.6g} to {error:.1g} alone; "
            "--nystrom off computes it on the kernel itself",
        )


def about_discrepancy(
    mmd_squared: float, random: RandomMMD, scatter: float, *, parts: str = "splits"
) -> Iterator[tuple[str, str]]:
    """Warn of splits or parts that are hardly harder than random ones; `scatter` is the total, per row."""
    value = max(mmd_squared, 0.0) ** 0.5
    if random.are_one:
        yield (
            "no_choice",
            f"all {random.n} random {parts} that were drawn within the constraints are the same, so there is "
            "little or nothing to choose; try a larger --tolerance, or fewer columns in --stratify",
        )
        return
    threshold = random.mean + 3 * random.sd
    # Where all splits are alike the two are equal but for rounding, that of float32 in the baseline.
    rounding = ROUNDING * threshold**2 + 1e-12 * scatter
    if mmd_squared <= threshold**2 + rounding:
        hardly = ": it is hardly harder than a random split" if parts == "splits" else ""
        yield (
            "not_above_random",
            f"MMD {value:.4g} is not above that of random {parts} by three standard "
            f"deviations ({random.mean:.4g} ± {random.sd:.2g}){hardly}",
        )


def _closer(options: CheckedOptions) -> str:
    """What brings the total closer to h."""
    if options.tolerance.is_auto:
        return "no smaller tolerance can be met, so try fewer columns in --stratify"
    return "try a smaller --tolerance"


def _cells(count: int, total: int) -> str:
    return f"{count} of {total} cells {'is' if count == 1 else 'are'}"


def _named(quotas: Quotas, cells: NDArray[np.int64]) -> str:
    names = "; ".join(
        f"{quotas.cells.describe(cell)}: {quotas.cells.sizes[cell]} rows"
        for cell in cells[:CELLS_NAMED].tolist()
    )
    return names + ("; ..." if len(cells) > CELLS_NAMED else "")
