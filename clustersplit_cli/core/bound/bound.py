"""An upper bound on the MMD of any split that meets the constraints exactly.

With all cell counts fixed, a split's weights are z = z0 + w, where z0 is constant on cells, w sums to zero
on every cell, and |w| = r is known. So MMD² = z'Kz is c + 2 b'w + w'Aw, with A = PKP, b = PKz0, c = z0'Kz0
(P removes cell means). In the eigenbasis of A that is a sum over directions, of squares a_i² that add up to
r²; for any mu its largest value is at most c + mu r² + the largest of sum (value_i - mu) a_i² + 2 b_i a_i
with each a_i, or a few of them together, as far from zero as splits can reach. The best mu gives the bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.bound.support import ConeCover, SupportFunction
from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.geometry.low_rank import LowRankKernel
from clustersplit_cli.core.geometry.spectrum import Spectrum, factored_spectrum
from clustersplit_cli.core.search.problem import Problem

SPECTRAL, SEMIDEFINITE = "spectral", "semidefinite"
"""What a bound follows from."""
PROVEN = 1e-5
"""A split whose MMD² is this near to the bound is proven optimal: MMD² is stated to no more digits."""
COVERED = 4
"""Leading directions that are covered by cones."""
ROUNDS, FEWER_ROUNDS, MANY_ROWS = 28, 6, 100_000
"""How often that is refined, by looking along up to 16 more directions, and how often with so many rows."""
BELOW = 0.95
ROUNDING = 8.0
"""Steps of the kernel's precision by which a bound that splits reach could be too low."""
SHARES = tuple(2.0**power for power in range(-4, 5))
"""What to try for e, in units of the coupling; any e gives a bound."""
GRID, GRIDS = 16, 5


@dataclass(frozen=True)
class UpperBound:
    """No split that meets the constraints has a larger MMD.

    Attributes
    ----------
    method : what it follows from: eigenvalues, or a semidefinite relaxation.
    """

    mmd: float
    method: str

    def share(self, mmd: float) -> float:
        """How much of it a split reaches."""
        return min(mmd / self.mmd, 1.0) if self.mmd > 0 else 1.0

    def proves(self, mmd: float) -> bool:
        """Whether no split can have a larger MMD than this one."""
        return self.share(mmd) ** 2 >= 1.0 - PROVEN


def mmd_upper_bound(problem: Problem, low_rank: LowRankKernel, *, with_support: bool = True) -> float:
    """Bound the MMD of every split of the problem, whose cell counts must be fixed.

    Parameters
    ----------
    low_rank : a low-rank approximation of the kernel, from which leading eigenvectors are sought.
    with_support : whether to use support functions; `factored_bound`, which cannot, has only the sphere.
    """
    limits = problem.constraints
    level = _cell_level(limits)
    z0 = level[limits.cells.codes]
    n_val = int(limits.target.sum())
    radius_squared = 1.0 / n_val + 1.0 / (problem.n - n_val) - float(z0 @ z0)
    spectrum, constant = problem.geometry.spectrum(limits, z0, low_rank)
    most = constant
    if radius_squared > 0:
        most += _largest_gain(spectrum, radius_squared, limits if with_support else None)
    rounding = ROUNDING * float(np.finfo(problem.geometry.search_dtype).eps)
    if problem.geometry.is_nonnegative:
        most = min(most, _by_row_sums(problem, rounding))
    # What a kernel of low rank lacks adds at most its trace times |z|².
    most += problem.geometry.lacking * (1.0 / n_val + 1.0 / (problem.n - n_val))
    return float(np.sqrt(max(most, 0.0) * (1.0 + rounding)))


def factored_bound(
    limits: ValidationQuotas, gram: NDArray[np.float64], sums: NDArray[np.float64], precision: np.dtype[Any]
) -> float:
    """Bound the MMD of every split of rows that are known only by B'B and B's sums over each cell."""
    level, n_val, n = _cell_level(limits), int(limits.target.sum()), int(limits.cells.sizes.sum())
    radius_squared = 1.0 / n_val + 1.0 / (n - n_val) - float(level**2 @ limits.cells.sizes)
    spectrum, constant = factored_spectrum(gram, sums, level @ sums, limits, precision)
    gain = _largest_gain(spectrum, radius_squared, None) if radius_squared > 0 else 0.0
    return float(np.sqrt(max(constant + gain, 0.0) * (1.0 + ROUNDING * float(np.finfo(precision).eps))))


def _cell_level(limits: ValidationQuotas) -> NDArray[np.float64]:
    """The mean weight of each cell's rows, the same for every split."""
    n_val = limits.target.sum()
    in_train = limits.cells.sizes - limits.target
    n_train = in_train.sum()
    return np.asarray((limits.target / n_val - in_train / n_train) / limits.cells.sizes)


