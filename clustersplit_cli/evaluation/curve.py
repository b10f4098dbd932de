"""Accuracy over graded splits, read where an unseen domain is: what to expect of a model there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.evaluation.choosing import MEAN, choice, score
from clustersplit_cli.evaluation.protocol import Contest
from clustersplit_cli.evaluation.statistics import Table, over_groups
from clustersplit_cli.evaluation.strategies import Reach
from clustersplit_cli.evaluation.trials import Record
from clustersplit_cli.pipeline.ladder import LEVELS, parse_levels
from clustersplit_cli.reports.evaluation.summary import (
    Curve,
    CurvePoint,
    DomainCurve,
    EstimatorScore,
    EvaluationRun,
)
from clustersplit_cli.reports.summary import NO_SHIFT

CURVE_LEVELS = parse_levels(LEVELS)
CURVE = "curve"
"""What the estimate is called beside those of the strategies."""
FEWEST_KNOWN = 2
"""Other domains whose errors say how far off an estimate may be."""

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Reading:
    """The curve of one round.

    Attributes
    ----------
    mmds, accuracies : of every level, for the setting that the reference chose.
    expected : the accuracy at the MMD of the development rows and E; beyond the curve, that at its end.
    observed : the accuracy on E of that setting, trained on the reference's training rows.
    chance : standard error of `expected` for as many validation rows.
    scores : validation accuracies of what every strategy chose.
    """

    contest: Contest
    reach: Reach
    mmds: Values
    accuracies: Values
    expected: float
    observed: float | None
    chance: float
    scores: Mapping[str, float]

    @property
    def error(self) -> float | None:
        """What the estimate is off; None where nobody knows."""
        return None if self.observed is None else self.expected - self.observed


def draw_curve(
    contests: Sequence[Contest],
    records: Mapping[str, Record],
    runs: Sequence[EvaluationRun],
    *,
    select: str,
    reference: str,
    most_rows: int | None,
) -> Curve:
    """Read the curve of every round, and compare what it says with what was found.

    Parameters
    ----------
    runs : of the strategies, on the domains that were left out.
    most_rows : that are scored on; None: all.
    """
    found = (_read(contest, records, select, reference, most_rows) for contest in contests)
    readings = [reading for reading in found if reading is not None]
    by_domain: dict[tuple[int, str], list[Reading]] = {}
    for reading in readings:
        round_ = reading.contest.round
        by_domain.setdefault((round_.place, round_.domain), []).append(reading)
    squares = {
        key: float(np.mean([reading.error**2 for reading in some if reading.error is not None]))
        for key, some in by_domain.items()
        if some[0].observed is not None
    }
    domains = tuple(
        _of_domain(some, [value for other, value in squares.items() if other != key])
        for key, some in by_domain.items()
    )
    estimators = tuple(_estimators(readings, runs))
    return Curve(CURVE_LEVELS, domains, estimators, tuple(_verdict(domains, estimators, reference)))


def _read(
    contest: Contest, records: Mapping[str, Record], select: str, reference: str, most_rows: int | None
) -> Reading | None:
    """The curve of a round; None where a training that it takes has failed."""
    assert contest.slope is not None
    scores, chosen, observed = {}, None, None
    for entry in contest.entries:
        scored = score(entry, contest.settings, records, select)
        own = choice(scored)
        if own is not None:
            scores[entry.strategy] = float(scored.mean[own])
        if entry.strategy == reference:
            chosen = own
            is_known = own is not None and np.isfinite(scored.test[own])
            observed = float(scored.test[own]) if is_known else None
    if chosen is None:
        return None
    entries, reach = contest.slope.entries.values(), contest.slope.reach
    graded = [score(entry, contest.settings, records, MEAN).mean[chosen] for entry in entries]
    accuracies, mmds = np.array(graded), np.array([entry.mmd for entry in entries])
    if not np.isfinite(accuracies).all():
        return None
    order = np.argsort(mmds, kind="stable")
    expected = float(np.interp(reach.mmd, mmds[order], accuracies[order]))
    rows = min(len(entry.trainings[0].val) for entry in entries)
    rows = rows if most_rows is None else min(rows, most_rows)
    chance = (max(expected * (1.0 - expected), 0.0) / rows) ** 0.5
    return Reading(contest, reach, mmds, accuracies, expected, observed, chance, scores)


def _of_domain(readings: Sequence[Reading], others: Sequence[float]) -> DomainCurve:
    """Put the repeats of a domain together.

    Parameters
    ----------
    others : mean squared errors on the other domains.
    """
    first, mmds = readings[0], np.stack([reading.mmds for reading in readings])
    accuracies = np.stack([reading.accuracies for reading in readings])
    expected = np.array([reading.expected for reading in readings])
    several = len(readings) > 1
    error = (first.chance**2 + (float(expected.var(ddof=1)) if several else 0.0)) ** 0.5
    if len(others) >= FEWEST_KNOWN:
        error = max(error, float(np.mean(others)) ** 0.5)
    observed = [reading.observed for reading in readings if reading.observed is not None]
    severities = [reading.reach.scale.severity(reading.reach.mmd) for reading in readings]
    known = [severity for severity in severities if severity is not None]
    names = dict.fromkeys(name for reading in readings for name in reading.scores)
    return DomainCurve(
        domain=first.contest.round.domain,
        is_target=first.contest.round.is_of_target,
        mmd=float(np.mean([reading.reach.mmd for reading in readings])),
        p_value=float(np.mean([reading.reach.p_value for reading in readings])),
        severity=float(np.mean(known)) if known else None,
        points=tuple(
            CurvePoint(
                level,
                float(mmds[:, place].mean()),
                float(accuracies[:, place].mean()),
                float(accuracies[:, place].std(ddof=1)) if several else None,
            )
            for place, level in enumerate(CURVE_LEVELS)
        ),
        expected=float(expected.mean()),
        error=error,
        observed=float(np.mean(observed)) if observed else None,
        scores={
            name: float(np.mean([reading.scores[name] for reading in readings if name in reading.scores]))
            for name in names
        },
    )


def _estimators(readings: Sequence[Reading], runs: Sequence[EvaluationRun]) -> Iterator[EstimatorScore]:
    """Compare every strategy's score, and the curve, with the accuracy on domains that were left out."""
    errors: dict[str, dict[tuple[str, int], float | None]] = {}
    for run in runs:
        if run.validation_mean is not None and run.test is not None:
            place = run.domain, run.repeat
            errors.setdefault(run.strategy, {})[place] = run.validation_mean - run.test
    for reading in readings:
        if reading.error is not None:
            place = reading.contest.round.domain, reading.contest.round.repeat
            errors.setdefault(CURVE, {})[place] = reading.error
    for name, found in errors.items():
        sizes = {place: None if value is None else abs(value) for place, value in found.items()}
        bias, absolute = over_groups(Table.of(found)), over_groups(Table.of(sizes))
        if bias is not None and absolute is not None:
            yield EstimatorScore(name, len(found), bias, absolute)


