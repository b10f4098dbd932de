"""When sums are exact, when landmarks stand in for them, and what does not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersplit_cli.engines.plan import LONGEST, MeasuringTask, plan_measuring
from clustersplit_cli.errors import MemoryPlanError

SMALL = MeasuringTask(n=5000, d=256, itemsize=4, groups=2, sums=(5000,), tests=(), permutations=0, threads=2)
LARGE = replace(SMALL, n=400_000, sums=(400_000,))
PLENTY = 10**12


def test_short_sums_are_exact_and_long_ones_use_landmarks_unless_told_otherwise() -> None:
    short = plan_measuring(SMALL, is_linear=False, nystrom="auto", budget=PLENTY)
    assert (short.geometry, short.landmarks) == ("exact", None)
    assert short.exact_seconds < LONGEST
    long = plan_measuring(LARGE, is_linear=False, nystrom="auto", budget=PLENTY)
    assert (long.geometry, long.landmarks) == ("nystrom", 2000)
    assert long.exact_seconds > LONGEST
    assert "--exact" in long.reason
    assert plan_measuring(LARGE, is_linear=False, nystrom="off", budget=PLENTY).geometry == "exact"
    assert plan_measuring(SMALL, is_linear=False, nystrom=300, budget=PLENTY).landmarks == 300
    assert plan_measuring(SMALL, is_linear=False, nystrom=9000, budget=PLENTY).landmarks == 5000
    assert plan_measuring(LARGE, is_linear=True, nystrom="auto", budget=PLENTY).geometry == "linear"


def test_the_decision_depends_on_sizes_alone() -> None:
    for threads in (1, 64):
        task = replace(LARGE, threads=threads)
        assert task.exact_seconds == LARGE.exact_seconds


def test_cells_and_permutations_count() -> None:
    halves = replace(SMALL, sums=(2500, 2500))
    assert halves.exact_seconds == pytest.approx(SMALL.exact_seconds / 2)
    tested = replace(SMALL, tests=(5000,), permutations=1000)
    assert tested.exact_seconds > 3 * SMALL.exact_seconds
    assert tested.bytes > SMALL.bytes + 5000 * 1000
    assert replace(SMALL, itemsize=8).exact_seconds == 2 * SMALL.exact_seconds


def test_a_comparison_that_does_not_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(MemoryPlanError, match=r"more than the budget of 0\.001 GB") as caught:
        plan_measuring(SMALL, is_linear=False, nystrom="auto", budget=10**6)
    allowed = float((caught.value.hint or "").split("--memory ")[1].split("GB")[0])
    plan_measuring(SMALL, is_linear=False, nystrom="auto", budget=int(allowed * 10**9))
