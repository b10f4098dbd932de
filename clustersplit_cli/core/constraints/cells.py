"""Cells, their quotas and tolerances, and the one function that rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.errors import InfeasibleError, UsageError

Labels = NDArray[np.int64]
"""The part of every row: shape (n,) for one partition, (n, r) for a batch."""
ROUNDINGS = ("nearest", "balanced")
LARGEST_EXPONENT = 300


def parse_share(text: str, option: str) -> Fraction:
    """Read a decimal exactly: `0.29` is 29/100, not the nearest double.

    >>> parse_share("0.29", "--h")
    Fraction(29, 100)
    """
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("nan")
    # An exponent of a few digits would make a fraction of millions of them.
    exponents = (number.as_tuple().exponent, number.adjusted()) if number.is_finite() else ()
    if not exponents or "_" in text or any(abs(int(size)) > LARGEST_EXPONENT for size in exponents):
        raise UsageError(f"{option} '{text}' is not a number", hint=f"for example {option} 0.2")
    return Fraction(number)


def parse_holdout(text: str) -> Fraction:
    """Read the holdout fraction, strictly between 0 and 1."""
    holdout = parse_share(text, "--h")
    if not 0 < holdout < 1:
        raise UsageError(f"--h must lie strictly between 0 and 1, got {text}", hint="for example --h 0.2")
    return holdout


def parse_tolerance(text: str) -> Fraction:
    """Read the tolerance, relative to h and not negative."""
    tolerance = parse_share(text, "--tolerance")
    if tolerance < 0:
        raise UsageError(f"--tolerance must not be negative, got {text}", hint="0 means exact quotas")
    return tolerance


def round_half_up(value: Fraction) -> int:
    """Round a non-negative fraction, halves away from zero, exactly.

    >>> round_half_up(Fraction(29, 100) * 50)
    15
    """
    return int((2 * value.numerator + value.denominator) // (2 * value.denominator))


@dataclass(frozen=True)
class Cells:
    """A partition of the rows: `codes[i]` is the cell of row i, `names[g]` says what cell g is."""

    codes: NDArray[np.int64]
    names: tuple[Mapping[str, Any], ...]
    sizes: NDArray[np.int64]

    def describe(self, cell: int) -> str:
        """Name one cell in words."""
        return ", ".join(f"{word}={value}" for word, value in self.names[cell].items()) or "all rows"


def joint_cells(columns: Mapping[str, tuple[NDArray[Any], Sequence[Any]]], n: int) -> Cells:
    """Cross the given columns into cells; combinations that never occur are not cells.

    Parameters
    ----------
    columns : word -> (codes of shape (n,), values); none at all makes one cell of all rows.
    n : number of rows.
    """
    combined = np.zeros(n, dtype=np.int64)
    for codes, values in columns.values():
        # Renumbering after each column keeps the product from overflowing with many columns.
        combined = combined * len(values) + codes
        combined = np.unique(combined, return_inverse=True)[1].reshape(n).astype(np.int64)
    n_cells = int(combined.max()) + 1 if n else 0
    example = np.empty(n_cells, dtype=np.int64)
    example[combined[::-1]] = np.arange(n - 1, -1, -1)
    names = tuple(
        {word: values[codes[row]] for word, (codes, values) in columns.items()} for row in example.tolist()
    )
    return Cells(combined, names, np.bincount(combined, minlength=n_cells))


@dataclass(frozen=True)
class Constraints:
    """Cells and how many of each cell's rows may be validation rows: `lower <= count <= upper`.

    `order` lists the rows cell by cell, ascending within a cell; `offsets[g]:offsets[g + 1]` are cell g's.
    """

    cells: Cells
    target: NDArray[np.int64]
    lower: NDArray[np.int64]
    upper: NDArray[np.int64]
    order: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @property
    def n(self) -> int:
        """Number of rows; cells may be known by their sizes alone."""
        return int(self.cells.sizes.sum())

    @cached_property
    def is_grouped(self) -> bool:
        """Whether the rows come cell by cell as they are."""
        return bool((self.order[1:] > self.order[:-1]).all())

    @property
    def is_exact(self) -> bool:
        """Whether every cell's count is fixed."""
        return bool((self.lower == self.upper).all())

    def counts(self, members: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Validation rows per cell."""
        return np.bincount(self.cells.codes[members], minlength=len(self.target))

    def within(self, members: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether each cell's validation rows are within its bounds."""
        counts = self.counts(members)
        return (self.lower <= counts) & (counts <= self.upper)


def make_constraints(
    cells: Cells,
    holdout: Fraction,
    tolerance: Fraction | Sequence[Fraction] = Fraction(0),
    rounding: str = "nearest",
) -> Constraints:
    """Give every cell its share of the holdout.

    Parameters
    ----------
    tolerance : of every cell, or one for all.

    Raises
    ------
    InfeasibleError
        When every cell rounds to no validation rows, or to no training rows.
    """
    sizes = [int(size) for size in cells.sizes]
    share = balanced_quotas if rounding == "balanced" else nearest_quotas
    target = np.array(share(sizes, holdout), dtype=np.int64)
    each = [tolerance] * len(sizes) if isinstance(tolerance, Fraction) else list(tolerance)
    reach = [bounds(size, holdout, allowed) for size, allowed in zip(sizes, each, strict=True)]
    lower, upper = (np.array(bound, dtype=np.int64) for bound in zip(*reach, strict=True))
    if rounding == "balanced":
        # Largest remainders may put a target one row off the nearest integer.
        exact = np.array([allowed == 0 for allowed in each])
        lower = np.where(exact, target, np.minimum(lower, target))
        upper = np.where(exact, target, np.maximum(upper, target))
    _refuse_empty_side(cells, holdout, lower, upper, rounding)
    return bounded(cells, target, lower, upper)


def bounded(
    cells: Cells, target: NDArray[np.int64], lower: NDArray[np.int64], upper: NDArray[np.int64]
) -> Constraints:
    """Constraints with given bounds."""
    order = np.argsort(cells.codes, kind="stable").astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(cells.sizes)]).astype(np.int64)
    return Constraints(cells, target, lower, upper, order, offsets)


