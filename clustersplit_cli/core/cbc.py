"""The assignment step as a linear program for PuLP and CBC; the only module that imports pulp.

The constraint matrix is totally unimodular, so the binary program is solved with its variables relaxed
to [0, 1] and still ends in integers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints import Constraints
from clustersplit_cli.core.workers import Workers
from clustersplit_cli.errors import SolverError

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
    """What CBC returned for one assignment program."""

    status: str
    chosen: NDArray[np.bool_]
    integral: bool


def solve_assignment(costs: NDArray[Any], constraints: Constraints) -> LPSolution:
    """Minimise the cost of the chosen rows, `lower <= rows chosen per cell <= upper`, 0 <= u <= 1.

    One variable per row: the paper's second column is 1 - u.

    Raises
    ------
    SolverError
        When CBC is missing, fails, or does not prove optimality.
    """
    import pulp

    binary = find_cbc()
    # CBC's tolerances are absolute: bring costs to a common scale.
    scale = float(np.abs(costs).max(initial=0.0)) or 1.0
    program = pulp.LpProblem("assignment", pulp.LpMinimize)
    rows = [program.add_variable(f"u{row}", 0, 1) for row in range(len(costs))]
    program += pulp.LpAffineExpression(zip(rows, (costs / scale).tolist(), strict=True))
    for cell in range(len(constraints.target)):
        members = constraints.order[constraints.offsets[cell] : constraints.offsets[cell + 1]]
        count = [(rows[row], 1) for row in members.tolist()]
        low, high = int(constraints.lower[cell]), int(constraints.upper[cell])
        senses = (
            [(pulp.LpConstraintEQ, low)]
            if low == high
            else [(pulp.LpConstraintGE, low), (pulp.LpConstraintLE, high)]
        )
        for sense, bound in senses:
            program += pulp.LpConstraint(pulp.LpAffineExpression(count), sense, rhs=bound)
    with tempfile.TemporaryDirectory(prefix="clustersplit-", dir=_plain_folder()) as folder:
        solver = pulp.COIN_CMD(path=binary, msg=False, threads=1)
        solver.tmpDir = folder
        try:
            program.solve(solver)
        except (pulp.PulpSolverError, OSError) as error:
            raise SolverError(
                f"CBC failed on the assignment program: {error}", hint=f"binary: {binary}"
            ) from error
    # PuLP says "Optimal" even when CBC only ran out of time; the solution status tells them apart.
    if program.status != pulp.LpStatusOptimal or program.sol_status != pulp.LpSolutionOptimal:
        status = pulp.LpStatus[program.status].lower()
        raise SolverError(
            f"CBC did not prove the assignment program optimal (status: {status})", hint=f"binary: {binary}"
        )
    values = np.array([row.varValue or 0.0 for row in rows])
    distance = float(np.abs(values - np.round(values)).max(initial=0.0))
    return LPSolution("optimal", values > 0.5, distance <= INTEGRALITY_TOLERANCE)


def _plain_folder() -> str:
    """A temporary folder whose path has no white space: PuLP splits CBC's command line at spaces."""
    for folder in (tempfile.gettempdir(), "/tmp", "/var/tmp", str(Path.home())):
        if not re.search(r"\s", folder) and os.access(folder, os.W_OK):
            return folder
    raise SolverError(
        f"CBC needs a writable temporary folder without spaces in its path, got '{tempfile.gettempdir()}'",
        hint="set TMPDIR to such a folder",
    )


@dataclass(frozen=True)
class CBCAssigner:
    """The assignment step through PuLP and CBC, one program per column of costs."""

    constraints: Constraints
    workers: Workers

    def choose(self, costs: NDArray[Any]) -> NDArray[np.bool_]:
        """Solve the columns side by side; each CBC is a process of its own."""
        columns = [costs[:, run] for run in range(costs.shape[1])]
        solutions = self.workers.map(
            lambda column: solve_assignment(column, self.constraints).chosen, columns
        )
        return np.stack(list(solutions), axis=1)
