"""The schema of the report of `evaluate` and its dataclasses say the same thing."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

import jsonschema
import pytest

from clustersplit_cli.reports import evaluation_summary
from clustersplit_cli.reports.json_report import report_schema

NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
DATACLASSES = {
    kind.__name__: kind
    for kind in vars(evaluation_summary).values()
    if dataclasses.is_dataclass(kind) and isinstance(kind, type)
}


def expected(hint: Any) -> dict[str, Any]:
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
def test_the_schema_has_every_field_with_its_type_and_a_description(name: str) -> None:
    schema = report_schema("evaluation")
    definition = schema if name == "EvaluationReport" else schema["$defs"][name]
    hints = typing.get_type_hints(DATACLASSES[name])
    assert list(definition["properties"]) == definition["required"] == list(hints)
    assert definition["additionalProperties"] is False
    for key, said in definition["properties"].items():
        wanted = expected(hints[key])
        assert {word: said.get(word) for word in wanted} == wanted, key
        assert len(said["description"]) > 5, key


def test_the_schema_is_valid_and_defines_nothing_else() -> None:
    schema = report_schema("evaluation")
    jsonschema.Draft202012Validator.check_schema(schema)
    assert set(schema["$defs"]) == set(DATACLASSES) - {"EvaluationReport"}
    assert schema["properties"]["schema_version"]["const"] == evaluation_summary.EVALUATION_SCHEMA_VERSION
