"""Mix-up: a random split whose validation rows are replaced by convex combinations of pairs of them."""

from __future__ import annotations

import numpy as np

from clustersplit_cli.core.features import Features
from clustersplit_cli.core.problem import Members


def mixed_rows(features: Features, members: Members, rng: np.random.Generator) -> Features:
    """Mix every validation row with a random other one, weights uniform on [0, 1].

    The raw features are mixed, and then go through the same maps as all rows. The result is no subset of
    the rows, so it has an MMD to the training rows and nothing else.
    """
    first = rng.permutation(np.flatnonzero(members))
    second = np.roll(first, 1)  # in random order the next row is a random other one
    weights = rng.random((len(first), 1))
    raw = features.raw[first].astype(np.float64) * weights
    raw += features.raw[second].astype(np.float64) * (1.0 - weights)
    return Features(raw, features.steps, features.dtype)
