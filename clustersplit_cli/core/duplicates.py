"""Identical rows of a cell are interchangeable; by convention the lowest row numbers go to validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Features, Floats
from clustersplit_cli.core.parallel import Workers, tiles
from clustersplit_cli.core.search.problem import Members

SPARSE_ROWS = 1024
SAME_COST = 1e-3
"""Share of the largest cost that rounding, in whatever precision, stays well below."""


def lowest_rows_first(
    members: Members,
    raw: Floats,
    codes: NDArray[np.int64],
    workers: Workers,
    costs: NDArray[np.float64] | None = None,
) -> Members:
    """Within each set of identical rows of one cell, give the validation places to the lowest rows.

    Rounding depends on a row's place in a tile, so equal rows need not tie exactly in the search; this
    makes the choice among them independent of such accidents.

    Parameters
    ----------
    costs : (n,), of every row on the validation side, if known: equal rows cost the same but for rounding,
        so only rows that cost what some row of the other side costs need to be looked at.
    """
    rows = np.arange(len(members)) if costs is None else _in_question(members, codes, costs)
    result: Members = members.copy()
    if len(rows):
        some = raw if len(rows) == len(members) else raw[rows]
        result[rows] = _lowest_first(members[rows], some, codes[rows], workers)
    return result


def _in_question(members: Members, codes: NDArray[np.int64], costs: NDArray[np.float64]) -> NDArray[np.int64]:
    """The rows whose cost is that of a row on the other side of the same cell, but for rounding."""
    n_cells = int(codes.max()) + 1
    slack = SAME_COST * float(np.abs(costs).max())
    cheapest, dearest = np.full(n_cells, np.inf), np.full(n_cells, -np.inf)
    np.minimum.at(cheapest, codes[~members], costs[~members])
    np.maximum.at(dearest, codes[members], costs[members])
    near = np.where(members, costs >= cheapest[codes] - slack, costs <= dearest[codes] + slack)
    return np.flatnonzero(near)


def _lowest_first(members: Members, raw: Floats, codes: NDArray[np.int64], workers: Workers) -> Members:
    identity = sparse_row_identities(raw) if hasattr(raw, "indptr") else row_identities(raw, workers)
    shared = np.bincount(identity)
    if shared.max(initial=0) <= 1:
        return members
    groups = np.unique(codes * len(shared) + identity, return_inverse=True)[1].reshape(-1)
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
    pieces = Features(raw).row_tiles()
    keys = np.concatenate(list(workers.map(lambda tile: row_identity_keys(raw[slice(*tile)]), pieces)))
    height = pieces[0][1]
    return _confirmed(keys, height, lambda rows, others: (raw[rows] != raw[others]).any(axis=1))


def row_identity_keys(rows: Floats) -> NDArray[np.uint64]:
    """A hash of every row that depends on its values alone, so that equal rows have equal ones."""
    unsigned = np.dtype(f"u{rows.dtype.itemsize}")
    block = np.ascontiguousarray(rows + rows.dtype.type(0))  # -0.0 equals 0.0
    return np.asarray(_mixed(block.view(unsigned)) @ _multipliers(rows.shape[1]))


def sparse_row_identities(raw: Any) -> NDArray[np.int64]:
    """The same for a sparse matrix in canonical CSR form, which stores no zeros."""
    mixed = raw.astype(np.float64, copy=True)
    hashed = type(raw)((_mixed(mixed.data.view(np.uint64)), raw.indices, raw.indptr), shape=raw.shape)
    keys = np.asarray(hashed @ _multipliers(raw.shape[1]), dtype=np.uint64)
    return _confirmed(
        keys, SPARSE_ROWS, lambda rows, others: np.asarray((raw[rows] != raw[others]).sum(axis=1)).ravel() > 0
    )


def _multipliers(count: int) -> NDArray[np.uint64]:
    """Odd numbers, the same every time."""
    numbers = np.random.default_rng(0).integers(1, 2**63, size=count, dtype=np.uint64)
    return np.asarray(numbers | np.uint64(1))


def _mixed(bits: NDArray[Any]) -> NDArray[np.uint64]:
    """Spread the bits of every number over 64."""
    mixed = bits.astype(np.uint64)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return mixed


def _confirmed(
    keys: NDArray[np.uint64],
    height: int,
    differ: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]],
) -> NDArray[np.int64]:
    """Number rows by their hashes; `differ` compares rows of equal hash in full, `height` at a time."""
    ascending = np.sort(keys)
    if not (ascending[1:] == ascending[:-1]).any():
        return np.arange(len(keys))
    _, first, identity = np.unique(keys, return_index=True, return_inverse=True)
    identity = identity.reshape(-1).astype(np.int64)
    twins = np.flatnonzero(first[identity] != np.arange(len(keys)))
    for tile in tiles(len(twins), height):
        rows = twins[slice(*tile)]
        collided = differ(rows, first[identity[rows]])
        # Rows whose hash collides without being equal are told apart; they are too rare to match up.
        identity[rows[collided]] = len(first) + tile[0] + np.flatnonzero(collided)
    return identity
