"""Means, spreads and the threshold of validity, worked by hand."""

from __future__ import annotations

import pytest

from clustersplit_cli.reports.strategy_comparison import ClassCount, invalid_from, spread


def row(classes: int, valid: bool | None) -> ClassCount:
    return ClassCount(classes, 1, 0.5, 0.1, 0.1, valid, 1.0)


@pytest.mark.parametrize(
    ("validities", "threshold"),
    [
        ([True, True, False, False], 5),
        ([True, False, True, False], 10),
        ([True, True, True, True], None),
        ([False, False, False, False], 1),
        ([None, None, None, None], None),
    ],
)
def test_the_threshold_is_where_splits_stop_being_valid_for_good(
    validities: list[bool | None], threshold: int | None
) -> None:
    rows = [row(classes, valid) for classes, valid in zip((1, 2, 5, 10), validities, strict=True)]
    assert invalid_from(rows) == threshold


def test_one_value_has_no_spread_and_none_has_no_mean() -> None:
    assert spread([None, None]) is None
    only = spread([2.0])
    assert only is not None
    assert (only.mean, only.sd, only.least, only.most) == (2.0, None, 2.0, 2.0)
