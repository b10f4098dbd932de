"""The search finds what many random starts find, and goes on where they stop."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from sklearn.datasets import load_wine

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.constraints.cells import joint_cells
from clustersplit_cli.core.constraints.quotas import ValidationQuotas, split_quotas
from clustersplit_cli.core.geometry.low_rank import make_low_rank
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.exhaustive import best_of_all, count_splits, has_at_most
from clustersplit_cli.core.search.lloyd import descend, leap
from clustersplit_cli.core.search.problem import Members, Problem, evaluate, objectives
from clustersplit_cli.core.search.starts import random_splits, spectral_splits
from tests.core.builders import problem_of, solve


def clusters(n: int, d: int, seed: int, groups: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """Rows in overlapping groups, with three labels."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(groups, d)) * 2
    X = centres[rng.integers(groups, size=n)] + rng.normal(size=(n, d))
    return X.astype(np.float32), rng.integers(3, size=n)


def limits_of(labels: np.ndarray, holdout: str = "0.2", tolerance: str = "0") -> ValidationQuotas:
    table = joint_cells({"label": (labels, list(range(int(labels.max()) + 1)))}, len(labels))
    return split_quotas(table, Fraction(holdout), Fraction(tolerance)).validation


def best_of_random(problem: Problem, count: int) -> float:
    """The smallest Psi of plain Lloyd from random starts."""
    starts = random_splits(problem.constraints, np.random.default_rng(9).spawn(count))
    end = descend(problem, starts, Selection(problem.constraints), max_iter=100, dtype=np.float64)
    return float(objectives(problem, end.members).min())


LANDMARKS = np.sort(np.random.default_rng(1).choice(3000, 120, replace=False))
VARIANTS: dict[str, Callable[[Workers], Problem]] = {
    "dense": lambda w: problem_of(*_sized(2600), w),
    "small": lambda w: problem_of(*_sized(900), w),
    "linear": lambda w: problem_of(*_sized(3000), w, kernel="linear"),
    "nystrom": lambda w: problem_of(*_sized(3000), w, landmarks=LANDMARKS),
    "soft": lambda w: problem_of(*_sized(2600, tolerance="0.3"), w),
}


def _sized(n: int, tolerance: str = "0") -> tuple[np.ndarray, ValidationQuotas]:
    X, labels = clusters(n, 6, n)
    return X, limits_of(labels, tolerance=tolerance)


@pytest.mark.parametrize("variant", VARIANTS)
def test_default_effort_is_as_good_as_many_random_starts(variant: str, workers: Workers) -> None:
    problem = VARIANTS[variant](workers)
    target = best_of_random(problem, 60)
    for seed in range(3):
        found = solve(problem, workers, seed)
        reached = evaluate(problem, found.members)
        explained = problem.ssq_total - target
        assert problem.ssq_total - reached.psi >= 0.9998 * explained
        counts = problem.constraints.counts(found.members)
        assert (problem.constraints.lower <= counts).all() and (counts <= problem.constraints.upper).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_trace_falls_to_the_result_and_the_runs_are_all_there(variant: str, workers: Workers) -> None:
    problem = VARIANTS[variant](workers)
    found = solve(problem, workers)
    psi = [step.psi for step in found.steps]
    assert all(later <= earlier for earlier, later in pairwise(psi))
    assert psi[-1] == pytest.approx(evaluate(problem, found.members).psi, rel=1e-12)
    assert [step.iteration for step in found.steps] == list(range(len(psi)))
    assert found.steps[0].phase == "start"
    assert len(found.runs) == 10
    assert len({run.start for run in found.runs}) == 10
    assert min(run.psi for run in found.runs) == pytest.approx(psi[-1], rel=1e-9)
    assert found.runs[found.winner].psi == pytest.approx(psi[-1], rel=1e-12)


def scattered(n: int, kernel: str, workers: Workers) -> Problem:
    """Rows without any structure, where every start ends elsewhere."""
    rng = np.random.default_rng(n)
    X = (rng.random((n, 120)) < 0.05).astype(np.float32)
    return problem_of(X, limits_of(rng.integers(3, size=n)), workers, kernel, gamma=0.02)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_thorough_is_never_worse_than_normal(kernel: str, workers: Workers) -> None:
    problem = scattered(2400, kernel, workers)
    for seed in range(4):
        normal, thorough = (
            evaluate(problem, solve(problem, workers, seed, effort).members).psi
            for effort in ("normal", "thorough")
        )
        assert thorough <= normal * (1 + 1e-12)


