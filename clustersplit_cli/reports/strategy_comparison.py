"""Strategies side by side: the numbers of every run, their means and spreads, and the table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from clustersplit_cli.reports.formatting import human_count, human_number, human_seconds, printable
from clustersplit_cli.reports.readable import Readable
from clustersplit_cli.reports.summary import FileSummary, Notice
from clustersplit_cli.reports.terminal import render_notices, show

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Spread:
    """Mean, standard deviation (null for one run), smallest and largest."""

    mean: float
    sd: float | None
    least: float
    most: float


@dataclass(frozen=True)
class StrategyRun:
    """One split, measured under the common kernel; null where a number has no meaning.

    `valid`: whether train and val are further apart than either is from the evaluation domain.
    """

    strategy: str
    seed: int | None
    left_out: str | None
    n_val: int
    mmd: float
    psi: float | None
    constraints_met: float | None
    mmd_train_evaluation: float | None
    mmd_val_evaluation: float | None
    valid: bool | None
    seconds: float


@dataclass(frozen=True)
class StrategySummary:
    """All runs of one strategy."""

    strategy: str
    n_runs: int
    mmd: Spread
    psi: Spread | None
    constraints_met: Spread | None
    mmd_train_evaluation: Spread | None
    mmd_val_evaluation: Spread | None
    n_valid: int | None
    seconds: Spread


@dataclass(frozen=True)
class ClassCount:
    """The split of the same rows with as many synthetic classes of equal size."""

    classes: int
    n_val: int
    mmd: float
    mmd_train_evaluation: float | None
    mmd_val_evaluation: float | None
    valid: bool | None
    seconds: float


@dataclass(frozen=True)
class StrategyComparison(Readable):
    """What `clustersplit compare` found; every MMD is under the one common kernel.

    `invalid_from` is the smallest of the numbers of classes from which on no split is valid; null if the
    last one still is, or nothing was evaluated.
    """

    renderer = "strategy_comparison:render_comparison"

    files: tuple[FileSummary, ...]
    n_rows: int
    n_evaluation: int | None
    evaluation_domain: str | None
    kernel: str
    gamma: float | None
    geometry: str
    holdout: float
    stratify: tuple[str, ...]
    seed: int
    repeats: int
    strategies: tuple[StrategySummary, ...]
    runs: tuple[StrategyRun, ...]
    classes: tuple[ClassCount, ...]
    invalid_from: int | None
    warnings: tuple[Notice, ...]


def summarize_runs(runs: Sequence[StrategyRun]) -> tuple[StrategySummary, ...]:
    """Average the runs of every strategy, in the order in which strategies first appear."""
    groups: dict[str, list[StrategyRun]] = {}
    for run in runs:
        groups.setdefault(run.strategy, []).append(run)
    return tuple(_summarize(strategy, group) for strategy, group in groups.items())


def _summarize(strategy: str, runs: list[StrategyRun]) -> StrategySummary:
    judged = [run.valid for run in runs if run.valid is not None]
    return StrategySummary(
        strategy,
        len(runs),
        _known(spread(run.mmd for run in runs)),
        spread(run.psi for run in runs),
        spread(run.constraints_met for run in runs),
        spread(run.mmd_train_evaluation for run in runs),
        spread(run.mmd_val_evaluation for run in runs),
        sum(judged) if judged else None,
        _known(spread(run.seconds for run in runs)),
    )


def spread(values: Iterable[float | None]) -> Spread | None:
    """Mean and spread of the values there are.

    >>> spread([1.0, 3.0, None])
    Spread(mean=2.0, sd=1.4142135623730951, least=1.0, most=3.0)
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(fmean(known), stdev(known) if len(known) > 1 else None, min(known), max(known))


def invalid_from(classes: Sequence[ClassCount]) -> int | None:
    """The smallest number of classes from which on, as numbers grow, no split is valid."""
    found = None
    for row in sorted(classes, key=lambda row: row.classes, reverse=True):
        if row.valid is not False:
            break
        found = row.classes
    return found


def render_comparison(found: StrategyComparison, *, console: Console) -> None:
    """Print the tables."""
    width = f", gamma {human_number(found.gamma)}" if found.gamma is not None else ""
    what = f"{human_count(found.n_rows)} rows, MMD under the {found.kernel} kernel{width}"
    if found.evaluation_domain is not None:
        outside = f"{human_count(found.n_evaluation or 0)} rows of {printable(found.evaluation_domain)}"
        what += f"; E is the {outside}"
    show(console, (what, ""))
    with_evaluation = any(run.mmd_val_evaluation is not None for run in found.runs)
    titles = ["strategy", "runs", "MMD(T,V)", *(["MMD(T,E)", "MMD(V,E)", "valid"] if with_evaluation else [])]
    rows = [[*titles, "Psi", "cells met", "time"]]
    for line in found.strategies:
        evaluated = [
            _with_sd(line.mmd_train_evaluation),
            _with_sd(line.mmd_val_evaluation),
            "" if line.n_valid is None else f"{line.n_valid}/{line.n_runs}",
        ]
        rows.append(
            [
                line.strategy,
                str(line.n_runs),
                _with_sd(line.mmd),
                *(evaluated if with_evaluation else []),
                _with_sd(line.psi, 6),
                "" if line.constraints_met is None else f"{math.floor(100 * line.constraints_met.mean)}%",
                human_seconds(line.seconds.mean),
            ]
        )
    _table(rows, console)
    if found.classes:
        _render_classes(found, console)
    render_notices(found.warnings, console=console)


def _render_classes(found: StrategyComparison, console: Console) -> None:
    rows = [["classes", "MMD(T,V)", "squared", "MMD(T,E)", "MMD(V,E)", "valid", "time"]]
    for row in found.classes:
        rows.append(
            [
                human_count(row.classes),
                human_number(row.mmd),
                human_number(row.mmd**2),
                _number(row.mmd_train_evaluation),
                _number(row.mmd_val_evaluation),
                "" if row.valid is None else "yes" if row.valid else "no",
                human_seconds(row.seconds),
            ]
        )
    show(console, ("", ""))
    _table(rows, console)
    if found.invalid_from == found.classes[0].classes:
        show(console, ("the split is valid for none of these numbers of classes", ""))
    elif found.invalid_from is not None:
        show(console, (f"the split stops being valid at {human_count(found.invalid_from)} classes", ""))
    elif found.classes[-1].valid:
        show(console, ("the split is valid for all these numbers of classes", ""))


def _table(rows: Sequence[Sequence[str]], console: Console) -> None:
    """Print columns: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [
            row[0].ljust(widths[0]),
            *(text.rjust(w) for text, w in zip(row[1:], widths[1:], strict=True)),
        ]
        show(console, ("  ".join(cells).rstrip(), "bold" if number == 0 else ""))


def _with_sd(found: Spread | None, digits: int = 4) -> str:
    if found is None:
        return ""
    text = human_number(found.mean, digits)
    return text if found.sd is None else f"{text} ± {human_number(found.sd, 2)}"


def _number(value: float | None) -> str:
    return "" if value is None else human_number(value)


def _known(found: Spread | None) -> Spread:
    assert found is not None
    return found
