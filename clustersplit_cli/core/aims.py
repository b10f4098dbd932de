"""Validation rows that stand for target rows E: the row-wise witness, and the split nearest to a point.

With k_E(i) the mean kernel value of row i with E: rows that look like E are those with the largest k_E - k_S,
which is linear and has its optimum in closed form. A validation set that is distributed like E, and a shift
from T to V like that from S to E, are both the point v of the quotas that minimises v'Kv - 2 v'b for some b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.geometry.protocol import Geometry
from clustersplit_cli.core.mmd.evaluation import Outside
from clustersplit_cli.core.search.problem import SMALL, Members, Problem
from clustersplit_cli.core.search.starts import random_splits

HERDING_STEPS = 64
"""Steps in which a start is built up, row by row where validation has no more rows than that."""
RELAXED_STEPS = 60
"""Steps of the conditional gradient on the relaxed problem, each one multiplication by the kernel."""
RELAXED_GAP = 1e-6
"""Relative distance between the relaxed problem's value and its bound at which they stop."""
BLOCK_ROWS = 96
"""Rows of a side that are exchanged with each other at a time."""
LEAST_GAIN = 1e-9
"""Gains of an exchange, in units of the mean diagonal, that are rounding."""
MOST_SWEEPS = 1000
PERTURBATIONS = 8
"""Times that rows of the best split are exchanged at random, and it is improved again."""

Vector = NDArray[np.float64]


def lookalike(constraints: ValidationQuotas, witness: Vector) -> Members:
    """Every cell's rows with the largest witness k_E - k_S: no split with these quotas has a larger sum."""
    return Selection(constraints).choose(-witness[:, None])[:, 0]


@dataclass(frozen=True)
class NearestPoint:
    """Minimise v'Kv - 2 v'b over the 0/1 vectors v of splits that meet exact quotas.

    Attributes
    ----------
    pull : (n,), the vector b.
    scale, constant : the squared distance is scale (v'Kv - 2 v'b) + constant.
    """

    geometry: Geometry
    constraints: ValidationQuotas
    pull: Vector
    scale: float
    constant: float

    @classmethod
    def to_target(cls, problem: Problem, outside: Outside) -> NearestPoint:
        """MMD²(V, E) = v'Kv/m² - 2 v'k_E/m + |mu_E|²."""
        m = int(problem.constraints.lower.sum())
        return cls(problem.geometry, problem.constraints, m * outside.mean, 1.0 / m**2, outside.norm)

    @classmethod
    def to_shift(cls, problem: Problem, outside: Outside) -> NearestPoint:
        """|(mu_V - mu_T) - (mu_E - mu_S)|² with mu_V - mu_T = c v - 1/t, c = 1/m + 1/t."""
        n, m = problem.n, int(problem.constraints.lower.sum())
        c, t = 1.0 / m + 1.0 / (n - m), n - m
        own = problem.row_sums / n
        witness = outside.mean - own
        shift = float(own.mean()) - 2.0 * float(outside.mean.mean()) + outside.norm
        # |c v - 1/t|² in K, less twice its product with mu_E - mu_S, whose witness is `witness`.
        constant = problem.geometry.grand_total / t**2 + 2.0 * float(witness.sum()) / t + shift
        return cls(
            problem.geometry, problem.constraints, (problem.row_sums / t + witness) / c, c**2, constant
        )

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.geometry.n

    def gradient(self, values: Vector) -> Vector:
        """K v - b: half the gradient."""
        return np.asarray(self.geometry.apply(values[:, None])[:, 0], dtype=np.float64) - self.pull

    def squared(self, members: Members, gradient: Vector) -> float:
        """The squared distance of a split whose K v - b is known."""
        inner = float((gradient - self.pull)[members].sum())
        return self.scale * inner + self.constant


@dataclass(frozen=True)
class Approached:
    """A split near a point.

    Attributes
    ----------
    squared : its squared distance.
    lower : no split that meets the quotas is nearer, by the relaxed problem.
    is_swap_optimal : whether exchanging any two rows of a cell moves it away.
    """

    members: Members
    squared: float
    lower: float
    is_swap_optimal: bool


