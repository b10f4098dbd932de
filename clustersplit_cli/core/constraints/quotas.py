"""Quotas: how many rows of every cell each part gets, for a split in two or parts of any number and share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import (
    Cells,
    balanced_quotas,
    bounds,
    nearest_quotas,
    parse_share,
    round_half_up,
)
from clustersplit_cli.errors import InfeasibleError, UsageError

FEWEST = 2
SIDES = ("train", "val")
"""The parts of a split in two."""
FREE, TRAIN, VAL = -1, 0, 1
"""What a row of a split in two is forced to."""


@dataclass(frozen=True)
class ValidationQuotas:
    """How many of each cell's rows may be validation rows: `lower <= count <= upper`, each of shape (cells,).

    The view of a split in two that search and assignment work on.
    """

    cells: Cells
    target: NDArray[np.int64]
    lower: NDArray[np.int64]
    upper: NDArray[np.int64]

    @classmethod
    def exactly(cls, cells: Cells, target: NDArray[np.int64]) -> ValidationQuotas:
        """Counts without room."""
        return cls(cells, target, target, target)

    @property
    def n(self) -> int:
        """Number of rows; cells may be known by their sizes alone."""
        return self.cells.n

    @property
    def is_exact(self) -> bool:
        """Whether every cell's count is fixed."""
        return bool((self.lower == self.upper).all())

    def counts(self, members: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Validation rows per cell."""
        return np.bincount(self.cells.codes[members], minlength=len(self.target))

    def only(self, rows: NDArray[np.int64]) -> ValidationQuotas:
        """The same shares of the cells of some of the rows, which must touch every cell."""
        return self.with_codes(self.cells.codes[rows])

    def with_codes(self, codes: NDArray[np.int64]) -> ValidationQuotas:
        """The same shares of the cells of a sample, whose rows touch every cell."""
        cells = self.cells.with_codes(codes)
        share = cells.sizes / self.cells.sizes
        target, lower, upper = (
            np.floor(bound * share + 0.5).astype(np.int64) for bound in (self.target, self.lower, self.upper)
        )
        return ValidationQuotas(cells, target, lower, upper)


@dataclass(frozen=True)
class Quotas:
    """Cells, and how many of each cell's rows go to each part: `lower <= count <= upper`.

    Attributes
    ----------
    names, shares : of the parts.
    target, lower, upper : (cells, parts)
    pinned : (n,) the part that a row is forced into; -1: none. Empty where cells are known by sizes alone.
    drawn : parts whose rows chance has chosen; they are pinned.
    """

    cells: Cells
    names: tuple[str, ...]
    shares: tuple[Fraction, ...]
    target: NDArray[np.int64]
    lower: NDArray[np.int64]
    upper: NDArray[np.int64]
    pinned: NDArray[np.int64]
    drawn: tuple[int, ...] = ()

    @classmethod
    def of_split(
        cls, validation: ValidationQuotas, holdout: Fraction, pinned: NDArray[np.int64] | None = None
    ) -> Quotas:
        """Two parts, training and validation."""
        cells = validation.cells
        target, lower, upper = (
            np.stack([cells.sizes - rest, bound], axis=1)
            for rest, bound in (
                (validation.target, validation.target),
                (validation.upper, validation.lower),
                (validation.lower, validation.upper),
            )
        )
        pins = np.full(len(cells.codes), FREE, dtype=np.int64) if pinned is None else pinned
        return cls(cells, SIDES, (1 - holdout, holdout), target, lower, upper, pins)

    @property
    def n(self) -> int:
        """Number of rows; cells may be known by their sizes alone."""
        return self.cells.n

    @property
    def k(self) -> int:
        """Number of parts."""
        return len(self.names)

    @property
    def is_exact(self) -> bool:
        """Whether every count is fixed."""
        return bool((self.lower == self.upper).all())

    @cached_property
    def validation(self) -> ValidationQuotas:
        """The second of two parts."""
        assert self.k == len(SIDES)
        target, lower, upper = (
            np.ascontiguousarray(counts[:, VAL]) for counts in (self.target, self.lower, self.upper)
        )
        return ValidationQuotas(self.cells, target, lower, upper)

    @property
    def forced(self) -> NDArray[np.bool_]:
        """Rows that were forced into a part, and not drawn for it."""
        return (self.pinned >= 0) & ~np.isin(self.pinned, self.drawn)

    def drawing(self, parts: Sequence[int], rng: np.random.Generator) -> Quotas:
        """Choose the rows of some parts at random, every cell's target of them, and pin them."""
        pinned, lower, upper = self.pinned.copy(), self.lower.copy(), self.upper.copy()
        for part in parts:
            for cell, rows in enumerate(np.split(self.cells.order, self.cells.offsets[1:-1])):
                free = rng.permutation(rows[pinned[rows] < 0])
                chosen = free[: self.target[cell, part]]
                pinned[chosen] = part
                lower[cell, part] = upper[cell, part] = len(chosen)
        return replace(self, pinned=pinned, lower=lower, upper=upper, drawn=tuple(parts))

    def counts(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """Rows of each cell in each part, (cells, parts); of a split in two, its validation rows will do."""
        flat = np.bincount(self.cells.codes * self.k + labels, minlength=self.target.size)
        return flat.reshape(self.target.shape)

    def within(self, labels: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each cell's counts are within their bounds."""
        counts = self.counts(labels)
        return np.asarray(((self.lower <= counts) & (counts <= self.upper)).all(axis=1))


RANDOM = "random"


def parse_parts(text: str) -> tuple[tuple[str, Fraction], ...]:
    """Read `train=0.7,val=0.15,test=0.15:random`: shares that add up to 1, but for the rounding of decimals.

    >>> parse_parts("a=0.5,b=0.5")
    (('a', Fraction(1, 2)), ('b', Fraction(1, 2)))
    """
    example = "for example --parts train=0.7,val=0.15,test=0.15"
    parts: list[tuple[str, Fraction]] = []
    for piece in text.split(","):
        name, separator, share = piece.strip().partition("=")
        share, colon, how = share.partition(":")
        if not separator or not name:
            raise UsageError(f"--parts '{piece.strip()}' is not NAME=SHARE", hint=example)
        if colon and how != RANDOM:
            raise UsageError(
                f"--parts {piece.strip()}: '{how}' is no way to choose rows",
                hint=f"for example {name}={share}:random",
            )
        if not all(letter.isalnum() or letter in "-_" for letter in name) or name in _RESERVED:
            raise UsageError(
                f"--parts '{name}' cannot name a file of rows",
                hint=f"use letters, digits, - and _, but none of {', '.join(_RESERVED)}",
            )
        try:
            parts.append((name, parse_share(share, "--parts")))
        except UsageError:
            raise UsageError(f"--parts {piece.strip()}: '{share}' is not a number", hint=example) from None
        if not 0 < parts[-1][1] < 1:
            raise UsageError(f"--parts {name}={share} must lie strictly between 0 and 1", hint=example)
    names = [name for name, _ in parts]
    if len(parts) < FEWEST or len(set(names)) < len(names):
        raise UsageError(f"--parts '{text}' needs at least two parts of different names", hint=example)
    total = sum((share for _, share in parts), Fraction(0))
    if abs(total - 1) > SLIP:
        raise UsageError(f"the shares of --parts add up to {float(total):.10g}, not to 1", hint=example)
    if len(parts) - len(random_parts(text)) < FEWEST:
        raise UsageError(
            f"--parts '{text}' has fewer than two parts that are not random",
            hint="draw fewer parts at random; clustersplit baseline random draws all",
        )
    # Thirds have no end as decimals: the last part makes up for what they lack.
    last, rest = parts[-1], parts[:-1]
    return (*rest, (last[0], last[1] + 1 - total))


def random_parts(text: str) -> tuple[str, ...]:
    """The names of the parts that are to be drawn at random.

    >>> random_parts("train=0.7,val=0.15,test=0.15:random")
    ('test',)
    """
    pieces = (piece.strip() for piece in text.split(","))
    return tuple(piece.partition("=")[0] for piece in pieces if piece.endswith(f":{RANDOM}"))


SLIP = Fraction(1, 10**9)
_RESERVED = ("report", "folds", "excluded", "dropped")


def split_quotas(
    cells: Cells,
    holdout: Fraction,
    tolerance: Fraction | Sequence[Fraction] = Fraction(0),
    rounding: str = "nearest",
) -> Quotas:
    """Give validation its share of every cell.

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
    limits = [bounds(size, holdout, allowed) for size, allowed in zip(sizes, each, strict=True)]
    lower, upper = (np.array(bound, dtype=np.int64) for bound in zip(*limits, strict=True))
    if rounding == "balanced":
        # Largest remainders may put a target one row off the nearest integer.
        exact = np.array([allowed == 0 for allowed in each])
        lower = np.where(exact, target, np.minimum(lower, target))
        upper = np.where(exact, target, np.maximum(upper, target))
    _refuse_empty_side(cells, holdout, lower, upper, rounding)
    return Quotas.of_split(ValidationQuotas(cells, target, lower, upper), holdout)


def fold_quotas(cells: Cells, k: int) -> Quotas:
    """Give every fold an equal share of every cell; who gets a cell's extra rows goes round.

    So that all folds have equally many rows, but for one, and the cells stay independent of each other.

    Raises
    ------
    InfeasibleError
        If there are fewer rows than folds.
    """
    n = cells.n
    if n < k:
        raise InfeasibleError(f"{n} rows cannot make {k} folds", hint=f"use --k {max(n, FEWEST)} or less")
    base, extra = np.divmod(cells.sizes, k)
    begins = np.concatenate([[0], np.cumsum(extra)[:-1]])
    turn = (np.arange(k)[None, :] - begins[:, None]) % k
    target = (base[:, None] + (turn < extra[:, None])).astype(np.int64)
    names = tuple(f"fold_{fold}" for fold in range(k))
    free = np.full(len(cells.codes), -1, dtype=np.int64)
    return Quotas(cells, names, (Fraction(1, k),) * k, target, target, target, free)


def part_quotas(
    cells: Cells,
    parts: Sequence[tuple[str, Fraction]],
    tolerance: Sequence[Fraction],
    pinned: NDArray[np.int64] | None = None,
) -> Quotas:
    """Give every part its share of every cell, rounded so that cells and parts both add up.

    Every count is its share rounded down or up, all rows of a cell go somewhere, and the parts' totals are
    their shares of all rows, rounded: such a rounding always exists.

    Parameters
    ----------
    tolerance : of every cell.
    pinned : (n,) the part that a row is forced into; -1: none.
    """
    names, shares = tuple(name for name, _ in parts), tuple(share for _, share in parts)
    target = _rounded(cells, shares)
    lower, upper = target.copy(), target.copy()
    for cell, allowed in enumerate(tolerance):
        if allowed > 0:
            limits = [bounds(int(cells.sizes[cell]), share, allowed) for share in shares]
            lower[cell] = np.minimum(target[cell], [low for low, _ in limits])
            upper[cell] = np.maximum(target[cell], [high for _, high in limits])
    pins = np.full(len(cells.codes), -1, dtype=np.int64) if pinned is None else pinned
    quotas = Quotas(cells, names, shares, target, lower, upper, pins)
    _refuse_impossible(quotas)
    return quotas


def _rounded(cells: Cells, shares: Sequence[Fraction]) -> NDArray[np.int64]:
    """Round the table of shares, its row sums and its column sums together (a transportation problem)."""
    from scipy import sparse
    from scipy.optimize import Bounds, LinearConstraint, milp

    n_cells, k, n = len(cells.sizes), len(shares), cells.n
    exact = [[share * int(size) for share in shares] for size in cells.sizes]
    floors = np.array([[int(value) for value in row] for row in exact], dtype=np.int64)
    rest = np.array([[float(value - int(value)) for value in row] for row in exact])
    totals = largest_remainders([share * n for share in shares], n)
    per_cell, per_part = cells.sizes - floors.sum(axis=1), np.array(totals) - floors.sum(axis=0)
    rows = sparse.kron(sparse.identity(n_cells), np.ones((1, k)))
    columns = sparse.kron(np.ones((1, n_cells)), sparse.identity(k))
    found = milp(
        (1.0 - 2.0 * rest).reshape(-1),
        integrality=np.ones(n_cells * k),
        bounds=Bounds(0, (rest > 0).astype(np.float64).reshape(-1)),
        constraints=LinearConstraint(
            sparse.vstack([rows, columns]).tocsr(),
            np.concatenate([per_cell, per_part]),
            np.concatenate([per_cell, per_part]),
        ),
    )
    up = np.round(found.x).astype(np.int64).reshape(n_cells, k)
    return np.asarray(floors + up)


def largest_remainders(exact: Sequence[Fraction | float], total: int) -> list[int]:
    """Round numbers that add up to a whole one so that they still do."""
    rounded = [int(value) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (rounded[i] - exact[i], i))
    for place in by_remainder[: total - sum(rounded)]:
        rounded[place] += 1
    return rounded


def _refuse_impossible(quotas: Quotas) -> None:
    """Refuse parts without rows, and more forced rows than a cell has room for."""
    empty = np.flatnonzero(quotas.upper.sum(axis=0) == 0)
    if len(empty):
        part = int(empty[0])
        share = quotas.shares[part]
        raise InfeasibleError(
            f"part {quotas.names[part]} gets no rows: {float(share):g} of {quotas.n} rows rounds to "
            f"{round_half_up(share * quotas.n)}",
            hint=f"give it a share of at least {1 / quotas.n:.2g}",
        )
    forced = quotas.pinned >= 0
    if not forced.any():
        return
    taken = np.bincount(
        quotas.cells.codes[forced] * quotas.k + quotas.pinned[forced], minlength=quotas.target.size
    ).reshape(quotas.target.shape)
    over = np.argwhere(taken > quotas.upper)
    if len(over):
        cell, part = (int(place) for place in over[0])
        raise InfeasibleError(
            f"{taken[cell, part]} rows of {quotas.cells.describe(cell)} are forced into "
            f"{quotas.names[part]}, which has room for {quotas.upper[cell, part]} of them",
            hint="force fewer rows, or allow more with --tolerance",
        )
    least = np.maximum(taken, quotas.lower).sum(axis=1)
    too_full = np.flatnonzero(least > quotas.cells.sizes)
    if len(too_full):
        cell = int(too_full[0])
        raise InfeasibleError(
            f"{quotas.cells.describe(cell)} has {quotas.cells.sizes[cell]} rows, but what is forced into "
            f"some parts and what the others need add up to {least[cell]}",
            hint="force fewer rows, or allow more with --tolerance",
        )


def _refuse_empty_side(
    cells: Cells,
    holdout: Fraction,
    lower: NDArray[np.int64],
    upper: NDArray[np.int64],
    rounding: str,
) -> None:
    n, largest = cells.n, int(cells.sizes.max())
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
