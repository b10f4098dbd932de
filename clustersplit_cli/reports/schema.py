"""What a JSON value has that its schema forbids: the words of JSON Schema that our own schemas use."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "object": ("an object", lambda value: isinstance(value, dict)),
    "array": ("a list", lambda value: isinstance(value, list)),
    "string": ("a text", lambda value: isinstance(value, str)),
    # JSON Schema takes 3.0 for an integer. No report writes one so, and it cannot count rows in Python.
    "integer": ("an integer", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "number": ("a number", lambda value: isinstance(value, (int, float)) and not isinstance(value, bool)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "null": ("null", lambda value: value is None),
}
Limits = Mapping[str, tuple[str, Callable[[float, float], bool]]]
_LIMITS: Limits = {
    "minimum": ("at least", operator.ge),
    "maximum": ("at most", operator.le),
    "exclusiveMinimum": ("more than", operator.gt),
}
_LENGTHS: Limits = {"minItems": ("at least", operator.ge), "maxItems": ("at most", operator.le)}
_OF_STRUCTURE = ("$ref", "anyOf", "const", "enum", "items", "pattern", "type")
_OF_OBJECTS = ("additionalProperties", "properties", "required")
_REMARKS = ("$defs", "$id", "$schema", "description", "title")
KEYWORDS = frozenset({*_LIMITS, *_LENGTHS, *_OF_STRUCTURE, *_OF_OBJECTS, *_REMARKS})
"""All that a schema may say here; others would be ignored."""
_SHOWN = 40


def faults(value: Any, schema: Schema, whole: Schema, place: str = "") -> Iterator[str]:
    """Yield one sentence for every fault: the place, what is there, and what should be.

    Parameters
    ----------
    schema : what `value` has to meet.
    whole : the outermost schema, which has the definitions.
    place : what to call the value; empty for the outermost.
    """
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        found = [list(faults(value, each, whole, place)) for each in schema["anyOf"]]
        # Ours say "this, or null": what is not null is told what keeps it from being this.
        yield from found[0] if all(found) else ()
        return
    said = place or "it"
    unfit = value not in schema.get("enum", [value]) or value != schema.get("const", value)
    if unfit or not _is_of_type(value, schema):
        yield f"{said} is {_short(value)}, and should be {expected(schema, whole)}"
    elif isinstance(value, dict):
        yield from _of_object(value, schema, whole, place)
    elif isinstance(value, list):
        yield from _beyond(len(value), schema, _LENGTHS, f"{said} has {{}} entries, and should have")
        for number, item in enumerate(value if "items" in schema else ()):
            yield from faults(item, schema["items"], whole, f"{place}[{number}]")
    elif isinstance(value, str):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{said} is {_short(value)}, and should look like {schema['pattern']}"
    elif value is not None and not isinstance(value, bool):
        yield from _beyond(value, schema, _LIMITS, f"{said} is {{}}, and should be")


def _beyond(number: float, schema: Schema, limits: Limits, phrase: str) -> Iterator[str]:
    for word, (bound, holds) in limits.items():
        if word in schema and not holds(number, schema[word]):
            yield f"{phrase.format(_short(number))} {bound} {schema[word]}"


def expected(schema: Schema, whole: Schema) -> str:
    """Say in words what a value should be."""
    if "$ref" in schema:
        return expected(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    if "anyOf" in schema:
        return " or ".join(expected(each, whole) for each in schema["anyOf"])
    if "const" in schema:
        return repr(schema["const"])
    if "enum" in schema:
        return " or ".join("null" if each is None else repr(each) for each in schema["enum"])
    return " or ".join(_TYPES[name][0] for name in _types(schema)) or "a value"


def _of_object(value: Mapping[str, Any], schema: Schema, whole: Schema, place: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            wanted = expected(properties.get(name, {}), whole)
            yield f"{_inside(place, name)} is missing, and should be {wanted}"
    for name, item in value.items():
        if name in properties:
            yield from faults(item, properties[name], whole, _inside(place, name))
        elif others is False:
            yield f"{_inside(place, _short(name).strip(chr(39)))} is unknown"
        elif others is not True:
            yield from faults(item, others, whole, _inside(place, _short(name).strip(chr(39))))


def _inside(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _types(schema: Schema) -> list[str]:
    names = schema.get("type", [])
    return [names] if isinstance(names, str) else list(names)


def _is_of_type(value: Any, schema: Schema) -> bool:
    names = _types(schema)
    return not names or any(_TYPES[name][1](value) for name in names)


def _short(value: Any) -> str:
    """A value on one line; of lists and objects only what they are."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = ascii(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
