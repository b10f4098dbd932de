"""How far cells may be off their share: one tolerance for all, exceptions for some, or the smallest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction

from clustersplit_cli.core.constraints.cells import Cells, bounds, parse_tolerance
from clustersplit_cli.errors import UsageError

AUTO = "auto"
GRID = 10**6
"""Tolerances that are found are stated to six decimals, rounded up."""
_CELLS_NAMED = 5


@dataclass(frozen=True)
class Tolerance:
    """What the user allows.

    Attributes
    ----------
    general : for every cell without an exception; None: the smallest that can be met.
    exceptions : (what the cell is, as in `label=dog`; its tolerance), later ones win.
    texts : the words of the command line.
    """

    general: Fraction | None
    exceptions: tuple[tuple[str, Fraction], ...] = ()
    texts: tuple[str, ...] = ()

    @property
    def is_auto(self) -> bool:
        """Whether the smallest tolerance is to be found."""
        return self.general is None

    def of_cells(
        self, families: Sequence[Cells], general: Fraction | None = None
    ) -> list[list[Fraction | None]]:
        """The tolerance of every cell of every family; None where it is still to be found.

        Parameters
        ----------
        general : stands in for a general tolerance that was to be found.

        Raises
        ------
        UsageError
            If an exception is about a cell that does not exist.
        """
        default = self.general if self.general is not None else general
        found: list[list[Fraction | None]] = [[default] * len(cells.names) for cells in families]
        for subject, value in self.exceptions:
            places = _places(subject, families)
            if not places:
                raise _unknown_cell(subject, families)
            for family, cell in places:
                found[family][cell] = value
        return found


def parse_tolerances(texts: Sequence[str]) -> Tolerance:
    """Read `0.05`, `auto` and `label=dog=0.2`; at most one of them is about all cells.

    >>> parse_tolerances(["0.05", "label=dog=0.2"]).exceptions
    (('label=dog', Fraction(1, 5)),)
    """
    general: list[Fraction | None] = []
    exceptions: list[tuple[str, Fraction]] = []
    for text in texts:
        subject, separator, value = text.rpartition("=")
        if separator:
            if "=" not in subject.strip("="):
                raise UsageError(
                    f"--tolerance '{text}' is neither a number nor COLUMN=VALUE=NUMBER",
                    hint="for example --tolerance 0.05 --tolerance 'label=dog=0.2'",
                )
            exceptions.append((subject, parse_tolerance(value)))
        else:
            general.append(None if text == AUTO else parse_tolerance(text))
    if len(general) > 1:
        raise UsageError(
            f"--tolerance was given {len(general)} times for all cells: {', '.join(texts)}",
            hint="give it once for all cells, and as COLUMN=VALUE=NUMBER for some",
        )
    return Tolerance(general[0] if general else Fraction(0), tuple(exceptions), tuple(texts))


def smallest_tolerance(size: int, holdout: Fraction, count: int) -> Fraction:
    """The smallest tolerance, to six decimals, with which a cell may have `count` validation rows.

    >>> smallest_tolerance(100, Fraction(1, 5), 22)
    Fraction(3, 40)
    """
    low, high = bounds(size, holdout, Fraction(0))
    if low <= count <= high:
        return Fraction(0)
    share = holdout * size
    # count >= round(share (1 - t)) where t > 1 - (count + 1/2)/share; count <= round(share (1 + t)) from
    # t = (count - 1/2)/share - 1 on.
    half = Fraction(1, 2)
    least = 1 - (count + half) / share if count < low else (count - half) / share - 1
    found = Fraction(-(-least.numerator * GRID // least.denominator), GRID)
    low, high = bounds(size, holdout, found)
    return found if low <= count <= high else found + Fraction(1, GRID)


def show(tolerance: Fraction) -> str:
    """Write a tolerance as the command line takes it.

    >>> show(Fraction(3, 40))
    '0.075'
    """
    return f"{float(tolerance):.6f}".rstrip("0").rstrip(".")


def _places(subject: str, families: Sequence[Cells]) -> list[tuple[int, int]]:
    """Cells that are `subject` as a whole; if there are none, those of which it is a part."""
    whole, part = [], []
    for family, cells in enumerate(families):
        for cell, name in enumerate(cells.names):
            words = [f"{word}={value}" for word, value in name.items()]
            if subject in (",".join(words), ", ".join(words)):
                whole.append((family, cell))
            elif subject in words:
                part.append((family, cell))
    return whole or part


def _unknown_cell(subject: str, families: Sequence[Cells]) -> UsageError:
    known = list(
        dict.fromkeys(
            f"{word}={value}" for cells in families for name in cells.names for word, value in name.items()
        )
    )
    near = get_close_matches(subject, known, _CELLS_NAMED) or known[:_CELLS_NAMED]
    return UsageError(
        f"--tolerance '{subject}=...': there is no such cell",
        hint=f"the nearest are: {', '.join(near)}" if near else "there is only one cell, of all rows",
    )
