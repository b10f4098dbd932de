"""Can all bounds be met at once? By which counts, with what tolerance; and if not, why not.

Units with the same rows in every cell are interchangeable here, so the programs have one integer variable
per class of units, however many rows there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Cells, bounds
from clustersplit_cli.core.constraints.tolerance import GRID, show, smallest_tolerance
from clustersplit_cli.errors import InfeasibleError

MOST_CELLS = 12
"""Cells of units among which a conflict is looked for; beyond that, naming them would help nobody."""
SECONDS = 60.0
"""Time after which the smallest tolerance is the best one found, not one proven smallest."""
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Demand:
    """Bounds on the validation rows of cells, and the classes of units that can meet them.

    Attributes
    ----------
    matrix : (cells, classes) sparse, rows in each cell of one unit of each class.
    available : (classes,) free units.
    taken : (cells,) rows that are forced into validation.
    """

    matrix: Any
    available: Counts
    taken: Counts
    lower: Counts
    upper: Counts

    def within(self, lower: Counts, upper: Counts) -> Demand:
        """The same classes with other bounds."""
        return replace(self, lower=lower, upper=upper)


def find_counts(
    demand: Demand, goal: NDArray[np.float64] | None = None, *, seconds: float = SECONDS
) -> Counts | None:
    """Find how many units of each class meet all bounds, near a goal if there is one; None if none do."""
    from scipy import sparse

    n_classes = demand.matrix.shape[1]
    low, high = demand.lower - demand.taken, demand.upper - demand.taken
    if goal is None:
        values, _ = _integers(
            np.zeros(n_classes), demand.matrix, low, high, demand.available, np.ones(n_classes), seconds
        )
        return None if values is None else np.round(values).astype(np.int64)
    # Beside every count its distance d from the goal: d >= count - goal and d >= goal - count.
    one = sparse.identity(n_classes, format="csr")
    matrix = sparse.bmat([[demand.matrix, None], [one, -one], [-one, -one]], format="csr")
    free = np.full(n_classes, -np.inf)
    values, _ = _integers(
        np.concatenate([np.zeros(n_classes), np.ones(n_classes)]),
        matrix,
        np.concatenate([low, free, free]),
        np.concatenate([high, goal, -goal]),
        np.concatenate([demand.available, np.full(n_classes, np.inf)]),
        np.concatenate([np.ones(n_classes), np.zeros(n_classes)]),
        seconds,
    )
    return None if values is None else np.round(values[:n_classes]).astype(np.int64)


@dataclass(frozen=True)
class FoundTolerance:
    """The smallest uniform tolerance, and whether it is proven to be that."""

    value: Fraction
    proven: bool


def find_tolerance(
    demand: Demand, sizes: Sequence[int], holdout: Fraction, is_open: NDArray[np.bool_]
) -> FoundTolerance | None:
    """Find the smallest tolerance with which the open cells, all alike, can be met.

    Parameters
    ----------
    sizes : rows of every cell.
    is_open : (cells,) which cells have that tolerance; the others keep their bounds.

    Returns
    -------
    None if no tolerance makes the other cells' bounds feasible.
    """
    from scipy import sparse

    # A count of a needs t >= 1 - (a + 1/2)/s and t >= (a - 1/2)/s - 1, where s = h |cell|.
    share = np.array([float(holdout * size) for size in sizes])
    n_classes = demand.matrix.shape[1]
    scaled = sparse.diags(1.0 / share[is_open]) @ demand.matrix[is_open]
    start, half = demand.taken[is_open] / share[is_open], 0.5 / share[is_open]
    one = np.ones((int(is_open.sum()), 1))
    matrix = sparse.bmat(
        [[demand.matrix[~is_open], None], [scaled, one], [scaled, -one]]
        if not is_open.all()
        else [[scaled, one], [scaled, -one]],
        format="csr",
    )
    fixed_low = (demand.lower - demand.taken)[~is_open]
    fixed_high = (demand.upper - demand.taken)[~is_open]
    unbounded = np.full(len(start), np.inf)
    values, proven = _integers(
        np.append(np.zeros(n_classes), 1.0),
        matrix,
        np.concatenate([fixed_low, 1.0 - half - start, -unbounded]),
        np.concatenate([fixed_high, unbounded, 1.0 + half - start]),
        np.append(demand.available, np.inf),
        np.append(np.ones(n_classes), 0.0),
        SECONDS,
    )
    if values is None:
        return None
    counts = demand.taken + (demand.matrix @ np.round(values[:n_classes]).astype(np.int64))
    open_cells = np.flatnonzero(is_open).tolist()

    def needed(counts: Counts) -> Fraction:
        each = (smallest_tolerance(sizes[cell], holdout, int(counts[cell])) for cell in open_cells)
        return max(each, default=Fraction(0))

    value = needed(counts)
    # Counts that differ by less than the solver's tolerances: ask for the next smaller value outright.
    while value > 0:
        lower, upper = demand.lower.copy(), demand.upper.copy()
        for cell in open_cells:
            lower[cell], upper[cell] = bounds(sizes[cell], holdout, value - Fraction(1, GRID))
        found = find_counts(demand.within(lower, upper), seconds=SECONDS / 6)
        if found is None:
            break
        value = needed(demand.taken + demand.matrix @ found)
    return FoundTolerance(value, proven)


def nearest_total(demand: Demand, goal: Fraction) -> tuple[int, int] | None:
    """Find the number of validation rows, among those that all bounds allow, that is nearest to a goal.

    Returns
    -------
    The least and the most allowed that are as near as the nearest found, or None if none was found in time.
    """
    total = demand.matrix[[-1]]
    sizes = np.asarray(total.todense(), dtype=np.float64).reshape(-1)
    found = []
    for sign, least, most in ((-1.0, 1, math.floor(goal)), (1.0, math.ceil(goal), None)):
        lower, upper = demand.lower - demand.taken, demand.upper - demand.taken
        lower[-1] = max(lower[-1], least - demand.taken[-1])
        upper[-1] = upper[-1] if most is None else min(upper[-1], most - demand.taken[-1])
        every = np.ones(len(sizes))
        values, _ = _integers(sign * sizes, demand.matrix, lower, upper, demand.available, every, SECONDS / 6)
        if values is not None:
            found.append(int(demand.taken[-1] + (total @ np.round(values).astype(np.int64))[0]))
    if not found:
        return None
    off = min(abs(total - goal) for total in found)
    # As far from the goal on its other side there may be no rows at all, or every row.
    least, most = int(demand.lower[-1]), int(demand.upper[-1])
    return max(math.ceil(goal - off), least), min(math.floor(goal + off), most)


def nearest_sizes(demand: Demand, goals: Sequence[Fraction], off: Fraction) -> Counts | None:
    """Assign the units of every class to parts such that no part is farther off its goal than need be.

    Parameters
    ----------
    demand : its bounds and what is taken are (cells, parts); the last cell is that of all rows.
    off : how far the farthest part is off already.

    Returns
    -------
    Units of each class in each part, (classes, parts), or None if nothing nearer was found in time.
    """
    best: Counts | None = None
    trial = low = _least_distance(goals)
    while trial < off:
        found = _near_goals(demand, goals, trial)
        if found is None:
            low = trial
        else:
            rows = demand.taken[-1] + (demand.matrix[[-1]] @ found)[0]
            best, off = found, max(abs(int(size) - goal) for size, goal in zip(rows, goals, strict=True))
        # The next distance that a part can have at all: whole numbers are that far off one of the goals.
        above = min(
            min(math.floor(goal + low) + 1 - goal, goal - math.ceil(goal - low) + 1) for goal in goals
        )
        trial = max(above, (low + off) / 2)
    return best


def _near_goals(demand: Demand, goals: Sequence[Fraction], off: Fraction) -> Counts | None:
    """Assign the units of every class to parts that are no farther than so many rows off their goals."""
    from scipy import sparse

    k, n_classes = len(goals), demand.matrix.shape[1]
    lower, upper = demand.lower - demand.taken, demand.upper - demand.taken
    lower[-1] = np.maximum(lower[-1], [math.ceil(goal - off) for goal in goals] - demand.taken[-1])
    upper[-1] = np.minimum(upper[-1], [math.floor(goal + off) for goal in goals] - demand.taken[-1])
    values, _ = _integers(
        np.zeros(k * n_classes),
        sparse.vstack(
            [sparse.hstack([sparse.identity(n_classes)] * k), sparse.block_diag([demand.matrix] * k)]
        ).tocsr(),
        np.concatenate([demand.available, lower.T.reshape(-1)]),
        np.concatenate([demand.available, upper.T.reshape(-1)]),
        np.tile(demand.available, k),
        np.ones(k * n_classes),
        SECONDS / 12,
    )
    return None if values is None else np.round(values).astype(np.int64).reshape(k, n_classes).T


def _least_distance(goals: Sequence[Fraction]) -> Fraction:
    """How far off its goal the farthest part must be, if whole numbers are to add up as goals do."""
    total = sum(goals)
    distances = sorted({abs(goal - near) for goal in goals for near in (math.floor(goal), math.ceil(goal))})
    for distance in distances:
        low = sum(math.ceil(goal - distance) for goal in goals)
        if low <= total <= sum(math.floor(goal + distance) for goal in goals) and all(
            math.ceil(goal - distance) <= goal + distance for goal in goals
        ):
            return distance
    return distances[-1]


@dataclass(frozen=True)
class Conflict:
    """Bounds that cannot be met together, none of which could be left out, and counts that come closest.

    Attributes
    ----------
    at_least, at_most : cells whose lower, and whose upper bounds are in conflict.
    counts : (cells,) validation rows of a choice that breaks as few bounds, by as few rows, as possible.
    """

    at_least: tuple[int, ...]
    at_most: tuple[int, ...]
    counts: Counts


def find_conflict(demand: Demand) -> Conflict:
    """Find a minimal set of bounds that cannot be met together; there must be one."""
    counts, _ = _elastic(demand, integers=True)
    _, duals = _elastic(demand, integers=False)
    candidates = [int(bound) for bound in np.flatnonzero(np.abs(duals) > 1e-9)]
    n_cells = len(demand.lower)
    if not _is_infeasible(demand, candidates):
        # The relaxed program can be met: only whole units cannot. Begin with the cells that were missed.
        missed = np.flatnonzero((counts < demand.lower) | (counts > demand.upper)).tolist()
        candidates = []
        for cell in [*missed, *(cell for cell in range(n_cells) if cell not in missed)]:
            if candidates and (_is_infeasible(demand, candidates) or len(candidates) >= 2 * MOST_CELLS):
                break
            candidates += [cell, n_cells + cell]
    kept = list(candidates)
    for bound in reversed(candidates):
        without = [other for other in kept if other != bound]
        if _is_infeasible(demand, without):
            kept = without
    at_least = tuple(sorted(bound for bound in kept if bound < n_cells))
    return Conflict(at_least, tuple(sorted(bound - n_cells for bound in kept if bound >= n_cells)), counts)


def _is_infeasible(demand: Demand, bounds: Sequence[int]) -> bool:
    """Whether some bounds exclude each other: lower ones are numbered by cell, upper ones come after them."""
    n_cells = len(demand.lower)
    lower = np.full(n_cells, -np.inf)
    upper = np.full(n_cells, np.inf)
    for bound in bounds:
        if bound < n_cells:
            lower[bound] = demand.lower[bound] - demand.taken[bound]
        else:
            upper[bound - n_cells] = demand.upper[bound - n_cells] - demand.taken[bound - n_cells]
    n_classes = demand.matrix.shape[1]
    values, decided = _integers(
        np.zeros(n_classes), demand.matrix, lower, upper, demand.available, np.ones(n_classes), 2.0
    )
    return values is None and decided


def _elastic(demand: Demand, *, integers: bool) -> tuple[Counts, NDArray[np.float64]]:
    """Break the bounds by as few rows as possible; return the counts, or the duals of all bounds."""
    from scipy import sparse

    n_cells, n_classes = demand.matrix.shape
    low, high = demand.lower - demand.taken, demand.upper - demand.taken
    one = sparse.identity(n_cells, format="csr")
    if integers:
        values, _ = _integers(
            np.concatenate([np.zeros(n_classes), np.ones(2 * n_cells)]),
            sparse.hstack([demand.matrix, one, -one], format="csr"),
            low,
            high,
            np.concatenate([demand.available, np.full(2 * n_cells, np.inf)]),
            np.concatenate([np.ones(n_classes), np.zeros(2 * n_cells)]),
            SECONDS,
        )
        assert values is not None  # slack makes everything feasible
        found = np.round(values[:n_classes]).astype(np.int64)
        return demand.taken + demand.matrix @ found, np.zeros(0)
    from scipy.optimize import linprog

    relaxed = linprog(
        np.concatenate([np.zeros(n_classes), np.ones(2 * n_cells)]),
        A_ub=sparse.bmat([[-demand.matrix, -one, None], [demand.matrix, None, -one]], format="csc"),
        b_ub=np.concatenate([-low, high]),
        bounds=np.column_stack(
            [
                np.zeros(n_classes + 2 * n_cells),
                np.concatenate([demand.available, np.full(2 * n_cells, np.inf)]),
            ]
        ),
        method="highs-ds",
    )
    return np.zeros(0, dtype=np.int64), np.asarray(relaxed.ineqlin.marginals)


FAILED = 4
"""How HiGHS ends some small programs, unless it is kept from simplifying them first."""


def _integers(
    costs: NDArray[np.float64],
    matrix: Any,
    lower: NDArray[Any],
    upper: NDArray[Any],
    most: NDArray[Any],
    integral: NDArray[np.float64],
    seconds: float,
) -> tuple[NDArray[np.float64] | None, bool]:
    """Minimise costs'x; return x, or None, and whether that is decided rather than out of time."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    if (np.asarray(lower) > np.asarray(upper)).any():
        return None, True
    for presolve in (True, False):
        found = milp(
            costs,
            integrality=integral,
            bounds=Bounds(np.zeros(len(costs)), np.asarray(most, dtype=np.float64)),
            constraints=LinearConstraint(matrix, lower, upper),
            options={"time_limit": seconds, "mip_rel_gap": 0.0, "presolve": presolve},
        )
        if found.status != FAILED:
            break
    return found.x, found.status in (0, 2)


