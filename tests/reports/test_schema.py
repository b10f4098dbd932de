"""The schema and the dataclasses say the same thing, checked from both sides."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from typing import Any

import jsonschema
import pytest

from clustersplit_cli.reports import summary
from clustersplit_cli.reports.json_report import render_json, report_schema
from clustersplit_cli.reports.summary import SCHEMA_VERSION, Report

NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
DATACLASSES = {
    kind.__name__: kind
    for kind in vars(summary).values()
    if dataclasses.is_dataclass(kind) and isinstance(kind, type)
}


def schema_of(name: str) -> dict[str, Any]:
    schema = report_schema()
    return schema if name == "Report" else schema["$defs"][name]


def expected(hint: Any) -> dict[str, Any]:
    """What the schema must say about a field with this type, apart from limits and words."""
    if dataclasses.is_dataclass(hint):
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if hint in NAMES:
        return {"type": NAMES[hint]}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return {"type": "array", "items": expected(arguments[0])}
    if origin is dict:
        return {"type": "object"}
    assert origin is types.UnionType
    options = [expected(argument) for argument in arguments]
    if all(set(option) == {"type"} for option in options):
        return {"type": [option["type"] for option in options]}
    return {"anyOf": options}


@pytest.mark.parametrize("name", DATACLASSES)
def test_every_field_of_a_dataclass_is_in_the_schema_and_the_other_way_round(name: str) -> None:
    definition = schema_of(name)
    names = [field.name for field in dataclasses.fields(DATACLASSES[name])]
    assert list(definition["properties"]) == names
    assert definition["required"] == names
    assert definition["additionalProperties"] is False


@pytest.mark.parametrize("name", DATACLASSES)
def test_every_field_has_its_type_and_a_description_in_the_schema(name: str) -> None:
    hints = typing.get_type_hints(DATACLASSES[name])
    for key, said in schema_of(name)["properties"].items():
        wanted = expected(hints[key])
        assert {word: said.get(word) for word in wanted} == wanted, key
        assert len(said["description"]) > 5, key


def test_the_schema_defines_nothing_but_the_dataclasses() -> None:
    assert set(report_schema()["$defs"]) == set(DATACLASSES) - {"Report"}


def test_the_schema_is_valid_and_of_the_version_the_program_writes() -> None:
    schema = report_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["properties"]["schema_version"]["const"] == SCHEMA_VERSION


def test_example_reports_follow_the_schema(report: Report, troubled_report: Report) -> None:
    validator = jsonschema.Draft202012Validator(report_schema())
    for example in (report, troubled_report):
        validator.validate(json.loads(render_json(example)))


def test_the_schema_refuses_missing_unknown_and_mistyped_keys(report: Report) -> None:
    validator = jsonschema.Draft202012Validator(report_schema())

    def is_refused(change: typing.Callable[[dict[str, Any]], object]) -> bool:
        content = json.loads(render_json(report))
        change(content)
        return not validator.is_valid(content)

    assert is_refused(lambda content: content.pop("bound"))
    assert is_refused(lambda content: content["sizes"].pop("val"))
    assert is_refused(lambda content: content["mmd"].update(sigma=1.0))
    assert is_refused(lambda content: content["mmd"].update(value=None))
    assert is_refused(lambda content: content["plan"].update(geometry="sparse"))
    assert is_refused(lambda content: content.update(schema_version=2))
    assert not is_refused(lambda content: content["config"].update(anything="goes"))
