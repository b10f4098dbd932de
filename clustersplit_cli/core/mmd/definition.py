"""MMD and scatter of a split by their definitions: sums of kernel values in float64, sharing no short cut.

For checking. It knows nothing of geometries, tiles in lower precision, or the identities between the
quantities; it takes the raw features and spells every kernel out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.parallel import Workers, tiles
from clustersplit_cli.core.search.problem import Members

ROWS = 512
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Definition:
    """MMD² = mean K(V,V) + mean K(T,T) - 2 mean K(V,T); SSq(A) = sum of K(a,a) - sum of K(A,A)/|A|."""

    mmd_squared: float
    psi: float
    ssq_total: float


def by_definition(
    raw: Floats,
    members: Members,
    *,
    kernel: str,
    gamma: float | None,
    degree: int | None,
    standardize: str,
    centred: bool,
    landmarks: NDArray[np.int64] | None,
    workers: Workers,
    on_done: Callable[[int, int], None] = lambda done, total: None,
) -> Definition:
    """Measure a split from the features themselves.

    Parameters
    ----------
    raw : (n, d)
    centred : whether the mean of the rows is the zero of the kernel's space.
    landmarks : rows of a Nyström approximation; None for the exact kernel.
    """
    whole = raw.astype(np.float64)
    spelled = SpelledKernel(kernel, gamma, degree, standardize, *_column_statistics(whole, standardize))
    rows = spelled.rows(whole)
    centre = rows.mean(axis=0)
    rows -= centre  # no distance and no MMD changes; less is lost to rounding
    if centred:
        spelled = replace(spelled, origin=centre)
    if landmarks is not None:
        mixing = spelled.mixing(rows[landmarks], raw.dtype)
        rows = np.concatenate(
            [spelled.values(rows[slice(*tile)], rows[landmarks]) @ mixing for tile in tiles(len(rows), ROWS)]
        )
    if landmarks is not None or spelled.is_linear:
        return _from_rows(rows, members)
    return _from_values(rows, members, spelled.values, workers, on_done)


@dataclass(frozen=True)
class SpelledKernel:
    """A kernel and the maps before it, spelled out in float64.

    Attributes
    ----------
    mean, rest, deviation : of the columns, for `zscore`; None otherwise. The mean is in two parts, which
        together have more digits.
    origin : what was subtracted from all rows, if that is the zero of the kernel's space; else None.
    """

    kernel: str
    gamma: float | None
    degree: int | None
    standardize: str
    mean: Matrix | None = None
    rest: Matrix | None = None
    deviation: Matrix | None = None
    origin: Matrix | None = None

    @property
    def is_linear(self) -> bool:
        """Whether the kernel is an inner product of the rows."""
        return self.kernel in ("linear", "cosine")

    def rows(self, raw: Floats) -> Matrix:
        """Rows as the kernel takes them."""
        rows = raw.astype(np.float64)
        if self.standardize == "zscore":
            assert self.mean is not None and self.rest is not None and self.deviation is not None
            rows = (rows - self.mean - self.rest) / self.deviation
        elif self.standardize == "l2":
            rows = _unit(rows)
        return _unit(rows) if self.kernel == "cosine" else rows

    def values(self, left: Matrix, right: Matrix) -> Matrix:
        """Kernel values of prepared rows; with an origin o, K(x, y) - K(x, o) - K(y, o) + K(o, o)."""
        product = left @ right.T
        if self.kernel == "rbf":
            assert self.gamma is not None
            squares = [self.gamma * (rows**2).sum(axis=1) for rows in (left, right)]
            squared = squares[0][:, None] + squares[1][None, :] - 2.0 * self.gamma * product
            exponents = -np.maximum(squared, 0.0)
            if self.origin is None:
                return np.asarray(np.exp(exponents))
            apart = [np.expm1(-of_rows) for of_rows in squares]
            return np.asarray(np.expm1(exponents) - apart[0][:, None] - apart[1][None, :])
        if self.kernel == "polynomial":
            return self._polynomial(left, right, product)
        return np.asarray(product)

    def _polynomial(self, left: Matrix, right: Matrix, product: Matrix) -> Matrix:
        """Term by term of the binomial formula, so that what all values have in common never appears."""
        assert self.gamma is not None and self.degree is not None and self.origin is not None
        c, m = 1.0 + self.gamma * float(self.origin @ self.origin), self.degree
        a, b = ((self.gamma * (rows @ self.origin) / c) for rows in (left, right))
        base = c * np.outer(1.0 + a, 1.0 + b)
        step = self.gamma * product - c * np.outer(a, b)
        alone = [sum(comb(m, k) * of_rows**k for k in range(1, m + 1)) for of_rows in (a, b)]
        return np.asarray(
            sum(comb(m, k) * base ** (m - k) * step**k for k in range(1, m + 1))
            + np.outer(c ** (m / 2) * alone[0], c ** (m / 2) * alone[1])
        )

    def mixing(self, landmarks: Matrix, dtype: np.dtype[Any]) -> Matrix:
        """V D^(-1/2) of W = V D V': C times it has the approximated kernel as its inner products."""
        held_as = np.float32 if dtype.itemsize <= 4 else np.float64
        eigenvalues, vectors = np.linalg.eigh(self.values(landmarks, landmarks))
        kept = eigenvalues > 10 * float(np.finfo(held_as).eps) * eigenvalues[-1]
        return np.asarray(vectors[:, kept] / np.sqrt(eigenvalues[kept]))


