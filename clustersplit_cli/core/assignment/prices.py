"""The assignment step for any number of parts from counts alone: prices at which every part gets its quota.

Every row goes to the part that is cheapest with its cell's price. How many rows would go elsewhere if prices
changed a little is told by histograms of margins: what a row's second cheapest part costs more than its
cheapest. Histograms can be added over any blocks of rows, so that neither rows nor costs have to be brought
together; from one pass to the next they look closer. The few rows that are out of place in the end move on
along shortest paths, as in `transport`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.transport import held_counts, mend

MOST_COUNTS = 1 << 21
MOST_BINS, FEWEST_BINS = 128, 8
MOST_PASSES = 24
FAR, MOST_ROUNDS = 0.1, 8
"""Share of the rows out of place from which on prices are found part by part, and rounds of that."""
SWEEPS = 12
"""Rounds over the parts in which prices are set from one histogram."""
MOST_SEEN = 0.9
SPARE = 32
"""Rows beyond those out of place that the next histogram is to see."""

Prices = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Margins:
    """Where to count margins: at these prices, in bins up to a width for every cell.

    Attributes
    ----------
    prices : (cells, k)
    widths : (cells,), of one bin.
    """

    prices: Prices
    widths: NDArray[np.float64]
    n_bins: int

    def cheapest(
        self, costs: NDArray[np.float64], codes: NDArray[np.integer]
    ) -> tuple[Labels, Labels, NDArray[np.float64]]:
        """The cheapest part of rows with costs (n, k), the second, and the margin between them."""
        total = costs + self.prices[codes]
        rows = np.arange(len(total))
        first = total.argmin(axis=1)
        least = total[rows, first]
        total[rows, first] = np.inf
        second = total.argmin(axis=1)
        return first, second, total[rows, second] - least

    def count(self, costs: NDArray[np.float64], codes: NDArray[np.integer]) -> NDArray[np.int64]:
        """Count rows by cell, cheapest part, second cheapest, and bin; the last bin has all beyond."""
        (n_cells, k), n_bins = self.prices.shape, self.n_bins
        first, second, margin = self.cheapest(costs, codes)
        with np.errstate(over="ignore"):
            place = np.minimum(margin / self.widths[codes], n_bins).astype(np.int64)
        flat = ((codes.astype(np.int64) * k + first) * k + second) * (n_bins + 1) + place
        shape = (n_cells, k, k, n_bins + 1)
        return np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape)


@dataclass(frozen=True)
class Nearest:
    """The rows of cells in which some are out of place that may have to move.

    Attributes
    ----------
    numbers : of the rows, ascending.
    codes, costs : their cells, and what they cost in each part, (n, k).
    """

    numbers: NDArray[np.int64]
    codes: NDArray[np.int64]
    costs: NDArray[np.float64]

    @classmethod
    def joined(cls, pieces: Sequence[Nearest], k: int) -> Nearest:
        """Those of several pieces, whose numbers ascend from piece to piece."""
        return cls(
            np.concatenate([np.empty(0, np.int64), *(piece.numbers for piece in pieces)]),
            np.concatenate([np.empty(0, np.int64), *(piece.codes for piece in pieces)]),
            np.concatenate([np.empty((0, k)), *(piece.costs for piece in pieces)]),
        )

    def nearest(self, prices: Prices, wanted: NDArray[np.int64]) -> Nearest:
        """Of every two parts of a cell the rows of one that cost least more in the other.

        No more rows than are out of place leave a part, so that `wanted` (cells,) of each pair will do.
        """
        k = prices.shape[1]
        here = np.flatnonzero(wanted[self.codes] > 0)
        costs, codes = self.costs[here], self.codes[here]
        groups = codes * k + (costs + prices[codes]).argmin(axis=1)
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        found = [np.empty(0, np.int64)]
        for rows in np.split(order, starts[1:]) if len(order) else ():
            most, own = int(wanted[codes[rows[0]]]), int(groups[rows[0]] % k)
            dearer = costs[rows] - costs[rows, own][:, None]
            found.append(rows[np.unique(np.argsort(dearer, axis=0, kind="stable")[:most])])
        kept = here[np.sort(np.concatenate(found))]
        return Nearest(self.numbers[kept], self.codes[kept], self.costs[kept])


@dataclass(frozen=True)
class PricedParts:
    """Prices, and the rows that do not go where prices send them.

    Attributes
    ----------
    prices : (cells, k)
    numbers, parts : of those rows, ascending, and where they go.
    """

    prices: Prices
    numbers: NDArray[np.int64]
    parts: Labels


def find_prices(
    lower: NDArray[np.int64],
    upper: NDArray[np.int64],
    prices: Prices,
    scale: float,
    count: Callable[[Margins], NDArray[np.int64]],
    price: Callable[[Prices, int], NDArray[np.float64]],
    gather: Callable[[Prices, NDArray[np.int64]], Nearest],
) -> PricedParts:
    """Assign all rows at the least total cost such that `lower <= rows of the cell in each part <= upper`.

    Parameters
    ----------
    lower, upper : (cells, k), feasible.
    prices : (cells, k), to begin from.
    scale : about how far costs differ.
    count : counts margins.
    price : the price of one part, in every cell, at which it gets its share while all others are as they are.
    gather : the nearest rows of all cells, so many of each.
    """
    n_cells, k = lower.shape
    n_bins = int(np.clip(MOST_COUNTS // (n_cells * k * k), FEWEST_BINS, MOST_BINS))
    widths = np.full(n_cells, max(scale, np.finfo(np.float64).tiny) / n_bins)
    now, best = prices.copy(), prices.copy()
    least = np.full(n_cells, np.iinfo(np.int64).max)
    counts = np.zeros((n_cells, k), np.int64)
    stale = np.zeros(n_cells, np.int64)
    for _ in range(MOST_ROUNDS):
        far = out_of_place(count(Margins(now, widths, 1)).sum(axis=(2, 3)), lower, upper, now)
        if far.sum() <= FAR * lower.sum():
            break
        for part in range(k):  # what margins tell is too little for prices that are far off
            now[:, part] = price(now, part)
    for _ in range(MOST_PASSES):
        seen = count(Margins(now, widths, n_bins))
        here = seen.sum(axis=(2, 3))
        off = out_of_place(here, lower, upper, now)
        better = off < least
        best[better], least[better], counts[better] = now[better], off[better], here[better]
        stale = np.where(better, 0, stale + 1)
        is_open = (least > 0) & (stale < 3)
        if not is_open.any():
            break
        now[is_open] = adjusted(seen[is_open], widths[is_open], now[is_open], lower[is_open], upper[is_open])
        widths[is_open] = _narrowed(seen[is_open], widths[is_open], off[is_open])
    return _mended(lower, upper, PricedParts(best, *_nobody()), counts, least, gather)


def _nobody() -> tuple[NDArray[np.int64], Labels]:
    return np.empty(0, np.int64), np.empty(0, np.int64)


def out_of_place(
    counts: NDArray[np.int64], lower: NDArray[np.int64], upper: NDArray[np.int64], prices: Prices
) -> NDArray[np.int64]:
    """How many rows of every cell are out of place, at most: (cells,)."""
    held = held_counts(counts, lower, upper, prices)
    return np.asarray(np.abs(counts - held).sum(axis=1) + np.abs(held.sum(axis=1) - counts.sum(axis=1)))


def _narrowed(
    seen: NDArray[np.int64], widths: NDArray[np.float64], off: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Bins that see as many rows as may have to move, and some more; wider ones where too few were seen."""
    n_bins = seen.shape[3] - 1
    up_to = np.cumsum(seen.sum(axis=(1, 2)), axis=1)
    wanted = np.minimum(2 * off + SPARE, (MOST_SEEN * up_to[:, -1]).astype(np.int64))
    bins = 1 + (up_to < wanted[:, None]).sum(axis=1)
    return np.asarray(widths * np.where(bins > n_bins, 2.0, bins / n_bins))


