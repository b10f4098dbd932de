"""One training for `clustersplit evaluate --command`: index files and hyper-parameters in, metrics out.

clustersplit evaluate FEATURES --space benchmarks/evidence/model_selection/dann.toml --command "python -m
benchmarks.evidence.model_selection.train --features {features} --train {train} --val {val} --test {test}
--adapt {adapt} --mixup {mixup} --params {params} --out {out} --seed {seed}"
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.evidence.model_selection.heads import ALGORITHMS, Batches, Head
from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.readers import load
from clustersplit_cli.evaluation.statistics import balanced_accuracy, by_domain
from clustersplit_cli.progress import silent

Rows = NDArray[np.int64]
MOST_FEATURES = 256
"""Wider features go through a fixed random projection, which saves most of the time."""


@lru_cache(maxsize=2)
def read(path: Path) -> tuple[NDArray[np.float32], Rows, Rows, tuple[str, ...]]:
    """Features, labels, domains, and the domains' names."""
    dataset = load(ReadRequest(path=path, stratify=("label", "domain")), silent)
    label, domain = dataset.categories["label"], dataset.categories["domain"]
    names = tuple(str(value) for value in domain.values)
    features = np.ascontiguousarray(dataset.features, dtype=np.float32)
    return features, label.codes.astype(np.int64), domain.codes.astype(np.int64), names


def projection(n_features: int) -> NDArray[np.float32] | None:
    """A Gaussian projection that depends on the number of features alone; None where there are few."""
    if n_features <= MOST_FEATURES:
        return None
    drawn = np.random.default_rng(0).normal(size=(n_features, MOST_FEATURES))
    return (drawn / np.sqrt(n_features)).astype(np.float32)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, score, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("features", "train", "val", "test", "adapt", "mixup", "params", "out"):
        parser.add_argument(f"--{name}", type=Path, required=name not in ("adapt", "mixup"))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    chance = torch.Generator().manual_seed(given.seed)
    params = json.loads(given.params.read_text("utf-8"))
    features, labels, domains, names = read(given.features)
    train, val, test = (np.load(path) for path in (given.train, given.val, given.test))
    adapt = test[:0] if given.adapt is None else np.load(given.adapt)

    mean, deviation = features[train].mean(axis=0), features[train].std(axis=0)
    scale = 1.0 / np.where(deviation > 0, deviation, np.inf)

    project = projection(features.shape[1])

    def seen(rows: NDArray[np.floating]) -> torch.Tensor:
        standard = ((rows - mean) * scale).astype(np.float32)
        return torch.from_numpy(standard if project is None else standard @ project)

    def batches(rows: Rows, *, labelled: bool) -> Batches:
        truth = torch.from_numpy(labels[rows]) if labelled else None
        return Batches(seen(features[rows]), truth, params["batch_size"], chance)

    sources = [batches(train[domains[train] == code], labelled=True) for code in np.unique(domains[train])]
    targets = [batches(adapt, labelled=False)] if len(adapt) else []
    head = Head(min(features.shape[1], MOST_FEATURES), int(labels.max()) + 1)
    head.train()
    ALGORITHMS[params["algorithm"]](head, sources, targets, params)
    head.eval()

    def predict(rows: NDArray[np.floating]) -> Rows:
        with torch.no_grad():
            return head(seen(rows)).argmax(dim=1).numpy()

    metrics = {"test": balanced_accuracy(predict(features[test]), labels[test])}
    if len(val):
        metrics["val"] = by_domain(predict(features[val]), labels[val], domains[val], names)
    pairs = np.empty((0, 3)) if given.mixup is None else np.load(given.mixup)
    if len(pairs):
        first, second, weights = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64), pairs[:, 2]
        mixed = weights[:, None] * features[first] + (1 - weights[:, None]) * features[second]
        found = np.tile(predict(mixed), 2)  # a mixed row counts as both its rows, each with its weight
        both = np.concatenate([first, second])
        metrics["mixup"] = by_domain(
            found, labels[both], domains[both], names, np.concatenate([weights, 1 - weights])
        )
    given.out.write_text(json.dumps(metrics) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
