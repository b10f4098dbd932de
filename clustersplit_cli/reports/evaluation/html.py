"""An evaluation as one HTML page that works offline."""

from __future__ import annotations

from typing import Any

from clustersplit_cli.reports.evaluation.summary import ORACLE, EvaluationReport
from clustersplit_cli.reports.evaluation.terminal import (
    TITLES,
    correlation_lines,
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
        correlations=correlation_lines(report),
        options=[(name, _shortened(text)) for name, text in options_in_words(report.config)],
    )


def headline(report: EvaluationReport) -> str:
    """The first thing to know, as a sentence."""
    said = next((line for found in report.protocols for line in found.verdict), "nothing could be compared")
    return _sentence(said.partition(" here: cluster")[0]) + "."  # the numbers follow below


def tiles(report: EvaluationReport) -> tuple[Tile, ...]:
    """The figures one would ask for first."""
    found = report.protocols[0]
    reference = next((score for score in found.strategies if score.strategy == report.reference), None)
    domains = len({run.domain for run in report.runs})
    made = [
        Tile(
            percent(found.room, signed=True),
            "points between random and oracle",
            "the most that choosing can gain with the same training rows",
        ),
        Tile(
            human_count(report.trials.n_trials),
            "trainings",
            f"{report.config['search']} settings, {domains} domains; {report.trials.n_failed} failed",
        ),
        Tile(human_seconds(report.timing.total), "time", f"seed {report.seed}"),
    ]
    if reference is not None:
        made.insert(1, Tile(percent(reference.test, "%"), "accuracy, chosen at random", report.reference))
    return tuple(made)


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


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _shortened(text: str) -> str:
    return text if len(text) < LONGEST_OPTION else f"{text[:LONGEST_OPTION]} …"
