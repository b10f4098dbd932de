"""Target rows: whether they differ from the rows that are split, and what was found of a split and them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Features, Floats
from clustersplit_cli.core.geometry.kernels import Kernel, Prepared
from clustersplit_cli.core.geometry.nystrom import Centres, centre_tiles
from clustersplit_cli.core.matching import Matching
from clustersplit_cli.core.mmd.evaluation import mean_kernel
from clustersplit_cli.core.mmd.permutation import permuted_exactly, regroupings
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.data.dataset import TargetRows
from clustersplit_cli.errors import InputError
from clustersplit_cli.options import WORST
from clustersplit_cli.reports.summary import NO_SHIFT, AimCertificate

TESTED_ROWS = 2000
"""Rows of each side that the permutation test compares: a seeded sample of more."""
PERMUTATIONS = 199
GAP = 1e-6
"""Relative difference at which a mean witness is the largest there is, but for rounding."""
NOWHERE_NEAR = 1e-12
"""Mean kernel value with the target, of values up to 1, below which a row is not near it."""
_TEST_KEY = 0x746172676574


@dataclass(frozen=True)
class ShiftTest:
    """The permutation test of whether the rows and the target are of one distribution.

    `mmd` is that of the rows which it compares.
    """

    p_value: float
    permutations: int
    n_rows: int
    n_target: int
    mmd: float

    @property
    def sees_shift(self) -> bool:
        """Whether the difference is more than chance would explain."""
        return self.p_value <= NO_SHIFT


@dataclass(frozen=True)
class TargetDistances:
    """MMD² of all rows, of training and of validation rows to the target."""

    whole: float
    train: float
    val: float

    def roots(self) -> tuple[float, float, float]:
        """MMDs; rounding can make a square a hair negative."""
        whole, train, val = (float(max(each, 0.0) ** 0.5) for each in (self.whole, self.train, self.val))
        return whole, train, val


@dataclass(frozen=True)
class TargetResult:
    """What was found of a split and the target.

    Attributes
    ----------
    best : MMD and Psi of the hardest split that was found, where one was searched for.
    """

    rows: TargetRows
    aim: str
    test: ShiftTest
    distances: TargetDistances
    certificate: AimCertificate | None
    matching: Matching | None
    best: tuple[float, float] | None = None


def sampled_rows(n: int, seed: int) -> NDArray[np.int64]:
    """The rows that the test compares, ascending."""
    rng = np.random.default_rng([seed, _TEST_KEY])
    return np.sort(rng.choice(n, min(n, TESTED_ROWS), replace=False)).astype(np.int64)


def look_for_shift(
    sample: Floats, target: TargetRows, prepared: Prepared, seed: int, workers: Workers
) -> ShiftTest:
    """Compare rows with the target: how often is a random regrouping of both as far apart?

    Parameters
    ----------
    sample : the raw rows that `sampled_rows` names.

    Raises
    ------
    InputError
        If none of them is near the target.
    """
    rows = target.features[sampled_rows(len(target.features), seed)]
    features = Features(np.concatenate([sample, rows]), prepared.features.steps, np.float64)
    if prepared.kernel.is_nonnegative:
        left, right = (Features(raw, features.steps, np.float64) for raw in (sample, rows))
        near = mean_kernel(left, right, prepared.kernel, workers)
        _refuse_far(prepared.kernel, float(near.max()), target.name)
    groups = np.arange(len(sample)), len(sample) + np.arange(len(rows))
    rng = np.random.default_rng([seed, _TEST_KEY, 1])
    draws = regroupings(len(sample), len(rows), PERMUTATIONS, rng)
    permuted = permuted_exactly(features, prepared.kernel, groups, draws, "biased", workers)
    mmd = float(max(permuted.squared[0], 0.0) ** 0.5)
    return ShiftTest(permuted.p_value, PERMUTATIONS, len(sample), len(rows), mmd)


def target_factors(
    rows: Features, kernel: Kernel, centres: Floats | None, stored: np.dtype[Any], workers: Workers
) -> NDArray[np.float64]:
    """The mean of the factors F of the target, (p,), the same on every engine.

    Parameters
    ----------
    rows : prepared.
    centres : prepared landmark rows; None for linear kernels.
    stored : the precision in which factors are kept.
    """
    n = rows.shape[0]
    if centres is None:
        blocks = workers.map(lambda tile: rows.block(*tile, np.float64).sum(axis=0), rows.row_tiles())
        return np.asarray(sum(blocks, np.zeros(rows.shape[1])) / n)
    compared = Centres.of(kernel, centres)

    def one(tile: tuple[int, int]) -> NDArray[np.float64]:
        kept: Floats = np.empty((tile[1] - tile[0], len(centres)), stored)
        return compared.compare(rows, *tile, kept)

    return np.asarray(sum(workers.map(one, centre_tiles(n)), np.zeros(len(centres))) / n)


def _refuse_far(kernel: Kernel, largest: float, name: str) -> None:
    """Refuse a target that no row is near to: every aim would choose by rounding.

    Parameters
    ----------
    largest : the largest mean kernel value of a row with the target.

    Raises
    ------
    InputError
    """
    if largest < NOWHERE_NEAR:
        raise InputError(
            f"no row is near the target {name}: the largest mean kernel value of a row with it is "
            f"{largest:.2g}, with gamma={kernel.gamma:.3g}",
            hint="check that both have the same features in the same units, or use a smaller --gamma",
        )


def certify_sum(value: float, bound: float, backend: str) -> AimCertificate:
    """Compare a mean witness with the largest that any split with these quotas has."""
    status = "optimal" if bound - value <= GAP * abs(bound) else "not optimal"
    return AimCertificate("linear_program", backend, status, value, bound)


def about_target(found: TargetResult | None) -> Iterator[tuple[str, str]]:
    """Warn where the aim has nothing to go by."""
    if found is not None and found.aim != WORST and not found.test.sees_shift:
        yield (
            "no_shift",
            f"no shift can be seen between the rows and the target (p = {found.test.p_value:.2g}): --aim "
            f"{found.aim} follows chance; a random split, as `clustersplit baseline random` makes, would do",
        )
