from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersplit_cli.core.constraints.cells import (
    Cells,
    balanced_quotas,
    joint_cells,
    nearest_quotas,
    parse_holdout,
    parse_share,
    parse_tolerance,
    round_half_up,
)
from clustersplit_cli.core.constraints.quotas import split_quotas
from clustersplit_cli.errors import InfeasibleError, UsageError

fractions_of_one = st.fractions(
    min_value=Fraction(1, 1000), max_value=Fraction(999, 1000), max_denominator=1000
)
cell_sizes = st.lists(st.integers(1, 60), min_size=1, max_size=12)


def cells_of(sizes: list[int]) -> Cells:
    codes = np.repeat(np.arange(len(sizes)), sizes)
    return joint_cells({"label": (codes, list(range(len(sizes))))}, len(codes))


@pytest.mark.parametrize(
    ("h", "size", "rounded"),
    [
        ("0.29", 50, 15),
        ("0.285", 100, 29),
        ("0.5", 1, 1),
        ("0.5", 3, 2),
        ("0.5", 5, 3),
        ("0.1", 5, 1),
        ("0.1", 4, 0),
        ("0.15", 10, 2),
        ("0.35", 10, 4),
        ("0.145", 100, 15),
        ("0.2", 12, 2),
        ("0.2", 13, 3),
    ],
)
def test_halves_round_away_from_zero_and_decimals_are_exact(h: str, size: int, rounded: int) -> None:
    assert round_half_up(parse_holdout(h) * size) == rounded


@given(st.integers(0, 10**30), st.integers(1, 10**15))
def test_rounding_is_the_nearest_integer_with_ties_upward(numerator: int, denominator: int) -> None:
    value = Fraction(numerator, denominator)
    rounded = round_half_up(value)
    assert rounded - Fraction(1, 2) <= value < rounded + Fraction(1, 2)


def test_rounding_is_exact_where_floats_are_not() -> None:
    assert round_half_up(Fraction("0.29") * 50) == 15
    assert round(0.29 * 50) == 14  # what exactness is for
    assert round_half_up(Fraction(10**17 * 2 + 1, 2)) == 10**17 + 1


@pytest.mark.parametrize("text", ["0.29", " 0.29 ", "29e-2", "+0.29", "0.290000"])
def test_shares_are_read_as_exact_decimals(text: str) -> None:
    assert parse_share(text, "--h") == Fraction(29, 100)


@pytest.mark.parametrize(
    "text", ["", "a fifth", "1/5", "nan", "inf", "-inf", "1_0", "0,2", "1e400", "1e-999999999", "0e999999999"]
)
def test_what_is_no_decimal_is_refused_at_once(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"--tolerance '{text}' is not a number")) as caught:
        parse_tolerance(text)
    assert caught.value.hint is not None


@pytest.mark.parametrize("text", ["0", "1", "-0.2", "1.5", "2e1"])
def test_a_holdout_outside_the_open_unit_interval_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"strictly between 0 and 1, got {re.escape(text)}"):
        parse_holdout(text)


def test_a_negative_tolerance_is_refused_and_zero_is_not() -> None:
    with pytest.raises(UsageError, match=re.escape("--tolerance must not be negative, got -0.1")):
        parse_tolerance("-0.1")
    assert parse_tolerance("0") == 0
    assert parse_tolerance("2.5") == Fraction(5, 2)


@given(cell_sizes, fractions_of_one)
def test_balanced_quotas_add_up_and_stay_within_one_of_the_share(sizes: list[int], h: Fraction) -> None:
    quotas = balanced_quotas(sizes, h)
    assert sum(quotas) == round_half_up(h * sum(sizes))
    for quota, size in zip(quotas, sizes, strict=True):
        assert math.floor(h * size) <= quota <= min(size, math.ceil(h * size))


def test_balanced_quotas_give_the_extra_rows_to_the_largest_remainders_then_to_earlier_cells() -> None:
    assert balanced_quotas([3, 7, 10], Fraction("0.25")) == [1, 2, 2]  # 0.75, 1.75, 2.5: total 5
    assert balanced_quotas([6, 2, 2], Fraction("0.4")) == [2, 1, 1]  # 2.4, 0.8, 0.8: total 4
    assert balanced_quotas([1, 1, 1, 1], Fraction("0.5")) == [1, 1, 0, 0]


@given(
    cell_sizes,
    fractions_of_one,
    st.fractions(0, 3, max_denominator=20),
    st.sampled_from(["nearest", "balanced"]),
)
def test_bounds_enclose_the_target_and_leave_both_sides_a_row(
    sizes: list[int], h: Fraction, tolerance: Fraction, rounding: str
) -> None:
    cells = cells_of(sizes)
    try:
        limits = split_quotas(cells, h, tolerance, rounding).validation
    except InfeasibleError:
        upper = [min(size, round_half_up(h * (1 + tolerance) * size)) for size in sizes]
        lower = [round_half_up(max(h * (1 - tolerance), Fraction(0)) * size) for size in sizes]
        assert sum(upper) == 0 or sum(lower) == sum(sizes) or rounding == "balanced"
        return
    assert (limits.lower >= 0).all() and (limits.upper <= cells.sizes).all()
    assert (limits.lower <= limits.target).all() and (limits.target <= limits.upper).all()
    assert limits.upper.sum() > 0 and limits.lower.sum() < limits.n
    if tolerance == 0:
        assert limits.is_exact
        assert limits.target.tolist() == (
            nearest_quotas(sizes, h) if rounding == "nearest" else balanced_quotas(sizes, h)
        )
    else:
        assert rounding == "balanced" or limits.lower.tolist() == [
            round_half_up(max(h * (1 - tolerance), Fraction(0)) * size) for size in sizes
        ]


