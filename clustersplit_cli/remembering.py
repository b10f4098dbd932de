"""Searches made lately: comparing models on the same rows should search once."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np

from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.several import SeveralSplits

KEPT = 16
_memory: OrderedDict[str, SeveralSplits] = OrderedDict()
_lock = Lock()


def remembered(
    dataset: Dataset, options: CheckedOptions, kind: str, count: int, find: Callable[[], SeveralSplits]
) -> SeveralSplits:
    """Search with `find`, or return what the same search found lately."""
    key = _digest(dataset, options, kind, count)
    with _lock:
        if key in _memory:
            _memory.move_to_end(key)
            return _memory[key]
    found = find()
    with _lock:
        _memory[key] = found
        while len(_memory) > KEPT:
            _memory.popitem(last=False)
    return found


def forget() -> None:
    """Forget all searches."""
    with _lock:
        _memory.clear()


def _digest(dataset: Dataset, options: CheckedOptions, kind: str, count: int) -> str:
    """Tell datasets and options apart by their content."""
    features: Any = dataset.features
    arrays = (
        [features] if isinstance(features, np.ndarray) else [features.data, features.indices, features.indptr]
    )
    arrays += [dataset.rows, *(column.codes for column in dataset.categories.values())]
    arrays += [array for array in (dataset.units, dataset.pinned) if array is not None]
    words = [(word, column.values) for word, column in dataset.categories.items()]
    said = (options, kind, count, features.shape, words, dataset.families, dataset.together)
    digest = hashlib.blake2b(repr(said).encode())
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()
