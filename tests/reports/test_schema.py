"""The schemas and the dataclasses say the same thing, checked from both sides."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from typing import Any

import jsonschema
import pytest

from clustersplit_cli.reports import summary
from clustersplit_cli.reports.evaluation import summary as evaluation_summary
from clustersplit_cli.reports.json_report import report_schema
from clustersplit_cli.reports.ladder import summary as ladder_summary
from clustersplit_cli.reports.mmd import summary as mmd_summary
from clustersplit_cli.reports.readable import render_json
from clustersplit_cli.reports.summary import SCHEMA_VERSION, Report

NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
# The schema's own name, the module of its dataclasses, the outermost of them, and the version written.
SCHEMAS = {
    "report": (summary, "Report", SCHEMA_VERSION),
    "mmd": (mmd_summary, "MMDReport", mmd_summary.MMD_SCHEMA_VERSION),
    "ladder": (ladder_summary, "LadderReport", ladder_summary.LADDER_SCHEMA_VERSION),
    "evaluation": (evaluation_summary, "EvaluationReport", evaluation_summary.EVALUATION_SCHEMA_VERSION),
}
DATACLASSES = {
    (schema, kind.__name__): kind
    for schema, (module, _, _) in SCHEMAS.items()
    for kind in vars(module).values()
    if dataclasses.is_dataclass(kind) and isinstance(kind, type)
}


def definition_of(schema: str, name: str) -> dict[str, Any]:
    whole = report_schema(schema)
    return whole if name == SCHEMAS[schema][1] else whole["$defs"][name]


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


@pytest.mark.parametrize(("schema", "name"), DATACLASSES)
def test_every_field_of_a_dataclass_is_in_the_schema_and_the_other_way_round(schema: str, name: str) -> None:
    definition = definition_of(schema, name)
    names = [field.name for field in dataclasses.fields(DATACLASSES[schema, name])]
    assert list(definition["properties"]) == names
    assert definition["required"] == names
    assert definition["additionalProperties"] is False


@pytest.mark.parametrize(("schema", "name"), DATACLASSES)
def test_every_field_has_its_type_and_a_description_in_the_schema(schema: str, name: str) -> None:
    hints = typing.get_type_hints(DATACLASSES[schema, name])
    for key, said in definition_of(schema, name)["properties"].items():
        wanted = expected(hints[key])
        assert {word: said.get(word) for word in wanted} == wanted, key
        assert len(said["description"]) > 5, key


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_schema_is_valid_of_the_version_written_and_defines_nothing_else(schema: str) -> None:
    whole, (_, outermost, version) = report_schema(schema), SCHEMAS[schema]
    jsonschema.Draft202012Validator.check_schema(whole)
    assert whole["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert whole["properties"]["schema_version"]["const"] == version
    defined = {name for owner, name in DATACLASSES if owner == schema}
    assert set(whole["$defs"]) == defined - {outermost}


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
