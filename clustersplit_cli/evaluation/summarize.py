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
    sensitivity,
)
from clustersplit_cli.evaluation.trials import Record
from clustersplit_cli.reports.evaluation.summary import (
    ORACLE,
    Estimate,
    EvaluationRun,
    FailedTrial,
    Protocol,
    Sensitivity,
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
    rivals = [name for name in gains if name != ORACLE]
    adjusted = holm({name: p_value(gains[name]) for name in rivals})
    scores = []
    for strategy in strategies:
        numbers = collect(runs, strategy, tested)
        test = over_repeats(Table.of(numbers))
        if test is None:  # all its trials failed
            continue
        n_runs = sum(value is not None for value in numbers.values())
        validated = collect(runs, strategy, lambda run: run.validation_mean)
        optimism = over_groups(Table.of(minus(validated, numbers)))
        if strategy == reference:
            zero = Estimate(0.0, None)
            scores.append(
                StrategyScore(strategy, n_runs, test, None, zero, None, "reference", optimism, None)
            )
            continue
        gain = over_groups(gains[strategy])
        closed = jackknife(gains[strategy], gap) if room.mean >= ROOM else None
        if closed is not None:
            se = closed.se if strategy != ORACLE else None
            closed = Estimate(100 * closed.mean, None if se is None else 100 * se)
        p = adjusted.get(strategy)
        word, seen = "reference", None
        if strategy != ORACLE:
            # The first of several questions is asked at this level (Holm).
            seen = sensitivity(gains[strategy], LEVEL / len(rivals))
            word = finding(gain, p)
        scores.append(StrategyScore(strategy, n_runs, test, gain, closed, p, word, optimism, seen))
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


ROOM = 0.01
"""Accuracy between random and oracle below which there is nothing to gain."""
LEVEL = 0.05


def finding(gain: Estimate | None, p_value: float | None) -> str:
    """Whether a difference to the random reference is significant."""
    if gain is None or p_value is None or p_value >= LEVEL or gain.mean == 0:
        return "unclear"
    return "gains" if gain.mean > 0 else "loses"


def verdict(scores: Sequence[StrategyScore], room: Estimate, reference: str) -> tuple[str, ...]:
    """Say what the numbers allow to be said: first whether anything could be gained, then by whom."""
    lines = []
    no_room = room.mean < ROOM
    if no_room:
        lines.append(
            f"no room for improvement here: {reference} is within {points(room.mean)} points of the oracle"
        )
    rivals = [score for score in scores if score.strategy not in (reference, ORACLE)]
    clusters = [score for score in rivals if "cluster" in score.strategy]
    for score in clusters:
        line = _line(score, no_room=no_room)
        if line is not None:
            lines.append(line)
    if clusters and not any(score.finding in ("gains", "loses") for score in clusters):
        lines.append(f"no cluster split differs significantly from {reference} here: {_listed(clusters)}")
    lines += _what_could_be_seen(clusters or rivals)
    others = [score for score in rivals if score not in clusters and score.finding == "gains"]
    if others and not no_room:
        best = max(others, key=lambda score: score.gain.mean if score.gain else 0.0)
        lines.append(f"{best.strategy} does better than {reference} too: {_gain(best)} points")
    return tuple(lines)


def _what_could_be_seen(scores: Sequence[StrategyScore]) -> list[str]:
    """Say what gain would have been seen, and what two points would take of the most precise comparison."""
    known = [
        (score.sensitivity.gain, score.strategy, score.sensitivity)
        for score in scores
        if score.sensitivity is not None and score.sensitivity.gain is not None
    ]
    if not known:
        return ["one domain and one repeat cannot tell a gain from chance: add --repeats"] if scores else []
    (least, name, seen), (most, other, _) = (
        choose(known, key=lambda each: each[:2]) for choose in (min, max)
    )
    if least > 1:
        said = "the domains differ so much that no gain would have been seen (80 % power)"
    elif name == other:
        said = f"a gain of {points(least)} points or more of {name} would have been seen (80 % power)"
    else:
        said = (
            f"a gain of {points(least)} points or more of {name} would have been seen (80 % power), "
            f"of {other} one of {points(most)}"
        )
    return [said + _what_it_takes(seen)]


def _what_it_takes(seen: Sensitivity) -> str:
    """How many more domains or repeats would show two points."""
    more = {"domain": seen.more_domains, "repeat": seen.more_repeats}
    if 0 in more.values():
        return ""
    ways = [f"{count} more {name}{'s' * (count != 1)}" for name, count in more.items() if count is not None]
    if not ways:
        return "; no number of repeats would show two points"
    return f"; two points would take {' or '.join(ways)}"


def _line(score: StrategyScore, *, no_room: bool) -> str | None:
    if score.finding == "loses" and score.gain is not None:
        lost = Estimate(-score.gain.mean, score.gain.se)
        return f"do not use {score.strategy} here: it loses {_points(lost)} points"
    if score.finding == "gains" and not no_room:
        if score.gap_closed is None:
            return f"{score.strategy} gains {_gain(score)} points"
        return f"{score.strategy} closes {_percent(score.gap_closed)} of the gap to the oracle"
    return None


def _listed(scores: Sequence[StrategyScore]) -> str:
    return ", ".join(f"{score.strategy} {_gain(score)}" for score in scores) + " points"


def _gain(score: StrategyScore) -> str:
    return "undefined" if score.gain is None else _points(score.gain, signed=True)


def _points(found: Estimate, *, signed: bool = False) -> str:
    # Rounded first, and zero added: nothing is called -0.0.
    mean = f"{round(100 * found.mean, 1) + 0.0:+.1f}" if signed else points(found.mean)
    return mean if found.se is None else f"{mean} ± {points(found.se)}"


def _percent(found: Estimate) -> str:
    return f"{found.mean:.0f} %" if found.se is None else f"{found.mean:.0f} ± {found.se:.0f} %"


def points(share: float) -> str:
    """A share of 1 in percentage points."""
    return f"{100 * share:.1f}"
