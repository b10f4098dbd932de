"""The findings of `mmd` in words and matrices, from one summary."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from clustersplit_cli.reports.mmd import summary
from clustersplit_cli.reports.mmd.terminal import matrix_lines, render_mmd
from clustersplit_cli.reports.summary import Notice, Timing, ToolVersions


def pair(first: str, second: str, value: float | None, **more: Any) -> summary.PairSummary:
    square = None if value is None else value**2
    return summary.PairSummary(first, second, value, square, more.get("p_value"), None, more.get("cells"))


@pytest.fixture
def sides() -> summary.MMDReport:
    return summary.MMDReport(
        schema_version=1,
        command="mmd",
        tool=ToolVersions("0.1.0", "3.11", "2", "1", "3", None),
        input=summary.MMDInput((), 170, 2, ("f0", "f1"), 0, 0),
        config={},
        seed=0,
        kernel=summary.KernelSummary("rbf", 0.25, None, "none"),
        method=summary.Method("exact", None, 0.1, 10, 100, "in tiles, about 0.1 s"),
        estimator="biased",
        within=(),
        groups=(
            summary.GroupSummary("train", 80),
            summary.GroupSummary("val", 30),
            summary.GroupSummary("evaluation", 60),
        ),
        mmd=summary.Discrepancy(0.5, 0.25),
        pairs=(
            pair("train", "val", 0.5, p_value=0.01),
            pair("train", "evaluation", 0.25, p_value=0.2),
            pair("val", "evaluation", 0.125, p_value=0.3),
        ),
        permutations=summary.Permutations(99, True),
        validity=summary.Validity(True, 0.5, 0.25, 0.125),
        witness=summary.WitnessSummary(
            "train", "val", (summary.WitnessRow("val", 7, 0.2),), (summary.WitnessRow("train", 3, -0.1),)
        ),
        columns=(summary.ColumnShift("f1", -1.5), summary.ColumnShift("f0", 0.25)),
        near_duplicates=None,
        split=None,
        timing=Timing({}, 1.25, None),
        warnings=(Notice("code", "mind\nthis"),),
    )


@pytest.fixture
def groups(sides: summary.MMDReport) -> summary.MMDReport:
    return replace(
        sides,
        groups=tuple(summary.GroupSummary(name, 5) for name in ("a", "long name", "c")),
        pairs=(pair("a", "long name", 0.5), pair("a", "c", None), pair("long name", "c", 0.0625)),
        mmd=None,
        permutations=None,
        validity=None,
        witness=None,
        columns=None,
        warnings=(),
    )


def shown(report: summary.MMDReport) -> list[str]:
    file = io.StringIO()
    render_mmd(report, [], console=Console(file=file, width=200))
    return file.getvalue().splitlines()


def test_the_sides_of_a_split_are_told_in_lines(sides: summary.MMDReport) -> None:
    assert shown(sides) == [
        "compared             train: 80 rows, val: 30 rows, evaluation: 60 rows",
        "MMD                  0.5000, p 0.0100",
        "train to evaluation  0.2500, p 0.200",
        "val to evaluation    0.1250, p 0.300",
        "worst case           check passed, "
        "validation is farther from training (0.500) than the evaluation rows are from either (0.250)",
        "p-values             99 permutations, "
        "descriptive: the sides were chosen to be far apart, so p tests no hypothesis",
        "witness              rows most like val: 7 of val (0.200)",
        "                     rows most like train: 3 of train (-0.100)",
        "columns              f1 -1.50 sd, f0 +0.250 sd",
        "kernel               rbf, gamma 0.2500, exact: in tiles, about 0.1 s",
        "time                 1.2 s",
        "warning: mind\\nthis",
    ]


def test_an_invalid_split_and_an_unbiased_estimate_are_called_so(sides: summary.MMDReport) -> None:
    changed = replace(sides, validity=summary.Validity(False, 0.1, 0.2, 0.3), estimator="unbiased")
    lines = shown(changed)
    assert (
        "worst case           check failed, "
        "the evaluation rows are farther (0.300) than validation is from training (0.100)"
    ) in lines
    assert "MMD                  0.5000, unbiased, p 0.0100" in lines


def test_near_duplicates_are_counted_in_a_line(sides: summary.MMDReport) -> None:
    found = summary.NearDuplicates(0.95, "cosine similarity", 2, 30, (7, 41), 0.98765)
    assert (
        "near dup.            2 of 30 rows of val have a row of train with a cosine "
        "similarity of 0.95 or more, "
        "most similar: row 41 of val and row 7 of train (0.9877)"
    ) in shown(replace(sides, near_duplicates=found))
    none = replace(found, rows=0, closest=None, similarity=None)
    assert (
        "near dup.            0 of 30 rows of val have a row of train with a cosine "
        "similarity of 0.95 or more"
    ) in shown(replace(sides, near_duplicates=none))


def test_groups_are_shown_as_an_aligned_matrix(groups: summary.MMDReport) -> None:
    assert matrix_lines(groups) == [
        "MMD        long name          c",
        "a             0.5000  undefined",
        "long name               0.06250",
    ]
    assert shown(groups)[-3:] == matrix_lines(groups)


def test_every_cell_gets_a_matrix_and_absent_pairs_a_dash(groups: summary.MMDReport) -> None:
    cell = summary.CellDiscrepancy({"label": "x"}, 2, 3, 0.75, 0.5625, 0.5)
    first = replace(groups.pairs[0], cells=(cell,))
    others = tuple(replace(other, cells=()) for other in groups.pairs[1:])
    lines = matrix_lines(replace(groups, pairs=(first, *others), within=("label",)))
    assert lines[0].startswith("mean over label")
    assert lines[4:] == [
        "label=x          long name  c",
        "a          0.7500 (p 0.50)  -",
        "long name                   -",
    ]


def test_the_cells_of_two_groups_are_listed(sides: summary.MMDReport) -> None:
    cells = tuple(summary.CellDiscrepancy({"label": number}, 2, 3, 0.5, 0.25, None) for number in range(14))
    changed = replace(
        sides, pairs=(replace(sides.pairs[0], cells=cells), *sides.pairs[1:]), within=("label",)
    )
    lines = shown(changed)
    assert "within               label=0: 0.5000 (2 and 3 rows)" in lines
    assert f"{' ' * 21}and 2 more, all of them with --json" in lines
    assert any("mean over 14 cells" in line for line in lines)


def test_many_groups_are_listed_by_distance(groups: summary.MMDReport) -> None:
    names = [f"g{i}" for i in range(20)]
    pairs = tuple(
        pair(a, b, (i * 20 + j) / 1000) for i, a in enumerate(names) for j, b in enumerate(names) if i < j
    )
    many = replace(groups, groups=tuple(summary.GroupSummary(name, 5) for name in names), pairs=pairs)
    lines = matrix_lines(many)
    assert lines[0] == "g18 and g19: 0.3790"
    assert lines[-1] == "and 170 more pairs, all of them with --json"
