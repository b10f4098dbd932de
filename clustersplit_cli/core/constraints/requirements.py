"""Everything a split must meet: families of cells, rows forced to a side, units that stay together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Cells
from clustersplit_cli.core.constraints.families import (
    composition,
    demand_of,
    goal_of,
    joint_targets,
    limits_of,
    units_pinned,
)
from clustersplit_cli.core.constraints.feasibility import (
    explain,
    find_counts,
    find_tolerance,
    nearest_total,
)
from clustersplit_cli.core.constraints.program import Program, column_classes
from clustersplit_cli.core.constraints.quotas import FREE, VAL, Quotas, ValidationQuotas
from clustersplit_cli.core.constraints.tolerance import Tolerance


@dataclass(frozen=True)
class Requirements:
    """What the user asked for, in the form that reports show and that solvers take.

    Attributes
    ----------
    families : for each family its cells with their quotas and bounds; all have the same forced rows.
    units : (n,) the unit of every row; None if rows are on their own.
    rounding : how quotas were rounded.
    tolerance : of the cells without one of their own.
    tolerance_proven : whether a tolerance that was to be found is known to be the smallest; None if given.
    counts : units to choose of each class, meeting all bounds; None if the cells separate.
    total : the least and most validation rows; None if the cells alone decide.
    """

    families: tuple[Quotas, ...]
    units: NDArray[np.int64] | None
    rounding: str
    tolerance: Fraction
    tolerance_proven: bool | None
    counts: NDArray[np.int64] | None
    total: tuple[int, int] | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.families[0].n

    @property
    def pinned(self) -> NDArray[np.int64]:
        """The part that each row is forced into; -1: none."""
        return self.families[0].pinned

    @property
    def separates(self) -> bool:
        """Whether every cell can be decided on its own."""
        return len(self.families) == 1 and self.units is None

    @property
    def is_unimodular(self) -> bool:
        """Whether the relaxed assignment program ends in integers by itself: up to two families of rows."""
        return len(self.families) <= 2 and self.units is None

    @property
    def n_units(self) -> int:
        """Rows, or units."""
        return self.n if self.units is None else int(self.units.max()) + 1

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Rows of every unit."""
        return np.ones(self.n, np.int64) if self.units is None else np.bincount(self.units)

    @cached_property
    def classes(self) -> NDArray[np.int64]:
        """A number per unit, equal where units have as many rows in every cell: what `counts` refers to."""
        return column_classes(composition([family.cells for family in self.families], self.units).tocsc())

    @cached_property
    def program(self) -> Program:
        """The assignment step over rows, or units, as a program for solvers."""
        limits = [family.validation for family in self.families]
        lower = np.concatenate([family.lower for family in limits])
        upper = np.concatenate([family.upper for family in limits])
        matrix = composition([family.cells for family in self.families], self.units)
        has_two_sides = any(f.lower.sum() > 0 and f.upper.sum() < self.n for f in limits)
        least, most = self.total or (1, self.n - 1)
        if len(lower) == 1:
            lower, upper = np.maximum(lower, least), np.minimum(upper, most)
        elif self.total is not None or not has_two_sides:
            from scipy import sparse

            # No side may be empty, whatever the tolerances allow.
            matrix = sparse.vstack([matrix, sparse.csr_matrix(self.sizes[None, :])]).tocsr()
            lower, upper = np.append(lower, least), np.append(upper, most)
        return Program(matrix, lower, upper, units_pinned(self.pinned, self.units))

    @cached_property
    def working(self) -> ValidationQuotas:
        """Cells of rows that can be exchanged without breaking a bound, and how many of each to choose.

        With one family these are its own cells, apart from rows that are forced to a side; with several
        they are the joint cells, at counts that meet all families' bounds.
        """
        cells = self._refined()
        free = cells.pins == FREE
        if self.separates:
            family = self.families[0].validation
            taken = np.bincount(family.cells.codes[self.pinned == VAL], minlength=len(family.target))[
                cells.parents
            ]
            size = cells.sizes
            lower, target, upper = (
                np.where(free, np.clip(bound[cells.parents] - taken, 0, size), (cells.pins == VAL) * size)
                for bound in (family.lower, family.target, family.upper)
            )
            return ValidationQuotas(cells.cells, target, lower, upper)
        assert self.units is None and self.counts is not None
        target = np.where(free, self.counts[self.classes[cells.examples]], (cells.pins == VAL) * cells.sizes)
        return ValidationQuotas.exactly(cells.cells, target)

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
            inside = np.bincount(self.units[members], minlength=self.n_units)
            if ((inside != 0) & (inside != self.sizes)).any():
                return False
        kept = (self.pinned == FREE) | (self.pinned == members)
        within = all(bool(family.within(members).all()) for family in self.families)
        return bool(kept.all()) and within and self.keeps_total(members)

    def keeps_total(self, members: NDArray[np.bool_]) -> bool:
        """Whether a split of the rows has as many validation rows as it may."""
        least, most = self.total or (1, self.n - 1)
        return least <= int(members.sum()) <= most


