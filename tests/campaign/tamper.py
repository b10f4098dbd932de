"""Reports changed in one place: whoever reads them refuses them in words or goes on, but never breaks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from tests.campaign.bases import RUNS, copy_of, honest, places
from tests.campaign.findings import Outcome
from tests.campaign.process import run
from tests.campaign.tables import HOSTILE, Random, one_of

KIND = 4
READERS = (
    "verify out",
    "verify out",
    "verify out --json",
    "verify out --rerun",
    "verify out --engine stream",
    "mmd feats.parquet --split out",
    "report out --force",
    "split feats.parquet --config out/report.json --out again",
    "kfold feats.parquet --config out/report.json --out again",
    "split feats.parquet --out out --force --restarts 1 --effort fast --columns f*",
)
DELETED = object()
WHOLE_FILE = (
    "cut",
    "flip",
    "empty",
    "pipe",
    "directory",
    "link loop",
    "gone",
    "array",
    "deep",
    "not utf-8",
    "twice",
)


def examine(seed: int, number: int, place: Path) -> Outcome:
    """Change one place of one honest report, and have it read; the place goes through all of them in turn."""
    outcome = Outcome()
    bases = honest(place.with_name(f"{place.name}-honest"))
    rng = np.random.default_rng([seed, KIND, number])
    names = list(RUNS)
    name = names[number % len(names)]
    report = copy_of(bases[name], place)
    everything = places(bases[name] / "out" / "report.json")
    leaf = everything[(number // len(names) + seed) % len(everything)]
    if rng.random() < 0.05:
        change = one_of(rng, WHOLE_FILE)
        _damage(rng, report, change)
    else:
        content = json.loads(report.read_text(encoding="utf-8"))
        change = f"{'.'.join(map(str, leaf))} = {_change(rng, content, leaf)}"
        report.write_text(json.dumps(content), encoding="utf-8")
    for words in {one_of(rng, READERS[:5]), one_of(rng, READERS[5:])}:
        result = run(words.split(), place)
        before = len(outcome.findings)
        outcome.ran(result)
        outcome.tags[f"{words.split()[0]} exit {result.code}"] += 1
        for index in range(before, len(outcome.findings)):
            found = outcome.findings[index]
            note = f"{found.detail}\n[{name}: {change[:200]}; {words}]"
            outcome.findings[index] = type(found)(found.rule, note)
    return outcome


def _change(rng: Random, content: Any, leaf: tuple[str | int, ...]) -> str:
    """Replace the value at a place; return what it was replaced with, to read."""
    holder = content
    for key in leaf[:-1]:
        holder = holder[key]
    value = _other(rng, holder[leaf[-1]])
    if value is DELETED:
        del holder[leaf[-1]]
        return "deleted"
    holder[leaf[-1]] = value
    return repr(value)


def _other(rng: Random, value: Any) -> Any:
    """Something else than a value: of another type, or near it, or at the edge of its type."""
    others: list[Any] = [
        None,
        DELETED,
        True,
        "",
        "text",
        [],
        {},
        [None],
        {"a": 1},
        0,
        -1,
        1e308,
        10**30,
        "x" * 5000,
    ]
    if isinstance(value, bool):
        others += [not value] * 6
    elif isinstance(value, int | float):
        others += [
            value + 1,
            -value,
            value * 2,
            value * (1 + 1e-6),
            str(value),
            [value],
            float("nan"),
            float("inf"),
            10**400,
        ]
    elif isinstance(value, str):
        others += [
            value + "x",
            value.upper(),
            one_of(rng, HOSTILE),
            "../../etc/passwd",
            "/dev/zero",
            value[:-1],
            [value],
        ]
    elif isinstance(value, list):
        others += [
            value * 2,
            value[:-1],
            value[::-1],
            [*value, None],
            dict.fromkeys(map(str, range(len(value)))),
        ]
    elif isinstance(value, dict):
        others += [{**value, "more": 1}, dict(list(value.items())[:-1]), list(value.values())]
    return one_of(rng, others)


def _damage(rng: Random, report: Path, how: str) -> None:
    """Do something to the file as a whole."""
    raw = bytearray(report.read_bytes())
    if how == "cut":
        report.write_bytes(raw[: int(rng.integers(len(raw)))])
    elif how == "flip":
        raw[int(rng.integers(len(raw)))] ^= int(rng.integers(1, 256))
        report.write_bytes(raw)
    elif how == "empty":
        report.write_bytes(b"")
    elif how == "array":
        report.write_text("[1, 2]")
    elif how == "deep":
        report.write_text("[" * 100_000)
    elif how == "not utf-8":
        report.write_bytes(b"\xff\xfe" + bytes(raw))
    elif how == "twice":
        report.write_bytes(bytes(raw) * 2)
    else:
        report.unlink()
        if how == "pipe":
            os.mkfifo(report)
        elif how == "directory":
            report.mkdir()
        elif how == "link loop":
            report.symlink_to(report.name)
