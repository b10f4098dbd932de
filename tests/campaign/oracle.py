"""Kernels, discrepancies and best splits by their definitions: numpy, and nothing of the package."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def rounded(value: Fraction) -> int:
    """To the nearest integer, halves away from zero; of numbers that are not negative."""
    whole, rest = divmod(value, 1)
    return int(whole) + int(rest >= Fraction(1, 2))


def imputed(x: NDArray[Any]) -> NDArray[Any]:
    """Rows with the median of their column where a feature is missing."""
    return np.where(np.isnan(x), np.nanmedian(x, axis=0), x)


def standardized(x: NDArray[Any], how: str, like: NDArray[Any] | None = None) -> Floats:
    """The features as the kernel sees them; `like`: the rows whose means and deviations are taken."""
    values = np.asarray(x, dtype=np.float64)
    if how == "zscore":
        rows = values if like is None else np.asarray(like, dtype=np.float64)
        spread = rows.std(axis=0)
        return (values - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    if how == "l2":
        length = np.sqrt((values**2).sum(axis=1, keepdims=True))
        return values / np.where(length > 0, length, 1.0)
    return values


def kernel_matrix(x: Floats, kernel: str, gamma: float | None, degree: int) -> Floats:
    """The kernel of every two rows, by its formula."""
    inner = x @ x.T
    if kernel == "linear":
        return inner
    if kernel == "polynomial":
        return (float(gamma or 0.0) * inner + 1.0) ** degree
    if kernel == "cosine":
        length = np.sqrt(np.diag(inner))
        return inner / np.outer(length, length)
    if kernel == "tanimoto":
        length = np.diag(inner)
        union = length[:, None] + length[None, :] - inner
        return np.asarray(np.where(union > 0, inner / np.where(union > 0, union, 1.0), 1.0))
    differences = x[:, None, :] - x[None, :, :]
    if kernel == "laplacian":
        return np.asarray(np.exp(-float(gamma or 0.0) * np.abs(differences).sum(axis=2)))
    return np.asarray(np.exp(-float(gamma or 0.0) * (differences**2).sum(axis=2)))


def width(x: Floats, rule: str, kernel: str) -> float:
    """The width that a rule gives."""
    if rule == "scale" and kernel == "laplacian":
        return 1.0 / float(x.std(axis=0).sum())
    if rule == "scale":
        return 1.0 / float(x.var(axis=0).sum())
    if rule == "1/d":
        return 1.0 / x.shape[1]
    if rule == "median":
        apart = np.abs(x[:, None, :] - x[None, :, :]) ** (1 if kernel == "laplacian" else 2)
        return 1.0 / float(np.median(apart.sum(axis=2)[np.triu_indices(len(x), 1)]))
    return float(rule)


def scatter(K: Floats, rows: NDArray[Any]) -> float:
    """Sum of squared distances to the mean: tr K - sum(K)/n of those rows."""
    block = K[np.ix_(rows, rows)]
    return float(np.trace(block) - block.sum() / len(rows))


def psi(K: Floats, parts: Sequence[NDArray[Any]]) -> float:
    """What k-means minimises: the scatter within parts."""
    return sum(scatter(K, rows) for rows in parts)


def mmd_squared(K: Floats, one: NDArray[Any], other: NDArray[Any]) -> float:
    """The squared distance of two means: mean of K within each, less twice the mean between."""
    between = K[np.ix_(one, other)].mean()
    return float(K[np.ix_(one, one)].mean() + K[np.ix_(other, other)].mean() - 2.0 * between)


def all_labelings(n: int, k: int) -> NDArray[np.int8]:
    """Every way to give n rows one of k parts, one per line; `k ** n` lines."""
    if k == 2:
        numbers = np.arange(2**n, dtype=np.int64)
        return ((numbers[:, None] >> np.arange(n)) & 1).astype(np.int8)
    return np.array(list(product(range(k), repeat=n)), dtype=np.int8)


def counts_of(labelings: NDArray[np.int8], cells: NDArray[Any], part: int) -> NDArray[np.int64]:
    """How many rows of every cell are in a part: (labelings, cells)."""
    member = (labelings == part).astype(np.int64)
    return member @ (cells[:, None] == np.arange(int(cells.max()) + 1)[None, :]).astype(np.int64)


def psi_of_all(K: Floats, labelings: NDArray[np.int8], k: int) -> Floats:
    """Psi of every labeling, infinite where a part is empty."""
    total = np.zeros(len(labelings))
    diagonal = np.diag(K)
    for part in range(k):
        member = (labelings == part).astype(np.float64)
        sizes = member.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            within = member @ diagonal - ((member @ K) * member).sum(axis=1) / sizes
        total += np.where(sizes > 0, within, np.inf)
    return total
