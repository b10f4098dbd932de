"""The frame of every HTML page: one file that works offline, with everything it needs inside."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from clustersplit_cli.errors import UsageError
from clustersplit_cli.reports.formatting import (
    human_bytes,
    human_count,
    human_number,
    human_percent,
    human_seconds,
)

_LIBRARIES = ("jinja2", "plotly")


@dataclass(frozen=True)
class Tile:
    """One key figure: the number, what it is, and a remark."""

    figure: str
    name: str
    remark: str


def check_available() -> None:
    """Refuse to start work that would end in an HTML report if the libraries it takes are missing.

    Raises
    ------
    UsageError
        With the command that installs them.
    """
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise UsageError(f"an HTML report needs {' and '.join(missing)}", hint="pip install jinja2 plotly")


def render_page(
    template: str,
    *,
    report: Any,
    title: str,
    headline: str,
    tiles: Sequence[Tile],
    chart_data: Mapping[str, Any],
    **content: Any,
) -> str:
    """Render a template that extends `page.html`.

    Parameters
    ----------
    template : its name.
    report : what the page reports; it has a `tool.version` and `warnings`.
    title : what was worked on.
    headline : the first thing to know, as a sentence.
    tiles : the figures one would ask for first.
    chart_data : what the page's script draws; the template escapes it.
    content : what else the template asks for.
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
        return Markup(environment.get_template(name).render())

    return environment.get_template(template).render(
        report=report,
        title=title,
        headline=headline,
        tiles=tiles,
        chart_data=chart_data,
        plotly=_compressed_plotly(),
        own_file=own_file,
        **content,
    )


def _compressed_plotly() -> str:
    """Plotly's script, a third of its size: the browser unpacks it."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode("utf-8"), mtime=0)).decode("ascii")
