"""Means, standard errors and tests over rounds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.reports.evaluation.summary import (
    Correlation,
    DiscrepancyAndTest,
    Estimate,
    EvaluationRun,
    Sensitivity,
)

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """Numbers by evaluation domain and repeat, shape (domains, repeats); NaN where there is none."""

    values: Values

    @classmethod
    def of(cls, found: Mapping[tuple[str, int], float | None]) -> Table:
        """Arrange numbers by domain and repeat."""
        domains = list(dict.fromkeys(domain for domain, _ in found))
        repeats = sorted({repeat for _, repeat in found})
        values = np.full((len(domains), len(repeats)), np.nan)
        for (domain, repeat), value in found.items():
            if value is not None:
                values[domains.index(domain), repeats.index(repeat)] = value
        return cls(values)

    @property
    def groups(self) -> list[Values]:
        """Independent groups: the domains; with one domain, its repeats."""
        rows = self.values if len(self.values) > 1 else self.values.T
        return [row[np.isfinite(row)] for row in rows]

    @property
    def mean(self) -> float:
        """Every domain counts the same."""
        means = [row[np.isfinite(row)].mean() for row in self.values if np.isfinite(row).any()]
        return float(np.mean(means)) if means else float("nan")


def over_repeats(table: Table) -> Estimate | None:
    """The mean, and its standard error over repeats, each averaged over the domains first."""
    if not np.isfinite(table.values).any():
        return None
    columns = [table.values[:, repeat] for repeat in range(table.values.shape[1])]
    whole = [float(column.mean()) for column in columns if np.isfinite(column).all()]
    se = float(np.std(whole, ddof=1) / len(whole) ** 0.5) if len(whole) > 1 else None
    return Estimate(table.mean, se)


def over_groups(table: Table) -> Estimate | None:
    """The mean, and its standard error over evaluation domains (over repeats, if there is one domain)."""
    means = [float(group.mean()) for group in table.groups if len(group)]
    if not means:
        return None
    se = float(np.std(means, ddof=1) / len(means) ** 0.5) if len(means) > 1 else None
    return Estimate(float(np.mean(means)), se)


def jackknife(numerator: Table, denominator: Table) -> Estimate | None:
    """The ratio of two means, with its standard error by leaving out one group at a time."""
    pairs = [
        (float(top.mean()), float(bottom.mean()))
        for top, bottom in zip(numerator.groups, denominator.groups, strict=True)
        if len(top) and len(bottom)
    ]
    if not pairs:
        return None

    def ratio(of: Sequence[tuple[float, float]]) -> float:
        top, bottom = np.mean(of, axis=0)
        return float(top / bottom) if bottom else float("nan")

    count = len(pairs)
    whole = ratio(pairs)
    if count < 2:
        return Estimate(whole, None) if np.isfinite(whole) else None
    without = np.array([ratio(pairs[:left] + pairs[left + 1 :]) for left in range(count)])
    if not (np.isfinite(whole) and np.isfinite(without).all()):
        return None
    spread = (count - 1) / count * float(((without - without.mean()) ** 2).sum())
    return Estimate(whole, spread**0.5)


def p_value(table: Table) -> float | None:
    """Two-sided t-test that the groups' means are zero on average; None for fewer than two groups."""
    from scipy.stats import t

    found, count = over_groups(table), sum(len(group) > 0 for group in table.groups)
    if found is None or found.se is None:
        return None
    if found.se == 0:
        return 1.0 if found.mean == 0 else 0.0
    return float(2 * t.sf(abs(found.mean) / found.se, count - 1))


POWER = 0.8
"""The chance with which a gain should be seen."""
WORTHWHILE = 0.02
"""The gain that one would like to be able to see: two points."""
MOST_MORE = 1000


def sensitivity(gains: Table, level: float) -> Sensitivity:
    """How small a gain a t-test would have shown, and how many more numbers two points would take.

    Parameters
    ----------
    gains : of a strategy, whose spread is taken as given.
    level : of the test.
    """
    means = np.array([group.mean() for group in gains.groups if len(group)])
    count = len(means)
    if count < 2:
        return Sensitivity(None, None, None)
    spread = float(means.std(ddof=1))
    detectable = _needed(count, level) * spread / count**0.5
    enough = bisect_left(
        range(MOST_MORE + 1),
        True,
        key=lambda extra: _needed(count + extra, level) * spread <= WORTHWHILE * (count + extra) ** 0.5,
    )
    more = enough if enough <= MOST_MORE else None
    if len(gains.values) == 1:  # the numbers are repeats
        return Sensitivity(detectable, None, more)
    return Sensitivity(detectable, more, _more_repeats(gains, level, spread))


