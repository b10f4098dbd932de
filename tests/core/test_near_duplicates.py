"""Near-duplicates against all pairs at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from clustersplit_cli.core import near_duplicates
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.near_duplicates import Similarities, near_across, near_units
from clustersplit_cli.core.parallel import pool
from clustersplit_cli.errors import UsageError
from clustersplit_cli.similarity import Nearness


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_duplicates, "TILE", 8)


def cosines(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    lengths = np.linalg.norm(rows, axis=1)
    unit = rows / np.where(lengths > 0, lengths, 1)[:, None]
    found = unit @ unit.T
    found[np.ix_(lengths == 0, lengths == 0)] = 1
    return np.asarray(found)


def chains(similar: np.ndarray[Any, Any]) -> list[frozenset[int]]:
    """Follow similar rows from every row."""
    left, found = set(range(len(similar))), []
    while left:
        chain, new = set(), {min(left)}
        while new:
            chain |= new
            new = {int(row) for other in new for row in np.flatnonzero(similar[other])} - chain
        left -= chain
        found.append(frozenset(chain))
    return found


def some_rows(seed: int, n: int, d: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d))
    copied = rng.random(n) < 0.4
    rows[copied] = rows[rng.integers(n, size=n)][copied] + 0.05 * rng.normal(size=(int(copied.sum()), d))
    rows[rng.random(n) < 0.1] = 0
    return rows


@given(seed=st.integers(0, 10**6), n=st.integers(1, 60), least=st.sampled_from([0.5, 0.9, 0.99, 1.0]))
@pytest.mark.parametrize("form", ["float64", "float32", "sparse"])
def test_units_are_the_chains_of_similar_rows(form: str, seed: int, n: int, least: float) -> None:
    rows = some_rows(seed, n, 4)
    raw: Any = scipy.sparse.csr_array(rows) if form == "sparse" else rows.astype(form)
    similar = cosines(rows)
    if (np.abs(similar - least) < 2e-6).any() and least < 1:
        return
    with pool(2) as workers:
        units = near_units(Similarities.cosines(Features(raw), workers), least, workers)
    found = [frozenset(np.flatnonzero(units == unit).tolist()) for unit in range(units.max() + 1)]
    assert found == chains(similar >= least - 1e-6)


@given(seed=st.integers(0, 10**6), n=st.integers(2, 60))
def test_rows_with_a_like_row_in_another_part_are_those_of_all_pairs(seed: int, n: int) -> None:
    rows = some_rows(seed, n, 4)
    parts = np.random.default_rng(seed).integers(-1, 3, size=n)
    similar = cosines(rows)
    if (np.abs(similar - 0.95) < 1e-9).any():
        return
    across = (parts[:, None] != parts[None]) & (parts[:, None] >= 0) & (parts[None] >= 0)
    with pool(2) as workers:
        found = near_across(Similarities.cosines(Features(rows), workers), 0.95, parts, workers)
    assert found.rows.tolist() == np.flatnonzero((across & (similar >= 0.95)).any(axis=1)).tolist()
    most = np.where(across, similar, -1).max()
    if most >= 0.95:
        assert found.closest is not None
        first, second, value = found.closest
        assert value == pytest.approx(most) and parts[first] != parts[second]
        assert similar[first, second] == pytest.approx(most)
    else:
        assert found.closest is None


def test_a_long_chain_is_one_unit_whatever_tiles_it_crosses() -> None:
    angles = np.random.default_rng(0).permutation(np.linspace(0, 3, 200))
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    with pool(2) as workers:
        similar = Similarities.cosines(Features(rows), workers)
        assert near_units(similar, np.cos(3.01 / 199), workers).max() == 0
        assert near_units(similar, np.cos(2.99 / 199), workers).max() == 199


@pytest.mark.parametrize("text", ["0", "1.1", "-0.5", "much", "kernel:", "nan", ""])
def test_what_is_no_similarity_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no similarity above 0 and up to 1"):
        Nearness.of_text(text, "--near-duplicates")
    with pytest.raises(UsageError, match="names no similarity"):
        Nearness.of_together(f"near-duplicates={text}")


def test_other_words_keep_rows_together_by_a_column() -> None:
    assert Nearness.of_together("patient") is None
    assert Nearness.of_together(None) is None
    assert Nearness.of_together("near-duplicates=0.9") == Nearness(0.9)
