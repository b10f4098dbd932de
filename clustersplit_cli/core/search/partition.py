"""A partition of the rows into k parts: its objective, its MMDs, and its assignment step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from clustersplit_cli.core.assignment.cbc import TransportCell, solve_transport
from clustersplit_cli.core.assignment.transport import transport
from clustersplit_cli.core.constraints.cells import Labels
from clustersplit_cli.core.constraints.quotas import Quotas
from clustersplit_cli.core.geometry.dense import FEW
from clustersplit_cli.core.geometry.protocol import Geometry
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.problem import Measures

MOST_PERMUTED = 3
"""Up to this many parts of unequal shares every way to hand out the centroids is tried."""


@dataclass(frozen=True)
class State:
    """A batch of partitions measured with one multiplication by K.

    Attributes
    ----------
    sums : (n, r, k), sum of each row's kernel values with each part.
    inside : (r, k), sum of all kernel values within each part.
    sizes : (r, k), rows of each part.
    psi : (r,), scatter within the parts.
    """

    sums: NDArray[Any]
    inside: NDArray[np.float64]
    sizes: NDArray[np.int64]
    psi: NDArray[np.float64]

    @classmethod
    def of(cls, geometry: Geometry, labels: Labels, sums: NDArray[Any], k: int) -> State:
        """One partition (n,), from the sums (n, k) of every row's kernel values with each part."""
        own = np.take_along_axis(sums, labels[:, None], axis=1)[:, 0]
        inside = np.bincount(labels, weights=own, minlength=k).astype(np.float64)[None]
        sizes = np.bincount(labels, minlength=k)[None]
        return cls(sums[:, None], inside, sizes, _psi(geometry, inside, sizes))

    def replaced(self, other: State, runs: NDArray[np.bool_]) -> State:
        """With some of the partitions those of another batch."""
        if runs.all():
            return other
        if not runs.any():
            return self
        return State(
            np.where(runs[:, None], other.sums, self.sums),
            np.where(runs[:, None], other.inside, self.inside),
            np.where(runs[:, None], other.sizes, self.sizes),
            np.where(runs, other.psi, self.psi),
        )

    def only(self, runs: NDArray[np.bool_]) -> State:
        """Some of the partitions."""
        if runs.all():
            return self
        return State(self.sums[:, runs], self.inside[runs], self.sizes[runs], self.psi[runs])

    def costs(self) -> NDArray[np.float64]:
        """Squared distance of every row to every centroid, but for K_ii; shape (r, n, k)."""
        sizes = np.maximum(self.sizes, 1).astype(np.float64)[:, None, :]
        return np.asarray(-2.0 * self.sums.transpose(1, 0, 2) / sizes + self.inside[:, None, :] / sizes**2)


def one_hot(labels: Labels, k: int, dtype: DTypeLike) -> NDArray[Any]:
    """Indicators of the parts of a batch (n, r), shape (n, r k)."""
    marks = labels[:, :, None] == np.arange(k)
    return np.asarray(marks.reshape(len(labels), labels.shape[1] * k).astype(dtype))


def measure(geometry: Geometry, labels: Labels, k: int, dtype: DTypeLike) -> State:
    """Measure a batch of partitions (n, r)."""
    n, r = labels.shape
    marks = one_hot(labels, k, dtype)
    product, inside = geometry.measure(marks)
    within = inside.reshape(r, k)
    sizes = np.stack([np.bincount(labels[:, run], minlength=k) for run in range(r)])
    return State(product.reshape(n, r, k), within, sizes, _psi(geometry, within, sizes))


