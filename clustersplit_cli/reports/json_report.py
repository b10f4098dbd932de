"""The report back from JSON text, and the schema that it follows."""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NoReturn

from clustersplit_cli.errors import InputError
from clustersplit_cli.reports.schema import faults
from clustersplit_cli.reports.summary import SCHEMA_VERSION, Report

_MOST_FOLDS = 1 << 20
_SEEDS = ("seed", "config.seed")
"""Numbers of any length."""


def load_report(text: str | bytes, *, source: str = "the report") -> dict[str, Any]:
    """Read a report that `render_json` wrote, and make sure that it is one.

    Parameters
    ----------
    text : the JSON text, or the bytes of the file.
    source : what to call it in an error, such as the file's name.

    Returns
    -------
    The report's keys and values. All follow the schema, numbers are finite, and the parts agree in number.

    Raises
    ------
    InputError
        If the text is not JSON, not a report, a report of another schema version, or one that was changed.
    """
    hint = "give the report.json of an earlier run"
    try:
        report = json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_no_key_twice
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InputError(f"{source} is not JSON: {error.msg} ({place})", hint=hint) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{source} is not JSON: it is not UTF-8 text", hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source} is not JSON: {error}", hint=hint) from error
    if not isinstance(report, dict) or "schema_version" not in report:
        raise InputError(f"{source} is not a report: it has no schema_version", hint=hint)
    version = report["schema_version"]
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise InputError(
            f"{source} has schema version {json.dumps(version)[:40]}, "
            f"this program reads version {SCHEMA_VERSION}",
            hint="make the report again with this version of clustersplit",
        )
    schema = report_schema()
    wrong = list(faults(report, schema, schema)) or list(_beyond_the_schema(report))
    if wrong:
        more = f"; and {len(wrong) - 1} more faults" if len(wrong) > 1 else ""
        raise InputError(
            f"{source} is not a complete report: {wrong[0]}{more}",
            hint="give the report.json as it was written, or make the run again",
        )
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


def _finite(digits: str) -> float:
    """Read a number; JSON may hold larger ones than a float can."""
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:20]} is too large a number")
    return number


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object; which of two values would be meant is anyone's guess."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"the key {ascii(twice)[:40]} is there twice")
    return found


def _beyond_the_schema(report: Mapping[str, Any]) -> Iterator[str]:
    """What a schema cannot say: numbers that a computer holds, and parts that are the same everywhere."""
    for place, value in _integers(report):
        if abs(value) >= 1 << 63 and place not in _SEEDS:
            yield f"{place} is {str(value)[:20]}..., and should be an integer of 64 bits"
    if None not in (report["config"].get("k"), report["config"].get("parts")):
        yield "config has both k and parts"
    has_parts = report["config"].get("k") is not None or report["config"].get("parts") is not None
    if has_parts != (report["parts"] is not None):
        yield f"parts is {'null' if has_parts else 'an object'}, which contradicts config"
    elif has_parts:
        names = [part["name"] for part in report["parts"]["parts"]]
        stated = _stated_parts(report["config"])
        if names != stated or len(set(names)) < len(names):
            yield f"parts.parts should have the parts {', '.join(stated)[:80]}, as config says"
        rows = report["parts"]["mmd"]
        if [len(row) for row in rows] != [len(names)] * len(names):
            yield f"parts.mmd should have {len(names)} rows of {len(names)} numbers"
        cells = report["constraints"]["cells"]
        once = [(each["cell"], each["size"]) for each in cells[:: len(names)]]
        stated_of = [(each["cell"], each["size"], each["part"]) for each in cells]
        if stated_of != [(cell, size, name) for cell, size in once for name in names]:
            yield "constraints.cells should have every cell once for every part"
    elif None in (report["sizes"]["train"], report["sizes"]["val"]):
        yield "sizes has null, and should have the rows of both sides"


def _stated_parts(config: Mapping[str, Any]) -> list[str]:
    """The names of the parts that were asked for."""
    if config.get("k") is not None:
        return [f"fold_{fold}" for fold in range(min(config["k"], _MOST_FOLDS))]
    return [piece.partition("=")[0].strip() for piece in config["parts"].split(",")]


def _integers(report: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Every integer and its place; without recursion, since `config` may be nested as deep as JSON allows."""
    left: list[tuple[str, Any]] = [("", report)]
    while left:
        place, value = left.pop()
        if isinstance(value, int) and not isinstance(value, bool):
            yield place, value
        elif isinstance(value, dict):
            left += [(f"{place}.{name}" if place else name, item) for name, item in value.items()]
        elif isinstance(value, list):
            left += [(f"{place}[{number}]", item) for number, item in enumerate(value)]


def restore_report(content: Mapping[str, Any]) -> Report:
    """Turn what `load_report` returned back into the dataclasses that were written."""
    report: Report = _restored(Report, content)
    return report


def _restored(kind: Any, value: Any) -> Any:
    """Build what a field's type says from what JSON has; numbers that were not finite come back as None."""
    if is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        return kind(**{f.name: _restored(hints[f.name], value[f.name]) for f in fields(kind)})
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _restored(inner[0], value)
    if origin is tuple:
        return tuple(_restored(inner[0], item) for item in value)
    return value