@dataclass(frozen=True)
class _Refined:
    """Cells, and for each: its cell in the first family, what its rows are forced to, one of its rows."""

    cells: Cells
    parents: NDArray[np.int64]
    pins: NDArray[np.int64]
    examples: NDArray[np.int64]

    @property
    def sizes(self) -> NDArray[np.int64]:
        return self.cells.sizes


def make_requirements(
    families: Sequence[Cells],
    holdout: Fraction,
    tolerance: Tolerance,
    rounding: str | None = None,
    pinned: NDArray[np.integer] | None = None,
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
    pins = np.full(n, FREE, np.int64) if pinned is None else pinned.astype(np.int64)
    how = rounding or ("nearest" if len(families) == 1 else "balanced")
    targets = joint_targets(families, holdout) if how == "balanced" and len(families) > 1 else None

    def limits(general: Fraction) -> tuple[Quotas, ...]:
        each = tolerance.of_cells(families, general)
        return tuple(
            replace(
                limits_of(cells, holdout, allowed, how, None if targets is None else targets[family]),
                pinned=pins,
            )
            for family, (cells, allowed) in enumerate(zip(families, each, strict=True))
        )

    general = tolerance.general if tolerance.general is not None else Fraction(0)
    bounds_at = limits(general)
    proven: bool | None = None
    if len(families) == 1 and units is None and (pins == FREE).all():
        return Requirements(bounds_at, None, how, general, True if tolerance.is_auto else None, None)
    each = [allowed for family in tolerance.of_cells(families) for allowed in family]
    is_open = np.array([allowed is None for allowed in [*each, 0]])
    demand = demand_of(families, bounds_at, pins, units)
    sizes = [*(int(size) for cells in families for size in cells.sizes), n]
    counts = find_counts(demand, goal_of(demand, families, holdout, units))
    if counts is None and tolerance.is_auto:
        found = find_tolerance(demand, sizes, holdout, is_open)
        if found is not None:
            general, proven = found.value, found.proven
            bounds_at = limits(general)
            demand = demand_of(families, bounds_at, pins, units)
            counts = find_counts(demand, goal_of(demand, families, holdout, units))
    elif tolerance.is_auto:
        proven = True
    if counts is None:
        raise explain(demand, families, holdout, with_units=units is not None, rounding=how)
    total = None
    if tolerance.is_auto and (demand.lower < demand.upper)[:-1].any():
        # Tolerances leave room for more rows, or fewer, than were asked for: not more of that than need be.
        total = nearest_total(demand, holdout * n)
    if total is not None:
        lower, upper = demand.lower.copy(), demand.upper.copy()
        lower[-1], upper[-1] = total
        counts = find_counts(demand.within(lower, upper), goal_of(demand, families, holdout, units))
        assert counts is not None  # one with that total was found
    return Requirements(bounds_at, units, how, general, proven, counts, total)
