"""The sharded engine: rows that are read in pieces, on disk or by the workers of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.cbc import cbc_version
from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.baselines import RandomMMD
from clustersplit_cli.core.bound.bound import factored_bound
from clustersplit_cli.core.certificate import FixedPoint
from clustersplit_cli.core.effort import EFFORTS
from clustersplit_cli.core.exact_sum import merged
from clustersplit_cli.core.geometry.factored import FactoredKernel
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.low_rank import make_low_rank
from clustersplit_cli.core.geometry.nystrom import low_rank_geometry, trace_rows
from clustersplit_cli.core.geometry.protocol import choose_landmarks, split_weights
from clustersplit_cli.core.mmd.definition import SpelledKernel, unbiased
from clustersplit_cli.core.mmd.estimators import SubsampleEstimate, subsample_mmd
from clustersplit_cli.core.parallel import Workers, pool
from clustersplit_cli.core.search.problem import Measures, Problem, SearchContext
from clustersplit_cli.core.search.search import SplitSearch, needs_low_rank
from clustersplit_cli.core.search.solution import Restart, Step
from clustersplit_cli.data.dataset import Categories, Dataset, InputFile, TargetRows
from clustersplit_cli.data.destination import Destination
from clustersplit_cli.data.readers.fingerprint import Fingerprints
from clustersplit_cli.data.readers.matrix import about_dropped
from clustersplit_cli.data.readers.naming import as_url, report_path
from clustersplit_cli.data.row_groups import Layout
from clustersplit_cli.engines import samples
from clustersplit_cli.engines.checks import (
    FindDiffering,
    count_labels,
    define_linear,
    define_nystrom,
    find_misplaced,
    give_labels,
)
from clustersplit_cli.engines.descent import (
    Refined,
    ShardedProblem,
    SplitByRule,
    at_target_counts,
    certify,
    choose,
    descend,
    lowest_rows_first,
    measure,
    propose,
    side_sums,
)
from clustersplit_cli.engines.executor import Executor
from clustersplit_cli.engines.factors import FactorPlan
from clustersplit_cli.engines.options import NO_SPILL, STREAM, EngineOptions
from clustersplit_cli.engines.plan import MemoryPlan, StreamPlan
from clustersplit_cli.engines.rules import ByThreshold, Differences, Labelled, Rule, Uniform
from clustersplit_cli.engines.store import Room
from clustersplit_cli.engines.stream import StreamExecutor
from clustersplit_cli.engines.survey import Found as Counted
from clustersplit_cli.engines.tasks import Accounts, CountSides, FactorMoments, Ranked, Score, Survey
from clustersplit_cli.errors import needs_all_rows
from clustersplit_cli.options import LOOKALIKE, CheckedOptions
from clustersplit_cli.pipeline.context import PartitionOptions, Streams
from clustersplit_cli.pipeline.engine import Idle
from clustersplit_cli.pipeline.local.context import SUBSAMPLE_ROWS
from clustersplit_cli.pipeline.local.split import COSTLY_BOUND
from clustersplit_cli.pipeline.notices import about_cells
from clustersplit_cli.pipeline.result import (
    About,
    ByDefinition,
    CountedParts,
    GivenParts,
    Notes,
    PartCounts,
    Searched,
    SomeRows,
)
from clustersplit_cli.pipeline.sharded.grades import ShardedPath, witness_spreads
from clustersplit_cli.pipeline.sharded.output import write_rule
from clustersplit_cli.pipeline.sharded.prepare import (
    ShardedKernel,
    Surveyed,
    SurveyedParts,
    count_cells,
    prepare_kernel,
    survey_rows,
)
from clustersplit_cli.pipeline.sharded.target import ShardedTarget, see_target
from clustersplit_cli.pipeline.summarize import family_name, resolved_options, summarize_validation
from clustersplit_cli.pipeline.target import TargetResult, certify_sum
from clustersplit_cli.progress import Progress, Stopwatch, silent
from clustersplit_cli.reports import summary


@dataclass(frozen=True)
class ShardedEngine:
    """The shards of one dataset, whoever holds them, with everything that says how to split it.

    Attributes
    ----------
    executor : holds the shards, and has all of them do the same thing.
    target : rows of where the model will be used, if they were given.
    searching : whether a sample is brought together to search on.
    """

    layout: Layout
    options: CheckedOptions
    engine_options: EngineOptions
    plan: StreamPlan
    executor: Executor
    prints: Fingerprints | None
    workers: Workers
    watch: Stopwatch
    progress: Progress
    target: TargetRows | None = None
    searching: bool = True
    into: PartitionOptions | None = None

    @property
    def spare_threads(self) -> int:
        """None: every pass keeps all shards busy."""
        return 0

    def describe(self, surveyed: Surveyed | SurveyedParts | None = None) -> Dataset:
        """The columns, and after a survey also how many rows take part, and the files."""
        if surveyed is None:
            return nameless(self.layout)
        return surveyed_dataset(self.layout, surveyed.found, self.prints)

    @property
    def memory(self) -> MemoryPlan:
        """What the work takes, as it was planned."""
        return self.plan.memory

    @property
    def has_kernel(self) -> bool:
        """Only for splits in two."""
        return self.into is None

    def survey(self) -> Any:
        """Make the first pass."""
        if self.into is not None:
            counted = count_cells(self.layout, self.executor, Survey(), self.watch)
            return SurveyedParts(counted.found, self.into.of_cells(counted.cells, self.options))
        return survey_rows(self.layout, self.executor, self.options, self.watch)

    def seeded(self, seed: int) -> ShardedEngine:
        """The same rows with another seed."""
        return replace(self, options=replace(self.options, seed=seed))

    def without_search(self) -> ShardedEngine:
        """The same, for partitions that are given: no sample is brought together."""
        return replace(self, searching=False)

    def count(self, into: PartitionOptions) -> PartCounts:
        """Count cells in one pass, and give every part its quota of them."""
        counted = count_cells(self.layout, self.executor, Survey(), self.watch)
        return PartCounts(
            self.executor.name,
            into.of_cells(counted.cells, self.options),
            None,
            (self.layout.n_rows, counted.found.n_excluded, counted.found.n_invalid),
            (*self.layout.notes, *self.executor.notes),
        )

    def give(self, parts: GivenParts) -> Rule:
        """Hand every shard the labels of its rows."""
        give_labels(self.executor, parts.files, parts.labels)
        return Labelled()

    def count_given(self, surveyed: Surveyed | SurveyedParts, parts: GivenParts) -> CountedParts:
        """Count its rows in one pass, by the labels that the shards were given."""
        quotas = surveyed.quotas
        counted = count_labels(self.executor, len(quotas.cells.sizes), quotas.k)
        return CountedParts(
            (quotas,),
            (counted.counts,),
            surveyed.found.n_kept,
            (counted.n_missing, counted.missing),
            (counted.n_extra, counted.extra),
        )

    def state(self, surveyed: Surveyed) -> None:
        """Nothing can be stated ahead; the report states CBC's version, which takes a moment to ask for."""
        cbc_version()

    def prepare(self, surveyed: Surveyed) -> ShardedContext:
        """Bring samples together and tell the shards how rows become factors."""
        memory = self.plan.memory
        if memory.landmarks is not None:  # the plan was made before it was known how many rows take part
            memory = replace(memory, landmarks=min(memory.landmarks, surveyed.n))
        kernel = prepare_kernel(
            self.layout,
            self.executor,
            self.options,
            surveyed,
            memory.landmarks,
            self.plan.sample_rows if self.searching and self.options.is_searched_for else 0,
            self.workers,
            self.watch,
            self.target is not None,
        )
        seen = None
        if self.target is not None:
            with self.watch.step("target"):
                assert kernel.tested is not None
                seen = see_target(kernel, kernel.tested, self.target, self.options.seed, self.workers)
        return ShardedContext(self, memory, kernel, seen)

    def write(self, parts: Rule, to: Destination) -> list[Path]:
        """Write the rows that the rule chooses, or have the workers of a cluster write them."""
        return write_rule(self.executor, parts, to)

    def await_hashes(self) -> None:
        """Wait until all files are hashed."""
        self.progress("hash", 0, 0)
        with self.watch.step("hash"):
            if self.prints is not None:
                self.prints.files()


