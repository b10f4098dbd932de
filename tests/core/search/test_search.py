from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.search.problem import Members, objectives
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.errors import ClusterSplitError
from clustersplit_cli.options import SplitOptions, check_options
from clustersplit_cli.pipeline.local.engine import prepared_split
from clustersplit_cli.pipeline.local.split import LocalSplit

Maker = Callable[..., Dataset]


def every_split(limits: ValidationQuotas) -> Members:
    """All splits that meet the constraints with two non-empty sides, one per column."""
    per_cell = []
    for cell in range(len(limits.target)):
        rows = limits.cells.order[limits.cells.offsets[cell] : limits.cells.offsets[cell + 1]].tolist()
        per_cell.append(
            [
                chosen
                for quota in range(limits.lower[cell], limits.upper[cell] + 1)
                for chosen in itertools.combinations(rows, quota)
            ]
        )
    found = np.zeros((limits.n, int(np.prod([len(choices) for choices in per_cell]))), dtype=bool)
    for column, combination in enumerate(itertools.product(*per_cell)):
        found[[row for chosen in combination for row in chosen], column] = True
    n_val = found.sum(axis=0)
    return found[:, (n_val > 0) & (n_val < limits.n)]


def tiny_problem(number: int, make_dataset: Maker) -> tuple[Dataset, dict[str, Any]]:
    """A random problem of at most twelve rows; equal numbers give equal problems."""
    rng = np.random.default_rng([number, 2024])
    n, d = int(rng.integers(4, 13)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d))
    if number % 3 == 0:
        X[: n // 2] += 2
    if number % 5 == 0:
        X[-2:] = X[:2]
    kernel = ("rbf", "linear", "polynomial", "cosine")[number % 4]
    options = {
        "kernel": kernel,
        "holdout": str(rng.integers(1, 10) / 10),
        "tolerance": "0.5" if number // 4 % 3 == 2 else "0",
        "threads": 1,
        "certify": "never",
    }
    if kernel == "rbf" and rng.random() < 0.5:
        options["gamma"] = "20"
    return make_dataset(X, label=rng.integers(0, rng.integers(1, 4), n)), options


def gap_to_optimum(context: LocalSplit) -> float:
    """How far above the least Psi of all splits the search ends, as a share of the scatter."""
    problem = context.problem
    best = objectives(problem, every_split(problem.constraints)).min()
    found = context.search.solve()
    psi = objectives(problem, found.members[:, None])[0]
    falling = [step.psi for step in found.steps]
    assert all(earlier >= later for earlier, later in itertools.pairwise(falling))
    assert falling[-1] == pytest.approx(psi, abs=1e-10 * problem.ssq_total)
    return float((psi - best) / problem.ssq_total)


def gaps(make_dataset: Maker, count: int) -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], list[float]] = {}
    for number in range(count):
        dataset, options = tiny_problem(number, make_dataset)
        try:
            with prepared_split(dataset, check_options(SplitOptions(**options))) as context:
                gap = gap_to_optimum(context)
        except ClusterSplitError:  # no split meets the quotas, or the directions of one column are constant
            continue
        found.setdefault((options["kernel"], options["tolerance"]), []).append(gap)
    return found


