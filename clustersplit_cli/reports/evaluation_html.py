"""An evaluation as one HTML page that works offline."""

from __future__ import annotations

from typing import Any

from clustersplit_cli.reports.evaluation_summary import ORACLE, EvaluationReport
from clustersplit_cli.reports.evaluation_terminal import (
    TITLES,
    correlation_lines,
    percent,
    protocol_rows,
    training_rows,
)
from clustersplit_cli.reports.formatting import human_count, human_seconds
from clustersplit_cli.reports.html import compressed_plotly
from clustersplit_cli.reports.html_words import Tile


def render_evaluation_page(report: EvaluationReport, *, title: str) -> str:
    """Render the page.

    Parameters
    ----------
    title : what was evaluated.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("clustersplit_cli.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["count"] = human_count

    def own_file(name: str) -> Markup:
        """The text of a file beside the template, which is ours and therefore trusted."""
        return Markup(environment.get_template(name).render())

    return environment.get_template("evaluation.html").render(
        report=report,
        title=title,
        headline=headline(report),
        tiles=tiles(report),
        protocols=[
            (found, _sentence(TITLES[found.name]), protocol_rows(found)) for found in report.protocols
        ],
        training=training_rows(report),
        correlations=correlation_lines(report),
        options=_options(report),
        chart_data=chart_data(report),
        plotly=compressed_plotly(),
        own_file=own_file,
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
            "what choosing another way could gain at most",
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
    """What the page's script draws; the template escapes it."""
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


def _options(report: EvaluationReport) -> list[tuple[str, str]]:
    """Options that say something."""
    shown = []
    for name, value in report.config.items():
        if value in (None, [], False):
            continue
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        shown.append((name.replace("_", " "), text if len(text) < 300 else f"{text[:300]} …"))
    return shown
