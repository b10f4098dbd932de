from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.certificate import FixedPoint, certify_by_cbc, certify_by_threshold
from clustersplit_cli.core.constraints.cells import joint_cells
from clustersplit_cli.core.constraints.quotas import split_quotas
from clustersplit_cli.core.geometry.dense import dense_geometry
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import prepare
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.lloyd import descend
from clustersplit_cli.core.search.problem import Members, Problem, SplitMeasures, evaluate
from tests.core.builders import split_problem

Certifier = Callable[..., FixedPoint]
BOTH = pytest.mark.parametrize("certify", [certify_by_cbc, certify_by_threshold])


def fixed_point(problem: Problem, rng: np.random.Generator) -> Members:
    limits = problem.constraints
    start = np.zeros(limits.n, dtype=bool)
    for cell, quota in enumerate(limits.target):
        rows = limits.cells.order[limits.cells.offsets[cell] : limits.cells.offsets[cell + 1]]
        start[rng.permutation(rows)[:quota]] = True
    return descend(problem, start[:, None], Selection(limits), max_iter=200, dtype=np.float64).members[:, 0]


def check(certify: Certifier, problem: Problem, members: Members) -> tuple[FixedPoint, SplitMeasures]:
    measured = evaluate(problem, members)
    return certify(measured, members, problem.constraints), measured


@BOTH
@pytest.mark.parametrize("tolerance", ["0", "0.5"])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_a_fixed_point_is_certified_and_its_objective_is_psi(
    certify: Certifier, tolerance: str, kernel: str, workers: Workers
) -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 3, 80)
    problem = split_problem(
        rng.normal(size=(80, 3)), kernel, workers, codes=codes, h="0.3", tolerance=tolerance
    )
    found, measured = check(certify, problem, fixed_point(problem, rng))
    assert found.status == "optimal" and found.integral
    assert found.objective == pytest.approx(measured.psi, rel=1e-9)
    assert abs(found.gap) <= 1e-9
    assert (found.backend, found.n_lps) == (("cbc", 2) if certify is certify_by_cbc else ("threshold", 0))


@BOTH
def test_a_worsened_split_is_not_a_fixed_point(certify: Certifier, workers: Workers) -> None:
    rng = np.random.default_rng(2)
    problem = split_problem(rng.normal(size=(60, 3)), "rbf", workers, codes=rng.integers(0, 2, 60), h="0.3")
    members = fixed_point(problem, rng)
    difference = evaluate(problem, members).difference
    codes = problem.constraints.cells.codes
    # The cheapest validation row changes places with the dearest training row of its cell.
    out = int(np.flatnonzero(members)[difference[members].argmin()])
    rivals = np.flatnonzero(~members & (codes == codes[out]))
    into = int(rivals[difference[rivals].argmax()])
    worse = members.copy()
    worse[[out, into]] = worse[[into, out]]
    found, measured = check(certify, problem, worse)
    assert found.status == "not a fixed point"
    assert found.gap > 1e-3
    assert found.objective < measured.psi


@BOTH
def test_a_split_that_only_the_other_orientation_betters_is_not_a_fixed_point(
    certify: Certifier, workers: Workers
) -> None:
    # On a line with h = 1/2, one side is the centre and one the wings: swapping roles costs less nowhere,
    # but with h = 1/4 of rows 0, 1, 2, 13 the lone row 0 is beaten by the lone row 13.
    X = np.array([[0.0], [11.0], [12.0], [13.0]])
    problem = split_problem(X, "linear", workers, codes=np.zeros(4, dtype=np.int64), h="0.25")
    found, _ = check(certify, problem, np.array([True, False, False, False]))
    assert found.status == "optimal"
    middle = np.array([False, False, False, True])
    found, measured = check(certify, problem, middle)
    # Kept, the dearest way to lose row 3 is none; turned, rows 1 and 2 join it and row 0 is left alone.
    kept = measured.training_cost + measured.difference[3]
    assert kept == pytest.approx(measured.psi)
    assert found.objective < kept
    assert found.status == "not a fixed point"


@BOTH
def test_rounding_is_no_gap_where_all_costs_vanish(certify: Certifier, workers: Workers) -> None:
    """A kernel that is constant but for rounding: every split is a fixed point."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(20, 200))
        X = rng.normal(size=(n, 4))
        prepared = prepare(Features(X), "rbf", (1e-20, 1e-17, 1e-16, 1e-15)[seed % 4], 3, workers, rng)
        limits = split_quotas(joint_cells({}, n), Fraction("0.3")).validation
        problem = Problem(dense_geometry(prepared.features, prepared.kernel, workers), limits)
        found, _ = check(certify, problem, fixed_point(problem, rng))
        assert found.status == "optimal", found
        assert abs(found.gap) <= 1e-6


@BOTH
def test_heaps_of_equal_rows_are_certified_with_an_objective_of_zero(
    certify: Certifier, workers: Workers
) -> None:
    rng = np.random.default_rng(3)
    side = rng.permutation(np.repeat([0, 1], [20, 40]))
    problem = split_problem(
        rng.normal(size=(2, 5))[side], "rbf", workers, codes=np.zeros(60, dtype=np.int64), h="0.333"
    )
    found, measured = check(certify, problem, side == 0)
    assert measured.psi == pytest.approx(0, abs=1e-12) and found.objective == pytest.approx(0, abs=1e-12)
    assert found.status == "optimal" and abs(found.gap) <= 1e-6