def test_small_problems_end_at_the_same_split_whatever_the_seed(workers: Workers) -> None:
    """Three in ten starts agree on a split whose MMD is 1.3 % short of the best."""
    wine = load_wine()
    X = wine.data.astype(np.float32)
    gamma = 20.0 / float(X.var(axis=0).sum())
    problem = problem_of(X, limits_of(wine.target), workers, gamma=gamma)
    ends = [evaluate(problem, solve(problem, workers, seed).members).psi for seed in range(6)]
    assert ends == pytest.approx([min(ends)] * 6, rel=1e-9)
    assert min(ends) <= best_of_random(problem, 400) * (1 + 1e-9)


def test_the_result_is_a_fixed_point_that_no_swap_improves(workers: Workers) -> None:
    X, labels = clusters(60, 3, 5)
    problem = problem_of(X, limits_of(labels), workers)
    found = solve(problem, workers)
    assert descend(
        problem, found.members[:, None], Selection(problem.constraints), max_iter=9, dtype=np.float64
    ).iterations.tolist() == [0]
    best = evaluate(problem, found.members).psi
    val, train = np.flatnonzero(found.members), np.flatnonzero(~found.members)
    swapped: list[Members] = []
    for out in val:
        for into in train[labels[train] == labels[out]]:
            other = found.members.copy()
            other[[out, into]] = other[[into, out]]
            swapped.append(other)
    assert objectives(problem, np.stack(swapped, axis=1)).min() >= best - 1e-9 * problem.ssq_total


def test_polish_and_leaps_go_on_where_lloyd_stops_at_once(workers: Workers) -> None:
    """Wide raw features and gamma = 1: the kernel is nearly diagonal."""
    X, labels = clusters(2300, 10, 6)
    problem = problem_of(X, limits_of(labels), workers, gamma=1.0)
    starts = random_splits(problem.constraints, np.random.default_rng(0).spawn(20))
    assigner = Selection(problem.constraints)
    plain = descend(problem, starts, assigner, max_iter=100, dtype=np.float64)
    assert plain.iterations.max() <= 2
    leapt = leap(problem, plain, assigner, max_iter=100)
    assert (leapt.psi <= plain.psi).all() and (leapt.psi < plain.psi).any()
    found = evaluate(problem, solve(problem, workers).members)
    mmd_of_random = np.sqrt((problem.ssq_total - plain.psi.min()) * problem.n / (found.n_val * found.n_train))
    assert np.sqrt(found.mmd_squared) > 1.01 * mmd_of_random


@pytest.mark.parametrize("tolerance", ["0", "0.5"])
def test_enumeration_looks_at_every_feasible_split_once(tolerance: str, workers: Workers) -> None:
    rng = np.random.default_rng(7)
    X, labels = rng.normal(size=(9, 2)), np.array([0, 0, 0, 0, 1, 1, 1, 2, 2])
    limits = limits_of(labels, "0.4", tolerance)
    problem = problem_of(X, limits, workers)
    feasible = []
    for size in range(1, 9):
        for rows in combinations(range(9), size):
            members = np.zeros(9, dtype=bool)
            members[list(rows)] = True
            counts = limits.counts(members)
            if (limits.lower <= counts).all() and (counts <= limits.upper).all():
                feasible.append(members)
    empty_or_full = int(limits.lower.sum() == 0) + int(limits.upper.sum() == 9)
    assert count_splits(limits) == len(feasible) + empty_or_full
    best, psi = best_of_all(problem)
    assert psi == pytest.approx(objectives(problem, np.stack(feasible, axis=1)).min(), rel=1e-12)
    assert evaluate(problem, best).psi == pytest.approx(psi, rel=1e-12)


def test_spectral_starts_find_the_leading_direction(workers: Workers) -> None:
    """One long axis within every cell: the first start splits along it, the second the other way."""
    rng = np.random.default_rng(8)
    labels = np.repeat([0, 1], 100)
    X = np.stack([rng.normal(size=200) * 5, rng.normal(size=200)], axis=1) + labels[:, None] * 100.0
    limits = limits_of(labels)
    problem = problem_of(X, limits, workers, kernel="linear")
    factors = make_low_rank(problem.geometry, rng).factors(np.arange(200))
    first, second = spectral_splits(limits, factors, 2).T
    for label in (0, 1):
        along = X[labels == label, 0]
        ends = [set(np.argsort(along)[:20].tolist()), set(np.argsort(-along)[:20].tolist())]
        chosen = [set(np.flatnonzero(split[labels == label]).tolist()) for split in (first, second)]
        assert sorted(map(sorted, chosen)) == sorted(map(sorted, ends))


