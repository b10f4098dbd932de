"""Everything a split must meet: families of cells, rows forced to a side, units that stay together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints import Cells, Constraints, bounded, make_constraints, round_half_up
from clustersplit_cli.core.feasibility import Demand, find_counts, find_tolerance
from clustersplit_cli.core.infeasible import explain
from clustersplit_cli.core.program import Program, column_classes
from clustersplit_cli.core.tolerances import Tolerance
from clustersplit_cli.errors import InfeasibleError

FREE, TRAIN, VAL = -1, 0, 1
EXTRA = 100.0
"""What a quota that is neither its share rounded down nor up costs, against at most 1 for those."""


@dataclass(frozen=True)
class Requirements:
    """What the user asked for, in the form that reports show and that solvers take.

    Attributes
    ----------
    families : for each family its cells with their quotas and bounds.
    pinned : (n,) -1 for a free row, 0 and 1 for a row forced into training or validation.
    units : (n,) the unit of every row; None if rows are on their own.
    rounding : how quotas were rounded.
    tolerance : of the cells without one of their own.
    tolerance_proven : whether a tolerance that was to be found is known to be the smallest; None if given.
    counts : atoms to choose of each class of the program, meeting all bounds; None if the cells separate.
    """

    families: tuple[Constraints, ...]
    pinned: NDArray[np.int8]
    units: NDArray[np.int64] | None
    rounding: str
    tolerance: Fraction
    tolerance_proven: bool | None
    counts: NDArray[np.int64] | None

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.pinned)

    @property
    def separates(self) -> bool:
        """Whether every cell can be decided on its own."""
        return len(self.families) == 1 and self.units is None

    @property
    def is_unimodular(self) -> bool:
        """Whether the relaxed assignment program ends in integers by itself: up to two families of rows."""
        return len(self.families) <= 2 and self.units is None

    @property
    def n_atoms(self) -> int:
        """Rows, or units."""
        return self.n if self.units is None else int(self.units.max()) + 1

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Rows of every atom."""
        return np.ones(self.n, np.int64) if self.units is None else np.bincount(self.units)

    @cached_property
    def program(self) -> Program:
        """The assignment step over rows, or units, as a program for solvers."""
        lower = np.concatenate([family.lower for family in self.families])
        upper = np.concatenate([family.upper for family in self.families])
        matrix = composition([family.cells for family in self.families], self.units)
        if not any(f.lower.sum() > 0 and f.upper.sum() < self.n for f in self.families):
            from scipy import sparse

            # No side may be empty, whatever the tolerances allow.
            matrix = sparse.vstack([matrix, sparse.csr_matrix(self.sizes[None, :])]).tocsr()
            lower, upper = np.append(lower, 1), np.append(upper, self.n - 1)
        return Program(matrix, lower, upper, atoms_pinned(self.pinned, self.units))

    @cached_property
    def working(self) -> Constraints:
        """Cells of rows that can be exchanged without breaking a bound, and how many of each to choose.

        With one family these are its own cells, apart from rows that are forced to a side; with several
        they are the joint cells, at counts that meet all families' bounds.
        """
        cells = self._refined()
        free = cells.pins == FREE
        if self.separates:
            family = self.families[0]
            taken = np.bincount(family.cells.codes[self.pinned == VAL], minlength=len(family.target))[
                cells.parents
            ]
            size = cells.sizes
            lower, target, upper = (
                np.where(free, np.clip(bound[cells.parents] - taken, 0, size), (cells.pins == VAL) * size)
                for bound in (family.lower, family.target, family.upper)
            )
            return bounded(cells.cells, target, lower, upper)
        assert self.units is None and self.counts is not None
        classes = self.program.classes
        target = np.where(free, self.counts[classes[cells.examples]], (cells.pins == VAL) * cells.sizes)
        return bounded(cells.cells, target, target, target)

    def _refined(self) -> _Refined:
        """Joint cells of all families, apart by what is forced."""
        combined = np.zeros(self.n, dtype=np.int64)
        for family in self.families:
            combined = combined * len(family.target) + family.cells.codes
            combined = np.unique(combined, return_inverse=True)[1].reshape(self.n)
        if (self.pinned == FREE).all() and len(self.families) == 1:
            combined = self.families[0].cells.codes
        else:
            combined = np.unique(combined * 3 + (self.pinned + 1), return_inverse=True)[1].reshape(self.n)
        n_cells = int(combined.max()) + 1
        examples = np.empty(n_cells, dtype=np.int64)
        examples[combined[::-1]] = np.arange(self.n - 1, -1, -1)
        names = tuple(
            {
                word: value
                for family in self.families
                for word, value in family.cells.names[family.cells.codes[row]].items()
            }
            for row in examples.tolist()
        )
        sizes = np.bincount(combined, minlength=n_cells)
        return _Refined(
            Cells(combined.astype(np.int64), names, sizes),
            self.families[0].cells.codes[examples],
            self.pinned[examples],
            examples,
        )

    def is_met_by(self, members: NDArray[np.bool_]) -> bool:
        """Whether a split of the rows meets everything."""
        if self.units is not None:
            inside = np.bincount(self.units[members], minlength=self.n_atoms)
            if not np.isin(inside, (0,)).any() and not (inside == self.sizes).all():
                return False
            if ((inside != 0) & (inside != self.sizes)).any():
                return False
        kept = (self.pinned == FREE) | (self.pinned == members)
        within = all(
            bool(((family.counts(members) >= family.lower) & (family.counts(members) <= family.upper)).all())
            for family in self.families
        )
        return bool(kept.all()) and within


