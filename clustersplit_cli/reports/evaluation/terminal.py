"""An evaluation as tables and a verdict, for people at a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clustersplit_cli.reports.evaluation.summary import (
    Correlation,
    Curve,
    Estimate,
    EvaluationReport,
    Protocol,
)
from clustersplit_cli.reports.formatting import human_count, human_seconds, printable
from clustersplit_cli.reports.terminal import render_notices, show

if TYPE_CHECKING:
    from rich.console import Console

CURVE_TITLE = "accuracy over graded splits, and read at MMD(S,E)"
ESTIMATORS_TITLE = "estimates of the accuracy on E, less what was found there"
TITLES = {
    "train": "models trained on T, tested on E",
    "refit": "chosen settings retrained on T and V, tested on E",
}


def render_evaluation(report: EvaluationReport, outputs: Sequence[Path] = (), *, console: Console) -> None:
    """Print the verdict's tables, the verdict, warnings and the paths written."""
    domains = number_of_domains(report)
    repeats = report.config["repeats"]
    who = report.config["probe"] or "your command"
    show(
        console,
        (
            f"{human_count(report.trials.n_trials)} trainings ({who}): "
            f"{domains} evaluation domain{'s' * (domains != 1)}, {repeats} repeat{'s' * (repeats != 1)}, "
            f"{report.config['search']} settings, in {human_seconds(report.timing.total)}",
            "",
        ),
    )
    for protocol in report.protocols:
        show(console, ("", ""))
        show(console, (TITLES[protocol.name], "bold"))
        _table(protocol_rows(protocol), console)
    if report.training_sets:
        show(console, ("", ""))
        show(console, ("what the training sets allow, and how well validation ranks settings", "bold"))
        _table(training_rows(report), console)
    if report.curve is not None:
        show(console, ("", ""))
        show(console, (CURVE_TITLE, "bold"))
        _table(curve_rows(report.curve), console)
    if report.curve is not None and report.curve.estimators:
        show(console, ("", ""))
        show(console, (ESTIMATORS_TITLE, "bold"))
        _table(estimator_rows(report.curve), console)
    show(console, ("", ""))
    for line in correlation_lines(report):
        show(console, (line, ""))
    for line in report.curve.verdict if report.curve else ():
        show(console, ("curve: ", "bold cyan"), (printable(line), ""))
    for protocol in report.protocols:
        for line in protocol.verdict:
            lead = "verdict: " if protocol.name == "train" else "verdict, retrained: "
            show(console, (lead, "bold cyan"), (printable(line), ""))
    render_notices(report.warnings, console=console)
    for path in outputs:
        show(console, ("wrote ", "dim"), (printable(path), ""))


def number_of_domains(report: EvaluationReport) -> int:
    """How many were left out, and targets."""
    curves = report.curve.domains if report.curve else ()
    return len({run.domain for run in report.runs} | {found.domain for found in curves})


def protocol_rows(protocol: Protocol) -> list[list[str]]:
    """The main table: one row per strategy."""
    rows = [["strategy", "runs", "test accuracy", "optimism", "gain", "gap closed", "p"]]
    for score in protocol.strategies:
        rows.append(
            [
                score.strategy,
                str(score.n_runs),
                percent(score.test, "%"),
                "" if score.optimism is None else percent(score.optimism, signed=True),
                "" if score.gain is None else percent(score.gain, signed=True),
                "" if score.gap_closed is None else share(score.gap_closed),
                "" if score.p_value is None else probability(score.p_value),
            ]
        )
    return rows


def training_rows(report: EvaluationReport) -> list[list[str]]:
    """The second table: the oracle on every training set, and rank correlations."""
    rows = [["strategy", "oracle on its T", "to random's T", "rank correlation", "MMD(T,V)"]]
    for score in report.training_sets:
        rows.append(
            [
                score.strategy,
                percent(score.oracle, "%"),
                "" if score.difference is None else percent(score.difference, signed=True),
                "" if score.rank_correlation is None else _number(score.rank_correlation, 2),
                _number(score.mmd, 3),
            ]
        )
    return rows


def curve_rows(curve: Curve) -> list[list[str]]:
    """Accuracy of the random reference's choice at every severity, and what it says of E: one row per E."""
    levels = [f"at {level:g}" for level in curve.levels]
    rows = [["evaluation domain", *levels, "severity of E", "expected", "observed"]]
    for found in curve.domains:
        rows.append(
            [
                found.domain,
                *(percent(Estimate(point.accuracy, point.sd), "%") for point in found.points),
                "" if found.severity is None else f"{found.severity:.2f}",
                percent(Estimate(found.expected, found.error), "%"),
                "unknown" if found.observed is None else percent(Estimate(found.observed, None), "%"),
            ]
        )
    return rows


def estimator_rows(curve: Curve) -> list[list[str]]:
    """What every estimate of the accuracy on E was off."""
    rows = [["estimate", "runs", "bias", "mean absolute error"]]
    for found in curve.estimators:
        rows.append(
            [
                found.name,
                str(found.n_runs),
                percent(found.bias, signed=True),
                percent(found.absolute),
            ]
        )
    return rows


def correlation_lines(report: EvaluationReport) -> list[str]:
    """MMD(T,V) against test accuracy, in words."""
    found = report.discrepancy
    parts = {"over strategies": found.strategies, "over runs, less their round's mean": found.runs}
    said = [f"{_rho(value)} {what}" for what, value in parts.items() if value is not None]
    return [f"MMD(T,V) and test accuracy: {'; '.join(said)}"] if said else []


def percent(found: Estimate, unit: str = "", *, signed: bool = False) -> str:
    """A share of 1 as percentage points.

    >>> percent(Estimate(0.8123, 0.004), "%"), percent(Estimate(0.021, None), signed=True)
    ('81.2 ± 0.4%', '+2.1')
    >>> percent(Estimate(-0.0001, 0.0), signed=True)
    '+0.0 ± 0.0'
    """
    value = round(100 * found.mean, 1) + 0.0  # which turns -0.0 into 0.0
    mean = f"{value:+.1f}" if signed else f"{value:.1f}"
    return (mean if found.se is None else f"{mean} ± {100 * found.se:.1f}") + unit


def share(found: Estimate) -> str:
    """A percentage without decimals."""
    mean = f"{round(found.mean) + 0:d}"
    return f"{mean}%" if found.se is None else f"{mean} ± {found.se:.0f}%"


def probability(value: float) -> str:
    """A p-value.

    >>> probability(0.0004), probability(0.04321)
    ('<0.001', '0.043')
    """
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _number(found: Estimate, digits: int) -> str:
    mean = f"{found.mean:.{digits}f}"
    return mean if found.se is None else f"{mean} ± {found.se:.{digits}f}"


def _rho(found: Correlation) -> str:
    value = probability(found.p_value)
    return f"rho {found.rho:+.2f} (p {value if value[0] == '<' else f'= {value}'}, {found.n} points)"


def _table(rows: Sequence[Sequence[str]], console: Console) -> None:
    """Print columns: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0])]
        cells += [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
        show(console, ("  ".join(cells).rstrip(), "bold" if number == 0 else ""))
