"""Constraints that cannot be met, in words: which cells exclude each other, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from clustersplit_cli.core.constraints.cells import Cells
from clustersplit_cli.core.constraints.feasibility import Conflict, Demand, find_conflict, find_tolerance
from clustersplit_cli.core.constraints.tolerance import show, smallest_tolerance
from clustersplit_cli.errors import InfeasibleError

NAMED = 4


@dataclass(frozen=True)
class _Cell:
    """A cell in words: its family, its name and its rows."""

    family: int
    name: str
    size: int


def explain(
    demand: Demand, families: Sequence[Cells], holdout: Fraction, *, with_units: bool, rounding: str
) -> InfeasibleError:
    """Say which bounds exclude each other, and the smallest changes that make them feasible.

    Parameters
    ----------
    with_units : whether rows that stay together may be the reason.
    """
    conflict = find_conflict(demand)
    cells = [
        _Cell(family, part.describe(cell), int(part.sizes[cell]))
        for family, part in enumerate(families)
        for cell in range(len(part.sizes))
    ]
    cells.append(_Cell(len(families), "all rows", len(families[0].codes)))  # neither side may be empty
    totals = _differing_totals(demand, families)
    message = totals or _in_words(conflict, demand, cells, with_units)
    cures = [_uniform_cure(demand, cells, holdout), _exceptions(conflict, demand, cells, holdout)]
    if totals and rounding == "nearest":
        cures.insert(0, "use --rounding balanced")
    hint = ", or ".join(cure for cure in cures if cure)
    return InfeasibleError(message, hint=hint or "force fewer rows, or keep fewer rows together")


def _differing_totals(demand: Demand, families: Sequence[Cells]) -> str | None:
    """Say so if one family asks for more rows than another allows."""
    ends = np.cumsum([len(cells.sizes) for cells in families])
    least = [int(part.sum()) for part in np.split(demand.lower, ends)[:-1]]
    most = [int(part.sum()) for part in np.split(demand.upper, ends)[:-1]]
    first, second = int(np.argmax(least)), int(np.argmin(most))
    if least[first] <= most[second]:
        return None
    words = [",".join(families[family].names[0]) or "all rows" for family in (first, second)]
    return (
        f"the quotas of {words[0]} add up to {least[first]} validation rows, "
        f"but those of {words[1]} to {most[second]}"
    )


def _in_words(conflict: Conflict, demand: Demand, cells: Sequence[_Cell], with_units: bool) -> str:
    at_least, at_most = conflict.at_least, conflict.at_most
    needs = _listed([f"{cells[cell].name} needs at least {demand.lower[cell]}" for cell in at_least])
    allows = _listed([f"{cells[cell].name} allows {demand.upper[cell]}" for cell in at_most])
    if at_least and set(at_least) == set(at_most):
        wanted = _listed(
            [f"{cells[cell].name} needs {_span(demand.lower[cell], demand.upper[cell])}" for cell in at_least]
        )
        return f"{wanted} validation rows, which no choice of whole units gives"
    if at_least and at_most:
        together = ", and units must stay whole" if with_units else ""
        return f"{needs} validation rows but {allows}{together}"
    if len(at_least) == 1:
        (cell,) = at_least
        most = int(demand.taken[cell] + (demand.matrix[cell] @ demand.available)[0])
        return f"{needs} validation rows but only {most} of its rows are not forced into training"
    if len(at_most) == 1:
        (cell,) = at_most
        name, taken = cells[cell].name, demand.taken[cell]
        return f"{name} allows {demand.upper[cell]} validation rows but {taken} of its rows are forced"
    together = "units that stay whole" if with_units else "the forced rows"
    return f"{needs or allows} validation rows, which {together} make impossible"


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def _uniform_cure(demand: Demand, cells: Sequence[_Cell], holdout: Fraction) -> str | None:
    """The smallest tolerance for all cells."""
    has_quota = np.arange(len(cells)) < len(cells) - 1
    found = find_tolerance(demand, [cell.size for cell in cells], holdout, has_quota)
    if found is None:
        return None
    how = "the smallest that can be met" if found.proven else "the smallest found"
    return f"use --tolerance {show(found.value)} ({how})"


def _exceptions(conflict: Conflict, demand: Demand, cells: Sequence[_Cell], holdout: Fraction) -> str | None:
    """The fewest rows by which some cells would have to give way."""
    broken = np.flatnonzero((conflict.counts < demand.lower) | (conflict.counts > demand.upper)).tolist()
    if not 0 < len(broken) <= NAMED or broken[-1] == len(cells) - 1:
        return None
    options = []
    for cell in broken:
        count = int(conflict.counts[cell])
        needed = show(smallest_tolerance(cells[cell].size, holdout, count))
        name = cells[cell].name.replace(", ", ",")
        options.append(f"--tolerance '{name}={needed}' ({count} validation rows)")
    return " ".join(options)


def _listed(parts: Sequence[str]) -> str:
    shown = list(parts[:NAMED])
    if len(parts) > NAMED:
        shown.append(f"{len(parts) - NAMED} more")
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} and {shown[-1]}"
