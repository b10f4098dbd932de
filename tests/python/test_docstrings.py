"""Docstrings of what is public, beside the signatures: every parameter, in its order, as numpydoc has it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

import clustersplit
from clustersplit_cli.options import OPTIONS

ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \w+)*) : (\S.*)$")
DEFAULT = re.compile(r", default (.+)$")


def sections(docstring: str) -> dict[str, list[str]]:
    """The lines of every section of a docstring, by its heading."""
    lines = inspect.cleandoc(docstring).splitlines()
    found: dict[str, list[str]] = {"": []}
    heading = ""
    for place, line in enumerate(lines):
        if place + 1 < len(lines) and line and lines[place + 1] == "-" * len(line):
            found[heading := line] = []
        elif not (heading and line == "-" * len(heading)):
            found[heading].append(line)
    return found


def entries(lines: list[str]) -> dict[str, tuple[str, str]]:
    """The type and the description of every name."""
    found: dict[str, tuple[str, str]] = {}
    names: list[str] = []
    for line in lines:
        entry = ENTRY.match(line)
        if entry:
            names = entry[1].replace("*", "").split(", ")
            found |= dict.fromkeys(names, (entry[2], ""))
        elif line.strip():
            assert line.startswith("    "), f"{line!r} is neither an entry nor what one means"
            for name in names:
                found[name] = found[name][0], f"{found[name][1]} {line.strip()}".strip()
    return found


def public() -> Iterator[tuple[str, Any]]:
    """Every public callable, and the public methods of the classes."""
    for name in clustersplit.__all__:
        value = getattr(clustersplit, name)
        if not callable(value) or (isinstance(value, type) and issubclass(value, (Exception, Warning))):
            continue
        yield name, value
        if isinstance(value, type):
            for method in dir(value):
                member = inspect.getattr_static(value, method)
                ours = getattr(getattr(value, method), "__module__", "") or ""
                if (
                    not method.startswith("_")
                    and ours.startswith("clustersplit")
                    and callable(getattr(value, method))
                ):
                    yield f"{name}.{method}", member.__func__ if isinstance(member, classmethod) else member


PUBLIC = dict(public())


def signature_of(value: Any) -> dict[str, inspect.Parameter]:
    function = value.__init__ if isinstance(value, type) else value
    parameters = dict(inspect.signature(function).parameters)
    return {name: each for name, each in parameters.items() if name not in ("self", "cls")}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_docstring_has_every_parameter_in_order_with_a_type_and_a_meaning(name: str) -> None:
    value = PUBLIC[name]
    assert value.__doc__, name
    found = sections(value.__doc__)
    assert found[""][0].endswith("."), "the first line is a sentence"
    if is_dataclass(value):
        told = entries(found["Attributes"])
        wanted = [field.name for field in fields(value) if not field.name.startswith("_")]
        assert sorted(told) == sorted(wanted)
    else:
        parameters = signature_of(value)
        told = entries(found.get("Parameters", []))
        assert list(told) == list(parameters)
        for parameter, (kind, _) in told.items():
            stated = DEFAULT.search(kind)
            default = parameters[parameter].default
            if stated and default is not None:
                assert stated[1] == repr(default), parameter
            if default not in (None, inspect.Parameter.empty):
                assert stated, f"the default of {parameter} is not told"
        if not isinstance(value, type):
            assert "Returns" in found or "Yields" in found
    for parameter, (kind, meaning) in told.items():
        assert "." not in DEFAULT.sub("", kind), f"{parameter}: {kind!r} is a sentence, and should be a type"
        assert meaning.endswith("."), parameter


OF_SAMPLES = {"mmd", "permutation_test", "witness"}
"""Calls that compare samples, which have features and no matrix of all pairs of rows."""


def test_the_words_of_a_parameter_are_those_of_the_table() -> None:
    checked = set()
    for name, value in PUBLIC.items():
        for parameter, (kind, _) in entries(sections(value.__doc__).get("Parameters", [])).items():
            words = OPTIONS[parameter].words if parameter in OPTIONS else ()
            if words:
                listed = re.match(r"\{(.*)\}", kind)
                assert listed is not None, (name, parameter)
                if parameter == "kernel" and name in OF_SAMPLES:
                    words = tuple(word for word in words if word != "precomputed")
                assert tuple(re.findall(r"'(.*?)'", listed[1])) == words, (name, parameter)
                checked.add(parameter)
    assert {"kernel", "standardize", "effort", "certify", "bound", "solver", "rounding"} <= checked


def test_the_reader_of_docstrings_sees_what_is_wrong() -> None:
    """A sentence after the colon, a description that is missing and one that is not indented."""
    assert entries(["h : float, default 0.2", "    Share."]) == {"h": ("float, default 0.2", "Share.")}
    assert entries(["a, b : int", "    Both."])["b"] == ("int", "Both.")
    assert entries(["h : float"])["h"] == ("float", "")
    with pytest.raises(AssertionError, match="neither an entry"):
        entries(["h : float", "Share."])
