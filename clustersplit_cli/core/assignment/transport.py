"""The assignment step for any number of parts: rows of a cell to parts of given sizes, at the least cost.

A transportation problem per cell, with few parts and many rows. Its dual has one price per part: rows go to
the part that is cheapest with its price. Coordinate ascent finds prices at which nearly as many rows come
as there is room for; the few that are too many move on along shortest paths between parts, which keeps
the assignment optimal for its counts until the counts are right: there never is a negative cycle.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_SWEEPS = 40

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
    exact = np.asarray(costs, dtype=np.float64)
    found = _ascend(
        exact, lower, upper, np.zeros((len(exact), len(lower))) if prices is None else prices.copy()
    )
    labels = (exact + found[:, None, :]).argmin(axis=2)
    for run in range(len(exact)):
        _mend(exact[run], lower, upper, found[run], labels[run])
    return labels, found


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
    k, r, _ = by_part.shape
    labels = (by_part + prices.T[:, :, None]).argmin(axis=0)
    counts = np.bincount((labels + k * np.arange(r)[:, None]).reshape(-1), minlength=r * k).reshape(r, k)
    return np.asarray(np.abs(counts - _held(counts, lower, upper, prices)).sum(axis=1))


def _held(
    counts: NDArray[np.int64], lower: NDArray[np.int64], upper: NDArray[np.int64], prices: Prices
) -> NDArray[np.int64]:
    """The rows each part is to have: all it may if it costs, no more than it must if it is paid for."""
    within = np.clip(counts, lower, upper)
    return np.where(prices > 0, upper, np.where(prices < 0, lower, within))


def _mend(
    costs: NDArray[np.float64],
    lower: NDArray[np.int64],
    upper: NDArray[np.int64],
    prices: Prices,
    labels: Labels,
) -> None:
    """Move rows along shortest paths until every part is within its bounds; `labels` is changed.

    Besides the parts there is a hub, the last node: what parts have beyond their lower bounds flows
    through it, so a path over it exchanges room within the bounds.
    """
    m, k = costs.shape
    counts = np.bincount(labels, minlength=k)
    held = _held(counts, lower, upper, prices)
    excess = np.append(counts - held, held.sum() - m)
    if not excess.any():
        return
    moves = np.full((k + 1, k + 1), np.inf)
    movers = np.zeros((k, k), dtype=np.int64)
    change = costs - costs[np.arange(m), labels][:, None]
    for part in range(k):
        _survey(change, labels, part, moves, movers)
    while excess.any():
        moves[:k, k] = np.where(held < upper, 0.0, np.inf)
        moves[k, :k] = np.where(held > lower, 0.0, np.inf)
        path = _shortest_path(moves, excess)
        excess[path[0]] -= 1
        excess[path[-1]] += 1
        touched = set()
        for start, end in pairwise(path):
            if end == k:
                held[start] += 1
            elif start == k:
                held[end] -= 1
            else:
                row = movers[start, end]
                labels[row] = end
                change[row] = costs[row] - costs[row, end]
                touched |= {start, end}
        for part in touched:
            _survey(change, labels, part, moves, movers)


def _survey(
    change: NDArray[np.float64],
    labels: Labels,
    part: int,
    moves: NDArray[np.float64],
    movers: NDArray[np.int64],
) -> None:
    """Find the cheapest row to move from a part to each other one; `change` is what every move costs."""
    rows = np.flatnonzero(labels == part)
    k = change.shape[1]
    if len(rows) == 0:
        moves[part, :k] = np.inf
        return
    inside = change[rows]
    cheapest = inside.argmin(axis=0)
    moves[part, :k] = inside[cheapest, np.arange(k)]
    moves[part, part] = np.inf
    movers[part] = rows[cheapest]


def _shortest_path(moves: NDArray[np.float64], excess: NDArray[np.int64]) -> list[int]:
    """The cheapest way from a node with too much to one with too little (Bellman and Ford)."""
    n = len(moves)
    distance = np.where(excess > 0, 0.0, np.inf)
    before = np.full(n, -1)
    for _ in range(n):
        through = distance[:, None] + moves
        best = through.argmin(axis=0)
        # Ways that are shorter by rounding only would go in circles.
        rounding = 1e-15 * np.where(np.isfinite(distance), np.abs(distance), 0.0)
        shorter = through[best, np.arange(n)] < distance - rounding
        if not shorter.any():
            break
        distance = np.where(shorter, through[best, np.arange(n)], distance)
        before = np.where(shorter, best, before)
    node = int(np.where(excess < 0, distance, np.inf).argmin())
    path = [node]
    while before[node] >= 0 and len(path) <= n:
        node = int(before[node])
        path.append(node)
    return path[::-1]
