"""The report of a split, of folds or of named parts as one HTML page, and as notebooks show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from clustersplit_cli.reports import html_words as constraint_words
from clustersplit_cli.reports import html_words as part_words
from clustersplit_cli.reports import html_words as words
from clustersplit_cli.reports.html_page import render_page
from clustersplit_cli.reports.portrait import Distribution, Portrait, RowMap

if TYPE_CHECKING:
    from clustersplit_cli.reports.summary import Report

MAP_WIDTH, MAP_HEIGHT, MARGIN = 340, 230, 8
MOST_POINTS = 2000
SIDES = ("#8a94a6", "#e8590c")
COLOURS = ("#4c78a8", "#e8590c", "#54a24b", "#b279a2", "#eeca3b", "#72b7b2", "#ff9da6", "#9d755d", "#8a94a6")
_CELL = "text-align:left;padding:1px 10px 1px 0;border:0;background:none"


def render_html(report: Mapping[str, Any], portrait: Portrait, *, title: str, command: str) -> str:
    """Render the page.

    Parameters
    ----------
    report : the content of `report.json`.
    portrait : what is drawn besides.
    title : what was split.
    command : the command that does the same again.
    """
    if report["parts"] is None:
        template, content = "report.html", _of_split(report, portrait)
    else:
        template, content = "parts.html", _of_parts(report, portrait)
    return render_page(
        template,
        report=report,
        title=title,
        portrait=portrait,
        command=command,
        kept=constraint_words.kept_in_words(report),
        graded=words.grade_in_words(report),
        certified=constraint_words.certificate_in_words(report),
        options=words.options_in_words(report["config"]),
        histograms=[_histogram(each) for each in portrait.distributions],
        widest=max((abs(shift) for each in portrait.features for shift in each.shifts), default=0) or 1,
        furthest=max((mmd or 0.0 for each in portrait.classes for mmd in each.mmd), default=0.0) or 1.0,
        **content,
    )


def _of_split(report: Mapping[str, Any], portrait: Portrait) -> dict[str, Any]:
    """What only the page of a split in two has."""
    bound = report["bound"]
    sides: list[dict[str, str | None]] = [
        {"name": "training", "colour": "train"},
        {"name": "validation", "colour": "val"},
    ]
    mmd = {
        "value": report["mmd"]["value"],
        "random": [mmd for (mmd,) in portrait.random],
        "upper": None if bound is None else bound["mmd_upper"],
    }
    return {
        "made": "Split",
        "sides": "sides",
        "part": "side",
        "part_names": ["training", "validation"],
        "exact": words.exact_kernel_limits(report),
        "headline": words.headline(report),
        "tiles": words.tiles(report),
        "cells": words.cells_by_distance(report),
        "heat": words.heat_map(report),
        "target": words.target_check(report),
        "chart_data": {**_chart_data(report, portrait.map, "side", sides), "mmd": mmd},
    }


def _of_parts(report: Mapping[str, Any], portrait: Portrait) -> dict[str, Any]:
    """What only the page of folds or parts has."""
    part = part_words.kind_of_part(report)
    rest = {
        "value": [each["mmd_rest"] for each in report["parts"]["parts"]],
        "random": portrait.random,
    }
    sides = [{"name": name, "colour": None} for name in portrait.names]
    return {
        "made": f"{part.capitalize()}s",
        "part": part,
        "sides": f"{part}s",
        "part_names": list(portrait.names),
        "headline": part_words.parts_headline(report),
        "tiles": part_words.parts_tiles(report),
        "cells": part_words.part_cells(report),
        "matrix": part_words.mmd_matrix(report, portrait),
        "chart_data": {**_chart_data(report, portrait.map, part, sides), "rest": rest},
    }


WIDTH, HEIGHT = 240.0, 72.0
"""Of the drawing of one column's values, in units of its own."""