def approach(point: NearestPoint, restarts: int, streams: Sequence[np.random.Generator]) -> Approached:
    """Look for the split nearest to a point: from several starts, by exchanges of two rows of a cell.

    Parameters
    ----------
    restarts : starts, of which those beyond the first three are random; large problems have only these.
    streams : chance for the random starts and for what perturbs the best split.
    """
    selection = Selection(point.constraints)
    relaxed, lower = relax(point, selection)
    starts = [
        selection.choose(-relaxed[:, None])[:, 0],
        herd(point),
        selection.choose(-point.pull[:, None])[:, 0],
    ]
    is_small = point.n <= SMALL
    if is_small and restarts > len(starts):
        drawn = random_splits(point.constraints, streams[: restarts - len(starts)])
        starts += list(drawn.T)
    best = min((descend(point, start) for start in starts), key=lambda found: found.squared)
    for stream in streams[:PERTURBATIONS] if is_small else ():
        found = descend(point, _perturbed(point.constraints, best.members, stream))
        best = min(best, found, key=lambda found: found.squared)
    return Approached(best.members, best.squared, lower, best.is_swap_optimal)


def bound_and_check(point: NearestPoint, members: Members) -> Approached:
    """Measure a given split, bound what any could reach, and look at every exchange of two rows."""
    lower = relax(point, Selection(point.constraints))[1]
    gradient = point.gradient(members.astype(np.float64))
    sides = _Exchange(point, members.copy(), gradient)
    is_optimal = not sides.sweep(thorough=True)
    return Approached(members, point.squared(members, gradient), lower, is_optimal)


def relax(point: NearestPoint, selection: Selection) -> tuple[Vector, float]:
    """Solve the problem over 0 <= v <= 1 by conditional gradients; a bound holds wherever they stop.

    Returns
    -------
    The relaxed v, and a squared distance that no split that meets the quotas is below.
    """
    values = np.zeros(point.n)
    limits = point.constraints
    share = limits.lower / np.maximum(limits.cells.sizes, 1)
    values += share[limits.cells.codes]
    gradient, lower = point.gradient(values), -np.inf
    for _ in range(RELAXED_STEPS):
        vertex = selection.choose(gradient[:, None])[:, 0].astype(np.float64)
        step = vertex - values
        product = np.asarray(point.geometry.apply(step[:, None])[:, 0], dtype=np.float64)
        slope, curve = float(gradient @ step), float(step @ product)
        value = float(values @ (gradient - point.pull))
        lower = max(lower, value + 2.0 * slope)
        if -2.0 * slope <= RELAXED_GAP * abs(value - lower + point.constant / point.scale):
            break
        along = 1.0 if curve <= 0 else min(-slope / curve, 1.0)
        values += along * step
        gradient = gradient + along * product
    return values, max(point.scale * lower + point.constant, 0.0)


def herd(point: NearestPoint) -> Members:
    """Build a split up: each step takes the rows that bring the mean so far nearest to its share of b."""
    limits = point.constraints
    quotas, diagonal = limits.lower, point.geometry.diagonal
    m = int(quotas.sum())
    steps = min(m, HERDING_STEPS)
    members, product = np.zeros(point.n, dtype=bool), np.zeros(point.n)
    taken = np.zeros(len(quotas), dtype=np.int64)
    for step in range(steps):
        share = (step + 1) / steps
        costs = 2.0 * (product - share * point.pull) + diagonal
        if steps == m:
            new = _cheapest_anywhere(limits, costs, members, taken)
        else:
            wanted = np.floor(quotas * share + 0.5).astype(np.int64) if step + 1 < steps else quotas
            free = ValidationQuotas.exactly(limits.cells, wanted - taken)
            new = np.flatnonzero(Selection(free).choose(np.where(members, np.inf, costs)[:, None])[:, 0])
        if len(new):
            members[new] = True
            taken += np.bincount(limits.cells.codes[new], minlength=len(quotas))
            product += point.geometry.times_columns(new, np.ones((len(new), 1)))[:, 0]
    return members