def _psi(geometry: Geometry, inside: NDArray[np.float64], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Scatter within the parts; infinite where a part is empty, which wide tolerances would allow."""
    psi = geometry.trace - (inside / np.maximum(sizes, 1)).sum(axis=1)
    return np.where((sizes > 0).all(axis=1), psi, np.inf)


def remeasure(
    geometry: Geometry, labels: Labels, k: int, dtype: DTypeLike, earlier: tuple[Labels, State]
) -> State:
    """Measure one partition (n, 1) of which an earlier one, and what it measured, is known.

    If few rows moved, what they change is added to sums in float64. A kernel that is held as factors in less
    precision is passed over in that: the error is a share of the change, not of the sums.
    """
    before, state = earlier
    precision = dtype
    if geometry.is_low_rank:
        dtype = geometry.search_dtype
    moved = np.flatnonzero(labels[:, 0] != before[:, 0])
    if len(moved) > geometry.n // FEW:
        return measure(geometry, labels, k, precision)
    change = one_hot(labels[moved], k, dtype) - one_hot(before[moved], k, dtype)
    sums = state.sums[:, 0].astype(np.float64)
    if len(moved):
        sums += geometry.times_columns(moved, change)
    return State.of(geometry, labels[:, 0], sums, k)


def rest_squared(state: State) -> NDArray[np.float64]:
    """MMD² between every part and all other rows, for a batch; shape (r, k)."""
    sizes = state.sizes.astype(np.float64)
    others = sizes.sum(axis=1, keepdims=True) - sizes
    with_all = state.sums.sum(axis=0, dtype=np.float64)
    within_others = with_all.sum(axis=1, keepdims=True) - 2.0 * with_all + state.inside
    between = (with_all - state.inside) / (sizes * others)
    squared = state.inside / sizes**2 + within_others / others**2 - 2.0 * between
    return np.asarray(np.maximum(squared, 0.0))


def without_empty_parts(quotas: Quotas, labels: Labels) -> Labels:
    """Give a row to every part that has none, which wide tolerances allow, where the bounds leave one.

    Parameters
    ----------
    labels : (n, r)
    """
    filled = labels
    for run in range(labels.shape[1]):
        for part in np.flatnonzero(np.bincount(labels[:, run], minlength=quotas.k) == 0):
            now, codes = filled[:, run], quotas.cells.codes
            counts, sizes = quotas.counts(now), np.bincount(now, minlength=quotas.k)
            spare = (counts > quotas.lower)[codes, now] & (sizes[now] > 1) & (quotas.pinned < 0)
            rows = np.flatnonzero(spare & (quotas.upper[codes, part] > 0))
            if len(rows):
                filled = filled.copy()
                filled[rows[0], run] = part
    return filled


@dataclass(frozen=True)
class Assigned:
    """What an assignment step found for a batch.

    Attributes
    ----------
    labels : (r, n), the part of every row.
    costs : (r,), their total costs.
    prices : (r, cells, k), to begin the next step from.
    """

    labels: Labels
    costs: NDArray[np.float64]
    prices: NDArray[np.float64]


@dataclass(frozen=True)
class PartAssigner:
    """The assignment step: every cell on its own, by prices and shortest paths.

    Attributes
    ----------
    permuting : whether the centroids may be handed out to other parts; parts of equal shares need it not.
    solver : `auto`, or `cbc` to send every cell of every step through CBC.
    """

    quotas: Quotas
    workers: Workers
    permuting: bool
    solver: str = "auto"

    @cached_property
    def cells(self) -> list[FreeCell]:
        """The rows of every cell that are not forced into a part."""
        return free_cells(self.quotas)

    def assign(self, costs: NDArray[np.float64], prices: NDArray[np.float64] | None = None) -> Assigned:
        """Assign all rows at the least total cost, whichever part each centroid serves.

        Parameters
        ----------
        costs : (r, n, k), squared distances to the centroids.
        prices : (r, cells, k), of an earlier step.
        """
        found = self.assign_in_order(costs, prices)
        if not self.permuting:
            return found
        labels, total, price = found.labels.copy(), found.costs.copy(), found.prices.copy()
        cheapest = self._cheapest(costs, found.prices)
        for orders in self._orders(costs):
            least = self._least(costs, orders, found.prices, cheapest)
            runs = np.flatnonzero(least < total - 1e-12 * np.abs(total))
            if len(runs) == 0:
                continue
            turned = np.take_along_axis(costs[runs], orders[runs, None, :], axis=2)
            other = self.assign_in_order(
                turned, np.take_along_axis(found.prices[runs], orders[runs, None, :], 2)
            )
            better = other.costs < total[runs]
            to = runs[better]
            labels[to], total[to], price[to] = other.labels[better], other.costs[better], other.prices[better]
        return Assigned(labels, total, price)

    def _cheapest(self, costs: NDArray[np.float64], prices: NDArray[np.float64]) -> NDArray[np.float64]:
        """What all free rows cost, each where it is cheapest at these prices; shape (r,)."""
        rows, places = self._free
        return np.asarray((costs[:, rows] + prices[:, places]).min(axis=2).sum(axis=1))

    @cached_property
    def _free(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All free rows, and the place of each one's cell."""
        sizes = [len(cell.rows) for cell in self.cells]
        rows = [np.empty(0, np.int64), *(cell.rows for cell in self.cells)]
        return np.concatenate(rows), np.repeat(np.arange(len(sizes)), sizes)

    @cached_property
    def _limits(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Bounds of the free rows of every cell, each (cells, k)."""
        shape = (len(self.cells), self.quotas.k)
        return (
            np.array([cell.lower for cell in self.cells], np.int64).reshape(shape),
            np.array([cell.upper for cell in self.cells], np.int64).reshape(shape),
        )

    def _least(
        self,
        costs: NDArray[np.float64],
        orders: NDArray[np.int64],
        prices: NDArray[np.float64],
        cheapest: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Bound the cost of other orders from below, by the prices of this one handed on with the centroids.

        Any prices give a bound (weak duality), and most orders need no more than that to be ruled out.
        """
        turned = np.take_along_axis(prices, orders[:, None, :], axis=2)
        lower, upper = self._limits
        paid = np.where(turned > 0, upper * turned, lower * turned).sum(axis=(1, 2))
        forced = np.flatnonzero(self.quotas.pinned >= 0)
        centroids = orders[:, self.quotas.pinned[forced]]
        return np.asarray(
            cheapest - paid + np.take_along_axis(costs[:, forced], centroids[:, :, None], 2).sum(axis=(1, 2))
        )

    def _orders(self, costs: NDArray[np.float64]) -> list[NDArray[np.int64]]:
        """Other ways to hand out the centroids, each (r, k): part j gets centroid order[j]."""
        r, _, k = costs.shape
        if k <= MOST_PERMUTED:
            return [np.tile(np.array(order), (r, 1)) for order in permutations(range(k))][1:]
        return [np.stack([self._best_order(one) for one in costs])]

    def _best_order(self, costs: NDArray[np.float64]) -> NDArray[np.int64]:
        """Hand out the centroids by what each part would cost with each, were it the first to choose."""
        from scipy.optimize import linear_sum_assignment

        k = self.quotas.k
        alone = np.zeros((k, k))  # (part, centroid)
        for cell in self.cells:
            cheapest = np.cumsum(np.sort(costs[cell.rows], axis=0), axis=0)
            for part in np.flatnonzero(cell.target).tolist():
                alone[part] += cheapest[cell.target[part] - 1]
        return np.asarray(linear_sum_assignment(alone)[1])

    def assign_in_order(
        self, costs: NDArray[np.float64], prices: NDArray[np.float64] | None = None
    ) -> Assigned:
        """Assign all rows at the least total cost, centroid j serving part j."""
        r, _, k = costs.shape
        labels: Labels = np.tile(self.quotas.pinned, (r, 1))
        found = np.zeros((r, len(self.cells), k))

        def one(place: int) -> None:
            cell = self.cells[place]
            start = None if prices is None else prices[:, place]
            chosen, price = transport(costs[:, cell.rows], cell.lower, cell.upper, start)
            labels[:, cell.rows] = chosen
            found[:, place] = price

        if self.solver == "cbc":
            assigned = solve_transport(costs, [cell.limits for cell in self.cells], self.workers)[0]
            labels = np.where(assigned < 0, labels, assigned)
        else:
            self.workers.run(one, range(len(self.cells)))
        total = np.take_along_axis(costs, labels[:, :, None], axis=2).sum(axis=(1, 2))
        return Assigned(labels, total, found)

    def random(self, rng: np.random.Generator) -> Labels:
        """Draw a partition uniformly among those that meet every cell's targets; shape (n,)."""
        labels: Labels = self.quotas.pinned.copy()
        for cell in self.cells:
            labels[rng.permutation(cell.rows)] = np.repeat(np.arange(self.quotas.k), cell.target)
        return without_empty_parts(self.quotas, labels[:, None])[:, 0]


@dataclass(frozen=True)
class FreeCell:
    """The free rows of a cell, and how many of them each part is to get."""

    rows: NDArray[np.int64]
    target: NDArray[np.int64]
    lower: NDArray[np.int64]
    upper: NDArray[np.int64]

    @property
    def limits(self) -> TransportCell:
        """What the assignment program says of it."""
        return self.rows, self.lower, self.upper


def free_cells(quotas: Quotas) -> list[FreeCell]:
    """Take the rows that are forced into a part off their cells."""
    cells = []
    for code, rows in enumerate(np.split(quotas.cells.order, quotas.cells.offsets[1:-1])):
        pins = quotas.pinned[rows]
        free = rows[pins < 0]
        if len(free) == 0:
            continue
        taken = np.bincount(pins[pins >= 0], minlength=quotas.k)
        lower, upper = np.maximum(quotas.lower[code] - taken, 0), np.maximum(quotas.upper[code] - taken, 0)
        target = np.clip(quotas.target[code] - taken, lower, upper)
        cells.append(FreeCell(free, _filled(target, lower, upper, len(free)), lower, upper))
    return cells


def _filled(
    target: NDArray[np.int64], lower: NDArray[np.int64], upper: NDArray[np.int64], total: int
) -> NDArray[np.int64]:
    """Bring targets that forced rows have shifted back to their total, within the bounds."""
    filled: NDArray[np.int64] = target.copy()
    while filled.sum() != total:
        step = 1 if filled.sum() < total else -1
        room = upper - filled if step > 0 else filled - lower
        filled[int(np.argmax(room))] += step
    return filled


@dataclass(frozen=True, kw_only=True)
class PartitionMeasures(Measures):
    """Any number of parts, with what their assignment step needs.

    Attributes
    ----------
    costs : (n, k), squared distance of every row to every centroid, but for K_ii; empty where rows are not
        in memory.
    trace : of K.
    """

    pairs: NDArray[np.float64]
    rest_squared: NDArray[np.float64]
    costs: NDArray[np.float64]
    trace: float


def evaluate_partition(geometry: Geometry, labels: Labels, k: int) -> PartitionMeasures:
    """Measure one partition (n,): all MMDs from the k x k sums of kernel values between parts."""
    state = measure(geometry, labels[:, None], k, np.float64)
    marks = one_hot(labels[:, None], k, np.float64)
    between = marks.T @ state.sums[:, 0]
    between = (between + between.T) / 2
    found = measure_sums(between, state.sizes[0], geometry.trace, float(state.psi[0]))
    return replace(found, costs=state.costs()[0])


def measure_sums(
    between: NDArray[np.float64], counts: NDArray[np.int64], trace: float, psi: float | None = None
) -> PartitionMeasures:
    """Measure a partition by the k x k sums of kernel values between its parts, without costs of rows.

    Parameters
    ----------
    counts : (k,), rows of every part.
    trace : of the kernel.
    psi : the scatter within the parts, if it was found in another way.
    """
    sizes, n = counts.astype(np.float64), int(counts.sum())
    means = between / np.outer(sizes, sizes)
    norms = means.diagonal()
    squared = np.maximum(norms[:, None] + norms[None, :] - 2.0 * means, 0.0)
    np.fill_diagonal(squared, 0.0)
    others = n - sizes
    to_rest = (between.sum(axis=1) - between.diagonal()) / (sizes * others)
    within_rest = (between.sum() - 2.0 * between.sum(axis=1) + between.diagonal()) / others**2
    rest = np.maximum(norms + within_rest - 2.0 * to_rest, 0.0)
    pairs = np.triu(np.outer(sizes, sizes), 1)
    scatter = trace - float(between.sum()) / n
    explained = float((pairs * squared).sum()) / n
    if psi is None:
        psi = trace - float((between.diagonal() / sizes).sum())
    residual = abs(scatter - psi - explained) / scatter if scatter > 0 else 0.0
    mean_squared = float((pairs * squared).sum() / pairs.sum())
    return PartitionMeasures(
        sizes=counts,
        mmd_squared=mean_squared,
        psi=psi,
        ssq_total=scatter,
        identity_residual=residual,
        pairs=squared,
        rest_squared=rest,
        costs=np.empty((0, len(counts))),
        trace=trace,
    )
