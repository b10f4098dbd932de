"""Training and scoring probes, in processes of their own."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.strategies.mixup import Pairs
from clustersplit_cli.evaluation.probes import COMPONENTS, build_model
from clustersplit_cli.evaluation.rounds import Chance, Rows, capped
from clustersplit_cli.evaluation.scoring import balanced_accuracy, by_domain
from clustersplit_cli.evaluation.trials import Record, Setting, TrainingSet, Trial, make_record

Matrix = NDArray[np.floating[Any]]
MOST_COMPONENTS = max(int(str(value)) for value in COMPONENTS.values)


@dataclass(frozen=True)
class ProbeData:
    """What all trials share."""

    features: Matrix
    labels: Rows
    domains: Rows
    names: tuple[str, ...]
    rows: int
    """Most rows to train on, and to score on in validation and in the evaluation domain."""


@dataclass(frozen=True)
class Projection:
    """Standardisation and principal directions, both of training rows alone."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    directions: NDArray[np.float64]

    @classmethod
    def fit(cls, rows: Matrix) -> Projection:
        """Find the leading directions of standardised rows."""
        mean = rows.mean(axis=0, dtype=np.float64)
        deviation = rows.std(axis=0, dtype=np.float64)
        scale = np.where(deviation > 0, 1.0 / np.where(deviation > 0, deviation, 1.0), 0.0)
        standard = (rows - mean) * scale
        n, d = standard.shape
        if n < d:
            values, vectors = np.linalg.eigh(standard @ standard.T)
            lengths = np.sqrt(np.maximum(values, 1e-12 * max(values[-1], 1e-300)))
            found = standard.T @ (vectors[:, ::-1] / lengths[::-1])
        else:
            found = np.linalg.eigh(standard.T @ standard)[1][:, ::-1]
        return cls(mean, scale, found[:, :MOST_COMPONENTS])

    def __call__(self, rows: Matrix) -> NDArray[np.float64]:
        """Coordinates along the leading directions."""
        return np.asarray(((rows - self.mean) * self.scale) @ self.directions)


class Bench:
    """A training set made ready: projected once for all settings."""

    def __init__(self, data: ProbeData, training: TrainingSet) -> None:
        round_ = training.round
        self.data, self.training = data, training

        def some(rows: Rows, number: int) -> Rows:
            groups = data.labels[rows] * len(data.names) + data.domains[rows]
            return capped(rows, groups, data.rows, round_.rng(Chance.ROWS, number))

        self.train, self.val = some(training.train, 0), some(training.val, 1)
        self.test = some(round_.test, 2)
        project = Projection.fit(data.features[self.train])
        seen = project(data.features[self.train])
        # One scale for all components: nearest neighbours and widths must not depend on the features' units.
        self.unit = float(np.sqrt((seen**2).sum(axis=1).mean())) or 1.0
        self.seen = seen / self.unit
        self.pairs = self._fewer(training.pairs, round_.rng(Chance.ROWS, 3))
        unseen = [project(data.features[self.val]), project(data.features[self.test])]
        if self.pairs is not None:
            first, second = (project(data.features[rows]) for rows in (self.pairs.first, self.pairs.second))
            weights = self.pairs.weights[:, None]
            unseen.append(weights * first + (1.0 - weights) * second)  # the projection is affine
        self.unseen = np.concatenate(unseen) / self.unit

    def run(self, setting: Setting) -> Record:
        """Train and score; a model that cannot be fitted is a failed trial."""
        trial = Trial(self.training, setting)
        began = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # few epochs are meant to stop early
                predicted = self._predict(setting)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
            return make_record(trial, seconds=time.perf_counter() - began, error=reason)
        data, n_val, n_test = self.data, len(self.val), len(self.test)
        mixed = None
        if self.pairs is not None:
            mixed = self._score_mixed(predicted[n_val + n_test :], self.pairs)
        return make_record(
            trial,
            val=by_domain(predicted[:n_val], data.labels[self.val], data.domains[self.val], data.names),
            mixed=mixed,
            test=balanced_accuracy(predicted[n_val : n_val + n_test], data.labels[self.test]),
            seconds=time.perf_counter() - began,
        )

    def _predict(self, setting: Setting) -> Rows:
        labels = self.data.labels[self.train]
        width = min(int(str(setting.params[COMPONENTS.name])), self.seen.shape[1])
        if (labels == labels[0]).all():
            return np.full(len(self.unseen), labels[0])
        # Components are comparable in size to standardised features, whatever their number.
        stretch = float(np.sqrt(width))
        model = build_model(setting.params, width, len(labels), setting.seed)
        model.fit(self.seen[:, :width] * stretch, labels)
        return np.asarray(model.predict(self.unseen[:, :width] * stretch), dtype=np.int64)

    def _score_mixed(self, predicted: Rows, pairs: Pairs) -> dict[str, float]:
        """A mixed row counts as both its rows, each with its weight."""
        rows = np.concatenate([pairs.first, pairs.second])
        weights = np.concatenate([pairs.weights, 1.0 - pairs.weights])
        twice = np.concatenate([predicted, predicted])
        data = self.data
        return by_domain(twice, data.labels[rows], data.domains[rows], data.names, weights)

    def _fewer(self, pairs: Pairs | None, rng: np.random.Generator) -> Pairs | None:
        if pairs is None or len(pairs.first) <= self.data.rows:
            return pairs
        kept = np.sort(rng.permutation(len(pairs.first))[: self.data.rows])
        return Pairs(pairs.first[kept], pairs.second[kept], pairs.weights[kept])


def run_probes(data: ProbeData, training: TrainingSet, settings: Sequence[Setting]) -> list[Record]:
    """Train and score every setting on one training set, on one thread."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        bench = Bench(data, training)
        return [bench.run(setting) for setting in settings]


_shared: ProbeData | None = None


def begin(folder: str, names: tuple[str, ...], rows: int) -> None:
    """Make a worker process ready: open the arrays, and leave Ctrl-C to the parent."""
    import signal

    global _shared  # noqa: PLW0603 - what a process of a pool keeps between tasks
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    arrays = [
        np.load(Path(folder, f"{name}.npy"), mmap_mode="r", allow_pickle=False)
        for name in ("features", "labels", "domains")
    ]
    _shared = ProbeData(arrays[0], np.asarray(arrays[1]), np.asarray(arrays[2]), names, rows)


def work(training: TrainingSet, settings: Sequence[Setting]) -> list[Record]:
    """Run probes in a worker process."""
    assert _shared is not None
    return run_probes(_shared, training, settings)
