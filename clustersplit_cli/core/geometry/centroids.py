"""A split measured from sums of factors: all that is ever needed of rows that are not in memory.

With K = F M M' F', everything about a split follows from the sum of F over its validation rows and the sum
over all rows, through M' F' 1_V and M' F' 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class SplitState:
    """One split, each quantity by its own formula.

    Attributes
    ----------
    weights : (p,), the witness of row i is F_i @ weights.
    shift : squared length of the validation centroid minus that of the training one.
    training_cost : sum over all rows of the squared distance to the training centroid.
    own_cost : sum over all rows of the squared distance to their own centroid, through the differences.
    """

    n_val: int
    n_train: int
    mmd_squared: float
    psi: float
    weights: Vector
    shift: float
    training_cost: float
    own_cost: float

    def cost(self, sums: Vector, count: int) -> float:
        """The cost of sending to validation `count` rows whose factors sum to `sums`, at these centroids."""
        return self.training_cost - 2.0 * float(sums @ self.weights) + count * self.shift


@dataclass(frozen=True)
class FactoredKernel:
    """A kernel known by its factors' sums.

    Attributes
    ----------
    n : rows.
    total : (p,), the sum of F over all rows.
    mixing : (p, r), or None for the identity.
    trace, trace_error : sum of K's diagonal, and its standard error if it is an estimate.
    """

    n: int
    total: Vector
    mixing: NDArray[np.float64] | None
    trace: float
    trace_error: float

    def image(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """M' sums."""
        return sums if self.mixing is None else np.asarray(self.mixing.T @ sums)

    def spread(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """M M' sums: weights on F."""
        return sums if self.mixing is None else np.asarray(self.mixing @ (self.mixing.T @ sums))

    @property
    def ssq_total(self) -> float:
        """Total scatter SSq(S) = tr K - 1'K1/n."""
        return self.trace - _square(self.image(self.total)) / self.n

    def state(self, sums: Vector, n_val: int) -> SplitState:
        """Measure the split whose validation rows' factors sum to `sums`."""
        n_train = self.n - n_val
        val, train = sums / n_val, (self.total - sums) / n_train
        weights = self.spread(val - train)
        val_norm, train_norm = _square(self.image(val)), _square(self.image(train))
        shift = val_norm - train_norm
        across = float(self.image(self.total) @ self.image(train))
        training_cost = self.trace - 2.0 * across + self.n * train_norm
        return SplitState(
            n_val,
            n_train,
            mmd_squared=_square(self.image(val - train)),
            psi=self.trace - n_val * val_norm - n_train * train_norm,
            weights=weights,
            shift=shift,
            training_cost=training_cost,
            own_cost=training_cost - 2.0 * float(sums @ weights) + n_val * shift,
        )

    def residual(self, state: SplitState) -> float:
        """|SSq(S) - Psi - |T||V|/n MMD²| / SSq(S)."""
        scatter = self.ssq_total
        explained = state.n_train * state.n_val / self.n * state.mmd_squared
        return abs(scatter - state.psi - explained) / scatter if scatter > 0 else 0.0


def _square(vector: Vector) -> float:
    return float(vector @ vector)
