"""A linear program as PuLP holds it and CBC solves it; the only module that imports pulp."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import tempfile
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pulp
from numpy.typing import NDArray

from clustersplit_cli.cleanup import temporary_folder
from clustersplit_cli.errors import OutputError, SolverError

_LEAST_ROOM = 1 << 20

Row = tuple[NDArray[np.int64], NDArray[np.int64], int, int]
"""A constraint: units, their weights, and the least and most that the chosen ones may weigh."""


@dataclass
class Branching:
    """Ask for integers, from a choice and within limits; says afterwards whether time ran out."""

    present: NDArray[np.bool_] | None
    gap: float
    seconds: float | None
    stopped_early: bool = False


class Model:
    """Which units to choose: a program without its costs, to be solved for one cost after another."""

    def __init__(
        self, binary: str, rows: Sequence[Row], fixed: NDArray[np.int64], search: Branching | None = None
    ) -> None:
        self._binary, self._search = binary, search
        self._program = _Program()
        kind = pulp.LpContinuous if search is None else pulp.LpInteger
        low, high = np.maximum(fixed, 0).tolist(), np.where(fixed == 0, 0, 1).tolist()
        self._of_units = [
            self._program.add_variable(f"X{unit:07d}", low[unit], high[unit], kind)
            for unit in range(len(fixed))
        ]
        constraints: list[pulp.LpConstraint] = []
        for members, weights, least, most in rows:
            count = [(self._of_units[a], w) for a, w in zip(members.tolist(), weights.tolist(), strict=True)]
            senses = (
                [(pulp.LpConstraintEQ, least)]
                if least == most
                else [(pulp.LpConstraintGE, least), (pulp.LpConstraintLE, most)]
            )
            for sense, bound in senses:
                name = f"C{len(constraints):07d}"
                constraints.append(pulp.LpConstraint(pulp.LpAffineExpression(count), sense, name, bound))
                self._program += constraints[-1]
        self._program.state(self._of_units, constraints)

    @property
    def n(self) -> int:
        """Number of units."""
        return len(self._of_units)

    def solve(self, costs: NDArray[Any], *, presolve: bool = True) -> tuple[NDArray[np.float64], float]:
        """Return the values of a relaxed program, proven optimal, and their cost.

        Parameters
        ----------
        presolve : whether CBC should look for something to simplify first.
        """
        program, proven = self._run(costs, {"mip": False, "presolve": presolve})
        if not proven:
            status = pulp.LpStatus[program.status].lower()
            raise SolverError(
                f"CBC did not prove the assignment program optimal (status: {status})",
                hint=f"binary: {self._binary}",
            )
        return self._values(program, costs)

    def branch(self, costs: NDArray[Any]) -> tuple[NDArray[np.float64] | None, float]:
        """Return integer values and their cost, or None if nothing was found in time."""
        search = self._search
        assert search is not None
        options = {"gapRel": search.gap, "timeLimit": search.seconds, "warmStart": search.present is not None}
        for variable, chosen in zip(
            self._of_units, [] if search.present is None else search.present, strict=False
        ):
            variable.setInitialValue(int(chosen))
        program, proven = self._run(costs, options)
        search.stopped_early = not proven
        if program.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            return None, np.inf
        return self._values(program, costs)

    def _run(self, costs: NDArray[Any], options: dict[str, Any]) -> tuple[_Program, bool]:
        """Let CBC solve the program; return it with what was found, and whether that was proven optimal."""
        program = copy(self._program)  # so that several can be solved at a time
        # CBC's tolerances are absolute: bring costs to a common scale.
        scale = float(np.abs(costs).max(initial=0.0)) or 1.0
        program.set_costs((costs / scale).tolist())
        with temporary_folder(_plain_folder()) as folder:
            solver = _CBC(path=self._binary, msg=False, threads=1, **options)
            solver.tmpDir = folder
            try:
                program.solve(solver)
            except (pulp.PulpSolverError, OSError) as error:
                _check_room(folder, error)
                raise SolverError(
                    f"CBC failed on the assignment program: {error}", hint=f"binary: {self._binary}"
                ) from error
        # PuLP says "Optimal" even when CBC only ran out of time; the solution status tells them apart.
        is_optimal = program.status == pulp.LpStatusOptimal
        return program, bool(is_optimal and program.sol_status == pulp.LpSolutionOptimal)

    def _values(self, program: _Program, costs: NDArray[Any]) -> tuple[NDArray[np.float64], float]:
        values = np.array([program.values.get(variable.name, 0.0) for variable in self._of_units])
        return values, float(np.asarray(costs, dtype=np.float64) @ values)


class _CBC(pulp.COIN_CMD):  # type: ignore[misc]
    """CBC, whose solutions are read without walking over all variables several times."""

    def readsol_MPS(  # noqa: N802
        self,
        filename: str,
        lp: Any,
        vs: Any,
        variablesNames: Any,
        constraintsNames: Sequence[str],
        objectiveName: Any = None,
    ) -> Any:
        """Read what PuLP's own does, but for reduced costs and shadow prices."""
        status, sol_status = self.get_status(filename)
        with Path(filename).open(encoding="utf-8") as file:
            file.readline()
            # Every line has a number, a name, a value and a price, and stars where it is infeasible.
            words = file.read().replace("**", "").split()
        try:
            values = dict(zip(words[1::4], map(float, words[2::4]), strict=True))
        except ValueError as error:
            raise pulp.PulpSolverError("its solution cannot be read") from error
        slacks = {name: values.pop(name, 0.0) for name in constraintsNames}
        return status, values, {}, {}, slacks, sol_status