def test_large_problems_are_explored_on_a_sample(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clustersplit_cli.core.geometry.low_rank.SAMPLE_ROWS", 1000)
    X, labels = clusters(6000, 6, 11)
    problem = problem_of(X, limits_of(labels), workers, kernel="linear")
    found = solve(problem, workers)
    assert problem.ssq_total - evaluate(problem, found.members).psi >= 0.9998 * (
        problem.ssq_total - best_of_random(problem, 40)
    )


def test_the_same_seed_gives_the_same_split_and_another_seed_another_search(workers: Workers) -> None:
    X, labels = clusters(2500, 6, 12)
    problem = problem_of(X, limits_of(labels), workers)
    one, again, other = (solve(problem, workers, seed) for seed in (1, 1, 2))
    assert (one.members == again.members).all()
    assert [run.psi for run in one.runs] == [run.psi for run in again.runs]
    assert [run.psi for run in one.runs] != [run.psi for run in other.runs]


@pytest.mark.parametrize("restarts", [1, 2, 5, 13])
def test_restarts_counts_the_starts(restarts: int, workers: Workers) -> None:
    X, labels = clusters(300, 4, 13)
    problem = problem_of(X, limits_of(labels), workers)
    assert len(solve(problem, workers, restarts=restarts, effort="fast").runs) == restarts


def test_splits_of_large_cells_are_not_counted_out() -> None:
    labels = np.repeat([0, 1], [4, 3])
    limits = limits_of(labels, "0.5")
    exactly = count_splits(limits)
    assert has_at_most(limits, exactly) and not has_at_most(limits, exactly - 1)
    assert not has_at_most(limits_of(np.zeros(3_000_000, dtype=np.int64), "0.2"), 20_000)


def groups_under_noise(
    data: int, groups: int, d: int, level: float, kernel: str, workers: Workers
) -> Problem:
    """4,000 rows of nine cells, in groups that go across them, under uneven noise."""
    rng = np.random.default_rng(data)
    n = 4000
    label, domain, group = (rng.integers(k, size=n) for k in (3, 3, groups))
    of_label, of_domain, of_group = (rng.normal(size=(k, d)) for k in (3, 3, groups))
    noise = level * rng.normal(size=(n, d)) * rng.gamma(2.0, 0.5, size=d)
    X = 0.5 * of_label[label] + 0.5 * of_domain[domain] + of_group[group] + noise
    return problem_of(X.astype(np.float32), limits_of(3 * label + domain), workers, kernel)


def explained_by_random_starts(problem: Problem, count: int) -> np.ndarray:
    """The scatter that the ends of Lloyd's descents explain."""
    starts = random_splits(problem.constraints, np.random.default_rng(1).spawn(count))
    ends = descend(problem, starts, Selection(problem.constraints), max_iter=100, dtype=np.float32)
    return problem.ssq_total - ends.psi


@pytest.mark.parametrize(("kernel", "data"), [("rbf", 8), ("linear", 12)])
def test_many_clusters_are_no_trap(kernel: str, data: int, workers: Workers) -> None:
    """One random start in a hundred finds the best split, and it is far from the others."""
    problem = groups_under_noise(data, 30, 256, 1.0, kernel, workers)
    explained = explained_by_random_starts(problem, 200)
    assert (explained > 0.9998 * explained.max()).mean() < 0.02
    for seed in range(4):
        measured = evaluate(problem, solve(problem, workers, seed).members)
        assert problem.ssq_total - measured.psi > 0.9998 * explained.max()


@pytest.mark.parametrize("data", [0, 1])
def test_the_kernel_decides_where_its_image_prefers_another_optimum(data: int, workers: Workers) -> None:
    """The best splits on the image are alike, and not where the kernel has its optimum."""
    problem = groups_under_noise(data, 12, 64, 2.0, "rbf", workers)
    best = explained_by_random_starts(problem, 100).max()
    for seed in range(4):
        measured = evaluate(problem, solve(problem, workers, seed).members)
        assert problem.ssq_total - measured.psi > 0.9998 * best
