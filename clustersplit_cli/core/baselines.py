"""What a split is compared with: random splits, and other strategies, registered at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.constraints.cells import Cells
from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.effort import EFFORTS
from clustersplit_cli.core.geometry.features import Features, Floats
from clustersplit_cli.core.geometry.low_rank import make_low_rank
from clustersplit_cli.core.geometry.nystrom import low_rank_geometry
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.lloyd import descend
from clustersplit_cli.core.search.problem import Members, Problem, SearchContext, discrepancy, squared_mmd
from clustersplit_cli.core.search.search import SplitSearch, needs_low_rank
from clustersplit_cli.core.search.starts import at_targets, random_splits, spectral_splits
from clustersplit_cli.errors import InputError, UsageError


@dataclass(frozen=True)
class RandomMMD:
    """Mean and standard deviation of the MMD of random splits that meet the same quotas, and all values."""

    n: int
    mean: float
    sd: float
    values: tuple[float, ...] = ()
    rest: NDArray[np.float64] | None = field(default=None, compare=False)
    """Of partitions, the MMD of each part with all other rows; shape (n, parts)."""
    are_one: bool = False
    """Whether all of them are the same split."""


def random_mmd(
    problem: Problem, streams: Sequence[np.random.Generator], splits: Members | None = None
) -> RandomMMD:
    """Draw one stratified random split per stream, or take those given, and measure them in one pass."""
    splits = random_splits(problem.constraints, streams) if splits is None else splits
    values = np.sqrt(np.maximum(squared_mmd(problem, splits), 0.0))
    are_one = bool((splits == splits[:, :1]).all())
    return RandomMMD(
        len(values), float(values.mean()), float(values.std(ddof=1)), tuple(values.tolist()), are_one=are_one
    )


@dataclass(frozen=True)
class StrategyContext:
    """A problem, and who does the work.

    `draw` draws one random split per stream, (n, r), where cells hang together; None where they do not.
    """

    problem: Problem
    workers: Workers
    draw: Callable[[Sequence[np.random.Generator]], Members] | None = None


class Strategy(Protocol):
    """A way to choose validation rows: members of shape (n,), the same for the same generator."""

    def __call__(self, context: StrategyContext, rng: np.random.Generator) -> Members:
        """Choose."""


def total_only(constraints: ValidationQuotas) -> ValidationQuotas:
    """The same number of validation rows, taken from one cell of all rows."""
    return of_size(constraints.n, int(constraints.target.sum()))


def of_size(n: int, n_val: int) -> ValidationQuotas:
    """Any validation rows among n, of the given number."""
    wanted = np.array([n_val], dtype=np.int64)
    cells = Cells(np.zeros(n, dtype=np.int64), ({},), np.array([n], dtype=np.int64))
    return ValidationQuotas.exactly(cells, wanted)


def random_split(context: StrategyContext, rng: np.random.Generator) -> Members:
    """Draw a split that meets every quota, uniform among those unless cells hang together."""
    drawn = context.draw([rng]) if context.draw else random_splits(context.problem.constraints, [rng])
    members: Members = drawn[:, 0]
    return members


def nearest_neighbours(context: StrategyContext, rng: np.random.Generator) -> Members:
    """Take every cell's quota of rows nearest to a random row."""
    costs = squared_distances(context.problem, int(rng.integers(context.problem.n)))
    members: Members = at_targets(context.problem.constraints).choose(costs[:, None])[:, 0]
    return members


def nearest_neighbours_total(context: StrategyContext, rng: np.random.Generator) -> Members:
    """Take as many rows nearest to a random row as validation needs, from whatever cells: the original."""
    costs = squared_distances(context.problem, int(rng.integers(context.problem.n)))
    members: Members = at_targets(total_only(context.problem.constraints)).choose(costs[:, None])[:, 0]
    return members


