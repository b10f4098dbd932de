"""Shares of parts and folds: counts that add up both ways."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersplit_cli.core.constraints.cells import Cells
from clustersplit_cli.core.constraints.quotas import fold_quotas, parse_parts, part_quotas
from clustersplit_cli.errors import InfeasibleError, UsageError


def cells_of(sizes: list[int]) -> Cells:
    codes = np.repeat(np.arange(len(sizes)), sizes)
    return Cells(codes, tuple({"label": code} for code in range(len(sizes))), np.array(sizes))


@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=20), k=st.integers(2, 7))
def test_folds_share_every_cell_and_all_rows_but_for_one(sizes: list[int], k: int) -> None:
    if sum(sizes) < k:
        return
    quotas = fold_quotas(cells_of(sizes), k)
    assert quotas.target.sum(axis=1).tolist() == sizes
    assert np.ptp(quotas.target, axis=1).max() <= 1
    assert np.ptp(quotas.target.sum(axis=0)) <= 1


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    cuts=st.lists(st.integers(1, 99), min_size=1, max_size=3, unique=True),
)
def test_parts_are_neighbours_of_their_shares_and_add_up_both_ways(sizes: list[int], cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), 100]
    shares = [Fraction(high - low, 100) for low, high in pairwise(edges)]
    parts = [(f"p{place}", share) for place, share in enumerate(shares)]
    try:
        quotas = part_quotas(cells_of(sizes), parts, [Fraction(0)] * len(sizes))
    except InfeasibleError as error:
        assert "gets no rows" in error.message
        return
    assert quotas.target.sum(axis=1).tolist() == sizes
    for place, share in enumerate(shares):
        assert abs(quotas.target[:, place].sum() - share * sum(sizes)) < 1
        assert all(abs(quotas.target[cell, place] - share * size) < 1 for cell, size in enumerate(sizes))


def test_a_tolerance_widens_the_bounds_of_its_cell() -> None:
    quotas = part_quotas(cells_of([20, 20]), parse_parts("a=0.5,b=0.5"), [Fraction(0), Fraction(1, 5)])
    assert (quotas.lower.tolist(), quotas.upper.tolist()) == ([[10, 10], [8, 8]], [[10, 10], [12, 12]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("train", "not NAME=SHARE"),
        ("train=1", "strictly between"),
        ("a=0.5,a=0.5", "different names"),
        ("a=0.5,b=0.4", "add up to 0.9"),
        ("a/b=0.5,c=0.5", "cannot name a file"),
        ("report=0.5,c=0.5", "cannot name a file"),
        ("a=x,b=0.5", "not a number"),
    ],
)
def test_parts_that_make_no_sense_are_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_parts(text)


def test_shares_are_read_exactly() -> None:
    assert parse_parts("a=0.1,b=0.2,c=0.7")[2] == ("c", Fraction(7, 10))


def test_shares_in_thirds_are_made_whole_by_the_last() -> None:
    third = Fraction(str(1 / 3))
    assert parse_parts(f"a={1 / 3},b={1 / 3},c={1 / 3}") == (("a", third), ("b", third), ("c", 1 - 2 * third))


def test_fewer_rows_than_folds_are_refused() -> None:
    with pytest.raises(InfeasibleError, match="3 rows cannot make 5 folds"):
        fold_quotas(cells_of([3]), 5)


def test_more_forced_rows_than_room_are_refused() -> None:
    pinned = np.full(10, -1)
    pinned[:4] = 1
    with pytest.raises(InfeasibleError, match=r"4 rows of label=0 are forced into b, .* room for 3"):
        part_quotas(cells_of([10]), parse_parts("a=0.7,b=0.3"), [Fraction(0)], pinned)


def test_forced_rows_that_leave_another_part_too_few_are_refused() -> None:
    """There is room for what is forced into a part, but then the others do not get what they need."""
    parts, room = parse_parts("a=0.4,b=0.4,c=0.2"), [Fraction(1, 4)]
    quotas = part_quotas(cells_of([5]), parts, room)
    assert (quotas.lower.tolist(), quotas.upper.tolist()) == ([[2, 2, 1]], [[3, 3, 1]])
    with pytest.raises(InfeasibleError, match=r"label=0 has 5 rows, but .* add up to 6"):
        part_quotas(cells_of([5]), parts, room, np.array([0, 0, 0, -1, -1]))
