"""A tight upper bound on the MMD where there are few rows, or few units of rows: a semidefinite relaxation.

With v = 1 for the units in validation, MMD² is linear in Y = [1 v'; v vv'], up to a sign <C, Y>. Y is
positive semi-definite, has no negative value, its diagonal is its first column, and quotas s'(1, v) = 0 make
s'Y = 0: Y = PYP for the projection P away from all s. The least <C, Y> over all such Y bounds every split.
ADMM moves between Y = PYP that are semi-definite and Y within the other limits, and any of its multipliers Z
bounds too:

    <C, Y> = <C + Z, Y> - <PZP, Y> >= least <C + Z, Y> - (1 + |V|) max(0, largest eigenvalue of PZP),

since Y's trace is at most 1 + |V|. So it may stop at any time. The least <C + Z, Y> over a larger set is
enough, and that of Gilmore and Lawler is solved by sorting: of every unit the best row of Y that has this
unit, then the best units. A row by itself is a unit, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.bound.bound import PROVEN
from clustersplit_cli.core.constraints.families import composition, units_pinned
from clustersplit_cli.core.constraints.quotas import FREE, TRAIN, VAL
from clustersplit_cli.core.constraints.requirements import Requirements
from clustersplit_cli.core.search.problem import Problem
from clustersplit_cli.progress import Progress, silent

MOST_UNITS = 1000
"""Rows or units up to which this is worth its time, which grows with their cube."""
STEPS, LOOKED_AT, REPORTED = 3000, 25, 5
"""Steps at most; how often multipliers are turned into a bound, and progress is told."""
PATIENCE, WORTHWHILE = 600, 1e-5
"""It stops early where so many steps lower the bound by a smaller share of it."""
PENALTY = 1 / 30
"""Of a step away from agreement, in units of rows over validation rows; C has norm 1."""
OVERSHOT = 1.618
"""How far multipliers follow; ADMM converges up to the golden ratio."""
DEPENDENT = 1e-8
"""Equations whose singular value is a smaller share of the largest follow from the others."""
ROUNDING = 1e-10


def semidefinite_bound(
    problem: Problem, requirements: Requirements, reached: float | None = None, progress: Progress = silent
) -> float:
    """Bound the MMD of every split that meets the requirements, whose quotas must be exact.

    Parameters
    ----------
    problem : over the units that are chosen, or over rows.
    reached : the MMD² of a split; once it is proven optimal, nothing is left to do.
    """
    relaxation = Relaxation.of(problem, requirements)
    n_val, n_train = relaxation.n_val, problem.n_rows - relaxation.n_val
    lacking = problem.geometry.lacking * (1.0 / n_val + 1.0 / n_train)
    enough = -np.inf if reached is None else reached * (1.0 + 0.5 * PROVEN) - lacking
    best, last = np.inf, np.inf
    for step, multipliers in enumerate(_multipliers(relaxation)):
        if step % REPORTED == 0:
            progress("bound", step, STEPS)
        if step % LOOKED_AT == 0:
            best = min(best, relaxation.largest_mmd_squared(multipliers))
        if step % PATIENCE == 0:
            is_stuck, last = last - best < WORTHWHILE * best, best
            if is_stuck:
                break
        if best <= enough:
            break
    return float(np.sqrt(max(best + lacking, 0.0)))


def _multipliers(relaxation: Relaxation) -> Iterator[NDArray[np.float64]]:
    """Multipliers Z with PZP negative semi-definite, but for rounding, better and better ones."""
    first, n_units = relaxation.average, relaxation.n_units
    penalty = PENALTY * (1 + n_units) / (1.0 + first[1:].sum())
    within, multipliers = np.outer(first, first), np.zeros((1 + n_units, 1 + n_units))
    for _ in range(STEPS):
        semidefinite = _positive_part(relaxation.projected(within + multipliers / penalty))
        apart = penalty * (within - semidefinite)
        yield multipliers + apart
        multipliers = multipliers + OVERSHOT * apart
        within = _nearest_within(semidefinite - (relaxation.costs + multipliers) / penalty)


def _positive_part(symmetric: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest positive semi-definite matrix."""
    from scipy import linalg

    try:
        values, vectors = linalg.eigh(
            symmetric, subset_by_value=(0.0, np.inf), driver="evr", check_finite=False
        )
    except np.linalg.LinAlgError:  # it costs a third, and now and then fails where many eigenvalues are equal
        values, vectors = np.linalg.eigh(symmetric)
    scaled = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(scaled @ scaled.T)


