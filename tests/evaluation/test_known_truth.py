"""Problems whose answer is known: one where only clusters show what will fail, one without shift."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.reports.evaluation.summary import EvaluationReport, Protocol, StrategyScore

Run = Callable[..., EvaluationReport]
COPIES = (12, 12, 6, 6, 6, 6, 6, 6, 2)
"""Columns of each factor: signal, cluster, six of noise, and the spurious one, the ninth component."""


def columns(factors: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Repeat every factor in some columns, so that principal components come in a known order."""
    repeated = np.repeat(factors / factors.std(axis=0), COPIES, axis=1)
    return np.asarray(repeated + 0.05 * rng.normal(size=repeated.shape))


def spurious(make_dataset: Callable[..., Dataset]) -> Dataset:
    """A feature that gives the label away, except in a fifth of the development rows, far from the others.

    In the evaluation domain it is wrong throughout. Models that see 8 components do not see it.
    """
    rng = np.random.default_rng(1)
    n = 200
    domain = np.repeat(np.arange(4), n)
    label = np.tile([0, 1], 2 * n)
    side = 2.0 * label - 1.0
    inside = np.tile(np.arange(n) // 2 % 5 == 0, 4)  # a fifth of every label in every domain
    shifted = domain == 3
    wrong = np.where(shifted, True, inside)
    factors = rng.normal(size=(4 * n, 9))
    factors[:, 0] += 0.5 * side
    factors[:, 1] = 0.3 * factors[:, 1] + 6.0 * inside
    factors[:, 8] = 0.2 * factors[:, 8] + np.where(wrong, -side, side)
    names = np.array(["a", "b", "c", "shifted"])
    return make_dataset(columns(factors, rng), label=label, domain=names[domain])


def score(protocol: Protocol, name: str) -> StrategyScore:
    return next(found for found in protocol.strategies if found.strategy == name)


def test_a_cluster_split_finds_the_robust_model_and_a_random_one_the_spurious(
    make_dataset: Callable[..., Dataset], run: Run, tmp_path: Path
) -> None:
    report = run(
        spurious(make_dataset),
        tmp_path / "out",
        strategies=["random:joint", "cluster-rbf:joint"],
        domains=("shifted",),
        probe="logreg",
        probe_rows=500,
        search=12,
        repeats=4,
    )
    for protocol in report.protocols:
        random, cluster = score(protocol, "random:joint"), score(protocol, "cluster-rbf:joint")
        assert random.test.mean < 0.4
        assert cluster.test.mean > 0.6
        assert cluster.finding == "gains"
        assert cluster.gap_closed is not None
        assert cluster.gap_closed.mean > 60
        assert cluster.p_value is not None
        assert cluster.p_value < 0.01
        assert protocol.verdict[0].startswith("cluster-rbf:joint closes ")
    ranks = {found.strategy: found.rank_correlation for found in report.training_sets}
    assert ranks["random:joint"].mean < -0.3  # type: ignore[union-attr]
    assert ranks["cluster-rbf:joint"].mean > 0.3  # type: ignore[union-attr]


def test_nothing_is_found_where_there_is_no_shift(
    make_dataset: Callable[..., Dataset], run: Run, tmp_path: Path
) -> None:
    rng = np.random.default_rng(2)
    label, domain = np.tile([0, 1], 300), np.repeat([0, 1, 2], 200)
    rows = rng.normal(size=(600, 6))
    rows[:, 0] += 6.0 * label
    report = run(
        make_dataset(rows, label=label, domain=domain),
        tmp_path / "out",
        strategies=["random:joint", "cluster-rbf:joint", "cluster-linear:joint", "leave-one-domain-out"],
        probe="logreg",
        probe_rows=500,
        search=6,
        repeats=2,
    )
    for protocol in report.protocols:
        assert protocol.room.mean < 0.01
        assert protocol.verdict[0].startswith("no room for improvement here: random:joint is within 0.")
        assert not any(found.finding in ("gains", "loses") for found in protocol.strategies)
        assert all(found.gap_closed is None for found in protocol.strategies if found.gain is not None)