def _cheapest_anywhere(
    limits: ValidationQuotas, costs: Vector, members: Members, taken: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The one cheapest row of all cells that have room."""
    is_open = (taken < limits.lower)[limits.cells.codes] & ~members
    return np.array([np.argmin(np.where(is_open, costs, np.inf))], dtype=np.int64)


def descend(point: NearestPoint, start: Members) -> Approached:
    """Exchange rows of a cell while that brings the split nearer: the most promising first, then all."""
    sides = _Exchange(point, start.copy(), point.gradient(start.astype(np.float64)))
    is_optimal = False
    for _ in range(MOST_SWEEPS):
        if not sides.sweep(thorough=False) and not sides.sweep(thorough=True):
            is_optimal = True
            break
    # Sums of many small steps are rounded; the last word is a product of its own.
    gradient = point.gradient(sides.members.astype(np.float64))
    return Approached(sides.members, point.squared(sides.members, gradient), -np.inf, is_optimal)


class _Exchange:
    """A split under way: who is in validation, and g = K v - b.

    Exchanging i of validation for j of training adds 2 (g_j - g_i) + K_ii + K_jj - 2 K_ij to v'Kv - 2 v'b.
    The last three terms are never negative, so only pairs with g_j < g_i can gain.
    """

    def __init__(self, point: NearestPoint, members: Members, gradient: Vector) -> None:
        self.members = members
        self._point, self._gradient = point, gradient
        self._cells = point.constraints.cells
        self._least = LEAST_GAIN * float(point.geometry.diagonal.mean())

    def sweep(self, *, thorough: bool) -> int:
        """Go through all cells; the number of those where rows were exchanged."""
        return sum(self.improve(cell, thorough=thorough) for cell in range(len(self._cells.sizes)))

    def improve(self, cell: int, *, thorough: bool) -> bool:
        """Exchange rows of a cell, among the most promising ones or all; say whether any were."""
        offsets = self._cells.offsets
        rows = self._cells.order[offsets[cell] : offsets[cell + 1]]
        inside, outside = rows[self.members[rows]], rows[~self.members[rows]]
        if not (len(inside) and len(outside)):
            return False
        inside = inside[np.argsort(-self._gradient[inside], kind="stable")]
        outside = outside[np.argsort(self._gradient[outside], kind="stable")]
        height = BLOCK_ROWS
        tops = range(0, len(inside), height) if thorough else range(1)
        for top in tops:
            some = inside[top : top + height]
            for left in range(0, len(outside), height) if thorough else range(1):
                others = outside[left : left + height]
                if self._gradient[others[0]] >= self._gradient[some[0]]:
                    break
                if self._within(some, others):
                    return True
        return False

    def _within(self, inside: NDArray[np.int64], outside: NDArray[np.int64]) -> bool:
        """Exchange rows of a block until no exchange gains; multiply by the kernel once, at the end."""
        rows = np.sort(np.concatenate([inside, outside]))
        kernel = np.asarray(self._point.geometry.block(rows, rows), dtype=np.float64)
        diagonal = kernel.diagonal()
        members, gradient = self.members[rows].copy(), self._gradient[rows].copy()
        before = members.copy()
        for _ in range(4 * len(rows)):
            out, into = np.flatnonzero(members), np.flatnonzero(~members)
            change = (2.0 * gradient + diagonal)[into][None, :] - (2.0 * gradient - diagonal)[out][:, None]
            change -= 2.0 * kernel[np.ix_(out, into)]
            best = int(change.argmin())
            i, j = out[best // len(into)], into[best % len(into)]
            if change.flat[best] >= -self._least:
                break
            members[i], members[j] = False, True
            gradient += kernel[:, j] - kernel[:, i]
        moved = np.flatnonzero(members != before)
        if not len(moved):
            return False
        weights = np.where(members[moved], 1.0, -1.0)[:, None]
        self._gradient += self._point.geometry.times_columns(rows[moved], weights)[:, 0]
        self.members[rows] = members
        return True


def _perturbed(limits: ValidationQuotas, members: Members, rng: np.random.Generator) -> Members:
    """Exchange about a fifth of the validation rows of every cell for random ones of training."""
    result: Members = members.copy()
    offsets, order = limits.cells.offsets, limits.cells.order
    for cell in range(len(limits.target)):
        rows = order[offsets[cell] : offsets[cell + 1]]
        inside, outside = rows[members[rows]], rows[~members[rows]]
        count = min(len(inside), len(outside), max(1, len(inside) // 5))
        if count:
            result[rng.choice(inside, count, replace=False)] = False
            result[rng.choice(outside, count, replace=False)] = True
    return result
