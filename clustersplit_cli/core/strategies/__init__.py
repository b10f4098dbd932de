"""Other ways to split, to compare with: one file each, registered here."""

from __future__ import annotations

from clustersplit_cli.core.strategies.greedy import greedy
from clustersplit_cli.core.strategies.ground import Ground, Strategy
from clustersplit_cli.core.strategies.nearest import nearest_neighbours, nearest_neighbours_total
from clustersplit_cli.core.strategies.random_split import random_split
from clustersplit_cli.core.strategies.unconstrained import unconstrained

LEAVE_ONE_DOMAIN_OUT = "leave-one-domain-out"
SEEDED: dict[str, Strategy] = {
    "random": random_split,
    "greedy": greedy,
    "nearest-neighbours": nearest_neighbours,
    "nearest-neighbours-total": nearest_neighbours_total,
    "unconstrained": unconstrained,
}
"""Strategies that need a problem and a generator; leaving a domain out needs domains and no chance."""
STRATEGIES = (*SEEDED, LEAVE_ONE_DOMAIN_OUT)
WITHOUT_QUOTAS = ("nearest-neighbours-total", "unconstrained", LEAVE_ONE_DOMAIN_OUT)

__all__ = ["LEAVE_ONE_DOMAIN_OUT", "SEEDED", "STRATEGIES", "WITHOUT_QUOTAS", "Ground", "Strategy"]
