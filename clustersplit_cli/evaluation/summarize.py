"""From the choices of all rounds to the one summary that the reports render."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from clustersplit_cli.evaluation.statistics import (
    Table,
    collect,
    holm,
    jackknife,
    minus,
    over_groups,
    over_repeats,
    p_value,
)
from clustersplit_cli.evaluation.trials import Record
from clustersplit_cli.evaluation.verdict import ROOM, finding, verdict
from clustersplit_cli.reports.evaluation_summary import (
    ORACLE,
    Estimate,
    EvaluationRun,
    FailedTrial,
    Protocol,
    StrategyScore,
    TrainingSetScore,
    TrialCounts,
)

FAILURES_SHOWN = 20
Number = Callable[[EvaluationRun], float | None]


def protocol(name: str, runs: Sequence[EvaluationRun], reference: str) -> Protocol:
    """Score every strategy against the random reference and the oracle.

    Parameters
    ----------
    name : `train`, the chosen model as it is, or `refit`, retrained on all development rows.
    """
    tested: Number = (lambda run: run.refit) if name == "refit" else (lambda run: run.test)
    strategies = list(dict.fromkeys(run.strategy for run in runs))
    base = collect(runs, reference, tested)
    gap = Table.of(minus(collect(runs, ORACLE, tested), base))
    room = over_groups(gap) or Estimate(float("nan"), None)
    gains = {
        strategy: Table.of(minus(collect(runs, strategy, tested), base))
        for strategy in strategies
        if strategy != reference
    }
    adjusted = holm({name: p_value(gain) for name, gain in gains.items() if name != ORACLE})
    scores = []
    for strategy in strategies:
        numbers = collect(runs, strategy, tested)
        test = over_repeats(Table.of(numbers))
        if test is None:  # all its trials failed
            continue
        n_runs = sum(value is not None for value in numbers.values())
        if strategy == reference:
            zero = Estimate(0.0, None)
            scores.append(StrategyScore(strategy, n_runs, test, None, zero, None, "reference"))
            continue
        gain = over_groups(gains[strategy])
        closed = jackknife(gains[strategy], gap) if room.mean >= ROOM else None
        if closed is not None:
            se = closed.se if strategy != ORACLE else None
            closed = Estimate(100 * closed.mean, None if se is None else 100 * se)
        word = "reference" if strategy == ORACLE else finding(gain, adjusted[strategy])
        scores.append(StrategyScore(strategy, n_runs, test, gain, closed, adjusted.get(strategy), word))
    return Protocol(name, room, tuple(scores), verdict(scores, room, reference))


def training_sets(runs: Sequence[EvaluationRun], reference: str) -> tuple[TrainingSetScore, ...]:
    """What the strategies' training sets allow, apart from who chooses."""
    base = collect(runs, reference, lambda run: run.oracle)
    scores = []
    for strategy in dict.fromkeys(run.strategy for run in runs if run.strategy != ORACLE):
        best = collect(runs, strategy, lambda run: run.oracle)
        oracle = over_repeats(Table.of(best))
        distance = over_groups(Table.of(collect(runs, strategy, lambda run: run.mmd)))
        if oracle is None or distance is None:
            continue
        difference = None if strategy == reference else over_groups(Table.of(minus(best, base)))
        ranks = over_groups(Table.of(collect(runs, strategy, lambda run: run.rank_correlation)))
        scores.append(TrainingSetScore(strategy, oracle, difference, ranks, distance))
    return tuple(scores)


def count_trials(records: Mapping[str, Record]) -> TrialCounts:
    """Count trials, and name those that failed."""
    failed = sorted(
        (record for record in records.values() if record.error is not None),
        key=lambda record: (record.domain, record.repeat, record.setting, record.training),
    )
    named = tuple(
        FailedTrial(record.key, record.domain, record.repeat, dict(record.params), record.error or "")
        for record in failed[:FAILURES_SHOWN]
    )
    return TrialCounts(len(records), len(failed), named)
