"""A partition before and after it is found: what it is made from, and everything that reports need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.baselines import RandomMMD
from clustersplit_cli.core.certificate import FixedPoint
from clustersplit_cli.core.constraints.groups import UnitParts
from clustersplit_cli.core.constraints.quotas import PartQuotas
from clustersplit_cli.core.geometry.low_rank import Image, make_image
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.partition import Labels, PartAssigner, PartitionMeasures
from clustersplit_cli.core.search.partition_search import PartitionSolution
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.holding import Held, Streams

WIDE_IMAGE_ROWS, NARROW_RANK = 50_000, 128
"""Beyond so many rows the image that starts descend on is made narrower, to fit in memory."""


@dataclass(frozen=True)
class PartedSetting:
    """What is known before the parts are chosen; `units` is None where rows are on their own."""

    dataset: Dataset
    options: CheckedOptions
    held: Held
    quotas: PartQuotas
    units: UnitParts | None
    streams: Streams
    workers: Workers

    @cached_property
    def assigner(self) -> PartAssigner:
        """The assignment step; centroids are handed out only to parts that are not alike."""
        unlike = len(set(self.quotas.shares)) > 1 or bool((self.quotas.pinned >= 0).any())
        return PartAssigner(self.quotas, self.workers, unlike, self.options.solver)

    def random(self, rng: np.random.Generator) -> Labels:
        """Draw parts that meet the quotas; shape (n,)."""
        return self.assigner.random(rng) if self.units is None else self.units.random(rng)

    @cached_property
    def image(self) -> Image:
        """A low-rank image of the kernel."""
        geometry = self.held.geometry
        if geometry.n > WIDE_IMAGE_ROWS:
            return make_image(geometry, self.streams.image, NARROW_RANK)
        return make_image(geometry, self.streams.image)


@dataclass(frozen=True)
class PartedOutcome:
    """A finished run, as the reports need it.

    `random_rest` is the MMD of each part with all other rows, for every random partition; shape (r, k).
    """

    setting: PartedSetting
    config: Mapping[str, Any]
    solution: PartitionSolution
    measured: PartitionMeasures
    certificate: FixedPoint | None
    random: RandomMMD
    random_rest: NDArray[np.float64]
