"""Units dealt out to several parts: bounds, whole units, and no exchange left that helps."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersplit_cli.core.constraints.cells import Cells
from clustersplit_cli.core.constraints.groups import GroupParts, form_parts
from clustersplit_cli.core.constraints.quotas import Quotas, fold_quotas, part_quotas
from clustersplit_cli.core.constraints.tolerance import smallest_tolerance
from clustersplit_cli.core.effort import EFFORTS
from clustersplit_cli.core.geometry.dense import DenseGeometry
from clustersplit_cli.core.geometry.symmetric import SymmetricMatrix
from clustersplit_cli.core.parallel import pool
from clustersplit_cli.core.search.groups import GroupPartsSearch
from clustersplit_cli.errors import InfeasibleError


def cells_of(codes: Any) -> Cells:
    codes = np.unique(np.asarray(codes), return_inverse=True)[1].reshape(-1).astype(np.int64)
    sizes = np.bincount(codes)
    return Cells(codes, tuple({"label": code} for code in range(len(sizes))), sizes)


def as_units(values: Any) -> np.ndarray:
    return np.unique(np.asarray(values), return_inverse=True)[1].reshape(-1).astype(np.int64)


def every_choice(n_units: int, k: int) -> np.ndarray:
    return np.array(list(product(range(k), repeat=n_units)))


def needed(quotas: Quotas, table: np.ndarray, labels: np.ndarray) -> Fraction:
    worst = Fraction(0)
    for cell, size in enumerate(quotas.cells.sizes.tolist()):
        for part, share in enumerate(quotas.shares):
            count = int(table[labels == part, cell].sum())
            if abs(count - share * size) >= 1:
                worst = max(worst, smallest_tolerance(size, share, count))
    return worst


def psi(K: np.ndarray, labels: np.ndarray) -> float:
    parts = [np.flatnonzero(labels == part) for part in np.unique(labels)]
    return float(np.trace(K) - sum(K[np.ix_(rows, rows)].sum() / len(rows) for rows in parts))


def search(K: np.ndarray, parts: GroupParts, seed: int = 0) -> Any:
    with pool(1) as workers:
        geometry = DenseGeometry(SymmetricMatrix.of(K), K.diagonal().copy(), workers)
        return GroupPartsSearch(
            geometry,
            parts,
            restarts=6,
            max_iter=50,
            effort=EFFORTS["normal"],
            rng=np.random.default_rng(seed),
        ).solve()


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_assigning_to_parts_keeps_units_whole_and_states_the_tolerance_it_needs(data: Any) -> None:
    n = data.draw(st.integers(8, 40))
    units = as_units(data.draw(st.lists(st.integers(0, 12), min_size=n, max_size=n)))
    codes = data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    k = data.draw(st.integers(2, 3))
    quotas = fold_quotas(cells_of(codes), k)
    if int(units.max()) + 1 < k:
        with pytest.raises(InfeasibleError, match="cannot make"):
            form_parts(quotas, units, None)
        return
    found = form_parts(quotas, units, None)
    counts = found.counts(found.first)
    assert (counts.sum(axis=0) > 0).all()
    assert ((counts >= found.quotas.lower) & (counts <= found.quotas.upper)).all()
    assert found.tolerance == needed(quotas, found.table, found.first)
    drawn = found.random(np.random.default_rng(1))
    totals = found.quotas.counts(drawn)
    assert ((totals >= found.quotas.lower) & (totals <= found.quotas.upper)).all()
    for unit in range(int(units.max()) + 1):
        assert len(set(drawn[units == unit].tolist())) == 1


def test_no_part_is_empty_where_there_is_a_unit_for_each() -> None:
    units = as_units([0] * 21 + [1, 2])
    found = form_parts(fold_quotas(cells_of([0] * 22 + [1]), 3), units, None)
    assert sorted(found.first.tolist()) == [0, 1, 2]


@pytest.mark.parametrize("seed", range(6))
def test_the_tolerance_is_the_smallest_of_all_on_small_problems(seed: int) -> None:
    rng = np.random.default_rng(seed)
    units = np.repeat(np.arange(8), rng.integers(1, 6, 8))
    quotas = fold_quotas(cells_of(rng.integers(0, 2, len(units))), 2)
    found = form_parts(quotas, units, None)
    smallest = min(
        needed(quotas, found.table, labels) for labels in every_choice(8, 2) if len(set(labels.tolist())) == 2
    )
    assert found.tolerance == smallest


@pytest.mark.parametrize("seed", range(12))
def test_no_choice_within_the_smallest_tolerances_has_sizes_nearer_to_the_shares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k = 2 + seed % 2
    units = np.repeat(np.arange(9), rng.integers(1, 12, 9))
    n, cells = len(units), cells_of(rng.integers(0, 3, len(units)))
    shares = [("train", Fraction(7, 10)), ("val", Fraction(3, 10))]
    pins = np.full(n, -1, np.int64)
    pins[units == 0] = seed % 3 - 1
    quotas = (
        fold_quotas(cells, k)
        if seed < 6
        else part_quotas(cells, shares, [Fraction(0)] * len(cells.sizes), pins)
    )
    found = form_parts(quotas, units, None)
    goals = [share * n for share in found.quotas.shares]

    def off(labels: np.ndarray) -> Fraction:
        sizes = found.counts(labels).sum(axis=0).tolist()
        return max(abs(size - goal) for size, goal in zip(sizes, goals, strict=True))

    def is_allowed(labels: np.ndarray) -> bool:
        counts = found.counts(labels)
        within = ((counts >= found.quotas.lower) & (counts <= found.quotas.upper)).all()
        kept = ((found.pinned < 0) | (found.pinned == labels)).all()
        return bool(within and kept and len(set(labels.tolist())) == found.quotas.k)

    nearest = min(off(labels) for labels in every_choice(9, found.quotas.k) if is_allowed(labels))
    assert is_allowed(found.first) and off(found.first) == nearest
    for stream in range(3):
        drawn = found.random(np.random.default_rng(stream))
        assert off(drawn[np.unique(units, return_index=True)[1]]) == nearest
    rows = rng.normal(size=(n, 2))
    best = search(np.exp(-((rows[:, None] - rows[None]) ** 2).sum(axis=2)), found)
    assert off(best.labels[np.unique(units, return_index=True)[1]]) == nearest


@pytest.mark.parametrize("seed", range(5))
def test_the_search_finds_the_best_of_all_choices_on_small_problems(seed: int) -> None:
    rng = np.random.default_rng(seed)
    units = np.repeat(np.arange(7), rng.integers(1, 4, 7))
    rows = rng.normal(size=(len(units), 2)) + 2 * rng.normal(size=(7, 2))[units]
    K = np.exp(-0.3 * ((rows[:, None] - rows[None]) ** 2).sum(axis=2))
    quotas = fold_quotas(cells_of(np.zeros(len(units))), 3)
    parts = form_parts(quotas, units, Fraction(1, 2))
    solution = search(K, parts)
    choices = [
        labels
        for labels in every_choice(7, 3)
        if ((c := parts.counts(labels)) >= parts.quotas.lower).all() and (c <= parts.quotas.upper).all()
    ]
    assert psi(K, solution.labels) == pytest.approx(min(psi(K, labels[units]) for labels in choices))


def test_psi_falls_along_every_start_and_ends_where_it_is_measured() -> None:
    rng = np.random.default_rng(3)
    units = as_units(rng.integers(0, 60, 200))
    codes = rng.integers(0, 3, 200)
    rows = rng.normal(size=(200, 3))
    K = np.exp(-0.2 * ((rows[:, None] - rows[None]) ** 2).sum(axis=2))
    parts = form_parts(fold_quotas(cells_of(codes), 4), units, None)
    solution = search(K, parts)
    assert solution.steps[-1].psi == pytest.approx(psi(K, solution.labels))
    assert solution.runs[solution.winner].psi == min(run.psi for run in solution.runs)
    for run in solution.runs:
        assert (np.diff(run.trace) <= 1e-9).all()
        assert run.trace[-1] == pytest.approx(run.psi)
    labels = np.empty(int(units.max()) + 1, dtype=np.int64)
    labels[units] = solution.labels
    counts = parts.counts(labels)
    before = psi(K, solution.labels)
    for u, v in product(range(len(labels)), repeat=2):
        a, b = labels[u], labels[v]
        if a != b and parts.may(counts, a, b, u, v):
            other = labels.copy()
            other[u], other[v] = b, a
            assert psi(K, other[units]) >= before - 1e-9


def test_a_tolerance_that_none_meet_is_refused_with_one_that_would_do() -> None:
    units = np.repeat([0, 1], [7, 3])
    quotas = fold_quotas(cells_of(np.zeros(10)), 2)
    with pytest.raises(InfeasibleError, match=r"within --tolerance 0\.1 of its share") as caught:
        form_parts(quotas, units, Fraction(1, 10))
    assert caught.value.hint is not None and "--tolerance 0.300001 " in caught.value.hint
    assert form_parts(quotas, units, Fraction(31, 100)).tolerance == Fraction(31, 100)
    with pytest.raises(InfeasibleError, match="2 units that stay together cannot make 3 parts"):
        form_parts(fold_quotas(cells_of(np.zeros(10)), 3), units, None)


def test_a_unit_goes_where_its_rows_are_forced() -> None:
    units = np.repeat(np.arange(6), 2)
    shares = [("train", Fraction(1, 2)), ("val", Fraction(1, 2))]
    pins = np.full(12, -1)
    pins[[0, 3]] = [1, 0]
    quotas = part_quotas(cells_of(np.zeros(12)), shares, [Fraction(0)], pins)
    found = form_parts(quotas, units, None)
    assert (found.first[0], found.first[1], found.tolerance) == (1, 0, 0)
    K = np.exp(-((np.arange(12.0)[:, None] - np.arange(12.0)) ** 2))
    assert search(K, found).labels[:4].tolist() == [1, 1, 0, 0]
    pins[1] = 0
    with pytest.raises(InfeasibleError, match="must stay together with rows that are forced"):
        form_parts(part_quotas(cells_of(np.zeros(12)), shares, [Fraction(0)], pins), units, None)
