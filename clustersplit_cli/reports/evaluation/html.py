"""An evaluation as one HTML page that works offline."""

from __future__ import annotations

from typing import Any

from clustersplit_cli.reports.evaluation.summary import ORACLE, DomainCurve, Estimate, EvaluationReport
from clustersplit_cli.reports.evaluation.terminal import (
    TITLES,
    correlation_lines,
    curve_rows,
    estimator_rows,
    number_of_domains,
    percent,
    protocol_rows,
    training_rows,
)
from clustersplit_cli.reports.formatting import human_count, human_seconds
from clustersplit_cli.reports.html_page import Tile, render_page
from clustersplit_cli.reports.html_words import options_in_words

LONGEST_OPTION = 300


def render_evaluation_page(report: EvaluationReport, *, title: str) -> str:
    """Render the page.

    Parameters
    ----------
    title : what was evaluated.
    """
    return render_page(
        "evaluation.html",
        report=report,
        title=title,
        headline=headline(report),
        tiles=tiles(report),
        chart_data=chart_data(report),
        protocols=[
            (found, _sentence(TITLES[found.name]), protocol_rows(found)) for found in report.protocols
        ],
        training=training_rows(report),
        curve=curve_rows(report.curve) if report.curve else (),
        estimators=estimator_rows(report.curve) if report.curve else (),
        correlations=correlation_lines(report),
        options=[(name, _shortened(text)) for name, text in options_in_words(report.config)],
    )


def headline(report: EvaluationReport) -> str:
    """The first thing to know, as a sentence."""
    lines = [line for found in report.protocols for line in found.verdict]
    if report.curve is not None:
        of_target = any(found.is_target for found in report.curve.domains)
        lines = [*report.curve.verdict, *lines] if of_target else [*lines, *report.curve.verdict]
    said = next(iter(lines), "nothing could be compared")
    return _sentence(said.partition(" here: cluster")[0]) + "."  # the numbers follow below


def tiles(report: EvaluationReport) -> tuple[Tile, ...]:
    """The figures one would ask for first."""
    made = []
    for target in report.curve.domains if report.curve else ():
        if target.is_target:
            expected = percent(Estimate(target.expected, target.error), "%")
            made.append(Tile(expected, f"expected on {target.domain}", "read off the curve"))
            said = percent(Estimate(target.scores[report.reference], None), "%")
            made.append(Tile(said, "on a random validation set", report.reference))
    for found in report.protocols[:1]:
        made.append(
            Tile(
                percent(found.room, signed=True),
                "points between random and oracle",
                "the most that choosing can gain with the same training rows",
            )
        )
        own = [score for score in found.strategies if score.strategy == report.reference]
        made += [
            Tile(percent(each.test, "%"), "accuracy, chosen at random", report.reference) for each in own
        ]
    domains = number_of_domains(report)
    return (
        *made,
        Tile(
            human_count(report.trials.n_trials),
            "trainings",
            f"{report.config['search']} settings, {domains} domain{'s' * (domains != 1)}; "
            f"{report.trials.n_failed} failed",
        ),
        Tile(human_seconds(report.timing.total), "time", f"seed {report.seed}"),
    )


def chart_data(report: EvaluationReport) -> dict[str, Any]:
    """What the page's script draws."""
    return {
        "protocols": [
            {
                "name": found.name,
                "strategies": [score.strategy for score in found.strategies if score.gain],
                "gain": [100 * score.gain.mean for score in found.strategies if score.gain],
                "se": [100 * (score.gain.se or 0.0) for score in found.strategies if score.gain],
                "finding": [score.finding for score in found.strategies if score.gain],
            }
            for found in report.protocols
        ],
        "runs": [
            {
                "strategy": run.strategy,
                "domain": run.domain,
                "repeat": run.repeat,
                "mmd": run.mmd,
                "test": run.test,
            }
            for run in report.runs
            if run.mmd is not None and run.test is not None and run.strategy != ORACLE
        ],
        "curve": [_drawn(found) for found in (report.curve.domains if report.curve else ())],
        "ranks": [
            {
                "strategy": score.strategy,
                "mean": score.rank_correlation.mean,
                "se": score.rank_correlation.se or 0.0,
            }
            for score in report.training_sets
            if score.rank_correlation is not None
        ],
    }


def _drawn(found: DomainCurve) -> dict[str, Any]:
    """A curve, in percent."""
    return {
        "domain": found.domain,
        "level": [point.level for point in found.points],
        "mmd": [point.mmd for point in found.points],
        "accuracy": [100 * point.accuracy for point in found.points],
        "sd": [100 * (point.sd or 0.0) for point in found.points],
        "at": found.mmd,
        "expected": 100 * found.expected,
        "error": 100 * found.error,
        "observed": None if found.observed is None else 100 * found.observed,
    }


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _shortened(text: str) -> str:
    return text if len(text) < LONGEST_OPTION else f"{text[:LONGEST_OPTION]} …"
