"""A split in two of rows that are read in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.baselines import RandomMMD
from clustersplit_cli.core.bound.bound import SPECTRAL, UpperBound, factored_bound
from clustersplit_cli.core.certificate import FixedPoint
from clustersplit_cli.core.constraints.quotas import TRAIN, VAL
from clustersplit_cli.core.effort import EFFORTS
from clustersplit_cli.core.exact_sum import merged
from clustersplit_cli.core.geometry.low_rank import make_low_rank
from clustersplit_cli.core.geometry.nystrom import low_rank_geometry
from clustersplit_cli.core.geometry.protocol import split_weights
from clustersplit_cli.core.mmd.estimators import SubsampleEstimate
from clustersplit_cli.core.search.problem import Measures, Problem, SearchContext
from clustersplit_cli.core.search.search import SplitSearch, needs_low_rank
from clustersplit_cli.core.search.solution import Restart, Step
from clustersplit_cli.engines.checks import find_misplaced
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
from clustersplit_cli.engines.rules import ByThreshold, Differences, Rule, Uniform
from clustersplit_cli.engines.tasks import FactorMoments, Score
from clustersplit_cli.errors import needs_all_rows
from clustersplit_cli.options import LOOKALIKE
from clustersplit_cli.pipeline.local.split import COSTLY_BOUND
from clustersplit_cli.pipeline.notices import about_cells
from clustersplit_cli.pipeline.result import About, Notes, Searched, SomeRows
from clustersplit_cli.pipeline.sharded.context import ShardedContext
from clustersplit_cli.pipeline.sharded.grades import ShardedPath, witness_spreads
from clustersplit_cli.pipeline.summarize import family_name, summarize_validation
from clustersplit_cli.pipeline.target import TargetResult, certify_sum
from clustersplit_cli.reports import summary


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
class ShardedSplit(ShardedContext[ShardedFound]):
    """Rows in shards that are to be split in two, and their kernel."""

    def explore(self) -> tuple[NDArray[np.float64], str] | None:
        """Search on the sample; return the best split's witness, as weights on F, and its start's name.

        For another aim than the hardest split there is nothing to search for.
        """
        if not self.options.is_searched_for:
            return None
        kernel, workers = self.kernel, self.engine.workers
        mixing, sample = kernel.mixing, kernel.sample
        with self.watch.step("search"):
            values, factors = self.sample_factors()
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
            sums = self.sum_of_sample(values, np.asarray(weights, dtype=np.float64))[:, 0]
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

    def wanted_mmd(self, found: ShardedFound) -> float:
        """That of all rows and the target."""
        state = found.refined.split.state
        assert self.target is not None
        return self.target.distances(found.problem.kernel, state.sums, state.n_val).roots()[0]

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
        whole = self.whole(sums[:, -1])
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

    def bound(self, found: ShardedFound | None = None, *, with_support: bool = True) -> UpperBound | None:
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
        return UpperBound(factored_bound(limits, gram, sums, precision), SPECTRAL)

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
            return self.estimate(found)

    def about(self, *, searched: bool) -> About:
        """What the run rests on; options of a search are not among those used where there was none."""
        resolved = {
            "holdout": float(self.options.holdout),
            "rounding": self.kernel.surveyed.rounding,
            "solver": "selection",
            "bound": self.options.bound,
        }
        return self.rests_on(resolved, searched=searched)

    @property
    def drawing_order(self) -> tuple[int, int]:
        """Validation rows come first."""
        return VAL, TRAIN

    def misplaced_ties(self, parts: Rule) -> SomeRows:
        """Rows in validation while a lower, identical one of their cell is not, and those lower ones."""
        layout, n = self.engine.layout, self.kernel.surveyed.n
        found, count = find_misplaced(self.executor, n, layout.width, layout.features.dtype)
        rows = [row for pair in found for row in (pair.train, pair.val)]
        return 2 * count, np.array(sorted(rows), dtype=np.int64)

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

    def passes_of(self, found: ShardedFound) -> int:
        """Passes over all factors that refined the split."""
        return found.refined.passes

    def written(self, found: ShardedFound) -> Rule:
        """Which part every row is in."""
        return found.rule

    def rule_of(self, found: ShardedFound) -> Rule:
        """Which rows are in validation."""
        return found.rule
