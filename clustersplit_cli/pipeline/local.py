"""The local engine: all rows in memory, for splits in two and for partitions into any number of parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.cbc import AssignmentProgram, CBCAssigner, cbc_version
from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.baselines import SEEDED, RandomMMD, StrategyContext, of_size, random_mmd
from clustersplit_cli.core.bound.bound import mmd_upper_bound
from clustersplit_cli.core.certificate import (
    FixedPoint,
    certify_by_cbc,
    certify_by_threshold,
    certify_partition,
    certify_program,
)
from clustersplit_cli.core.constraints.cells import Constraints, Labels
from clustersplit_cli.core.constraints.families import TRAIN, VAL
from clustersplit_cli.core.constraints.groups import GroupParts
from clustersplit_cli.core.constraints.quotas import PartQuotas
from clustersplit_cli.core.constraints.requirements import Requirements
from clustersplit_cli.core.duplicates import lowest_rows_first
from clustersplit_cli.core.effort import EFFORTS
from clustersplit_cli.core.geometry.low_rank import LowRankKernel, landmarks_in_two, make_low_rank
from clustersplit_cli.core.mmd.estimators import SubsampleEstimate, subsample_mmd
from clustersplit_cli.core.parallel import Workers, pool
from clustersplit_cli.core.search.context import SearchContext
from clustersplit_cli.core.search.groups import search_group_parts
from clustersplit_cli.core.search.partition import (
    PartAssigner,
    PartitionMeasures,
    evaluate_partition,
    measure,
    rest_squared,
)
from clustersplit_cli.core.search.partition_search import search_partition
from clustersplit_cli.core.search.problem import Evaluation, Members, Problem, evaluate
from clustersplit_cli.core.search.programs import CoupledSearch, Coupling
from clustersplit_cli.core.search.search import SplitSearch, needs_low_rank
from clustersplit_cli.core.search.solution import Solution
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.engines.options import LOCAL
from clustersplit_cli.engines.plan import MemoryPlan
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.context import (
    HeldKernel,
    Once,
    PartitionOptions,
    Streams,
    hold_kernel,
    plan,
    requirements_of,
)
from clustersplit_cli.pipeline.engine import Idle
from clustersplit_cli.pipeline.notices import about_cells, about_convergence, about_parts
from clustersplit_cli.pipeline.portrait import portray, portray_parts
from clustersplit_cli.pipeline.result import About, Measures, Notes, PartCounts, Searched
from clustersplit_cli.pipeline.run import Run, run
from clustersplit_cli.pipeline.summarize import (
    family_name,
    resolved_options,
    summarize_cells,
    summarize_counts,
)
from clustersplit_cli.progress import Progress, Stopwatch, silent
from clustersplit_cli.reports import summary
from clustersplit_cli.reports.portrait import PartsPortrait, Portrait

CBC_CERTIFICATE_ROWS = 50_000
BY_THRESHOLD = "threshold"
"""A way to certify that users cannot ask for: that of engines which never have all rows in one place."""
PROGRAMMED_SPLITS = 10
"""Random splits, where each takes a program."""
COSTLY_BOUND = 4e11
"""Rows times squared factors of the kernel, beyond which the bound takes longer than the split."""
SUBSAMPLE_ROWS = 2000
WIDE_IMAGE_ROWS, NARROW_RANK = 50_000, 128
"""Beyond so many rows the image that starts of partitions descend on is narrower, to fit in memory."""
BATCH = 4
"""Random partitions that are measured at once."""


@dataclass(frozen=True)
class LocalEngine:
    """All rows in memory; without `into` they are split in two.

    Attributes
    ----------
    memory : the plan, if it has been made.
    """

    dataset: Dataset
    options: CheckedOptions
    memory: MemoryPlan | None
    workers: Workers
    watch: Stopwatch
    progress: Progress = silent
    into: PartitionOptions | None = None
    spare_threads: int = 3

    def survey(self) -> Requirements | tuple[PartQuotas, GroupParts | None]:
        """Put quotas, tolerances, forced rows and units together."""
        with self.watch.step("constraints"):
            if self.into is None:
                return requirements_of(self.dataset, self.options, self.workers)
            return self.into.arranged(self.dataset, self.options)

    def without_search(self) -> LocalEngine:
        """The same, for partitions that are given."""
        return self

    def count(self, into: PartitionOptions) -> PartCounts:
        """Give every part its quota of every cell."""
        quotas, units = into.arranged(self.dataset, self.options)
        dataset = self.dataset
        left_out = (dataset.n_rows, dataset.n_excluded, dataset.n_dropped)
        return PartCounts(LOCAL, quotas, units, left_out, dataset.notes)

    def state(self, surveyed: Any) -> AssignmentProgram | None:
        """State the program of the constraints, if CBC will certify the split by it."""
        cbc_version()  # the report states it, and asking takes a process
        if not isinstance(surveyed, Requirements) or not surveyed.separates:
            return None
        return AssignmentProgram(surveyed.working) if by_cbc(surveyed.n, self.options.certify) else None

    def prepare(self, surveyed: Any) -> LocalSplit | LocalPartition:
        """Hold the kernel."""
        streams = Streams.from_seed(self.options.seed)
        memory = self.memory or plan(self.dataset.extent, self.options)
        assert memory is not None
        held = hold_kernel(
            self.dataset, self.options, memory, streams, self.workers, self.watch, self.progress
        )
        common: dict[str, Any] = {
            "dataset": self.dataset,
            "options": self.options,
            "kernel": held,
            "streams": streams,
            "workers": self.workers,
            "watch": self.watch,
            "progress": self.progress,
        }
        if isinstance(surveyed, Requirements):
            limits = surveyed.families[0] if surveyed.units is not None else surveyed.working
            return LocalSplit(**common, problem=Problem(held.geometry, limits), requirements=surveyed)
        quotas, units = surveyed
        return LocalPartition(**common, quotas=quotas, units=units)

    def await_hashes(self) -> None:
        """Wait until all files are hashed."""
        self.progress("hash", 0, 0)
        with self.watch.step("hash"):
            _ = self.dataset.files


@contextmanager
def opened_local(
    dataset: Dataset,
    options: CheckedOptions,
    into: PartitionOptions | None = None,
    *,
    memory: MemoryPlan | None = None,
    watch: Stopwatch | None = None,
    progress: Progress = silent,
) -> Iterator[LocalEngine]:
    """Open the engine with a pool of workers that ends with the block.

    Parameters
    ----------
    memory : the plan, if it has been made.
    """
    with pool(options.threads) as workers:
        yield LocalEngine(dataset, options, memory, workers, watch or Stopwatch(), progress, into)


@contextmanager
def prepared_split(
    dataset: Dataset, options: CheckedOptions, progress: Progress = silent
) -> Iterator[LocalSplit]:
    """Rows and kernel ready for splits in two."""
    with opened_local(dataset, options, progress=progress) as engine:
        context = engine.prepare(engine.survey())
        assert isinstance(context, LocalSplit)
        yield context


@contextmanager
def prepared_partition(
    dataset: Dataset, options: CheckedOptions, into: PartitionOptions, progress: Progress = silent
) -> Iterator[LocalPartition]:
    """Rows and kernel ready for partitions."""
    with opened_local(dataset, options, into, progress=progress) as engine:
        context = engine.prepare(engine.survey())
        assert isinstance(context, LocalPartition)
        yield context


def partition(
    dataset: Dataset,
    options: CheckedOptions,
    into: PartitionOptions | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    with_portrait: bool = False,
) -> Run:
    """Split or part rows in memory, and report on it; parameters as of `pipeline.run`."""
    with opened_local(dataset, options, into) as engine:
        return run(engine, config=config, with_portrait=with_portrait)


@dataclass(frozen=True)
class Parts:
    """Row positions of every part, ascending, 0-based, in file order, and the part of every row."""

    rows: Mapping[str, NDArray[np.int64]]
    labels: Labels

    @classmethod
    def of(cls, rows: NDArray[np.int64], names: Sequence[str], labels: Labels) -> Parts:
        """Gather the rows of every part."""
        return cls({name: rows[labels == part] for part, name in enumerate(names)}, labels)

    @property
    def train(self) -> NDArray[np.int64]:
        """The rows of the part of that name."""
        return self.rows["train"]

    @property
    def val(self) -> NDArray[np.int64]:
        """The rows of the part of that name."""
        return self.rows["val"]


@dataclass(frozen=True)
class LocalContext:
    """Rows in memory, and their kernel."""

    dataset: Dataset
    options: CheckedOptions
    kernel: HeldKernel
    streams: Streams
    workers: Workers
    watch: Stopwatch
    progress: Progress
    image: Once[LowRankKernel] = field(init=False, repr=False)
    """A low-rank image of the kernel."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "image", Once(self._make_image))

    @property
    def spare_threads(self) -> int:
        """Threads for work beside the search."""
        return 3

    def _make_image(self) -> LowRankKernel:
        raise NotImplementedError

    def _about(self, resolved: Mapping[str, Any]) -> About:
        held = self.kernel
        common = resolved_options(self.options, held.memory, held.prepared.kernel)
        return About(
            self.dataset, self.options, {**common, **resolved}, held.memory, held.prepared, held.spread
        )

    def _subsample(self, parts: list[NDArray[np.int64]]) -> SubsampleEstimate | None:
        """Estimate MMD² between parts under the exact kernel, unless that is the kernel."""
        if self.kernel.geometry.landmarks is None:
            return None
        with self.watch.step("subsample"):
            return subsample_mmd(
                self.kernel.prepared.features,
                self.kernel.prepared.kernel,
                parts,
                2 * SUBSAMPLE_ROWS // len(parts),
                deepcopy(self.streams.samples),
                self.workers,
            )

    def engine_summary(self, found: Any) -> None:
        """Nothing: all rows are in memory."""

    def has_converged(self, found: LocalFound, certificate: FixedPoint | None) -> bool:
        """Whether the search stopped by itself."""
        return found.converged


