"""Measuring by definition: what it needs beside the rows does not grow with them."""

from __future__ import annotations

import tracemalloc

import numpy as np

from clustersplit_cli.core.mmd.definition import by_definition
from clustersplit_cli.core.parallel import pool


def test_vectors_of_landmarks_are_made_of_some_rows_at_a_time() -> None:
    """All of them would take 64 MB; they were held, and a million rows took 20 GB."""
    n, q = 40_000, 200
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(n, 3)).astype(np.float32), rng.integers(0, 2, n)
    with pool(1) as workers:
        tracemalloc.start()
        try:
            found = by_definition(
                rows,
                labels,
                kernel="rbf",
                gamma=0.3,
                degree=None,
                standardize="none",
                centred=False,
                landmarks=np.arange(q),
                workers=workers,
            )
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 16e6
    assert 0 < found.mmd_squared < found.ssq_total