NAMED = 4


@dataclass(frozen=True)
class _Cell:
    """A cell in words: its family, its name and its rows."""

    family: int
    name: str
    size: int


def explain(
    demand: Demand, families: Sequence[Cells], holdout: Fraction, *, with_units: bool, rounding: str
) -> InfeasibleError:
    """Say which bounds exclude each other, and the smallest changes that make them feasible.

    Parameters
    ----------
    with_units : whether rows that stay together may be the reason.
    """
    conflict = find_conflict(demand)
    cells = [
        _Cell(family, part.describe(cell), int(part.sizes[cell]))
        for family, part in enumerate(families)
        for cell in range(len(part.sizes))
    ]
    cells.append(_Cell(len(families), "all rows", len(families[0].codes)))  # neither side may be empty
    totals = _differing_totals(demand, families)
    message = totals or _in_words(conflict, demand, cells, with_units)
    cures = [_uniform_cure(demand, cells, holdout), _exceptions(conflict, demand, cells, holdout)]
    if totals and rounding == "nearest":
        cures.insert(0, "use --rounding balanced")
    hint = ", or ".join(cure for cure in cures if cure)
    return InfeasibleError(message, hint=hint or "force fewer rows, or keep fewer rows together")


def _differing_totals(demand: Demand, families: Sequence[Cells]) -> str | None:
    """Say so if one family asks for more rows than another allows."""
    ends = np.cumsum([len(cells.sizes) for cells in families])
    least = [int(part.sum()) for part in np.split(demand.lower, ends)[:-1]]
    most = [int(part.sum()) for part in np.split(demand.upper, ends)[:-1]]
    first, second = int(np.argmax(least)), int(np.argmin(most))
    if least[first] <= most[second]:
        return None
    words = [",".join(families[family].names[0]) or "all rows" for family in (first, second)]
    return (
        f"the quotas of {words[0]} add up to {least[first]} validation rows, "
        f"but those of {words[1]} to {most[second]}"
    )


