"""Sums that depend on the terms alone."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clustersplit_cli.core.exact_sum import ExactSum, merged

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)


def summed(rows: list[list[float]]) -> ExactSum:
    total = ExactSum((len(rows[0]),))
    for row in rows:
        total.add(np.array(row))
    return total


@given(st.lists(st.lists(NUMBERS, min_size=2, max_size=2), min_size=1, max_size=12), st.randoms())
def test_neither_order_nor_grouping_changes_a_bit(rows: list[list[float]], random) -> None:
    whole = summed(rows).total()
    shuffled = list(rows)
    random.shuffle(shuffled)
    cut = random.randint(0, len(rows))
    parts = [summed(part) for part in (shuffled[:cut], shuffled[cut:]) if part]
    assert merged(parts).tobytes() == whole.tobytes()


@given(st.lists(NUMBERS, min_size=1, max_size=20))
def test_the_total_is_the_true_sum_to_a_rounding_or_two(values: list[float]) -> None:
    total = summed([[value] for value in values]).total()[0]
    assert math.isclose(total, math.fsum(values), rel_tol=1e-15, abs_tol=1e-320)


def test_terms_that_cancel_leave_the_small_one() -> None:
    total = summed([[1e17], [1.0], [-1e17], [1e-17]])
    assert total.total()[0] == 1.0 + 1e-17


def test_numbers_at_the_ends_of_the_range_are_kept() -> None:
    values = [5e-324, -5e-324, 1.7e308, -1.7e308, 2.0]
    assert summed([[value] for value in values]).total()[0] == 2.0
