"""Random rows of every cell."""

from __future__ import annotations

import numpy as np

from clustersplit_cli.core.search.problem import Members
from clustersplit_cli.core.search.starts import random_splits
from clustersplit_cli.core.strategies.ground import Ground


def random_split(ground: Ground, rng: np.random.Generator) -> Members:
    """Draw a split that meets every quota, uniform among those unless cells hang together."""
    drawn = ground.draw([rng]) if ground.draw else random_splits(ground.problem.constraints, [rng])
    members: Members = drawn[:, 0]
    return members
