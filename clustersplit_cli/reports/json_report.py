"""The report as JSON text, the way back, and the schema both follow."""

from __future__ import annotations

import json
import math
import os
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, NoReturn

from clustersplit_cli.errors import InputError
from clustersplit_cli.reports.summary import SCHEMA_VERSION, Report

_LIST_OF_NUMBERS = re.compile(r"\[\n(?: *-?[0-9][-+.0-9e]*,?\n)+ *\]")
"""Text in JSON holds no line breaks, so nothing but lists of numbers looks like this."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def render_json(report: Any) -> str:
    """Render a report, or any other dataclass, as JSON text that ends with a newline and is valid UTF-8.

    Keys come in the order of the dataclasses, floats in full precision. A number that is not finite becomes
    null: JSON has no word for it, and a report must stay readable whatever happened.
    """
    text = json.dumps(_plain(report, "report"), indent=2, ensure_ascii=False, allow_nan=False)
    text = _LIST_OF_NUMBERS.sub(lambda match: f"[{' '.join(match[0][1:-1].split())}]", text)
    # File names that are not UTF-8 reach Python as lone surrogates, which only their escapes can carry.
    return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def load_report(text: str, *, source: str = "the report") -> dict[str, Any]:
    """Read a report that `render_json` wrote.

    Parameters
    ----------
    text : the JSON text.
    source : what to call it in an error, such as the file's name.

    Returns
    -------
    The report's keys and values; all keys of the schema's top level are there.

    Raises
    ------
    InputError
        If the text is not JSON, not a report, or a report of another schema version.
    """
    hint = "give the report.json of an earlier run"
    try:
        report = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InputError(f"{source} is not JSON: {error.msg} ({place})", hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source} is not JSON: {error}", hint=hint) from error
    if not isinstance(report, dict) or "schema_version" not in report:
        raise InputError(f"{source} is not a report: it has no schema_version", hint=hint)
    version = report["schema_version"]
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise InputError(
            f"{source} has schema version {json.dumps(version)}, this program reads version {SCHEMA_VERSION}",
            hint="make the report again with this version of clustersplit",
        )
    missing = [field.name for field in fields(Report) if field.name not in report]
    if missing:
        raise InputError(f"{source} is incomplete: it has no {', '.join(missing)}", hint=hint)
    if not isinstance(report["config"], dict):
        raise InputError(f"{source} is not a report: its config is not an object", hint=hint)
    return report


def report_schema(name: str = "report") -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `report.json`, or of what the command `name` prints.

    They ship in the package.
    """
    from importlib.resources import files  # here, to start up quickly

    text = files("clustersplit_cli.reports").joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _plain(value: Any, place: str) -> Any:
    """Turn dataclasses, tuples, paths and numpy scalars into what JSON has; `place` names it in errors."""
    if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0:
        value = value.item()  # a numpy scalar; recognised by its looks, so that numpy need not be imported
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name), f"{place}.{f.name}") for f in fields(value)}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, f"{place}.{key}") for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item, f"{place}[{index}]") for index, item in enumerate(value)]
    raise TypeError(f"{place} cannot be written as JSON: it is {value!r}")


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
