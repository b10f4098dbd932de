"""A report with any leaf changed: no command breaks on it, and `verify` finds out."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clustersplit_cli.cli.app import run
from clustersplit_cli.errors import InputError
from clustersplit_cli.reports.json_report import load_report
from tests.verification.conftest import MADE, Place, Report, at, leaves

BAD: tuple[Any, ...] = (
    ...,
    None,
    True,
    -1,
    0,
    3,
    10**12,
    0.5,
    -1e300,
    1e300,
    "",
    "text",
    "../x" * 90,
    [],
    {},
)
"""What a leaf is replaced by; `...` takes it away."""
COMMANDS = {
    "verify": ("verify", "run", "--quiet"),
    "report": ("report", "run", "--force", "--quiet"),
    "mmd": ("mmd", "feats.parquet", "--split", "run", "--quiet"),
    "config": (
        "split",
        "feats.parquet",
        "--config",
        "run/report.json",
        "--out",
        "again",
        "--force",
        "--quiet",
    ),
    "folds": (
        "kfold",
        "feats.parquet",
        "--config",
        "run/report.json",
        "--out",
        "again",
        "--force",
        "--quiet",
    ),
}
PLACES = 12
"""Leaves that are tried, drawn anew for every kind of run."""
ENDS = {0, 1, 2, 3}


def tampered(report: Report, place: Place, value: Any) -> str:
    content = copy.deepcopy(report)
    holder, name = at(content, place)
    if value is ...:
        del holder[name]
    else:
        holder[name] = value
    return json.dumps(content)


def still_a_report(text: str) -> bool:
    try:
        load_report(text)
    except InputError as error:
        assert error.hint and "\n" not in error.message
        return False
    return True


@pytest.mark.parametrize("kind", MADE)
def test_no_command_breaks_on_a_report_that_was_changed(
    kind: str, copied: Callable[[str], Report], capsys: pytest.CaptureFixture[str]
) -> None:
    """Changes that the schema refuses are refused by all commands alike, so that a few of those will do."""
    report = copied(kind)
    path = Path("run/report.json")
    draw = random.Random(kind)
    for place in draw.sample(list(leaves(report)), PLACES):
        texts = [tampered(report, place, value) for value in BAD]
        whole = [text for text in texts if still_a_report(text)]
        tried = [draw.choice(whole)] if whole else []
        if draw.random() < 0.02:
            tried.append(draw.choice(texts))
        for text in tried:
            path.write_text(text, encoding="utf-8")
            for name in [draw.choice(list(COMMANDS))]:
                code = run(list(COMMANDS[name]))
                said = capsys.readouterr()
                assert code in ENDS, (name, place, text, said.err)
                assert "Traceback" not in said.err
