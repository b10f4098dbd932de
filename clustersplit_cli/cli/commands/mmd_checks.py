"""The checks a user can ask `clustersplit mmd` for: limits on discrepancies, and the validity of a split."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from clustersplit_cli.errors import CheckFailedError, UsageError

if TYPE_CHECKING:
    from clustersplit_cli.reports.mmd_summary import MMDReport


def read_limits(given: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Read --fail-above and --fail-below."""
    above, below = _limit("--fail-above", given["fail_above"]), _limit("--fail-below", given["fail_below"])
    if above is not None and below is not None and below > above:
        raise UsageError(
            f"no MMD is at least {below:g} and at most {above:g}",
            hint="--fail-below must not be larger than --fail-above",
        )
    return above, below


def _limit(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise UsageError(f"{option} '{text}' is no MMD", hint=f"a number of at least 0: {option} 0.1")
    return value


def check_gates(report: MMDReport, above: float | None, below: float | None, *, if_invalid: bool) -> None:
    """Fail if what the user asked for does not hold.

    The limits are for the sides of a split, not for their distances to an evaluation set; for the pairs of
    any other comparison, all of them.
    """
    pairs = report.pairs if report.mmd is None else report.pairs[:1]
    for pair in pairs if above is not None or below is not None else ():
        name = f"MMD of {pair.first} and {pair.second}"
        if pair.value is None:
            raise CheckFailedError(f"the {name} is undefined", hint="use --estimator biased")
        if above is not None and pair.value > above:
            raise CheckFailedError(f"the {name} is {pair.value:.6g}, above the {above:g} of --fail-above")
        if below is not None and pair.value < below:
            raise CheckFailedError(f"the {name} is {pair.value:.6g}, below the {below:g} of --fail-below")
    if if_invalid and report.validity is not None and not report.validity.valid:
        between, *others = (
            "undefined" if value is None else f"{value:.6g}"
            for value in (
                report.validity.train_val,
                report.validity.train_evaluation,
                report.validity.val_evaluation,
            )
        )
        raise CheckFailedError(
            f"the split is not valid: the MMD of train and val is {between}, but to evaluation it is "
            f"{others[0]} from train and {others[1]} from val"
        )
