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
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.program import Program
from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.parallel import Workers, tiles
from clustersplit_cli.errors import SolverError

if TYPE_CHECKING:
    from clustersplit_cli.core.assignment.pulp_model import Branching, Model, Row

INTEGRALITY_TOLERANCE = 1e-6
SIDE_BY_SIDE = 4096
"""Variables in a file that programs share: up to about here CBC takes longer to start than to solve them."""


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


class RelaxedProgram:
    """A linear program, stated once and solved for the costs of many columns.

    CBC is a process of its own, and starting it takes longer than solving a small program. So the programs
    of several columns go into one file, as blocks that have no variable and no constraint in common.

    Parameters
    ----------
    fixed : (n,) 1 and 0 where the value is known, -1 elsewhere.
    presolve : whether CBC should look for something to simplify first.
    """

    def __init__(self, rows: Sequence[Row], fixed: NDArray[np.int64], *, presolve: bool = True) -> None:
        self._rows, self._fixed, self._presolve = rows, fixed, presolve
        self._models = {1: self._stated(1)}

    def solve(self, costs: NDArray[Any], workers: Workers | None = None) -> NDArray[np.float64]:
        """Minimise the cost of every column of costs (n, r); return the values (n, r).

        Raises
        ------
        SolverError
            When CBC fails or does not prove optimality.
        """
        # CBC's tolerances are absolute: bring the columns to a common scale.
        largest = np.abs(costs).max(axis=0, initial=0.0)
        scaled = (costs / np.where(largest > 0, largest, 1.0)).T
        # The files depend on the data alone, not on the number of workers.
        files = [
            (scaled[start:stop], self._with_blocks(stop - start))
            for start, stop in tiles(len(scaled), max(1, SIDE_BY_SIDE // max(1, scaled.shape[1])))
        ]
        solve = partial(_solve_file, presolve=self._presolve)
        solved = map(solve, files) if workers is None else workers.map(solve, files)
        values: NDArray[np.float64] = np.concatenate(list(solved)).T
        return values

    def _with_blocks(self, wanted: int) -> Model:
        """The file for so many columns, or up to twice as many: few sizes are stated, each once."""
        blocks = 1 << (wanted - 1).bit_length()
        if blocks not in self._models:
            self._models[blocks] = self._stated(blocks)
        return self._models[blocks]

    def _stated(self, blocks: int) -> Model:
        n = len(self._fixed)
        rows = [
            (members + block * n, weights, low, high)
            for block in range(blocks)
            for members, weights, low, high in self._rows
        ]
        return _model(rows, np.tile(self._fixed, blocks))


def _solve_file(file: tuple[NDArray[Any], Model], presolve: bool) -> NDArray[np.float64]:
    """Solve the programs of one file, whose costs are (r, n); return their values (r, n)."""
    costs, model = file
    r, n = costs.shape
    padded = np.zeros(model.n)
    padded[: r * n] = costs.reshape(-1)
    return model.solve(padded, presolve=presolve)[0][: r * n].reshape(r, n)


def _are_integers(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether every column is whole-numbered."""
    return np.asarray(np.abs(values - np.round(values)).max(axis=0, initial=0.0) <= INTEGRALITY_TOLERANCE)


class AssignmentProgram:
    """The assignment step of separate cells, stated once and solved for one cost after another.

    Minimise the cost of the chosen rows, `lower <= rows chosen per cell <= upper`, 0 <= u <= 1. There is one
    variable per row: the paper's second column is 1 - u.
    """

    def __init__(self, constraints: ValidationQuotas) -> None:
        members = np.split(constraints.cells.order, constraints.cells.offsets[1:-1])
        rows = [
            (rows, np.ones(len(rows), np.int64), int(low), int(high))
            for rows, low, high in zip(members, constraints.lower, constraints.upper, strict=True)
        ]
        # Every column has but one entry: there is nothing to simplify.
        self._program = RelaxedProgram(rows, np.full(constraints.n, -1, np.int64), presolve=False)

    def solve(self, costs: NDArray[Any]) -> LPSolution:
        """Solve it relaxed for costs of shape (n,).

        Raises
        ------
        SolverError
            When CBC fails or does not prove optimality.
        """
        values = self._program.solve(costs[:, None])
        cost = float(np.asarray(costs, dtype=np.float64) @ values[:, 0])
        return LPSolution("optimal", values[:, 0] > 0.5, bool(_are_integers(values)[0]), cost)

    def choose(self, costs: NDArray[Any], workers: Workers) -> NDArray[np.bool_]:
        """Solve it relaxed for every column of costs (n, r)."""
        return self._program.solve(costs, workers) > 0.5


def solve_program(
    costs: NDArray[Any],
    program: Program,
    *,
    present: NDArray[np.bool_] | None = None,
    gap: float = 0.0,
    seconds: float | None = None,
    enough: float = np.inf,
) -> LPSolution:
    """Minimise the cost of the chosen units; relaxed first, with integer variables if that ends in fractions.

    Parameters
    ----------
    present : a choice for branch and bound to begin from.
    enough : where no choice can cost less than this, by how much does not matter.
    gap, seconds : when branch and bound may stop.
    """
    rows = _rows_of(program)
    values = RelaxedProgram(rows, program.fixed).solve(costs[:, None])
    cost = float(np.asarray(costs, dtype=np.float64) @ values[:, 0])
    if _are_integers(values)[0]:
        return LPSolution("optimal", values[:, 0] > 0.5, True, cost)
    if present is not None and cost >= enough:
        return LPSolution("no cheaper", present, True, cost)
    return _branch(costs, cost, program, rows, present, gap, seconds)


def _rows_of(program: Program) -> list[Row]:
    matrix = program.matrix
    spans = zip(matrix.indptr[:-1], matrix.indptr[1:], program.lower, program.upper, strict=True)
    return [
        (matrix.indices[first:last], matrix.data[first:last], int(low), int(high))
        for first, last, low, high in spans
    ]


def _branch(
    costs: NDArray[Any],
    relaxed: float,
    program: Program,
    rows: Sequence[Row],
    present: NDArray[np.bool_] | None,
    gap: float,
    seconds: float | None,
) -> LPSolution:
    """Solve a program with integer variables, whose relaxed solution is fractional and costs `relaxed`."""
    from clustersplit_cli.core.assignment.pulp_model import Branching

    search = Branching(present, gap, seconds)
    found, best = _model(rows, program.fixed, search).branch(costs)
    if found is None:
        if present is None:
            raise SolverError(
                "CBC found no choice that meets the constraints in time", hint="allow more with --tolerance"
            )
        return LPSolution("stopped early", present, True, relaxed, True)
    status = "stopped early" if search.stopped_early else "optimal"
    # With a gap allowed CBC calls a solution optimal that need not be the best: the relaxed bound is sure.
    bound = best if status == "optimal" and gap == 0 else relaxed
    return LPSolution(status, found > 0.5, True, bound, True)


TransportCell = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""The rows of a cell, (m,), and the least and most of them that each part takes, (k,)."""


def solve_transport(
    costs: NDArray[np.float64], cells: Sequence[TransportCell], workers: Workers | None = None
) -> tuple[NDArray[np.int64], bool]:
    """Assign the rows of every cell to parts, relaxed; the constraint matrix is totally unimodular.

    Parameters
    ----------
    costs : (r, n, k), of r independent assignments.

    Returns
    -------
    The part of every row, (r, n), -1 for rows of no cell; and whether all solutions were whole-numbered.
    """
    r, n, k = costs.shape

    def one_file(some: Sequence[TransportCell]) -> bool:
        rows = np.concatenate([cell[0] for cell in some])
        # Costs that all parts of a row share change nothing, and would make CBC's tolerances coarse.
        relative = costs[:, rows] - costs[:, rows].min(axis=2, keepdims=True)
        place = np.arange(len(rows) * k).reshape(-1, k)
        ones = np.ones(place.size, np.int64)
        limits = [(place[row], ones[:k], 1, 1) for row in range(len(rows))]
        first = 0
        for members, lower, upper in some:
            span = slice(first, first + len(members))
            first = span.stop
            for part in range(k):
                limits.append((place[span, part], ones[: len(members)], int(lower[part]), int(upper[part])))
            largest = relative[:, span].max(axis=(1, 2), keepdims=True, initial=0.0)
            relative[:, span] /= np.where(largest > 0, largest, 1.0)
        program = RelaxedProgram(limits, np.full(place.size, -1, np.int64))
        values = program.solve(relative.reshape(r, -1).T)
        labels[:, rows] = values.T.reshape(r, -1, k).argmax(axis=2)
        return bool(_are_integers(values).all())

    labels = np.full((r, n), -1, np.int64)
    files = _in_files(cells, k)
    are_whole = map(one_file, files) if workers is None else workers.map(one_file, files)
    return labels, all(list(are_whole))


def _in_files(cells: Sequence[TransportCell], k: int) -> list[list[TransportCell]]:
    """Cells that share a file, in order: as many as are small together."""
    files: list[list[TransportCell]] = []
    size = 0
    for cell in cells:
        size += k * len(cell[0])
        if size > SIDE_BY_SIDE or not files:
            files.append([])
            size = k * len(cell[0])
        files[-1].append(cell)
    return files


def _model(rows: Sequence[Row], fixed: NDArray[np.int64], search: Branching | None = None) -> Model:
    from clustersplit_cli.core.assignment.pulp_model import Model  # pulp takes a while to import

    return Model(find_cbc(), rows, fixed, search)


@dataclass(frozen=True)
class CBCAssigner:
    """The assignment step through PuLP and CBC, a program of its own for every column of costs."""

    constraints: ValidationQuotas
    workers: Workers

    def on(self, constraints: ValidationQuotas) -> CBCAssigner:
        """CBC for other constraints."""
        return CBCAssigner(constraints, self.workers)

    def choose(self, costs: NDArray[Any], present: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """Solve the programs of all columns."""
        return self._program.choose(costs, self.workers)

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
        """Solve the programs of all columns relaxed, and those with integers that end in fractions."""
        rows, relaxed = self._relaxed
        values = relaxed.solve(costs, self.workers)
        least = np.einsum("ij,ij->j", costs, values, dtype=np.float64)

        def whole(run: int) -> NDArray[np.bool_]:
            start = None if present is None else present[:, run]
            cost = float(least[run])
            return _branch(costs[:, run], cost, self.program, rows, start, self.gap, self.seconds).chosen

        chosen = values > 0.5
        fractional = np.flatnonzero(~_are_integers(values)).tolist()
        for run, found in zip(fractional, self.workers.map(whole, fractional), strict=True):
            chosen[:, run] = found
        return chosen

    @cached_property
    def _relaxed(self) -> tuple[list[Row], RelaxedProgram]:
        rows = _rows_of(self.program)
        return rows, RelaxedProgram(rows, self.program.fixed)
