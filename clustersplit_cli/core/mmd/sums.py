"""Sums of kernel values between groups of rows, which is all that any estimate of MMD² is made of.

Exact sums take one symmetric pass over blocks of the kernel, so no n x n array is ever held. Linear and
Nyström kernels have factors, K = B B', and there the sum over two groups is the product of their sums of B's
rows. All sums are in float64 and do not depend on the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Features, Floats
from clustersplit_cli.core.geometry.kernels import Kernel
from clustersplit_cli.core.geometry.protocol import Geometry
from clustersplit_cli.core.geometry.pseudo_inverse import inverse_root
from clustersplit_cli.core.parallel import Workers, tiles
from clustersplit_cli.progress import Progress, silent

TILE = 512
FACTOR_ROWS = 2048

Rows = NDArray[np.int64]
Result = TypeVar("Result")


@dataclass(frozen=True)
class GroupSums:
    """Kernel sums between G groups.

    Attributes
    ----------
    sizes : (G,) rows per group.
    between : (G, G) sum of K_ij over i in one group and j in the other.
    diagonal : (G,) sum of K_ii over the group; None if it was not asked for.
    rows : (n, G) sum of K_ij over j in the group, for every row i, groups one after the other; or None.
    """

    sizes: NDArray[np.int64]
    between: NDArray[np.float64]
    diagonal: NDArray[np.float64] | None
    rows: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class TilePlace:
    """Where a block of a kernel matrix is."""

    rows: slice
    columns: slice

    @property
    def is_on_diagonal(self) -> bool:
        """Whether its rows are its columns."""
        return self.rows == self.columns


@dataclass(frozen=True)
class Factors:
    """Rows B = F M with K = B B': F the features themselves (linear), or their kernel with landmarks.

    Attributes
    ----------
    centres : (q, d) prepared landmark rows; None for linear kernels.
    mixing : (q, r) matrix M with M M' = W⁺; None for linear kernels, where M = I.
    """

    features: Features
    kernel: Kernel
    centres: Floats | None = None
    mixing: NDArray[np.float64] | None = None

    @property
    def precision(self) -> np.dtype[Any]:
        """Of the values of F."""
        return np.dtype(np.float64 if self.centres is None else self.centres.dtype)

    def unmixed(self, rows: Rows) -> Floats:
        """F at the given rows."""
        if self.centres is None:
            return self.features.take(rows, np.float64)
        return self.kernel.tile(self.features.take(rows), self.centres)

    def mix(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn sums of rows of F into sums of rows of B."""
        return sums if self.mixing is None else np.asarray(sums @ self.mixing)

    def unmix(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn weights on B's columns, shape (r, k), into weights on F's."""
        return weights if self.mixing is None else np.asarray(self.mixing @ weights)


def nystrom_factors(features: Features, kernel: Kernel, landmarks: Rows) -> Factors:
    """The factors of the Nyström kernel on the given landmark rows, the same as `nystrom_geometry` has."""
    noise = np.dtype(np.float32 if features.raw.dtype.itemsize <= 4 else np.float64)
    exact = features.take(landmarks, np.float64)
    return Factors(features, kernel, features.take(landmarks), inverse_root(kernel.tile(exact, exact), noise))


def over_tiles(
    features: Features,
    kernel: Kernel,
    order: Rows,
    workers: Workers,
    reduce: Callable[[TilePlace, Floats], Result],
    progress: Progress = silent,
) -> Iterator[tuple[TilePlace, Result]]:
    """Reduce the blocks on and above the diagonal of the kernel matrix of the rows `order`.

    The blocks depend on the number of rows alone, and results come in a fixed order. `reduce` gets a block's
    place and values, and runs on a worker.
    """
    pieces = tiles(len(order), TILE)
    jobs = [(i, j) for i in range(len(pieces)) for j in range(i, len(pieces))]

    def one(job: tuple[int, int]) -> tuple[TilePlace, Result]:
        place = TilePlace(*(slice(*pieces[piece]) for piece in job))
        block = features.take(order[place.rows])
        if place.is_on_diagonal:
            values = kernel.tile(block, block)
            # A product's diagonal is off by rounding, which the kernel's own formula is not.
            np.fill_diagonal(values, kernel.diagonal(block))
        else:
            values = kernel.tile(block, features.take(order[place.columns]))
        return place, reduce(place, values)

    for done, result in enumerate(workers.map(one, jobs), start=1):
        yield result
        progress("kernel", done, len(jobs))


def exact_sums(
    features: Features,
    kernel: Kernel,
    groups: Sequence[Rows],
    workers: Workers,
    *,
    per_row: bool = False,
    progress: Progress = silent,
) -> GroupSums:
    """Sum the kernel between all pairs of groups, each pair of rows computed once.

    Parameters
    ----------
    groups : rows of `features`, one array per group, none empty.
    per_row : also return the sums of every row with every group.
    """
    order = np.concatenate(groups)
    sizes = np.array([len(group) for group in groups], dtype=np.int64)
    codes = np.repeat(np.arange(len(groups)), sizes)
    # Rows are in the order of their groups, so within a tile a group is one stretch.
    starts = {
        start: np.flatnonzero(np.diff(codes[start:stop], prepend=-1))
        for start, stop in tiles(len(order), TILE)
    }
    between = np.zeros((len(groups), len(groups)))
    diagonal = np.zeros(len(groups))
    rows = np.zeros((len(order), len(groups))) if per_row else None

    def reduce(place: TilePlace, values: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        across = np.add.reduceat(values, starts[place.columns.start], axis=1, dtype=np.float64)
        if place.is_on_diagonal:
            return across, values.diagonal().astype(np.float64)
        if not per_row:
            return across, np.empty(0)
        return across, np.add.reduceat(values, starts[place.rows.start], axis=0, dtype=np.float64)

    for place, (across, other) in over_tiles(features, kernel, order, workers, reduce, progress):
        stretches = starts[place.rows.start]
        upper, lower = codes[place.rows][stretches], codes[place.columns][starts[place.columns.start]]
        block = np.add.reduceat(across, stretches, axis=0)
        between[np.ix_(upper, lower)] += block
        if rows is not None:
            rows[place.rows, lower] += across
        if place.is_on_diagonal:
            diagonal[upper] += np.add.reduceat(other, stretches)
            continue
        between[np.ix_(lower, upper)] += block.T
        if rows is not None:
            rows[place.columns, upper] += other.T
    return GroupSums(sizes, between, diagonal, rows)


def factor_sums(
    factors: Factors,
    groups: Sequence[Rows],
    workers: Workers,
    *,
    per_row: bool = False,
    with_diagonal: bool = True,
    progress: Progress = silent,
) -> GroupSums:
    """Sum the kernel between all pairs of groups through its factors, in one pass over the rows, or two.

    Parameters
    ----------
    with_diagonal : also sum the diagonal, which under Nyström costs more than all the rest.
    """
    jobs = [
        (code, group[slice(*piece)])
        for code, group in enumerate(groups)
        for piece in tiles(len(group), FACTOR_ROWS)
    ]

    def gather(job: tuple[int, Rows]) -> tuple[int, NDArray[np.float64], float]:
        code, part = job
        block = factors.unmixed(part)
        squares = 0.0
        if with_diagonal:
            low_rank = factors.mix(block.astype(np.float64, copy=False))
            squares = float(np.vdot(low_rank, low_rank))
        return code, block.sum(axis=0, dtype=np.float64), squares

    sums: NDArray[np.float64] | None = None
    diagonal = np.zeros(len(groups))
    for done, (code, part_sum, squares) in enumerate(workers.map(gather, jobs), start=1):
        sums = np.zeros((len(groups), len(part_sum))) if sums is None else sums
        sums[code] += part_sum
        diagonal[code] += squares
        progress("kernel", done, len(jobs))
    assert sums is not None
    low_rank = factors.mix(sums)
    sizes = np.array([len(group) for group in groups], dtype=np.int64)
    rows = None
    if per_row:
        weights = factors.unmix(low_rank.T)
        parts = workers.map(lambda job: np.asarray(factors.unmixed(job[1]) @ weights, np.float64), jobs)
        rows = np.concatenate(list(parts))
    return GroupSums(sizes, low_rank @ low_rank.T, diagonal if with_diagonal else None, rows)


def geometry_sums(geometry: Geometry, groups: Sequence[Rows]) -> GroupSums:
    """Sum a kernel that is held already, between groups of its rows, with the sums of every row."""
    which = np.zeros((geometry.n, len(groups)))
    for code, group in enumerate(groups):
        which[group, code] = 1.0
    rows = np.asarray(geometry.apply(which), dtype=np.float64)
    sizes = np.array([len(group) for group in groups], dtype=np.int64)
    return GroupSums(sizes, which.T @ rows, None, rows[np.concatenate(groups)])