@dataclass(frozen=True)
class _Refined:
    """Cells, and for each: its cell in the first family, what its rows are forced to, one of its rows."""

    cells: Cells
    parents: NDArray[np.int64]
    pins: NDArray[np.int8]
    examples: NDArray[np.int64]

    @property
    def sizes(self) -> NDArray[np.int64]:
        return self.cells.sizes


def composition(families: Sequence[Cells], units: NDArray[np.int64] | None) -> Any:
    """How many rows of each cell, all families one below the other, an atom has: sparse (cells, atoms)."""
    from scipy import sparse

    n = len(families[0].codes)
    atoms = np.arange(n) if units is None else units
    n_atoms = int(atoms.max()) + 1
    blocks = [
        sparse.csr_matrix((np.ones(n, np.int64), (cells.codes, atoms)), shape=(len(cells.sizes), n_atoms))
        for cells in families
    ]
    matrix = sparse.vstack(blocks).tocsr()
    matrix.sum_duplicates()
    return matrix


def atoms_pinned(pinned: NDArray[np.int8], units: NDArray[np.int64] | None) -> NDArray[np.int8]:
    """What each atom is forced to; a unit goes where any of its rows is forced to.

    Raises
    ------
    InfeasibleError
        If a unit has rows that are forced to both sides.
    """
    if units is None:
        return pinned
    n_units = int(units.max()) + 1
    to_val = np.bincount(units[pinned == VAL], minlength=n_units) > 0
    to_train = np.bincount(units[pinned == TRAIN], minlength=n_units) > 0
    torn = np.flatnonzero(to_val & to_train)
    if len(torn):
        rows = [int(np.flatnonzero((units == torn[0]) & (pinned == side))[0]) for side in (TRAIN, VAL)]
        raise InfeasibleError(
            f"{len(torn)} unit{'s' * (len(torn) > 1)} that must stay together have rows forced to both sides,"
            f" such as row {rows[0]} to training and row {rows[1]} to validation",
            hint="force all of a unit's rows to the same side",
        )
    return np.where(to_val, VAL, np.where(to_train, TRAIN, FREE)).astype(np.int8)


def make_requirements(
    families: Sequence[Cells],
    holdout: Fraction,
    tolerance: Tolerance,
    rounding: str | None = None,
    pinned: NDArray[np.int8] | None = None,
    units: NDArray[np.int64] | None = None,
) -> Requirements:
    """Give every cell of every family its share, and make sure that all of it can be met at once.

    Parameters
    ----------
    rounding : None for the default: `nearest` for one family, `balanced` for several: totals must agree.

    Raises
    ------
    InfeasibleError
        Naming a minimal set of cells that exclude each other, and the smallest change that helps.
    """
    n = len(families[0].codes)
    pins = np.full(n, FREE, np.int8) if pinned is None else pinned
    how = rounding or ("nearest" if len(families) == 1 else "balanced")
    targets = _joint_targets(families, holdout) if how == "balanced" and len(families) > 1 else None

    def limits(general: Fraction) -> tuple[Constraints, ...]:
        each = tolerance.of_cells(families, general)
        return tuple(
            _with_targets(cells, holdout, allowed, how, None if targets is None else targets[family])
            for family, (cells, allowed) in enumerate(zip(families, each, strict=True))
        )

    general = tolerance.general if tolerance.general is not None else Fraction(0)
    bounds_at = limits(general)
    proven: bool | None = None
    if len(families) == 1 and units is None and (pins == FREE).all():
        return Requirements(bounds_at, pins, None, how, general, True if tolerance.is_auto else None, None)
    is_open = (
        np.concatenate([[allowed is None for allowed in each] for each in tolerance.of_cells(families)])
        if tolerance.is_auto
        else np.zeros(sum(len(cells.sizes) for cells in families), dtype=bool)
    )
    demand = _demand(families, bounds_at, pins, units)
    sizes = [int(size) for cells in families for size in cells.sizes]
    counts = find_counts(demand, _goal(demand, families, holdout, units))
    if counts is None and tolerance.is_auto:
        found = find_tolerance(demand, sizes, holdout, is_open)
        if found is not None:
            general, proven = found.value, found.proven
            bounds_at = limits(general)
            demand = _demand(families, bounds_at, pins, units)
            counts = find_counts(demand, _goal(demand, families, holdout, units))
    elif tolerance.is_auto:
        proven = True
    if counts is None:
        raise explain(demand, families, holdout, with_units=units is not None, rounding=how)
    return Requirements(bounds_at, pins, units, how, general, proven, counts)