def squared_distances(problem: Problem, row: int) -> NDArray[np.float64]:
    """Squared distance of every row to one of them, in the kernel's space: K_ii + K_rr - 2 K_ir."""
    unit = np.zeros((problem.n, 1))
    unit[row] = 1.0
    column = np.asarray(problem.geometry.apply(unit)[:, 0], dtype=np.float64)
    distances = problem.geometry.diagonal + problem.geometry.diagonal[row] - 2.0 * column
    distances[row] = 0.0
    return np.asarray(np.maximum(distances, 0.0))


MAX_PASSES = 100
ROUNDING = 1e-12


def greedy(context: StrategyContext, rng: np.random.Generator) -> Members:
    """Cluster the rows in two, each cell's quota in the first; the first is validation."""
    problem = context.problem
    to_first = squared_distances(problem, int(rng.integers(problem.n)))
    total = float(to_first.sum())
    likelihood = to_first / total if total > 0 else None
    to_second = squared_distances(problem, int(rng.choice(problem.n, p=likelihood)))
    members: Members = at_targets(problem.constraints).choose((to_first - to_second)[:, None])[:, 0]
    for _ in range(MAX_PASSES):
        state = discrepancy(problem, members[:, None], np.float64)
        leaving, entering = gaining_pairs(members, state.difference[:, 0], problem.constraints)
        if len(leaving) == 0:
            break
        members = members.copy()
        members[leaving], members[entering] = False, True
    return members


