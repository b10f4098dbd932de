"""The report as one HTML page that works offline: everything it needs is inside the file."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from clustersplit_cli.errors import UsageError
from clustersplit_cli.reports import html_constraints as constraint_words
from clustersplit_cli.reports import html_parts as part_words
from clustersplit_cli.reports import html_words as words
from clustersplit_cli.reports.formatting import (
    human_bytes,
    human_count,
    human_number,
    human_percent,
    human_seconds,
)
from clustersplit_cli.reports.portrait import PartsPortrait, Portrait, RowMap

_LIBRARIES = ("jinja2", "plotly")


def check_available() -> None:
    """Refuse to start work that would end in an HTML report if the libraries it takes are missing.

    Raises
    ------
    UsageError
        With the command that installs them.
    """
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"an HTML report needs {' and '.join(missing)}", hint="pip install 'clustersplit[report]'"
        )


def render_html(
    report: Mapping[str, Any], portrait: Portrait | PartsPortrait, *, title: str, command: str
) -> str:
    """Render the page.

    Parameters
    ----------
    report : the content of `report.json`.
    portrait : what is drawn besides.
    title : what was split.
    command : the command that does the same again.
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
    environment.policies["json.dumps_kwargs"] = {
        "separators": (",", ":")
    }  # and the order of the columns kept
    environment.filters |= {
        "count": human_count,
        "number": human_number,
        "percent": human_percent,
        "bytes": human_bytes,
        "seconds": human_seconds,
    }

    def own_file(name: str) -> Markup:
        """The text of a file beside the template, which is ours and therefore trusted."""
        source = environment.get_template(name)
        return Markup(source.render())

    content = (
        _of_parts(report, portrait) if isinstance(portrait, PartsPortrait) else _of_split(report, portrait)
    )
    name = "parts.html" if isinstance(portrait, PartsPortrait) else "report.html"
    return environment.get_template(name).render(
        report=report,
        portrait=portrait,
        title=title,
        command=command,
        kept=constraint_words.kept_in_words(report),
        certified=constraint_words.certificate_in_words(report),
        options=words.options_in_words(report["config"]),
        plotly=_compressed_plotly(),
        own_file=own_file,
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
        "random": portrait.random_mmds,
        "upper": None if bound is None else bound["mmd_upper"],
    }
    return {
        "made": "Split",
        "sides": "sides",
        "headline": words.headline(report),
        "tiles": words.tiles(report),
        "cells": words.cells_by_distance(report),
        "heat": words.heat_map(report),
        "chart_data": {**_chart_data(report, portrait.map, "side", sides), "mmd": mmd},
    }


def _of_parts(report: Mapping[str, Any], portrait: PartsPortrait) -> dict[str, Any]:
    """What only the page of folds or parts has."""
    part = part_words.kind_of_part(report)
    rest = {
        "value": [each["mmd_rest"] for each in report["parts"]["parts"]],
        "random": portrait.random_rest,
    }
    sides = [{"name": name, "colour": None} for name in portrait.names]
    return {
        "made": f"{part.capitalize()}s",
        "part": part,
        "sides": f"{part}s",
        "headline": part_words.parts_headline(report),
        "tiles": part_words.parts_tiles(report),
        "cells": part_words.part_cells(report),
        "matrix": part_words.mmd_matrix(report, portrait),
        "widest": max((abs(shift) for each in portrait.features for shift in each.shifts), default=0) or 1,
        "chart_data": {**_chart_data(report, portrait.map, part, sides), "rest": rest},
    }


def _chart_data(
    report: Mapping[str, Any], rows: RowMap, part: str, sides: list[dict[str, str | None]]
) -> dict[str, Any]:
    """What the page's script draws; the template escapes it."""
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


def _compressed_plotly() -> str:
    """Plotly's script, a third of its size: the browser unpacks it."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode("utf-8"), mtime=0)).decode("ascii")
