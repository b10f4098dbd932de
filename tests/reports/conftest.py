"""An example of every kind of report, with the numbers of a plausible run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersplit_cli.reports.summary import (
    SCHEMA_VERSION,
    Baselines,
    Bound,
    CellSummary,
    Certificate,
    ConstraintsSummary,
    FileSummary,
    InputSummary,
    MMDSummary,
    Notice,
    Objective,
    Plan,
    RandomBaseline,
    Report,
    RestartSummary,
    Search,
    Sizes,
    SubsampleMMD,
    Timing,
    ToolVersions,
    TracePoint,
)


@pytest.fixture
def report() -> Report:
    """A run on two cells with a dense kernel; nothing went wrong."""
    return Report(
        schema_version=SCHEMA_VERSION,
        tool=ToolVersions("0.1.0", "3.11.7", "2.4.6", "1.17.1", "3.3.2", "2.10.12"),
        input=InputSummary(
            files=(FileSummary("sample_data/gas.parquet", "features", 424770, "0f" * 32),),
            n_rows=2061,
            n_features=64,
            columns=("f0", "f1"),
            n_excluded=0,
            n_dropped=0,
        ),
        config={"holdout": "0.2", "kernel": "rbf", "gamma": 0.015625, "stratify": ("label", "domain")},
        seed=0,
        sizes=Sizes(train=1648, val=413),
        plan=Plan("dense", None, 16_990_884, 14_200_000_000, "the kernel matrix fits"),
        mmd=MMDSummary(0.48213456, 0.23245373, "rbf", 0.015625, "dense", None),
        objective=Objective(812.3456789, 1020.123, 3.2e-16, 0.0),
        trace=(
            TracePoint("start", 0, 1019.5),
            TracePoint("lloyd", 1, 840.25),
            TracePoint("lloyd", 2, 815.5),
            TracePoint("polish", 3, 812.3456789),
        ),
        search=Search("normal", "random", {"lloyd": 204.0, "polish": 3.1543211}),
        restarts=(
            RestartSummary("random", 2, 815.5, 0.48, True),
            RestartSummary("random", 7, 830.1, 0.45, True),
        ),
        constraints=ConstraintsSummary(
            True,
            (
                CellSummary({"label": "éthanol", "domain": 1}, 90, 18, 18, 18, 18, True),
                CellSummary({"label": "acetone", "domain": 2}, 1971, 395, 395, 395, 395, True),
            ),
        ),
        certificate=Certificate("cbc", "optimal", 812.3456789, 0.0, True, 2),
        bound=None,
        baselines=Baselines(RandomBaseline(100, 0.0392, 0.0011)),
        timing=Timing({"read": 0.02, "kernel": 0.31, "search": 0.84}, 1.26, 312_400_000),
        warnings=(),
    )


@pytest.fixture
def troubled_report(report: Report) -> Report:
    """A Nyström run with everything a report can have, and much that can be wrong."""
    cells = tuple(
        CellSummary({"label": f"gas [{i}]", "domain": i}, 90, 18, 17, 19, 3 if i < 5 else 18, i >= 5)
        for i in range(28)
    )
    return replace(
        report,
        input=replace(report.input, n_excluded=120, n_dropped=3),
        plan=Plan("nystrom", 2000, 1_630_000_000, 14_200_000_000, "the kernel matrix would take 160 GB"),
        mmd=replace(report.mmd, geometry="nystrom", subsample=SubsampleMMD(0.2311, 0.0042, 2000)),
        restarts=(RestartSummary("random", 100, 815.5, 0.48, False),),
        constraints=ConstraintsSummary(False, cells),
        certificate=Certificate("threshold", "not optimal", 810.0, 0.0029, False, 0),
        bound=Bound(0.5478, 0.8801, "nystrom", "spectral", False),
        warnings=(
            Notice("not-converged", "1 of 1 starts did not converge; raise --max-iter"),
            Notice(
                "spreads", "columns [f0] and [f1] differ in spread by 182,434 times; use --standardize zscore"
            ),
        ),
    )
