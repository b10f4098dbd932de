"""Who is left out, when: one round per evaluation domain and repeat, each with its own chances."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.dataset import Categories, Dataset, TargetRows
from clustersplit_cli.errors import InputError, UsageError

Rows = NDArray[np.int64]


class Chance(IntEnum):
    """What a random stream is for: each purpose has its own, so that none shifts another."""

    SETTING = 0
    SPLIT = 1
    MIX = 2
    ADAPT = 3
    ROWS = 4
    AIM = 5


@dataclass(frozen=True)
class Arena:
    """All rows with their labels and domains, as codes.

    Attributes
    ----------
    dataset : holds the rows; its categories are `label` and `domain`.
    labels, domains : (n,)
    names : of the domains.
    target : rows without labels of where models will be used, if they were given.
    """

    dataset: Dataset
    labels: Rows
    domains: Rows
    names: tuple[str, ...]
    target: TargetRows | None = None

    @classmethod
    def of(cls, dataset: Dataset) -> Arena:
        """Take the labels and domains of a dataset; one with a target needs no domains."""
        label, target = dataset.categories["label"], dataset.target
        domain = dataset.categories.get("domain") or Categories(np.zeros_like(label.codes), (ONLY_DOMAIN,))
        if len(domain.values) < 2 and target is None:
            raise InputError(
                f"there is only one domain, {domain.values[0]}: nothing is left to develop on without it",
                hint="evaluate needs two domains or more; name their column with --domain",
            )
        names = tuple(str(value) for value in domain.values)
        dataset = replace(dataset, categories={"label": label, "domain": domain}, target=None)
        return cls(dataset, label.codes.astype(np.int64), domain.codes.astype(np.int64), names, target)

    def unlabelled(self, round_: Round) -> TargetRows:
        """The rows of E as they may be used before the test: without labels."""
        if round_.is_of_target:
            assert self.target is not None
            return self.target
        rows = round_.adapt if len(round_.adapt) else np.flatnonzero(self.domains == round_.place)
        return TargetRows(np.ascontiguousarray(self.dataset.features[rows]), round_.domain, len(rows))


@dataclass(frozen=True)
class Round:
    """One evaluation domain, one repeat.

    Attributes
    ----------
    domain, place : name and code of the evaluation domain E; for a target, the number of domains.
    development : rows of all other domains, ascending.
    test : rows of E that models are tested on; none of a target, whose labels nobody knows.
    adapt : rows of E that may be used without their labels; none of them is tested on.
    """

    domain: str
    place: int
    repeat: int
    seed: int
    development: Rows
    test: Rows
    adapt: Rows

    @property
    def is_of_target(self) -> bool:
        """Whether E is a target without labels."""
        return not len(self.test)

    def rng(self, purpose: Chance, *more: int) -> np.random.Generator:
        """The stream of chances for a purpose."""
        return np.random.default_rng([self.seed, self.place, self.repeat, int(purpose), *more])


ONLY_DOMAIN = "all"
"""The domain of rows that have none."""


def target_rounds(arena: Arena, repeats: int, seed: int) -> list[Round]:
    """One round per repeat in which E is the target: all rows are for development, and none to test on."""
    if arena.target is None:
        return []
    rows, none = np.arange(len(arena.labels)), np.empty(0, np.int64)
    name, place = arena.target.name, len(arena.names)
    return [Round(name, place, repeat, seed, rows, none, none) for repeat in range(repeats)]


def make_rounds(
    arena: Arena, domains: tuple[str, ...] | None, repeats: int, seed: int, *, adapt: bool
) -> list[Round]:
    """One round per evaluation domain and repeat; none where there is but one domain.

    Rows of E whose class no development row has cannot be predicted by anyone: they are not tested on.

    Parameters
    ----------
    domains : those to evaluate on; None for all in turn.
    adapt : set half of E apart for adaptation.
    """
    rounds = []
    for name in domains or (arena.names if len(arena.names) > 1 else ()):
        if name not in arena.names:
            raise UsageError(
                f"--evaluation-domain {name}: there is no such domain",
                hint=f"choose among {', '.join(arena.names[:10])}",
            )
        place = arena.names.index(name)
        inside = arena.domains == place
        development, outside = np.flatnonzero(~inside), np.flatnonzero(inside)
        known = np.isin(arena.labels, np.unique(arena.labels[development]))
        for repeat in range(repeats):
            made = Round(name, place, repeat, seed, development, outside, outside[:0])
            if adapt:
                shuffled = made.rng(Chance.ADAPT).permutation(outside)
                half = len(shuffled) // 2
                made = Round(
                    name, place, repeat, seed, development, np.sort(shuffled[half:]), np.sort(shuffled[:half])
                )
            test = made.test[known[made.test]]
            if not len(test):
                raise InputError(
                    f"no row of domain {name} has a label that another domain has",
                    hint="leave it out with --exclude, or choose others with --evaluation-domain",
                )
            rounds.append(Round(name, place, repeat, seed, development, test, made.adapt))
    return rounds


def capped(rows: Rows, groups: NDArray[np.int64], limit: int, rng: np.random.Generator) -> Rows:
    """At most `limit` of the rows, of every group its share, ascending.

    Parameters
    ----------
    groups : (len(rows),), the group of each.
    """
    if len(rows) <= limit:
        return rows
    shuffled = rng.permutation(len(rows))
    order = shuffled[np.argsort(groups[shuffled], kind="stable")]
    sizes = np.bincount(groups)
    sizes = sizes[sizes > 0]
    rank = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # The first p percent of every group come before the first p + 1 percent of any.
    depth = (rank + 0.5) / np.repeat(sizes, sizes)
    taken = order[np.argsort(depth, kind="stable")[:limit]]
    return np.sort(rows[taken])
