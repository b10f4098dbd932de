"""MMD and scatter of a partition by definition: sums of kernel values in float64, sharing no short cut.

For checking. It knows nothing of geometries, tiles in lower precision, or the identities between the
quantities; it takes the raw features and spells every kernel out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Labels
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.geometry.kernels import LINEAR
from clustersplit_cli.core.parallel import Workers, tiles
from clustersplit_cli.core.search.problem import Members

ROWS = 512
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Definition:
    """MMD² = mean K(V,V) + mean K(T,T) - 2 mean K(V,T); SSq(A) = sum of K(a,a) - sum of K(A,A)/|A|.

    Of more than two parts `mmd_squared` is the mean over pairs, weighted by the product of their sizes.
    `pairs` has all of them, of shape (k, k); None where they were not computed one by one.
    """

    mmd_squared: float
    psi: float
    ssq_total: float
    pairs: Matrix | None = None


def by_definition(
    raw: Floats,
    labels: Labels | Members,
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
    """Measure a partition from the features themselves.

    Parameters
    ----------
    raw : (n, d)
    labels : the part of every row; for a split, whether it is in validation.
    centred : whether the mean of the rows is the zero of the kernel's space.
    landmarks : rows of a Nyström approximation; None for the exact kernel.
    """
    whole = raw.astype(np.float64)
    spelled = SpelledKernel(kernel, gamma, degree, standardize, *_column_statistics(whole, standardize))
    rows = spelled.rows(whole)
    # No distance and no MMD changes, and less is lost to rounding; a tanimoto kernel has a zero of its own.
    centre = rows.mean(axis=0) * (kernel != "tanimoto")
    rows -= centre
    if centred:
        spelled = replace(spelled, origin=centre)
    sides = np.asarray(labels[:, None] == np.arange(int(labels.max()) + 1), dtype=np.float64)
    if landmarks is not None:
        near = rows[landmarks]
        mixing = spelled.mixing(near, raw.dtype)
        return _from_blocks(lambda some: spelled.values(some, near) @ mixing, rows, sides, workers, on_done)
    if spelled.is_linear:
        return _from_blocks(lambda some: some, rows, sides, workers, on_done)
    return _from_values(rows, sides, spelled.values, workers, on_done)


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
        return self.kernel in LINEAR

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
        if self.kernel in ("rbf", "laplacian"):
            exponents, from_origin = self._exponents(left, right)
            if self.origin is None:
                return np.asarray(np.exp(exponents))
            apart = [np.expm1(-of_rows) for of_rows in from_origin]
            return np.asarray(np.expm1(exponents) - apart[0][:, None] - apart[1][None, :])
        product = left @ right.T
        if self.kernel == "tanimoto":
            union = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :] - product
            return np.asarray(np.where(union > 0, product / np.where(union > 0, union, 1.0), 1.0))
        if self.kernel == "polynomial":
            return self._polynomial(left, right, product)
        return np.asarray(product)

    def _exponents(self, left: Matrix, right: Matrix) -> tuple[Matrix, list[Matrix]]:
        """Minus gamma times the distances of rows from each other, and gamma times those from zero."""
        assert self.gamma is not None
        if self.kernel == "laplacian":
            apart = np.zeros((len(left), len(right)))
            for one, other in zip(left.T, right.T, strict=True):
                apart += np.abs(one[:, None] - other[None, :])
            return -self.gamma * apart, [self.gamma * np.abs(rows).sum(axis=1) for rows in (left, right)]
        squares = [self.gamma * (rows**2).sum(axis=1) for rows in (left, right)]
        squared = squares[0][:, None] + squares[1][None, :] - 2.0 * self.gamma * (left @ right.T)
        return -np.maximum(squared, 0.0), squares

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


def from_sums(sums: Matrix, sizes: NDArray[Any], trace: float) -> Definition:
    """The same from sums (k, p) of rows whose inner products are the kernel, and from its trace."""
    means, total = sums / sizes[:, None], sums.sum(axis=0)
    within = float((sums * means).sum())
    pairs = ((means[:, None] - means[None]) ** 2).sum(axis=2)
    scatter = trace - float(total @ total) / float(sizes.sum())
    return Definition(_mean_of(pairs, sizes.astype(np.float64)), trace - within, scatter, pairs)


def unbiased(spelled: SpelledKernel, samples: Sequence[Matrix], sizes: NDArray[np.int64]) -> float:
    """MMD² between parts of some sizes, from a sample of each, without pairs of a row with itself."""
    k = len(samples)
    means = np.zeros((k, k))
    for a, rows in enumerate(samples):
        values = spelled.values(rows, rows)
        means[a, a] = (float(values.sum()) - float(np.trace(values))) / (len(rows) * (len(rows) - 1))
        for b in range(a):
            means[a, b] = means[b, a] = float(spelled.values(rows, samples[b]).mean())
    own = means.diagonal()
    return _mean_of(own[:, None] + own[None, :] - 2.0 * means, sizes.astype(np.float64))


def _from_blocks(
    of_rows: Callable[[Matrix], Matrix],
    rows: Matrix,
    sides: Matrix,
    workers: Workers,
    on_done: Callable[[int, int], None],
) -> Definition:
    """Where the kernel is an inner product of vectors, made of some rows at a time; `sides` is (n, k)."""
    blocks = tiles(len(rows), ROWS)
    # Far from zero the squares of vectors that hardly differ would have no digits left.
    reference = of_rows(rows[slice(*blocks[0])]).mean(axis=0)

    def sums(block: tuple[int, int]) -> tuple[Matrix, float]:
        apart = of_rows(rows[slice(*block)]) - reference
        return sides[slice(*block)].T @ apart, float((apart**2).sum())

    total, trace = np.zeros((sides.shape[1], len(reference))), 0.0
    for done, (of_block, squares) in enumerate(workers.map(sums, blocks), start=1):
        total, trace = total + of_block, trace + squares
        on_done(done, len(blocks))
    return from_sums(total, sides.sum(axis=0), trace)


def _mean_of(pairs: Matrix, sizes: Matrix) -> float:
    """The mean over pairs of parts, weighted by the product of their sizes."""
    weights = np.triu(np.outer(sizes, sizes), 1)
    return float((weights * pairs).sum() / weights.sum())


def _from_values(
    rows: Matrix,
    sides: Matrix,
    values: Callable[[Matrix, Matrix], Matrix],
    workers: Workers,
    on_done: Callable[[int, int], None],
) -> Definition:
    """Sum all kernel values, block by block and each pair of blocks once; `sides` of shape (n, k)."""
    blocks = tiles(len(rows), ROWS)
    tasks = [(left, right) for i, left in enumerate(blocks) for right in blocks[i:]]

    def sums(task: tuple[tuple[int, int], tuple[int, int]]) -> tuple[Matrix, float]:
        (top, bottom), (first, last) = task
        block = values(rows[top:bottom], rows[first:last])
        between = sides[top:bottom].T @ block @ sides[first:last]
        return (between, float(np.trace(block))) if top == first else (between + between.T, 0.0)

    total, trace = np.zeros((sides.shape[1], sides.shape[1])), 0.0
    for done, (between, diagonal) in enumerate(workers.map(sums, tasks), start=1):
        total, trace = total + between, trace + diagonal
        on_done(done, len(tasks))
    sizes = sides.sum(axis=0)
    means = total / np.outer(sizes, sizes)
    pairs = means.diagonal()[:, None] + means.diagonal()[None, :] - means - means.T
    return Definition(
        _mean_of(pairs, sizes),
        trace - float((total.diagonal() / sizes).sum()),
        trace - float(total.sum()) / len(rows),
        pairs,
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