def adjusted(
    seen: NDArray[np.int64],
    widths: NDArray[np.float64],
    prices: Prices,
    lower: NDArray[np.int64],
    upper: NDArray[np.int64],
) -> Prices:
    """Set one part's price after the other so that it gets what it has room for, by the histograms alone.

    Parameters
    ----------
    seen : (cells, k, k, bins + 1), counted at these prices.
    """
    n_cells, k, _, n_all = seen.shape
    n_bins = n_all - 1
    middle = (np.arange(n_bins) + 0.5) * widths[:, None]
    reach = n_bins * widths[:, None]
    change = np.zeros((n_cells, k))
    for _ in range(SWEEPS):
        for part in range(k):
            others = [other for other in range(k) if other != part]
            # A row comes as long as the part's price rises by less than this.
            stay = change[:, others, None] + middle[:, None, :]
            come = change[:, others, None] - middle[:, None, :]
            worth = np.concatenate([stay, come], axis=1).reshape(n_cells, -1)
            weights = np.concatenate(
                [seen[:, part, others, :n_bins], seen[:, others, part, :n_bins]], axis=1
            ).reshape(n_cells, -1)
            fixed = seen[:, part, :, n_bins].sum(axis=1)
            order = np.argsort(-worth, axis=1, kind="stable")
            worth, weights = (np.take_along_axis(values, order, axis=1) for values in (worth, weights))
            up_to = fixed[:, None] + np.cumsum(weights, axis=1)
            wanted = lower[:, part]
            if (lower[:, part] < upper[:, part]).any():
                natural = fixed + ((worth > -prices[:, [part]]) * weights).sum(axis=1)
                wanted = np.clip(natural, lower[:, part], upper[:, part])
            found = _between(worth, weights, up_to, wanted, widths)
            if (lower[:, part] < upper[:, part]).any():
                is_free = (lower[:, part] < upper[:, part]) & (wanted == natural)
                found = np.where(is_free, -prices[:, part], found)
            change[:, part] = np.clip(found, -reach[:, 0], reach[:, 0])
    return prices + change


