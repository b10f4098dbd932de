"""The protocol: every domain left out in turn, split by every strategy, every setting trained and scored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.baselines import Pairs
from clustersplit_cli.core.severity import Scale
from clustersplit_cli.evaluation.rounds import Arena, Round
from clustersplit_cli.evaluation.space import Space
from clustersplit_cli.evaluation.store import TrialStore
from clustersplit_cli.evaluation.strategies import (
    MIX_UP,
    WEIGHTED,
    Reach,
    Splitter,
    StrategySplit,
    graded,
)
from clustersplit_cli.evaluation.trials import Record, Setting, TrainingSet, Trial, draw_settings, missing
from clustersplit_cli.evaluation.workers import Runner
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.progress import Progress, silent


@dataclass(frozen=True)
class Entry:
    """A strategy in a round: the training sets of its folds, and how far apart its sides are."""

    strategy: str
    trainings: tuple[TrainingSet, ...]
    mmd: float

    @property
    def mixed(self) -> bool:
        """Whether models are chosen on mixed rows."""
        return self.strategy == MIX_UP

    @property
    def is_weighted(self) -> bool:
        """Whether models are chosen on weighted rows."""
        return self.strategy == WEIGHTED


@dataclass(frozen=True)
class Slope:
    """What a curve is drawn through in a round.

    Attributes
    ----------
    entries : graded splits, by their severity, ascending.
    """

    entries: Mapping[float, Entry]
    reach: Reach


@dataclass(frozen=True)
class Contest:
    """A round made ready: all strategies choose among the same settings.

    `everything` is all development rows as a training set, for retraining; None: nothing is retrained.
    `slope` is None without a curve.
    """

    round: Round
    settings: tuple[Setting, ...]
    entries: tuple[Entry, ...]
    everything: TrainingSet | None
    slope: Slope | None = None

    def trials(self) -> Iterator[Trial]:
        """Every pair of training set and setting, once."""
        entries = (*self.entries, *(self.slope.entries.values() if self.slope else ()))
        trainings = {training.digest: training for entry in entries for training in entry.trainings}
        if self.everything is not None:
            trainings[self.everything.digest] = self.everything
        for training in trainings.values():
            yield from (Trial(training, setting) for setting in self.settings)


def prepare(
    arena: Arena,
    rounds: Sequence[Round],
    strategies: Sequence[str],
    space: Space,
    options: CheckedOptions,
    store: TrialStore,
    *,
    search: int,
    folds: int,
    refit: bool,
    levels: Sequence[float] = (),
    progress: Progress = silent,
) -> list[Contest]:
    """Split the development rows of every round and draw its settings; splits on disk are not made again.

    Parameters
    ----------
    levels : severities of the splits that a curve is drawn through; none: no curve.
    """
    contests: list[Contest] = []
    steps = (*strategies, *map(graded, levels))
    total = len(rounds) * len(steps)
    for place, group in groupby(rounds, key=lambda round_: round_.place):
        with ExitStack() as stack:
            splitter: Splitter | None = None
            for round_ in group:
                name = f"{round_.place}-{round_.repeat}"
                kept = store.load_arrays(name) or {}
                splits = []
                if levels and REACH not in kept:  # first, since a target may be refused
                    splitter = splitter or Splitter(arena, place, options, folds, stack)
                    kept[REACH] = _reach_as_array(splitter.reach(round_))
                    store.keep_arrays(name, kept)
                for number, strategy in enumerate(steps):
                    progress("splitting", len(contests) * len(steps) + number, total)
                    found = unpacked(strategy, kept, len(round_.development))
                    if found is None:
                        splitter = splitter or Splitter(arena, place, options, folds, stack)
                        found = splitter.split(strategy, round_)
                        kept |= packed(found)
                        store.keep_arrays(name, kept)
                    splits.append(found)
                settings = tuple(draw_settings(space, round_, search))
                contest = _contest(round_, settings, splits, refit=refit)
                contests.append(_with_slope(contest, levels, kept))
    return contests


def _with_slope(
    contest: Contest, levels: Sequence[float], kept: Mapping[str, NDArray[np.generic]]
) -> Contest:
    """Tell the graded splits, which come last, from those of strategies."""
    if not levels:
        return contest
    strategies, grades = contest.entries[: -len(levels)], contest.entries[-len(levels) :]
    mmd, p_value, random, best = (float(value) for value in kept[REACH].astype(np.float64))
    reach = Reach(mmd, p_value, Scale(random, best))
    slope = Slope(dict(zip(levels, grades, strict=True)), reach)
    return replace(contest, entries=strategies, slope=slope)


REACH = "reach"
"""The name under which it is kept."""


def _reach_as_array(reach: Reach) -> NDArray[np.float64]:
    return np.array([reach.mmd, reach.p_value, reach.scale.random, reach.scale.best])


def run_trials(
    contests: Sequence[Contest], store: TrialStore, runner: Runner, progress: Progress = silent
) -> dict[str, Record]:
    """Run every trial that is not on disk yet; return the records of all."""
    trials = [trial for contest in contests for trial in contest.trials()]
    to_do = missing(trials, store.records)
    done = 0
    progress("training", done, len(to_do))
    for records in runner.run(to_do):
        store.append(records)
        done += len(records)
        progress("training", done, len(to_do))
    return {trial.key: store.records[trial.key] for trial in trials}


def _contest(
    round_: Round, settings: tuple[Setting, ...], splits: Sequence[StrategySplit], *, refit: bool
) -> Contest:
    """Make training sets of splits; the same rows are one training set, whoever chose them."""
    trainings: dict[str, TrainingSet] = {}
    chosen: list[tuple[StrategySplit, list[str]]] = []
    rows = round_.development
    for split in splits:
        digests = []
        for members in split.folds:
            pairs = split.pairs
            if pairs is not None:
                pairs = Pairs(rows[pairs.first], rows[pairs.second], pairs.weights)
            made = TrainingSet(round_, rows[~members], rows[members], pairs, split.weights)
            known = trainings.get(made.digest)
            if known is not None:
                weights = known.weights if made.weights is None else made.weights
                made = replace(made, pairs=pairs or known.pairs, weights=weights)
            trainings[made.digest] = made
            digests.append(made.digest)
        chosen.append((split, digests))
    entries = tuple(
        Entry(split.strategy, tuple(trainings[digest] for digest in digests), split.mmd)
        for split, digests in chosen
    )
    everything = TrainingSet(round_, rows, rows[:0]) if refit else None
    return Contest(round_, settings, entries, everything)


def packed(split: StrategySplit) -> dict[str, NDArray[np.generic]]:
    """A split as arrays to keep."""
    name = split.strategy
    arrays: dict[str, NDArray[np.generic]] = {
        f"{name}/folds": np.stack(split.folds),
        f"{name}/mmd": np.array(split.mmd),
    }
    if split.weights is not None:
        arrays[f"{name}/weights"] = split.weights
    if split.pairs is not None:
        arrays[f"{name}/first"] = split.pairs.first
        arrays[f"{name}/second"] = split.pairs.second
        arrays[f"{name}/weights"] = split.pairs.weights
    return arrays


def unpacked(strategy: str, arrays: dict[str, NDArray[np.generic]], n: int) -> StrategySplit | None:
    """A split from kept arrays; None if it is not among them."""
    folds = arrays.get(f"{strategy}/folds")
    if folds is None or folds.shape[1] != n:
        return None
    pairs = None
    if strategy == MIX_UP:
        parts = (arrays[f"{strategy}/{part}"] for part in ("first", "second", "weights"))
        first, second, shares = parts
        pairs = Pairs(first.astype(np.int64), second.astype(np.int64), shares.astype(np.float64))
    members = tuple(fold.astype(np.bool_) for fold in folds)
    weights = arrays[f"{strategy}/weights"].astype(np.float64) if strategy == WEIGHTED else None
    return StrategySplit(strategy, members, float(arrays[f"{strategy}/mmd"]), pairs, weights)