class _Program(pulp.LpProblem):  # type: ignore[misc]
    """A program of which only the costs change from one solution to the next.

    PuLP walks over all variables several times to state costs, to write CBC's file and to store what CBC
    found, which takes longer than CBC does. Here all of the file but the costs is written once, and the
    values found are kept as they are read.
    """

    def __init__(self) -> None:
        super().__init__("assignment", pulp.LpMinimize)
        self.values: dict[str, float] = {}
        self._pattern = ""

    def state(self, variables: Sequence[pulp.LpVariable], constraints: Sequence[pulp.LpConstraint]) -> None:
        """Prepare the file, once all variables and constraints are there."""
        self._of_units = variables
        self._names = tuple({each.name: each.name for each in some} for some in (variables, constraints))
        self._pattern = _mps_pattern(variables, constraints)
        # PuLP does not solve without an objective; the costs are in the file alone.
        self.setObjective(pulp.LpAffineExpression(variables[0]))

    def set_costs(self, costs: list[float]) -> None:
        """Minimise the units' costs."""
        self._costs = tuple(costs)

    def writeMPS(self, filename: str, *arguments: Any, **options: Any) -> Any:  # noqa: N802
        """Write the file with the present costs; return what PuLP's own does when it renames."""
        Path(filename).write_text(self._pattern % self._costs)
        return self._of_units, *self._names, "OBJ"

    def assignVarsVals(self, values: dict[str, float]) -> None:  # noqa: N802
        """Keep the values as they are."""
        self.values = values

    def assignVarsDj(self, values: dict[str, float]) -> None:  # noqa: N802
        """Reduced costs are of no use here."""


def _mps_pattern(variables: Sequence[pulp.LpVariable], constraints: Sequence[pulp.LpConstraint]) -> str:
    """The program in MPS format, with a place for every unit's cost."""
    senses = {pulp.LpConstraintEQ: "E", pulp.LpConstraintGE: "G", pulp.LpConstraintLE: "L"}
    entries = dict.fromkeys(map(id, variables), "")
    for constraint in constraints:
        called = constraint.name
        for variable, weight in constraint.items():
            entries[id(variable)] += f"    {variable.name}  {called}  {weight}\n"
    columns, bounds = [], []
    for variable in variables:
        name = variable.name
        lines = f"{entries[id(variable)]}    {name}  OBJ  %.12e\n"
        if variable.cat == pulp.LpInteger:
            lines = f"    MARKER  'MARKER'  'INTORG'\n{lines}    MARKER  'MARKER'  'INTEND'\n"
        columns.append(lines)
        # Lower bounds of zero are understood.
        kind = "FX" if variable.lowBound == variable.upBound else "UP"
        bounds.append(f" {kind} BND  {name}  {variable.upBound}\n")
    rows = [f" {senses[constraint.sense]}  {constraint.name}\n" for constraint in constraints]
    right = [f"    RHS  {constraint.name}  {-constraint.constant}\n" for constraint in constraints]
    head = ("NAME  MODEL\nROWS\n N  OBJ\n", *rows, "COLUMNS\n", *columns)
    return "".join((*head, "RHS\n", *right, "BOUNDS\n", *bounds, "ENDATA\n"))


def _check_room(folder: str, error: Exception) -> None:
    """Raise if CBC failed because its files had no room: it dies without a word, Python says which it was."""
    code = error.errno if isinstance(error, OSError) else None
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = max((path.stat().st_size for path in Path(folder).iterdir()), default=0)
    if code == errno.EFBIG or largest >= limit != resource.RLIM_INFINITY:
        raise OutputError(
            f"cannot write CBC's files: they may take no more than {limit} bytes here, the file-size limit",
            hint="raise the limit (ulimit -f)",
        ) from error
    if code in (errno.ENOSPC, errno.EDQUOT) or shutil.disk_usage(folder).free < _LEAST_ROOM:
        raise OutputError(
            f"cannot write CBC's files: no space left in {Path(folder).parent}",
            hint="free some space, or name a folder on another disk with TMPDIR",
        ) from error


def _plain_folder() -> str:
    """A temporary folder whose path has no white space: PuLP splits CBC's command line at spaces."""
    for folder in (tempfile.gettempdir(), "/tmp", "/var/tmp", str(Path.home())):
        if not re.search(r"\s", folder) and os.access(folder, os.W_OK):
            return folder
    raise SolverError(
        f"CBC needs a writable temporary folder without spaces in its path, got '{tempfile.gettempdir()}'",
        hint="set TMPDIR to such a folder",
    )
