from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersplit_cli.core.constraints.cells import Cells
from clustersplit_cli.core.constraints.quotas import ValidationQuotas, split_quotas
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.problem import evaluate
from clustersplit_cli.core.search.starts import random_splits
from clustersplit_cli.core.severity import (
    WITHIN,
    Grade,
    Scale,
    SplitPath,
    nearest,
    normal,
    refuse_unreachable,
    standardized,
)
from clustersplit_cli.errors import UsageError
from tests.core.builders import problem_of, solve


@dataclass
class Curve:
    """A path whose MMDs are known: `start` at share 0, `start + rise` at share 1, in steps."""

    start: float
    rise: float
    power: float
    steps: int
    points: int = 8
    attempts: int = 20
    asked: list[float] = field(default_factory=list)

    def at(self, shares: Sequence[float]) -> list[tuple[float, float]]:
        self.asked += shares
        whole = [round(share * self.steps) / self.steps for share in shares]
        return [(self.start + self.rise * share**self.power, share) for share in whole]


@given(
    severity=st.floats(0.02, 0.98),
    power=st.floats(0.3, 4.0),
    random=st.floats(0.0, 1.0),
    width=st.floats(0.01, 10.0),
)
def test_the_wanted_mmd_is_found_on_any_rising_curve(
    severity: float, power: float, random: float, width: float
) -> None:
    scale = Scale(random, random + width)
    curve = Curve(random, width, power, 10**6)
    mmd, _ = nearest([curve], scale, severity, (scale.best, None))
    assert abs(mmd - scale.mmd(severity)) <= WITHIN * width
    assert len(curve.asked) <= 8 * 7


def test_severity_0_takes_the_first_random_split_near_the_mean_and_nothing_but_chance() -> None:
    scale = Scale(1.0, 2.0)
    curves = [Curve(start, 1.0, 1.0, 100) for start in (1.5, 0.985, 1.008, 1.0)]
    assert nearest(curves, scale, 0.0, (2.0, None)) == (1.008, 0.0)
    assert [curve.asked for curve in curves] == [[0.0], [0.0], [0.0], []]


def test_coarse_paths_are_walked_until_one_comes_near() -> None:
    scale = Scale(0.0, 1.0)
    coarse, better, fine = (Curve(0.0, 1.0, 1.0, steps) for steps in (2, 7, 1000))
    mmd, _ = nearest([coarse, better, fine], scale, 0.3, (1.0, None))
    assert mmd == pytest.approx(0.3, abs=0.002)
    assert nearest([coarse, better], scale, 0.3, (1.0, None))[0] == pytest.approx(2 / 7)
    # The best split itself is taken where it is nearer than anything on the way.
    assert nearest([coarse], scale, 0.9, (1.0, None)) == (1.0, None)


def test_a_scale_goes_both_ways() -> None:
    scale = Scale(0.2, 0.6)
    assert scale.mmd(0.25) == pytest.approx(0.3)
    assert scale.severity(0.3) == pytest.approx(0.25)
    assert scale.severity(0.8) == pytest.approx(1.5)
    assert Scale(0.2, 0.2).severity(0.2) is None
    assert (scale.clipped(0.1), scale.clipped(0.9), Scale(0.2, 0.2).clipped(0.2)) == (0.0, 1.0, 0.0)


def test_a_grade_is_missed_beyond_one_percent_of_the_range() -> None:
    scale = Scale(0.2, 1.2)
    assert not Grade.of(scale, 0.5, None, 0.709, 1.0).is_missed
    assert Grade.of(scale, 0.5, None, 0.711, 1.0).is_missed
    asked = Grade.of(scale, 1.0, 0.45, 0.45, 1.0)
    assert (asked.asked, asked.severity) == (0.45, pytest.approx(0.25))


def test_an_mmd_out_of_range_is_refused_with_the_range() -> None:
    scale = Scale(0.2, 0.6)
    refuse_unreachable(scale, 0.2)
    refuse_unreachable(scale, 0.603)
    for mmd in (0.1, 0.61):
        with pytest.raises(UsageError, match=r"range from 0\.2, .* to 0\.6,"):
            refuse_unreachable(scale, mmd)


def limits_of(codes: np.ndarray, tolerance: Fraction = Fraction(0)) -> ValidationQuotas:
    sizes = np.bincount(codes)
    names = tuple({"cell": cell} for cell in range(len(sizes)))
    return split_quotas(Cells(codes, names, sizes), Fraction(1, 4), tolerance).validation


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), n_cells=st.integers(1, 4), loose=st.booleans())
def test_splits_on_a_path_keep_their_quotas_and_begin_as_random_ones(
    seed: int, n_cells: int, loose: bool, workers: Workers
) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(12 * n_cells, 90))
    codes = np.arange(n) % n_cells
    limits = limits_of(codes, Fraction(1, 5) if loose else Fraction(0))
    X = rng.normal(size=(n, 3))
    problem = problem_of(X, limits, workers)
    best = solve(problem, workers, effort="fast", restarts=3)
    measured = evaluate(problem, best.members)
    keys = np.random.default_rng(seed).random(n)
    towards = -standardized(measured.witness, limits.cells)
    path = SplitPath(problem, towards, normal(keys), limits.counts(best.members))

    found = path.at([0.0, 0.3, 0.7, 0.999])
    for mmd, members in found:
        counts = limits.counts(members)
        assert ((limits.lower <= counts) & (counts <= limits.upper)).all()
        # The MMD by its definition: the distance of the two means, here with the kernel written out.
        gamma = 1.0 / X.var(axis=0).sum()
        K = np.exp(-gamma * ((X[:, None] - X[None]) ** 2).sum(axis=2))
        z = np.where(members, 1.0 / members.sum(), -1.0 / (~members).sum())
        assert mmd == pytest.approx(np.sqrt(z @ K @ z), rel=1e-4)
    same = random_splits(limits, [np.random.default_rng(seed)])[:, 0]
    assert np.array_equal(found[0][1], same)


def test_standardized_values_have_the_same_spread_in_every_cell() -> None:
    codes = np.repeat([0, 1, 2], [5, 7, 1])
    cells = Cells(codes, ({}, {}, {}), np.bincount(codes))
    values = np.random.default_rng(0).normal(size=13) * np.where(codes == 0, 100.0, 1.0) + codes
    found = standardized(values, cells)
    for cell in (0, 1):
        assert found[codes == cell].mean() == pytest.approx(0.0, abs=1e-12)
        assert found[codes == cell].std() == pytest.approx(1.0)
    assert found[-1] == 0.0


def test_noise_is_in_the_order_of_its_keys_and_finite() -> None:
    keys = np.array([0.5, 0.0, 1.0 - 2.0**-53, 0.25])
    noise = normal(keys)
    assert np.isfinite(noise).all()
    assert np.array_equal(np.argsort(noise), np.argsort(keys))
