"""From a comparison and a kernel to discrepancies, p-values and witnesses; no words here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import Prepared
from clustersplit_cli.core.mmd.estimators import squared_discrepancies
from clustersplit_cli.core.mmd.permutation import Permuted, permuted_by_factors, permuted_exactly, regroupings
from clustersplit_cli.core.mmd.sums import Factors, GroupSums, exact_sums, factor_sums
from clustersplit_cli.core.mmd.witness import column_shifts, witness
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.errors import InputError
from clustersplit_cli.pipeline.mmd.groups import Comparison, Rows
from clustersplit_cli.progress import Progress, silent


@dataclass(frozen=True)
class Unit:
    """Rows that are compared with each other and with no others: a cell, or everything.

    `parts` names the parts of the comparison that have rows here, `rows` are theirs.
    """

    cell: int | None
    parts: tuple[int, ...]
    rows: tuple[Rows, ...]

    def pair(self, pair: tuple[int, int]) -> tuple[Rows, Rows] | None:
        """The rows of two parts, if both have some."""
        if pair[0] not in self.parts or pair[1] not in self.parts:
            return None
        first, second = (self.rows[self.parts.index(part)] for part in pair)
        return first, second


@dataclass(frozen=True)
class UnitMeasure:
    """Two parts within one unit; `permuted` has the same square in place 0."""

    cell: int | None
    sizes: tuple[int, int]
    squared: float
    permuted: Permuted | None

    @property
    def p_value(self) -> float | None:
        """Of the permutation test, if there was one."""
        return None if self.permuted is None else self.permuted.p_value


@dataclass(frozen=True)
class PairMeasure:
    """Two parts; the square is the mean over units weighted by rows, NaN if it is undefined in all.

    `permuted` is the same mean of regroupings.
    """

    first: int
    second: int
    squared: float
    permuted: Permuted | None
    units: tuple[UnitMeasure, ...]


@dataclass(frozen=True)
class Measured:
    """All pairs, the witness of the main pair at every row (NaN where it has none), and its column shifts."""

    pairs: tuple[PairMeasure, ...]
    witness: NDArray[np.float64] | None
    shifts: NDArray[np.float64] | None


@dataclass(frozen=True)
class Ruler:
    """A kernel on the pool's rows, summed exactly or through factors."""

    features: Features
    prepared: Prepared
    factors: Factors | None
    estimator: str
    workers: Workers

    def sums(self, groups: Sequence[Rows], *, per_row: bool, progress: Progress) -> GroupSums:
        """Sum the kernel between groups."""
        if self.factors is None:
            return exact_sums(
                self.features, self.prepared.kernel, groups, self.workers, per_row=per_row, progress=progress
            )
        return factor_sums(
            self.factors,
            groups,
            self.workers,
            per_row=per_row,
            with_diagonal=self.estimator == "unbiased",
            progress=progress,
        )

    def permuted(
        self, groups: tuple[Rows, Rows], count: int, rng: np.random.Generator, progress: Progress
    ) -> Permuted:
        """Measure `count` regroupings of two groups."""
        draws = regroupings(len(groups[0]), len(groups[1]), count, rng)
        if self.factors is not None:
            return permuted_by_factors(self.factors, groups, draws, self.estimator, self.workers)
        return permuted_exactly(
            self.features, self.prepared.kernel, groups, draws, self.estimator, self.workers, progress
        )


@dataclass(frozen=True)
class Known:
    """What another geometry has measured of the main pair, in place of the ruler's own.

    `sums` replaces a pass over the kernel, `squared` is the main pair's MMD².
    """

    sums: GroupSums | None
    squared: float


def units_of(comparison: Comparison) -> list[Unit]:
    """Cut the parts by cells; cells with rows of one part only have nothing to compare."""
    parts = comparison.parts
    if comparison.cells is None:
        return [Unit(None, tuple(range(len(parts))), tuple(part.rows for part in parts))]
    cells = comparison.cells
    by_part = []
    for part in parts:
        codes = cells.codes[part.rows]
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(cells.names)))
        by_part.append(np.split(part.rows[order], ends[:-1]))
    units = []
    for cell in range(len(cells.names)):
        present = tuple(place for place, rows in enumerate(by_part) if len(rows[cell]))
        if len(present) > 1:
            units.append(Unit(cell, present, tuple(by_part[place][cell] for place in present)))
    return units


