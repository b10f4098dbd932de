"""Rows that are nearly the same: found tile by tile, so that no more than a few tiles are ever in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Features, Floats, unit_rows
from clustersplit_cli.core.geometry.kernels import Kernel
from clustersplit_cli.core.parallel import Workers, tiles
from clustersplit_cli.progress import Progress, silent

TILE = 1024
ROUNDING = {"f": 1e-6, "d": 1e-12}
"""What a similarity that is exactly the least may lack."""
Tile = tuple[int, int]
Pairs = NDArray[np.int64]


@dataclass(frozen=True)
class Similarities:
    """Similarities of all rows with each other, a tile at a time.

    Attributes
    ----------
    of : two ranges of rows -> their similarities.
    empty : (n,) rows of zeros, which have no direction: they are all the same.
    """

    n: int
    of: Callable[[Tile, Tile], Floats]
    empty: NDArray[np.bool_]

    @classmethod
    def cosines(cls, features: Features, workers: Workers) -> Similarities:
        """Cosines of the angles between rows, after their maps; or of the rows of a sparse matrix."""
        raw: Any = features.raw
        if hasattr(raw, "indptr"):
            return cls._sparse(raw)
        dtype = np.float32 if raw.dtype.itemsize <= 4 else np.float64
        rows = Features(raw, (*features.steps, unit_rows), dtype)

        def empty(tile: Tile) -> NDArray[np.bool_]:
            return np.asarray(~rows.block(*tile).any(axis=1))

        found = np.concatenate(list(workers.map(empty, rows.row_tiles())))
        return cls(len(raw), lambda left, right: rows.block(*left) @ rows.block(*right).T, found)

    @classmethod
    def _sparse(cls, raw: Any) -> Similarities:
        squares = np.asarray(raw.multiply(raw).sum(axis=1), dtype=np.float64).ravel()
        scale = 1.0 / np.sqrt(np.where(squares > 0, squares, 1.0))

        def of(left: Tile, right: Tile) -> Floats:
            products = (raw[slice(*left)] @ raw[slice(*right)].T).toarray()
            return np.asarray(products * scale[slice(*left), None] * scale[None, slice(*right)])

        return cls(raw.shape[0], of, squares == 0)

    @classmethod
    def of_kernel(cls, features: Features, kernel: Kernel) -> Similarities:
        """Values of a kernel that is no inner product of its rows, a row's own being 1."""

        def of(left: Tile, right: Tile) -> Floats:
            (plain, here), (_, there) = (
                kernel.plain(features.block(*rows, np.float64)) for rows in (left, right)
            )
            own = [np.sqrt(np.maximum(plain.diagonal(rows), 1e-300)) for rows in (here, there)]
            return np.asarray(plain.tile(here, there) / own[0][:, None] / own[1][None, :])

        n = features.shape[0]
        return cls(n, of, np.zeros(n, np.bool_))

    def above(self, least: float, left: Tile, right: Tile) -> tuple[Pairs, Pairs, Floats]:
        """Pairs of rows of two tiles whose similarity is high enough, and these similarities."""
        found = self.of(left, right)
        rows, others = np.nonzero(found >= least - ROUNDING[found.dtype.char])
        return rows + left[0], others + right[0], found[rows, others]

    def tiles(self) -> Iterator[tuple[Tile, Tile]]:
        """Every pair of tiles once."""
        cut = tiles(self.n, TILE)
        return ((left, right) for place, left in enumerate(cut) for right in cut[place:])


def near_units(
    similar: Similarities, least: float, workers: Workers, progress: Progress = silent
) -> NDArray[np.int64]:
    """Number rows so that those which a chain of similar rows joins share a number.

    Returns
    -------
    (n,) 0 to the number of chains less 1, in the order of their first rows.
    """
    parent = np.arange(similar.n)
    empty = np.flatnonzero(similar.empty)
    parent[empty] = empty[0] if len(empty) else 0

    def joined(job: tuple[Tile, Tile]) -> tuple[Pairs, Pairs]:
        """Few pairs that join what all similar pairs of the two tiles join."""
        rows, others, _ = similar.above(least, *job)
        if len(rows) <= TILE:
            return rows, others
        return _spanning(rows, others)

    jobs = list(similar.tiles())
    for done, (rows, others) in enumerate(workers.map(joined, jobs), start=1):
        _join(parent, rows, others)
        progress("near-duplicates", done, len(jobs))
    return np.unique(_roots(parent, np.arange(similar.n)), return_inverse=True)[1].reshape(-1)


def _spanning(rows: Pairs, others: Pairs) -> tuple[Pairs, Pairs]:
    """Each row with the first row of its component."""
    from scipy.sparse import coo_array  # takes longer to import than a small split to make
    from scipy.sparse.csgraph import connected_components

    nodes, places = np.unique(np.concatenate([rows, others]), return_inverse=True)
    left, right = np.split(places.reshape(-1), 2)
    graph = coo_array((np.ones(len(left), np.bool_), (left, right)), shape=(len(nodes), len(nodes)))
    component = connected_components(graph, directed=False)[1]
    first = np.unique(component, return_index=True)[1]
    return nodes, nodes[first[component]]


def _join(parent: Pairs, rows: Pairs, others: Pairs) -> None:
    left, right = _roots(parent, rows), _roots(parent, others)
    apart = left != right
    if not apart.any():
        return
    nodes, roots = _spanning(left[apart], right[apart])
    parent[nodes] = roots


def _roots(parent: Pairs, rows: Pairs) -> Pairs:
    found = parent[rows]
    while True:
        above = parent[found]
        if (above == found).all():
            parent[rows] = found
            return found
        found = above


@dataclass(frozen=True)
class Crossing:
    """Rows that are nearly the same as rows of other parts.

    Attributes
    ----------
    rows : of which that holds, ascending.
    closest : two of them that are in different parts, and their similarity; None if there are none.
    """

    rows: NDArray[np.int64]
    closest: tuple[int, int, float] | None


def near_across(
    similar: Similarities,
    least: float,
    parts: NDArray[np.int64],
    workers: Workers,
    progress: Progress = silent,
) -> Crossing:
    """Find rows that are nearly the same as rows of another part.

    Parameters
    ----------
    parts : (n,) the part of every row; rows of parts below 0 are left out.
    """

    def crossing(job: tuple[Tile, Tile]) -> tuple[Pairs, Pairs, Floats]:
        rows, others, values = similar.above(least, *job)
        apart = (parts[rows] != parts[others]) & (parts[rows] >= 0) & (parts[others] >= 0)
        return rows[apart], others[apart], values[apart]

    marked, closest = np.zeros(similar.n, np.bool_), None
    empty = np.flatnonzero(similar.empty & (parts >= 0))
    if len(np.unique(parts[empty])) > 1:
        other = int(empty[parts[empty] != parts[empty[0]]][0])
        marked[empty], closest = True, (int(empty[0]), other, 1.0)
    jobs = list(similar.tiles())
    for done, (rows, others, values) in enumerate(workers.map(crossing, jobs), start=1):
        marked[rows] = marked[others] = True
        if len(values) and (closest is None or values.max() > closest[2]):
            best = int(values.argmax())
            closest = int(rows[best]), int(others[best]), min(float(values[best]), 1.0)
        progress("near-duplicates", done, len(jobs))
    return Crossing(np.flatnonzero(marked), closest)
