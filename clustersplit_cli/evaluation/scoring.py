"""Class-balanced accuracy, domain by domain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]


def balanced_accuracy(
    predicted: Codes, labels: Codes, weights: NDArray[np.float64] | None = None
) -> float | None:
    """Mean over the classes that occur of the share of their rows predicted right; None without rows.

    >>> balanced_accuracy(np.array([0, 0, 0, 0]), np.array([0, 0, 0, 1]))
    0.5
    """
    if not len(labels):
        return None
    every = np.ones(len(labels)) if weights is None else weights
    total = np.bincount(labels, every)
    right = np.bincount(labels, every * (predicted == labels), minlength=len(total))
    there = total > 0
    return float((right[there] / total[there]).mean())


def by_domain(
    predicted: Codes,
    labels: Codes,
    domains: Codes,
    names: tuple[str, ...],
    weights: NDArray[np.float64] | None = None,
) -> dict[str, float]:
    """Class-balanced accuracy in every domain that has rows."""
    found = {}
    for code in np.unique(domains):
        inside = domains == code
        score = balanced_accuracy(
            predicted[inside], labels[inside], None if weights is None else weights[inside]
        )
        if score is not None:
            found[names[code]] = score
    return found
