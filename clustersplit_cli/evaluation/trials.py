"""Trials: a training set and a setting; what came of it; and a name that is the same for the same trial."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.baselines import Pairs
from clustersplit_cli.evaluation.rounds import Chance, Round, Rows
from clustersplit_cli.evaluation.space import Params, Space


@dataclass(frozen=True)
class Setting:
    """One draw of hyper-parameters, and the seed of the training itself."""

    number: int
    params: Params
    seed: int


@dataclass(frozen=True)
class TrainingSet:
    """Rows to train on, and rows to score on besides those of the evaluation domain.

    Attributes
    ----------
    train, val : rows of the arena, ascending; together the development rows. No `val`: nothing to choose by.
    pairs : validation rows to mix, by rows of the arena; None: nothing is mixed.
    weights : of validation rows, in their order, with which they stand for E; None: nothing is weighted.
    """

    round: Round
    train: Rows
    val: Rows
    pairs: Pairs | None = None
    weights: NDArray[np.float64] | None = None

    @cached_property
    def digest(self) -> str:
        """A name for the rows."""
        rows = hashlib.blake2b(np.ascontiguousarray(self.train).tobytes(), digest_size=8)
        return rows.hexdigest()


@dataclass(frozen=True)
class Trial:
    """A training set and a setting."""

    training: TrainingSet
    setting: Setting

    @cached_property
    def key(self) -> str:
        """The same for the same round, rows and setting, and different otherwise."""
        round_ = self.training.round
        content = [round_.domain, round_.repeat, self.training.digest, self.setting.number]
        content += [self.setting.params, self.setting.seed]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=10).hexdigest()


@dataclass(frozen=True)
class Record:
    """What came of a trial: class-balanced accuracies, or why there are none.

    Attributes
    ----------
    val, mixed : by validation domain; `mixed` is None where nothing was to be mixed.
    weighted : over all validation rows, by their weights; None where they have none.
    test : on the evaluation domain.
    error : in one line, if the trial failed.
    """

    key: str
    domain: str
    repeat: int
    training: str
    setting: int
    params: Params
    val: dict[str, float]
    mixed: dict[str, float] | None
    test: float | None
    seconds: float
    error: str | None = None
    weighted: float | None = None

    @property
    def failed(self) -> bool:
        """Whether there is nothing to count."""
        return self.error is not None

    def answers(self, trial: Trial) -> bool:
        """Whether everything the trial is to be scored on was scored."""
        training = trial.training
        is_mixed = self.mixed is not None or training.pairs is None
        return not self.failed and is_mixed and (self.weighted is not None or training.weights is None)


def make_record(
    trial: Trial,
    *,
    val: dict[str, float] | None = None,
    mixed: dict[str, float] | None = None,
    weighted: float | None = None,
    test: float | None = None,
    seconds: float = 0.0,
    error: str | None = None,
) -> Record:
    """Put the outcome of a trial on record."""
    round_ = trial.training.round
    return Record(
        trial.key,
        round_.domain,
        round_.repeat,
        trial.training.digest,
        trial.setting.number,
        trial.setting.params,
        val or {},
        mixed,
        test,
        seconds,
        error,
        weighted,
    )


def draw_settings(space: Space, round_: Round, count: int) -> list[Setting]:
    """Draw the settings of a round; all its strategies choose among the same ones."""
    settings = []
    for number in range(count):
        rng = round_.rng(Chance.SETTING, number)
        params = space.draw(rng)
        settings.append(Setting(number, params, int(rng.integers(2**31))))
    return settings


def missing(trials: Sequence[Trial], known: dict[str, Record]) -> list[Trial]:
    """The trials that nobody has answered yet, each once."""
    wanted = {trial.key: trial for trial in trials}
    return [trial for key, trial in wanted.items() if key not in known or not known[key].answers(trial)]
