"""Graded splits: the scale from random splits to the best one found, and splits at an MMD in between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.constraints.cells import Cells, Labels
from clustersplit_cli.core.constraints.groups import GroupParts
from clustersplit_cli.core.constraints.quotas import Quotas, ValidationQuotas, largest_remainders
from clustersplit_cli.core.geometry.protocol import Geometry
from clustersplit_cli.core.search.partition import PartAssigner, measure
from clustersplit_cli.core.search.problem import Members, Problem, squared_mmd
from clustersplit_cli.core.search.programs import Coupling
from clustersplit_cli.core.search.starts import at_targets
from clustersplit_cli.errors import UsageError

WITHIN = 0.01
"""How far the MMD of a graded split may be from the wanted one, as a part of the scale."""
CLOSE = 0.2 * WITHIN
"""Close enough to stop."""
ALIKE = 1e-6
"""Random splits are measured in the search's precision: smaller relative distances are noise."""
ROUNDS = 6
ATTEMPTS = 20
"""Paths that are tried, where few rows leave gaps between the MMDs along each."""
DRAWS = 100
"""Random splits that are tried for one near the mean."""
Doubles = NDArray[np.float64]
Parts = TypeVar("Parts")
Parts_co = TypeVar("Parts_co", covariant=True)


@dataclass(frozen=True)
class Scale:
    """The MMDs that severities stand for: 0 is the mean of random splits, 1 the best split found."""

    random: float
    best: float

    @property
    def width(self) -> float:
        """How far apart the ends are."""
        return max(self.best - self.random, 0.0)

    def mmd(self, severity: float) -> float:
        """The MMD of a severity."""
        return self.random + severity * self.width

    def severity(self, mmd: float) -> float | None:
        """The severity of an MMD, above 1 beyond the best split; None where all splits are alike."""
        return (mmd - self.random) / self.width if self.width > ALIKE * self.random else None

    def clipped(self, mmd: float) -> float:
        """The nearest severity between 0 and 1."""
        return min(max(self.severity(mmd) or 0.0, 0.0), 1.0)


@dataclass(frozen=True)
class Grade:
    """Where on the scale a split was asked for, and where it is.

    Attributes
    ----------
    asked, reached : MMDs.
    best_psi : the objective of the split at the upper end.
    """

    severity: float
    asked: float
    reached: float
    scale: Scale
    best_psi: float

    @classmethod
    def of(
        cls, scale: Scale, severity: float, at_mmd: float | None, reached: float, best_psi: float
    ) -> Grade:
        """What a severity, or instead of it an MMD, means on the scale."""
        if at_mmd is None:
            return cls(severity, scale.mmd(severity), reached, scale, best_psi)
        return cls(scale.clipped(at_mmd), at_mmd, reached, scale, best_psi)

    @property
    def is_missed(self) -> bool:
        """Whether the MMD is further from the wanted one than is promised."""
        return abs(self.reached - self.asked) > WITHIN * self.scale.width + ALIKE * self.scale.random


def refuse_unreachable(scale: Scale, mmd: float) -> None:
    """Refuse an MMD that no split has.

    Raises
    ------
    UsageError
        Naming the range.
    """
    slack = WITHIN * scale.width + ALIKE * scale.random
    if not scale.random - slack <= mmd <= scale.best + slack:
        raise UsageError(
            f"--at-mmd {mmd:.6g} cannot be reached: splits of these rows range from {scale.random:.6g}, the "
            f"mean of random ones, to {scale.best:.6g}, the best one found",
            hint="ask for an MMD in that range, or for a share of it with --severity",
        )


class Path(Protocol[Parts_co]):
    """Splits from a random one, at share 0, towards the best one, at share 1."""

    @property
    def points(self) -> int:
        """How many splits are best made at a time."""

    @property
    def attempts(self) -> int:
        """How many such paths are worth walking along."""

    def at(self, shares: Sequence[float]) -> Sequence[tuple[float, Parts_co]]:
        """The splits at some shares, with their MMDs."""