def _verdict(
    domains: Sequence[DomainCurve], estimators: Sequence[EstimatorScore], reference: str
) -> Iterator[str]:
    """What the curve says of targets, and how far it can be trusted."""
    for found in domains:
        if found.is_target:
            yield from _of_target(found, reference)
            if len(domains) - 1 < FEWEST_KNOWN:
                yield "± is chance alone: it takes two domains or more to see how far off such a curve is"
    by_name = {found.name: found for found in estimators}
    if CURVE not in by_name or reference not in by_name:
        return
    curve, random = by_name[CURVE], by_name[reference]
    left_out = sum(not found.is_target for found in domains)
    yield (
        f"on {left_out} domain{'s' * (left_out != 1)} left out, the curve was off by {_points(curve)} points "
        f"of accuracy on average, the score on a random validation set by {_points(random)}"
    )


def _of_target(found: DomainCurve, reference: str) -> Iterator[str]:
    is_beyond = found.severity is not None and found.severity > 1
    most = "at most " if is_beyond else ""
    yield (
        f"expect {most}{100 * found.expected:.0f} ± {100 * found.error:.0f} % on {found.domain}; "
        f"your random validation set says {100 * found.scores[reference]:.0f} %"
    )
    if is_beyond:
        yield (
            f"{found.domain} is beyond the hardest split of your rows (severity {found.severity:.2g}): "
            "the curve ends before it"
        )
    if found.p_value > NO_SHIFT:
        yield f"no shift to {found.domain} can be seen (p = {found.p_value:.2g}): the random score stands"


def _points(found: EstimatorScore) -> str:
    se = "" if found.absolute.se is None else f" ± {100 * found.absolute.se:.1f}"
    return f"{100 * found.absolute.mean:.1f}{se}"
