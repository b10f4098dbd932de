"""Quick models on frozen features: their hyper-parameters, and how each is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from clustersplit_cli.errors import InputError, UsageError
from clustersplit_cli.evaluation.space import Parameter, Params, Space

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
            "--probe needs scikit-learn, which is not installed", hint="pip install 'clustersplit[sklearn]'"
        )


def _number(value: Any) -> float:
    return float(value)
