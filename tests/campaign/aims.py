"""Splits made for target rows: what they measure, and the best of all splits for each aim, by definition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.campaign import oracle

AIMS = ("lookalike", "nearest", "shift", "worst", "severity")
OWN_MEASURE = AIMS[:3]
"""Aims under which a split is not the hardest, but best by a measure of its own."""
EXACT = "lookalike"
"""The aim whose optimum is promised; the others are as near as exchanges of two rows come."""


def value_of_all(
    joint: oracle.Floats, n: int, aim: str, labelings: NDArray[np.int8] | NDArray[np.int64]
) -> oracle.Floats:
    """What an aim measures of every labeling of the first n rows; the rest of `joint` is the target.

    Of lookalike the mean witness of validation minus that of training, the larger the better; of nearest
    MMD² of validation and target; of shift the squared distance of the shifts from training to validation and
    from all rows to the target.
    """
    val = (labelings == 1).astype(np.float64)
    m = val.sum(axis=1, keepdims=True)
    target = np.full((len(val), len(joint) - n), -1.0 / (len(joint) - n))
    if aim == EXACT:
        witness = joint[:n, n:].mean(axis=1) - joint[:n, :n].mean(axis=1)
        return np.asarray((val @ witness) / m[:, 0] - ((1.0 - val) @ witness) / (n - m[:, 0]))
    own = val / m if aim == "nearest" else val / m - (1.0 - val) / (n - m) + 1.0 / n
    weights = np.concatenate([own, target], axis=1)
    return np.asarray(((weights @ joint) * weights).sum(axis=1))


def wrong_distances(
    joint: oracle.Floats, labels: NDArray[np.int64], stated: dict[str, Any], close: float
) -> Iterator[tuple[str, str]]:
    """Where the MMDs of rows and target are not what the definition gives."""
    n = len(labels)
    target, size = np.arange(n, len(joint)), close * float(np.abs(joint).max())
    groups = {
        "mmd": np.arange(n),
        "mmd_train": np.flatnonzero(labels == 0),
        "mmd_val": np.flatnonzero(labels),
    }
    for key, rows in groups.items():
        square = oracle.mmd_squared(joint, rows, target)
        if abs(stated[key] ** 2 - max(square, 0.0)) > size:
            yield f"target.{key} is not what the definition gives", f"{stated[key]!r}, squared {square!r}"
    apart = oracle.mmd_squared(joint, groups["mmd_train"], groups["mmd_val"])
    farther = max(oracle.mmd_squared(joint, groups[side], target) for side in ("mmd_train", "mmd_val"))
    if abs(apart - farther) > size and stated["valid"] != (apart > farther):
        yield "valid is not what the definition gives", str(stated)


def wrong_weights(
    joint: oracle.Floats, labels: NDArray[np.int64], out: Path, stated: dict[str, Any], close: float
) -> Iterator[tuple[str, str]]:
    """Where the weights are no weights, or further from the target than rows without weights."""
    weights = np.load(out / "val_weights.npy", allow_pickle=False)
    n, val = len(labels), np.flatnonzero(labels)
    if weights.shape != val.shape or (weights < 0).any() or abs(weights.mean() - 1.0) > 1e-6:
        yield "these are no weights of mean 1", str(weights.tolist())
        return
    signed = np.concatenate([np.zeros(n), np.full(len(joint) - n, -1.0 / (len(joint) - n))])
    signed[val] = weights / len(val)
    square, size = float(signed @ joint @ signed), float(np.abs(joint).max())
    if abs(stated["weights"]["mmd"] ** 2 - max(square, 0.0)) > max(close, 1e-6) * size:
        yield "weights.mmd is not what the definition gives", f"{stated['weights']}, squared {square!r}"
    if square > oracle.mmd_squared(joint, val, np.arange(n, len(joint))) + 1e-4 * size:
        yield "weights lead away from the target", f"{stated['weights']}, squared {square!r}"


def wrong_certificate(
    values: Sequence[float], reached: float, aim: str, stated: dict[str, Any], close: float
) -> Iterator[tuple[str, str]]:
    """Where the certificate of an aim states another value, or a bound that some split surpasses."""
    found = stated["certificate"]
    if found is None:
        yield "no certificate of an aim", str(stated)
        return
    if abs(found["value"] - reached) > close:
        yield "the value of an aim is not what the definition gives", f"{found}, by definition {reached!r}"
    best = max(values) if aim == EXACT else min(values)
    if (found["bound"] < best - close) if aim == EXACT else (found["bound"] > best + close):
        yield "a split surpasses the bound of an aim", f"{found}, the best is {best!r}"
