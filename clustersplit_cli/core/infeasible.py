"""Constraints that cannot be met, in words: which cells exclude each other, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from clustersplit_cli.core.constraints import Cells
from clustersplit_cli.core.feasibility import Conflict, Demand, find_conflict, find_tolerance
from clustersplit_cli.core.tolerances import Tolerance, show, smallest_tolerance
from clustersplit_cli.errors import InfeasibleError

NAMED = 4


def explain(
    demand: Demand, families: Sequence[Cells], holdout: Fraction, tolerance: Tolerance, rounding: str
) -> InfeasibleError:
    """Say which bounds exclude each other, and the smallest changes that make them feasible."""
    conflict = find_conflict(demand)
    names = [cells.describe(cell) for cells in families for cell in range(len(cells.sizes))]
    sizes = [int(size) for cells in families for size in cells.sizes]
    owner = [family for family, cells in enumerate(families) for _ in range(len(cells.sizes))]
    message = _in_words(conflict, demand, names, owner, families)
    return InfeasibleError(message, hint=_cure(conflict, demand, names, sizes, holdout, tolerance, rounding))


def _in_words(
    conflict: Conflict,
    demand: Demand,
    names: Sequence[str],
    owner: Sequence[int],
    families: Sequence[Cells],
) -> str:
    at_least, at_most = conflict.at_least, conflict.at_most
    whole = [
        family
        for family, cells in enumerate(families)
        for side in (at_least, at_most)
        if sum(owner[cell] == family for cell in side) == len(cells.sizes) > 1
    ]
    if len(whole) == 2 and len(at_least) + len(at_most) == sum(len(families[f].sizes) for f in whole):
        low, high = int(demand.lower[list(at_least)].sum()), int(demand.upper[list(at_most)].sum())
        first, second = (", ".join(families[owner[side[0]]].names[0]) for side in (at_least, at_most))
        return f"the quotas of {first} add up to {low} validation rows, but those of {second} to {high}"
    needs = _listed([f"{names[cell]} needs at least {demand.lower[cell]}" for cell in at_least])
    allows = _listed([f"{names[cell]} allows {demand.upper[cell]}" for cell in at_most])
    forced = int(demand.taken.sum()) > 0 or int(demand.available.sum()) < int(demand.matrix.shape[1])
    if at_least and at_most:
        return f"{needs} validation rows but {allows}"
    if at_least:
        free = [_most(demand, cell) for cell in at_least]
        can = _listed([f"{names[cell]} can have {most}" for cell, most in zip(at_least, free, strict=True)])
        reason = "what is forced into training" if forced else "rows that stay together"
        return f"{needs} validation rows but, with {reason}, {can}" if len(at_least) == 1 else f"{needs} validation rows, which {reason} makes impossible"
    over = _listed([f"{demand.taken[cell]} rows of {names[cell]}" for cell in at_most])
    if len(at_most) == 1 and demand.taken[at_most[0]] > demand.upper[at_most[0]]:
        return f"{over} are forced into validation but {allows}"
    return f"{allows} validation rows, which rows that stay together make impossible"


def _most(demand: Demand, cell: int) -> int:
    return int(demand.taken[cell] + (demand.matrix[cell] @ demand.available)[0])


def _cure(
    conflict: Conflict,
    demand: Demand,
    names: Sequence[str],
    sizes: Sequence[int],
    holdout: Fraction,
    tolerance: Tolerance,
    rounding: str,
) -> str:
    """Offer the smallest uniform tolerance, and the smallest exceptions."""
    cures = []
    found = find_tolerance(demand, sizes, holdout, np.ones(len(sizes), dtype=bool))
    if found is not None:
        least = "the smallest that can be met" if found.proven else "the smallest found"
        cures.append(f"use --tolerance {show(found.value)} ({least})")
    broken = np.flatnonzero((conflict.counts < demand.lower) | (conflict.counts > demand.upper)).tolist()
    if 0 < len(broken) <= NAMED:
        exceptions = [
            f"--tolerance '{names[cell].replace(', ', ',')}={show(smallest_tolerance(sizes[cell], holdout, int(conflict.counts[cell])))}'"
            f" ({conflict.counts[cell]} validation rows)"
            for cell in broken
        ]
        cures.append(" ".join(exceptions))
    if rounding == "nearest" and len(sizes) > 1 and not tolerance.exceptions and len(set(names)) == len(names):
        pass
    return ", or ".join(cures)


def _listed(parts: Sequence[str]) -> str:
    shown = list(parts[:NAMED])
    if len(parts) > NAMED:
        shown.append(f"{len(parts) - NAMED} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else ""
