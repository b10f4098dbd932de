from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersplit_cli.reports.formatting import (
    human_bytes,
    human_count,
    human_number,
    human_percent,
    human_seconds,
    printable,
)

UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}


@given(st.floats(-1e300, 1e300), st.integers(2, 6))
def test_a_number_reads_back_to_its_significant_digits(value: float, digits: int) -> None:
    shown = human_number(value, digits)
    # The smallest denormal numbers have fewer digits than asked for.
    assert float(shown.replace(",", "")) == pytest.approx(value, rel=0.51 * 10 ** (1 - digits), abs=1e-320)


@given(st.integers(0, 10**15))
def test_a_size_reads_back_to_three_digits_and_never_shows_a_thousand_of_a_unit(count: int) -> None:
    number, unit = human_bytes(count).split()
    assert float(number) * UNITS[unit] == pytest.approx(count, rel=0.0051)
    assert float(number) < 1000


@given(st.floats(0, 1e6))
def test_a_duration_reads_back_to_its_last_shown_unit(seconds: float) -> None:
    shown = human_seconds(seconds)
    units = {"ms": 0.001, "s": 1, "min": 60, "h": 3600}
    parts = re.findall(r"([\d.]+) (ms|s|min|h)", shown)
    total = sum(float(number) * units[unit] for number, unit in parts)
    precision = 0.1 if shown.endswith(" s") and "min" not in shown else units[parts[-1][1]]
    assert total == pytest.approx(seconds, abs=0.51 * precision)
    assert not re.search(r"\b(1000 ms|60(\.0)? s|60 min)", shown)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (-0.5, "-0.5000"),
        (9.99996, "10.00"),
        (12345.6, "12,346"),
        (1e-16, "1e-16"),
        (1 / 3, "0.3333"),
    ],
)
def test_numbers_look_as_people_write_them(value: float, shown: str) -> None:
    assert human_number(value) == shown


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_called_undefined(value: float) -> None:
    assert human_number(value) == "undefined"


def test_counts_and_shares_are_separated_and_rounded() -> None:
    assert human_count(1234567) == "1,234,567"
    assert human_percent(1 / 3) == "33.3%"


@given(st.text(alphabet=st.characters()))
def test_printable_text_is_printable_and_can_be_encoded(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    shown.encode("utf-8")


def test_printable_text_keeps_letters_of_every_language_and_shows_the_rest_as_escapes() -> None:
    assert printable("été 数据.npy") == "été 数据.npy"
    assert printable("a\x1b[31mred\n\udcff") == "a\\x1b[31mred\\n\\xff"
