"""The assignment program solved in whole numbers, by HiGHS.

Blocks of cells that share no atoms are solved each on its own. The relaxed program comes first; only if it
ends in fractions is there branch and bound, among the atoms that reduced costs do not decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.knapsack import fill_cell, is_small_cell
from clustersplit_cli.core.assignment.relaxation import relax
from clustersplit_cli.core.assignment.repair import repair
from clustersplit_cli.core.constraints.program import Assignment, Block, Limits, Program

INTEGRALITY = 1e-6
BRANCH = 80
"""Atoms beside the fractional ones that branch and bound begins with."""


def solve(
    program: Program,
    costs: NDArray[Any],
    *,
    present: NDArray[np.bool_] | None = None,
    limits: Limits | None = None,
) -> Assignment | None:
    """Choose atoms at the least total cost.

    Parameters
    ----------
    costs : (atoms,)
    present : a choice that meets the bounds, kept if nothing cheaper is found within the limits.

    Returns
    -------
    None if no choice meets the bounds.
    """
    if program.blocks is not None:
        return _solve_blocks(program.blocks, np.asarray(costs, dtype=np.float64), present, limits)
    return _solve_one(program, np.asarray(costs, dtype=np.float64), present, limits)


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
        own = None if present is None else present[block.atoms]
        solution = _solve_one(block.program, costs[block.atoms], own, limits)
        if solution is None:
            return None
        chosen[block.atoms] = solution.chosen
        found.append(solution)
    return Assignment(
        chosen,
        sum(solution.cost for solution in found),
        sum(solution.bound for solution in found),
        any(solution.branched for solution in found),
        all(solution.proven for solution in found),
        all(solution.settled for solution in found),
    )


def _solve_one(
    program: Program,
    costs: NDArray[np.float64],
    present: NDArray[np.bool_] | None,
    limits: Limits | None,
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
    reduced = scaled - program.by_atom @ duals
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
    """Ask for integers among the atoms whose reduced cost is small, and for more until that proves enough.

    Every choice that differs from the relaxed solution in an atom costs at least that atom's reduced cost
    more. So once a choice costs less than `least` plus the reduced costs of all closed atoms, it is optimal.
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
    settled = False
    while not settled:
        open_atoms = free[np.sort(by_weight[:width])]
        chosen, is_optimal = _integers(program, costs, relaxed, open_atoms, limits)
        if chosen is not None and float(costs @ chosen) < best_cost:
            best, best_cost = chosen, float(costs @ chosen)
        needed = len(free) if best is None else int((weight < best_cost - least).sum())
        near = best is not None and best_cost - least <= limits.gap * abs(least)
        settled = near or (is_optimal and width >= needed and best is not None)
        # Where nodes or time ran out, a larger program would do no better, unless nothing was found at all.
        if width == len(free) or (best is not None and not is_optimal):
            break
        if best is None and not is_optimal:
            limits = Limits(limits.gap, seconds=limits.seconds)
        width = min(len(free), max(2 * width, min(needed, 4 * width)))
    if best is None:
        return None
    proven = settled and limits.gap == 0.0
    bound = best_cost if proven else least
    return Assignment(best, best_cost * scale, bound * scale, True, proven, settled)


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
    open_atoms: NDArray[np.int64],
    limits: Limits,
) -> tuple[NDArray[np.bool_] | None, bool]:
    """Choose among some atoms, the others as in the relaxed solution; say also whether that is settled."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    values = np.round(relaxed)
    values[open_atoms] = 0.0
    rest = program.columns @ values
    options: dict[str, Any] = {"mip_rel_gap": limits.gap}
    if limits.nodes is not None:
        options["node_limit"] = limits.nodes
    if limits.seconds is not None:
        options["time_limit"] = limits.seconds
    found = milp(
        costs[open_atoms],
        integrality=np.ones(len(open_atoms)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(
            program.columns[:, open_atoms], program.lower - rest, program.upper - rest
        ),
        options=options,
    )
    if found.x is None:
        return None, found.status == 2
    values[open_atoms] = np.round(found.x)
    chosen = values > 0.5
    if not program.is_met_by(chosen):  # tolerances of the solver may round to a broken bound
        return None, False
    return chosen, found.status == 0