def _in_words(conflict: Conflict, demand: Demand, cells: Sequence[_Cell], with_units: bool) -> str:
    at_least, at_most = conflict.at_least, conflict.at_most
    needs = _listed([f"{cells[cell].name} needs at least {demand.lower[cell]}" for cell in at_least])
    allows = _listed([f"{cells[cell].name} allows {demand.upper[cell]}" for cell in at_most])
    if at_least and set(at_least) == set(at_most):
        wanted = _listed(
            [f"{cells[cell].name} needs {_span(demand.lower[cell], demand.upper[cell])}" for cell in at_least]
        )
        return f"{wanted} validation rows, which no choice of whole units gives"
    if at_least and at_most:
        together = ", and units must stay whole" if with_units else ""
        return f"{needs} validation rows but {allows}{together}"
    if len(at_least) == 1:
        (cell,) = at_least
        most = int(demand.taken[cell] + (demand.matrix[cell] @ demand.available)[0])
        return f"{needs} validation rows but only {most} of its rows are not forced into training"
    if len(at_most) == 1:
        (cell,) = at_most
        name, taken = cells[cell].name, demand.taken[cell]
        return f"{name} allows {demand.upper[cell]} validation rows but {taken} of its rows are forced"
    together = "units that stay whole" if with_units else "the forced rows"
    return f"{needs or allows} validation rows, which {together} make impossible"


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def _uniform_cure(demand: Demand, cells: Sequence[_Cell], holdout: Fraction) -> str | None:
    """The smallest tolerance for all cells."""
    has_quota = np.arange(len(cells)) < len(cells) - 1
    found = find_tolerance(demand, [cell.size for cell in cells], holdout, has_quota)
    if found is None:
        return None
    how = "the smallest that can be met" if found.proven else "the smallest found"
    return f"use --tolerance {show(found.value)} ({how})"


def _exceptions(conflict: Conflict, demand: Demand, cells: Sequence[_Cell], holdout: Fraction) -> str | None:
    """The fewest rows by which some cells would have to give way."""
    broken = np.flatnonzero((conflict.counts < demand.lower) | (conflict.counts > demand.upper)).tolist()
    if not 0 < len(broken) <= NAMED or broken[-1] == len(cells) - 1:
        return None
    options = []
    for cell in broken:
        count = int(conflict.counts[cell])
        needed = show(smallest_tolerance(cells[cell].size, holdout, count))
        name = cells[cell].name.replace(", ", ",")
        options.append(f"--tolerance '{name}={needed}' ({count} validation rows)")
    return " ".join(options)


def _listed(parts: Sequence[str]) -> str:
    shown = list(parts[:NAMED])
    if len(parts) > NAMED:
        shown.append(f"{len(parts) - NAMED} more")
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} and {shown[-1]}"