@dataclass(frozen=True)
class LocalFound:
    """The part of every row, and what that measures; `end` is where the search ended, if it was searched for.

    Of a split in two, part 1 is validation.
    """

    labels: Labels
    measured: Any
    converged: bool = True
    end: Any = None

    @property
    def members(self) -> Members:
        """The validation rows of a split in two."""
        chosen: Members = self.labels == 1
        return chosen


@dataclass(frozen=True)
class LocalSplit(LocalContext):
    """Rows in memory that are to be split in two.

    Attributes
    ----------
    problem : where units stay together, with the quotas of the first family.
    """

    problem: Problem
    requirements: Requirements

    @property
    def idle_from(self) -> Idle:
        """Exact kernels leave workers idle, held factors only once no more passes are made.

        Where cells hang together, the bound shares random streams with the search: it has to wait.
        """
        if not self.requirements.separates or self.kernel.memory.geometry == "linear":
            return Idle.AFTERWARDS
        return Idle.REFINING if self.problem.geometry.is_low_rank else Idle.EXPLORING

    @cached_property
    def coupling(self) -> Coupling:
        """The problem of rows or units whose cells hang together."""
        return Coupling.of(self.problem, self.requirements, self.options.solver, self.workers)

    def _make_image(self) -> LowRankKernel:
        geometry = self.problem.geometry
        image = make_low_rank(geometry, self.streams.image, landmarks_in_two(geometry.n))
        # The search and the bound look along the same directions, unless there are several families of cells.
        return image.turned(self.problem.constraints, self.workers) if self.requirements.separates else image

    @cached_property
    def search(self) -> SplitSearch | CoupledSearch:
        """The search, with a program for every assignment step where cells hang together."""
        options, problem, workers = self.options, self.problem, self.workers
        effort = EFFORTS[options.effort]
        if self.requirements.separates:
            is_by_cbc, limits = options.solver == "cbc", problem.constraints
            assigner = CBCAssigner(limits, workers) if is_by_cbc else Selection(limits)
            context = SearchContext(
                problem, assigner, workers, options.restarts, options.max_iter, effort, self.progress
            )
            return SplitSearch(
                context, self.image() if needs_low_rank(problem) else None, self.streams.search
            )
        coupling, over_rows = self.coupling, self.requirements.units is None
        return CoupledSearch(
            coupling,
            self.image() if over_rows else make_low_rank(coupling.problem.geometry, self.streams.image),
            options.restarts,
            options.max_iter,
            effort,
            self.streams.search,
            self.progress,
        )

    def explore(self) -> Any:
        """See where starts lead."""
        with self.watch.step("search"):
            return self.search.explore()

    def refine(self, explored: Any) -> LocalFound:
        """Bring the best splits to rest; places among identical rows go to the lowest of them."""
        search: Any = self.search
        with self.watch.step("search"):
            end = search.refine(explored)
            if isinstance(search, CoupledSearch):
                members = self.coupling.to_rows(end.best.members)
                if self.requirements.units is None:
                    members = self.lowest_rows_first(members)
                measured = None
            else:
                members, measured = self.lowest_rows_first(end.members, end.measured.difference), end.measured
                if not np.array_equal(members, end.members):
                    measured = evaluate(self.problem, members)
                    end = replace(end, members=members, measured=measured)
        if measured is None:
            with self.watch.step("measure"):
                measured = evaluate(self.problem, members)
        return LocalFound(members.astype(np.int64), measured, end.best.converged, end)

    def account(self, found: LocalFound) -> Searched:
        """Measure where all starts ended."""
        search: Any = self.search
        with self.watch.step("search"):
            solution = search.account(found.end)
        return Searched(solution.steps, solution.runs, solution.winner, solution.account)

    def find(self) -> Members:
        """Search, for the split alone."""
        return self.refine(self.explore()).members

    def different(self, found: LocalFound, count: int) -> tuple[Members, ...]:
        """Up to `count` different local optima, the best one found among them."""
        search: Any = self.search
        optima = search.different(found.end, count) if count > 1 else (found.members,)
        if self.requirements.units is not None:
            return tuple(optima)
        return tuple(self.lowest_rows_first(members) for members in optima)

    def lowest_rows_first(self, members: Members, costs: NDArray[np.float64] | None = None) -> Members:
        """Among splits that differ only by identical rows, the one with the lowest in validation."""
        codes = self.problem.constraints.cells.codes
        return lowest_rows_first(members, self.dataset.features, codes, self.workers, costs)

    def draw(self, strategy: str) -> Members:
        """Choose a split by another strategy, without a search."""
        self.progress(strategy, 0, 0)
        with self.watch.step("search"):
            return SEEDED[strategy](self.ground, self.streams.search)

    @property
    def ground(self) -> StrategyContext:
        """What a strategy is given."""
        draw = None if self.requirements.separates else self.coupling.random_splits
        return StrategyContext(self.problem, self.workers, draw)

    def measure(self, parts: NDArray[Any], *, converged: bool = True) -> LocalFound:
        """Measure a split: the part of every row, 1 for validation."""
        with self.watch.step("measure"):
            return LocalFound(parts.astype(np.int64), evaluate(self.problem, parts.astype(bool)), converged)

    def certify(self, found: LocalFound, program: AssignmentProgram | None = None) -> FixedPoint | None:
        """Solve the assignment program at the split's own centroids."""
        how, asked = self.options.certify, self.requirements
        with self.watch.step("certificate"):
            if asked.separates:
                return certify(found.measured, found.members, self.problem.constraints, how, program)
            return certify_coupled(found.measured, found.members, asked, how)

    def bound(self, *, looking: bool = True) -> float | None:
        """Bound the MMD of all splits with these counts; None with tolerances, or where it costs too much.

        Parameters
        ----------
        looking : whether to look how far splits reach, which engines that read in pieces do not.
        """
        options, memory, problem = self.options, self.kernel.memory, self.problem
        if options.bound == "never" or not all(f.is_exact for f in self.requirements.families):
            return None
        if options.bound == "auto" and not self.kernel.geometry.has_entries:
            factors = memory.landmarks or self.dataset.features.shape[1]
            # Their eigenvalues cost as much as fifty products.
            if max(problem.n, 50 * factors) * factors**2 > COSTLY_BOUND:
                return None
        if self.requirements.separates:
            return mmd_upper_bound(problem, self.image(), looking=looking)
        # Splits that meet several families meet each of them: the smallest of their bounds holds.
        problems = [replace(problem, constraints=family) for family in self.requirements.families]
        return min(mmd_upper_bound(each, self.image()) for each in problems)

    def random_baseline(self, found: LocalFound | None = None, *, same_size: bool = False) -> RandomMMD:
        """Measure random splits that meet the constraints, or have as many validation rows as `found`."""
        streams, problem = deepcopy(self.streams.baseline), self.problem
        if found is not None and same_size:
            limits = of_size(problem.n, int(found.members.sum()))
            return random_mmd(replace(problem, constraints=limits), streams)
        if self.requirements.separates:
            return random_mmd(problem, streams)
        return random_mmd(problem, streams, self.coupling.random_splits(streams[:PROGRAMMED_SPLITS]))

    def subsample(self, found: LocalFound) -> SubsampleEstimate | None:
        """Estimate MMD² under the exact kernel; None unless the kernel is approximated."""
        return self._subsample([np.flatnonzero(found.members), np.flatnonzero(~found.members)])

    def portrait(self, found: LocalFound, random: RandomMMD | None = None) -> Portrait:
        """Gather what an HTML report draws; random splits not given are drawn anew, the same ones."""
        return portray(
            self.dataset,
            self.problem,
            self.image().factors(np.arange(self.problem.n)),
            found.members,
            random or self.random_baseline(),
            self.workers,
            np.random.default_rng(self.options.seed),
        )

    def about(self, *, searched: bool) -> About:
        """What the run rests on."""
        options = self.options
        solver = "selection" if self.requirements.separates else "highs"
        return self._about(
            {
                "holdout": float(options.holdout),
                "rounding": self.requirements.rounding,
                "solver": "cbc" if options.solver == "cbc" else solver,
                "bound": options.bound,
                "engine": LOCAL,
                "passes": None,
            }
        )

    def measures(self, found: LocalFound) -> Measures:
        """What the split measures, in the report's terms."""
        measured: Evaluation = found.measured
        return Measures(
            {"train": measured.n_train, "val": measured.n_val},
            self.requirements.n,
            measured.mmd_squared,
            measured.psi,
            measured.ssq_total,
            measured.identity_residual,
            self.problem.geometry.trace_error,
        )

    def constraints(self, found: LocalFound) -> summary.ConstraintsSummary:
        """Compare every cell's count with its bounds, and say what else was asked for."""
        asked, members = self.requirements, found.members
        names = [family_name(family) for family in asked.families]
        cells = tuple(
            cell
            for name, family in zip(names, asked.families, strict=True)
            for cell in summarize_cells(name, family, family.counts(members))
        )
        units, pinned = self._units(members), self._pinned(members)
        return summary.ConstraintsSummary(
            all_satisfied=all(cell.satisfied for cell in cells)
            and asked.keeps_total(members)
            and (units is None or units.divided == 0)
            and (pinned is None or pinned.satisfied),
            cells=cells,
            families=tuple(names),
            rounding=asked.rounding,
            integral_by="total_unimodularity" if asked.is_unimodular else "branch_and_bound",
            tolerance=summary.ToleranceSummary(
                float(asked.tolerance), self.options.tolerance.is_auto, asked.tolerance_proven
            ),
            units=units,
            pinned=pinned,
        )

    def _units(self, members: Members) -> summary.UnitsSummary | None:
        asked = self.requirements
        if asked.units is None:
            return None
        inside = np.bincount(asked.units[members], minlength=asked.n_atoms)
        divided = int(((inside > 0) & (inside < asked.sizes)).sum())
        return summary.UnitsSummary(
            self.dataset.together or "", asked.n_atoms, int(asked.sizes.max()), divided
        )

    def _pinned(self, members: Members) -> summary.PinnedSummary | None:
        train, val = self.requirements.pinned == TRAIN, self.requirements.pinned == VAL
        if not (train.any() or val.any()):
            return None
        satisfied = bool(members[val].all() and not members[train].any())
        return summary.PinnedSummary(int(train.sum()), int(val.sum()), satisfied)

    def notes(self, found: LocalFound, *, converged: bool, sized: bool) -> Notes:
        """Warnings about cells, the number of validation rows, and the search."""
        asked, n_val = self.requirements, found.measured.n_val if sized else None
        cells = (
            note
            for place, limits in enumerate(asked.families)
            for note in about_cells(limits, self.options, asked.rounding, n_val if place == 0 else None)
        )
        return (*cells, *about_convergence(converged, self.options.max_iter))

    def written(self, found: LocalFound) -> Parts:
        """The rows of both sides."""
        return Parts.of(self.dataset.rows, ("train", "val"), found.labels)


