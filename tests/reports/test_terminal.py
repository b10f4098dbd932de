from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from rich.console import Console

from clustersplit_cli.reports.summary import (
    Baselines,
    Bound,
    Certificate,
    ConstraintsSummary,
    Plan,
    RandomBaseline,
    Report,
    SubsampleMMD,
)
from clustersplit_cli.reports.terminal import render_plan, render_summary, render_warnings

OUTPUTS = (Path("gas_split/train.npy"), Path("gas_split/val.npy"))


def shown(
    report: Report,
    outputs: Sequence[Path] = OUTPUTS,
    *,
    width: int = 100,
    verbose: bool = True,
    **settings: object,
) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, **settings)  # type: ignore[arg-type]
    render_summary(report, outputs, console=console, verbose=verbose)
    return file.getvalue()


def row(report: Report, label: str) -> str:
    """The table's row with this label, without it."""
    lines = [line for line in shown(report, width=200).splitlines() if line.startswith(label + " ")]
    assert len(lines) == 1
    return lines[0].removeprefix(label).strip()


def test_a_good_run_is_shown_in_full(report: Report) -> None:
    assert shown(report) == dedent("""\
        train        1,648 rows, 80.0%
        validation     413 rows, 20.0%
        MMD          0.4821, 12.3 times the random mean, 403 sd above it
        random MMD   0.03920 (sd 0.0011), mean of 100 splits with the same quotas
        objective    psi 812.3, 79.6% of the total scatter, 2 lloyd + 1 polish steps, best of 2 starts
        constraints  2 of 2 cells satisfied
        certificate  optimal by CBC (2 LPs), gap 0, integral
        kernel       rbf, gamma 0.01562, dense geometry
        time         1.3 s, peak memory 312 MB
        wrote gas_split/train.npy
        wrote gas_split/val.npy
        """)


def test_a_troubled_run_shows_what_is_wrong(troubled_report: Report) -> None:
    assert shown(troubled_report) == dedent("""\
        train         1,648 rows, 80.0%
        validation      413 rows, 20.0%
        left out      120 rows excluded, 3 rows dropped as not finite
        MMD           0.4821, 12.3 times the random mean, 403 sd above it
        random MMD    0.03920 (sd 0.0011), mean of 100 splits with the same quotas
        exact kernel  MMD between 0.4719 and 0.4894 (95%), estimated on 2,000 rows
        bound         at least 88% of the best possible, MMD at most 0.5478, for the Nystrom kernel only
        objective     psi 812.3, 79.6% of the total scatter, 2 lloyd + 1 polish steps, not converged
        constraints   23 of 28 cells satisfied
                      label=gas [0], domain=0: 3 of 90, wanted 17 to 19
                      label=gas [1], domain=1: 3 of 90, wanted 17 to 19
                      label=gas [2], domain=2: 3 of 90, wanted 17 to 19
                      and 2 more
        certificate   not optimal by threshold, gap 0.0029, fractional
        kernel        rbf, gamma 0.01562, nystrom geometry with 2,000 landmarks
        time          1.3 s, peak memory 312 MB
        warning: 1 of 1 starts did not converge; raise --max-iter
        warning: columns [f0] and [f1] differ in spread by 182,434 times; use --standardize zscore
        wrote gas_split/train.npy
        wrote gas_split/val.npy
        """)


def test_the_summary_is_four_lines_unless_more_is_asked_for(report: Report) -> None:
    bounded = replace(report, bound=Bound(0.5478, 0.8799, "exact", "spectral", False))
    text = shown(bounded, verbose=False)
    assert text == dedent("""\
        rows         1,648 train, 413 validation (20.0%)
        MMD          0.4821, 12.3 times the random mean of 0.03920,
                     at least 87% of the best possible (0.5478)
        constraints  2 of 2 cells satisfied
        wrote gas_split: train.npy, val.npy
        """)
    assert len(shown(bounded, verbose=False, width=140).splitlines()) == 4
    assert shown(report, verbose=False).splitlines()[1].endswith("the random mean of 0.03920")