def _by_row_sums(problem: Problem, rounding: float) -> float:
    """Bound MMD² by what all rows together are to the validation rows.

    With no kernel value negative, 1_V'K1_V is at most 1_V'K1. That is close where rows have few neighbours,
    because a split can keep most of them together.
    """
    limits, row_sums = problem.constraints, problem.row_sums
    n_val = int(limits.target.sum())
    n_train = problem.n - n_val
    total = float(row_sums.sum())
    pair, found = 1.0 / n_val + 1.0 / n_train, []
    for quotas, others in ((limits.target, n_train), (limits.cells.sizes - limits.target, n_val)):
        # MMD² = c² 1_V'K1_V - 2 (c/|T|) 1_V'K1 + 1'K1/|T|², and the same with T for V.
        factor = pair * (pair - 2.0 / others)
        side = ValidationQuotas.exactly(limits.cells, quotas)
        chosen = Selection(side).choose(-np.sign(factor) * row_sums[:, None])[:, 0]
        of_side, of_all = factor * float(row_sums[chosen].sum()), total / others**2
        found.append(of_side + of_all + rounding * (abs(of_side) + abs(of_all)))
    return min(found)


@dataclass(frozen=True)
class _Dual:
    """What bounds the gain: c + 2 b'w + w'Aw less c, for one e and any number of mu.

    Attributes
    ----------
    values : (m,), of A along directions, the last for all that is left.
    pulls : (m,), b along them.
    low, high : (m,), the range of w along them.
    """

    values: NDArray[np.float64]
    pulls: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    radius_squared: float
    cover: ConeCover | None = None

    def at(self, mu: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bounds for all mu, shape (r,)."""
        first = 0 if self.cover is None else self.cover.k
        weights = self.values[:, None] - mu
        result = self.radius_squared * mu + self._apart(weights)[first:].sum(axis=0)
        if self.cover is not None:
            result += self.cover.largest(weights[:first], self.pulls[:first])
        return np.asarray(result)

    def _apart(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The largest of weights a² + 2 pulls a for a in its range, each by itself."""
        low, high, pulls = self.low[:, None], self.high[:, None], self.pulls[:, None]
        ends = [weights * end**2 + 2.0 * pulls * end for end in (low, high)]
        is_bent = weights < 0
        top = np.clip(-pulls / np.where(is_bent, weights, -1.0), low, high)
        inside = np.where(is_bent, weights * top**2 + 2.0 * pulls * top, -np.inf)
        return np.asarray(np.maximum.reduce([*ends, inside]))

    def best(self) -> tuple[float, float]:
        """The least bound, a convex function of mu, and the mu that gives it."""
        pull = float(np.sqrt((self.pulls**2).sum() / self.radius_squared))
        low, high = 0.0, max(float(self.values.max()), 0.0) + pull
        least, at = np.inf, 0.0
        # Narrowed down grid by grid; any mu bounds the maximum, so it need not be exact.
        for _ in range(GRIDS):
            mu = np.linspace(low, high, GRID)
            found = self.at(mu)
            place = int(found.argmin())
            if found[place] < least:
                least, at = float(found[place]), float(mu[place])
            low, high = float(mu[max(0, place - 1)]), float(mu[min(GRID - 1, place + 1)])
        return least, at


def _largest_gain(spectrum: Spectrum, radius_squared: float, limits: ValidationQuotas | None) -> float:
    """Bound 2 b'w + w'Aw over all splits; without limits, over the whole sphere."""
    radius, m = float(np.sqrt(radius_squared)), len(spectrum.values)
    high = np.full(m + 1, radius)
    low = -high
    low[-1] = 0.0  # along what is left of b
    support, k = None, spectrum.directions.shape[1]
    if limits is not None and k:
        support = SupportFunction(limits, spectrum.directions, spectrum.slack)
        ends = support.along(np.concatenate([np.eye(k), -np.eye(k)], axis=1))
        high[:k], low[:k] = np.minimum(high[:k], ends[:k]), np.maximum(low[:k], -ends[k:])

    def dual(share: float, cover: ConeCover | None) -> _Dual:
        e = share * spectrum.coupling
        left = spectrum.rest + (spectrum.coupling / share if share else 0.0)
        pulls = np.append(spectrum.pulls, spectrum.rest_pull)
        return _Dual(np.append(spectrum.values + e, left), pulls, low, high, radius_squared, cover)

    cover = None
    if support is not None and k > 1:
        cover = ConeCover(support, min(k, COVERED))
        middle = dual(1.0, cover)
        for _ in range(ROUNDS if support.n <= MANY_ROWS else FEWER_ROUNDS):
            # Seen from a little below the best mu, no direction that may come to matter has lost its weight.
            at = BELOW * middle.best()[1]
            cover.refine(middle.values[: cover.k] - at, middle.pulls[: cover.k])
    return min(dual(share, cover).best()[0] for share in (SHARES if spectrum.coupling else (0.0,)))