def _histogram(values: Distribution) -> dict[str, Any]:
    """The outlines of the shares in every part, as paths of SVG."""
    top = max((share for shares in values.shares for share in shares), default=0.0) or 1.0

    def outline(shares: tuple[float, ...]) -> str:
        step = WIDTH / max(len(shares), 1)
        moves = [
            f"V{HEIGHT * (1 - share / top):.1f}H{step * (place + 1):.1f}"
            for place, share in enumerate(shares)
        ]
        return f"M0 {HEIGHT:g}{''.join(moves)}V{HEIGHT:g}"

    return {
        "name": values.name,
        "low": values.low,
        "high": values.high,
        "paths": list(map(outline, values.shares)),
    }


def _chart_data(
    report: Mapping[str, Any], rows: RowMap, part: str, sides: list[dict[str, str | None]]
) -> dict[str, Any]:
    """What the page's script draws."""
    return {
        "map": {
            "x": rows.x,
            "y": rows.y,
            "explained": rows.explained,
            "row": rows.rows,
            "id": rows.ids,
            "part": rows.part,
            "witness": rows.witness,
            "categories": {
                word: {"codes": column.codes, "names": column.names}
                for word, column in rows.categories.items()
            },
        },
        "part": part,
        "sides": sides,
        "trace": report["trace"],
        "winner": None if report["search"] is None else report["search"]["winner"],
        "restarts": report["restarts"],
    }


def render_result(report: Report, title: str, portrait: Portrait | None) -> str:
    """Render the key figures and, where there is a portrait, the map."""
    content = report.to_dict()
    tiles = words.tiles(content) if report.parts is None else words.parts_tiles(content)
    rows = "".join(
        f"<tr>{_cell(tile.name)}{_cell(tile.figure, bold=True)}{_cell(tile.remark)}</tr>" for tile in tiles
    )
    notes = "".join(f"<div>warning: {escape(notice.message)}</div>" for notice in report.warnings)
    drawn = "" if portrait is None else _map(portrait, is_split=report.parts is None)
    return (
        f'<div style="font-size:13px"><code>{escape(title)}</code>'
        f'<table style="border-collapse:collapse;margin:4px 0">{rows}</table>{notes}{drawn}</div>'
    )


def _cell(text: str, *, bold: bool = False) -> str:
    weight = ";font-weight:bold" if bold else ""
    return f'<td style="{_CELL}{weight}">{escape(text)}</td>'


def _map(portrait: Portrait, *, is_split: bool) -> str:
    """Dots in the colour of their part; of many rows, every so many."""
    rows = portrait.map
    names = ("training", "validation") if is_split else portrait.names
    colours = SIDES if is_split else COLOURS
    places = _placed(rows)
    step = max(1, -(-len(places) // MOST_POINTS))
    paths, legend = [], []
    for part, name in enumerate(names):
        colour = colours[part % len(colours)]
        dots = "".join(
            f"M{x:.0f} {y:.0f}h0"
            for (x, y), of in zip(places[::step], rows.part[::step], strict=True)
            if of == part
        )
        paths.append(
            f'<path d="{dots}" stroke="{colour}" stroke-width="4" stroke-linecap="round" opacity="0.7"/>'
        )
        legend.append(f'<span style="color:{colour}">&#9679;</span> {escape(name)}')
    return (
        f'<svg viewBox="0 0 {MAP_WIDTH} {MAP_HEIGHT}" width="{MAP_WIDTH}" height="{MAP_HEIGHT}" '
        'role="img" fill="none">'
        f"<title>rows on the two leading directions of the kernel</title>{''.join(paths)}</svg>"
        f"<div>{' '.join(legend)}</div>"
    )


def _placed(rows: RowMap) -> list[tuple[float, float]]:
    """Coordinates on the picture, y upwards."""

    def scaled(values: Sequence[float], size: int) -> list[float]:
        low, high = min(values), max(values)
        return [MARGIN + (value - low) / ((high - low) or 1.0) * (size - 2 * MARGIN) for value in values]

    ys = scaled(rows.y, MAP_HEIGHT)
    return [(x, MAP_HEIGHT - y) for x, y in zip(scaled(rows.x, MAP_WIDTH), ys, strict=True)]
