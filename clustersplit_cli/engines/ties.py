"""Identical rows about a threshold: the lowest row numbers go to validation, however rounding has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.thresholds import ordered_keys
from clustersplit_cli.engines.executor import Engine
from clustersplit_cli.engines.finishing import Identities, NearThreshold
from clustersplit_cli.engines.rules import ByThreshold, Differences

ROUNDING = 16.0
"""Equal rows' witnesses differ by no more than this many roundings of the largest factor's contribution."""


def lowest_rows_first(
    engine: Engine, rule: ByThreshold, largest: float, precision: np.dtype[Any]
) -> ByThreshold:
    """Give the validation places among identical rows of a cell to the lowest of them.

    The witness of a row depends a little on its place in a block, so equal rows need not tie exactly.
    Those that a threshold could have torn apart lie within rounding of it; they are compared by hashes.

    Parameters
    ----------
    largest : the largest absolute factor.
    precision : in which factors are kept.
    """
    source = rule.source
    assert isinstance(source, Differences) and rule.column is not None
    size = float(np.linalg.norm(source.weights[:, rule.column % source.weights.shape[1]]))
    reach = ROUNDING * float(np.finfo(precision).eps) * largest * size
    edges = _values(rule.thresholds.edges[:, rule.column])
    near = NearThreshold(rule, ordered_keys(edges - reach), ordered_keys(edges + reach))
    numbers, cells, sides = (np.concatenate(part) for part in zip(*engine.run(near), strict=True))
    torn = _both_sides(cells, sides)
    if not torn.any():
        return rule
    numbers, cells, sides = numbers[torn], cells[torn], sides[torn]
    keys = np.empty(len(numbers), np.uint64)
    for places, found in engine.run(Identities(numbers)):
        keys[places] = found
    _, groups = np.unique(np.stack([cells.astype(np.uint64), keys]), axis=1, return_inverse=True)
    moved = _lowest_first(groups.reshape(-1), sides)
    changed = np.flatnonzero(moved != sides)
    if not len(changed):
        return rule
    return replace(rule, moved=(numbers[changed], moved[changed]))


def _both_sides(groups: NDArray[np.int64], sides: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the rows of groups that have rows on both sides."""
    if not len(groups):
        return np.zeros(0, dtype=bool)
    chosen, total = np.bincount(groups[sides], minlength=groups.max() + 1), np.bincount(groups)
    return np.asarray(((chosen > 0) & (chosen < total))[groups])


def _lowest_first(groups: NDArray[np.int64], sides: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Within each group, as many chosen rows as before, but the first ones."""
    sizes = np.bincount(groups)
    places = np.bincount(groups[sides], minlength=len(sizes))
    order = np.argsort(groups, kind="stable")
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rank = np.arange(len(groups)) - np.repeat(first, sizes)
    moved = np.empty_like(sides)
    moved[order] = rank < np.repeat(places, sizes)
    return moved


def _values(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The numbers that keys stand for."""
    positive = (keys >> np.uint64(63)).astype(bool)
    bits = np.where(positive, keys & np.uint64((1 << 63) - 1), ~keys)
    return np.nan_to_num(bits.view(np.float64))
