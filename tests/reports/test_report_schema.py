"""Reports are held against their schema as the jsonschema package would do it."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersplit_cli.errors import InputError
from clustersplit_cli.reports.json_report import load_report, report_schema
from clustersplit_cli.reports.readable import render_json
from clustersplit_cli.reports.schema import KEYWORDS, faults
from clustersplit_cli.reports.summary import Report

VALUES: tuple[Any, ...] = (None, True, -1, 0, 10**30, -0.5, "", "text", [], ["x"], [1.5], {}, {"x": 1})


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, (dict, list)):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*place, name)
            yield from places(item, (*place, name))


def changed(content: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy with another value at a place; `...` takes it away."""
    copied = copy.deepcopy(content)
    holder: Any = copied
    for name in place[:-1]:
        holder = holder[name]
    if value is ...:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    return copied


@pytest.mark.parametrize("name", ["report", "mmd", "evaluation"])
def test_our_schemas_use_no_word_that_is_not_checked(name: str) -> None:
    def words(schema: Any) -> set[str]:
        found = set(schema)
        for group in ("properties", "$defs"):
            found |= {word for each in schema.get(group, {}).values() for word in words(each)}
        for one in ("items", "additionalProperties"):
            found |= words(schema[one]) if isinstance(schema.get(one), dict) else set()
        for each in schema.get("anyOf", ()):
            found |= words(each)
        return found

    assert words(report_schema(name)) <= KEYWORDS


def test_every_change_of_every_value_is_judged_as_jsonschema_judges_it(
    report: Report, troubled_report: Report
) -> None:
    schema = report_schema()
    oracle = jsonschema.Draft202012Validator(schema)
    judged = refused = 0
    draw = random.Random(5)
    for example in (report, troubled_report):
        content = json.loads(render_json(example))
        assert not list(faults(content, schema, schema))
        for place in places(content):
            for value in (..., *draw.sample(VALUES, 3)):
                tampered = changed(content, place, value)
                found = list(faults(tampered, schema, schema))
                assert bool(found) != oracle.is_valid(tampered), (place, value, found)
                judged, refused = judged + 1, refused + bool(found)
                assert all("\n" not in line and len(line) < 400 for line in found)
    assert judged > 600 and refused > judged // 2


SCHEMAS = st.recursive(
    st.one_of(
        st.sampled_from(["string", "integer", "number", "boolean", "null"]).map(lambda name: {"type": name}),
        st.lists(st.sampled_from(["string", "integer", "null", "object", "array"]), min_size=1).map(
            lambda names: {"type": sorted(set(names))}
        ),
        st.builds(
            lambda low, high: {"type": "number", "minimum": low, "maximum": high},
            st.integers(-3, 3),
            st.integers(-3, 3),
        ),
        st.integers(-3, 3).map(lambda low: {"type": "number", "exclusiveMinimum": low}),
        st.just({"type": "string", "pattern": "^[a-f]+$"}),
        st.lists(st.sampled_from(["a", "b", None, 3]), min_size=1).map(lambda values: {"enum": values}),
    ),
    lambda inner: st.one_of(
        st.builds(
            lambda items, low, high: {"type": "array", "items": items, "minItems": low, "maxItems": high},
            inner,
            st.integers(0, 2),
            st.integers(0, 3),
        ),
        st.builds(
            lambda a, b, required, others: {
                "type": "object",
                "properties": {"a": a, "b": b},
                "required": required,
                "additionalProperties": others,
            },
            inner,
            inner,
            st.sampled_from([[], ["a"], ["a", "b"]]),
            st.one_of(st.booleans(), inner),
        ),
        inner.map(lambda one: {"anyOf": [one, {"type": "null"}]}),
    ),
    max_leaves=6,
)
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-4, 4),
        # 3.0 is an integer to JSON Schema, and none to us.
        st.floats(-4, 4).filter(lambda number: not number.is_integer()),
        st.sampled_from(["a", "b", "abc", "xyz", ""]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(["a", "b", "c"]), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=400, deadline=None)
@given(SCHEMAS, JSON)
def test_any_schema_of_these_words_is_understood_as_jsonschema_understands_it(
    schema: dict[str, Any], value: Any
) -> None:
    found = list(faults(value, schema, schema))
    assert bool(found) != jsonschema.Draft202012Validator(schema).is_valid(value), found


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("mmd", "value"), "high", "mmd.value is 'high', and should be a number"),
        (("mmd", "value"), -0.5, "mmd.value is -0.5, and should be at least 0"),
        (("sizes", "val"), ..., "sizes.val is missing, and should be an integer or null"),
        (("input", "files", 0), "x", "input.files[0] is 'x', and should be an object"),
        (
            ("input", "files", 0, "sha256"),
            "x",
            "input.files[0].sha256 is 'x', and should look like ^[",
        ),
        (
            ("constraints", "cells", 0, "actual"),
            2.0,
            "constraints.cells[0].actual is 2.0, and should be an",
        ),
        (("certificate",), 3, "certificate is 3, and should be an object"),
        (
            ("plan", "geometry"),
            None,
            "plan.geometry is null, and should be 'dense' or 'linear' or 'low-rank' or 'nystrom'",
        ),
        (("plan", "sofa"), 1, "plan.sofa is unknown"),
        (
            ("input", "n_rows"),
            10**25,
            "input.n_rows is 10000000000000000000..., and should be",
        ),
        (("config", "k"), 3, "parts is null, which contradicts config"),
        (("sizes", "val"), None, "sizes has null, and should have the rows of both sides"),
    ],
)
def test_a_fault_is_told_with_its_place_and_what_should_be_there(
    report: Report, place: tuple[Any, ...], value: Any, message: str
) -> None:
    content = changed(json.loads(render_json(report)), place, value)
    with pytest.raises(InputError) as caught:
        load_report(json.dumps(content), source="run.json")
    assert caught.value.message.startswith(f"run.json is not a complete report: {message}")
    assert caught.value.hint


def test_numbers_that_no_float_can_hold_and_keys_that_are_there_twice_are_refused(report: Report) -> None:
    text = render_json(report)
    with pytest.raises(InputError, match="1e999 is too large a number"):
        load_report(text.replace('"seed": ', '"seed": 1e999, "was": ', 1))
    with pytest.raises(InputError, match="is not JSON: Exceeds the limit"):
        load_report(text.replace('"seed": ', f'"seed": 1{"0" * 5000}, "was": ', 1))
    with pytest.raises(InputError, match="the key 'seed' is there twice"):
        load_report(text.replace('"seed": ', '"seed": 0, "seed": ', 1))
    with pytest.raises(InputError, match="it is not UTF-8 text"):
        load_report(text.encode().replace(b'"seed"', b'"\xff\xfe"', 1))
    assert math.isfinite(load_report(text.encode())["mmd"]["value"])
