from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from clustersplit_cli.core.mmd.power import LEAST_VARIANCE, most_powerful, pair_power, width_powers
from clustersplit_cli.errors import UsageError


def test_the_power_of_a_pair_is_that_of_its_formula() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(8, 2)), rng.normal(size=(8, 2)) + 0.5])
    K = np.exp(-0.3 * ((rows[:, None] - rows[None]) ** 2).sum(axis=2))
    n = 8
    h = [[K[i, j] + K[n + i, n + j] - K[i, n + j] - K[j, n + i] for j in range(n)] for i in range(n)]
    squared = math.fsum(h[i][j] for i, j in permutations(range(n), 2)) / (n * (n - 1))
    means = [math.fsum(row) / n for row in h]
    variance = 4 * (math.fsum(mean**2 for mean in means) / n - (math.fsum(means) / n) ** 2)
    found = pair_power(K, np.arange(n), n + np.arange(n))
    assert found == pytest.approx(squared / math.sqrt(variance + LEAST_VARIANCE))


@pytest.mark.parametrize("scale", [0.05, 20.0])
def test_the_width_chosen_fits_the_scale_on_which_groups_differ(scale: float) -> None:
    """Both groups have the same mean and spread; they differ by a pattern of the given size alone."""
    rng = np.random.default_rng(1)
    even = rng.integers(0, 8, 200) * 2.0
    odd = rng.integers(0, 8, 200) * 2.0 + 1.0
    rows = (np.concatenate([even, odd]) * scale)[:, None] + rng.normal(size=(400, 1)) * 0.05 * scale
    best = most_powerful(width_powers(rows, np.repeat([0, 1], 200)))
    reach = 1 / best.gamma if best.kernel == "laplacian" else best.gamma**-0.5
    assert 0.1 * scale < reach < 3 * scale  # neighbours are `scale` apart, all rows span 15 of them


def test_groups_of_few_rows_are_refused_by_their_number() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(UsageError, match="1 of them has 10 rows or more"):
        width_powers(rows, np.array([0] * 25 + [1] * 5))
    with pytest.raises(UsageError, match="identical"):
        width_powers(np.zeros((40, 2)), np.repeat([0, 1], 20))
