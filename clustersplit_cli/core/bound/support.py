"""How far splits can reach along directions of the kernel.

Which rows take a split farthest along one direction is a matter of selection, so this support function is
exact along any single direction. Around several directions at a time splits are covered by cones: if splits
reach h_i along k directions d_i and p is the point with d_i'p = h_i for all i, then no split whose place a
lies in the cone of the d_i is farther away than p: a = sum of w_i d_i with w_i >= 0, so
|a|² = sum of w_i d_i'a <= sum of w_i h_i = a'p <= |a| |p|. The same holds in any metric M for the cones of
the M⁻¹d_i, with the same p. So the largest of any convex quadratic function over all splits is at most its
largest value at these points.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.quotas import ValidationQuotas

AT_ONCE = 1 << 19
"""Scores that are sorted out at a time: few enough to stay in cache."""
HALVED = 16
"""Cones that are halved at a time."""
REMEMBERED = 6
"""Points that a cone has of its own and of those it came from; the nearest counts."""
FLATTEST = 1e-2
"""The least weight of a direction, relative to the largest, in what tells how wide a cone is."""


class SupportFunction:
    """The places a = U'w of splits with exact quotas, for directions U that sum to zero on every cell.

    Here w is a split's weights z = 1/|V| on validation and -1/|T| on training rows, less their cell means.
    So a = (1/|V| + 1/|T|) U'1_V, and the farthest along a direction takes the quota's worth of rows with the
    largest values there in every cell.
    """

    def __init__(
        self, limits: ValidationQuotas, directions: NDArray[np.float64], slack: NDArray[np.float64] | float
    ) -> None:
        sizes, quotas, starts = limits.cells.sizes, limits.target, limits.cells.offsets[:-1]
        n_val, self.n = int(quotas.sum()), limits.n
        self._weight = 1.0 / n_val + 1.0 / (limits.n - n_val)
        self._rows = np.ascontiguousarray(directions[limits.cells.order].T)
        self._slack = 2.0 * n_val * self._weight * np.broadcast_to(slack, len(self._rows))
        # Cells of one size and quota are sorted out together: there may be thousands of small ones.
        kinds, kind = np.unique(np.stack([sizes, quotas]), axis=1, return_inverse=True)
        self._groups = [
            (starts[kind.reshape(-1) == index][:, None] + np.arange(size), size - quota)
            for index, (size, quota) in enumerate(kinds.T.tolist())
            if quota > 0
        ]

    def along(self, directions: NDArray[np.float64]) -> NDArray[np.float64]:
        """How far splits reach along directions of shape (k, r), k at most the number of those known."""
        known = self._rows[: len(directions)]
        found = np.abs(directions).T @ self._slack[: len(directions)]
        step = max(1, AT_ONCE // known.shape[1])
        for first in range(0, directions.shape[1], step):
            scores = directions[:, first : first + step].T @ known
            for rows, n_left in self._groups:
                part = scores[:, rows]
                if n_left:
                    part = np.partition(part, n_left - 1, axis=2)[:, :, n_left:]
                found[first : first + step] += self._weight * part.sum(axis=(1, 2))
        return np.asarray(found)


class ConeCover:
    """Cones that cover all places along k directions, each with the nearest point known to be beyond them."""

    def __init__(self, support: SupportFunction, k: int) -> None:
        self._support, self.k = support, k
        self._normals = np.concatenate([np.eye(k), -np.eye(k)], axis=1)
        self._support_values = support.along(self._normals)
        self._cones = np.array([np.arange(k) + k * np.array(side) for side in product((0, 1), repeat=k)])
        self._middles: dict[tuple[int, int], int] = {}
        self._points = self._beyond(self._cones)[:, None]

    @property
    def n_directions(self) -> int:
        """Directions along which the support function is known."""
        return len(self._support_values)

    def largest(self, weights: NDArray[np.float64], pulls: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound the sum over k of weights a² + 2 pulls a at all places a.

        Parameters
        ----------
        weights : (k, r), for r functions; negative ones count as 0.
        pulls : (k,)

        Returns
        -------
        (r,)
        """
        return np.asarray(self._values(weights, pulls).min(axis=1).max(axis=0))

    def refine(self, weights: NDArray[np.float64], pulls: NDArray[np.float64]) -> None:
        """Halve the cones where that function, with weights of shape (k,), is largest."""
        values = self._values(weights[:, None], pulls)[:, :, 0]
        worst = np.argsort(-values.min(axis=1), kind="stable")[:HALVED]
        pairs = self._widest(self._cones[worst], weights)
        middles = self._between(pairs, weights)
        # Both halves of a cone have its middle for one of the two.
        halves = np.repeat(self._cones[worst], 2, axis=0)
        halves[halves == pairs.reshape(-1, 1)] = np.repeat(middles, 2)
        nearer = np.concatenate([np.repeat(self._points[worst], 2, axis=0), self._beyond(halves)[:, None]], 1)
        others = np.delete(self._points, worst, axis=0)
        others = np.concatenate([others, others[:, :1]], axis=1)
        self._cones = np.concatenate([np.delete(self._cones, worst, axis=0), halves])
        self._points = np.concatenate([others, nearer])
        if self._points.shape[1] > REMEMBERED:
            farthest = self._values(weights[:, None], pulls)[:, :, 0].argmax(axis=1)
            kept = np.arange(REMEMBERED + 1) != farthest[:, None]
            self._points = self._points[kept].reshape(len(kept), REMEMBERED, -1)

    def _values(self, weights: NDArray[np.float64], pulls: NDArray[np.float64]) -> NDArray[np.float64]:
        """The functions at all points, shape (cones, points, r)."""
        points = self._points
        return np.asarray(points**2 @ np.maximum(weights, 0.0) + 2.0 * (points @ pulls)[:, :, None])

    def _beyond(self, cones: NDArray[np.int64]) -> NDArray[np.float64]:
        """The point of every cone that is as far along its directions as splits are along each of them."""
        normals = np.moveaxis(self._normals[:, cones], 0, 2)
        return np.asarray(np.linalg.solve(normals, self._support_values[cones][:, :, None])[:, :, 0])

    def _widest(self, cones: NDArray[np.int64], weights: NDArray[np.float64]) -> NDArray[np.int64]:
        """The two directions of every cone that are farthest apart, shape (cones, 2)."""
        seen = self._seen(weights)[:, cones]
        cosines = np.einsum("dci,dcj->cij", seen, seen)
        cosines += 2.0 * np.tri(cones.shape[1])  # each pair once
        first, second = np.divmod(cosines.reshape(len(cones), -1).argmin(axis=1), cones.shape[1])
        places = np.arange(len(cones))
        return np.sort(np.stack([cones[places, first], cones[places, second]], axis=1), axis=1)

    def _between(self, pairs: NDArray[np.int64], weights: NDArray[np.float64]) -> NDArray[np.int64]:
        """Number the directions halfway between pairs, looking along those that are new."""
        fresh = list(dict.fromkeys(pair for pair in map(tuple, pairs.tolist()) if pair not in self._middles))
        if fresh:
            seen = self._seen(weights)
            first, second = np.array(fresh).T
            middle = (seen[:, first] + seen[:, second]) * _lengths(weights)
            middle /= np.linalg.norm(middle, axis=0)
            self._middles |= {pair: self.n_directions + place for place, pair in enumerate(fresh)}
            self._normals = np.concatenate([self._normals, middle], axis=1)
            self._support_values = np.concatenate([self._support_values, self._support.along(middle)])
        return np.array([self._middles[pair] for pair in map(tuple, pairs.tolist())])

    def _seen(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """All directions in the metric of the weights, of length 1."""
        seen = self._normals / _lengths(weights)
        return np.asarray(seen / np.linalg.norm(seen, axis=0))


def _lengths(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """How long unit vectors are in the metric of the weights, shape (k, 1); none vanishes."""
    largest = float(weights.max())
    if largest <= 0:
        return np.ones((len(weights), 1))
    return np.asarray(np.sqrt(np.maximum(weights, FLATTEST * largest)))[:, None]
