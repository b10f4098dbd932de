"""The strategies that compete: how each parts the development rows of a round."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.baselines import (
    LEAVE_ONE_DOMAIN_OUT,
    SEEDED,
    Pairs,
    draw_pairs,
    leave_one_out,
    mix,
)
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.mmd.evaluation import mean_kernel, side_norms
from clustersplit_cli.core.search.problem import Members, Problem, evaluate
from clustersplit_cli.core.severity import Scale
from clustersplit_cli.data.dataset import Categories, Dataset
from clustersplit_cli.data.subset import keep_rows
from clustersplit_cli.errors import UsageError
from clustersplit_cli.evaluation.rounds import Arena, Chance, Round
from clustersplit_cli.options import LOOKALIKE, NEAREST, CheckedOptions
from clustersplit_cli.pipeline.context import PartitionOptions, Streams, requirements_of
from clustersplit_cli.pipeline.local.context import LocalFound
from clustersplit_cli.pipeline.local.engine import prepared_split
from clustersplit_cli.pipeline.local.partition import LocalPartition
from clustersplit_cli.pipeline.local.split import LocalSplit
from clustersplit_cli.pipeline.local.target import LocalTarget, see_target
from clustersplit_cli.pipeline.run import grade

MIX_UP = "mix-up"
AIMED = {"target-lookalike": LOOKALIKE, "target-nearest": NEAREST}
"""Strategies that look at E without its labels, and their aims."""
WEIGHTED = "weighted"
GRADED = "graded"
"""Splits of the curve: no strategy, since they are not chosen by."""
JOINT, LABEL = "joint", "label"
REFERENCE = f"random:{JOINT}"
HARDEST = f"cluster-rbf:{JOINT}"
WITH_CELLS = (
    "random",
    "cluster-linear",
    "cluster-rbf",
    "cluster-laplacian",
    "kfold-random",
    "kfold-cluster-linear",
    "kfold-cluster-rbf",
    "kfold-cluster-laplacian",
)
KNOWN = (
    *(f"{name}:{cells}" for name in WITH_CELLS for cells in (JOINT, LABEL)),
    LEAVE_ONE_DOMAIN_OUT,
    MIX_UP,
    *AIMED,
    WEIGHTED,
)
DEFAULT = (
    REFERENCE,
    LEAVE_ONE_DOMAIN_OUT,
    f"cluster-linear:{JOINT}",
    f"cluster-rbf:{JOINT}",
    MIX_UP,
    f"kfold-random:{JOINT}",
    f"kfold-cluster-rbf:{JOINT}",
)
"""Joint cells only: models that stay trained on what label cells leave to T lose (docs/evidence.md)."""


@dataclass(frozen=True)
class StrategySplit:
    """What one strategy made of the development rows.

    Attributes
    ----------
    folds : one (n,) array of validation members, or one per fold.
    mmd : between the sides, under the RBF kernel; the mean over folds.
    pairs : of validation rows to mix, for mix-up.
    weights : of validation rows, with which they stand for E.
    """

    strategy: str
    folds: tuple[Members, ...]
    mmd: float
    pairs: Pairs | None = None
    weights: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Reach:
    """How far E is from the development rows, and how far apart their splits can be.

    Attributes
    ----------
    mmd : between the development rows and E.
    p_value : of the permutation test of both being of one distribution.
    """

    mmd: float
    p_value: float
    scale: Scale


def graded(level: float) -> str:
    """The name of a split of the curve."""
    return f"{GRADED}:{level:g}"


def parse_strategies(texts: Sequence[str] | None, *, with_curve: bool = False) -> tuple[str, ...]:
    """Read --strategy: names, or starts of names; the random reference always takes part.

    Parameters
    ----------
    with_curve : what its estimate is compared with takes part, unless others are named.
    """
    words = [word.strip() for text in texts or () for word in text.split(",")]
    chosen = []
    for word in words:
        found = [name for name in KNOWN if name == word or name.startswith(f"{word}:")]
        if not found:
            raise UsageError(f"--strategy '{word}' is unknown", hint=f"choose among {', '.join(KNOWN)}")
        chosen += found
    return tuple(dict.fromkeys([REFERENCE, *(chosen or (*DEFAULT, *[WEIGHTED] * with_curve))]))


def taking_part(strategies: Sequence[str], n_domains: int) -> tuple[tuple[str, ...], list[str]]:
    """Leave out what one development domain makes meaningless; also say what was left out."""
    if n_domains > 1:
        return tuple(strategies), []
    alone = [
        name
        for name in strategies
        if name == LEAVE_ONE_DOMAIN_OUT
        or (name.endswith(f":{LABEL}") and name.replace(LABEL, JOINT) in strategies)
    ]
    return tuple(name for name in strategies if name not in alone), alone


class Splitter:
    """Splits the development rows of one evaluation domain; the kernels are held once for all repeats."""

    def __init__(
        self, arena: Arena, place: int, options: CheckedOptions, folds: int, stack: ExitStack
    ) -> None:
        self.arena = arena
        self.development = keep_rows(arena.dataset, arena.domains != place)
        self.options = options
        self.folds = folds
        self._stack = stack
        self._contexts: dict[str, LocalSplit] = {}
        self._targets: dict[bytes, LocalTarget] = {}
        self._hardest: tuple[int, LocalSplit, LocalFound] | None = None

    @property
    def domains(self) -> Categories:
        """Of the development rows."""
        return self.development.categories["domain"]

    def split(self, strategy: str, round_: Round) -> StrategySplit:
        """Part the development rows by the strategy, with the chances of the round."""
        if strategy == MIX_UP:
            drawn = self._random(JOINT, round_)
            pairs = draw_pairs(drawn, round_.rng(Chance.MIX))
            return StrategySplit(strategy, (drawn,), self._mixed_mmd(drawn, pairs), pairs)
        if strategy == WEIGHTED:
            drawn = self._random(JOINT, round_)
            weights = self._target(round_).match(drawn).weights
            return replace(self._measured(strategy, [drawn]), weights=weights)
        return self._measured(strategy, self._fold_members(strategy, round_))

    def _fold_members(self, strategy: str, round_: Round) -> list[Members]:
        """The validation rows of every fold."""
        name, _, cells = strategy.partition(":")
        if strategy == LEAVE_ONE_DOMAIN_OUT:
            names = [str(value) for value in self.domains.values]
            return [leave_one_out(self.domains.codes, self.domains.values, name) for name in names]
        if strategy in AIMED:
            target, chance = self._target(round_), round_.rng(Chance.AIM)
            return [target.choose(AIMED[strategy], self.options.restarts, chance)]
        if name == GRADED or strategy == HARDEST:
            return [self._grade(float(cells) if name == GRADED else 1.0, round_)]
        if name == "random":
            return [self._random(cells, round_)]
        if name.startswith("kfold-"):
            return self._partition(name.removeprefix("kfold-"), cells, round_)
        return [self._context(name.removeprefix("cluster-"), cells, self._streams(round_)).find()]

    def _grade(self, level: float, round_: Round) -> Members:
        """Make a split of the curve: that of `cluster-rbf:joint` at another severity."""
        context, best = self._found(round_)
        here = context.at(level)
        found = grade(here, best, here.random_baseline())[0] if here.options.is_graded else best
        return found.members

    def reach(self, round_: Round) -> Reach:
        """Measure how far E is, without its labels."""
        target = self._target(round_)
        context, best = self._found(round_)
        whole, _, _ = target.distances(best.members).roots()
        return Reach(whole, target.test.p_value, Scale(context.random_baseline().mean, best.measured.mmd))

    def _found(self, round_: Round) -> tuple[LocalSplit, LocalFound]:
        """Search for the hardest split, once for all that is made of it in a round."""
        if self._hardest is None or self._hardest[0] != round_.repeat:
            context = self._context("rbf", JOINT, self._streams(round_))
            self._hardest = round_.repeat, context, context.refine(context.explore())
        return self._hardest[1:]

    def _target(self, round_: Round) -> LocalTarget:
        """Compare E with the development rows; E is the same in all repeats, unless half of it is drawn."""
        key = round_.adapt.tobytes()
        if key not in self._targets:
            context, rows = self._context("rbf", JOINT), self.arena.unlabelled(round_)
            raw, seed = self.development.features, round_.seed
            found = see_target(context.kernel, context.problem, raw, rows, seed, context.workers)
            self._targets = {key: found}
        return self._targets[key]

    def _random(self, cells: str, round_: Round) -> Members:
        return SEEDED["random"](self._context("rbf", cells).strategy_context, round_.rng(Chance.SPLIT, 1))

    def _partition(self, name: str, cells: str, round_: Round) -> list[Members]:
        kernel = "rbf" if name == "random" else name.removeprefix("cluster-")
        context = self._context(kernel, cells, self._streams(round_))
        quotas = PartitionOptions(folds=self.folds).quotas(context.dataset, context.options)
        partition = LocalPartition(
            context.dataset,
            context.options,
            context.kernel,
            context.streams,
            context.workers,
            context.watch,
            context.progress,
            quotas=quotas,
            units=None,
        )
        labels: NDArray[np.int64] = (
            partition.assigner.random(round_.rng(Chance.SPLIT, 2)) if name == "random" else partition.find()
        )
        return [labels == fold for fold in range(self.folds)]

    def _streams(self, round_: Round) -> Streams:
        return Streams.from_seed(int(round_.rng(Chance.SPLIT, 0).integers(2**31)))

    def _context(self, kernel: str, cells: str, streams: Streams | None = None) -> LocalSplit:
        """The kernel with the cells of the strategy; what the kernel needs is made once."""
        if kernel not in self._contexts:
            options = replace(self.options, kernel=kernel, budget=self.options.budget // 2)
            if kernel == "linear":
                options = replace(options, nystrom="auto")
            self._contexts[kernel] = self._stack.enter_context(prepared_split(self.development, options))
        context = self._contexts[kernel]
        dataset = self.development if cells == JOINT else _label_cells(self.development)
        if cells != JOINT:
            asked = requirements_of(dataset, context.options, context.workers)
            problem = Problem(context.problem.geometry, asked.working)
            context = replace(context, dataset=dataset, problem=problem, requirements=asked)
        return context if streams is None else replace(context, streams=streams)

    def _measured(self, strategy: str, folds: Sequence[Members]) -> StrategySplit:
        problem = self._context("rbf", JOINT).problem
        squares = [evaluate(problem, members).mmd_squared for members in folds]
        mmd = float(np.mean([max(square, 0.0) ** 0.5 for square in squares]))
        return StrategySplit(strategy, tuple(folds), mmd)

    def _mixed_mmd(self, members: Members, pairs: Pairs) -> float:
        context = self._context("rbf", JOINT)
        prepared, workers = context.kernel.prepared, context.workers
        rows: Features = prepared.features
        mixed = mix(rows, pairs)
        within, _ = side_norms(context.problem, members)
        norm = float(mean_kernel(mixed, mixed, prepared.kernel, workers).mean())
        train = replace(rows, raw=rows.raw[~members])
        across = float(mean_kernel(train, mixed, prepared.kernel, workers).mean())
        return float(max(within + norm - 2.0 * across, 0.0) ** 0.5)


def folds_for(holdout: Fraction) -> int:
    """As many folds as make each about as large as the holdout."""
    return max(2, round(1 / holdout))


def _label_cells(dataset: Dataset) -> Dataset:
    return replace(dataset, categories={"label": dataset.categories["label"]}, families=())
