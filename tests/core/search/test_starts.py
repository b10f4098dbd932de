from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clustersplit_cli.core.constraints.cells import joint_cells
from clustersplit_cli.core.constraints.quotas import split_quotas
from clustersplit_cli.core.search.starts import crossed_splits


@given(st.integers(0, 10_000), st.integers(2, 6), st.sampled_from([1e-30, 1.0, 1e30]))
def test_a_crossed_split_meets_the_targets_and_keeps_what_its_parents_agree_on(
    seed: int, k: int, size: float
) -> None:
    rng = np.random.default_rng(seed)
    codes = np.sort(np.concatenate([np.arange(3), rng.integers(3, size=57)]))
    limits = split_quotas(joint_cells({"cell": (codes, (0, 1, 2))}, 60), Fraction("0.3")).validation
    witnesses = rng.normal(size=(60, k)).astype(np.float32)
    # Rows that every parent has far on one side.
    certain = np.unique(codes, return_index=True)[1]
    witnesses[certain] += 10
    splits, better = crossed_splits(limits, witnesses * np.float32(size), 12, rng)
    assert splits.shape == (60, 12)
    for cell in range(3):
        assert (splits[codes == cell].sum(axis=0) == limits.target[cell]).all()
    wanted = limits.target[codes[certain]] > 0
    assert splits[certain[wanted]].all()
    assert ((better >= 0) & (better < k - 1)).all()  # the last is never the better one
