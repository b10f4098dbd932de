"""From records to choices: which setting each strategy would take, and how it then does on E."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.evaluation.protocol import Contest, Entry
from clustersplit_cli.evaluation.trials import Record, Setting, TrainingSet, Trial
from clustersplit_cli.reports.evaluation.summary import ORACLE, EvaluationRun

Scores = NDArray[np.float64]


def _worst_gap(domains: Sequence[float]) -> float:
    """The worst domain's score, minus how far the best is above it."""
    return 2 * min(domains) - max(domains)


MEAN = "mean"
SELECTIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    MEAN: lambda domains: float(np.mean(domains)),
    "worst": min,
    "worst-gap": _worst_gap,
}
"""How a setting's scores in several validation domains make one number to choose by."""


@dataclass(frozen=True)
class Scored:
    """Scores of every setting, NaN where a trial failed.

    Attributes
    ----------
    val : what is chosen by.
    mean : the mean over validation domains, which is that in most cases.
    test : on E; NaN where E has no labels.
    usable : settings that can be chosen.
    """

    val: Scores
    mean: Scores
    test: Scores
    usable: NDArray[np.bool_]


def score(entry: Entry, settings: Sequence[Setting], records: Mapping[str, Record], select: str) -> Scored:
    """Score a strategy's settings.

    Validation: over all validation domains of all folds, their mean, or the worst of them. Test: the mean
    over the models of all folds.
    """
    val, mean, test = (np.full(len(settings), np.nan) for _ in range(3))
    for place, setting in enumerate(settings):
        found = [records[Trial(training, setting).key] for training in entry.trainings]
        domains = [value for record in found for value in _by_domain(entry, record)]
        if any(record.failed for record in found) or not domains:
            continue
        val[place], mean[place] = SELECTIONS[select](domains), SELECTIONS[MEAN](domains)
        tested = [record.test for record in found if record.test is not None]
        if tested:
            test[place] = float(np.mean(tested))
    usable = np.isfinite(val)
    if not all(training.round.is_of_target for training in entry.trainings):
        usable &= np.isfinite(test)
    return Scored(val, mean, test, usable)


def _by_domain(entry: Entry, record: Record) -> list[float]:
    """What a strategy sees of a trial: its score in every validation domain."""
    if entry.is_weighted:
        return [] if record.weighted is None else [record.weighted]
    return list(((record.mixed if entry.mixed else record.val) or {}).values())


def choose(
    contests: Sequence[Contest], records: Mapping[str, Record], select: str, reference: str
) -> list[EvaluationRun]:
    """Let every strategy of every round choose, and the oracle on the reference's training set."""
    runs = []
    for contest in contests:
        refit = _refitted(contest.everything, contest.settings, records)
        for entry in contest.entries:
            scored = score(entry, contest.settings, records, select)
            runs.append(_run(contest, entry, scored, refit))
            if entry.strategy == reference:
                runs.append(_oracle(contest, entry, scored, refit))
    return runs


def _run(contest: Contest, entry: Entry, scored: Scored, refit: Scores | None) -> EvaluationRun:
    usable, chosen = scored.usable, choice(scored)
    if chosen is None:
        return EvaluationRun(
            contest.round.domain, contest.round.repeat, entry.strategy, entry.mmd, *[None] * 7
        )
    return EvaluationRun(
        domain=contest.round.domain,
        repeat=contest.round.repeat,
        strategy=entry.strategy,
        mmd=entry.mmd,
        setting=chosen,
        validation=float(scored.val[chosen]),
        test=float(scored.test[chosen]),
        refit=None if refit is None else _known(refit[chosen]),
        oracle=float(scored.test[usable].max()),
        rank_correlation=rank_correlation(scored.val[usable], scored.test[usable]),
        validation_mean=float(scored.mean[chosen]),
    )


def choice(scored: Scored) -> int | None:
    """The setting with the best score; None where all failed."""
    return int(np.argmax(np.where(scored.usable, scored.val, -np.inf))) if scored.usable.any() else None


def _oracle(contest: Contest, entry: Entry, scored: Scored, refit: Scores | None) -> EvaluationRun:
    """Choose with open eyes: the setting that does best on E."""
    tested = np.isfinite(scored.test).any()
    best = int(np.nanargmax(scored.test)) if tested else None
    value = None if best is None else float(scored.test[best])
    retrained = None if refit is None or not np.isfinite(refit).any() else float(np.nanmax(refit))
    return EvaluationRun(
        contest.round.domain,
        contest.round.repeat,
        ORACLE,
        mmd=None,
        setting=best,
        validation=None,
        test=value,
        refit=retrained,
        oracle=value,
        rank_correlation=None,
        validation_mean=None,
    )


def _refitted(
    everything: TrainingSet | None, settings: Sequence[Setting], records: Mapping[str, Record]
) -> Scores | None:
    """Test scores of settings trained on all development rows."""
    if everything is None:
        return None
    found = [records[Trial(everything, setting).key].test for setting in settings]
    return np.array([np.nan if value is None else value for value in found])


def rank_correlation(first: Scores, second: Scores) -> float | None:
    """Spearman's rho; None where one side does not vary or there are too few."""
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    from scipy.stats import spearmanr

    return float(spearmanr(first, second).statistic)


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