def measure(
    comparison: Comparison,
    units: Sequence[Unit],
    ruler: Ruler,
    *,
    permutations: int,
    rng: np.random.Generator,
    known: Known | None = None,
    progress: Progress = silent,
) -> Measured:
    """Compare all pairs of parts, each within every unit where both have rows."""
    main = comparison.main_pair
    values = np.full(len(comparison.features), np.nan) if main is not None else None
    squares: list[NDArray[np.float64]] = []
    for unit in units:
        has_main = main is not None and unit.pair(main) is not None
        sums = known.sums if known is not None and known.sums is not None else None
        if sums is None:
            sums = ruler.sums(unit.rows, per_row=has_main, progress=progress)
        squares.append(_finite(squared_discrepancies(sums, ruler.estimator), sums))
        if unit.cell is None and sums.diagonal is not None:  # within a cell all rows may be alike
            trace, n = float(sums.diagonal.sum()), int(sums.sizes.sum())
            ruler.prepared.require_digits(trace - float(sums.between.sum()) / n, trace, n)
        if has_main and main is not None and values is not None:
            at = witness(sums, unit.parts.index(main[0]), unit.parts.index(main[1]))
            values[np.concatenate(unit.rows)] = at
    streams = iter(rng.spawn(len(comparison.pairs) * len(units)))
    found = []
    for pair in comparison.pairs:
        within = []
        for unit, squared in zip(units, squares, strict=True):
            stream, groups = next(streams), unit.pair(pair)
            if groups is None:
                continue
            square = float(squared[unit.parts.index(pair[0]), unit.parts.index(pair[1])])
            if known is not None and pair == main:
                square = known.squared
            tested = permutations > 0 and np.isfinite(square)
            permuted = ruler.permuted(groups, permutations, stream, progress) if tested else None
            within.append(UnitMeasure(unit.cell, (len(groups[0]), len(groups[1])), square, permuted))
        found.append(_combined(pair, within))
    return Measured(tuple(found), values, _shifts(comparison, units, ruler))


def _combined(pair: tuple[int, int], within: Sequence[UnitMeasure]) -> PairMeasure:
    """Average over units; the test is of that average, so all units are regrouped at once."""
    usable = [unit for unit in within if np.isfinite(unit.squared)]
    if not usable:
        return PairMeasure(*pair, float("nan"), None, tuple(within))
    weights = _weights(usable)
    squared = sum(weight * unit.squared for weight, unit in zip(weights, usable, strict=True))
    combined = None
    permuted = [unit.permuted for unit in usable if unit.permuted is not None]
    if permuted:
        together = sum(
            (weight * part.squared for weight, part in zip(weights, permuted, strict=True)),
            np.zeros_like(permuted[0].squared),
        )
        resolution = sum(weight * part.resolution for weight, part in zip(weights, permuted, strict=True))
        combined = Permuted(together, resolution)
    return PairMeasure(*pair, float(squared), combined, tuple(within))


def _weights(units: Sequence[UnitMeasure]) -> list[float]:
    sizes = [sum(unit.sizes) for unit in units]
    return [size / sum(sizes) for size in sizes]


def _shifts(comparison: Comparison, units: Sequence[Unit], ruler: Ruler) -> NDArray[np.float64] | None:
    """Compare the columns of the main pair, within units."""
    main = comparison.main_pair
    if main is None or not comparison.has_scalar_columns:
        return None
    pairs = [groups for unit in units if (groups := unit.pair(main)) is not None]
    if not pairs:
        return None
    sizes = [len(first) + len(second) for first, second in pairs]
    weights = [size / sum(sizes) for size in sizes]
    return column_shifts(Features(comparison.features), pairs, weights, ruler.workers)


def _finite(squared: NDArray[np.float64], sums: GroupSums) -> NDArray[np.float64]:
    """Refuse sums that left the range of numbers; a group too small for its estimator is no such case."""
    if not np.isfinite(sums.between).all():
        raise InputError(
            "the kernel overflows: some rows are too far from those that its width was resolved on",
            hint="use --standardize zscore, another --kernel, or leave those rows out",
        )
    return squared
