"""Where descents begin: random splits, splits along leading directions of the kernel, perturbed splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.constraints.cells import Cells
from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.geometry.scatter import cell_means, within_cells
from clustersplit_cli.core.parallel import tiles
from clustersplit_cli.core.search.problem import Members, Problem

KEYS = 1 << 19
"""Random numbers that are drawn at a time: few enough to stay in cache."""
WEAKEST = 0.1
"""The weakest noise in a perturbed split, in standard deviations of the witness."""
SHARES = 0.3, 0.7
"""Range of the share that one of two splits has in a mixture."""


def random_splits(constraints: ValidationQuotas, streams: Sequence[np.random.Generator]) -> Members:
    """Draw one split per stream, uniform among those that meet every cell's target.

    Returns
    -------
    (n, r)
    """
    selection, n = at_targets(constraints), constraints.n
    splits = np.empty((len(streams), n), dtype=bool)
    for start, stop in tiles(len(streams), max(1, KEYS // n)):
        keys = np.stack([stream.random(n) for stream in streams[start:stop]])
        splits[start:stop] = selection.choose(keys.T).T
    return np.transpose(splits)


def spectral_splits(constraints: ValidationQuotas, factors: Floats, count: int) -> Members:
    """Split along the leading eigenvectors of P K P, both signs of each; see `spectral_scores`."""
    return at_targets(constraints).choose(spectral_scores(constraints.cells, factors, count))


def spectral_scores(cells: Cells, factors: Floats, count: int) -> Floats:
    """Coordinates of all rows along leading eigenvectors of P K P, K = factors factors', both signs of each.

    P removes every cell's mean, because a split that keeps each cell's share can only use what varies
    within cells.

    Parameters
    ----------
    factors : (n, p)

    Returns
    -------
    (n, r) with r = count, or fewer if there are not so many directions.
    """
    if factors.shape[1] == 0:  # all values of the kernel are zero, as for units of rows that cancel out
        return np.empty((len(factors), 0), factors.dtype)
    means = cell_means(cells, factors)
    values, vectors = np.linalg.eigh(within_cells(cells, factors, means))
    keep = np.flatnonzero(values > 1e-6 * max(values[-1], 0.0))[::-1][: (count + 1) // 2]
    directions = vectors[:, keep]
    # An eigenvector's sign is arbitrary; fixing it makes the first of each pair the same everywhere.
    signs = np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(len(keep))])
    directions *= signs
    scores = factors @ directions.astype(factors.dtype) - (means @ directions)[cells.codes]
    both: Floats = np.stack([-scores, scores], axis=2).reshape(len(scores), -1)[:, :count]
    return both


def perturbation_directions(factors: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Directions to perturb splits along, shape (p, count).

    Two in three point at or away from a random row, which moves that row's neighbourhood to one side; the
    others are uniform, which moves something everywhere.

    Parameters
    ----------
    factors : (m, p), factors of some or all rows.
    """
    directions = rng.standard_normal((factors.shape[1], count), dtype=np.float32).astype(factors.dtype)
    rows = rng.integers(len(factors), size=(2 * count) // 3)
    signs = rng.choice([-1.0, 1.0], size=len(rows)).astype(factors.dtype)
    directions[:, : len(rows)] = (factors[rows] * signs[:, None]).T
    return directions


def at_targets(constraints: ValidationQuotas) -> Selection:
    """A selection that meets every cell's target exactly."""
    counts = constraints.target.copy()
    # With tolerances a side may be empty at the targets although the bounds allow it a row.
    if counts.sum() == 0:
        counts[int(np.argmax(constraints.upper))] += 1
    elif counts.sum() == constraints.n:
        counts[int(np.argmax(counts - constraints.lower))] -= 1
    return Selection(replace(constraints, lower=counts, upper=counts))


def perturbed_splits(
    constraints: ValidationQuotas,
    witness: NDArray[np.floating],
    projections: Floats,
    count: int,
    rng: np.random.Generator,
    strongest: float,
) -> Members:
    """Choose rows by a split's witness plus noise, of a strength drawn for each.

    Some are perturbed along random directions of the kernel, which moves whole neighbourhoods; the others get
    independent noise per row, which reorders rows near the thresholds.

    Parameters
    ----------
    witness : (n,)
    projections : (n, at most count), inner products of the rows with random directions.
    strongest : the strongest noise; the weakest is `WEAKEST`.

    Returns
    -------
    (n, count)
    """
    noise = rng.standard_normal((constraints.n, count), dtype=np.float32)
    # Both grow with the features' squares: brought to size one they neither overflow nor vanish.
    largest = np.abs(projections).max(axis=0)
    noise[:, : projections.shape[1]] = projections / np.where(largest > 0, largest, 1)
    noise /= np.maximum(noise.std(axis=0), np.finfo(np.float32).tiny)
    level = witness / (float(np.abs(witness).max()) or 1.0)
    strength = np.exp(rng.uniform(np.log(WEAKEST), np.log(strongest), size=count)) * float(level.std())
    return at_targets(constraints).choose(noise * strength - level[:, None])


def crossed_splits(
    constraints: ValidationQuotas, witnesses: Floats, count: int, rng: np.random.Generator
) -> tuple[Members, NDArray[np.int64]]:
    """Choose rows by mixtures of two splits' witnesses.

    What two good splits agree on is mostly right. Where rows form many clusters, the best split may share
    little with any single split that descents end at, and much with what two of them have in common.

    Parameters
    ----------
    witnesses : (n, k) of k > 1 splits, best first: better ones are taken more often.

    Returns
    -------
    The splits, (n, count), and the better one of the two that each comes from, (count,).
    """
    k = witnesses.shape[1]
    ranks = np.arange(k, 0, -1.0)
    one = rng.choice(k, size=count, p=ranks / ranks.sum())
    other = (one + 1 + rng.integers(k - 1, size=count)) % k
    # Brought to size one, as in `perturbed_splits`.
    level = witnesses / np.maximum(np.abs(witnesses).max(axis=0), np.finfo(np.float32).tiny)
    level /= np.maximum(level.std(axis=0), np.finfo(np.float32).tiny)
    share = rng.uniform(*SHARES, size=count).astype(level.dtype)
    mixed = level[:, one] * share + level[:, other] * (1 - share)
    return at_targets(constraints).choose(-mixed), np.minimum(one, other)


FAINTEST, STRONGEST = 0.05, 1.0
"""Range of noise in splits by row sums, in standard deviations of these."""


def is_nearly_diagonal(problem: Problem) -> bool:
    """Whether rows are on average closer to themselves than to all others; values must not be negative."""
    if not problem.geometry.has_entries or problem.sizes is not None:
        return False
    return float(problem.row_sums.sum()) < 2.0 * problem.trace


def near_diagonal_splits(problem: Problem, count: int, rng: np.random.Generator) -> Members:
    """Put the rows with the largest row sums on the smaller side, and again with noise, shape (n, count)."""
    limits = problem.constraints
    others = problem.row_sums - problem.geometry.diagonal
    # Brought to size one: what is left of a very narrow kernel may be tiny.
    level = others / (float(others.max()) or 1.0)
    if 2 * int(limits.target.sum()) > limits.n:
        level = -level
    strength = np.exp(rng.uniform(np.log(FAINTEST), np.log(STRONGEST), size=count))
    strength[0] = 0.0
    noise = rng.standard_normal((problem.n, count)) * (strength * float(level.std()))
    return at_targets(limits).choose(-(level[:, None] + noise))
