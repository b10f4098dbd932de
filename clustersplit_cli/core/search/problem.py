"""A kernel and constraints, with the facts that every step of the search needs; no algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from clustersplit_cli.core.assignment.selection import CellAssigner
from clustersplit_cli.core.constraints.quotas import TRAIN, VAL, ValidationQuotas
from clustersplit_cli.core.effort import Effort
from clustersplit_cli.core.geometry.dense import FEW
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.geometry.protocol import (
    Geometry,
    SplitProducts,
    split_weights,
    weighted_row_sums,
)
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.progress import Progress, silent

SMALL = 2048
"""Up to this many rows a pass over the kernel itself costs next to nothing."""
Members = NDArray[np.bool_]
"""Which rows are validation rows: shape (n,) for one split, (n, r) for a batch."""


@dataclass(frozen=True)
class Problem:
    """Maximise the MMD between the two sides of a split of `geometry`'s rows under `constraints`."""

    geometry: Geometry
    constraints: ValidationQuotas
    sizes: NDArray[np.int64] | None = None
    """Rows of every unit, where rows stay together and the geometry sums over them; None: 1."""

    @property
    def n(self) -> int:
        """Number of rows, or of units."""
        return self.geometry.n

    @cached_property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.n if self.sizes is None else int(self.sizes.sum())

    def count(self, members: Members) -> NDArray[np.int64]:
        """Validation rows of each split of a batch (n, r)."""
        counts: NDArray[np.int64] = members.sum(axis=0) if self.sizes is None else self.sizes @ members
        return counts

    def counts(self, members: Members) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Validation and training rows of each split of a batch (n, r)."""
        n_val = self.count(members)
        return n_val, self.n_rows - n_val

    @property
    def row_sums(self) -> NDArray[np.float64]:
        """K 1, shape (n,)."""
        return self.geometry.row_sums

    @cached_property
    def trace(self) -> float:
        """Sum of K's diagonal."""
        return self.geometry.trace

    @cached_property
    def ssq_total(self) -> float:
        """Total scatter SSq(S) = tr K - 1'K1/n."""
        return self.trace - self.geometry.grand_total / self.n_rows


@dataclass(frozen=True)
class MeasuredSplits:
    """MMD², objective and squared-distance differences of a batch of splits, all from one product s = K z.

    Attributes
    ----------
    witness : (n, r), s = K z.
    mmd_squared : (r,), z's.
    psi : (r,), through the ANOVA identity; reports use `evaluate`, which computes it on its own.
    difference : (n, r), squared distance to the validation centroid minus that to the training centroid.
    """

    witness: NDArray[Any]
    mmd_squared: NDArray[np.float64]
    psi: NDArray[np.float64]
    difference: NDArray[Any]


def discrepancy(problem: Problem, members: Members, dtype: DTypeLike) -> MeasuredSplits:
    """Compare the two sides of every split in the batch with one multiplication by K."""
    counts = problem.counts(members)
    found = problem.geometry.measure_splits(members, counts, dtype)
    return _from_products(problem, counts[0], found)


def shifted(problem: Problem, members: Members, before: Members, witness: Floats) -> MeasuredSplits:
    """The same for splits close to splits whose witness is known.

    Of a kernel that is held entry by entry, only the rows that change sides are multiplied.

    Parameters
    ----------
    before : (n, r), the splits that `witness` belongs to.
    """
    geometry, counts = problem.geometry, problem.counts(members)
    rows = np.flatnonzero((members != before).any(axis=1))
    is_few = FEW * len(rows) <= problem.n and np.array_equal(counts[0], problem.count(before))
    if not (geometry.has_entries and is_few):
        return discrepancy(problem, members, witness.dtype)
    weights = split_weights(members, witness.dtype, counts)
    if len(rows):
        witness = witness + geometry.combine(
            rows, weights[rows] - split_weights(before[rows], witness.dtype, counts)
        )
    energy = np.asarray(np.einsum("ij,ij->j", weights, witness, dtype=np.float64))
    products = SplitProducts(witness, energy, weighted_row_sums(geometry, weights))
    return _from_products(problem, counts[0], products)


def squared_mmd(problem: Problem, members: Members) -> NDArray[np.float64]:
    """MMD² of a batch of splits (n, r), in the search's precision summed up in float64."""
    return problem.geometry.split_energy(members, problem.counts(members))


def recalled(problem: Problem, members: Members, witness: Floats, psi: NDArray[np.float64]) -> MeasuredSplits:
    """The same for splits whose witness and objective are known: nothing is multiplied by K."""
    n_val, n_train = counts = problem.counts(members)
    pair = n_val * n_train / problem.n_rows
    with_all = weighted_row_sums(problem.geometry, split_weights(members, witness.dtype, counts))
    products = SplitProducts(witness, (problem.ssq_total - psi) / pair, with_all)
    return _from_products(problem, n_val, products)


