"""The frozen corpus gives what it gave: a change that only moves code leaves every line of it as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.corpus.commands import COMMANDS
from tests.corpus.compare import comparison
from tests.corpus.record import digest, record

UNDECIDED = {"split-narrow"}
"""Commands with several splits that are nearly as good: the last digits of numbers decide between them."""
EXPECTED = Path(__file__).with_name("expected.json")


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(EXPECTED.read_text(encoding="utf-8"))
    return found


def test_every_command_of_the_corpus_is_expected(expected: dict[str, Any]) -> None:
    assert set(expected) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_gives_what_it_gave(name: str, expected: dict[str, Any]) -> None:
    found, wanted = digest(record([name]))[name], dict(expected[name])
    near = 0.05 if name in UNDECIDED else 1e-6
    assert found.pop("headline") == pytest.approx(wanted.pop("headline"), rel=near)
    if name in UNDECIDED:
        assert list(found.pop("files")) == list(wanted.pop("files"))
    assert found == wanted


def test_a_comparison_names_files_numbers_values_and_keys() -> None:
    report = {"objective": {"psi": 2.0}, "winner": "random-0", "old": 1}
    one = {"exit": 0, "files": {"out/val.npy": "aa", "out/report.json": report}}
    checks = [{"name": "MMD", "status": "ok"}]
    changed = {"objective": {"psi": 2.5}, "winner": "random-1", "new": 1}
    other = {"exit": 0, "files": {"out/val.npy": "bb", "out/report.json": changed}}
    same = {"exit": 0, "files": {}, "verify": {"stdout": {"checks": checks}}}
    more = {
        "exit": 0,
        "files": {},
        "verify": {"stdout": {"checks": [{"name": "x", "status": "ok"}, *checks]}},
    }
    lines = list(comparison({"split": one, "kfold": same}, {"split": other, "kfold": more}))
    assert lines == [
        "split: files out/val.npy; 1 numbers up to 0.2 apart (files/out/report.json/objective/psi); "
        "files/out/report.json/winner random-0 -> random-1",
        "equal but for keys: kfold",
        "new keys: report.json.new, verify.stdout.checks.x",
        "keys that are gone: report.json.old",
    ]
