"""Compare two records of the frozen corpus: `python -m tests.corpus.compare BEFORE AFTER`, both by `record`.

Says of every command which index files differ, how far numbers are apart, and which other values changed;
and once for all commands which keys came and went. What is known to differ, and why, is in README.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NEAR = 1e-6
"""Relative differences of this size are rounding."""
SHOWN = 4


@dataclass
class Differences:
    """What differs between two runs of a command; of numbers, how far apart they are."""

    files: list[str] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)
    values: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    came: set[str] = field(default_factory=set)
    went: set[str] = field(default_factory=set)

    def lines(self) -> Iterator[str]:
        """Say so."""
        if self.files:
            yield f"files {', '.join(self.files)}"
        far = {place: apart for place, apart in self.numbers.items() if apart > NEAR}
        if far:
            place = max(far, key=lambda name: far[name])
            yield f"{len(far)} numbers up to {far[place]:.1g} apart ({place})"
        if len(self.numbers) > len(far):
            yield f"{len(self.numbers) - len(far)} numbers less than {NEAR:g} apart"
        for place, (before, after) in list(self.values.items())[:SHOWN]:
            yield f"{place} {str(before)[:60]} -> {str(after)[:60]}"
        if len(self.values) > SHOWN:
            yield f"{len(self.values) - SHOWN} more values"


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a record and its place; checks of `verify` by their names."""
    if place.endswith("/checks"):
        value = {check["name"]: check["status"] for check in value}
    if isinstance(value, list):
        value = {str(number): each for number, each in enumerate(value)}
    if not isinstance(value, dict):
        yield place, value
        return
    for key, each in value.items():
        yield from leaves(each, f"{place}/{key}".lstrip("/"))


def compared(before: Any, after: Any) -> Differences:
    """Compare two runs of one command."""
    found, one, other = Differences(), dict(leaves(before)), dict(leaves(after))
    found.came, found.went = set(other) - set(one), set(one) - set(other)
    for place in sorted(set(one) & set(other)):
        was, now = one[place], other[place]
        if was == now:
            continue
        if place.startswith("files/") and ".json/" not in place:
            found.files.append(place.removeprefix("files/"))
        elif isinstance(was, float) and isinstance(now, float):
            found.numbers[place] = abs(was - now) / max(abs(was), abs(now))
        else:
            found.values[place] = was, now
    return found


def keys(places: set[str]) -> str:
    """The keys in these places, without numbers of items."""
    words = (place.removeprefix("files/out/").split("/") for place in places)
    return ", ".join(sorted({".".join(word for word in each if not word.isdigit()) for each in words})) or "-"


def comparison(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """The lines that are shown."""
    came, went, equal = set[str](), set[str](), list[str]()
    for name in [name for name in before if name in after]:
        found = compared(before[name], after[name])
        came |= found.came
        went |= found.went
        lines = list(found.lines())
        if lines:
            yield f"{name}: {'; '.join(lines)}"
        else:
            equal.append(name)
    yield f"equal but for keys: {', '.join(equal) or '-'}"
    yield f"new keys: {keys(came)}"
    yield f"keys that are gone: {keys(went)}"


def main() -> None:
    """Show the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    given = parser.parse_args()
    before, after = (json.loads(path.read_text("utf-8")) for path in (given.before, given.after))
    sys.stdout.writelines(f"{line}\n" for line in comparison(before, after))


if __name__ == "__main__":
    main()
