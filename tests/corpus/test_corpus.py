"""The frozen corpus gives what it gave: a change that only moves code leaves every line of it as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.corpus.commands import COMMANDS
from tests.corpus.record import digest, record

EXPECTED = Path(__file__).with_name("expected.json")


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(EXPECTED.read_text(encoding="utf-8"))
    return found


def test_every_command_of_the_corpus_is_expected(expected: dict[str, Any]) -> None:
    assert set(expected) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_gives_what_it_gave(name: str, expected: dict[str, Any]) -> None:
    assert digest(record([name]))[name] == expected[name]