@contextmanager
def opened_sharded(
    layout: Layout,
    options: CheckedOptions,
    engine_options: EngineOptions,
    plan: StreamPlan,
    watch: Stopwatch,
    progress: Progress = silent,
    *,
    hashing: bool = True,
    target: TargetRows | None = None,
) -> Iterator[ShardedEngine]:
    """Open the engine; it ends with the block. Files are hashed beside the passes, unless nobody asks."""
    may_spill = engine_options.spill != NO_SPILL
    hashes = fingerprints(layout) if hashing else nullcontext()
    with pool(options.threads) as workers, hashes as prints:

        def engine(executor: Executor) -> ShardedEngine:
            return ShardedEngine(
                layout, options, engine_options, plan, executor, prints, workers, watch, progress, target
            )

        if engine_options.engine == STREAM:
            room = Room(plan.factors, engine_options.spill_directory, may_spill)
            with closing(StreamExecutor(layout, room, workers, progress)) as executor:
                yield engine(executor)
            return
        from clustersplit_cli.engines.dask import opened_cluster

        with opened_cluster(layout, engine_options, options.threads, options.budget, progress) as cluster:
            yield engine(cluster)


@dataclass(frozen=True)
class ShardedFound:
    """A split as a rule, measured, and how it was arrived at.

    Attributes
    ----------
    refined : the split, and Psi after every step that was taken.
    start : the start on the sample that led to the split; None if it was not searched for.
    """

    problem: ShardedProblem
    refined: Refined
    start: str | None = None

    @property
    def rule(self) -> Rule:
        """Which rows are in validation."""
        return self.refined.split.rule


