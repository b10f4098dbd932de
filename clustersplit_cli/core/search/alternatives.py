"""Several good splits instead of one: local optima that differ in many rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from clustersplit_cli.core.assignment.selection import Assigner
from clustersplit_cli.core.search.candidate import Trail
from clustersplit_cli.core.search.explore import explore
from clustersplit_cli.core.search.problem import Members, Problem

DIFFERENT = 0.05
"""Share of the validation rows that two different splits do not have in common."""
ROUNDS = 4
"""Rounds of random starts, while too few optima are known."""


def different_optima(
    problem: Problem,
    known: Sequence[Trail],
    pools: Sequence[Sequence[Trail]],
    assigner: Assigner,
    bring_to_rest: Callable[[list[Trail]], list[Trail]],
    *,
    count: int,
    max_iter: int,
    draw: Callable[[Sequence[np.random.Generator]], Members],
    rng: np.random.Generator,
) -> list[Trail]:
    """Return up to `count` local optima of which no two have almost the same validation rows, best first.

    Parameters
    ----------
    known : trails at rest on the kernel itself.
    pools : trails to settle, the most promising pool first; Psi need not be comparable between pools.
    bring_to_rest : settles trails on the kernel itself, in float64.
    draw : makes a random split that meets the constraints for every stream.

    Returns
    -------
    Fewer than `count` where further random starts lead to no others.
    """
    fresh: list[Trail] = []
    for pool in pools:
        fresh += different(pool, 2 * count - len(fresh), [*known, *fresh])
    optima = different([*known, *(bring_to_rest(fresh) if fresh else [])], count)
    for _ in range(ROUNDS):
        if len(optima) >= count:
            break
        ends = explore(problem, draw(rng.spawn(2 * count)), assigner, max_iter=max_iter, every_step=False)
        optima = different([*optima, *bring_to_rest(different(ends, 2 * count))], count)
    return optima


def different(trails: Sequence[Trail], count: int, known: Sequence[Trail] = ()) -> list[Trail]:
    """The `count` best trails, best first, that differ from each other and from those known."""
    kept: list[Trail] = []
    for trail in sorted(trails, key=lambda trail: trail.psi):
        if len(kept) == count:
            break
        if all(are_different(trail.members, other.members) for other in (*kept, *known)):
            kept.append(trail)
    return kept


def are_different(one: Members, other: Members) -> bool:
    """Whether at least `DIFFERENT` of the validation rows of the smaller split are not in the other."""
    smaller = min(int(one.sum()), int(other.sum()))
    return bool(smaller - int((one & other).sum()) >= max(1.0, DIFFERENT * smaller))
