"""The network of the paper's acoustic pipeline, trained from scratch by an algorithm, and its features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.evidence.model_selection.heads import ALGORITHMS, Batches
from benchmarks.evidence.networks.pictures import Codes, Pictures, Pixels
from clustersplit_cli.evaluation.statistics import balanced_accuracy

CHANNELS, LAYERS, CLASSES = 16, 4, 10
FINE_TUNING = {
    "algorithm": "erm",
    "lr": 1e-3,
    "weight_decay": 0.0,
    "batch_size": 32,
    "steps": 600,
    "fused": True,
}
"""What features are trained with that rows are clustered by."""


class Network(nn.Module):
    """Four convolutions of 16 channels, 3 x 3 with stride 2, the mean over the picture, one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for layer in range(LAYERS):
            layers += [nn.Conv2d(CHANNELS if layer else 1, CHANNELS, 3, stride=2, padding=1), nn.ReLU()]
        self.featurizer = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(CHANNELS, CLASSES)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a third less time

    def forward(self, pictures: Tensor) -> Tensor:
        """Scores of the classes."""
        scores: Tensor = self.classifier(self.featurizer(pictures))
        return scores


class Trained:
    """A network trained on some rows, with the brightness of those rows.

    Parameters
    ----------
    train : rows with labels.
    adapt : rows of the evaluation domain that the algorithm may use without labels.
    """

    def __init__(
        self, pictures: Pictures, train: Codes, adapt: Codes, params: Mapping[str, Any], seed: int
    ) -> None:
        self.pictures = pictures
        self._mean = float(pictures.pixels[train].mean())
        self._scale = 1 / float(pictures.pixels[train].std())
        torch.manual_seed(seed)
        chance = torch.Generator().manual_seed(seed)
        self.network = Network()
        sources = [
            self._batches(train[pictures.domains[train] == code], params, chance, labelled=True)
            for code in np.unique(pictures.domains[train])
        ]
        targets = [self._batches(adapt, params, chance, labelled=False)] if len(adapt) else []
        ALGORITHMS[params["algorithm"]](self.network, sources, targets, dict(params))
        self.network.eval()

    def _batches(
        self, rows: Codes, params: Mapping[str, Any], chance: torch.Generator, *, labelled: bool
    ) -> Batches:
        labels = torch.from_numpy(self.pictures.labels[rows]) if labelled else None
        return Batches(self._seen(self.pictures.pixels[rows]), labels, params["batch_size"], chance)

    def _seen(self, pixels: Pixels) -> Tensor:
        seen = torch.from_numpy((pixels - self._mean) * self._scale)
        return seen.contiguous(memory_format=torch.channels_last)

    def features(self, rows: Codes) -> NDArray[np.float32]:
        """What the last layer sees of rows, shape (len(rows), 16)."""
        with torch.no_grad():
            found: NDArray[np.float32] = self.network.featurizer(
                self._seen(self.pictures.pixels[rows])
            ).numpy()
        return found

    def predictions(self, rows: Codes) -> Codes:
        """The most likely class of rows."""
        with torch.no_grad():
            found: Codes = self.network(self._seen(self.pictures.pixels[rows])).argmax(dim=1).numpy()
        return found

    def accuracies(self, rows: Codes, domains: Sequence[int]) -> list[float | None]:
        """Class-balanced accuracy in each of some domains; None where it has no rows."""
        predicted, there = self.predictions(rows), self.pictures.domains[rows]
        found = []
        for code in domains:
            inside = there == code
            score = balanced_accuracy(predicted[inside], self.pictures.labels[rows[inside]])
            found.append(None if score is None else round(score, 4))
        return found