def from_sums(val: Matrix, total: Matrix, trace: float, n_val: int, n: int) -> Definition:
    """The same from sums of rows whose inner products are the kernel, and from its trace."""
    train, n_train = total - val, n - n_val
    between = val / n_val - train / n_train
    within = float(val @ val) / n_val + float(train @ train) / n_train
    return Definition(float(between @ between), trace - within, trace - float(total @ total) / n)


def unbiased(spelled: SpelledKernel, val: Matrix, train: Matrix) -> float:
    """MMD² without pairs of a row with itself."""
    means = []
    for rows in (val, train):
        values = spelled.values(rows, rows)
        means.append((float(values.sum()) - float(np.trace(values))) / (len(rows) * (len(rows) - 1)))
    return means[0] + means[1] - 2.0 * float(spelled.values(val, train).mean())


def _from_rows(rows: Matrix, members: Members) -> Definition:
    """Where the kernel is an inner product: distances to means, and between them."""
    means = rows[members].mean(axis=0), rows[~members].mean(axis=0)
    psi = sum(
        float(((rows[side] - mean) ** 2).sum()) for side, mean in zip((members, ~members), means, strict=True)
    )
    total = float(((rows - rows.mean(axis=0)) ** 2).sum())
    return Definition(float(((means[0] - means[1]) ** 2).sum()), psi, total)


def _from_values(
    rows: Matrix,
    members: Members,
    values: Callable[[Matrix, Matrix], Matrix],
    workers: Workers,
    on_done: Callable[[int, int], None],
) -> Definition:
    """Sum all kernel values, block by block and each pair of blocks once."""
    sides = members.astype(np.float64)
    blocks = tiles(len(rows), ROWS)
    pairs = [(left, right) for i, left in enumerate(blocks) for right in blocks[i:]]

    def sums(pair: tuple[tuple[int, int], tuple[int, int]]) -> NDArray[np.float64]:
        (top, bottom), (first, last) = pair
        block = values(rows[top:bottom], rows[first:last])
        above, beside = sides[top:bottom], sides[first:last]
        both = float(above @ block @ beside)
        neither = float((1.0 - above) @ block @ (1.0 - beside))
        across = float(block.sum()) - both - neither
        twice = 1.0 if top == first else 2.0
        diagonal = float(np.trace(block)) if top == first else 0.0
        return np.array([twice * both, twice * neither, twice * across, diagonal])

    val, train, across, trace = 0.0, 0.0, 0.0, 0.0
    for done, part in enumerate(workers.map(sums, pairs), start=1):
        val, train, across, trace = val + part[0], train + part[1], across + part[2], trace + part[3]
        on_done(done, len(pairs))
    n_val, n_train = int(members.sum()), int((~members).sum())
    return Definition(
        val / n_val**2 + train / n_train**2 - across / (n_val * n_train),
        trace - val / n_val - train / n_train,
        trace - (val + train + across) / (n_val + n_train),
    )


def _column_statistics(rows: Matrix, how: str) -> tuple[Matrix | None, Matrix | None, Matrix | None]:
    """A number near the mean of every column, what the mean is more than that, and the deviation."""
    if how != "zscore":
        return None, None, None
    near = rows[0]
    # In units of a power of two, so that no square leaves the range.
    unit = np.ldexp(1.0, np.minimum(np.frexp(np.abs(rows).max(axis=0))[1], 1020))
    apart = rows / unit - near / unit
    deviation = apart.std(axis=0) * unit
    # The computed deviation of a constant column may be a rounding error instead of 0.
    return near, apart.mean(axis=0) * unit, np.where(np.ptp(rows / unit, axis=0) > 0, deviation, 1.0)


def _unit(rows: Matrix) -> Matrix:
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows = rows / np.where(largest > 0, largest, 1.0)
    lengths = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0))