def test_the_tolerance_is_relative_to_the_holdout() -> None:
    limits = split_quotas(cells_of([100, 10, 3]), Fraction("0.2"), Fraction("0.25")).validation
    assert limits.lower.tolist() == [15, 2, 0]  # 0.15 of 100, 10 and 3
    assert limits.upper.tolist() == [25, 3, 1]  # 0.25
    assert limits.target.tolist() == [20, 2, 1]


def test_a_tolerance_beyond_every_row_is_clipped_to_the_cell() -> None:
    limits = split_quotas(cells_of([5, 2]), Fraction("0.4"), Fraction(4)).validation
    assert limits.lower.tolist() == [0, 0]
    assert limits.upper.tolist() == [5, 2]


@given(
    cell_sizes.filter(lambda sizes: sum(sizes) > 1),
    st.one_of(
        st.fractions(Fraction(1, 10000), Fraction(1, 10), max_denominator=10000),
        st.fractions(Fraction(9, 10), Fraction(9999, 10000), max_denominator=10000),
        fractions_of_one,
    ),
    st.sampled_from(["nearest", "balanced"]),
)
def test_every_cure_of_an_infeasible_holdout_cures(sizes: list[int], h: Fraction, rounding: str) -> None:
    cells = cells_of(sizes)
    try:
        split_quotas(cells, h, Fraction(0), rounding)
    except InfeasibleError as error:
        assert error.exit_code == 3
        assert error.hint is not None and error.hint.startswith("use ")
        for cure in error.hint.removeprefix("use ").split(", or "):
            share = re.search(r"--h (\S+)", cure)
            split_quotas(
                cells,
                parse_holdout(share[1]) if share else h,
                Fraction(0),
                "balanced" if "--rounding balanced" in cure else rounding,
            )


def test_cells_of_one_row_are_only_offered_balanced_rounding() -> None:
    with pytest.raises(
        InfeasibleError, match=r"no validation rows: h=0\.2 of every cell rounds to 0"
    ) as caught:
        split_quotas(cells_of([1] * 10), Fraction("0.2"))
    assert caught.value.hint == "use --rounding balanced"
    with pytest.raises(
        InfeasibleError, match=r"no training rows.*\(10 cells, the largest of 1 row\)"
    ) as caught:
        split_quotas(cells_of([1] * 10), Fraction("0.5"))
    assert caught.value.hint == "use --rounding balanced"


def test_a_holdout_too_small_for_all_rows_names_one_that_is_not() -> None:
    with pytest.raises(InfeasibleError) as caught:
        split_quotas(cells_of([10]), Fraction("0.01"))
    assert caught.value.hint == "use --h 0.05 or more"
    with pytest.raises(InfeasibleError) as caught:
        split_quotas(cells_of([10]), Fraction("0.99"), rounding="balanced")
    assert caught.value.hint == "use --h 0.9499 or less"


def test_cells_cross_the_columns_and_skip_combinations_that_never_occur() -> None:
    label = np.array([0, 1, 1, 0, 2], dtype=np.int32)
    domain = np.array([0, 0, 1, 0, 1], dtype=np.int32)
    cells = joint_cells({"label": (label, ("a", "b", "c")), "domain": (domain, ("x", "y"))}, 5)
    assert cells.names == (
        {"label": "a", "domain": "x"},
        {"label": "b", "domain": "x"},
        {"label": "b", "domain": "y"},
        {"label": "c", "domain": "y"},
    )
    assert cells.codes.tolist() == [0, 1, 2, 0, 3]
    assert cells.sizes.tolist() == [2, 1, 1, 1]
    assert cells.describe(2) == "label=b, domain=y"


def test_no_columns_make_one_cell_of_all_rows() -> None:
    cells = joint_cells({}, 4)
    assert cells.sizes.tolist() == [4]
    assert cells.describe(0) == "all rows"


def test_many_columns_of_many_values_do_not_overflow() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2**31 - 1, size=(6, 50)).astype(np.int32)
    columns = {str(k): (codes[k], range(2**31)) for k in range(6)}
    assert len(joint_cells(columns, 50).sizes) == 50


def test_rows_are_listed_cell_by_cell_in_ascending_order() -> None:
    codes = np.array([1, 0, 1, 0, 2])
    limits = split_quotas(joint_cells({"label": (codes, "abc")}, 5), Fraction(1, 2)).validation
    assert limits.cells.order.tolist() == [1, 3, 0, 2, 4]
    assert limits.cells.offsets.tolist() == [0, 2, 4, 5]
    assert limits.counts(np.array([True, False, True, True, False])).tolist() == [1, 2, 0]
