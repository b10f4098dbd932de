"""Small problems with known answers, and evaluations of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.evaluation.commands import Template
from clustersplit_cli.evaluation.run import EvaluationPlan, evaluate
from clustersplit_cli.evaluation.strategies import parse_strategies
from clustersplit_cli.options import SplitOptions, check_options
from clustersplit_cli.reports.evaluation.summary import EvaluationReport


@pytest.fixture(scope="session")
def small(make_dataset: Callable[..., Dataset]) -> Dataset:
    """Three domains, three classes, 180 rows."""
    rng = np.random.default_rng(3)
    labels, domains = np.tile([0, 1, 2], 60), np.repeat([0, 1, 2], 60)
    rows = (
        rng.normal(size=(180, 5)) + labels[:, None] * [1.0, 0.5, 0, 0, 0] + domains[:, None] * [0, 0, 1, 0, 0]
    )
    return make_dataset(rows, label=np.array(list("abc"))[labels], domain=np.array(["p", "q", "r"])[domains])


@pytest.fixture(scope="session")
def run() -> Callable[..., EvaluationReport]:
    """Return a function that evaluates a dataset into a directory."""

    def call(dataset: Dataset, directory: Path, **given: Any) -> EvaluationReport:
        plan: dict[str, Any] = {
            "strategies": parse_strategies(given.pop("strategies", ["random", "cluster-rbf", "mix-up"])),
            "search": 4,
            "repeats": 1,
            "folds": 3,
            "select": "mean",
            "refit": True,
            "domains": None,
            "jobs": 1,
            "probe": "mixed",
            "probe_rows": 100,
        }
        options = {"effort": "fast", "restarts": 2, "threads": 1, **given.pop("options", {})}
        rest = {name: given.pop(name) for name in ("resume", "force", "progress") if name in given}
        if "command" in given:
            given["command"] = Template.parse(given["command"])
        return evaluate(
            dataset,
            Path("features"),
            check_options(SplitOptions(**options)),
            EvaluationPlan(**{**plan, **given}),
            directory,
            config={"probe": "mixed", "search": plan["search"], "repeats": plan["repeats"]},
            **rest,
        )

    return call


def poisoned(dataset: Dataset, domain: str) -> Dataset:
    """The dataset with other features, and other labels, in one domain."""
    from dataclasses import replace

    from clustersplit_cli.data.dataset import Categories

    column = dataset.categories["domain"]
    inside = column.codes == column.values.index(domain)
    rng = np.random.default_rng(99)
    features: NDArray[Any] = dataset.features.copy()
    features[inside] = 1e3 * rng.standard_cauchy(size=features[inside].shape)
    label = dataset.categories["label"]
    codes = label.codes.copy()
    codes[inside] = rng.integers(len(label.values), size=int(inside.sum()))
    return replace(
        dataset, features=features, categories={"label": Categories(codes, label.values), "domain": column}
    )
