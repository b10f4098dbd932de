"""Mix-up: a random split whose validation rows are replaced by convex combinations of pairs of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.search.problem import Members


@dataclass(frozen=True)
class Pairs:
    """Rows to mix: `weights` of `first` and the rest of `second`, each of shape (m,)."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    weights: NDArray[np.float64]


def draw_pairs(members: Members, rng: np.random.Generator) -> Pairs:
    """Pair every validation row with a random other one, weights uniform on [0, 1]."""
    first = rng.permutation(np.flatnonzero(members))
    second = np.roll(first, 1)  # in random order the next row is a random other one
    return Pairs(first, second, rng.random((len(first), 1))[:, 0])


def mix(features: Features, pairs: Pairs) -> Features:
    """Mix the raw features, which then go through the same maps as all rows."""
    weights = pairs.weights[:, None]
    raw = features.raw[pairs.first].astype(np.float64) * weights
    raw += features.raw[pairs.second].astype(np.float64) * (1.0 - weights)
    return Features(raw, features.steps, features.dtype)


def mixed_rows(features: Features, members: Members, rng: np.random.Generator) -> Features:
    """Mix every validation row with a random other one.

    The result is no subset of the rows, so it has an MMD to the training rows and nothing else.
    """
    return mix(features, draw_pairs(members, rng))
