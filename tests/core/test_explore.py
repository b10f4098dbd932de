from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersplit_cli.core.constraints import bounded, joint_cells
from clustersplit_cli.core.explore import MANY_STEPS, agree, are_slow
from clustersplit_cli.core.factoring import image_geometry
from clustersplit_cli.core.problem import Problem
from clustersplit_cli.core.scout import _promising
from clustersplit_cli.core.trail import Trail
from clustersplit_cli.core.workers import Workers


@pytest.fixture
def field(workers: Workers) -> Problem:
    """A problem whose total scatter is 1."""
    X = np.array([[1.0], [-1.0], [1.0], [-1.0]]) / 2
    quota = np.array([2])
    return Problem(image_geometry(X, workers), bounded(joint_cells({}, 4), quota, quota, quota))


def ends(*explained: float) -> list[Trail]:
    """Trails that explain the given shares of the scatter."""
    nowhere = np.zeros(4, dtype=bool)
    return [Trail(0, nowhere, 1.0 - share, np.zeros(4), (), True) for share in explained]


def test_starts_agree_when_three_of_them_explain_the_most(field: Problem) -> None:
    assert field.ssq_total == pytest.approx(1.0)
    assert agree(field, ends(0.5, 0.49999, 0.1, 0.49999))
    assert not agree(field, ends(0.5, 0.49999, 0.1, 0.499))


def test_starts_are_slow_by_their_average(field: Problem) -> None:
    def after(*steps: int) -> list[Trail]:
        return [replace(trail, trace=(0.0,) * (n + 1)) for n, trail in zip(steps, ends(*steps), strict=True)]

    assert are_slow(after(0, 2 * MANY_STEPS))
    assert not are_slow(after(0, 2 * MANY_STEPS - 1))


def test_only_splits_near_the_best_of_the_image_are_settled(field: Problem) -> None:
    found = ends(0.4, 0.5, 0.47, 0.48)
    assert _promising(field, found) == [found[1], found[3]]
