"""From records to choices: which setting each strategy would take, and how it then does on E."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.evaluation.protocol import Contest, Entry
from clustersplit_cli.evaluation.trials import Record, Setting, TrainingSet, Trial
from clustersplit_cli.reports.evaluation.summary import ORACLE, EvaluationRun

MEAN, WORST = "mean", "worst"
SELECTIONS = (MEAN, WORST)
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Scored:
    """Scores of every setting, NaN where a trial failed: validation, and test on E."""

    val: Scores
    test: Scores

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Settings that can be chosen."""
        return np.isfinite(self.val) & np.isfinite(self.test)


def score(entry: Entry, settings: Sequence[Setting], records: Mapping[str, Record], select: str) -> Scored:
    """Score a strategy's settings.

    Validation: over all validation domains of all folds, their mean, or the worst of them. Test: the mean
    over the models of all folds.
    """
    val, test = [], []
    for setting in settings:
        found = [records[Trial(training, setting).key] for training in entry.trainings]
        domains = [
            value
            for record in found
            for value in ((record.mixed if entry.mixed else record.val) or {}).values()
        ]
        if any(record.failed for record in found) or not domains:
            val.append(np.nan)
            test.append(np.nan)
            continue
        val.append(min(domains) if select == WORST else float(np.mean(domains)))
        test.append(float(np.mean([record.test for record in found])))
    return Scored(np.array(val), np.array(test))


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
    usable = scored.usable
    if not usable.any():
        return EvaluationRun(
            contest.round.domain, contest.round.repeat, entry.strategy, entry.mmd, *[None] * 6
        )
    chosen = int(np.argmax(np.where(usable, scored.val, -np.inf)))
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
    )


def _oracle(contest: Contest, entry: Entry, scored: Scored, refit: Scores | None) -> EvaluationRun:
    """Choose with open eyes: the setting that does best on E."""
    tested = np.isfinite(scored.test).any()
    best = int(np.nanargmax(scored.test)) if tested else None
    value = None if best is None else float(scored.test[best])
    retrained = None if refit is None or not np.isfinite(refit).any() else float(np.nanmax(refit))
    return EvaluationRun(
        contest.round.domain, contest.round.repeat, ORACLE, None, best, None, value, retrained, value, None
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
