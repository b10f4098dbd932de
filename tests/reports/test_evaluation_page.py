"""The page and the tables of an evaluation say what the summary says, and trust nothing from the data."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from clustersplit_cli.reports.evaluation.html import chart_data, headline, render_evaluation_page
from clustersplit_cli.reports.evaluation.summary import (
    ORACLE,
    Correlation,
    DiscrepancyAndTest,
    Estimate,
    EvaluationInput,
    EvaluationReport,
    EvaluationRun,
    FailedTrial,
    Protocol,
    Sensitivity,
    StrategyScore,
    TrainingSetScore,
    TrialCounts,
)
from clustersplit_cli.reports.evaluation.terminal import render_evaluation
from clustersplit_cli.reports.summary import Notice, Timing, ToolVersions

RANDOM, CLUSTER = "random:joint", "cluster-rbf:joint"
VERDICT = "cluster-rbf:joint closes 41 ± 12 % of the gap to the oracle"


@pytest.fixture
def report() -> EvaluationReport:
    scores = (
        StrategyScore(
            RANDOM,
            4,
            Estimate(0.7, 0.01),
            None,
            Estimate(0.0, None),
            None,
            "reference",
            Estimate(0.15, 0.03),
            None,
        ),
        StrategyScore(
            ORACLE,
            4,
            Estimate(0.8, 0.01),
            Estimate(0.1, 0.02),
            Estimate(100.0, None),
            None,
            "reference",
            None,
            None,
        ),
        StrategyScore(
            CLUSTER,
            4,
            Estimate(0.741, None),
            Estimate(0.041, 0.012),
            Estimate(41.0, 12.0),
            0.0004,
            "gains",
            Estimate(-0.02, None),
            Sensitivity(0.05, 3, None),
        ),
    )
    return EvaluationReport(
        schema_version=1,
        command="evaluate",
        tool=ToolVersions("1.0", "3.11", "2.0", "1.14", "3.3", "2.10"),
        input=EvaluationInput((), 1000, 4, 3, ("a", "b"), 0, 0),
        config={
            "probe": "mixed",
            "search": 20,
            "repeats": 1,
            "strategies": [RANDOM, CLUSTER],
            "command": None,
        },
        seed=0,
        reference=RANDOM,
        protocols=(Protocol("train", Estimate(0.1, 0.02), scores, (VERDICT,)),),
        training_sets=(
            TrainingSetScore(
                CLUSTER, Estimate(0.79, None), Estimate(-0.01, 0.005), None, Estimate(0.4, None)
            ),
        ),
        discrepancy=DiscrepancyAndTest(None, Correlation(0.5, 0.03, 8)),
        curve=None,
        runs=(
            EvaluationRun("</script><b>a", 0, CLUSTER, 0.4, 3, 0.9, 0.74, None, 0.79, None, 0.88),
            EvaluationRun("</script><b>a", 0, ORACLE, None, 2, None, 0.8, None, 0.8, None, None),
        ),
        trials=TrialCounts(160, 0, ()),
        timing=Timing({}, 61.0, None),
        warnings=(Notice("odd", "something <odd>"),),
    )


def test_the_terminal_shows_numbers_with_their_uncertainty_and_the_verdict(report: EvaluationReport) -> None:
    out = StringIO()
    console = Console(file=out, width=120, no_color=True)
    render_evaluation(report, [Path("out/report.json")], console=console)
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert "160 trainings (mixed): 1 evaluation domain, 1 repeat, 20 settings, in 1 min 1 s" in lines
    assert "random:joint 4 70.0 ± 1.0% +15.0 ± 3.0 0%" in lines
    assert "oracle 4 80.0 ± 1.0% +10.0 ± 2.0 100%" in lines
    assert "cluster-rbf:joint 4 74.1% -2.0 +4.1 ± 1.2 41 ± 12% <0.001" in lines
    assert "cluster-rbf:joint 79.0% -1.0 ± 0.5 0.400" in lines
    assert f"verdict: {VERDICT}" in lines
    assert "warning: something <odd>" in lines
    assert any("rho +0.50 (p = 0.030, 8 points) over runs" in line for line in lines)


def test_the_page_says_it_too_and_what_comes_from_the_data_stays_text(report: EvaluationReport) -> None:
    page = render_evaluation_page(report, title="<i>feats</i>.parquet")
    assert f"<h1>C{VERDICT[1:]}.</h1>" in page
    assert '<td class="n">41 ± 12%</td>' in page
    assert "Models trained on T, tested on E" in page
    assert "something &lt;odd&gt;" in page
    assert "<i>feats" not in page
    assert "</script><b>a" not in page


def test_without_rank_correlations_the_page_says_why_instead_of_drawing_none(
    report: EvaluationReport,
) -> None:
    few = tuple(replace(score, rank_correlation=None) for score in report.training_sets)
    page = render_evaluation_page(replace(report, training_sets=few), title="x")
    assert 'id="ranks"' not in page
    assert "that takes at least three settings whose accuracies differ" in page


def test_options_are_listed_and_long_ones_cut(report: EvaluationReport) -> None:
    long = [f"column_{number}" for number in range(100)]
    page = render_evaluation_page(replace(report, config={**report.config, "columns": long}), title="x")
    assert "<dt>probe</dt><dd>mixed</dd>" in page
    assert "<dt>command</dt>" not in page
    assert f"<dt>columns</dt><dd>{', '.join(long)[:300]} …</dd>" in page


def test_trials_that_failed_are_named_and_their_words_stay_text(report: EvaluationReport) -> None:
    failed = FailedTrial("k1", "<u>b", 2, {}, "exit code 3: <img src=x>")
    page = render_evaluation_page(replace(report, trials=TrialCounts(160, 1, (failed,))), title="x")
    assert "<li>&lt;u&gt;b, repeat 2, <code>k1</code>: exit code 3: &lt;img src=x&gt;</li>" in page


def test_the_headline_leaves_the_numbers_of_an_unclear_result_to_the_table(report: EvaluationReport) -> None:
    said = (
        "no cluster split differs significantly from random:joint here: cluster-rbf:joint +0.1 ± 0.4 points"
    )
    changed = replace(report, protocols=(replace(report.protocols[0], verdict=(said,)),))
    assert headline(changed) == "No cluster split differs significantly from random:joint."


def test_the_charts_leave_the_oracle_out_where_it_has_no_split(report: EvaluationReport) -> None:
    data = chart_data(report)
    assert [run["strategy"] for run in data["runs"]] == [CLUSTER]
    assert data["protocols"][0]["strategies"] == [ORACLE, CLUSTER]
    assert data["protocols"][0]["gain"] == pytest.approx([10.0, 4.1])
