"""Quick models on frozen features: their hyper-parameters, and how each is built."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.baselines import Pairs
from clustersplit_cli.errors import InputError, UsageError
from clustersplit_cli.evaluation.rounds import Chance, Rows, capped
from clustersplit_cli.evaluation.space import Parameter, Params, Space
from clustersplit_cli.evaluation.statistics import balanced_accuracy, by_domain
from clustersplit_cli.evaluation.trials import Record, Setting, TrainingSet, Trial, make_record

MIXED = "mixed"
COMPONENTS = Parameter("components", "choice", values=(8, 16, 32, 64))
TREES = 20


@dataclass(frozen=True)
class Probe:
    """A kind of model: what to draw, and how to build it for `n_features` standardised features."""

    parameters: tuple[Parameter, ...]
    build: Callable[[Params, int, int], Any]


def _logreg(params: Params, n_features: int, seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=params["C"], class_weight=params["class_weight"], max_iter=60, tol=1e-3)


def _svm(params: Params, n_features: int, seed: int) -> Any:
    from sklearn.svm import SVC

    # Widths are in units of 1 / (total variance), as for the split's own kernel.
    return SVC(C=params["C"], gamma=_number(params["width"]) / n_features, tol=1e-2, cache_size=100)


def _neighbours(params: Params, n_features: int, seed: int) -> Any:
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(
        n_neighbors=params["neighbours"],
        weights=params["weights"],
        metric=params["metric"],
        algorithm="brute",
    )


def _forest(params: Params, n_features: int, seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(
        n_estimators=TREES,
        max_depth=params["depth"],
        min_samples_leaf=params["leaf"],
        max_features="sqrt",
        random_state=seed,
    )


def _mlp(params: Params, n_features: int, seed: int) -> Any:
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(
        hidden_layer_sizes=(params["hidden"],),
        learning_rate_init=params["rate"],
        alpha=params["decay"],
        batch_size=params["batch"],
        max_iter=params["epochs"],
        random_state=seed,
    )


PROBES = {
    "logreg": Probe(
        (
            Parameter("C", "loguniform", 1e-4, 1e2),
            Parameter("class_weight", "choice", values=(None, "balanced")),
        ),
        _logreg,
    ),
    "svm": Probe(
        (Parameter("C", "loguniform", 1e-1, 1e3), Parameter("width", "loguniform", 1e-1, 3e1)),
        _svm,
    ),
    "neighbours": Probe(
        (
            Parameter("neighbours", "logint", 1, 100),
            Parameter("weights", "choice", values=("uniform", "distance")),
            Parameter("metric", "choice", values=("euclidean", "cosine")),
        ),
        _neighbours,
    ),
    "forest": Probe((Parameter("depth", "int", 2, 14), Parameter("leaf", "logint", 1, 20)), _forest),
    "mlp": Probe(
        (
            Parameter("hidden", "logint", 8, 64),
            Parameter("rate", "loguniform", 3e-4, 3e-2),
            Parameter("decay", "loguniform", 1e-6, 1e1),
            Parameter("batch", "logint", 64, 256),
            Parameter("epochs", "int", 4, 16),
        ),
        _mlp,
    ),
}
"""Widths, depths and epochs are capped: thousands of models are trained."""


@dataclass(frozen=True)
class ProbeSpace(Space):
    """Draws a kind of model, the number of principal components it sees, and its hyper-parameters."""

    kinds: tuple[str, ...] = ()

    def draw(self, rng: np.random.Generator) -> Params:
        """Draw one setting."""
        kind = self.kinds[int(rng.integers(len(self.kinds)))]
        params: Params = {"probe": kind, COMPONENTS.name: COMPONENTS.draw(rng)}
        return params | Space(PROBES[kind].parameters).draw(rng)


def probe_space(name: str) -> ProbeSpace:
    """What to draw for a probe, or for all of them."""
    if name not in (*PROBES, MIXED):
        raise UsageError(f"--probe '{name}' is unknown", hint=f"choose one of {', '.join((*PROBES, MIXED))}")
    return ProbeSpace((), tuple(PROBES) if name == MIXED else (name,))


def build_model(params: Params, n_features: int, n_rows: int, seed: int) -> Any:
    """Build the model of a setting, for so many rows to train on."""
    kind = str(params["probe"])
    fitting = dict(params)
    if kind == "neighbours":
        fitting["neighbours"] = min(int(_number(params["neighbours"])), n_rows)
    if kind == "mlp":
        fitting["batch"] = min(int(_number(params["batch"])), n_rows)
    return PROBES[kind].build(fitting, n_features, seed)


def check_available() -> None:
    """Refuse to start without scikit-learn."""
    from importlib.util import find_spec

    if find_spec("sklearn") is None:
        raise InputError(
            "--probe needs scikit-learn, which is not installed", hint="pip install scikit-learn"
        )


def _number(value: Any) -> float:
    return float(value)


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
        self.weights = training.weights
        if self.weights is not None:
            self.weights = self.weights[np.searchsorted(training.val, self.val)]
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
        weighted = None
        if self.weights is not None:
            weighted = balanced_accuracy(predicted[:n_val], data.labels[self.val], self.weights)
        return make_record(
            trial,
            val=by_domain(predicted[:n_val], data.labels[self.val], data.domains[self.val], data.names),
            mixed=mixed,
            weighted=weighted,
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