def bounds(size: int, holdout: Fraction, tolerance: Fraction) -> tuple[int, int]:
    """Fewest and most validation rows of a cell: h(1 - t) and h(1 + t) of its rows, rounded.

    >>> bounds(100, Fraction(1, 5), Fraction(1, 10))
    (18, 22)
    """
    low, high = max(holdout * (1 - tolerance), Fraction(0)), holdout * (1 + tolerance)
    return round_half_up(low * size), min(size, round_half_up(high * size))


def sample_rows(constraints: Constraints, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw about `size` rows, the same share of every cell but at least one of each, ascending."""
    sizes = constraints.cells.sizes
    wanted = -(-sizes * size // constraints.n)
    places = [
        first + rng.choice(count, size=some, replace=False, shuffle=False)
        for first, count, some in zip(
            constraints.offsets.tolist(), sizes.tolist(), wanted.tolist(), strict=False
        )
    ]
    return np.sort(constraints.order[np.concatenate(places)])


def restricted_to(constraints: Constraints, rows: NDArray[np.int64]) -> Constraints:
    """The same cells and shares on some of the rows, which must touch every cell."""
    codes = constraints.cells.codes[rows]
    sizes = np.bincount(codes, minlength=len(constraints.target))
    share = sizes / constraints.cells.sizes
    lower, target, upper = (
        np.floor(bound * share + 0.5).astype(np.int64)
        for bound in (constraints.lower, constraints.target, constraints.upper)
    )
    order = np.argsort(codes, kind="stable").astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Constraints(Cells(codes, constraints.cells.names, sizes), target, lower, upper, order, offsets)


def nearest_quotas(sizes: Sequence[int], holdout: Fraction) -> list[int]:
    """Round every cell's share on its own.

    >>> nearest_quotas([50, 2], Fraction("0.29"))
    [15, 1]
    """
    return [round_half_up(holdout * size) for size in sizes]


def balanced_quotas(sizes: Sequence[int], holdout: Fraction) -> list[int]:
    """Round by largest remainder so that the quotas add up to the rounded total.

    Equal remainders go to the earlier cell.

    >>> balanced_quotas([2, 2, 2, 2, 2], Fraction("0.2"))
    [1, 1, 0, 0, 0]
    """
    shares = [holdout * size for size in sizes]
    quotas = [int(share) for share in shares]
    missing = round_half_up(holdout * sum(sizes)) - sum(quotas)
    by_remainder = sorted(range(len(sizes)), key=lambda cell: (quotas[cell] - shares[cell], cell))
    for cell in by_remainder[:missing]:
        quotas[cell] += 1
    return quotas


def _refuse_empty_side(
    cells: Cells,
    holdout: Fraction,
    lower: NDArray[np.int64],
    upper: NDArray[np.int64],
    rounding: str,
) -> None:
    n, largest = int(cells.sizes.sum()), int(cells.sizes.max())
    if int(upper.sum()) == 0:
        missing, fate, bound = "validation", "0", _least_share
    elif int(lower.sum()) == n:
        missing, fate, bound = "training", "all of its rows", _greatest_share
    else:
        return
    if rounding == "balanced":
        cures = [f"--h {bound(n)}"]
    else:
        cures = ["--rounding balanced"] if 0 < round_half_up(holdout * n) < n else []
        if largest > 1:  # cells of one row go to one side all together, whatever h is
            cures.append(f"--h {bound(largest)}")
        cures = cures or [f"--rounding balanced with --h {bound(n)}"]
    where = f"{_plural(len(cells.sizes), 'cell')}, the largest of {_plural(largest, 'row')}"
    raise InfeasibleError(
        f"no {missing} rows: h={float(holdout):g} of every cell rounds to {fate} ({where})",
        hint=f"use {', or '.join(cures)}",
    )


def _least_share(rows: int) -> str:
    """Say, with three digits or so, the smallest h that gives `rows` rows one validation row."""
    digits = len(str(rows)) + 2
    return f"{_decimal(-(-(10**digits) // (2 * rows)), digits)} or more"


def _greatest_share(rows: int) -> str:
    """Say the largest h that leaves `rows` rows one training row: below 1 - 1/(2 rows)."""
    digits = len(str(rows)) + 2
    return f"{_decimal(10**digits - 10**digits // (2 * rows) - 1, digits)} or less"


def _decimal(scaled: int, digits: int) -> str:
    return f"{Decimal(scaled).scaleb(-digits):f}".rstrip("0")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
