"""Cells, the shares that options ask of them, and the one function that rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.errors import UsageError

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
    """A partition of the rows: `codes[i]` is the cell of row i, `names[g]` says what cell g is.

    Cells may be known by their sizes alone; then there are no codes.
    """

    codes: NDArray[np.int64]
    names: tuple[Mapping[str, Any], ...]
    sizes: NDArray[np.int64]

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.sizes.sum())

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """The rows cell by cell, ascending within a cell."""
        return np.argsort(self.codes, kind="stable").astype(np.int64)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where each cell's rows begin in `order`, and where the last one's end: (cells + 1,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    @cached_property
    def is_grouped(self) -> bool:
        """Whether the rows come cell by cell as they are."""
        return bool((self.order[1:] > self.order[:-1]).all())

    def only(self, rows: NDArray[np.int64]) -> Cells:
        """The same cells of some of the rows, which must touch every cell."""
        return self.with_codes(self.codes[rows])

    def with_codes(self, codes: NDArray[np.int64]) -> Cells:
        """The same cells of a sample, whose rows touch every cell."""
        return Cells(codes, self.names, np.bincount(codes, minlength=len(self.sizes)))

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


def bounds(size: int, holdout: Fraction, tolerance: Fraction) -> tuple[int, int]:
    """Fewest and most validation rows of a cell: h(1 - t) and h(1 + t) of its rows, rounded.

    >>> bounds(100, Fraction(1, 5), Fraction(1, 10))
    (18, 22)
    """
    low, high = max(holdout * (1 - tolerance), Fraction(0)), holdout * (1 + tolerance)
    return round_half_up(low * size), min(size, round_half_up(high * size))


def sample_rows(cells: Cells, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw about `size` rows, the same share of every cell but at least one of each, ascending."""
    sizes = cells.sizes
    wanted = -(-sizes * size // cells.n)
    places = [
        first + rng.choice(count, size=some, replace=False, shuffle=False)
        for first, count, some in zip(cells.offsets.tolist(), sizes.tolist(), wanted.tolist(), strict=False)
    ]
    return np.sort(cells.order[np.concatenate(places)])


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
