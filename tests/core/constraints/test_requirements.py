"""Families, forced rows and units: quotas that can be met at once, the smallest tolerance, and why not."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Cells, bounds, joint_cells, round_half_up
from clustersplit_cli.core.constraints.families import composition
from clustersplit_cli.core.constraints.requirements import Requirements, make_requirements
from clustersplit_cli.core.constraints.tolerance import GRID, parse_tolerances
from clustersplit_cli.core.search.groups import first_choice
from clustersplit_cli.errors import InfeasibleError

FIFTH = Fraction(1, 5)


def cells_of(word: str, codes: Any) -> Cells:
    values, found = np.unique(np.asarray(codes), return_inverse=True)
    return joint_cells({word: (found, [f"{value}" for value in values])}, len(found))


def require(*families: Cells, tolerance: str = "0", holdout: Fraction = FIFTH, **more: Any) -> Requirements:
    return make_requirements(families, holdout, parse_tolerances([tolerance]), **more)


def all_splits(n: int) -> NDArray[np.bool_]:
    return np.array(list(product([False, True], repeat=n)))[1:-1]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 60), share=st.integers(10, 90))
def test_quotas_of_two_families_are_neighbours_of_their_shares_and_add_up(
    seed: int, n: int, share: int
) -> None:
    rng = np.random.default_rng(seed)
    holdout = Fraction(share, 100)
    if not 0 < round_half_up(holdout * n) < n:
        return
    # Sparse tables, where a label is in one domain only, are where rounding each by itself fails.
    label = rng.integers(0, 6, n)
    domain = np.where(label < 3, label, rng.integers(0, 4, n))
    asked = require(cells_of("label", label), cells_of("domain", domain), holdout=holdout)
    for family in asked.families:
        assert family.validation.target.sum() == round_half_up(holdout * n)
        exact = [holdout * int(size) for size in family.cells.sizes]
        assert all(
            abs(quota - value) < 1
            for quota, value in zip(family.validation.target.tolist(), exact, strict=True)
        )
    assert (asked.families[0].validation.counts(_chosen(asked)) == asked.families[0].validation.target).all()
    assert (asked.families[1].validation.counts(_chosen(asked)) == asked.families[1].validation.target).all()


def _chosen(asked: Requirements) -> NDArray[np.bool_]:
    """The first rows of every working cell, as many as its target."""
    chosen = np.zeros(asked.n, dtype=bool)
    for rows, target in zip(
        np.split(asked.working.cells.order, asked.working.cells.offsets[1:-1]),
        asked.working.target,
        strict=True,
    ):
        chosen[rows[:target]] = True
    return chosen


def test_one_family_is_rounded_as_ever() -> None:
    asked = require(cells_of("label", [0] * 12 + [1] * 8))
    assert asked.rounding == "nearest"
    assert asked.families[0].validation.target.tolist() == [2, 2]
    assert asked.working.cells is not None
    np.testing.assert_array_equal(asked.working.cells.codes, asked.families[0].cells.codes)
    assert asked.separates
    assert asked.is_unimodular


def test_two_families_are_unimodular_and_three_are_not() -> None:
    label, domain, third = (cells_of(word, np.arange(40) % k) for word, k in (("a", 2), ("b", 4), ("c", 5)))
    assert require(label, domain).is_unimodular
    assert not require(label, domain, third).is_unimodular


def test_forced_rows_are_in_cells_of_their_own_and_count_for_their_quota() -> None:
    pinned = np.full(20, -1, np.int8)
    pinned[[0, 1]], pinned[[2, 10]] = 1, 0
    asked = require(cells_of("label", [0] * 10 + [1] * 10), pinned=pinned, holdout=Fraction(3, 10))
    chosen = _chosen(asked)
    assert chosen[[0, 1]].all()
    assert not chosen[[2, 10]].any()
    assert asked.families[0].validation.counts(chosen).tolist() == [3, 3]
    assert asked.is_met_by(chosen)


def test_too_many_forced_rows_name_the_cell_and_the_tolerance_that_would_do() -> None:
    pinned = np.full(20, -1, np.int8)
    pinned[:4] = 1
    family = cells_of("label", ["dog"] * 10 + ["cat"] * 10)
    with pytest.raises(InfeasibleError, match=r"label=dog allows 2 .* 4 of its rows are forced") as error:
        require(family, pinned=pinned)
    assert error.value.exit_code == 3
    assert "--tolerance 'label=dog=0.75' (4 validation rows)" in str(error.value.hint)
    asked = make_requirements([family], FIFTH, parse_tolerances(["label=dog=0.75"]), pinned=pinned)
    assert asked.families[0].validation.upper.tolist() == [2, 4]


def test_a_conflict_between_families_is_named_in_words() -> None:
    label = ["dog"] * 20 + ["cat"] * 20
    domain = ["dslr"] * 20 + ["web"] * 20
    pinned = np.full(40, -1, np.int8)
    pinned[20:35] = 0  # of the web photos only 5 are free
    half = Fraction(1, 2)
    with pytest.raises(InfeasibleError, match="needs at least 10 validation rows but only 5"):
        require(cells_of("label", label), cells_of("domain", domain), pinned=pinned, holdout=half)
    mixed = ["dog"] * 20 + ["cat"] * 18 + ["dog"] * 2
    with pytest.raises(InfeasibleError) as error:
        make_requirements(
            [cells_of("label", mixed), cells_of("domain", domain)],
            half,
            parse_tolerances(["label=cat=1"]),
            "nearest",
            np.where(np.arange(40) < 20, -1, 0).astype(np.int8),
        )
    assert "domain=web needs at least 10 validation rows" in error.value.message


def test_totals_that_differ_are_told_with_balanced_rounding_as_the_cure() -> None:
    label, domain = cells_of("label", np.arange(15) % 5), cells_of("domain", np.arange(15) // 8)
    with pytest.raises(
        InfeasibleError, match=r"quotas of label add up to 5 .* those of domain to 3"
    ) as error:
        require(label, domain, rounding="nearest", holdout=Fraction(1, 4) - Fraction(1, 25))
    assert str(error.value.hint).startswith("use --rounding balanced")


def test_a_lower_and_an_upper_bound_of_different_families_are_told_apart() -> None:
    """The words of the error are those of the conflict, and nothing else is named."""
    label = np.repeat(["dog", "cat", "cow"], 20)
    domain = np.where(label == "dog", "dslr", "web")
    with pytest.raises(InfeasibleError) as error:
        make_requirements(
            [cells_of("label", label), cells_of("domain", domain)],
            Fraction(1, 2),
            parse_tolerances(["0", "domain=dslr=0.5"]),
            "nearest",
            np.where((label == "dog") & (np.arange(60) > 7), 0, -1).astype(np.int8),
        )
    assert (
        error.value.message
        == "label=dog needs at least 10 validation rows but only 8 of its rows are not forced into training"
    )


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(3, 10))
def test_the_smallest_tolerance_for_units_is_that_of_enumeration(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    units = np.unique(rng.integers(0, max(2, n // 2), n), return_inverse=True)[1].reshape(-1)
    label = rng.integers(0, 2, n)
    family = cells_of("label", label)
    holdout = Fraction(int(rng.integers(2, 9)), 10)
    if units.max() == 0 or not 0 < round_half_up(holdout * n) < n:
        return
    try:
        found = require(family, tolerance="auto", units=units, holdout=holdout)
    except InfeasibleError as error:
        assert "no validation rows" in error.message or "no training rows" in error.message
        return
    sizes = [int(size) for size in family.sizes]

    def feasible(tolerance: Fraction) -> bool:
        reach = [bounds(size, holdout, tolerance) for size in sizes]
        for choice in product([False, True], repeat=int(units.max()) + 1):
            if not any(choice) or all(choice):
                continue  # a side without rows
            counts = np.bincount(family.codes[np.array(choice)[units]], minlength=len(sizes))
            if all(low <= count <= high for count, (low, high) in zip(counts, reach, strict=True)):
                return True
        return False

    assert feasible(found.tolerance)
    assert found.tolerance == 0 or not feasible(found.tolerance - Fraction(1, GRID))
    assert found.tolerance_proven


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6), n_units=st.integers(3, 9), n_cells=st.integers(1, 3), families=st.booleans()
)
def test_within_the_smallest_tolerance_the_total_is_the_nearest_to_what_was_asked_for(
    seed: int, n_units: int, n_cells: int, families: bool
) -> None:
    rng = np.random.default_rng(seed)
    units = np.repeat(np.arange(n_units), rng.integers(1, 20, n_units))
    n = len(units)
    holdout = Fraction(int(rng.integers(15, 70)), 100)
    asked = [cells_of("label", rng.integers(0, n_cells, n))]
    if families:
        asked.append(cells_of("domain", rng.integers(0, 2, n)))
    pinned = np.full(n, -1, np.int8)
    pinned[units == 0] = rng.integers(-1, 2)
    try:
        found = require(*asked, tolerance="auto", units=units, holdout=holdout, pinned=pinned)
    except InfeasibleError as error:
        assert "no validation rows" in error.message or "no training rows" in error.message
        return
    allowed = [
        split
        for choice in all_splits(n_units)
        for split in [choice[units]]
        if all(family.within(split).all() for family in found.families)
        and ((pinned < 0) | (pinned == split)).all()
    ]
    off = [abs(int(split.sum()) - holdout * n) for split in allowed]
    nearest = [split for split, far in zip(allowed, off, strict=True) if far == min(off)]
    assert found.is_met_by(first_choice(found)[units])
    # What solvers are told allows the nearest splits, and no others.
    assert sum(found.is_met_by(split) for split in allowed) == len(nearest)
    for split in nearest:
        chosen = split[np.unique(units, return_index=True)[1]]
        assert found.is_met_by(split) and found.program.is_met_by(chosen)
    for split in allowed:
        chosen = split[np.unique(units, return_index=True)[1]]
        assert found.program.is_met_by(chosen) == found.is_met_by(split)


def test_no_rows_at_all_are_never_as_near_as_the_nearest_total() -> None:
    units = np.repeat([0, 1], [3, 4])  # 1.4 rows are asked for: none is nearer to that than three are
    asked = require(cells_of("label", [0] * 7), units=units, tolerance="auto", holdout=FIFTH)
    assert asked.total == (1, 3)
    assert first_choice(asked)[units].sum() == 3
    assert not asked.is_met_by(np.zeros(7, bool))
    most = require(cells_of("label", [0] * 7), units=units, tolerance="auto", holdout=Fraction(4, 5))
    assert most.total == (4, 6)


def test_a_tolerance_that_is_given_leaves_the_total_free() -> None:
    units = np.repeat(np.arange(4), 5)
    asked = require(cells_of("label", [0] * 20), units=units, tolerance="2")
    assert asked.total is None
    assert asked.is_met_by(np.arange(20) < 5) and asked.is_met_by(np.arange(20) < 10)


def test_units_that_cannot_hit_their_quota_are_told_with_the_smallest_tolerance() -> None:
    units = np.repeat(np.arange(4), 5)
    with pytest.raises(InfeasibleError, match="no choice of whole units") as error:
        require(cells_of("label", [0] * 20), units=units)
    hint = str(error.value.hint)
    assert "--tolerance 0.125 (the smallest that can be met)" in hint
    asked = require(cells_of("label", [0] * 20), units=units, tolerance="0.125")
    assert asked.families[0].validation.upper.tolist() == [5]


def test_a_program_that_highs_fails_to_simplify_is_solved_as_it_is() -> None:
    """Found at random: with its presolve HiGHS ends in an error, where the answer is that none will do."""
    cells = cells_of("label", [0, 0, 0, 1, 0, 0, 2, 2])
    units = np.array([0, 1, 2, 2, 3, 3, 3, 3])
    with pytest.raises(InfeasibleError, match="label=2"):
        require(cells, holdout=Fraction(2, 5), units=units)


def test_a_unit_forced_to_both_sides_is_refused() -> None:
    pinned = np.array([0, 1, -1, -1], np.int8)
    with pytest.raises(InfeasibleError, match="row 0 to training and row 1 to validation"):
        require(cells_of("label", [0] * 4), units=np.array([0, 0, 1, 2]), pinned=pinned)


def test_what_a_unit_has_in_each_cell_is_counted() -> None:
    matrix = composition([cells_of("label", [0, 0, 1, 1])], np.array([0, 1, 1, 1]))
    assert matrix.toarray().tolist() == [[1, 1], [0, 2]]


def test_a_split_is_met_only_if_everything_is() -> None:
    family = cells_of("label", [0, 0, 0, 0, 1, 1, 1, 1])
    asked = require(family, units=np.array([0, 0, 1, 1, 2, 2, 3, 3]), holdout=Fraction(1, 2))
    good = [members for members in all_splits(8) if asked.is_met_by(members)]
    assert len(good) == 4
    assert all(members.reshape(4, 2).all(axis=1).sum() == 2 for members in good)
