"""Identical rows of a cell are interchangeable; by convention the lowest row numbers go to validation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.features import Features, Floats
from clustersplit_cli.core.problem import Members
from clustersplit_cli.core.workers import Workers


def lowest_rows_first(members: Members, raw: Floats, codes: NDArray[np.int64], workers: Workers) -> Members:
    """Within each set of identical rows of one cell, give the validation places to the lowest rows.

    Rounding depends on a row's place in a tile, so equal rows need not tie exactly in the search; this
    makes the choice among them independent of such accidents.
    """
    identity = row_identities(raw, workers)
    groups = np.unique(np.stack([codes, identity]), axis=1, return_inverse=True)[1].reshape(-1)
    sizes = np.bincount(groups)
    if len(sizes) == len(groups):
        return members
    places = np.bincount(groups[members], minlength=len(sizes))
    order = np.argsort(groups, kind="stable")
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rank = np.arange(len(groups)) - np.repeat(first, sizes)
    result = np.empty_like(members)
    result[order] = rank < np.repeat(places, sizes)
    return result


def row_identities(raw: Floats, workers: Workers) -> NDArray[np.int64]:
    """Number the rows so that equal rows, and only equal rows, share a number.

    Rows are hashed in integer arithmetic, which is exact wherever a row stands, and rows of equal hash
    are compared in full.
    """
    unsigned = np.dtype(f"u{raw.dtype.itemsize}")
    multipliers = np.random.default_rng(0).integers(1, 2**63, size=raw.shape[1], dtype=np.uint64) | np.uint64(
        1
    )

    def hashes(tile: tuple[int, int]) -> NDArray[np.uint64]:
        block = raw[slice(*tile)] + raw.dtype.type(0)  # -0.0 equals 0.0
        mixed = np.ascontiguousarray(block).view(unsigned).astype(np.uint64)
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        return np.asarray(mixed @ multipliers)

    keys = np.concatenate(list(workers.map(hashes, Features(raw).row_tiles())))
    _, first, identity = np.unique(keys, return_index=True, return_inverse=True)
    identity = identity.reshape(-1).astype(np.int64)
    twins = np.flatnonzero(first[identity] != np.arange(len(raw)))
    for start, stop in Features(raw).row_tiles():
        rows = twins[start:stop]
        collided = (raw[rows] != raw[first[identity[rows]]]).any(axis=1)
        # Rows whose hash collides without being equal are told apart; they are too rare to match up.
        identity[rows[collided]] = len(first) + rows[collided]
    return identity
