"""Partitions: the assignment step against all partitions, the search, and what is said of its end."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from clustersplit_cli.core.certificate import certify_partition
from clustersplit_cli.core.constraints.cells import Cells, Labels
from clustersplit_cli.core.constraints.quotas import Quotas, fold_quotas, parse_parts, part_quotas
from clustersplit_cli.core.effort import EFFORTS
from clustersplit_cli.core.geometry.dense import DenseGeometry, dense_geometry
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import Kernel
from clustersplit_cli.core.geometry.low_rank import make_low_rank
from clustersplit_cli.core.geometry.nystrom import linear_geometry
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.exhaustive import all_choices
from clustersplit_cli.core.search.partition import (
    PartAssigner,
    evaluate_partition,
    measure,
    remeasure,
    without_empty_parts,
)
from clustersplit_cli.core.search.partition_search import PartitionSearch, draw_sample
from clustersplit_cli.core.search.swaps import polish_pairs, tournament
from clustersplit_cli.errors import InfeasibleError


def cells_of(codes: NDArray[np.int64]) -> Cells:
    found = np.unique(codes, return_inverse=True)[1].reshape(-1)
    return Cells(found, tuple({"label": code} for code in range(found.max() + 1)), np.bincount(found))


def kernel_of(x: NDArray[Any], workers: Workers) -> DenseGeometry:
    return dense_geometry(Features(x), Kernel("rbf", 1.0 / x.shape[1]), workers)


def all_partitions(quotas: Quotas) -> list[Labels]:
    """Every partition within the bounds."""
    found = [np.array(labels) for labels in product(range(quotas.k), repeat=quotas.n)]
    return [
        labels
        for labels in found
        if ((quotas.counts(labels) >= quotas.lower) & (quotas.counts(labels) <= quotas.upper)).all()
        and ((quotas.pinned < 0) | (quotas.pinned == labels)).all()
    ]


KINDS = {
    "three folds": (None, "0"),
    "unequal parts": ("train=0.6,val=0.3,test=0.1", "0"),
    "parts with room": ("train=0.5,val=0.3,test=0.2", "0.5"),
    "forced rows": ("train=0.5,val=0.5", "0"),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(4, 7))
def test_the_assignment_step_costs_what_the_best_of_all_partitions_costs(
    workers: Workers, kind: str, seed: int, n: int
) -> None:
    rng = np.random.default_rng(seed)
    cells = cells_of(rng.integers(0, 2, n))
    parts, tolerance = KINDS[kind]
    if parts is None:
        quotas = fold_quotas(cells, 3)
    else:
        pinned = np.full(n, -1)
        if kind == "forced rows":
            pinned[0] = 1
        try:
            each = [Fraction(tolerance)] * len(cells.sizes)
            quotas = part_quotas(cells, parse_parts(parts), each, pinned)
        except InfeasibleError as error:
            assert "gets no rows" in error.message or "room" in error.message
            return
    costs = rng.normal(size=(2, n, quotas.k))
    permuting = len(set(quotas.shares)) > 1 or bool((quotas.pinned >= 0).any())
    found = PartAssigner(quotas, workers, permuting).assign(costs)
    orders = list(permutations(range(quotas.k))) if permuting else [tuple(range(quotas.k))]
    for run in range(2):
        best = min(
            costs[run][np.arange(n), np.array(order)[labels]].sum()
            for labels in all_partitions(quotas)
            for order in orders
        )
        assert found.costs[run] == pytest.approx(best, abs=1e-9)
        counts = quotas.counts(found.labels[run])
        assert ((counts >= quotas.lower) & (counts <= quotas.upper)).all()


def test_above_three_parts_a_best_handing_out_of_centroids_is_tried(workers: Workers) -> None:
    """Shares that the present order serves badly: the large part far from most rows."""
    shares = "a=0.7,b=0.1,c=0.1,d=0.1"
    quotas = part_quotas(cells_of(np.zeros(20, int)), parse_parts(shares), [Fraction(0)])
    costs = np.full((20, 4), 1.0)
    costs[:14, 3] = 0.0  # most rows are close to the centroid that serves the last, small part
    assigner = PartAssigner(quotas, workers, True)
    assert assigner.assign(costs[None]).costs[0] == pytest.approx(6.0)
    assert assigner.assign_in_order(costs[None]).costs[0] == pytest.approx(18.0)


def test_measures_are_those_of_the_definition(workers: Workers) -> None:
    rng = np.random.default_rng(0)
    geometry = kernel_of(rng.normal(size=(30, 3)), workers)
    labels = rng.integers(0, 3, 30)
    found = evaluate_partition(geometry, labels, 3)
    K = geometry.matrix.rows(0, 30)
    for a in range(3):
        inside, outside = labels == a, labels != a
        rest = inside / inside.sum() - outside / outside.sum()
        assert found.rest_squared[a] == pytest.approx(rest @ K @ rest)
        for b in range(3):
            z = (labels == a) / (labels == a).sum() - (labels == b) / (labels == b).sum()
            assert found.pairs[a, b] == pytest.approx(z @ K @ z, abs=1e-12)
    scatter = sum(
        K[np.ix_(labels == a, labels == a)].diagonal().sum()
        - K[np.ix_(labels == a, labels == a)].sum() / (labels == a).sum()
        for a in range(3)
    )
    assert found.psi == pytest.approx(scatter)
    assert found.identity_residual < 1e-12


def test_with_two_parts_the_mean_is_their_own(workers: Workers) -> None:
    rng = np.random.default_rng(1)
    geometry = kernel_of(rng.normal(size=(20, 3)), workers)
    found = evaluate_partition(geometry, rng.permutation(np.repeat([0, 1], [14, 6])), 2)
    assert found.mmd_squared == pytest.approx(found.pairs[0, 1])


def test_exchanges_between_pairs_lower_psi_and_keep_all_counts(workers: Workers) -> None:
    rng = np.random.default_rng(2)
    geometry = kernel_of(rng.normal(size=(60, 3)), workers)
    quotas = fold_quotas(cells_of(rng.integers(0, 3, 60)), 3)
    labels = PartAssigner(quotas, workers, False).random(rng)
    before = float(measure(geometry, labels[:, None], 3, np.float64).psi[0])
    polished = polish_pairs(geometry, labels, quotas, np.float64)
    assert polished.changes > 0
    assert polished.psi < before
    np.testing.assert_array_equal(quotas.counts(polished.labels), quotas.counts(labels))
    again = evaluate_partition(geometry, polished.labels, 3)
    assert polished.psi == pytest.approx(again.psi)


@pytest.mark.parametrize("parts", [None, "train=0.6,val=0.25,test=0.15"])
@pytest.mark.parametrize("n", [120, 2300])
def test_a_search_ends_at_a_certified_fixed_point_with_a_falling_trace(
    workers: Workers, parts: str | None, n: int
) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, 4))
    x[: n // 2, 0] += 2.0
    geometry = kernel_of(x, workers)
    cells = cells_of(rng.integers(0, 4, n))
    quotas = (
        fold_quotas(cells, 4) if parts is None else part_quotas(cells, parse_parts(parts), [Fraction(0)] * 4)
    )
    assigner = PartAssigner(quotas, workers, parts is not None)
    found = PartitionSearch(
        geometry,
        make_low_rank(geometry, np.random.default_rng(0)),
        assigner,
        restarts=6,
        max_iter=100,
        effort=EFFORTS["normal"],
        rng=np.random.default_rng(0),
    ).solve()
    np.testing.assert_array_equal(quotas.counts(found.labels), quotas.target)
    psi = [step.psi for step in found.steps]
    assert all(later <= earlier for earlier, later in pairwise(psi))
    measured = evaluate_partition(geometry, found.labels, quotas.k)
    assert psi[-1] == pytest.approx(measured.psi)
    assert min(run.psi for run in found.runs) == pytest.approx(measured.psi)
    drawn = np.stack([assigner.random(stream) for stream in rng.spawn(10)], axis=1)
    assert measured.psi < measure(geometry, drawn, quotas.k, np.float64).psi.min()
    if n < 1000:
        certificate = certify_partition(measured, found.labels, assigner, by_cbc=True)
        assert (certificate.status, certificate.integral, certificate.n_lps) == ("optimal", True, 4)
        assert certificate.objective == pytest.approx(measured.psi)
        spoilt = found.labels.copy()
        first, second = (np.flatnonzero((cells.codes == 0) & (spoilt == part))[0] for part in (0, 1))
        spoilt[[first, second]] = spoilt[[second, first]]
        worse = evaluate_partition(geometry, spoilt, quotas.k)
        assert certify_partition(worse, spoilt, assigner, by_cbc=False).gap > 0


def test_the_best_partition_of_a_small_problem_is_found(workers: Workers) -> None:
    rng = np.random.default_rng(4)
    geometry = kernel_of(rng.normal(size=(9, 2)), workers)
    quotas = fold_quotas(cells_of(np.repeat([0, 1, 2], 3)), 3)
    best = min(
        float(measure(geometry, labels[:, None], 3, np.float64).psi[0]) for labels in all_partitions(quotas)
    )
    found = PartitionSearch(
        geometry,
        make_low_rank(geometry, np.random.default_rng(0)),
        PartAssigner(quotas, workers, False),
        restarts=20,
        max_iter=100,
        effort=EFFORTS["normal"],
        rng=np.random.default_rng(0),
    ).solve()
    assert found.steps[-1].psi == pytest.approx(best)


def test_cbc_takes_the_same_steps(workers: Workers) -> None:
    rng = np.random.default_rng(5)
    quotas = fold_quotas(cells_of(rng.integers(0, 2, 24)), 3)
    costs = rng.normal(size=(1, 24, 3))
    ours = PartAssigner(quotas, workers, False).assign(costs)
    theirs = PartAssigner(quotas, workers, False, "cbc").assign(costs)
    assert ours.costs == pytest.approx(theirs.costs)


@pytest.mark.parametrize("moves", [0, 1, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_known_of_an_earlier_partition_does_not_change_a_measurement(
    workers: Workers, moves: int, dtype: type
) -> None:
    rng = np.random.default_rng(6)
    geometry = kernel_of(rng.normal(size=(60, 3)).astype(np.float32), workers)
    before = rng.integers(0, 3, (60, 1))
    after = before.copy()
    after[rng.permutation(60)[:moves]] += 1
    after %= 3
    known = measure(geometry, before, 3, dtype)
    found, anew = remeasure(geometry, after, 3, dtype, (before, known)), measure(geometry, after, 3, dtype)
    np.testing.assert_allclose(found.sums, anew.sums, rtol=1e-5)
    np.testing.assert_allclose(found.inside, anew.inside, rtol=1e-5)
    np.testing.assert_array_equal(found.sizes, anew.sizes)
    assert found.psi[0] == pytest.approx(anew.psi[0], rel=1e-5 if dtype is np.float32 else 1e-12)


@pytest.mark.parametrize("moves", [1, 4])
def test_rows_that_move_are_added_to_the_sums_of_factors_too(workers: Workers, moves: int) -> None:
    rng = np.random.default_rng(6)
    geometry = linear_geometry(
        Features(rng.normal(size=(80, 3)).astype(np.float32)), Kernel("linear"), workers
    )
    before = rng.integers(0, 3, (80, 1))
    after = before.copy()
    after[rng.permutation(80)[:moves]] += 1
    after %= 3
    known = measure(geometry, before, 3, np.float64)
    found = remeasure(geometry, after, 3, np.float64, (before, known))
    anew = measure(geometry, after, 3, np.float64)
    np.testing.assert_allclose(found.sums, anew.sums, rtol=1e-5, atol=1e-5)
    assert found.psi[0] == pytest.approx(anew.psi[0], rel=1e-7)


@pytest.mark.parametrize("k", range(2, 8))
def test_a_tournament_pairs_every_two_parts_once_and_none_twice_in_a_round(k: int) -> None:
    rounds = tournament(k)
    pairs = [pair for played in rounds for pair in played]
    assert sorted(pairs) == [(a, b) for a in range(k) for b in range(a + 1, k)]
    assert all(len({part for pair in played for part in pair}) == 2 * len(played) for played in rounds)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 7), k=st.integers(2, 3))
def test_all_choices_of_units_are_those_within_the_bounds(seed: int, n: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 3, (n, 2))
    share = table.sum(axis=0)[:, None] // k
    lower, upper = np.maximum(share - rng.integers(0, 3, (2, k)), 0), share + rng.integers(0, 4, (2, k))
    fixed = np.where(rng.random(n) < 0.2, rng.integers(0, k, n), -1)
    wanted = set()
    for labels in product(range(k), repeat=n):
        counts = np.stack([table[np.array(labels) == part].sum(axis=0) for part in range(k)], axis=1)
        kept = ((fixed < 0) | (fixed == labels)).all()
        if kept and (counts >= lower).all() and (counts <= upper).all():
            wanted.add(labels)
    found = all_choices(table, lower, upper, fixed)
    assert found is not None
    assert found.shape[1] == len(wanted)
    assert {tuple(choice) for choice in found.T.tolist()} == wanted


def test_choices_that_are_too_many_are_not_listed() -> None:
    many = np.ones((200, 1), np.int64)
    half, free = np.array([[100, 100]]), np.full(200, -1)
    assert all_choices(many, half, half, free) is None
    few = np.array([[15, 15]])
    assert all_choices(many[:30], few, few, free[:30]) is None


def test_a_start_that_leaves_a_part_empty_is_given_a_row(workers: Workers) -> None:
    cells = cells_of(np.zeros(8, np.int64))
    quotas = part_quotas(cells, parse_parts("a=0.94,b=0.06"), [Fraction(1)])
    assert (quotas.target[0, 1], quotas.upper[0, 1]) == (0, 1)
    filled = without_empty_parts(quotas, np.zeros((8, 2), np.int64))
    assert (np.stack([quotas.counts(filled[:, run]) for run in range(2)])[:, 0, 1] == 1).all()
    x = np.random.default_rng(0).normal(size=(8, 2))
    geometry = kernel_of(x, workers)
    found = PartitionSearch(
        geometry,
        make_low_rank(geometry, np.random.default_rng(0)),
        PartAssigner(quotas, workers, permuting=True),
        restarts=5,
        max_iter=50,
        effort=EFFORTS["fast"],
        rng=np.random.default_rng(0),
    ).solve()
    assert np.isfinite([step.psi for step in found.steps]).all()
    assert all(np.isfinite(run.trace).all() for run in found.runs)


def test_many_rows_are_explored_on_a_sample_and_end_at_rest(workers: Workers) -> None:
    rng = np.random.default_rng(8)
    n = 17_000
    x = (rng.normal(size=(n, 3)) + 3.0 * rng.integers(0, 3, (n, 1))).astype(np.float32)
    geometry = linear_geometry(Features(x), Kernel("linear"), workers)
    quotas = fold_quotas(cells_of(rng.integers(0, 4, n)), 3)
    assigner = PartAssigner(quotas, workers, permuting=False)
    low_rank = make_low_rank(geometry, np.random.default_rng(0))
    sample = draw_sample(assigner, low_rank.factors(np.arange(n)), np.random.default_rng(0))
    assert sample is not None
    assert sample.assigner.quotas.n < n
    np.testing.assert_array_equal(
        sample.assigner.quotas.target.sum(axis=1), sample.assigner.quotas.cells.sizes
    )
    found = PartitionSearch(
        *(geometry, low_rank, assigner),
        **{"restarts": 5, "max_iter": 200, "effort": EFFORTS["normal"], "rng": np.random.default_rng(0)},
    ).solve()
    np.testing.assert_array_equal(quotas.counts(found.labels), quotas.target)
    measured = evaluate_partition(geometry, found.labels, 3)
    certificate = certify_partition(measured, found.labels, assigner, by_cbc=False)
    assert abs(certificate.gap) <= 1e-6
    # Rows are in three groups on a line, and folds can be as far apart as thirds of it.
    state = measure(geometry, assigner.random(rng)[:, None], 3, np.float64)
    assert measured.psi < 0.5 * state.psi[0]


def test_every_step_of_a_start_has_a_point_in_its_trace(workers: Workers) -> None:
    short = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        quotas = fold_quotas(cells_of(rng.integers(0, 11, 60)), 5)
        geometry = linear_geometry(Features(rng.normal(size=(60, 3))), Kernel("cosine"), workers)
        found = PartitionSearch(
            geometry,
            make_low_rank(geometry, np.random.default_rng(0)),
            PartAssigner(quotas, workers, False),
            restarts=2,
            max_iter=100,
            effort=EFFORTS["normal"],
            rng=rng,
        ).solve()
        short += sum(len(run.trace) < run.iterations + 1 for run in found.runs)
    assert short == 0