@dataclass(frozen=True)
class LocalPartition(LocalContext):
    """Rows in memory that are to be parted; `units` is None where rows are on their own."""

    quotas: PartQuotas
    units: GroupParts | None

    @property
    def idle_from(self) -> Idle:
        """The search of partitions keeps all workers busy."""
        return Idle.AFTERWARDS

    @cached_property
    def assigner(self) -> PartAssigner:
        """The assignment step; centroids are handed out only to parts that are not alike."""
        unlike = len(set(self.quotas.shares)) > 1 or bool((self.quotas.pinned >= 0).any())
        return PartAssigner(self.quotas, self.workers, unlike, self.options.solver)

    def _make_image(self) -> LowRankKernel:
        geometry = self.kernel.geometry
        if geometry.n > WIDE_IMAGE_ROWS:
            return make_low_rank(geometry, self.streams.image, NARROW_RANK)
        return make_low_rank(geometry, self.streams.image)

    def explore(self) -> Solution:
        """Search for the parts that differ most."""
        options, held = self.options, self.kernel
        common: dict[str, Any] = {
            "restarts": options.restarts,
            "max_iter": options.max_iter,
            "effort": EFFORTS[options.effort],
            "rng": self.streams.search,
            "progress": self.progress,
        }
        with self.watch.step("search"):
            if self.units is not None:
                return search_group_parts(held.geometry, self.units, **common)
            return search_partition(held.geometry, self.image(), self.assigner, **common)

    def refine(self, explored: Solution) -> LocalFound:
        """Measure the best partition."""
        with self.watch.step("search"):
            measured = evaluate_partition(self.kernel.geometry, explored.labels, self.quotas.k)
        return LocalFound(explored.labels, measured, explored.converged, explored)

    def account(self, found: LocalFound) -> Searched:
        """What the search said about its starts."""
        solution: Solution = found.end
        return Searched(solution.steps, solution.runs, solution.winner)

    def find(self) -> Labels:
        """Search, for the parts alone."""
        return self.explore().labels

    def draw(self, strategy: str) -> Labels:
        """Draw parts that meet the quotas."""
        assert strategy == "random"
        return self.random(self.streams.search)

    def random(self, rng: np.random.Generator) -> Labels:
        """Draw parts that meet the quotas; shape (n,)."""
        return self.assigner.random(rng) if self.units is None else self.units.random(rng)

    def measure(self, parts: Labels, *, converged: bool = True) -> LocalFound:
        """Measure a partition: the part of every row."""
        with self.watch.step("measure"):
            return LocalFound(
                parts, evaluate_partition(self.kernel.geometry, parts, self.quotas.k), converged
            )

    def certify(self, found: LocalFound, program: Any = None) -> FixedPoint | None:
        """Solve the assignment step at the partition's own centroids; not where rows stay together."""
        how = self.options.certify
        with self.watch.step("certificate"):
            if how == "never" or self.units is not None:
                return None
            return certify_partition(
                found.measured,
                found.labels,
                self.assigner,
                by_cbc=by_cbc(self.kernel.geometry.n, how),
            )

    def bound(self) -> None:
        """Nothing is known that bounds the MMD of partitions."""

    def random_baseline(self, found: LocalFound | None = None, *, same_size: bool = False) -> RandomMMD:
        """Measure random partitions that meet the quotas: the same MMD, and each part's to the rest."""
        assert found is not None
        geometry, k = self.kernel.geometry, self.quotas.k
        values: list[float] = []
        rest: list[NDArray[np.float64]] = []
        streams = deepcopy(self.streams.baseline)
        ssq_total = found.measured.ssq_total
        for first in range(0, len(streams), BATCH):
            drawn = [self.random(stream) for stream in streams[first : first + BATCH]]
            state = measure(geometry, np.stack(drawn, axis=1), k, geometry.search_dtype)
            sizes = state.sizes.astype(np.float64)
            pairs = (sizes.sum(axis=1) ** 2 - (sizes**2).sum(axis=1)) / 2
            squared = np.maximum(ssq_total - state.psi, 0.0) * geometry.n / pairs
            values += np.sqrt(squared).tolist()
            rest.append(np.sqrt(rest_squared(state)))
        mean, sd = float(np.mean(values)), float(np.std(values, ddof=1))
        return RandomMMD(len(values), mean, sd, tuple(values), np.concatenate(rest))

    def subsample(self, found: LocalFound) -> SubsampleEstimate | None:
        """Estimate MMD² under the exact kernel; None unless the kernel is approximated."""
        return self._subsample([np.flatnonzero(found.labels == part) for part in range(self.quotas.k)])

    def portrait(self, found: LocalFound, random: RandomMMD | None = None) -> PartsPortrait:
        """Gather what an HTML report draws; random partitions not given are drawn anew, the same ones."""
        random = random or self.random_baseline(found)
        assert random.rest is not None
        return portray_parts(
            self.dataset,
            self.kernel.geometry,
            self.image().factors(np.arange(len(found.labels))),
            self.quotas.names,
            found.labels,
            random.rest,
            self.workers,
            np.random.default_rng(self.options.seed),
        )

    def about(self, *, searched: bool) -> About:
        """What the run rests on; options of a split in two are not among those used."""
        solver = "cbc" if self.options.solver == "cbc" else "transport"
        return self._about({"solver": "exchange" if self.units is not None else solver})

    def measures(self, found: LocalFound) -> Measures:
        """What the partition measures, in the report's terms."""
        measured: PartitionMeasures = found.measured
        names, rest = self.quotas.names, np.sqrt(measured.rest_squared)
        parts = tuple(
            summary.PartSummary(name, float(share), int(size), float(distance))
            for name, share, size, distance in zip(
                names, self.quotas.shares, measured.sizes, rest, strict=True
            )
        )
        return Measures(
            dict(zip(names, measured.sizes.tolist(), strict=True)),
            self.quotas.n,
            measured.mean_squared,
            measured.psi,
            measured.ssq_total,
            measured.identity_residual,
            self.kernel.geometry.trace_error,
            summary.PartsSummary(parts, tuple(tuple(row) for row in np.sqrt(measured.mmd_squared).tolist())),
        )

    def constraints(self, found: LocalFound) -> summary.ConstraintsSummary:
        """Compare every cell's count in every part with its bounds."""
        quotas, labels = self.quotas, found.labels
        counted = summarize_counts(quotas, quotas.counts(labels))
        forced = quotas.pinned >= 0
        pinned = None
        if forced.any():
            kept = bool((labels[forced] == quotas.pinned[forced]).all())
            to = [quotas.names[part] for part in quotas.pinned[forced].tolist()]
            pinned = summary.PinnedSummary(to.count("train"), to.count("val"), kept)
        units, tolerance = self._units(labels)
        return replace(
            counted,
            all_satisfied=counted.all_satisfied
            and (pinned is None or pinned.satisfied)
            and (units is None or not units.divided),
            integral_by=counted.integral_by if units is None else None,
            tolerance=tolerance,
            units=units,
            pinned=pinned,
        )

    def _units(self, labels: Labels) -> tuple[summary.UnitsSummary | None, summary.ToleranceSummary | None]:
        """What stays together, and how far off that puts the counts."""
        found = self.units
        if found is None:
            return None, None
        first = np.full(len(found.table), -1, dtype=np.int64)
        first[found.units] = labels
        divided = len(np.unique(found.units[labels != first[found.units]]))
        sizes = found.table.sum(axis=1)
        units = summary.UnitsSummary(self.dataset.together or "", len(sizes), int(sizes.max()), divided)
        was_found = self.options.tolerance.is_auto
        # Equal shares cannot be bettered; another tolerance is the best that exchanges led to.
        proven = found.tolerance == 0 if was_found else None
        return units, summary.ToleranceSummary(float(found.tolerance), was_found, proven)

    def notes(self, found: LocalFound, *, converged: bool, sized: bool) -> Notes:
        """Warnings about cells and the search."""
        return (*about_parts(self.quotas), *about_convergence(converged, self.options.max_iter))

    def written(self, found: LocalFound) -> Parts:
        """The rows of every part."""
        return Parts.of(self.dataset.rows, self.quotas.names, found.labels)


def by_cbc(n: int, how: str) -> bool:
    """Whether CBC certifies what is found among so many rows or units."""
    return how == "always" or (how not in ("never", BY_THRESHOLD) and n <= CBC_CERTIFICATE_ROWS)


def certify(
    measured: Evaluation,
    members: Members,
    constraints: Constraints,
    how: str,
    program: AssignmentProgram | None = None,
) -> FixedPoint | None:
    """Certify the split by CBC, or above the size where that pays by thresholds.

    Parameters
    ----------
    program : that of the constraints, if it has been stated before.
    """
    if how == "never":
        return None
    if by_cbc(constraints.n, how):
        return certify_by_cbc(measured, members, constraints, program)
    return certify_by_threshold(measured, members, constraints)


def certify_coupled(
    measured: Evaluation, members: Members, requirements: Requirements, how: str
) -> FixedPoint | None:
    """Certify a split whose cells hang together by CBC, or above the size where that pays by HiGHS."""
    if how == "never":
        return None
    by = "cbc" if how == "always" or requirements.n_atoms <= CBC_CERTIFICATE_ROWS else "highs"
    return certify_program(measured, members, requirements, by)