def _with_targets(
    cells: Cells,
    holdout: Fraction,
    tolerance: Sequence[Fraction | None],
    rounding: str,
    target: NDArray[np.int64] | None,
) -> Constraints:
    """Bounds around given targets, or around the cells' own rounded shares."""
    each = [allowed if allowed is not None else Fraction(0) for allowed in tolerance]
    limits = make_constraints(cells, holdout, each, rounding)
    if target is None:
        return limits
    exact = np.array([allowed == 0 for allowed in each])
    plain = make_constraints(cells, holdout, each, "nearest") if not exact.all() else limits
    lower = np.where(exact, target, np.minimum(plain.lower, target))
    upper = np.where(exact, target, np.maximum(plain.upper, target))
    return bounded(cells, target, lower, upper)


def _demand(
    families: Sequence[Cells],
    limits: Sequence[Constraints],
    pins: NDArray[np.int8],
    units: NDArray[np.int64] | None,
) -> Demand:
    """The bounds over classes of atoms, in the order of the program's classes."""
    matrix = composition(families, units)
    fixed = atoms_pinned(pins, units)
    classes = column_classes(matrix.tocsc())
    n_classes = int(classes.max()) + 1
    examples = np.empty(n_classes, dtype=np.int64)
    examples[classes[::-1]] = np.arange(len(classes) - 1, -1, -1)
    return Demand(
        matrix.tocsc()[:, examples].tocsr(),
        np.bincount(classes[fixed == FREE], minlength=n_classes),
        matrix @ (fixed == VAL).astype(np.int64),
        np.concatenate([family.lower for family in limits]),
        np.concatenate([family.upper for family in limits]),
    )


def _goal(
    demand: Demand, families: Sequence[Cells], holdout: Fraction, units: NDArray[np.int64] | None
) -> NDArray[np.float64] | None:
    """Every class's own share; units come in too many classes for that."""
    return None if units is not None else np.asarray(float(holdout) * demand.available, dtype=np.float64)


def _joint_targets(families: Sequence[Cells], holdout: Fraction) -> list[NDArray[np.int64]]:
    """Round the shares of several families so that all quotas can be met at once, as near as possible.

    With two families every quota is its share rounded down or up and the total is the rounded total:
    the unrounded shares meet such bounds, and the program over joint cells is totally unimodular.
    """
    from scipy import sparse
    from scipy.optimize import Bounds, LinearConstraint, milp

    matrix = composition(families, None)
    classes = column_classes(matrix.tocsc())
    available = np.bincount(classes)
    examples = np.unique(classes, return_index=True)[1]
    joint = matrix.tocsc()[:, examples].tocsr()
    n_cells, n_classes = joint.shape
    shares = [holdout * int(size) for cells in families for size in cells.sizes]
    floors = np.array([int(share) for share in shares], dtype=np.float64)
    remainder = np.array([float(share - int(share)) for share in shares])
    one = sparse.identity(n_cells, format="csr")
    # count - up - more + less = floor: rounding up costs what it is farther away than rounding down.
    program = sparse.bmat(
        [
            [joint, -one, -one, one],
            [sparse.csr_matrix(np.ones((1, n_classes))), None, None, None],
        ],
        format="csr",
    )
    total = round_half_up(holdout * len(families[0].codes))
    right = np.append(floors, total)
    found = milp(
        np.concatenate([np.zeros(n_classes), 1.0 - 2.0 * remainder, np.full(2 * n_cells, EXTRA)]),
        integrality=np.ones(program.shape[1]),
        bounds=Bounds(
            np.zeros(program.shape[1]),
            np.concatenate([available, (remainder > 0).astype(np.float64), np.full(2 * n_cells, np.inf)]),
        ),
        constraints=LinearConstraint(program, right, right),
    )
    counts = joint @ np.round(found.x[:n_classes]).astype(np.int64)
    ends = np.cumsum([len(cells.sizes) for cells in families])[:-1]
    return [part.astype(np.int64) for part in np.split(counts, ends)]