def test_the_summary_hides_nothing_that_went_wrong(troubled_report: Report) -> None:
    text = shown(troubled_report, verbose=False, width=100)
    assert text == dedent("""\
        rows         1,648 train, 413 validation (20.0%)
        left out     120 rows excluded, 3 rows dropped as not finite
        MMD          0.4821, 12.3 times the random mean of 0.03920,
                     at least 88% of the best possible (0.5478), approximated with 2,000 landmarks
        constraints  23 of 28 cells satisfied
                     label=gas [0], domain=0: 3 of 90, wanted 17 to 19
                     label=gas [1], domain=1: 3 of 90, wanted 17 to 19
                     label=gas [2], domain=2: 3 of 90, wanted 17 to 19
                     and 2 more
        certificate  not optimal by threshold, gap 0.0029, fractional
        warning: 1 of 1 starts did not converge; raise --max-iter
        warning: columns [f0] and [f1] differ in spread by 182,434 times; use --standardize zscore
        wrote gas_split: train.npy, val.npy
        """)


def test_one_unit_is_shown(troubled_report: Report) -> None:
    """An MMD squared stands nowhere beside an MMD, not even where its estimate is negative."""
    below = replace(
        troubled_report, mmd=replace(troubled_report.mmd, subsample=SubsampleMMD(-0.0001, 0.0002, 500))
    )
    assert row(below, "exact kernel") == "MMD between 0 and 0.01732 (95%), estimated on 500 rows"
    for verbose in (True, False):
        assert "MMD^2" not in shown(below, verbose=verbose)


@pytest.mark.parametrize("width", range(60, 201, 7))
def test_the_table_fits_every_width_and_loses_nothing(troubled_report: Report, width: int) -> None:
    text = shown(troubled_report, width=width)
    table = [line for line in text.splitlines() if not line.startswith(("warning: ", "wrote "))]
    assert max(map(len, table)) <= width
    assert text.split() == shown(troubled_report, width=400).split()
    assert "…" not in text


def test_warnings_and_paths_stay_on_one_line_at_any_width(troubled_report: Report) -> None:
    path = Path("a directory") / ("deep" * 30) / "val [1] :smile: [bold].npy"
    lines = shown(troubled_report, [path], width=60).splitlines()
    assert f"wrote {path}" in lines
    assert f"warning: {troubled_report.warnings[1].message}" in lines


def test_warnings_can_be_shown_alone(troubled_report: Report) -> None:
    file = io.StringIO()
    render_warnings(troubled_report, console=Console(file=file, width=60))
    assert file.getvalue().splitlines() == [
        f"warning: {notice.message}" for notice in troubled_report.warnings
    ]


@pytest.mark.parametrize("settings", [{}, {"force_terminal": True, "no_color": True}])
def test_there_is_no_escape_code_outside_a_terminal_or_without_colour(
    troubled_report: Report, settings: dict[str, bool]
) -> None:
    text = shown(troubled_report, **settings)
    assert "\x1b" not in text
    assert text == shown(troubled_report)


