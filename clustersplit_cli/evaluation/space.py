"""Hyper-parameters as distributions: read from a file, drawn one setting at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clustersplit_cli.data.readers.fingerprint import text_of
from clustersplit_cli.errors import InputError

Value = bool | int | float | str | None
Params = dict[str, Value]
EXAMPLE = "for example: lr = { loguniform = [1e-5, 1e-3] }"
RANGES = ("uniform", "loguniform", "int", "logint")


@dataclass(frozen=True)
class Parameter:
    """One hyper-parameter: a range (`low` to `high`, of its kind), or a choice among values."""

    name: str
    kind: str
    low: float = 0.0
    high: float = 0.0
    values: tuple[Value, ...] = ()

    def draw(self, rng: np.random.Generator) -> Value:
        """Draw a value; whole numbers include both ends."""
        if self.kind == "choice":
            return self.values[int(rng.integers(len(self.values)))]
        if self.kind == "uniform":
            return float(rng.uniform(self.low, self.high))
        if self.kind == "loguniform":
            return float(np.exp(rng.uniform(math.log(self.low), math.log(self.high))))
        if self.kind == "int":
            return int(rng.integers(int(self.low), int(self.high) + 1))
        drawn = int(np.exp(rng.uniform(math.log(self.low), math.log(self.high + 1))))
        return min(max(drawn, int(self.low)), int(self.high))


@dataclass(frozen=True)
class Space:
    """Independent hyper-parameters."""

    parameters: tuple[Parameter, ...]

    def draw(self, rng: np.random.Generator) -> Params:
        """Draw one setting."""
        return {parameter.name: parameter.draw(rng) for parameter in self.parameters}


def read_space(path: Path) -> Space:
    """Read a TOML or JSON file of hyper-parameters.

    Every key is a hyper-parameter: `{ uniform = [low, high] }`, `loguniform`, `int`, `logint`,
    `{ choice = [...] }`, or a constant.

    Raises
    ------
    InputError
        Naming the file and the hyper-parameter.
    """
    return parse_space(_content(text_of(path), path), source=str(path))


def parse_space(content: Mapping[str, Any], *, source: str) -> Space:
    """Check the content of a file of hyper-parameters."""
    if not content:
        raise InputError(f"{source} has no hyper-parameters", hint=EXAMPLE)
    return Space(tuple(_parameter(name, value, source) for name, value in content.items()))


def _content(text: str, path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(text) if path.suffix.lower() == ".json" else _toml(text)
    except ValueError as error:
        raise InputError(f"{path} cannot be read: {error}", hint=EXAMPLE) from error
    if not isinstance(content, dict):
        raise InputError(f"{path} is not a table of hyper-parameters", hint=EXAMPLE)
    return content


def _toml(text: str) -> Any:
    from importlib import import_module

    try:
        reader = import_module("tomllib")
    except ModuleNotFoundError:  # Python 3.10
        reader = import_module("tomli")
    return reader.loads(text)


def _parameter(name: str, value: Any, source: str) -> Parameter:
    where = f"{source}, {name}"
    if not isinstance(value, dict):
        return Parameter(name, "choice", values=(_plain(value, where),))
    if len(value) != 1:
        raise InputError(f"{where}: one distribution is wanted, not {len(value)}", hint=EXAMPLE)
    kind, given = next(iter(value.items()))
    if kind == "choice":
        if not isinstance(given, list) or not given:
            raise InputError(
                f"{where}: choice needs a list of values", hint="for example { choice = [1, 2] }"
            )
        return Parameter(name, kind, values=tuple(_plain(item, where) for item in given))
    if kind not in RANGES:
        raise InputError(
            f"{where}: distribution {kind!r} is unknown", hint=f"choose one of {', '.join(RANGES)}, choice"
        )
    numbers = isinstance(given, list) and all(
        isinstance(item, (int, float)) and not isinstance(item, bool) and math.isfinite(item)
        for item in given
    )
    if not numbers or len(given) != 2 or given[0] > given[1]:
        raise InputError(f"{where}: {kind} needs [low, high], got {given!r}", hint=EXAMPLE)
    if kind in ("loguniform", "logint") and given[0] <= 0:
        raise InputError(
            f"{where}: {kind} starts above 0, not at {given[0]}", hint="use uniform or int instead"
        )
    if kind in ("int", "logint") and not all(float(item).is_integer() for item in given):
        raise InputError(
            f"{where}: {kind} needs whole numbers, got {given!r}", hint="use uniform or loguniform"
        )
    return Parameter(name, kind, float(given[0]), float(given[1]))


def _plain(value: Any, where: str) -> Value:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise InputError(f"{where}: {value!r} is no number, text or truth value", hint=EXAMPLE)