def _nearest_within(Y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest matrix with values from 0 to 1, a corner of 1, and its diagonal as first row and column."""
    found = np.clip(Y, 0.0, 1.0)
    level = np.clip((np.diag(Y)[1:] + 2.0 * Y[0, 1:]) / 3.0, 0.0, 1.0)
    found[0, 0] = 1.0
    found[0, 1:] = found[1:, 0] = level
    np.fill_diagonal(found[1:, 1:], level)
    return found


@dataclass(frozen=True)
class Relaxation:
    """What is known of Y = [1 v'; v vv'] of all splits.

    Attributes
    ----------
    costs : (1 + units, 1 + units), C scaled to norm 1: MMD² is -scale <C, Y>.
    equations : (1 + units, r), orthonormal directions s with s'Y = 0.
    groupings : the units in groups of which a fixed number of rows is in validation, in one or several ways.
    average : (1 + units,), a point that meets the equations.
    """

    costs: NDArray[np.float64]
    scale: float
    equations: NDArray[np.float64]
    groupings: tuple[Grouping, ...]
    average: NDArray[np.float64]
    n_val: int

    @classmethod
    def of(cls, problem: Problem, requirements: Requirements) -> Relaxation:
        """State it for a problem over units."""
        units, families = requirements.units, requirements.families
        limits = [family.validation for family in families]
        table = composition([family.cells for family in families], units).toarray().astype(np.float64)
        target = np.concatenate([family.target for family in limits]).astype(np.float64)
        pins = units_pinned(requirements.pinned, units)
        # Where all units of a cell are on one side, each is: as if they were forced there.
        for row, wanted in zip(table, target, strict=True):
            if wanted in (0, row.sum()):
                pins = np.where((row > 0) & (pins == FREE), VAL if wanted else TRAIN, pins)
        fixed = np.flatnonzero(pins != FREE)
        single = np.zeros((len(fixed), 1 + problem.n))
        single[:, 0], single[np.arange(len(fixed)), 1 + fixed] = -(pins[fixed] == VAL).astype(np.float64), 1.0
        equations = np.concatenate([np.column_stack([-target, table]), single])
        equations /= np.linalg.norm(equations, axis=1)[:, None]
        _, sizes, directions = np.linalg.svd(equations, full_matrices=False)
        basis = directions[sizes > DEPENDENT * sizes[0]].T
        corner = np.zeros(1 + problem.n)
        corner[0] = 1.0
        corner -= basis @ basis[0]
        n_val = int(limits[0].target.sum())
        costs = _costs(problem, n_val)
        costs = _away(_away(costs, basis).T, basis)
        scale = float(np.linalg.norm(costs)) or 1.0
        ends = np.cumsum([len(family.target) for family in limits])[:-1]
        groupings = tuple(
            Grouping.of(rows, wanted, pins)
            for rows, wanted in zip(np.split(table, ends), np.split(target, ends), strict=True)
        )
        average = np.clip(corner / corner[0], 0.0, 1.0)
        return cls(costs / scale, scale, basis, groupings, average, n_val)

    @property
    def n_units(self) -> int:
        """Rows, or units."""
        return len(self.average) - 1

    def projected(self, Y: NDArray[np.float64]) -> NDArray[np.float64]:
        """PYP."""
        return _away(_away(Y, self.equations).T, self.equations)

    def largest_mmd_squared(self, multipliers: NDArray[np.float64]) -> float:
        """Bound MMD² by some multipliers, whichever."""
        from scipy import linalg

        top = float(linalg.eigvalsh(self.projected(multipliers), check_finite=False)[-1])
        costs = self.costs + (multipliers + multipliers.T) / 2.0
        least = max(grouping.least(costs) for grouping in self.groupings)
        least -= (1 + self.n_val) * max(top, 0.0)
        rounding = ROUNDING * (1 + self.n_val) * (1.0 + float(np.linalg.norm(multipliers)))
        return self.scale * (rounding - least)


def _away(Y: NDArray[np.float64], directions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Take off the part of the columns along orthonormal directions."""
    return np.asarray(Y - directions @ (directions.T @ Y))


def _costs(problem: Problem, n_val: int) -> NDArray[np.float64]:
    """C: with c = 1/|V| + 1/|T|, MMD² is c² v'Kv - 2 (c/|T|) v'K1 + 1'K1/|T|²."""
    n_train = problem.n_rows - n_val
    pair = 1.0 / n_val + 1.0 / n_train
    kernel = np.asarray(problem.geometry.apply(np.eye(problem.n)), dtype=np.float64)
    costs = np.empty((1 + problem.n, 1 + problem.n))
    costs[1:, 1:] = -(pair**2) * (kernel + kernel.T) / 2.0
    costs[0, 1:] = costs[1:, 0] = pair / n_train * kernel.sum(axis=1)
    costs[0, 0] = -float(kernel.sum()) / n_train**2
    return costs


@dataclass(frozen=True)
class Grouping:
    """Units in groups, of each of which a fixed number of rows is in validation.

    Attributes
    ----------
    groups : the units of each.
    sizes : (units,), rows of each.
    demand : rows of each group in validation.
    """

    groups: tuple[NDArray[np.int64], ...]
    sizes: NDArray[np.float64]
    demand: NDArray[np.float64]

    @classmethod
    def of(cls, table: NDArray[np.float64], target: NDArray[np.float64], pins: NDArray[np.int64]) -> Grouping:
        """Group units by cell, where each lies in one, and by what they are forced to.

        Parameters
        ----------
        table : (cells, units), rows of each unit in each cell.
        target : (cells,)
        """
        sizes = table.sum(axis=0)
        cell = table.argmax(axis=0)
        if not ((table > 0).sum(axis=0) == 1).all():
            cell, target = np.zeros_like(cell), target.sum(keepdims=True)
        groups, demand = [], []
        for number, wanted in enumerate(target):
            members = cell == number
            taken = float(sizes[members & (pins == VAL)].sum())
            for side, rows in ((FREE, wanted - taken), (VAL, taken)):
                inside = np.flatnonzero(members & (pins == side))
                if len(inside) and rows > 0:
                    groups.append(inside)
                    demand.append(rows)
        return cls(tuple(groups), sizes, np.array(demand))

    def least(self, costs: NDArray[np.float64]) -> float:
        """Bound <costs, Y> from below: the cheapest row of Y for each unit, then the cheapest units."""
        between = costs[1:, 1:]
        with_each = 2.0 * costs[0, 1:]
        for inside, demand in zip(self.groups, self.demand, strict=True):
            part, sizes = between[:, inside], self.sizes[inside]
            rates = part / sizes
            rates[inside, np.arange(len(inside))] = -np.inf  # a unit is in its own row
            with_each = with_each + _cheapest(rates, part, sizes, demand)
            with_each[inside[sizes > demand]] = np.inf
        total = float(costs[0, 0])
        for inside, demand in zip(self.groups, self.demand, strict=True):
            part, sizes = with_each[None, inside], self.sizes[inside]
            total += float(_cheapest(part / sizes, part, sizes, demand)[0])
        return total


def _cheapest(
    rates: NDArray[np.float64], costs: NDArray[np.float64], sizes: NDArray[np.float64], demand: float
) -> NDArray[np.float64]:
    """The least cost of so many rows, for every row of costs; the last unit may be taken in part."""
    order = np.argsort(rates, axis=1, kind="stable")
    along = sizes[order]
    before = np.cumsum(along, axis=1) - along
    share = np.clip((demand - before) / along, 0.0, 1.0)
    sorted_costs = np.take_along_axis(costs, order, axis=1)
    return np.asarray(np.where(share > 0, share * np.where(share > 0, sorted_costs, 0.0), 0.0).sum(axis=1))
