"""The assignment program solved in whole numbers, by HiGHS.

Blocks of cells that share no units are solved each on its own. The relaxed program comes first; only if it
ends in fractions is there branch and bound, among the units that reduced costs do not decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.repair import fill_cell, is_small_cell, repair
from clustersplit_cli.core.constraints.program import Assignment, Block, Limits, Program
from clustersplit_cli.errors import SolverError

INTEGRALITY = 1e-6
BRANCH = 80
"""Units beside the fractional ones that branch and bound begins with."""


def solve(
    program: Program,
    costs: NDArray[Any],
    *,
    present: NDArray[np.bool_] | None = None,
    limits: Limits | None = None,
    enough: float = np.inf,
) -> Assignment | None:
    """Choose units at the least total cost.

    Parameters
    ----------
    costs : (units,)
    enough : where no choice can cost less than this, by how much does not matter.
    present : a choice that meets the bounds, kept if nothing cheaper is found within the limits.

    Returns
    -------
    None if no choice meets the bounds.
    """
    if program.blocks is not None:
        return _solve_blocks(program.blocks, np.asarray(costs, dtype=np.float64), present, limits)
    return _solve_one(program, np.asarray(costs, dtype=np.float64), present, limits, enough)


def _solve_blocks(
    blocks: Sequence[Block],
    costs: NDArray[np.float64],
    present: NDArray[np.bool_] | None,
    limits: Limits | None,
) -> Assignment | None:
    """Solve every block on its own and put them together."""
    chosen = np.zeros(len(costs), dtype=bool)
    found = []
    for block in blocks:
        own = None if present is None else present[block.units]
        solution = _solve_one(block.program, costs[block.units], own, limits)
        if solution is None:
            return None
        chosen[block.units] = solution.chosen
        found.append(solution)
    return Assignment(
        chosen,
        sum(solution.cost for solution in found),
        sum(solution.bound for solution in found),
        any(solution.branched for solution in found),
        all(solution.proven for solution in found),
        all(solution.near_enough for solution in found),
    )


def _solve_one(
    program: Program,
    costs: NDArray[np.float64],
    present: NDArray[np.bool_] | None,
    limits: Limits | None,
    enough: float = np.inf,
) -> Assignment | None:
    """Fill a single cell; otherwise relax, and branch if that ends in fractions."""
    if is_small_cell(program):
        return fill_cell(program, costs)
    scale = float(np.abs(costs).max(initial=0.0)) or 1.0
    scaled = costs / scale
    if len(program.free) == 0:
        made = program.fixed > 0
        cost = float(costs @ made)
        return Assignment(made, cost, cost, False, True, True) if program.is_met_by(made) else None
    values = (program.fixed > 0).astype(np.float64)
    relaxed = relax(program, scaled, values)
    if relaxed is None:
        return None
    values, duals = relaxed
    least = float(scaled @ values)
    chosen = values > 0.5
    if np.abs(values - chosen).max(initial=0.0) <= INTEGRALITY:
        cost = float(scaled @ chosen)
        return Assignment(chosen, cost * scale, cost * scale, False, True, True)
    if present is not None and least * scale >= enough:
        return Assignment(present, float(costs @ present), least * scale, False, True, True)
    reduced = scaled - program.by_unit @ duals
    return _branch(program, scaled, values, reduced, least, scale, present, limits or Limits())


def _branch(
    program: Program,
    costs: NDArray[np.float64],
    relaxed: NDArray[np.float64],
    reduced: NDArray[np.float64],
    least: float,
    scale: float,
    present: NDArray[np.bool_] | None,
    limits: Limits,
) -> Assignment | None:
    """Ask for integers among the units whose reduced cost is small, and for more until that proves enough.

    Every choice that differs from the relaxed solution in a unit costs at least that unit's reduced cost
    more. So once a choice costs less than `least` plus the reduced costs of all closed units, it is optimal.
    """
    free = program.free
    weight = np.abs(reduced[free])
    weight[np.abs(relaxed[free] - np.round(relaxed[free])) > INTEGRALITY] = 0.0
    by_weight = np.argsort(weight, kind="stable")
    best = present
    best_cost = np.inf if present is None else float(costs @ present)
    if limits.repairing:
        mended = _repaired(program, costs, relaxed, present)
        if mended is not None and float(costs @ mended) < best_cost:
            best, best_cost = mended, float(costs @ mended)
        near = best_cost - least <= limits.gap * abs(least)
        if best is not None and (limits.nodes == 0 or near):
            return Assignment(best, best_cost * scale, least * scale, True, False, near)
        if limits.nodes == 0:
            limits = Limits(limits.gap, seconds=limits.seconds)
    width = min(len(free), BRANCH + int((weight == 0).sum()))
    near_enough = False
    while not near_enough:
        open_units = free[np.sort(by_weight[:width])]
        chosen, is_optimal = _integers(program, costs, relaxed, open_units, limits)
        if chosen is not None and float(costs @ chosen) < best_cost:
            best, best_cost = chosen, float(costs @ chosen)
        needed = len(free) if best is None else int((weight < best_cost - least).sum())
        near = best is not None and best_cost - least <= limits.gap * abs(least)
        near_enough = near or (is_optimal and width >= needed and best is not None)
        # Where nodes or time ran out, a larger program would do no better, unless nothing was found at all.
        if width == len(free) or (best is not None and not is_optimal):
            break
        if best is None and not is_optimal:
            limits = Limits(limits.gap, seconds=limits.seconds)
        width = min(len(free), max(2 * width, min(needed, 4 * width)))
    if best is None:
        return None
    proven = near_enough and limits.gap == 0.0
    bound = best_cost if proven else least
    return Assignment(best, best_cost * scale, bound * scale, True, proven, near_enough)


def _repaired(
    program: Program,
    costs: NDArray[np.float64],
    relaxed: NDArray[np.float64],
    present: NDArray[np.bool_] | None,
) -> NDArray[np.bool_] | None:
    """The better of what exchanges make of the relaxed choice and of the present one."""
    free = program.free
    rest = program.columns @ (program.fixed > 0).astype(np.int64)
    matrix = program.columns[:, free].toarray().astype(np.int32)
    best: NDArray[np.bool_] | None = None
    for start in (relaxed > 0.5, present):
        if start is None:
            continue
        mended = repair(matrix, program.lower - rest, program.upper - rest, costs[free], start[free])
        if mended is None:
            continue
        chosen = program.fixed > 0
        chosen[free] = mended
        if best is None or costs @ chosen < costs @ best:
            best = chosen
    return best


def _integers(
    program: Program,
    costs: NDArray[np.float64],
    relaxed: NDArray[np.float64],
    open_units: NDArray[np.int64],
    limits: Limits,
) -> tuple[NDArray[np.bool_] | None, bool]:
    """Choose among some units, the others as in the relaxed solution; also whether that is near enough."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    values = np.round(relaxed)
    values[open_units] = 0.0
    rest = program.columns @ values
    options: dict[str, Any] = {"mip_rel_gap": limits.gap}
    if limits.nodes is not None:
        options["node_limit"] = limits.nodes
    if limits.seconds is not None:
        options["time_limit"] = limits.seconds
    found = milp(
        costs[open_units],
        integrality=np.ones(len(open_units)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(
            program.columns[:, open_units], program.lower - rest, program.upper - rest
        ),
        options=options,
    )
    if found.x is None:
        return None, found.status == 2
    values[open_units] = np.round(found.x)
    chosen = values > 0.5
    if not program.is_met_by(chosen):  # tolerances of the solver may round to a broken bound
        return None, False
    return chosen, found.status == 0


DIRECT = 1200
"""Up to this many free units the relaxed program is solved whole."""
CHUNKS = 24
"""Pieces that each class of units is cut into for a first guess of the duals."""
NEAR = 400
"""Units of smallest reduced cost that are left free at first."""
ZERO = 1e-9
"""Reduced costs below this, on costs scaled to 1, are rounding."""


def relax(
    program: Program, costs: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Solve the relaxed program; return the values of all units and the duals of all cells."""
    free = program.free
    duals = guess = np.zeros(len(program.lower))
    open_units = free
    if len(free) > DIRECT:
        found = _guess_duals(program, costs)
        if found is None:
            return None
        guess = found
        reduced = (costs - program.by_unit @ guess)[free]
        open_units = free[np.argsort(np.abs(reduced), kind="stable")[:NEAR]]
        values[free] = reduced < 0
    while True:
        values[open_units] = 0.0
        rest = program.columns @ values
        solution = _linear(
            costs[open_units],
            program.columns[:, open_units],
            program.lower - rest,
            program.upper - rest,
            np.ones(len(open_units)),
        )
        if solution is None and len(open_units) == len(free):
            return None
        if solution is not None:
            values[open_units], duals = solution
            if len(open_units) == len(free):
                return values, duals
        reduced = (costs - program.by_unit @ (duals if solution is not None else guess))[free]
        is_open = np.zeros(len(program.fixed), dtype=bool)
        is_open[open_units] = True
        shut = ~is_open[free]
        wrong = shut & np.where(values[free] > 0.5, reduced > ZERO, reduced < -ZERO)
        if solution is not None and not wrong.any():
            return values, duals
        # Those that the duals want otherwise, and as many of the undecided as there are open ones.
        near = free[shut][np.argsort(np.abs(reduced[shut]), kind="stable")[: len(open_units)]]
        open_units = np.union1d(open_units, np.union1d(free[wrong], near))


def _guess_duals(program: Program, costs: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Solve the program for chunks of like units of like cost, which is small; None if it cannot be met."""
    free = program.free
    classes = program.classes[free]
    order = np.lexsort((costs[free], classes))
    ordered = classes[order]
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    sizes = np.diff(np.append(first, len(ordered)))
    rank = np.arange(len(ordered)) - np.repeat(first, sizes)
    width = np.repeat(-(-sizes // CHUNKS), sizes)
    begins = np.flatnonzero(rank % width == 0)
    lengths = np.diff(np.append(begins, len(ordered)))
    means = np.add.reduceat(costs[free][order], begins) / lengths
    taken = program.columns @ (program.fixed > 0).astype(np.float64)
    solution = _linear(
        means,
        program.columns[:, free[order[begins]]],
        program.lower - taken,
        program.upper - taken,
        lengths.astype(np.float64),
    )
    return None if solution is None else solution[1]


def _linear(
    costs: NDArray[np.float64],
    matrix: Any,
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    most: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Minimise costs'x, lower <= matrix x <= upper, 0 <= x <= most; return x and the duals."""
    import scipy.sparse
    from scipy.optimize import linprog

    exact = lower == upper
    bound, both = None, None
    if not exact.all():
        both = scipy.sparse.vstack([matrix[~exact], -matrix[~exact]]).tocsc()
        bound = np.concatenate([upper[~exact], -lower[~exact]])
    found = linprog(
        costs,
        A_ub=both,
        b_ub=bound,
        A_eq=matrix[exact] if exact.any() else None,
        b_eq=lower[exact] if exact.any() else None,
        bounds=np.column_stack([np.zeros(len(most)), most]),
        method="highs-ds",
    )
    if found.status == 2:
        return None
    if found.status != 0:
        raise SolverError(f"HiGHS did not solve the assignment program: {found.message}")
    duals = np.zeros(len(lower))
    if exact.any():
        duals[exact] = found.eqlin.marginals
    if not exact.all():
        above, below = np.split(found.ineqlin.marginals, 2)
        duals[~exact] = above - below
    return np.clip(found.x, 0.0, most), duals