def gaining_pairs(
    members: Members, difference: NDArray[np.float64], constraints: ValidationQuotas
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pair rows that gain by changing places: the k-th most eager of either side of a cell, while they gain.

    Parameters
    ----------
    members : (n,)
    difference : (n,), squared distance to the validation centroid minus that to the training centroid.

    Returns
    -------
    The validation rows that leave and the training rows that enter, pair by pair.
    """
    sides = [np.flatnonzero(members), np.flatnonzero(~members)]
    eagerness = [difference[sides[0]], -difference[sides[1]]]
    places: list[NDArray[np.int64]] = []
    for side, (rows, gain) in enumerate(zip(sides, eagerness, strict=True)):
        order = np.lexsort((-gain, constraints.cells.codes[rows]))  # stable: ties go to the lower row
        sides[side], eagerness[side] = rows[order], gain[order]
        codes = constraints.cells.codes[sides[side]]
        rank = np.arange(len(rows)) - np.searchsorted(codes, codes)
        places.append(codes * np.int64(constraints.n) + rank)
    _, leave, enter = np.intersect1d(places[0], places[1], assume_unique=True, return_indices=True)
    gains = eagerness[0][leave] + eagerness[1][enter]
    gaining = gains > ROUNDING * float(np.abs(difference).max(initial=0.0))
    return sides[0][leave[gaining]], sides[1][enter[gaining]]


RESTARTS, MAX_ITER, EFFORT = 10, 100, "normal"
"""What `split` does by default."""


def unconstrained(context: StrategyContext, rng: np.random.Generator) -> Members:
    """Search as for a split, with the total size as the only constraint: what keeping the cells costs."""
    problem = replace(context.problem, constraints=total_only(context.problem.constraints))
    assigner = Selection(problem.constraints)
    search = SearchContext(problem, assigner, context.workers, RESTARTS, MAX_ITER, EFFORTS[EFFORT])
    low_rank = make_low_rank(problem.geometry, rng) if needs_low_rank(problem) else None
    return SplitSearch(search, low_rank, rng).solve().members


def leave_one_out(codes: NDArray[np.integer], values: Sequence[object], name: str) -> Members:
    """Put the rows of the named domain, and no others, into validation.

    Parameters
    ----------
    codes : (n,), the domain of every row as an index into `values`.
    """
    if len(values) < 2:
        raise InputError(
            f"there is only one domain, {values[0]}, so leaving it out leaves no training rows",
            hint="leave-one-domain-out needs two domains or more",
        )
    names = [str(value) for value in values]
    if name not in names:
        raise UsageError(
            f"--leave {name}: there is no such domain", hint=f"choose one of {', '.join(names[:10])}"
        )
    return np.asarray(codes == names.index(name))


STARTS, STEPS = 4, 50


def equal_clusters(
    factors: Floats, count: int, workers: Workers, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Cluster rows into `count` clusters whose sizes differ by at most one.

    Parameters
    ----------
    factors : (n, p), rows whose inner products are the kernel, or nearly.

    Returns
    -------
    (n,), cluster numbers from 0.
    """
    labels = np.zeros(len(factors), dtype=np.int64)
    pending = [(np.arange(len(factors)), 0, count)]
    while pending:
        rows, first, clusters = pending.pop()
        if clusters == 1:
            labels[rows] = first
            continue
        fewer = clusters // 2
        # Whole clusters on either side: the first n mod count of them have one row more.
        wanted = sum(
            len(factors) * (c + 1) // count - len(factors) * c // count for c in range(first, first + fewer)
        )
        chosen = _halve(factors[rows], wanted, workers, rng)
        pending.append((rows[chosen], first, fewer))
        pending.append((rows[~chosen], first + fewer, clusters - fewer))
    return labels


def _halve(factors: Floats, wanted: int, workers: Workers, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Split rows in two clusters, the first of `wanted` rows, by the best of a few descents."""
    n = len(factors)
    if len(factors) < 2 or wanted in (0, n):
        return np.arange(n) < wanted
    limits = of_size(n, wanted)
    problem = Problem(low_rank_geometry(factors, workers), limits)
    # Eigenvectors of the factors pay only where rows are many; where all rows are equal there are none.
    starts = (
        spectral_splits(limits, factors, STARTS) if n > factors.shape[1] else np.empty((n, 0), dtype=bool)
    )
    if starts.shape[1] == 0:
        starts = random_splits(limits, rng.spawn(STARTS))
    end = descend(problem, starts, Selection(limits), max_iter=STEPS, dtype=factors.dtype)
    chosen: NDArray[np.bool_] = end.members[:, int(np.argmin(end.psi))]
    return chosen


@dataclass(frozen=True)
class Pairs:
    """Rows to mix: `weights` of `first` and the rest of `second`, each of shape (m,)."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    weights: NDArray[np.float64]


def draw_pairs(members: Members, rng: np.random.Generator) -> Pairs:
    """Pair every validation row with a random other one, weights uniform on [0, 1]."""
    first = rng.permutation(np.flatnonzero(members))
    second = np.roll(first, 1)  # in random order the next row is a random other one
    return Pairs(first, second, rng.random((len(first), 1))[:, 0])


def mix(features: Features, pairs: Pairs) -> Features:
    """Mix the raw features, which then go through the same maps as all rows."""
    weights = pairs.weights[:, None]
    raw = features.raw[pairs.first].astype(np.float64) * weights
    raw += features.raw[pairs.second].astype(np.float64) * (1.0 - weights)
    return Features(raw, features.steps, features.dtype)


def mixed_rows(features: Features, members: Members, rng: np.random.Generator) -> Features:
    """Mix every validation row with a random other one.

    The result is no subset of the rows, so it has an MMD to the training rows and nothing else.
    """
    return mix(features, draw_pairs(members, rng))


LEAVE_ONE_DOMAIN_OUT = "leave-one-domain-out"
ANOTHER_OPTIMUM = "another-optimum"
"""What a report calls good splits that are not the best."""
SEEDED: dict[str, Strategy] = {
    "random": random_split,
    "greedy": greedy,
    "nearest-neighbours": nearest_neighbours,
    "nearest-neighbours-total": nearest_neighbours_total,
    "unconstrained": unconstrained,
}
"""Strategies that need a problem and a generator; leaving a domain out needs domains and no chance."""
STRATEGIES = (*SEEDED, LEAVE_ONE_DOMAIN_OUT)
WITHOUT_QUOTAS = ("nearest-neighbours-total", "unconstrained", LEAVE_ONE_DOMAIN_OUT)
