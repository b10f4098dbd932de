"""What reports can be had as: values, JSON and text."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from io import StringIO
from typing import Any, ClassVar

_LIST_OF_NUMBERS = re.compile(r"\[\n(?: *-?[0-9][-+.0-9e]*,?\n)+ *\]")
"""Text in JSON holds no line breaks, so nothing but lists of numbers looks like this."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
WIDTH = 100


class Readable:
    """What all reports have in common: they can be had as values, as JSON and as text.

    `renderer` is the function that shows them in a terminal, by module and name.
    """

    renderer: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Return dictionaries, lists, texts and numbers, as `to_json` writes them."""
        content: dict[str, Any] = json.loads(self.to_json())
        return content

    def to_json(self) -> str:
        """Return the text that the command line writes: of a split, that of `report.json`."""
        return render_json(self)

    def summary(self) -> str:
        """Return the table that the command line shows, as text."""
        from rich.console import Console

        module, _, name = self.renderer.partition(":")
        render: Callable[..., None] = getattr(import_module(f"{__package__}.{module}"), name)
        console = Console(
            file=StringIO(), width=WIDTH, no_color=True, highlight=False, soft_wrap=True, force_jupyter=False
        )
        render(self, console=console)
        shown: str = console.file.getvalue()  # type: ignore[attr-defined]
        return shown


def render_json(report: Any) -> str:
    """Render a report, or any other dataclass, as JSON text that ends with a newline and is valid UTF-8.

    Keys come in the order of the dataclasses, floats in full precision. A number that is not finite becomes
    null: JSON has no word for it, and a report must stay readable whatever happened.
    """
    text = json.dumps(_plain(report, "report"), indent=2, ensure_ascii=False, allow_nan=False)
    text = _LIST_OF_NUMBERS.sub(lambda match: f"[{' '.join(match[0][1:-1].split())}]", text)
    # File names that are not UTF-8 reach Python as lone surrogates, which only their escapes can carry.
    return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


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
