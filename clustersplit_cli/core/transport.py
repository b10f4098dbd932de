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
ENOUGH = 2
"""Rows out of place per part at which moving them one by one is quicker than another sweep."""

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
    runs = np.arange(r)
    least_off = np.full(r, np.iinfo(np.int64).max)
    best: Prices = prices.copy()
    for _ in range(MAX_SWEEPS):
        for part in range(k):
            total = costs[runs] + prices[runs][:, None, :]
            total[:, :, part] = np.inf
            # A row comes as long as the price is below this.
            worth = np.sort(total.min(axis=2) - costs[runs, :, part], axis=1)[:, ::-1]
            natural = (worth > 0).sum(axis=1)
            wanted = np.clip(natural, lower[part], upper[part])
            padded = np.concatenate([worth[:, :1] + 1.0, worth, worth[:, -1:] - 1.0], axis=1)
            middle = (padded[np.arange(len(runs)), wanted] + padded[np.arange(len(runs)), wanted + 1]) / 2
            prices[runs, part] = np.where(natural == wanted, 0.0, middle)
        counts = _counts((costs[runs] + prices[runs][:, None, :]).argmin(axis=2), k)
        off = _off(counts, lower, upper, prices[runs])
        better = off < least_off[runs]
        best[runs[better]] = prices[runs[better]]
        least_off[runs[better]] = off[better]
        # Sweeps that bring nothing any more leave the rest to single moves.
        runs = runs[better & (off > ENOUGH * k)]
        if len(runs) == 0:
            break
    return best


def _counts(labels: Labels, k: int) -> NDArray[np.int64]:
    return np.stack([(labels == part).sum(axis=1) for part in range(k)], axis=1)


def _off(
    counts: NDArray[np.int64], lower: NDArray[np.int64], upper: NDArray[np.int64], prices: Prices
) -> NDArray[np.int64]:
    """Rows that are out of place, given which bounds the prices hold tight; shape (r,)."""
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
    for part in range(k):
        _survey(costs, labels, part, moves, movers)
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
                labels[movers[start, end]] = end
                touched |= {start, end}
        for part in touched:
            _survey(costs, labels, part, moves, movers)


def _survey(
    costs: NDArray[np.float64],
    labels: Labels,
    part: int,
    moves: NDArray[np.float64],
    movers: NDArray[np.int64],
) -> None:
    """Find the cheapest row to move from a part to each other one."""
    rows = np.flatnonzero(labels == part)
    k = costs.shape[1]
    if len(rows) == 0:
        moves[part, :k] = np.inf
        return
    change = costs[rows] - costs[rows, part][:, None]
    cheapest = change.argmin(axis=0)
    moves[part, :k] = change[cheapest, np.arange(k)]
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