def _more_repeats(gains: Table, level: float, spread: float) -> int | None:
    """Repeats that would do on the same domains: they shrink only what repeats differ by."""
    groups = [group for group in gains.groups if len(group)]
    count, repeats = len(groups), min(len(group) for group in groups)
    allowed = (WORTHWHILE * count**0.5 / _needed(count, level)) ** 2
    if spread**2 <= allowed:
        return 0
    if repeats < 2:
        return None
    within = float(np.mean([group.var(ddof=1) for group in groups]))
    between = max(spread**2 - within / repeats, 0.0)
    if between >= allowed:
        return None
    more = int(np.ceil(within / (allowed - between))) - repeats
    return more if more <= MOST_MORE else None


@cache
def _needed(count: int, level: float) -> float:
    """The mean, in standard errors, that a two-sided t-test of so many numbers sees four times in five."""
    from scipy.optimize import brentq
    from scipy.stats import nct, t

    critical = float(t.isf(level / 2, count - 1))
    found = brentq(lambda mean: nct.sf(critical, count - 1, mean) - POWER, 0.0, 50.0 * critical)
    return float(found)


def holm(p_values: Mapping[str, float | None]) -> dict[str, float | None]:
    """Raise p-values for having asked several questions at once (Holm 1979).

    >>> holm({"a": 0.01, "b": 0.04, "c": None})
    {'a': 0.02, 'b': 0.04, 'c': None}
    """
    known = sorted((value, name) for name, value in p_values.items() if value is not None)
    adjusted: dict[str, float | None] = dict.fromkeys(p_values)
    largest = 0.0
    for place, (value, name) in enumerate(known):
        largest = max(largest, min(1.0, value * (len(known) - place)))
        adjusted[name] = largest
    return adjusted


def discrepancy_and_test(runs: Sequence[EvaluationRun]) -> DiscrepancyAndTest:
    """Rank correlation between MMD(T,V) and the accuracy of the chosen model."""
    rounds: dict[tuple[str, int], list[tuple[str, float, float]]] = {}
    for run in runs:
        if run.mmd is not None and run.test is not None:
            rounds.setdefault((run.domain, run.repeat), []).append((run.strategy, run.mmd, run.test))
    points = [point for found in rounds.values() for point in found]
    names = list(dict.fromkeys(name for name, _, _ in points))
    means = [np.mean([point[1:] for point in points if point[0] == name], axis=0) for name in names]
    centred = []
    for found in rounds.values():
        numbers = np.array([point[1:] for point in found])
        centred += list(numbers - numbers.mean(axis=0))
    return DiscrepancyAndTest(_correlation(means), _correlation(centred))


def _correlation(points: Sequence[Values]) -> Correlation | None:
    from scipy.stats import spearmanr

    if len(points) < 3:
        return None
    numbers = np.array(points)
    if (np.ptp(numbers, axis=0) == 0).any():
        return None
    found = spearmanr(numbers[:, 0], numbers[:, 1])
    return Correlation(float(found.statistic), float(found.pvalue), len(points))


def collect(
    runs: Sequence[EvaluationRun], strategy: str, what: Callable[[EvaluationRun], float | None]
) -> dict[tuple[str, int], float | None]:
    """A number of every round of one strategy."""
    return {(run.domain, run.repeat): what(run) for run in runs if run.strategy == strategy}


def minus(
    first: Mapping[tuple[str, int], float | None], second: Mapping[tuple[str, int], float | None]
) -> dict[tuple[str, int], float | None]:
    """Differences on the same rounds."""
    found: dict[tuple[str, int], float | None] = {}
    for key, value in first.items():
        other = second.get(key)
        found[key] = None if value is None or other is None else value - other
    return found


Codes = NDArray[np.int64]


def balanced_accuracy(
    predicted: Codes, labels: Codes, weights: NDArray[np.float64] | None = None
) -> float | None:
    """Mean over the classes that occur of the share of their rows predicted right; None without rows.

    >>> balanced_accuracy(np.array([0, 0, 0, 0]), np.array([0, 0, 0, 1]))
    0.5
    """
    if not len(labels):
        return None
    every = np.ones(len(labels)) if weights is None else weights
    total = np.bincount(labels, every)
    right = np.bincount(labels, every * (predicted == labels), minlength=len(total))
    there = total > 0
    return float((right[there] / total[there]).mean()) if there.any() else None


def by_domain(
    predicted: Codes,
    labels: Codes,
    domains: Codes,
    names: tuple[str, ...],
    weights: NDArray[np.float64] | None = None,
) -> dict[str, float]:
    """Class-balanced accuracy in every domain that has rows."""
    found = {}
    for code in np.unique(domains):
        inside = domains == code
        score = balanced_accuracy(
            predicted[inside], labels[inside], None if weights is None else weights[inside]
        )
        if score is not None:
            found[names[code]] = score
    return found
