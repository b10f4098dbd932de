"""The assignment step for any number of parts: rows of a cell to parts of given sizes, at the least cost.

A transportation problem per cell, with few parts and many rows. Its dual has one price per part: rows go to
the part that is cheapest with its price. Coordinate ascent finds prices at which nearly as many rows come
as there is room for; the few that are too many move on along shortest paths between parts, which keeps
the assignment optimal for its counts until the counts are right (successive shortest paths).

It ends on every input. The ascent makes at most `MAX_SWEEPS` sweeps. Every path moves at least one row from a
part that has too many to one that has too few, and no path makes another part exceed what it holds; so there
are no more paths than rows that were out of place, at most twice as many as the cell has. Paths are found by
Dijkstra's algorithm on reduced costs, of which those below zero, by rounding, count as zero: it visits
every part once, whatever the costs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_SWEEPS = 40
MOST_EXPONENT = 1023
FARTHEST = 8.0
SLIP = 16 * np.finfo(np.float64).eps
"""Moves whose costs differ by less than this share of a row's costs differ by rounding."""

Labels = NDArray[np.int64]
Prices = NDArray[np.float64]


def transport(
    costs: NDArray[Any], lower: NDArray[np.int64], upper: NDArray[np.int64], prices: Prices | None = None
) -> tuple[Labels, Prices]:
    """Assign rows to parts such that `lower <= rows per part <= upper`, for a batch of costs.

    Parameters
    ----------
    costs : (r, m, k)
    lower, upper : (k,), feasible: sum of lower <= m <= sum of upper.
    prices : (r, k) to begin from, such as those of similar costs.

    Returns
    -------
    The part of every row, shape (r, m), exactly optimal; and the prices found, shape (r, k).
    """
    exact, scale = _scaled(np.asarray(costs, dtype=np.float64))
    with np.errstate(over="ignore"):
        begun = np.zeros((len(exact), len(lower))) if prices is None else prices / scale
    # A price beyond all costs says no more than one that is just beyond them.
    found = _ascend(exact, lower, upper, np.clip(begun, -FARTHEST, FARTHEST))
    labels = (exact + found[:, None, :]).argmin(axis=2)
    counts = _counts(labels, len(lower))
    for run in np.flatnonzero((counts != held_counts(counts, lower, upper, found)).any(axis=1)).tolist():
        mend(exact[run], lower, upper, found[run], labels[run])
    return labels, found * scale


