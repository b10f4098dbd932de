"""Groups of rows that stay together, as the units of a problem of their own.

All rows of a unit have the same weight in z, so K z is needed only summed over units: the search runs on
A K A', where A adds up the rows of each unit, and never sees single rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Cells, Labels
from clustersplit_cli.core.constraints.groups import NOBODY, TAKEN, GroupParts, best_pairs
from clustersplit_cli.core.constraints.quotas import FREE, VAL, ValidationQuotas
from clustersplit_cli.core.constraints.requirements import Requirements
from clustersplit_cli.core.effort import Effort
from clustersplit_cli.core.geometry.protocol import Geometry
from clustersplit_cli.core.search.exhaustive import all_choices, batches, best_of
from clustersplit_cli.core.search.partition import one_hot
from clustersplit_cli.core.search.problem import Problem
from clustersplit_cli.core.search.solution import Restart, Solution, StagedSearch, Step, shortened
from clustersplit_cli.progress import Progress, silent


def group_problem(problem: Problem, requirements: Requirements) -> Problem:
    """The problem over units; units with the same rows in every cell may be exchanged."""
    units = requirements.units
    assert units is not None
    program = requirements.program
    codes = np.unique(program.classes * 3 + (program.fixed + 1), return_inverse=True)[1].reshape(-1)
    sizes = np.bincount(codes)
    names: tuple[dict[str, Any], ...] = tuple({} for _ in sizes)
    # How many of each kind there are to choose differs from split to split; pinned ones are never exchanged.
    counts = np.zeros(len(sizes), dtype=np.int64)
    constraints = ValidationQuotas.exactly(Cells(codes.astype(np.int64), names, sizes), counts)
    return Problem(problem.geometry.group_sums(units), constraints, requirements.sizes)


def first_choice(requirements: Requirements) -> NDArray[np.bool_]:
    """A choice of units that meets all bounds, the first ones of every class."""
    assert requirements.counts is not None
    program = requirements.program
    chosen = program.fixed == VAL
    free = np.flatnonzero(program.fixed == FREE)
    classes = requirements.classes[free]
    order = np.argsort(classes, kind="stable")
    ordered = classes[order]
    first = np.searchsorted(ordered, ordered)
    chosen[free[order]] = np.arange(len(ordered)) - first < requirements.counts[ordered]
    return np.asarray(chosen)


WORTHWHILE = 1e-5
Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class GroupCandidate:
    """Units in parts, and what they add up to.

    Attributes
    ----------
    sums : (units, parts), sum of each unit's kernel values with each part.
    inside, sizes : (parts,), sum of all kernel values within each part, and its rows.
    trace : Psi at the start and after every round.
    """

    labels: Labels
    sums: Doubles
    inside: Doubles
    sizes: Doubles
    psi: float
    trace: tuple[float, ...] = ()
    converged: bool = False


def _measured(kernel: Geometry, parts: GroupParts, labels: Labels) -> GroupCandidate:
    marks = (labels[:, None] == np.arange(parts.quotas.k)).astype(np.float64)
    product, inside = kernel.measure(marks)
    sizes = marks.T @ parts.sizes
    psi = kernel.trace - float((inside / sizes).sum())
    return GroupCandidate(labels, np.asarray(product, dtype=np.float64), np.asarray(inside), sizes, psi)


@dataclass(frozen=True)
class ExploredGroups:
    """The starts by name, where they ended, and what perturbs the best of them."""

    names: list[str]
    ends: list[GroupCandidate]
    rng: np.random.Generator


@dataclass(frozen=True)
class FoundGroups:
    """Where all starts ended, and which one won.

    Attributes
    ----------
    labels : (n,), the part of every row.
    exchanged : rounds of exchanges that led there; what follows is the best of all choices.
    """

    names: list[str]
    ends: list[GroupCandidate]
    winner: int
    labels: Labels
    exchanged: int

    @property
    def best(self) -> GroupCandidate:
        """Where the best start ended."""
        return self.ends[self.winner]


@dataclass(frozen=True)
class GroupPartsSearch(StagedSearch[ExploredGroups, FoundGroups]):
    """Searches for the parts of whole units with the smallest Psi: exchanges from several starts.

    Attributes
    ----------
    geometry : the kernel of the rows.
    max_iter : rounds of exchanges between all pairs of parts, per start.
    """

    geometry: Geometry
    parts: GroupParts
    restarts: int
    max_iter: int
    effort: Effort
    rng: np.random.Generator
    progress: Progress = silent

    @cached_property
    def kernel(self) -> Geometry:
        """The kernel of the units."""
        return self.geometry.group_sums(self.parts.units)

    def explore(self) -> ExploredGroups:
        """Exchange units from every start."""
        start_rng, perturb_rng = self.rng.spawn(2)
        ends: list[GroupCandidate] = []
        names: list[str] = []
        for run, (name, labels) in enumerate(_starts(self.kernel, self.parts, self.restarts, start_rng)):
            self.progress("starts", run, self.restarts)
            names.append(name)
            ends.append(_refine(self.kernel, self.parts, labels, self.max_iter))
        return ExploredGroups(names, ends, perturb_rng)

    def refine(self, explored: ExploredGroups) -> FoundGroups:
        """Perturb the best parts."""
        ends = list(explored.ends)
        winner = min(range(len(ends)), key=lambda run: ends[run].psi)
        found = self._perturb(ends[winner], explored.rng)
        best = ends[winner] = self._better_of_all(found)
        labels = best.labels[self.parts.units]
        return FoundGroups(explored.names, ends, winner, labels, len(found.trace) - 1)

    def account(self, found: FoundGroups) -> Solution:
        """Say where all starts ended, and the steps that led to the best parts."""
        runs = tuple(
            Restart(
                name,
                len(end.trace) - 1,
                end.psi,
                self._mmd(end),
                end.converged,
                shortened(end.trace, end.psi),
            )
            for name, end in zip(found.names, found.ends, strict=True)
        )
        best = found.best
        phases = ["start", *["exchange"] * found.exchanged, "enumerate"]
        steps = tuple(Step(phases[number], number, psi) for number, psi in enumerate(best.trace))
        return Solution(found.labels, steps, runs, found.winner, best.converged)

    def _perturb(self, best: GroupCandidate, rng: np.random.Generator) -> GroupCandidate:
        """Blur the distances to the centroids, assign by them and exchange, until that gains nothing."""
        parts, effort, stale = self.parts, self.effort, 0
        for done in range(effort.max_rounds):
            if stale == effort.patience + effort.exact_rounds:
                break
            self.progress("perturb", done, effort.max_rounds)
            costs = parts.sizes[:, None] * best.inside / best.sizes**2 - 2.0 * best.sums / best.sizes
            strength = float(np.exp(rng.uniform(np.log(0.1), np.log(1.0)))) * float(costs.std())
            perturbed = parts.cheaper(best.labels, costs + rng.normal(scale=strength, size=costs.shape))
            rival = _refine(self.kernel, parts, perturbed, self.max_iter)
            stale = 0 if rival.psi < best.psi - WORTHWHILE * abs(best.psi) else stale + 1
            if rival.psi < best.psi:
                best = replace(rival, trace=(*best.trace, rival.psi))
        return best

    def _better_of_all(self, best: GroupCandidate) -> GroupCandidate:
        """The best of all choices of parts, if they are few enough to look at and it is better."""
        kernel, parts, quotas = self.kernel, self.parts, self.parts.quotas
        # All rows together are one more cell, with bounds of its own.
        table = np.column_stack([parts.table, parts.table.sum(axis=1)])
        lower, upper = np.vstack([quotas.lower, parts.least]), np.vstack([quotas.upper, parts.most])
        choices = all_choices(table, lower, upper, parts.pinned)
        labels, psi = best_of(choices, map(self._psi_of, batches(choices)))
        if not psi < best.psi - 1e-12 * kernel.trace:
            return best
        found = _measured(kernel, parts, labels)
        return replace(found, trace=(*best.trace, found.psi), converged=True)

    def _psi_of(self, labels: Labels) -> Doubles:
        """Psi of every choice of parts (units, r), shape (r,)."""
        kernel, sizes_of, k = self.kernel, self.parts.sizes, self.parts.quotas.k
        marks = one_hot(labels, k, np.float64)
        sizes = sizes_of @ marks
        explained = np.where(sizes > 0, kernel.measure(marks)[1] / np.maximum(sizes, 1.0), -np.inf)
        return np.asarray(kernel.trace - explained.reshape(-1, k).sum(axis=1))

    def _mmd(self, end: GroupCandidate) -> float:
        """The mean MMD between parts, from Psi through the ANOVA identity."""
        kernel, n = self.kernel, float(end.sizes.sum())
        whole = float(kernel.measure(np.ones((kernel.n, 1)))[1][0])
        pairs = (n**2 - float((end.sizes**2).sum())) / 2.0
        return float(np.sqrt(max(kernel.trace - whole / n - end.psi, 0.0) * n / pairs))


def _refine(kernel: Geometry, parts: GroupParts, labels: Labels, max_iter: int) -> GroupCandidate:
    """Exchange units between every two parts until nothing lowers Psi."""
    now = _measured(kernel, parts, labels)
    trace = [now.psi]
    converged = False
    for _ in range(max_iter):
        labels = now.labels.copy()
        copies = {name: getattr(now, name).copy() for name in ("sums", "inside", "sizes")}
        state = replace(now, labels=labels, **copies)
        changes = sum(
            _exchanged(kernel, parts, state, a, b) for a, b in combinations(range(parts.quotas.k), 2)
        )
        if not changes:
            converged = True
            break
        after = _measured(kernel, parts, labels)
        if after.psi >= now.psi:  # what looked like a gain was rounding
            converged = True
            break
        now = after
        trace.append(now.psi)
    return replace(now, trace=tuple(trace), converged=converged)


def _exchanged(kernel: Geometry, parts: GroupParts, state: GroupCandidate, a: int, b: int) -> int:
    """Take the best exchanges between two parts that lower Psi, in place; return how many."""
    labels, inside = state.labels, state.inside
    sizes = state.sizes
    counts = parts.counts(labels)
    everybody = np.arange(kernel.n)
    # What a unit would gain by leaving, as the centroids are.
    pull = 2.0 * (state.sums[:, b] / sizes[b] - state.sums[:, a] / sizes[a])
    pull += parts.sizes * (inside[a] / sizes[a] ** 2 - inside[b] / sizes[b] ** 2)
    left, right = parts.candidates(labels, a, pull), parts.candidates(labels, b, -pull)
    gains = _gains(kernel, parts, state, a, b, left, right)
    gains[~parts.allowed(counts, a, b, left, right)] = -np.inf
    noise = 1e-12 * abs(state.psi)
    used: set[int] = set()
    taken = 0
    for i, j in best_pairs(gains - noise):
        u = int(left[i]) if i < len(left) else NOBODY
        v = int(right[j]) if j < len(right) else NOBODY
        if {u, v} & used or not parts.may(counts, a, b, u, v):
            continue
        one, other = (np.array([] if who == NOBODY else [who], dtype=np.int64) for who in (u, v))
        gain = _gains(kernel, parts, state, a, b, one, other)
        if gain[0, 0] <= noise:
            continue
        row = np.concatenate([one, other])
        signs = np.repeat([1.0, -1.0], [len(one), len(other)])
        shift = kernel.block(everybody, row) @ signs
        within = float(signs @ (kernel.block(row, row) @ signs))
        inside[a] += within - 2.0 * float(signs @ state.sums[row, a])
        inside[b] += within + 2.0 * float(signs @ state.sums[row, b])
        state.sums[:, a] -= shift
        state.sums[:, b] += shift
        rows = float(signs @ parts.sizes[row])
        sizes[a] -= rows
        sizes[b] += rows
        parts.exchange(labels, counts, a, b, u, v)
        used |= {u, v} - {NOBODY}
        taken += 1
        if taken == TAKEN:
            break
    return taken


def _gains(
    kernel: Geometry,
    parts: GroupParts,
    state: GroupCandidate,
    a: int,
    b: int,
    left: NDArray[np.int64],
    right: NDArray[np.int64],
) -> Doubles:
    """By how much Psi falls if u of a and v of b change places; the last of each stands for nobody."""
    own = kernel.diagonal
    gone = np.append(own[left], 0.0)[:, None]
    come = np.append(own[right], 0.0)[None, :]
    between = np.zeros((len(left) + 1, len(right) + 1))
    if len(left) and len(right):
        between[:-1, :-1] = kernel.block(left, right)
    net = np.append(parts.sizes[left], 0.0)[:, None] - np.append(parts.sizes[right], 0.0)[None, :]
    change = gone + come - 2.0 * between
    after = []
    for part, sign in ((a, -1.0), (b, 1.0)):
        u, v = (np.append(state.sums[who, part], 0.0) for who in (left, right))
        inside = state.inside[part] + sign * 2.0 * (u[:, None] - v[None, :]) + change
        size = state.sizes[part] + sign * net
        after.append(np.where(size > 0, inside / np.where(size > 0, size, 1.0), -np.inf))
    before = state.inside[a] / state.sizes[a] + state.inside[b] / state.sizes[b]
    return np.asarray(after[0] + after[1] - before)


def _starts(
    kernel: Geometry, parts: GroupParts, restarts: int, rng: np.random.Generator
) -> Iterator[tuple[str, Labels]]:
    """The first assignment that was found, others around seeds far apart, and at random."""
    n_random = max(1, restarts // 5)
    for run, stream in enumerate(rng.spawn(restarts)):
        if run == 0:
            yield "first", parts.first
        elif run < restarts - n_random:
            yield (
                f"seeds-{run - 1}",
                parts.cheaper(parts.first, _seed_costs(kernel, parts, stream)),
            )
        else:
            costs = stream.random((kernel.n, parts.quotas.k)) * parts.sizes[:, None]
            yield f"random-{run - (restarts - n_random)}", parts.cheaper(parts.first, costs)


def _seed_costs(kernel: Geometry, parts: GroupParts, rng: np.random.Generator) -> Doubles:
    """Squared distances of every unit's rows to units far from each other (k-means++), but for constants."""
    everybody, sizes = np.arange(kernel.n), parts.sizes
    own = kernel.diagonal / sizes
    nearest = np.full(kernel.n, np.inf)
    costs = []
    seed = int(rng.integers(kernel.n))
    for _ in range(parts.quotas.k):
        column = kernel.block(everybody, np.array([seed]))[:, 0] / sizes[seed]
        cost = sizes * own[seed] / sizes[seed] - 2.0 * column
        costs.append(cost)
        nearest = np.minimum(nearest, np.maximum(cost + own, 0.0))
        total = float(nearest.sum())
        seed = int(rng.choice(kernel.n, p=nearest / total if total > 0 else None))
    return np.stack(costs, axis=1)
