"""The assignment step as a linear program for PuLP and CBC.

With up to two families of cells the constraint matrix is totally unimodular: the binary program is solved
with its variables relaxed to [0, 1] and still ends in integers. Otherwise integer variables are asked for
where the relaxed program ends in fractions.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Constraints
from clustersplit_cli.core.constraints.program import Program
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.errors import SolverError

if TYPE_CHECKING:
    from clustersplit_cli.core.assignment.pulp_model import Branching, Model, Row

INTEGRALITY_TOLERANCE = 1e-6


@lru_cache(maxsize=1)
def find_cbc() -> str:
    """Locate CBC: `CLUSTERSPLIT_CBC` if set, the binary that `pulp[cbc]` installs, or one on the path."""
    cure = "install it with: pip install 'pulp[cbc]'"
    named = os.environ.get("CLUSTERSPLIT_CBC")
    if named:
        found = shutil.which(named)
        if found is None:
            raise SolverError(f"CLUSTERSPLIT_CBC={named} is not an executable file", hint=cure)
        return found
    try:
        import cbcbox

        shipped = shutil.which(cbcbox.cbc_bin_path())
    except ImportError:
        shipped = None
    found = shipped or shutil.which("cbc")
    if found is None:
        raise SolverError("no CBC binary was found", hint=f"{cure}, or use --certify never")
    return found


@lru_cache(maxsize=1)
def cbc_version() -> str | None:
    """Ask the binary for its version; None if there is no binary or it does not say."""
    try:
        answer = subprocess.run(
            [find_cbc(), "-quit"], capture_output=True, text=True, timeout=20, check=False
        )
    except (SolverError, OSError, subprocess.TimeoutExpired):
        return None
    # Releases say `Version: 2.10.12`, builds from the repository `CBC devel (git:146ce89)`.
    match = re.search(r"Version:\s+(\S+)|^CBC\s+(\S+(?: \(\S+\))?)", answer.stdout, re.MULTILINE)
    return (match[1] or match[2]) if match else None


@dataclass(frozen=True)
class LPSolution:
    """What CBC returned for one assignment program.

    Attributes
    ----------
    status : `optimal`, or `stopped early` if time ran out on an integer program.
    integral : whether the solution is whole-numbered.
    bound : no choice costs less.
    branched : whether integer variables had to be asked for.
    """

    status: str
    chosen: NDArray[np.bool_]
    integral: bool
    bound: float
    branched: bool = False


class AssignmentProgram:
    """The assignment step of separate cells, stated once and solved for one cost after another.

    Minimise the cost of the chosen rows, `lower <= rows chosen per cell <= upper`, 0 <= u <= 1. There is one
    variable per row: the paper's second column is 1 - u.
    """

    def __init__(self, constraints: Constraints) -> None:
        members = np.split(constraints.order, constraints.offsets[1:-1])
        rows = [
            (rows, np.ones(len(rows), np.int64), int(low), int(high))
            for rows, low, high in zip(members, constraints.lower, constraints.upper, strict=True)
        ]
        self._model = _model(rows, np.full(constraints.n, -1, np.int8))

    def solve(self, costs: NDArray[Any]) -> LPSolution:
        """Solve it relaxed.

        Raises
        ------
        SolverError
            When CBC fails or does not prove optimality.
        """
        # Every column has but one entry: there is nothing to simplify.
        values, cost = self._model.solve(costs, presolve=False)
        distance = float(np.abs(values - np.round(values)).max(initial=0.0))
        return LPSolution("optimal", values > 0.5, distance <= INTEGRALITY_TOLERANCE, cost)


def solve_program(
    costs: NDArray[Any],
    program: Program,
    *,
    present: NDArray[np.bool_] | None = None,
    gap: float = 0.0,
    seconds: float | None = None,
) -> LPSolution:
    """Minimise the cost of the chosen atoms; relaxed first, with integer variables if that ends in fractions.

    Parameters
    ----------
    present : a choice for branch and bound to begin from.
    gap, seconds : when branch and bound may stop.
    """
    matrix = program.matrix
    spans = zip(matrix.indptr[:-1], matrix.indptr[1:], program.lower, program.upper, strict=True)
    rows = [
        (matrix.indices[first:last], matrix.data[first:last], int(low), int(high))
        for first, last, low, high in spans
    ]
    values, cost = _model(rows, program.fixed).solve(costs)
    if np.abs(values - np.round(values)).max(initial=0.0) <= INTEGRALITY_TOLERANCE:
        return LPSolution("optimal", values > 0.5, True, cost)
    from clustersplit_cli.core.assignment.pulp_model import Branching

    search = Branching(present, gap, seconds)
    found, best = _model(rows, program.fixed, search).branch(costs)
    if found is None:
        if present is None:
            raise SolverError(
                "CBC found no choice that meets the constraints in time", hint="allow more with --tolerance"
            )
        return LPSolution("stopped early", present, True, cost, True)
    status = "stopped early" if search.stopped_early else "optimal"
    # With a gap allowed CBC calls a solution optimal that need not be the best: the relaxed bound is sure.
    bound = best if status == "optimal" and gap == 0 else cost
    return LPSolution(status, found > 0.5, True, bound, True)


def solve_transport(
    costs: NDArray[np.float64], lower: NDArray[np.int64], upper: NDArray[np.int64]
) -> tuple[NDArray[np.int64], bool]:
    """Assign the rows of a cell to parts, relaxed; the constraint matrix is totally unimodular.

    Parameters
    ----------
    costs : (m, k)
    lower, upper : (k,), bounds on the rows of each part.

    Returns
    -------
    The part of every row, and whether the solution was whole-numbered.
    """
    m, k = costs.shape
    place = np.arange(m * k).reshape(m, k)
    one = np.ones(max(m, k), np.int64)
    rows = [(place[row], one[:k], 1, 1) for row in range(m)]
    rows += [(place[:, part], one[:m], int(lower[part]), int(upper[part])) for part in range(k)]
    # Costs that all parts of a row share change nothing, and would make CBC's tolerances coarse.
    relative = (costs - costs.min(axis=1)[:, None]).reshape(-1)
    values, _ = _model(rows, np.full(m * k, -1, np.int8)).solve(relative)
    distance = float(np.abs(values - np.round(values)).max(initial=0.0))
    return values.reshape(m, k).argmax(axis=1), distance <= INTEGRALITY_TOLERANCE


def _model(rows: Sequence[Row], fixed: NDArray[np.int8], search: Branching | None = None) -> Model:
    from clustersplit_cli.core.assignment.pulp_model import Model  # pulp takes a while to import

    return Model(find_cbc(), rows, fixed, search)


@dataclass(frozen=True)
class CBCAssigner:
    """The assignment step through PuLP and CBC, one program per column of costs."""

    constraints: Constraints
    workers: Workers

    def choose(self, costs: NDArray[Any], present: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """Solve the columns side by side; each CBC is a process of its own."""
        program = self._program
        columns = [costs[:, run] for run in range(costs.shape[1])]
        return np.stack(list(self.workers.map(lambda column: program.solve(column).chosen, columns)), axis=1)

    @cached_property
    def _program(self) -> AssignmentProgram:
        return AssignmentProgram(self.constraints)


@dataclass(frozen=True)
class CBCProgramAssigner:
    """The assignment step of constraints that do not separate, through PuLP and CBC."""

    program: Program
    workers: Workers
    gap: float
    seconds: float | None

    def choose(self, costs: NDArray[Any], present: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """Solve the columns side by side; each CBC is a process of its own."""

        def one(run: int) -> NDArray[np.bool_]:
            start = None if present is None else present[:, run]
            return solve_program(
                costs[:, run], self.program, present=start, gap=self.gap, seconds=self.seconds
            ).chosen

        return np.stack(list(self.workers.map(one, range(costs.shape[1]))), axis=1)
