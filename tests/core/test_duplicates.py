from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersplit_cli.core.duplicates import lowest_rows_first, row_identities
from clustersplit_cli.core.parallel import Workers, pool


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_equal_rows_and_only_equal_rows_share_an_identity(dtype: type, workers: Workers) -> None:
    rng = np.random.default_rng(0)
    distinct = rng.normal(size=(40, 3)).astype(dtype)
    which = rng.integers(0, 40, 3000)
    identity = row_identities(distinct[which], workers)
    pairs = {(int(a), int(b)) for a, b in zip(which, identity, strict=True)}
    assert len(pairs) == len(set(which.tolist())) == len(set(identity.tolist()))


def test_zeros_of_either_sign_are_equal(workers: Workers) -> None:
    raw = np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, -1.0]])
    first, second, third = row_identities(raw, workers).tolist()
    assert first == second != third


def test_permuted_entries_are_not_equal(workers: Workers) -> None:
    raw = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [2.0, 1.0, 3.0]], dtype=np.float32)
    assert len(set(row_identities(raw, workers).tolist())) == 3


def test_the_lowest_of_equal_rows_of_a_cell_go_to_validation(workers: Workers) -> None:
    raw = np.array([[1.0], [1.0], [2.0], [1.0], [2.0], [1.0]])
    codes = np.array([0, 0, 0, 1, 0, 1])
    members = np.array([False, True, False, False, True, True])
    # One place each for value 1 of cell 0 (rows 0, 1), value 2 of cell 0 (2, 4) and value 1 of cell 1 (3, 5).
    result = lowest_rows_first(members, raw, codes, workers)
    assert np.flatnonzero(result).tolist() == [0, 2, 3]


@given(st.integers(0, 10**6), st.integers(2, 80), st.integers(1, 6), st.integers(1, 3))
def test_counts_of_every_kind_of_row_stay_as_they_were(seed: int, n: int, kinds: int, cells: int) -> None:
    rng = np.random.default_rng(seed)
    which, codes = rng.integers(0, kinds, n), rng.integers(0, cells, n)
    raw = rng.normal(size=(kinds, 2))[which]
    members = rng.random(n) < 0.4
    with pool(1) as workers:
        result = lowest_rows_first(members, raw, codes, workers)
        assert np.array_equal(lowest_rows_first(result, raw, codes, workers), result)
    for kind in range(kinds):
        for cell in range(cells):
            rows = np.flatnonzero((which == kind) & (codes == cell))
            assert result[rows].sum() == members[rows].sum()
            assert (np.diff(result[rows].astype(int)) <= 0).all()  # validation first, then training


@given(st.integers(0, 10**6), st.integers(2, 80), st.integers(1, 6), st.integers(1, 3), st.booleans())
def test_costs_narrow_the_rows_down_and_change_nothing(
    seed: int, n: int, kinds: int, cells: int, at_rest: bool
) -> None:
    rng = np.random.default_rng(seed)
    which, codes = rng.integers(0, kinds, n), rng.integers(0, cells, n)
    raw, cost_of = rng.normal(size=(kinds, 2))[which], rng.normal(size=kinds)
    costs = cost_of[which] + 1e-9 * rng.normal(size=n)  # equal rows cost the same but for rounding
    members = costs < rng.normal() if at_rest else rng.random(n) < 0.4
    with pool(1) as workers:
        plain = lowest_rows_first(members, raw, codes, workers)
        assert np.array_equal(lowest_rows_first(members, raw, codes, workers, costs), plain)


def test_rows_away_from_the_other_side_are_not_looked_at(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []

    def counted(raw: np.ndarray, workers: Workers) -> np.ndarray:
        looked.append(len(raw))
        return row_identities(raw, workers)

    monkeypatch.setattr("clustersplit_cli.core.duplicates.row_identities", counted)
    costs = np.linspace(-1.0, 1.0, 4000)
    raw = costs[:, None].round(4)
    lowest_rows_first(costs < 0, raw, np.zeros(4000, dtype=np.int64), workers, costs)
    assert looked and looked[0] < 40
