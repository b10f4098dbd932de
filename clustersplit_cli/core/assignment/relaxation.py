"""The relaxed assignment program: solved on few of the atoms, whose duals prove the others rightly fixed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.program import Program
from clustersplit_cli.errors import SolverError

DIRECT = 1200
"""Up to this many free atoms the relaxed program is solved whole."""
CHUNKS = 24
"""Pieces that each class of atoms is cut into for a first guess of the duals."""
NEAR = 400
"""Atoms of smallest reduced cost that are left free at first."""
ZERO = 1e-9
"""Reduced costs below this, on costs scaled to 1, are rounding."""


def relax(
    program: Program, costs: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Solve the relaxed program; return the values of all atoms and the duals of all cells."""
    free = program.free
    duals = guess = np.zeros(len(program.lower))
    open_atoms = free
    if len(free) > DIRECT:
        found = _guess_duals(program, costs)
        if found is None:
            return None
        guess = found
        reduced = (costs - program.by_atom @ guess)[free]
        open_atoms = free[np.argsort(np.abs(reduced), kind="stable")[:NEAR]]
        values[free] = reduced < 0
    while True:
        values[open_atoms] = 0.0
        rest = program.columns @ values
        solution = _linear(
            costs[open_atoms],
            program.columns[:, open_atoms],
            program.lower - rest,
            program.upper - rest,
            np.ones(len(open_atoms)),
        )
        if solution is None and len(open_atoms) == len(free):
            return None
        if solution is not None:
            values[open_atoms], duals = solution
            if len(open_atoms) == len(free):
                return values, duals
        reduced = (costs - program.by_atom @ (duals if solution is not None else guess))[free]
        is_open = np.zeros(len(program.fixed), dtype=bool)
        is_open[open_atoms] = True
        shut = ~is_open[free]
        wrong = shut & np.where(values[free] > 0.5, reduced > ZERO, reduced < -ZERO)
        if solution is not None and not wrong.any():
            return values, duals
        # Those that the duals want otherwise, and as many of the undecided as there are open ones.
        near = free[shut][np.argsort(np.abs(reduced[shut]), kind="stable")[: len(open_atoms)]]
        open_atoms = np.union1d(open_atoms, np.union1d(free[wrong], near))


def _guess_duals(program: Program, costs: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Solve the program for chunks of like atoms of like cost, which is small; None if it cannot be met."""
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
