"""Domain-adversarial (DANN), correlation-aligned (CORAL) and plain (ERM) training; heads on frozen features.

Whatever has a `featurizer` and a linear `classifier` can be trained: heads here, whole networks elsewhere.
Written from the papers (Ganin et al. 2016; Sun & Saenko 2016), with the losses, alternation of steps and
hyper-parameters of the DomainBed protocol (Gulrajani & Lopez-Paz 2021).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

HIDDEN, EMBEDDING = 128, 64


class Head(nn.Module):
    """A small network from frozen features to an embedding, and a linear classifier."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.featurizer = nn.Sequential(
            nn.Linear(n_features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, EMBEDDING), nn.ReLU()
        )
        self.classifier = nn.Linear(EMBEDDING, n_classes)

    def forward(self, rows: Tensor) -> Tensor:
        """Scores of the classes."""
        scores: Tensor = self.classifier(self.featurizer(rows))
        return scores


class Trainable(Protocol):
    """A network in two parts."""

    featurizer: nn.Module
    classifier: nn.Linear

    def parameters(self) -> Iterator[nn.Parameter]:
        """All weights."""


class Batches:
    """Minibatches of one domain, drawn with replacement."""

    def __init__(self, rows: Tensor, labels: Tensor | None, size: int, chance: torch.Generator) -> None:
        self.rows, self.labels, self.size, self.chance = rows, labels, size, chance

    def draw(self) -> tuple[Tensor, Tensor | None]:
        """Draw one."""
        taken = torch.randint(len(self.rows), (self.size,), generator=self.chance)
        return self.rows[taken], None if self.labels is None else self.labels[taken]


def adam(
    trained: Trainable | nn.Module,
    params: dict[str, Any],
    suffix: str = "",
    betas: tuple[float, float] = (0.9, 0.999),
) -> torch.optim.Adam:
    """Make an optimizer with the hyper-parameters whose names have that suffix."""
    return torch.optim.Adam(
        trained.parameters(),
        lr=params[f"lr{suffix}"],
        weight_decay=params[f"weight_decay{suffix}"],
        betas=betas,
        fused=params.get("fused", False),
    )


def train_dann(
    head: Trainable, labelled: Sequence[Batches], unlabelled: Sequence[Batches], params: dict[str, Any]
) -> None:
    """Alternate steps of a discriminator of domains with steps of the head that tries to fool it.

    The unlabelled rows are one more domain to the discriminator and nothing to the classifier.
    """
    sources = [*labelled, *unlabelled]
    width = head.classifier.in_features
    discriminator = nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, len(sources)))
    betas = (params["beta1"], 0.9)
    chase = adam(discriminator, params, "_d", betas)
    learn = adam(head, params, "", betas)
    turns = params["d_steps_per_g_step"] + 1
    for step in range(params["steps"]):
        drawn = [source.draw() for source in sources]
        domains = torch.arange(len(sources)).repeat_interleave(len(drawn[0][0]))
        chasing = step % turns < params["d_steps_per_g_step"]
        with torch.set_grad_enabled(not chasing):  # the discriminator's steps leave the head alone
            embedded = head.featurizer(torch.cat([rows for rows, _ in drawn]))
        loss = functional.cross_entropy(discriminator(embedded), domains)
        if chasing:
            chase.zero_grad()
            (loss + params["grad_penalty"] * _penalty(discriminator, embedded, domains)).backward()
            chase.step()
            continue
        n_labelled = sum(len(rows) for rows, labels in drawn if labels is not None)
        labels = torch.cat([labels for _, labels in drawn if labels is not None])
        classified = functional.cross_entropy(head.classifier(embedded[:n_labelled]), labels)
        learn.zero_grad()
        (classified - params["lambda"] * loss).backward()
        learn.step()


def _penalty(discriminator: nn.Module, embedded: Tensor, domains: Tensor) -> Tensor:
    """Mean squared norm of the discriminator's gradient by its input."""
    embedded = embedded.detach().requires_grad_(True)
    loss = functional.cross_entropy(discriminator(embedded), domains, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, embedded, create_graph=True)
    return (gradient**2).sum(dim=1).mean()


def train_coral(
    head: Trainable, labelled: Sequence[Batches], unlabelled: Sequence[Batches], params: dict[str, Any]
) -> None:
    """Classify while the means and covariances of the domains' embeddings are drawn together.

    Without `coral_penalty` it is empirical risk minimisation.
    """
    learn = adam(head, params)
    for _ in range(params["steps"]):
        drawn = [source.draw() for source in labelled]
        embedded = head.featurizer(torch.cat([rows for rows, _ in drawn]))
        labels = torch.cat([labels for _, labels in drawn if labels is not None])
        loss = functional.cross_entropy(head.classifier(embedded), labels)
        if params.get("coral_penalty", 0.0):
            loss = loss + params["coral_penalty"] * moments_apart(embedded.unflatten(0, (len(drawn), -1)))
        learn.zero_grad()
        loss.backward()
        learn.step()


def moments_apart(embedded: Tensor) -> Tensor:
    """Mean squared difference of means plus that of covariances, averaged over pairs of domains.

    `embedded` is domains x rows x dimensions. The sum over pairs of |a - b|^2 is the number of domains times
    that of |a - mean|^2: no pair is visited.
    """
    means = embedded.mean(dim=1, keepdim=True)
    centred = embedded - means
    spreads = centred.mT @ centred / (embedded.shape[1] - 1)
    pairs = max(len(embedded) - 1, 1) / 2
    return sum(
        (
            (moments - moments.mean(dim=0)).pow(2).flatten(1).mean(dim=1).sum() / pairs
            for moments in (means, spreads)
        ),
        torch.zeros(()),
    )


ALGORITHMS = {"dann": train_dann, "coral": train_coral, "erm": train_coral}