def test_no_color_in_the_environment_is_obeyed(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown(report, force_terminal=True)


def test_a_terminal_gets_colours_around_the_same_words(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = shown(report, force_terminal=True, color_system="standard")
    assert "\x1b[1;32m2 of 2 cells satisfied" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == shown(report)


def test_all_our_own_words_are_ascii(troubled_report: Report) -> None:
    assert shown(troubled_report).isascii()


def test_control_characters_in_names_do_not_reach_the_terminal(report: Report) -> None:
    missed = replace(report.constraints.cells[0], cell={"label": "a\x1b[2Jb"}, satisfied=False)
    text = shown(replace(report, constraints=ConstraintsSummary(False, (missed,))), [Path("two\nlines.npy")])
    assert "\x1b" not in text
    assert "label=a\\x1b[2Jb: 18 of 90, wanted 18\n" in text
    assert "wrote two\\nlines.npy\n" in text


def test_a_cell_without_columns_is_called_all_rows(report: Report) -> None:
    missed = replace(report.constraints.cells[0], cell={}, satisfied=False)
    text = shown(replace(report, constraints=ConstraintsSummary(False, (missed,))))
    assert "all rows: 18 of 90, wanted 18\n" in text


@pytest.mark.parametrize(
    ("fraction", "kernel", "said"),
    [
        (0.8799, "exact", "at least 87% of the best possible, MMD at most 0.5478"),
        (0.88, "exact", "at least 88% of the best possible, MMD at most 0.5478"),
        (1.0000001, "exact", "at least 100% of the best possible, MMD at most 0.5478"),
    ],
)
def test_the_bound_is_rounded_so_that_at_least_stays_true(
    report: Report, fraction: float, kernel: str, said: str
) -> None:
    assert row(replace(report, bound=Bound(0.5478, fraction, kernel, "spectral", False)), "bound") == said


def test_a_split_that_reaches_the_bound_is_said_to_be_optimal(report: Report) -> None:
    proven = replace(report, bound=Bound(0.4821, 0.999998, "exact", "semidefinite", True))
    assert row(proven, "bound") == "proven optimal, MMD at most 0.4821"
    assert "proven optimal (0.4821)" in shown(proven, verbose=False)


@pytest.mark.parametrize(
    ("baseline", "said"),
    [
        (RandomBaseline(100, 0.5, 0.01), "0.4821, 0.964 times the random mean, 1.79 sd below it"),
        (RandomBaseline(100, 0.5, 1e-9), "0.4821, 0.964 times the random mean"),
        (RandomBaseline(1, 0.5, 0.0), "0.4821, 0.964 times the random mean"),
        (RandomBaseline(1, 0.0, 0.0), "0.4821"),
    ],
)
def test_the_comparison_with_random_splits_never_divides_by_zero(
    report: Report, baseline: RandomBaseline, said: str
) -> None:
    assert row(replace(report, baselines=Baselines(baseline)), "MMD") == said


@pytest.mark.parametrize(
    ("certificate", "said"),
    [
        (None, "none asked for"),
        (Certificate("cbc", "optimal", 1.0, 1e-16, True, 1), "optimal by CBC (1 LP), gap 1e-16, integral"),
        (Certificate("threshold", "optimal", 1.0, 0.0, True, 0), "optimal by threshold, gap 0, integral"),
    ],
)
def test_the_certificate_says_who_proved_what(
    report: Report, certificate: Certificate | None, said: str
) -> None:
    assert row(replace(report, certificate=certificate), "certificate") == said


def test_what_was_not_measured_is_left_out(report: Report) -> None:
    bare = replace(
        report,
        mmd=replace(report.mmd, kernel="linear", gamma=None, geometry="linear"),
        timing=replace(report.timing, peak_memory_bytes=None),
        trace=report.trace[:1],
        restarts=(),
    )
    assert row(bare, "kernel") == "linear, linear geometry"
    assert row(bare, "time") == "1.3 s"
    assert row(bare, "objective") == "psi 812.3, 79.6% of the total scatter, no steps"


def test_starts_that_did_not_converge_are_counted(report: Report) -> None:
    restarts = (*report.restarts, replace(report.restarts[0], converged=False))
    assert row(replace(report, restarts=restarts), "objective").endswith(
        "best of 3 starts, 1 of them not converged"
    )


@pytest.mark.parametrize(
    ("plan", "kernel", "line"),
    [
        (
            Plan("dense", None, 399_280_324, 14_200_000_000, "the kernel matrix fits"),
            "rbf",
            "kernel: dense rbf, 399 MB of 14.2 GB budget, the kernel matrix fits",
        ),
        (
            Plan("nystrom", 2000, 1_630_000_000, 14_200_000_000, "the kernel matrix would take 160 GB"),
            "rbf",
            "kernel: nystrom rbf with 2,000 landmarks, 1.63 GB of 14.2 GB budget, "
            "the kernel matrix would take 160 GB",
        ),
        (Plan("linear", None, 12, 1000, ""), "linear", "kernel: linear, 12 B of 1.00 kB budget"),
    ],
)
def test_the_plan_is_one_line(plan: Plan, kernel: str, line: str) -> None:
    assert render_plan(plan, kernel=kernel) == line


def test_importing_the_renderers_does_not_import_rich() -> None:
    code = (
        "import sys, clustersplit_cli.reports.terminal, clustersplit_cli.reports.json_report;"
        "sys.exit('rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