def _scaled(costs: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Divide every run's costs by a power of two, which rounds nothing, so that the largest is about 1.

    Returns
    -------
    The costs, and what they were divided by, shape (r, 1).
    """
    largest = np.abs(costs).max(axis=(1, 2), initial=0.0)
    if not np.isfinite(largest).all():  # what overflowed counts as the largest cost there is
        costs = np.nan_to_num(costs, nan=np.finfo(np.float64).max)
        largest = np.abs(costs).max(axis=(1, 2), initial=0.0)
    exponent = np.minimum(np.frexp(largest)[1], MOST_EXPONENT)
    return np.ldexp(costs, -exponent[:, None, None]), np.ldexp(1.0, exponent)[:, None]


def _ascend(
    costs: NDArray[np.float64], lower: NDArray[np.int64], upper: NDArray[np.int64], prices: Prices
) -> Prices:
    """Set one part's price after the other so that it gets what it has room for, in all runs at once."""
    r, _, k = costs.shape
    best: Prices = prices.copy()
    by_part = np.ascontiguousarray(costs.transpose(2, 0, 1))
    least_off = _off(by_part, lower, upper, prices)
    runs = np.flatnonzero(least_off > 0)
    for _ in range(MAX_SWEEPS):
        if len(runs) == 0:
            break
        mine = by_part if len(runs) == r else by_part[:, runs]
        total = mine + prices[runs].T[:, :, None]
        for part in range(k):
            others = np.minimum.reduce([total[other] for other in range(k) if other != part])
            price = _price(others - mine[part], int(lower[part]), int(upper[part]))
            prices[runs, part] = price
            total[part] = mine[part] + price[:, None]
        off = _off(mine, lower, upper, prices[runs])
        better = off < least_off[runs]
        best[runs[better]] = prices[runs[better]]
        least_off[runs[better]] = off[better]
        # Sweeps that bring nothing any more leave the rest to single moves.
        runs = runs[better & (off > 0)]
    return best


def _price(worth: NDArray[np.float64], least: int, most: int) -> NDArray[np.float64]:
    """The price at which a part gets no more rows than it may and no fewer than it must, 0 if that will do.

    Parameters
    ----------
    worth : (r, m), a row comes as long as the price is below this.
    """
    if least == most:
        return _price_of(worth, most)
    natural = (worth > 0).sum(axis=1)
    price = np.zeros(len(worth))
    for wanted, runs in ((most, np.flatnonzero(natural > most)), (least, np.flatnonzero(natural < least))):
        if len(runs):
            price[runs] = _price_of(worth[runs], wanted)
    return price


def _price_of(worth: NDArray[np.float64], wanted: int) -> NDArray[np.float64]:
    """The price at which so many rows come: between the last of them and the first that does not."""
    m = worth.shape[1]
    if wanted == 0:
        return np.asarray(worth.max(axis=1) + 1.0)
    if wanted >= m:
        return np.asarray(worth.min(axis=1) - 1.0)
    around = np.partition(worth, (m - wanted - 1, m - wanted), axis=1)
    return np.asarray((around[:, m - wanted - 1] + around[:, m - wanted]) / 2)


def _off(
    by_part: NDArray[np.float64], lower: NDArray[np.int64], upper: NDArray[np.int64], prices: Prices
) -> NDArray[np.int64]:
    """Rows that are out of place at these prices, given which bounds they hold tight; shape (r,).

    Parameters
    ----------
    by_part : (k, r, m), the costs.
    """
    counts = _counts((by_part + prices.T[:, :, None]).argmin(axis=0), len(lower))
    return np.asarray(np.abs(counts - held_counts(counts, lower, upper, prices)).sum(axis=1))


def _counts(labels: Labels, k: int) -> NDArray[np.int64]:
    """Rows in each of k parts, for a batch of labels (r, m); shape (r, k)."""
    r = len(labels)
    return np.bincount((labels + k * np.arange(r)[:, None]).reshape(-1), minlength=r * k).reshape(r, k)


def held_counts(
    counts: NDArray[np.int64], lower: NDArray[np.int64], upper: NDArray[np.int64], prices: Prices
) -> NDArray[np.int64]:
    """The rows each part is to have: all it may if it costs, no more than it must if it is paid for."""
    within = np.clip(counts, lower, upper)
    return np.where(prices > 0, upper, np.where(prices < 0, lower, within))


def mend(
    costs: NDArray[np.float64],
    lower: NDArray[np.int64],
    upper: NDArray[np.int64],
    prices: Prices,
    labels: Labels,
) -> None:
    """Move rows along shortest paths until every part is within its bounds; changes `labels` and `prices`.

    Besides the parts there is a hub, the last node, whose price stays 0: what parts have beyond their lower
    bounds flows through it, so a path over it exchanges room within the bounds.
    """
    m, k = costs.shape
    counts = np.bincount(labels, minlength=k)
    held = held_counts(counts, lower, upper, prices)
    excess = np.append(counts - held, held.sum() - m)
    if not excess.any():
        return
    potentials = np.append(prices, 0.0)
    moves = np.full((k + 1, k + 1), np.inf)
    change = costs - costs[np.arange(m), labels][:, None]
    slack = SLIP * np.abs(costs).max(axis=1)
    for part in range(k):
        moves[part, :k] = _cheapest_moves(change, labels, part)
    while excess.any():
        moves[:k, k] = np.where(held < upper, 0.0, np.inf)
        moves[k, :k] = np.where(held > lower, 0.0, np.inf)
        reduced = np.maximum(moves + potentials - potentials[:, None], 0.0)
        path, distance = _shortest_path(reduced, excess)
        potentials -= distance
        steps = list(pairwise(path))
        # Rows that cost the same go the same way together.
        going = {
            (start, end): np.flatnonzero((labels == start) & (change[:, end] <= moves[start, end] + slack))
            for start, end in steps
            if k not in (start, end)
        }
        room = [int((upper - held)[start]) for start, end in steps if end == k]
        room += [int((held - lower)[end]) for start, end in steps if start == k]
        number = int(min(excess[path[0]], -excess[path[-1]], *room, *(len(rows) for rows in going.values())))
        excess[path[0]] -= number
        excess[path[-1]] += number
        for start, end in steps:
            if end == k:
                held[start] += number
            elif start == k:
                held[end] -= number
            else:
                rows = going[start, end][:number]
                labels[rows] = end
                change[rows] = costs[rows] - costs[rows, end][:, None]
        for part in {part for step in going for part in step}:
            moves[part, :k] = _cheapest_moves(change, labels, part)
    prices[:] = potentials[:k] - potentials[k]


def _cheapest_moves(change: NDArray[np.float64], labels: Labels, part: int) -> NDArray[np.float64]:
    """What it costs at least to move a row from a part to each other; `change` is what every move costs."""
    least: NDArray[np.float64] = change[labels == part].min(axis=0, initial=np.inf)
    least[part] = np.inf
    return least


def _shortest_path(
    lengths: NDArray[np.float64], excess: NDArray[np.int64]
) -> tuple[list[int], NDArray[np.float64]]:
    """The shortest way from a node with too much to one with too little (Dijkstra).

    Parameters
    ----------
    lengths : (n, n), none of them negative.

    Returns
    -------
    The way, and how far every node is, at most as far as its end.
    """
    n = len(lengths)
    edges, rooms = lengths.tolist(), excess.tolist()  # parts are few: plain numbers are quicker than arrays
    distance = [0.0 if room > 0 else np.inf for room in rooms]
    before, still = [-1] * n, list(range(n))
    while True:
        node = min(still, key=distance.__getitem__, default=-1)
        if node < 0 or distance[node] == np.inf:
            raise ValueError("no assignment meets the bounds")
        if rooms[node] < 0:
            break
        still.remove(node)
        reached, edge = distance[node], edges[node]
        for other in still:
            through = reached + edge[other]
            if through < distance[other]:
                distance[other], before[other] = through, node
    path = [node]
    while before[path[-1]] >= 0:
        path.append(before[path[-1]])
    return path[::-1], np.minimum(distance, distance[node])