def nearest(
    paths: Iterable[Path[Parts]], scale: Scale, severity: float, end: tuple[float, Parts | None]
) -> tuple[float, Parts | None]:
    """Look along paths for the split whose MMD is nearest to a severity's, until one is close.

    Parameters
    ----------
    end : the MMD of the best split, and what to return for it.
    """
    wanted, best = scale.mmd(severity), end
    close = CLOSE if severity > 0 else WITHIN
    enough = close * scale.width + ALIKE * scale.random
    for number, path in enumerate(paths, start=1):
        # Severity 0 is an ordinary random split: nothing is added to chance.
        found = _along(path, wanted, enough) if severity > 0 else path.at([0.0])[0]
        if abs(found[0] - wanted) < abs(best[0] - wanted) or (best is end and severity == 0):
            best = found
        if abs(best[0] - wanted) <= enough or (severity > 0 and number == path.attempts):
            break
    return best


def _along(path: Path[Parts], wanted: float, enough: float) -> tuple[float, Parts]:
    """Cut the interval in which the wanted MMD is crossed into pieces, again and again."""
    low, high = 0.0, 1.0
    shares = np.linspace(low, high, path.points + 1)[:-1]
    found = path.at(shares.tolist())
    best = min(found, key=lambda each: abs(each[0] - wanted))
    for _ in range(ROUNDS):
        below = [place for place, (mmd, _) in enumerate(found) if mmd <= wanted]
        if abs(best[0] - wanted) <= enough or (low == 0.0 and shares[0] == 0.0 and not below):
            break
        if not below:
            high = float(shares[0])
        else:
            low = float(shares[below[-1]])
            high = float(shares[below[-1] + 1]) if below[-1] + 1 < len(shares) else high
        shares = np.linspace(low, high, path.points + 2)[1:-1]
        found = path.at(shares.tolist())
        best = min([best, *found], key=lambda each: abs(each[0] - wanted))
    return best


SMALLEST_KEY = 2.0**-54


def normal(keys: Doubles) -> Doubles:
    """Normal noise in the order of uniform keys: by itself it chooses what the keys choose."""
    from scipy.special import ndtri

    return np.asarray(ndtri(np.maximum(keys, SMALLEST_KEY)))


def standardized(values: Doubles, cells: Cells) -> Doubles:
    """Values (n, ...) with mean 0 and standard deviation 1 within every cell; zeros where all are equal."""
    flat = values.reshape(len(values), -1)
    result = np.empty_like(flat)
    for rows in np.split(cells.order, cells.offsets[1:-1]):
        centred = flat[rows] - flat[rows].mean(axis=0)
        spread = float(np.sqrt((centred**2).mean()))
        result[rows] = centred / spread if spread > 0 else 0.0
    return result.reshape(values.shape)


def blended(towards: Doubles, noise: Doubles, shares: Sequence[float]) -> Doubles:
    """Costs of rows for some shares of what leads to the best split; the shares are a last dimension."""
    share = np.asarray(shares)
    return np.asarray(towards[..., None] * share + noise[..., None] * (1.0 - share))


@dataclass(frozen=True)
class SplitPath:
    """Splits in two whose cells can be decided one by one.

    Counts that have room go from the targets, at share 0, to those of the best split.

    Attributes
    ----------
    towards : (n,), smaller for rows that lead to the best split.
    noise : (n,)
    counts : (cells,), validation rows of the best split.
    """

    problem: Problem
    towards: Doubles
    noise: Doubles
    counts: NDArray[np.int64]
    points: int = 8
    attempts: int = ATTEMPTS

    def at(self, shares: Sequence[float]) -> list[tuple[float, Members]]:
        """Every cell's quota of rows, by the witness and by chance."""
        costs, limits = blended(self.towards, self.noise, shares), self.problem.constraints
        targets = at_targets(limits)
        if limits.is_exact:
            members = targets.choose(costs)
        else:
            first = targets.constraints.target
            chosen = []
            for place, share in enumerate(shares):
                quotas = np.rint(first + share * (self.counts - first)).astype(np.int64)
                selection = Selection(ValidationQuotas.exactly(limits.cells, quotas))
                chosen.append(selection.choose(costs[:, [place]])[:, 0])
            members = np.stack(chosen, axis=1)
        return _measured(self.problem, members)


