"""The way back from `report.json` to the summary it was rendered from."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from clustersplit_cli.errors import InputError
from clustersplit_cli.reports.json_report import load_report
from clustersplit_cli.reports.summary import Report


def restore_report(text: str, *, source: str = "the report") -> Report:
    """Read a report that `render_json` wrote.

    Raises
    ------
    InputError
        If the text is no report of this version, or is incomplete.
    """
    try:
        report: Report = _restored(Report, load_report(text, source=source))
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{source} is incomplete or was changed: {error}", hint="make the run again"
        ) from error
    return report


def _restored(kind: Any, value: Any) -> Any:
    """Build what a field's type says from what JSON has; numbers that were not finite come back as None."""
    if is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, Mapping):
            raise TypeError(f"{kind.__name__} is no object")
        hints = typing.get_type_hints(kind)
        # What was added to the report later has a default, so that earlier reports can still be read.
        there = [f for f in fields(kind) if f.name in value or f.default is MISSING]
        return kind(**{f.name: _restored(hints[f.name], value[f.name]) for f in there})
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _restored(inner[0], value)
    if origin is tuple:
        return tuple(_restored(inner[0], item) for item in value)
    return value