def _between(
    worth: NDArray[np.float64],
    weights: NDArray[np.int64],
    up_to: NDArray[np.int64],
    wanted: NDArray[np.int64],
    widths: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The price at which so many rows come, as if rows were spread evenly over a bin."""
    place = np.minimum((up_to < wanted[:, None]).sum(axis=1), worth.shape[1] - 1)
    rows = np.arange(len(worth))
    inside = np.maximum(weights[rows, place], 1)
    share = np.clip((wanted - (up_to[rows, place] - weights[rows, place])) / inside, 0.0, 1.0)
    return np.asarray(worth[rows, place] + widths * (0.5 - share))


def _mended(
    lower: NDArray[np.int64],
    upper: NDArray[np.int64],
    found: PricedParts,
    counts: NDArray[np.int64],
    off: NDArray[np.int64],
    gather: Callable[[Prices, NDArray[np.int64]], Nearest],
) -> PricedParts:
    """Move the rows that are out of place along shortest paths between parts."""
    if not off.any():
        return found
    prices, k = found.prices, lower.shape[1]
    near = gather(prices, off)
    numbers, parts = [], []
    order = np.argsort(near.codes, kind="stable")
    starts = np.flatnonzero(np.diff(near.codes[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        cell, costs = int(near.codes[rows[0]]), near.costs[rows]
        sent = (costs + prices[cell]).argmin(axis=1)
        others = counts[cell] - np.bincount(sent, minlength=k)
        labels = sent.copy()
        mend(costs, lower[cell] - others, upper[cell] - others, prices[cell].copy(), labels)
        moved = np.flatnonzero(labels != sent)
        numbers.append(near.numbers[rows[moved]])
        parts.append(labels[moved])
    every, where = np.concatenate(numbers), np.concatenate(parts)
    ascending = np.argsort(every)
    return PricedParts(prices, every[ascending], where[ascending])
