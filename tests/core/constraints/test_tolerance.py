"""Tolerances: one for all, exceptions for some, and the smallest with which a count is allowed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersplit_cli.core.constraints.cells import bounds, joint_cells
from clustersplit_cli.core.constraints.tolerance import GRID, parse_tolerances, show, smallest_tolerance
from clustersplit_cli.errors import UsageError

LABELS = joint_cells({"label": (np.array([0, 1, 2]), ("cat", "dog", "a=b"))}, 3)
BOTH = joint_cells({"label": (np.array([0, 1]), ("cat", "dog")), "domain": (np.array([0, 0]), ("x",))}, 2)


def test_nothing_said_means_exact_quotas() -> None:
    assert parse_tolerances([]).of_cells([LABELS]) == [[Fraction(0)] * 3]


def test_an_exception_is_for_its_cell_alone() -> None:
    tolerance = parse_tolerances(["0.05", "label=dog=0.2"])
    assert tolerance.of_cells([LABELS]) == [[Fraction(1, 20), Fraction(1, 5), Fraction(1, 20)]]


def test_a_value_may_hold_an_equals_sign() -> None:
    assert parse_tolerances(["label=a=b=0.5"]).of_cells([LABELS])[0][2] == Fraction(1, 2)


def test_an_exception_names_a_joint_cell_or_a_part_of_one() -> None:
    whole = parse_tolerances(["label=dog,domain=x=0.5"]).of_cells([BOTH])
    assert whole == [[Fraction(0), Fraction(1, 2)]]
    assert parse_tolerances(["domain=x=0.5"]).of_cells([BOTH]) == [[Fraction(1, 2)] * 2]


def test_the_last_of_two_exceptions_for_a_cell_wins() -> None:
    assert parse_tolerances(["label=dog=0.5", "label=dog=0.1"]).of_cells([LABELS])[0][1] == Fraction(1, 10)


def test_auto_leaves_a_tolerance_to_be_found() -> None:
    tolerance = parse_tolerances(["auto", "label=dog=0.2"])
    assert tolerance.is_auto
    assert tolerance.of_cells([LABELS]) == [[None, Fraction(1, 5), None]]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["0.1", "0.2"], "2 times"),
        (["label=0.2"], "COLUMN=VALUE=NUMBER"),
        (["label=dog=x"], "is not a number"),
        (["-1"], "negative"),
    ],
)
def test_what_cannot_be_read_is_refused(texts: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_tolerances(texts)


def test_an_exception_for_no_cell_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="no such cell") as error:
        parse_tolerances(["label=dgo=0.2"]).of_cells([LABELS])
    assert "label=dog" in str(error.value.hint)


@given(size=st.integers(1, 400), share=st.integers(1, 99), data=st.data())
def test_the_smallest_tolerance_allows_the_count_and_nothing_smaller_does(
    size: int, share: int, data: st.DataObject
) -> None:
    holdout = Fraction(share, 100)
    count = data.draw(st.integers(0, size))
    found = smallest_tolerance(size, holdout, count)
    low, high = bounds(size, holdout, found)
    assert low <= count <= high
    if found > 0:
        low, high = bounds(size, holdout, found - Fraction(1, GRID))
        assert not low <= count <= high


def test_a_tolerance_is_shown_as_the_command_line_takes_it() -> None:
    assert [show(Fraction(text)) for text in ("0", "0.075", "1.5")] == ["0", "0.075", "1.5"]