@dataclass(frozen=True)
class ShardedContext:
    """Rows in shards that are to be split in two, and their kernel."""

    engine: ShardedEngine
    memory: MemoryPlan
    kernel: ShardedKernel
    target: ShardedTarget | None = None

    @property
    def options(self) -> CheckedOptions:
        """As they were given."""
        return self.engine.options

    @property
    def watch(self) -> Stopwatch:
        """The account of the time."""
        return self.engine.watch

    @property
    def progress(self) -> Progress:
        """Called with how far the work is."""
        return self.engine.progress

    @property
    def executor(self) -> Executor:
        """Holds the shards."""
        return self.engine.executor

    @property
    def spare_threads(self) -> int:
        """None: every pass keeps all shards busy."""
        return 0

    @property
    def idle_from(self) -> Idle:
        """Every pass keeps all shards busy."""
        return Idle.AFTERWARDS

    @property
    def has_all_rows(self) -> bool:
        """No place has them."""
        return False

    def explore(self) -> tuple[NDArray[np.float64], str] | None:
        """Search on the sample; return the best split's witness, as weights on F, and its start's name.

        For another aim than the hardest split there is nothing to search for.
        """
        if not self.options.is_searched_for:
            return None
        kernel, workers = self.kernel, self.engine.workers
        plan, mixing, sample = kernel.plan, kernel.mixing, kernel.sample
        with self.watch.step("search"):
            values = plan.to_store(sample.raw, workers)
            if mixing is None:
                factors = Features(sample.raw, plan.steps, plan.dtype).block(0, len(sample.raw))
            else:
                factors = values @ mixing.astype(values.dtype)
            limits = kernel.surveyed.limits.with_codes(sample.codes)
            problem = Problem(low_rank_geometry(factors, workers), limits)
            context = SearchContext(
                problem,
                Selection(limits),
                workers,
                self.options.restarts,
                self.options.max_iter,
                EFFORTS[self.options.effort],
                self.progress,
            )
            low_rank = (
                make_low_rank(problem.geometry, kernel.streams.low_rank) if needs_low_rank(problem) else None
            )
            solution = SplitSearch(context, low_rank, kernel.streams.search).solve()
            weights = split_weights(solution.members[:, None])
            sums = sum_factors(plan, values, np.asarray(weights, dtype=np.float64))[:, 0]
            spread = sums if mixing is None else np.asarray(mixing @ (mixing.T @ sums))
            return spread, solution.runs[solution.winner].start

    def refine(self, explored: tuple[NDArray[np.float64], str] | None) -> ShardedFound:
        """Carry the split of the sample over to all rows, ranked by its witness, and descend."""
        if explored is None:
            return self._lookalike()
        weights, start = explored
        with self.watch.step("kernel"):
            source = Differences(weights[:, None], np.zeros(1))
            quotas = at_target_counts(self.kernel.surveyed.limits)
            thresholds = choose(self.executor, source, np.stack([quotas, quotas], axis=1))
            problem, carried = self.measure_rule(ByThreshold(source, thresholds, column=0))
        with self.watch.step("refine"):
            refined = descend(problem, carried, max_passes=self.engine.engine_options.max_passes)
            return ShardedFound(problem, self.lowest_rows_first(problem, refined), start)

    def _lookalike(self) -> ShardedFound:
        """Choose every cell's rows that look most like the target."""
        with self.watch.step("kernel"):
            problem, _ = self.measure_rule(self.draw("random"))
        with self.watch.step("aim"):
            (split,) = measure(problem, self._most_alike(problem))
            refined = Refined(split, (split.state.psi,), 0, True, None)
            return ShardedFound(problem, self.lowest_rows_first(problem, refined))

    def _most_alike(self, problem: ShardedProblem) -> ByThreshold:
        """The rows of every cell with the largest witness of the target."""
        assert self.target is not None
        source = self.target.witness(problem.kernel)
        self.executor.run(Score(source.weights, "score"))
        quotas = at_target_counts(problem.limits)
        thresholds = choose(self.executor, source, np.stack([quotas, quotas], axis=1))
        return ByThreshold(source, thresholds, column=0)

    def width_candidates(self) -> dict[str, Any]:
        """Refused: they are measured on rows in memory."""
        raise needs_all_rows("--gamma power")

    def wanted_mmd(self, found: ShardedFound) -> float:
        """That of all rows and the target."""
        state = found.refined.split.state
        assert self.target is not None
        return self.target.distances(found.problem.kernel, state.sums, state.n_val).roots()[0]

    def aimed(self, found: ShardedFound) -> ShardedFound:
        """What was found: it is for the aim."""
        return found

    def beside_target(self, found: ShardedFound, best: tuple[float, float] | None) -> TargetResult | None:
        """What the split and the target measure."""
        target, state, aim = self.target, found.refined.split.state, self.options.aim
        if target is None:
            return None
        kernel, certified = found.problem.kernel, None
        with self.watch.step("target"):
            if aim == LOOKALIKE and self.options.certify != "never":
                (most,) = measure(found.problem, self._most_alike(found.problem))
                certified = certify_sum(
                    target.mean_witness(kernel, state.sums, state.n_val),
                    target.mean_witness(kernel, most.state.sums, most.state.n_val),
                    "threshold",
                )
            distances = target.distances(kernel, state.sums, state.n_val)
            return TargetResult(target.rows, aim, target.test, distances, certified, None, best)

    def lowest_rows_first(self, problem: ShardedProblem, refined: Refined) -> Refined:
        """Give places among identical rows to the lowest of them."""
        split = refined.split
        if not (isinstance(split.rule, ByThreshold) and isinstance(split.rule.source, Differences)):
            return refined
        kernel = self.kernel
        # Rows of linear kernels are converted before anything is multiplied.
        precision = np.dtype(np.float64) if kernel.mixing is None else kernel.plan.stored
        rule = lowest_rows_first(self.executor, split.rule, self._largest_factor(), precision)
        if rule is split.rule:
            return refined
        (split,) = measure(problem, rule)
        return Refined(split, (*refined.psi[:-1], split.state.psi), refined.passes, refined.converged, None)

    def _largest_factor(self) -> float:
        """A bound on the absolute entries of F."""
        kernel = self.kernel
        if kernel.prepared.kernel.is_nonnegative:
            return 1.0
        values = kernel.plan.factors(
            kernel.plan.to_store(kernel.sample.raw[:1024], self.engine.workers.alone())
        )
        return float(np.abs(values).max(initial=1.0))

    def measure_rule(self, rule: Rule) -> tuple[ShardedProblem, SplitByRule]:
        """Measure a split given as a rule, and with it the kernel as a whole."""
        kernel, limits = self.kernel, self.kernel.surveyed.limits
        sums, counts = side_sums(self.executor, rule, len(limits.target), with_total=True)
        whole = FactoredKernel(
            kernel.surveyed.n, sums[:, -1], kernel.mixing, kernel.trace, kernel.trace_error
        )
        kernel.prepared.require_digits(whole.ssq_total, whole.trace, whole.n)
        state = whole.state(sums[:, 0], int(counts[:, 0].sum()))
        return ShardedProblem(self.executor, limits, whole), SplitByRule(rule, state, counts[:, 0])

    def account(self, found: ShardedFound) -> Searched | None:
        """Name the one start that was carried over from the sample to all rows, and Psi after every step."""
        psi, state, start = found.refined.psi, found.refined.split.state, found.start
        if start is None:
            return None
        steps = [Step("start" if number == 0 else "lloyd", number, value) for number, value in enumerate(psi)]
        mmd = float(max(state.mmd_squared, 0.0) ** 0.5)
        run = Restart(start, len(psi) - 1, state.psi, mmd, found.refined.converged)
        return Searched(tuple(steps), (run,), 0)

    def draw(self, strategy: str) -> Rule:
        """Draw a random split that meets every cell's target."""
        if strategy != "random":
            raise needs_all_rows(f"baseline {strategy}")
        source = Uniform.of([self.kernel.streams.search])
        quotas = at_target_counts(self.kernel.surveyed.limits)[:, None]
        return ByThreshold(source, choose(self.executor, source, quotas))

    def measure(self, parts: Rule, *, converged: bool = True) -> ShardedFound:
        """Measure a split that is given as a rule."""
        with self.watch.step("kernel"):
            problem, split = self.measure_rule(parts)
        return ShardedFound(problem, Refined(split, (split.state.psi,), 0, converged, None))

    def at(self, level: float) -> ShardedContext:
        """The same rows and kernel, for graded splits of another severity."""
        options = replace(self.options, severity=level, at_mmd=None)
        return replace(self, engine=replace(self.engine, options=options))

    def paths(self, found: ShardedFound, draw: int = 0) -> Iterator[ShardedPath]:
        """Ways from random splits to the best one, to look for graded splits along."""
        best = found.refined.split
        spreads = witness_spreads(self.kernel, best, self.engine.workers)
        for stream in self.kernel.streams.noise(draw):
            yield ShardedPath(found.problem, best, spreads, stream.bit_generator.state)

    def with_parts(self, found: ShardedFound, parts: Rule) -> ShardedFound:
        """Another split than the search found, measured."""
        (split,) = measure(found.problem, parts)
        return replace(found, refined=replace(found.refined, split=split, proposal=None))

    def has_converged(self, found: ShardedFound, certificate: FixedPoint | None) -> bool:
        """Whether nothing, or nothing worth a pass, was left to gain."""
        return found.refined.converged or (certificate is not None and certificate.status == "optimal")

    def certify(self, found: ShardedFound, program: Any = None) -> FixedPoint | None:
        """Compare with both orientations of the assignment step."""
        if self.options.certification == "never":
            return None
        with self.watch.step("certificate"):
            proposal = found.refined.proposal
            if proposal is None:
                proposal = propose(found.problem, found.refined.split, ("certificate", "certificate"))
            return certify(found.problem, found.refined.split, proposal)

    def bound(self, *, with_support: bool = True) -> float | None:
        """Bound the MMD of all splits with these counts; None with tolerances, or where it costs too much."""
        how, kernel, limits = self.options.bound, self.kernel, self.kernel.surveyed.limits
        if how == "never" or not self.options.is_searched_for or not limits.is_exact:
            return None
        width = kernel.plan.width
        if how == "auto" and max(kernel.surveyed.n, 50 * width) * width**2 > COSTLY_BOUND:
            return None
        parts = self.executor.run(FactorMoments(kernel.mixing, len(limits.target)))
        gram, sums = (merged(column) for column in zip(*parts, strict=True))
        precision = np.dtype(kernel.plan.stored if kernel.mixing is not None else kernel.plan.dtype)
        return factored_bound(limits, gram, sums, precision)

    def random_baseline(self, found: ShardedFound | None = None, *, same_size: bool = False) -> RandomMMD:
        """Measure random splits that meet every cell's target: those that the local engine draws."""
        assert found is not None
        problem, streams = found.problem, deepcopy(self.kernel.streams.baseline)
        quotas = at_target_counts(problem.limits)
        source = Uniform.of(streams)
        thresholds = choose(self.executor, source, np.repeat(quotas[:, None], len(streams), axis=1))
        squared = [split.state.mmd_squared for split in measure(problem, ByThreshold(source, thresholds))]
        values = np.sqrt(np.maximum(np.array(squared), 0.0))
        return RandomMMD(len(values), float(values.mean()), float(values.std(ddof=1)), tuple(values.tolist()))

    def subsample(self, found: ShardedFound) -> SubsampleEstimate | None:
        """Estimate MMD² under the exact kernel; None unless the kernel is approximated."""
        if self.kernel.mixing is None:
            return None
        with self.watch.step("subsample"):
            val, train = self.subsampled_rows(found.rule)
            return self._estimate(val, train)

    def subsampled_rows(self, rule: Rule) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The very rows that the local engine draws of validation and training, as numbers among all rows."""
        sizes = self.executor.run(CountSides(rule))
        stream = deepcopy(self.kernel.streams.samples)  # whoever asks again is told the same
        picks = [_draw(sum(size[side] for size in sizes), SUBSAMPLE_ROWS, stream) for side in range(2)]
        starts = np.cumsum([[0, 0], *sizes], axis=0)[:-1]
        ranks = tuple(tuple(picks[side] - start[side] for side in range(2)) for start in starts)
        inside = tuple(
            tuple(rank[(rank >= 0) & (rank < size)] for rank, size in zip(pair, counts, strict=True))
            for pair, counts in zip(ranks, sizes, strict=True)
        )
        found = self.executor.run(Ranked(rule, inside))
        val, train = (np.concatenate([part[side] for part in found]) for side in range(2))
        return val, train

    def _estimate(self, val: NDArray[np.int64], train: NDArray[np.int64]) -> SubsampleEstimate | None:
        layout, kernel = self.engine.layout, self.kernel
        wanted = {"val": val, "train": train}
        at_hand = samples.gather(self.executor, wanted, layout.width, layout.features.dtype)
        features = Features(at_hand.raw, kernel.plan.steps, kernel.prepared.features.dtype)
        # All of the rows are drawn again, in order: the estimate is of these rows and no others.
        again = np.random.default_rng(0)
        sides = [at_hand.places(rows) for rows in (val, train)]
        return subsample_mmd(features, kernel.prepared.kernel, sides, SUBSAMPLE_ROWS, again)

    def definition(self, found: ShardedFound) -> ByDefinition:
        """Measure the labels that the shards were given by definition.

        All rows are summed in float64. The trace of a Nyström kernel, and the estimate under the exact
        kernel, come from the rows that the seed draws for them, which are brought together.
        """
        ahead, layout, options = self.kernel, self.engine.layout, self.options
        kernel, n = ahead.prepared.kernel, ahead.surveyed.n
        spelled = SpelledKernel(kernel.name, kernel.gamma, kernel.degree, options.standardize)
        moments = ahead.surveyed.moments
        shift = moments.mean * (kernel.name != "tanimoto")  # which has a zero of its own
        if options.standardize == "zscore":
            deviation = np.where(moments.deviation > 0, moments.deviation, 1.0)
            spelled = replace(spelled, mean=moments.mean, rest=moments.rest, deviation=deviation)
            shift = np.zeros(layout.width)
        if kernel.origin is not None:
            spelled = replace(spelled, origin=shift)
        sizes = (found.refined.split.state.n_val, n)
        if ahead.mixing is None:
            return ByDefinition(define_linear(self.executor, spelled, shift, sizes), "linear", n)
        wanted = {
            "landmarks": choose_landmarks(n, ahead.plan.width, Streams.from_seed(options.seed).landmarks),
            "trace": trace_rows(n),
        }
        val, train = self.subsampled_rows(found.rule)
        if min(len(val), len(train)) > 1:
            wanted |= {"val": val, "train": train}
        at_hand = samples.gather(self.executor, wanted, layout.width, layout.features.dtype)
        rows = {name: at_hand.rows(numbers) for name, numbers in wanted.items()}
        measured = define_nystrom(self.executor, spelled, shift, sizes, rows["landmarks"], rows["trace"])
        estimate = None
        if "val" in rows:
            estimate = unbiased(spelled, *(spelled.rows(rows[side]) - shift for side in ("val", "train")))
        return ByDefinition(measured, "nystrom", n, estimate=estimate)

    def misplaced_ties(self, parts: Rule) -> SomeRows:
        """Rows in validation while a lower, identical one of their cell is not, and those lower ones."""
        layout, n = self.engine.layout, self.kernel.surveyed.n
        found, count = find_misplaced(self.executor, n, layout.width, layout.features.dtype)
        rows = [row for pair in found for row in (pair.train, pair.val)]
        return 2 * count, np.array(sorted(rows), dtype=np.int64)

    def differing(self, found: ShardedFound, parts: Rule) -> SomeRows:
        """Rows that are on another side than the labels say that the shards were given."""
        each = self.executor.run(FindDiffering(found.rule))
        return sum(count for count, _ in each), np.concatenate([rows for _, rows in each])

    def portrait(self, found: ShardedFound, random: RandomMMD) -> Any:
        """Refused: it draws rows."""
        raise needs_all_rows("--html")

    def dataset(self) -> Dataset:
        """The dataset without its rows: what was found out about it, and about the engine."""
        found = surveyed_dataset(self.engine.layout, self.kernel.surveyed.found, self.engine.prints)
        notes, target = (*found.notes, *self.executor.notes), self.engine.target
        if target is None:
            return replace(found, notes=notes)
        return replace(found, notes=notes, read_from=lambda: (*found.read_from(), *target.read_from()))

    def about(self, *, searched: bool) -> About:
        """What the run rests on; options of a search are not among those used where there was none."""
        options, engine = self.options, self.engine
        resolved: dict[str, Any] = resolved_options(options, self.memory, self.kernel.prepared.kernel)
        resolved |= {
            "holdout": float(options.holdout),
            "rounding": self.kernel.surveyed.rounding,
            "solver": "selection",
            "bound": options.bound,
            "engine": self.executor.name,
            "passes": engine.engine_options.max_passes,
        }
        if not searched:
            resolved |= dict.fromkeys(("restarts", "effort", "max_iter", "solver", "passes"))
        kernel, quotas = self.kernel, self.kernel.surveyed.quotas
        return About(
            self.dataset(),
            options,
            resolved,
            self.memory,
            kernel.prepared,
            kernel.spread,
            quotas.names,
            quotas.shares,
            kernel.trace_error,
        )

    def measures(self, found: ShardedFound) -> Measures:
        """What the split measures."""
        state, whole = found.refined.split.state, found.problem.kernel
        return Measures(
            sizes=np.array([state.n_train, state.n_val], dtype=np.int64),
            mmd_squared=state.mmd_squared,
            psi=state.psi,
            ssq_total=whole.ssq_total,
            identity_residual=whole.residual(state),
        )

    def constraints(self, found: ShardedFound) -> summary.ConstraintsSummary:
        """Compare every cell's count with its bounds."""
        quotas, tolerance = self.kernel.surveyed.quotas, self.options.tolerance
        cells = tuple(summarize_validation(quotas, found.refined.split.counts))
        return summary.ConstraintsSummary(
            all_satisfied=all(cell.satisfied for cell in cells),
            cells=cells,
            families=(family_name(quotas),),
            rounding=self.kernel.surveyed.rounding,
            integral_by="total_unimodularity",
            tolerance=summary.ToleranceSummary(
                float(tolerance.general or 0), tolerance.is_auto, True if tolerance.is_auto else None
            ),
        )

    def notes(self, found: ShardedFound, *, converged: bool, sized: bool) -> Notes:
        """Warnings about cells, the number of validation rows, and passes that ran out."""
        surveyed, n_val = self.kernel.surveyed, found.refined.split.state.n_val
        cells = about_cells(surveyed.quotas, self.options, surveyed.rounding, n_val if sized else None)
        if converged:
            return tuple(cells)
        most = self.engine.engine_options.max_passes
        left = f"the split was still improving after {most} passes; raise --passes"
        return (*cells, ("not_converged", left))

    def engine_summary(self, found: ShardedFound) -> summary.EngineSummary:
        """How the rows were gone through."""
        executor = self.executor
        accounts = executor.run(Accounts())
        places = {place for _, place, _ in accounts if place is not None} or {"recompute"}
        passes = found.refined.passes
        seconds = max(self.watch.steps.get("refine", 0.0), 1e-9)
        return summary.EngineSummary(
            name=executor.name,
            workers=executor.n_workers,
            shards=len(accounts),
            sample_rows=len(self.kernel.sample.numbers),
            passes=passes,
            factors=places.pop() if len(places) == 1 else "mixed",
            factor_bytes=sum(size for _, _, size in accounts),
            source_bytes=sum(account.source_bytes for account, _, _ in accounts),
            spill_bytes=sum(account.spill_bytes for account, _, _ in accounts),
            rows_per_second=passes * self.kernel.surveyed.n / seconds,
        )

    def written(self, found: ShardedFound) -> Rule:
        """Which rows are in validation."""
        return found.rule


