"""Means, standard errors, choices and verdicts, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from clustersplit_cli.evaluation.choosing import SELECTIONS
from clustersplit_cli.evaluation.rounds import capped
from clustersplit_cli.evaluation.statistics import (
    Table,
    balanced_accuracy,
    by_domain,
    discrepancy_and_test,
    holm,
    jackknife,
    over_groups,
    over_repeats,
    p_value,
    sensitivity,
)
from clustersplit_cli.evaluation.summarize import protocol, training_sets
from clustersplit_cli.reports.evaluation.summary import ORACLE, EvaluationRun

RANDOM, CLUSTER = "random:joint", "cluster-rbf:joint"


def table(values: list[list[float]]) -> Table:
    return Table(np.array(values, dtype=np.float64))


def run(domain: str, repeat: int, strategy: str, test: float | None, oracle: float = 0.9) -> EvaluationRun:
    mmd = None if strategy == ORACLE else {RANDOM: 0.1, CLUSTER: 0.4}.get(strategy, 0.2)
    return EvaluationRun(domain, repeat, strategy, mmd, 0, 0.5, test, None, oracle, 0.3, 0.5)


def runs(scores: dict[str, list[list[float]]]) -> list[EvaluationRun]:
    return [
        run(f"domain {domain}", repeat, strategy, value)
        for strategy, rows in scores.items()
        for domain, row in enumerate(rows)
        for repeat, value in enumerate(row)
    ]


def test_class_balanced_accuracy_weighs_classes_alike() -> None:
    labels = np.array([0, 0, 0, 1, 3])
    assert balanced_accuracy(np.array([0, 0, 1, 1, 0]), labels) == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert balanced_accuracy(labels[:0], labels[:0]) is None
    weights = np.array([1.0, 1.0, 2.0, 0.5, 1.0])
    assert balanced_accuracy(np.array([0, 0, 1, 1, 0]), labels, weights) == pytest.approx((2 / 4 + 1 + 0) / 3)


def test_accuracy_by_domain_names_the_domains_that_have_rows() -> None:
    found = by_domain(np.array([0, 1, 1]), np.array([0, 0, 1]), np.array([2, 2, 0]), ("a", "b", "c"))
    assert found == {"a": 1.0, "c": 0.5}


def test_the_standard_error_of_an_accuracy_is_over_repeats_averaged_over_domains() -> None:
    found = over_repeats(table([[0.5, 0.7], [0.9, 0.9]]))
    assert found is not None
    assert found.mean == pytest.approx(0.75)
    assert found.se == pytest.approx(np.std([0.7, 0.8], ddof=1) / np.sqrt(2))
    assert over_repeats(table([[0.5], [0.7]])).se is None  # type: ignore[union-attr]


def test_the_standard_error_of_a_gain_is_over_domains_and_with_one_domain_over_repeats() -> None:
    found = over_groups(table([[0.1, 0.3], [0.4, 0.4], [0.0, 0.2]]))
    assert found is not None
    assert (found.mean, found.se) == pytest.approx((0.7 / 3, np.std([0.2, 0.4, 0.1], ddof=1) / np.sqrt(3)))
    assert p_value(table([[0.1, 0.3], [0.4, 0.4], [0.0, 0.2]])) == pytest.approx(
        ttest_1samp([0.2, 0.4, 0.1], 0).pvalue
    )
    one = over_groups(table([[0.1, 0.3, 0.2]]))
    assert one is not None
    assert one.se == pytest.approx(0.1 / np.sqrt(3))


def test_rounds_without_a_result_do_not_count() -> None:
    found = over_groups(table([[0.1, np.nan], [0.3, 0.5]]))
    assert found is not None
    assert found.mean == pytest.approx((0.1 + 0.4) / 2)
    assert over_groups(table([[np.nan]])) is None


def test_the_jackknife_of_a_ratio_of_means_agrees_with_one_by_hand() -> None:
    top, bottom = [0.02, 0.05, 0.01], [0.1, 0.1, 0.04]
    found = jackknife(table([[value] for value in top]), table([[value] for value in bottom]))
    without = [0.06 / 0.14, 0.03 / 0.14, 0.07 / 0.2]
    assert found is not None
    assert found.mean == pytest.approx(0.08 / 0.24)
    assert found.se == pytest.approx(np.sqrt(2 / 3 * np.sum((np.array(without) - np.mean(without)) ** 2)))


def test_of_a_mean_the_jackknife_is_the_usual_standard_error() -> None:
    values = table([[0.2], [0.5], [0.3], [0.1]])
    ones = table([[1.0]] * 4)
    assert jackknife(values, ones).se == pytest.approx(over_groups(values).se)  # type: ignore[union-attr]


def test_holm_raises_p_values_in_order() -> None:
    assert holm({"a": 0.01, "b": 0.03, "c": 0.02, "d": None}) == {"a": 0.03, "b": 0.04, "c": 0.04, "d": None}


def test_the_table_puts_random_at_0_and_the_oracle_at_100() -> None:
    found = protocol(
        "train",
        runs(
            {
                RANDOM: [[0.50, 0.52], [0.60, 0.58], [0.70, 0.70]],
                ORACLE: [[0.60, 0.62], [0.70, 0.68], [0.80, 0.80]],
                CLUSTER: [[0.55, 0.57], [0.64, 0.64], [0.75, 0.75]],
            }
        ),
        RANDOM,
    )
    random, oracle, cluster = found.strategies
    assert found.room.mean == pytest.approx(0.1)
    assert (random.gap_closed.mean, oracle.gap_closed.mean) == pytest.approx((0, 100))  # type: ignore[union-attr]
    assert cluster.gap_closed is not None
    assert cluster.gap_closed.mean == pytest.approx(50)
    assert cluster.finding == "gains"
    assert found.verdict[0] == "cluster-rbf:joint closes 50 ± 0 % of the gap to the oracle"
    assert found.verdict[1].startswith("a gain of 0.") and found.verdict[1].endswith("(80 % power)")


def test_the_verdict_advises_against_a_split_that_loses() -> None:
    found = protocol(
        "train",
        runs(
            {
                RANDOM: [[0.50], [0.60], [0.70], [0.65]],
                ORACLE: [[0.60], [0.70], [0.80], [0.70]],
                CLUSTER: [[0.47], [0.58], [0.68], [0.62]],
            }
        ),
        RANDOM,
    )
    assert found.strategies[2].finding == "loses"
    assert found.verdict[0] == "do not use cluster-rbf:joint here: it loses 2.5 ± 0.3 points"


def test_the_verdict_says_when_there_is_nothing_to_gain_and_when_nothing_can_be_told() -> None:
    tight = {RANDOM: [[0.50], [0.60]], ORACLE: [[0.504], [0.604]], CLUSTER: [[0.5], [0.601]]}
    found = protocol("train", runs(tight), RANDOM)
    assert found.verdict[0] == (
        "no room for improvement here: random:joint is within 0.4 points of the oracle"
    )
    noisy = {RANDOM: [[0.50], [0.60]], ORACLE: [[0.70], [0.80]], CLUSTER: [[0.6], [0.55]]}
    unclear = protocol("train", runs(noisy), RANDOM)
    assert unclear.verdict == (
        "no cluster split differs significantly from random:joint here: cluster-rbf:joint +2.5 ± 7.5 points",
        "the domains differ so much that no gain would have been seen (80 % power); "
        "two points would take 221 more domains",
    )


@pytest.mark.parametrize(("count", "level"), [(3, 0.05), (6, 0.05), (6, 0.01)])
def test_the_smallest_gain_that_would_be_seen_is_seen_four_times_in_five(count: int, level: float) -> None:
    """By drawing numbers of that mean and spread, again and again, and testing them."""
    rng = np.random.default_rng(count)
    drawn = table(rng.normal(size=(count, 1)).tolist())
    drawn = Table(drawn.values / drawn.values.std(ddof=1) * 0.03)
    found = sensitivity(drawn, level).gain
    assert found is not None
    samples = found + 0.03 * rng.normal(size=(20_000, count))
    tested = ttest_1samp(samples, 0.0, axis=1)
    seen = (tested.pvalue < level) & (tested.statistic > 0)
    assert seen.mean() == pytest.approx(0.8, abs=0.012)


def test_as_many_more_domains_or_repeats_are_named_as_two_points_take() -> None:
    rng = np.random.default_rng(1)
    values = np.array([[-0.02], [0.0], [0.03], [0.01]]) + 0.06 * rng.normal(size=(4, 3))
    found = sensitivity(Table(values), 0.05)
    assert found.gain is not None and found.gain > 0.02
    spread = values.mean(axis=1).std(ddof=1)

    def least(count: int, spread: float) -> float:
        """Of so many numbers with that spread: two and the same with one domain more than enough."""
        shape = np.linspace(-1, 1, count)
        scaled = Table((shape / shape.std(ddof=1) * spread)[:, None])
        gain = sensitivity(scaled, 0.05).gain
        assert gain is not None
        return gain

    assert found.more_domains is not None
    enough = 4 + found.more_domains
    assert least(enough, spread) <= 0.02 < least(enough - 1, spread)
    # What repeats differ by shrinks with their number, what domains differ by does not.
    within = values.var(axis=1, ddof=1).mean()
    between = max(spread**2 - within / 3, 0.0)
    if found.more_repeats is None:
        assert least(4, between**0.5) > 0.02
    else:
        repeats = 3 + found.more_repeats
        assert least(4, (between + within / repeats) ** 0.5) <= 0.02 + 1e-9
        assert least(4, (between + within / (repeats - 1)) ** 0.5) > 0.02
    one = sensitivity(Table(values[:1]), 0.05)
    assert one.more_domains is None and one.more_repeats is not None
    assert sensitivity(Table(values[:1, :1]), 0.05).gain is None


def test_the_worst_domain_less_its_distance_to_the_best_can_decide() -> None:
    assert SELECTIONS["worst-gap"]([0.9, 0.6, 0.7]) == pytest.approx(0.6 - 0.3)
    assert SELECTIONS["worst"]([0.9, 0.6, 0.7]) == 0.6
    assert SELECTIONS["worst-gap"]([0.8]) == pytest.approx(0.8)


def test_one_round_alone_decides_nothing() -> None:
    found = protocol("train", runs({RANDOM: [[0.5]], ORACLE: [[0.9]], CLUSTER: [[0.8]]}), RANDOM)
    assert found.strategies[2].finding == "unclear"
    assert found.strategies[2].p_value is None


def test_the_second_table_compares_training_sets_by_their_oracles() -> None:
    both = [run("d", 0, RANDOM, 0.5, 0.8), run("d", 0, CLUSTER, 0.6, 0.7), run("d", 0, ORACLE, 0.8, 0.8)]
    first, second = training_sets(both, RANDOM)
    assert (first.oracle.mean, first.difference) == (0.8, None)
    assert second.difference is not None
    assert second.difference.mean == pytest.approx(-0.1)
    assert second.rank_correlation is not None
    assert (second.rank_correlation.mean, second.mmd.mean) == (0.3, 0.4)


def test_discrepancy_and_accuracy_are_correlated_within_rounds() -> None:
    """Hard domains must not count as an effect of the split."""
    found = discrepancy_and_test(
        [
            *[run("easy", 0, name, value) for name, value in ((RANDOM, 0.5), ("x", 0.75), (CLUSTER, 1.0))],
            *[
                run("hard", 0, name, value)
                for name, value in ((RANDOM, 0.125), ("x", 0.375), (CLUSTER, 0.625))
            ],
        ]
    )
    assert found.runs is not None
    assert found.strategies is not None
    assert (found.runs.rho, found.runs.n) == (pytest.approx(1.0), 6)
    assert (found.strategies.rho, found.strategies.n) == (pytest.approx(1.0), 3)


def test_a_cap_on_rows_leaves_every_group_its_share() -> None:
    rows = np.arange(1000, 2000)
    groups = np.repeat([7, 0, 3], [600, 300, 100])
    kept = capped(rows, groups, 100, np.random.default_rng(0))
    assert (np.diff(kept) > 0).all()
    counts = np.bincount(groups[kept - 1000], minlength=8)
    assert counts[[7, 0, 3]].tolist() == [60, 30, 10]
    assert capped(rows[:50], groups[:50], 100, np.random.default_rng(0)) is not None
    assert len(capped(rows[:50], groups[:50], 100, np.random.default_rng(0))) == 50