@dataclass(frozen=True)
class CoupledPath:
    """Splits in two whose cells hang together: programs choose the rows, or units of rows.

    Attributes
    ----------
    problem : of the rows.
    towards, noise : of every unit, shape (units,).
    """

    problem: Problem
    coupling: Coupling
    towards: Doubles
    noise: Doubles
    points: int = 3
    attempts: int = 4

    def at(self, shares: Sequence[float]) -> list[tuple[float, Members]]:
        """What the programs choose, by the witness and by chance."""
        chosen = self.coupling.drawn(blended(self.towards, self.noise, shares))
        return _measured(self.problem, chosen)


def _measured(problem: Problem, members: Members) -> list[tuple[float, Members]]:
    mmd = np.sqrt(np.maximum(squared_mmd(problem, members), 0.0))
    return [(float(value), members[:, place].copy()) for place, value in enumerate(mmd)]


@dataclass(frozen=True)
class PartPath:
    """Partitions of rows, or of units of rows, into parts.

    Attributes
    ----------
    towards, noise : of every row, or unit, in every part, shape (n, parts).
    counts : (cells, parts) of the best partition.
    units : None where rows are on their own.
    """

    geometry: Geometry
    assigner: PartAssigner
    units: GroupParts | None
    towards: Doubles
    noise: Doubles
    counts: NDArray[np.int64]
    points: int = 8
    attempts: int = ATTEMPTS

    def at(self, shares: Sequence[float]) -> list[tuple[float, Labels]]:
        """What assignment steps choose, by the distances to the centroids and by chance."""
        costs = np.moveaxis(blended(self.towards, self.noise, shares), -1, 0)
        if self.units is not None:
            units = self.units
            labels = [units.cheaper(units.first, each)[units.units] for each in costs]
        elif self.assigner.quotas.is_exact:
            labels = [*self.assigner.assign_in_order(costs).labels]
        else:
            labels = [
                self._assigner(share).assign_in_order(each[None]).labels[0]
                for share, each in zip(shares, costs, strict=True)
            ]
        values = mean_mmd(self.geometry, np.stack(labels, axis=1), self.assigner.quotas.k)
        return list(zip(values.tolist(), labels, strict=True))

    def _assigner(self, share: float) -> PartAssigner:
        """The assignment to counts between the targets and those of the best partition."""
        quotas = self.assigner.quotas
        first = self._targets
        wanted = first + share * (self.counts - first)
        between = np.array([
            largest_remainders(row.tolist(), int(size))
            for row, size in zip(wanted, quotas.cells.sizes, strict=True)
        ])  # fmt: skip
        return replace(self.assigner, quotas=replace(quotas, target=between, lower=between, upper=between))

    @cached_property
    def _targets(self) -> NDArray[np.int64]:
        """What random partitions count: the targets, but for rows forced elsewhere."""
        quotas: Quotas = self.assigner.quotas
        return quotas.counts(self.assigner.random(np.random.default_rng(0)))


def mean_mmd(geometry: Geometry, labels: Labels, k: int) -> Doubles:
    """The mean MMD between parts of a batch of partitions (n, r): the root of the mean square."""
    state = measure(geometry, labels, k, geometry.search_dtype)
    sizes = state.sizes.astype(np.float64)
    pairs = (sizes.sum(axis=1) ** 2 - (sizes**2).sum(axis=1)) / 2
    scatter = geometry.trace - geometry.grand_total / geometry.n
    return np.asarray(np.sqrt(np.maximum(scatter - state.psi, 0.0) * geometry.n / pairs))
