"""The words of the HTML report, and what it needs."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest

from clustersplit_cli.errors import UsageError
from clustersplit_cli.reports.html import render_html
from clustersplit_cli.reports.html_page import check_available
from clustersplit_cli.reports.html_words import cells_by_distance, headline, heat_map, tiles
from clustersplit_cli.reports.portrait import (
    Category,
    ClassDistance,
    Distribution,
    FeatureShift,
    Portrait,
    RowMap,
    RowWitness,
)
from clustersplit_cli.reports.readable import render_json
from clustersplit_cli.reports.summary import Bound, CellSummary, ConstraintsSummary, Report

SIX_MEGABYTES = 6_000_000


def as_json(report: Report) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(render_json(report))
    return content


def make_portrait(n: int = 40) -> Portrait:
    row = RowWitness(3, "img/<3>.png", 1, 0.25, {"label": "cat", "domain": "art"})
    return Portrait(
        map=RowMap(
            x=tuple(0.12345 * (i % 97) for i in range(n)),
            y=tuple(-0.54321 * (i % 89) for i in range(n)),
            explained=(0.5, 0.25),
            rows=tuple(range(n)),
            ids=tuple(f"images/a_rather_long_folder/of_pictures/{i:07}.png" for i in range(n)),
            part=tuple(int(i % 5 == 0) for i in range(n)),
            witness=tuple(0.0012345 * (i % 83) for i in range(n)),
            categories={"label": Category(tuple(i % 2 for i in range(n)), ("cat", "dog"))},
            n_rows=n,
        ),
        names=("train", "val"),
        random=((0.03,), (0.04,)),
        features=(FeatureShift("f1", (-1.5,)), FeatureShift("f0", (0.5,))),
        n_features=2,
        typical=((replace(row, part=0, witness=-0.2),), (row,)),
        distributions=(Distribution("<f>1", -2.0, 3.0, ((0.25, 0.75), (1.0, 0.0))),),
        classes=(ClassDistance("<cat>", (10, 5), (0.5,)), ClassDistance("dog", (3, 0), (None,))),
        class_word="label",
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "12.3 times more than a random split would; every class in every domain keeps its share."),
        ({"mmd": 0.0393}, "hardly more than a random split would; every class"),
        ({"random": 0.0}, "differ, and random splits do not; every class"),
        ({"mmd": 39.2}, " 1,000 times more than"),
        ({"tolerance": 0.1}, "keeps its share within 10.0% of it."),
        ({"cell": {}}, "validation has its share of all rows."),
        ({"cell": {"label": "a"}}, "; every class keeps its share."),
        ({"satisfied": False}, "; 2 of 2 cells miss their share."),
    ],
)
def test_the_headline_says_what_the_split_is_worth(
    report: Report, change: dict[str, Any], words: str
) -> None:
    content = as_json(report)
    content["mmd"]["value"] = change.get("mmd", content["mmd"]["value"])
    content["baselines"]["random"]["mmd_mean"] = change.get("random", 0.0392)
    content["config"]["tolerance"] = change.get("tolerance", 0.0)
    for cell in content["constraints"]["cells"]:
        cell["cell"] = change.get("cell", cell["cell"])
        cell["satisfied"] = change.get("satisfied", True)
    assert words in headline(content)


def test_cells_off_target_come_first_and_then_those_that_rounding_moved_most(report: Report) -> None:
    cells = (
        CellSummary({"label": "exact"}, 50, 10, 9, 11, 10, True),
        CellSummary({"label": "rounded"}, 6, 1, 1, 1, 1, True),
        CellSummary({"label": "used tolerance"}, 50, 10, 9, 11, 11, True),
        CellSummary({"label": "missed"}, 50, 10, 9, 11, 3, False),
    )
    table = cells_by_distance(as_json(replace(report, constraints=ConstraintsSummary(False, cells))))
    assert [row.name for row in table.rows] == ["missed", "used tolerance", "rounded", "exact"]
    assert [row.wanted for row in table.rows] == ["9 to 11", "9 to 11", "1", "9 to 11"]
    assert (table.n_off_target, table.n_cells, table.hidden) == (2, 4, 0)


def test_the_heat_map_leaves_places_without_rows_empty(report: Report) -> None:
    heat = heat_map(as_json(report))
    assert heat is not None
    assert (heat.row_word, heat.column_word, heat.columns) == ("label", "domain", ("1", "2"))
    (first, (filled, empty)), (second, (nothing, _)) = heat.rows
    assert (first, second, empty, nothing) == ("éthanol", "acetone", None, None)
    assert filled is not None
    assert (filled.actual, filled.size, filled.share, filled.heat) == (18, 90, 0.2, 0.5)


def test_there_is_no_heat_map_of_one_cell(report: Report) -> None:
    whole = ConstraintsSummary(True, (CellSummary({}, 100, 20, 20, 20, 20, True),))
    assert heat_map(as_json(replace(report, constraints=whole))) is None


def test_a_bound_of_an_approximate_kernel_is_said_to_be_one(troubled_report: Report) -> None:
    (tile,) = [tile for tile in tiles(as_json(troubled_report)) if "best possible" in tile.name]
    assert tile.figure == "≥ 88%"
    assert "for the Nyström kernel" in tile.remark


def test_a_split_that_reaches_the_bound_is_said_to_be_optimal(report: Report) -> None:
    proven = replace(report, bound=Bound(0.4821, 0.999998, "exact", "semidefinite", True))
    (tile,) = [tile for tile in tiles(as_json(proven)) if "bound" in tile.name and "cells" not in tile.name]
    assert (tile.figure, tile.remark) == ("optimal", "no split exceeds 0.482")


def test_the_page_of_ten_thousand_rows_stays_below_six_megabytes(report: Report) -> None:
    page = render_html(
        as_json(report), make_portrait(10_000), title="gas.parquet", command="clustersplit split"
    )
    assert len(page.encode()) < SIX_MEGABYTES


def test_every_part_of_the_report_is_on_the_page(troubled_report: Report) -> None:
    page = render_html(
        as_json(troubled_report), make_portrait(), title="a & b", command="clustersplit split 'a & b'"
    )
    for text in (
        "Split of <b>a &amp; b</b>",
        "clustersplit split &#39;a &amp; b&#39;",
        "1 of 1 starts did not converge; raise --max-iter",
        "img/&lt;3&gt;.png",
        "-1.50",
        "under the Nyström kernel",
        "120 excluded, 3 dropped as not finite",
        "M0 72V54.0H120.0V18.0H240.0V72",
        "<b>&lt;f&gt;1</b>",
        "&lt;cat&gt;",
        "How far apart within each label",
        "0f0f0f0f",
    ):
        assert text in page, text
    assert "http://" not in page.partition('id="plotly"')[0]
    assert "https://" not in page.partition('id="plotly"')[0]


def test_the_same_report_gives_the_same_page(report: Report) -> None:
    first, second = (render_html(as_json(report), make_portrait(), title="x", command="y") for _ in range(2))
    assert first == second


@pytest.mark.parametrize("library", ["jinja2", "plotly"])
def test_a_missing_library_is_named_with_the_command_that_installs_it(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UsageError, match=f"needs {library}") as caught:
        check_available()
    assert caught.value.hint == "pip install jinja2 plotly"