def _from_products(problem: Problem, n_val: NDArray[np.int64], found: SplitProducts) -> MeasuredSplits:
    n, mmd_squared = problem.n_rows, found.mmd_squared
    n_train = n - n_val
    # Centroids a = 1_V/|V|, b = 1_T/|T|: |a|² - |b|² = (a - b)'K(a + b), and a + b = (2 + (|T| - |V|) z)/n.
    pair = n_val * n_train / n
    centroid_gap = (2.0 * found.with_all + (n_train - n_val) * mmd_squared) / n
    difference = -2.0 * found.witness
    shift = centroid_gap.astype(difference.dtype)
    difference += shift if problem.sizes is None else problem.sizes[:, None] * shift
    return MeasuredSplits(found.witness, mmd_squared, problem.ssq_total - pair * mmd_squared, difference)


@dataclass(frozen=True, kw_only=True)
class Measures:
    """One partition measured in float64, each quantity by its own formula.

    Attributes
    ----------
    sizes : (k,) rows of every part.
    mmd_squared : between two parts; of more the mean over pairs, weighted by the product of their sizes.
    identity_residual : |SSq(S) - Psi - sum of |A||B|/n MMD²(A, B)| / SSq(S): round-off if all is right.
    pairs : (k, k) between every two parts; None for a split in two.
    rest_squared : (k,) MMD² between every part and all other rows, likewise.
    """

    sizes: NDArray[np.int64]
    mmd_squared: float
    psi: float
    ssq_total: float
    identity_residual: float
    pairs: NDArray[np.float64] | None = None
    rest_squared: NDArray[np.float64] | None = None

    @property
    def mmd(self) -> float:
        """The MMD; rounding can make its square a hair negative."""
        return float(max(self.mmd_squared, 0.0) ** 0.5)

    @property
    def n_rows(self) -> int:
        """Rows of all parts."""
        return int(self.sizes.sum())


@dataclass(frozen=True, kw_only=True)
class SplitMeasures(Measures):
    """A split in two, with what its assignment step needs.

    Attributes
    ----------
    difference : (n,), squared distance to the validation centroid minus that to the training centroid.
    training_cost : sum over all rows of the squared distance to the training centroid.
    trace : of K.
    """

    difference: NDArray[np.float64]
    witness: NDArray[np.float64]
    training_cost: float
    trace: float

    @property
    def n_train(self) -> int:
        """Training rows."""
        return int(self.sizes[TRAIN])

    @property
    def n_val(self) -> int:
        """Validation rows."""
        return int(self.sizes[VAL])


def evaluate(problem: Problem, members: Members) -> SplitMeasures:
    """Measure one split: MMD² from K z, Psi from K 1_V and K 1_T, SSq(S) from their sum, K 1.

    Parameters
    ----------
    members : (n,)
    """
    val = members.astype(np.float64)
    train = 1.0 - val
    n_val = int(problem.count(members[:, None])[0])
    n_train = problem.n_rows - n_val
    weights = val / n_val - train / n_train
    witness, to_val, to_train = problem.geometry.side_products(members, (n_val, n_train)).T
    mmd_squared = float(weights @ witness)
    val_norm = float(val @ to_val) / n_val**2
    train_norm = float(train @ to_train) / n_train**2
    psi = problem.trace - n_val * val_norm - n_train * train_norm
    scatter = problem.trace - float(to_val.sum() + to_train.sum()) / problem.n_rows
    residual = (
        abs(scatter - psi - n_train * n_val / problem.n_rows * mmd_squared) / scatter if scatter > 0 else 0.0
    )
    return SplitMeasures(
        sizes=np.array([n_train, n_val], dtype=np.int64),
        mmd_squared=mmd_squared,
        psi=psi,
        ssq_total=scatter,
        identity_residual=residual,
        difference=-2.0 * witness + (val_norm - train_norm) * (1 if problem.sizes is None else problem.sizes),
        witness=witness,
        training_cost=problem.trace - 2.0 * float(to_train.sum()) / n_train + problem.n_rows * train_norm,
        trace=problem.trace,
    )


def objectives(problem: Problem, members: Members, dtype: DTypeLike = np.float64) -> NDArray[np.float64]:
    """Psi of a batch of splits, from 1_V'K1_V and K 1.

    Parameters
    ----------
    members : (n, r)
    dtype : the precision of products with K; what it gives is summed up in float64.
    """
    n_val = problem.count(members)
    inside_val = problem.geometry.energy(members.astype(dtype))
    inside_train = float(problem.row_sums.sum()) - 2.0 * (problem.row_sums @ members) + inside_val
    return np.asarray(problem.trace - inside_val / n_val - inside_train / (problem.n_rows - n_val))


@dataclass(frozen=True)
class SearchContext:
    """A problem, the assignment step, who does the work, and how long to go on.

    Attributes
    ----------
    assigner : the assignment step on all rows.
    restarts : number of starts.
    max_iter : steps of a descent at most.
    """

    problem: Problem
    assigner: CellAssigner
    workers: Workers
    restarts: int
    max_iter: int
    effort: Effort
    progress: Progress = silent