def test_the_search_alone_finds_the_best_of_all_splits_nearly_always(
    make_dataset: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clustersplit_cli.core.search.search.MOST_SPLITS", 0)  # no looking at all splits
    found = gaps(make_dataset, 340)
    everything = [gap for group in found.values() for gap in group]
    assert len(everything) >= 300
    assert Counter(kernel for kernel, _ in found) == Counter(
        dict.fromkeys(("rbf", "linear", "polynomial", "cosine"), 2)
    )
    assert min(everything) >= -1e-9
    assert np.mean([gap <= 1e-9 for gap in everything]) >= 0.95
    for group in found.values():
        assert np.mean([gap <= 1e-9 for gap in group]) >= 0.9


def test_tiny_problems_are_solved_exactly(make_dataset: Maker) -> None:
    everything = [gap for group in gaps(make_dataset, 100).values() for gap in group]
    assert len(everything) >= 75
    assert max(map(abs, everything)) <= 1e-9


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("effort", ["fast", "normal", "thorough"])
def test_the_winner_is_the_best_of_its_runs(kernel: str, effort: str, make_dataset: Maker) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 4))
    dataset = make_dataset(X, label=rng.integers(0, 3, 150))
    options = check_options(SplitOptions(kernel=kernel, effort=effort, restarts=7, threads=1))
    with prepared_split(dataset, options) as context:
        found = context.search.solve()
        psi = objectives(context.problem, found.members[:, None])[0]
    assert len(found.runs) == 7
    assert found.runs[found.winner].psi == pytest.approx(psi, rel=1e-10)
    assert min(run.psi for run in found.runs) == pytest.approx(psi, rel=1e-10)
    assert found.converged and found.steps[0].phase == "start"


@pytest.mark.parametrize("rows", [500, 2600])
def test_more_starts_never_do_worse_than_one(rows: int, make_dataset: Maker) -> None:
    rng = np.random.default_rng(2)
    dataset = make_dataset(rng.normal(size=(rows, 5)), label=rng.integers(0, 4, rows))
    psi = []
    for restarts in (1, 10):
        options = check_options(SplitOptions(restarts=restarts, effort="fast"))
        with prepared_split(dataset, options) as context:
            found = context.search.solve()
            psi.append(objectives(context.problem, found.members[:, None])[0])
    assert psi[1] <= psi[0] * (1 + 1e-12)


@pytest.mark.parametrize("effort", ["fast", "normal", "thorough"])
@pytest.mark.parametrize("n", [60, 2500])
def test_psi_falls_along_every_start_and_ends_where_it_was_measured(
    n: int, effort: str, make_dataset: Maker
) -> None:
    rng = np.random.default_rng(n)
    dataset = make_dataset(rng.normal(size=(n, 3)), label=rng.integers(0, 3, n))
    options = check_options(SplitOptions(effort=effort, restarts=4, threads=1))
    with prepared_split(dataset, options) as context:
        solution = context.search.solve()
    assert len(solution.runs) == 4
    for run in solution.runs:
        assert 1 <= len(run.trace) <= 24
        assert run.trace[-1] == pytest.approx(run.psi, rel=1e-12)
        assert np.isfinite(run.trace).all()
        assert (np.diff(run.trace) <= 1e-6 * run.psi).all()
    winner = solution.runs[solution.winner]
    assert winner.trace[-1] == pytest.approx(min(run.psi for run in solution.runs), rel=1e-12)


@pytest.mark.parametrize(
    ("n", "n_labels", "effort", "stirs"),
    [
        (2500, 40, "normal", 1),  # many cells: starts are slow
        (2500, 1, "normal", 0),
        (1500, 40, "normal", 0),  # explored on the kernel itself
        (2500, 40, "fast", 0),
        (2500, 1, "thorough", 8),
    ],
)
def test_slow_starts_are_followed_by_a_round_on_the_kernel_itself(
    n: int, n_labels: int, effort: str, stirs: int, make_dataset: Maker
) -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(0, n_labels, n)
    X = rng.normal(size=(n, 12)) + rng.normal(size=(n_labels, 12))[label]
    if n_labels == 1:  # two heaps on a line, one as large as the validation side: starts are quick
        X = X[:, :1] + 8.0 * (np.arange(n) < n // 5)[:, None]
    dataset = make_dataset(X, label=label)
    heard: list[str] = []
    options = check_options(SplitOptions(effort=effort, threads=1))
    with prepared_split(dataset, options) as context:
        replace(context, progress=lambda stage, done, total: heard.append(stage)).find()
    # After the candidates have been refined: the same stage before that is on the low-rank kernel.
    refined = len(heard) - heard[::-1].index("polish")
    assert heard[refined:].count("perturb") == stirs