def sum_factors(plan: FactorPlan, values: NDArray[Any], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """F' weights for rows in memory, some at a time."""
    total = np.zeros((plan.width, weights.shape[1]))
    for start in range(0, len(values), 4096):
        piece = slice(start, start + 4096)
        total += plan.factors(values[piece]).T @ weights[piece]
    return total


def _draw(total: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Ranks of the rows that `core.mmd` would draw of one side."""
    if total <= size:
        return np.arange(total)
    return np.sort(rng.choice(total, size=size, replace=False)).astype(np.int64)


def nameless(layout: Layout) -> Dataset:
    """A dataset of which no row was looked at: its columns and their roles."""
    nothing: NDArray[np.int32] = np.empty(0, np.int32)
    return Dataset(
        features=np.empty((0, layout.width), layout.features.dtype),
        feature_names=layout.feature_names,
        feature_columns=layout.features.names,
        categories={word: Categories(nothing, ()) for word in layout.family},
        rows=np.empty(0, np.int64),
        n_rows=layout.n_rows,
        notes=layout.notes,
    )


def surveyed_dataset(layout: Layout, found: Counted, prints: Fingerprints | None) -> Dataset:
    """The dataset without its rows: what was found out about it; files behind a URL have no hashes."""
    unhashed = tuple(InputFile(report_path(s.path), "features", s.bytes, None) for s in layout.stamps)
    dropped: tuple[tuple[str, str], ...] = ()
    if found.in_columns is not None:
        names, words = layout.feature_names, tuple(layout.family)
        dropped = (about_dropped(found.in_columns, names, words, found.cells, found.lost),)
    return replace(
        nameless(layout),
        notes=(*layout.notes, *dropped),
        n_excluded=found.n_excluded,
        n_dropped=found.n_invalid,
        read_from=(lambda: unhashed) if prints is None else prints.files,
    )


@contextmanager
def fingerprints(layout: Layout) -> Iterator[Fingerprints | None]:
    """Hash the files while they are read; those behind a URL are not read once more for that."""
    if as_url(layout.path) is not None:
        yield None
        return
    with Fingerprints([(stamp, "features") for stamp in layout.stamps]) as prints:
        yield prints
