"""How the development rows of a round are parted, by name.

`random`, `leave-one-domain-out`, `all` (no validation rows: the chosen setting is retrained on it), and
`cluster-KERNEL[:FEATURES]`, KERNEL one of those below, FEATURES `raw` or, without it, fine-tuned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.evidence.networks.pictures import Codes
from clustersplit import cluster_split, mmd

HOLDOUT = 0.2
CELLS = {"dann": "joint", "coral": "label", "erm": "joint"}
"""What keeps its share, as in the paper."""
RESTARTS = 4
REFERENCE, EVERYTHING, LEAVE_OUT = "random", "all", "leave-one-domain-out"
KERNELS: dict[str, dict[str, Any]] = {
    "linear": {"kernel": "linear"},
    "rbf": {"kernel": "rbf"},
    "rbf-1": {"kernel": "rbf", "gamma": 1.0},
}
"""The paper's rbf kernel has gamma = 1; the default is 1 / total variance."""
Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Development:
    """The development rows of a round.

    Attributes
    ----------
    rows : their positions in the dataset.
    labels, domains : of each.
    features : by name, a function that gives them; only called by strategies that need them.
    """

    rows: Codes
    labels: Codes
    domains: Codes
    features: dict[str, Callable[[], Floats]]


def part(strategy: str, cells: str, development: Development, seed: int) -> list[NDArray[np.bool_]]:
    """Mark the validation rows of every fold.

    Parameters
    ----------
    cells : `joint` keeps the share of every (label, domain), `label` that of every label.
    """
    if strategy == EVERYTHING:
        return [np.zeros(len(development.rows), dtype=bool)]
    if strategy == LEAVE_OUT:
        return [development.domains == code for code in np.unique(development.domains)]
    if strategy == REFERENCE:
        codes = development.labels * (development.domains.max() + 1)
        return [draw(codes + development.domains if cells == "joint" else development.labels, seed)]
    kernel, _, features = strategy.removeprefix("cluster-").partition(":")
    split = cluster_split(
        development.features[features or "tuned"](),
        development.labels,
        development.domains if cells == "joint" else None,
        h=HOLDOUT,
        restarts=RESTARTS,
        random_state=seed,
        certify="never",
        bound="never",
        threads=1,
        **KERNELS[kernel],
    )
    members = np.zeros(len(development.rows), dtype=bool)
    members[split.val] = True
    return [members]


def draw(codes: Codes, seed: int) -> NDArray[np.bool_]:
    """Draw the share of every cell, rounded as `cluster_split` rounds it."""
    rng = np.random.default_rng(seed)
    members = np.zeros(len(codes), dtype=bool)
    for code in np.unique(codes):
        inside = rng.permutation(np.flatnonzero(codes == code))
        members[inside[: int(HOLDOUT * len(inside) + 0.5)]] = True
    return members


def discrepancy(members: NDArray[np.bool_], development: Development) -> float:
    """MMD between the sides on fine-tuned features, under the default kernel."""
    features = development.features["tuned"]()
    return round(float(mmd(features[~members], features[members], threads=1)), 5)
