"""All strategies side by side on one dataset: `clustersplit compare`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.baselines import (
    LEAVE_ONE_DOMAIN_OUT,
    SEEDED,
    equal_clusters,
    leave_one_out,
    mixed_rows,
)
from clustersplit_cli.core.constraints.cells import Cells
from clustersplit_cli.core.constraints.requirements import Requirements, make_requirements
from clustersplit_cli.core.geometry.features import Features, Floats
from clustersplit_cli.core.mmd.evaluation import Outside, mean_kernel, mmd_to_outside, see_outside, side_norms
from clustersplit_cli.core.search.problem import Members, Problem, evaluate
from clustersplit_cli.data.dataset import Categories, Dataset
from clustersplit_cli.errors import UsageError
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.context import Streams
from clustersplit_cli.pipeline.local.engine import prepared_split
from clustersplit_cli.pipeline.local.split import LocalSplit
from clustersplit_cli.progress import Progress, silent
from clustersplit_cli.reports.strategy_comparison import (
    ClassCount,
    StrategyComparison,
    StrategyRun,
    invalid_from,
    summarize_runs,
)
from clustersplit_cli.reports.summary import FileSummary, Notice

MIX_UP = "mix-up"
STAGE = "comparing"


@dataclass(frozen=True)
class Evaluation:
    """The evaluation domain: its name and its rows."""

    name: str
    features: Floats


@dataclass(frozen=True)
class _Contender:
    """A strategy and the kernel it works in."""

    name: str
    context: LocalSplit
    choose: Callable[[LocalSplit, np.random.Generator], Members]


class _Judge:
    """Measures splits under the common kernel."""

    def __init__(self, context: LocalSplit, evaluation: Evaluation | None) -> None:
        self.context = context
        self.outside: Outside | None = None
        self.outside_rows: Features | None = None
        if evaluation is not None:
            prepared = context.kernel.prepared
            rows = Features(evaluation.features, prepared.features.steps, prepared.features.dtype)
            self.outside = see_outside(prepared.features, rows, prepared.kernel, context.workers)
            self.outside_rows = rows

    def measure(
        self, name: str, members: Members, seconds: float, *, seed: int | None, left_out: str | None = None
    ) -> StrategyRun:
        """Measure one split."""
        problem = self.context.problem
        found = evaluate(problem, members)
        met = float(np.concatenate([f.within(members) for f in self.context.requirements.families]).mean())
        mmd = float(max(found.mmd_squared, 0.0) ** 0.5)
        to_train, to_val, valid = self.validity(members, mmd)
        return StrategyRun(
            name, seed, left_out, found.n_val, mmd, found.psi, met, to_train, to_val, valid, seconds
        )

    def validity(
        self, members: Members, mmd: float, problem: Problem | None = None
    ) -> tuple[float | None, float | None, bool | None]:
        """MMD of both sides to the evaluation domain, and whether they are further from each other."""
        if self.outside is None:
            return None, None, None
        train, val = mmd_to_outside(problem or self.context.problem, members, self.outside)
        return train, val, mmd > max(train, val)

    def measure_mixed(self, members: Members, rng: np.random.Generator, seed: int) -> StrategyRun:
        """Measure a random split whose validation rows are mixed; they are no rows of the input."""
        began = time.perf_counter()
        prepared, workers = self.context.kernel.prepared, self.context.workers
        mixed = mixed_rows(prepared.features, members, rng)
        to_mixed = mean_kernel(prepared.features, mixed, prepared.kernel, workers)
        norm = float(mean_kernel(mixed, mixed, prepared.kernel, workers).mean())
        within_train, _ = side_norms(self.context.problem, members)
        squared = within_train + norm - 2.0 * float(to_mixed[~members].mean())
        mmd = max(squared, 0.0) ** 0.5
        to_train, to_val, valid = self.validity(members, mmd)
        if self.outside is not None and self.outside_rows is not None and to_train is not None:
            across = mean_kernel(mixed, self.outside_rows, prepared.kernel, workers).mean()
            to_val = max(norm + self.outside.norm - 2.0 * float(across), 0.0) ** 0.5
            valid = mmd > max(to_train, to_val)
        seconds = time.perf_counter() - began
        size = int(members.sum())
        return StrategyRun(MIX_UP, seed, None, size, mmd, None, None, to_train, to_val, valid, seconds)


def compare(
    dataset: Dataset,
    options: CheckedOptions,
    *,
    repeats: int,
    domains: Categories | None = None,
    evaluation: Evaluation | None = None,
    classes: Sequence[int] = (),
    progress: Progress = silent,
) -> StrategyComparison:
    """Split by every strategy with several seeds and measure all splits under one kernel.

    Parameters
    ----------
    dataset : the development set; the common kernel's width is resolved on it.
    options : `kernel` is the common kernel.
    domains : of every row; None: no domain is left out.
    evaluation : rows of a domain that the development set does not have.
    classes : numbers of synthetic classes for the experiment on their number.
    """
    _check_classes(classes, len(dataset.rows))
    with ExitStack() as stack:
        common, linear, rbf = _contexts(dataset, options, stack, progress)
        if common.kernel.geometry.landmarks is not None and evaluation is not None:
            raise UsageError(
                "--evaluation-domain needs the exact kernel, and it does not fit the memory budget",
                hint="allow more --memory, use fewer rows, or --kernel linear",
            )
        judge = _Judge(common, evaluation)
        runs, warnings = _run_all(judge, common, linear, rbf, domains, repeats, classes, progress)
        counts = tuple(_classes(judge, common, classes, progress))
    kernel = common.kernel.prepared.kernel
    return StrategyComparison(
        files=tuple(FileSummary(f.path, f.role, f.bytes, f.sha256) for f in dataset.files),
        n_rows=len(dataset.rows),
        n_evaluation=None if evaluation is None else len(evaluation.features),
        evaluation_domain=None if evaluation is None else evaluation.name,
        kernel=kernel.name,
        gamma=kernel.gamma,
        geometry=common.kernel.memory.geometry,
        holdout=float(options.holdout),
        stratify=tuple(dataset.categories),
        seed=options.seed,
        repeats=repeats,
        strategies=summarize_runs(runs),
        runs=tuple(runs),
        classes=counts,
        invalid_from=invalid_from(counts),
        warnings=tuple(warnings),
    )


def _contexts(
    dataset: Dataset, options: CheckedOptions, stack: ExitStack, progress: Progress
) -> tuple[LocalSplit, LocalSplit, LocalSplit]:
    """The common kernel, the linear one and the RBF one; the same object where two are the same."""
    wanted = {
        options.kernel: options,
        "linear": replace(options, kernel="linear", nystrom="auto"),
        "rbf": replace(options, kernel="rbf", gamma=options.gamma if options.kernel == "rbf" else "scale"),
    }
    wanted[options.kernel] = options
    held = sum(not choice.is_linear for choice in wanted.values())
    contexts = {
        name: stack.enter_context(
            prepared_split(dataset, replace(choice, budget=options.budget // max(held, 1)), progress)
        )
        for name, choice in wanted.items()
    }
    return contexts[options.kernel], contexts["linear"], contexts["rbf"]


def _contenders(common: LocalSplit, linear: LocalSplit, rbf: LocalSplit) -> list[_Contender]:
    """Who takes part. Greedy k-means is Euclidean; with the RBF kernel only its method differs from ours."""

    def ours(context: LocalSplit, _: np.random.Generator) -> Members:
        return context.find()

    def by(name: str) -> Callable[[LocalSplit, np.random.Generator], Members]:
        return lambda context, rng: SEEDED[name](context.strategy_context, rng)

    return [
        _Contender("cluster-rbf", rbf, ours),
        _Contender("cluster-linear", linear, ours),
        _Contender("greedy-rbf", rbf, by("greedy")),
        _Contender("greedy-linear", linear, by("greedy")),
        _Contender("nearest-neighbours", linear, by("nearest-neighbours")),
        _Contender("random", common, by("random")),
        _Contender("nearest-neighbours-total", linear, by("nearest-neighbours-total")),
        _Contender("unconstrained", common, by("unconstrained")),
    ]


def _run_all(
    judge: _Judge,
    common: LocalSplit,
    linear: LocalSplit,
    rbf: LocalSplit,
    domains: Categories | None,
    repeats: int,
    classes: Sequence[int],
    progress: Progress,
) -> tuple[list[StrategyRun], list[Notice]]:
    """Run every strategy with every seed; seed by seed, so that the time left can be told early."""
    contenders = _contenders(common, linear, rbf)
    total = repeats * len(contenders) + len(classes)
    runs: list[StrategyRun] = []
    warnings: list[Notice] = []
    exact = common.kernel.geometry.landmarks is None
    if not exact:
        warnings.append(
            Notice("no_mix_up", "mix-up is left out: it needs the exact kernel, which does not fit")
        )
    for repeat in range(repeats):
        seed = common.options.seed + repeat
        for place, contender in enumerate(contenders):
            progress(STAGE, repeat * len(contenders) + place, total)
            # The kernel stays; the chances are those of a run with this seed.
            context = replace(contender.context, streams=Streams.from_seed(seed), progress=silent)
            began = time.perf_counter()
            members = contender.choose(context, context.streams.search)
            runs.append(judge.measure(contender.name, members, time.perf_counter() - began, seed=seed))
            if contender.name == "random" and exact:
                runs.append(judge.measure_mixed(members, context.streams.samples, seed))
    if domains is None or len(domains.values) < 2:
        warnings.append(Notice("no_domains", f"{LEAVE_ONE_DOMAIN_OUT} is left out: there are no two domains"))
    else:
        for value in domains.values:
            began = time.perf_counter()
            members = leave_one_out(domains.codes, domains.values, str(value))
            seconds = time.perf_counter() - began
            runs.append(judge.measure(LEAVE_ONE_DOMAIN_OUT, members, seconds, seed=None, left_out=str(value)))
    return runs, warnings


def _classes(
    judge: _Judge, context: LocalSplit, classes: Sequence[int], progress: Progress
) -> Iterator[ClassCount]:
    """Split with synthetic classes instead of cells: the more there are, the less a split can differ."""
    if not classes:
        return
    factors = context.low_rank().factors(np.arange(context.problem.n))
    for place, count in enumerate(classes):
        progress("classes", place, len(classes))
        began = time.perf_counter()
        streams = Streams.from_seed(context.options.seed)
        labels = equal_clusters(factors, count, context.workers, streams.samples)
        asked = _class_requirements(labels, context)
        problem = replace(context.problem, constraints=asked.working)
        members = replace(
            context, problem=problem, requirements=asked, streams=streams, progress=silent
        ).find()
        squared = evaluate(problem, members).mmd_squared
        mmd = float(max(squared, 0.0) ** 0.5)
        train, val, valid = judge.validity(members, mmd, problem)
        yield ClassCount(count, int(members.sum()), mmd, train, val, valid, time.perf_counter() - began)


def _class_requirements(labels: NDArray[np.int64], context: LocalSplit) -> Requirements:
    sizes = np.bincount(labels).astype(np.int64)
    cells = Cells(labels, tuple({"class": number} for number in range(len(sizes))), sizes)
    options = context.options
    return make_requirements(
        [cells], options.holdout, replace(options.tolerance, exceptions=()), options.rounding
    )


def _check_classes(classes: Sequence[int], n: int) -> None:
    for count in classes:
        if not 1 <= count <= n // 2:
            some = [number for number in (1, 2, 5, 10, 20, 50, 100) if number <= n // 2] or [1]
            raise UsageError(
                f"--classes {count} must lie between 1 and {n // 2}, half the number of rows",
                hint=f"for example --classes {','.join(map(str, some))}",
            )
