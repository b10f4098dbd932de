"""What a report states is compared to the last digits that rounding leaves, and no farther."""

from __future__ import annotations

import pytest

from clustersplit_cli.reports.verification import FAILED, OK
from clustersplit_cli.verification.stated import check_stated


def verdict(squared: float, off: float) -> str:
    """Whether an MMD² that is off by a share of itself passes; a row's scatter is 0.9."""
    recomputed = {
        "mmd": {"value": squared**0.5, "squared": squared, "kernel": "rbf", "error": None},
        "objective": {"psi": 880.0, "ssq_total": 900.0},
        "sizes": {"train": 800, "val": 200},
    }
    other = squared * (1 + off)
    stated = recomputed | {"mmd": {"value": other**0.5, "squared": other, "kernel": "rbf", "error": None}}
    return next(check.status for check in check_stated(stated, recomputed) if check.name == "MMD")


@pytest.mark.parametrize(
    ("squared", "off", "expected"),
    [
        (0.2, 1e-9, OK),
        (0.2, 1e-7, FAILED),
        (1e-3, 1e-7, OK),  # what two engines differ by where the sides hardly differ
        (1e-3, 1e-5, FAILED),
        (1e-12, 1.0, OK),  # rounding and nothing else
        (1e-6, 0.1, FAILED),
    ],
)
def test_an_mmd_may_be_off_by_rounding_of_the_averages_it_is_a_difference_of(
    squared: float, off: float, expected: str
) -> None:
    assert verdict(squared, off) == expected


def test_without_an_objective_only_digits_count() -> None:
    recomputed = {"mmd": {"value": 0.03, "squared": 0.0009}}
    stated = {"mmd": {"value": 0.03 * (1 + 1e-7), "squared": 0.0009}}
    assert [check.status for check in check_stated(stated, recomputed)] == [FAILED]


@pytest.mark.parametrize(("most", "off", "expected"), [(1e-7, 1e-4, OK), (0.5, 1e-4, FAILED)])
def test_a_bound_may_be_off_by_rounding_where_it_is_nothing_else(
    most: float, off: float, expected: str
) -> None:
    bound = {"mmd_upper": most, "fraction": 0.5, "kernel": "exact", "proven_optimal": False}
    recomputed = {
        "mmd": {"value": 1e-8, "squared": 1e-16, "kernel": "rbf", "error": None},
        "objective": {"psi": 880.0, "ssq_total": 900.0},
        "sizes": {"train": 800, "val": 200},
        "bound": bound,
    }
    stated = recomputed | {"bound": bound | {"mmd_upper": most * (1 + off)}}
    found = next(check.status for check in check_stated(stated, recomputed) if check.name == "bound")
    assert found == expected


@pytest.mark.parametrize(("size", "off", "expected"), [(9, 1e-7, OK), (9, 1e-4, FAILED), (900, 1e-7, FAILED)])
def test_numbers_of_parts_may_be_off_by_rounding_where_parts_are_small(
    size: int, off: float, expected: str
) -> None:
    def parts(mmd: float) -> dict[str, object]:
        each = [{"name": name, "share": 0.5, "size": size, "mmd_rest": mmd} for name in "ab"]
        return {"parts": each, "mmd": [[0.0, mmd], [mmd, 0.0]]}

    recomputed = {
        "mmd": {"value": 0.5, "squared": 0.25, "kernel": "rbf", "error": None},
        "objective": {"psi": 0.8 * 2 * size, "ssq_total": 0.9 * 2 * size},
        "sizes": {"train": None, "val": None},
        "parts": parts(0.5),
    }
    stated = recomputed | {"parts": parts(0.5 * (1 + off))}
    found = next(check.status for check in check_stated(stated, recomputed) if check.name == "parts")
    assert found == expected


@pytest.mark.parametrize(
    ("fraction", "said", "expected"),
    [(1.0, True, OK), (1.0, False, FAILED), (0.9, True, FAILED), (1 - 6e-6, False, OK)],
)
def test_a_proof_must_follow_from_the_share_that_is_stated(
    fraction: float, said: bool, expected: str
) -> None:
    bound = {"mmd_upper": 0.5, "fraction": fraction, "kernel": "exact", "proven_optimal": said}
    recomputed = {
        "mmd": {"value": 0.5 * fraction, "squared": (0.5 * fraction) ** 2, "kernel": "rbf", "error": None},
        "objective": {"psi": 880.0, "ssq_total": 900.0},
        "sizes": {"train": 800, "val": 200},
        "bound": bound | {"proven_optimal": not said},  # as rounding may have it
    }
    found = next(
        check for check in check_stated(recomputed | {"bound": bound}, recomputed) if check.name == "bound"
    )
    assert found.status == expected
