"""Splits in two of rows in memory."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.cbc import AssignmentProgram, CBCAssigner
from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.baselines import SEEDED, RandomMMD, StrategyContext, of_size, random_mmd
from clustersplit_cli.core.bound.bound import SEMIDEFINITE, SPECTRAL, UpperBound, mmd_upper_bound
from clustersplit_cli.core.bound.semidefinite import MOST_UNITS, semidefinite_bound
from clustersplit_cli.core.certificate import (
    FixedPoint,
    certify_by_cbc,
    certify_by_threshold,
    certify_program,
)
from clustersplit_cli.core.constraints.quotas import SIDES, TRAIN, VAL, ValidationQuotas
from clustersplit_cli.core.constraints.requirements import Requirements
from clustersplit_cli.core.duplicates import lowest_rows_first
from clustersplit_cli.core.effort import EFFORTS
from clustersplit_cli.core.geometry.low_rank import LowRankKernel, landmarks_in_two, make_low_rank
from clustersplit_cli.core.mmd.estimators import SubsampleEstimate
from clustersplit_cli.core.search.problem import Members, Problem, SearchContext, SplitMeasures, evaluate
from clustersplit_cli.core.search.programs import CoupledSearch, Coupling
from clustersplit_cli.core.search.search import SplitSearch, needs_low_rank
from clustersplit_cli.core.severity import CoupledPath, Path, SplitPath, normal, standardized
from clustersplit_cli.engines.options import LOCAL
from clustersplit_cli.errors import UsageError
from clustersplit_cli.options import TIGHT
from clustersplit_cli.pipeline.engine import Idle
from clustersplit_cli.pipeline.local.context import (
    CBC_CERTIFICATE_ROWS,
    LocalContext,
    LocalFound,
    Parts,
    by_cbc,
)
from clustersplit_cli.pipeline.local.target import LocalTarget
from clustersplit_cli.pipeline.notices import about_cells, about_convergence, about_units
from clustersplit_cli.pipeline.result import About, Notes, SomeRows
from clustersplit_cli.pipeline.summarize import (
    family_name,
    summarize_validation,
)
from clustersplit_cli.pipeline.target import TargetResult
from clustersplit_cli.reports import summary

PROGRAMMED_SPLITS = 10
"""Random splits, where each takes a program."""
COSTLY_BOUND = 4e11
"""Rows times squared factors of the kernel, beyond which the bound takes longer than the split."""


@dataclass(frozen=True)
class LocalSplit(LocalContext):
    """Rows in memory that are to be split in two.

    Attributes
    ----------
    problem : where units stay together, with the quotas of the first family.
    target : the rows of where the model will be used, if they were given.
    """

    problem: Problem
    requirements: Requirements
    target: LocalTarget | None = None

    @property
    def part_names(self) -> None:
        """Two sides."""

    @property
    def idle_from(self) -> Idle:
        """Exact kernels leave workers idle, held factors only once no more passes are made.

        Where cells hang together, the bound shares random streams with the search: it has to wait. A tight
        one asks what was found.
        """
        if self.options.bound == TIGHT:
            return Idle.AFTERWARDS
        if not self.requirements.separates or self.kernel.memory.geometry == "linear":
            return Idle.AFTERWARDS
        return Idle.REFINING if self.problem.geometry.is_low_rank else Idle.EXPLORING

    @cached_property
    def coupling(self) -> Coupling:
        """The problem of rows or units whose cells hang together."""
        return Coupling.of(self.problem, self.requirements, self.options.solver, self.workers)

    def _make_low_rank(self) -> LowRankKernel:
        geometry = self.problem.geometry
        # A copy of the stream, so that the bound is the same whether or not a search came first.
        low_rank = make_low_rank(geometry, deepcopy(self.streams.low_rank), landmarks_in_two(geometry.n))
        # The search and the bound look along the same directions, unless there are several families of cells.
        if not self.requirements.separates:
            return low_rank
        return low_rank.turned(self.problem.constraints, self.workers)

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
                context, self.low_rank() if needs_low_rank(problem) else None, self.streams.search
            )
        coupling, over_rows = self.coupling, self.requirements.units is None
        return CoupledSearch(
            coupling,
            self.low_rank()
            if over_rows
            else make_low_rank(coupling.problem.geometry, deepcopy(self.streams.low_rank)),
            options.restarts,
            options.max_iter,
            effort,
            self.streams.search,
            self.progress,
        )

    def refine(self, explored: Any) -> LocalFound:
        """Refine the best splits; places among identical rows go to the lowest of them."""
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

    def misplaced_ties(self, parts: NDArray[Any]) -> SomeRows | None:
        """Rows in validation while a lower, identical one of their cell is not, and those lower ones."""
        if self.requirements.units is not None:
            return None
        members = parts == VAL
        rows = self.dataset.rows[self.lowest_rows_first(members) != members]
        return len(rows), rows

    def draw(self, strategy: str) -> Members:
        """Choose a split by another strategy, without a search."""
        self.progress(strategy, 0, 0)
        with self.watch.step("search"):
            return SEEDED[strategy](self.strategy_context, self.streams.search)

    @property
    def strategy_context(self) -> StrategyContext:
        """What a strategy is given."""
        draw = None if self.requirements.separates else self.coupling.random_splits
        return StrategyContext(self.problem, self.workers, draw)

    def measure(self, parts: NDArray[Any], *, converged: bool = True) -> LocalFound:
        """Measure a split: the part of every row, 1 for validation."""
        with self.watch.step("measure"):
            return LocalFound(parts.astype(np.int64), evaluate(self.problem, parts.astype(bool)), converged)

    def paths(self, found: LocalFound, draw: int = 0) -> Iterator[Path[Members]]:
        """Ways from random splits to the best one, to look for graded splits along."""
        problem, asked = self.problem, self.requirements
        witness = found.measured.witness
        if asked.separates:
            towards = -standardized(witness, problem.constraints.cells)
            counts = problem.constraints.counts(found.members)
            for stream in self.streams.noise(draw):
                yield SplitPath(problem, towards, normal(stream.random(problem.n)), counts)
            return
        towards = -standardized(witness, of_size(problem.n, 0).cells)
        if asked.units is not None:
            towards = np.asarray(np.bincount(asked.units, weights=towards), dtype=np.float64)
        for stream in self.streams.noise(draw):
            # Uniform noise, as random splits have: at the variance of the witness.
            noise = 12**0.5 * self.coupling.keys([stream])[:, 0]
            yield CoupledPath(problem, self.coupling, towards, noise)

    def wanted_mmd(self, found: LocalFound) -> float:
        """That of all rows and the target."""
        assert self.target is not None
        return self.target.distances(found.members).roots()[0]

    def aimed(self, found: LocalFound) -> LocalFound:
        """The split for the aim that was asked for; `found` is the hardest one."""
        aim, asked = self.options.aim, self.requirements
        if self.options.is_searched_for or self.target is None:
            return found
        if not (asked.separates and asked.working.is_exact):
            raise UsageError(
                f"--aim {aim} keeps the quotas of one family of single rows exactly",
                hint="drop --tolerance, --keep-together, or all but one --stratify",
            )
        with self.watch.step("aim"):
            (chance,) = deepcopy(self.streams.search).spawn(1)
            members = self.target.choose(aim, self.options.restarts, chance)
            members = self.lowest_rows_first(members)
        return self.measure(members)

    def beside_target(self, found: LocalFound, best: tuple[float, float] | None) -> TargetResult | None:
        """What the split and the target measure."""
        target, members, options = self.target, found.members, self.options
        if target is None:
            return None
        with self.watch.step("target"):
            certified = None
            if options.certify != "never":
                by = by_cbc(self.problem.n, options.certify)
                certified = target.certify(options.aim, members, by_cbc=by)
            matching = target.match(members) if options.weights else None
            return TargetResult(
                target.rows, options.aim, target.test, target.distances(members), certified, matching, best
            )

    def certify(self, found: LocalFound, program: AssignmentProgram | None = None) -> FixedPoint | None:
        """Solve the assignment program at the split's own centroids."""
        how, asked = self.options.certification, self.requirements
        with self.watch.step("certificate"):
            if asked.separates:
                proof = certify(found.measured, found.members, self.problem.constraints, how, program)
            else:
                proof = certify_coupled(found.measured, found.members, asked, how)
            return proof and proof.lacking(self.kernel.geometry.lacking)

    def bound(self, found: LocalFound | None = None, *, with_support: bool = True) -> UpperBound | None:
        """Bound the MMD of all splits with these counts; None with tolerances, or where it costs too much.

        Parameters
        ----------
        found : once no other split can have a larger MMD, a tight bound is tight enough.
        with_support : whether to use support functions, which engines that read in pieces do not.
        """
        options, memory, problem = self.options, self.kernel.memory, self.problem
        is_exact = all(family.is_exact for family in self.requirements.families)
        if options.bound == "never" or not options.is_searched_for or not is_exact:
            return None
        if options.bound == "auto" and not self.kernel.geometry.has_entries:
            factors = memory.landmarks or memory.rank or self.dataset.features.shape[1]
            # Their eigenvalues cost as much as fifty products.
            if max(problem.n, 50 * factors) * factors**2 > COSTLY_BOUND:
                return None
        if self.requirements.separates:
            most = mmd_upper_bound(problem, self.low_rank(), with_support=with_support)
        else:
            # Splits that meet several families meet each of them: the smallest of their bounds holds.
            limits = [family.validation for family in self.requirements.families]
            problems = [replace(problem, constraints=each) for each in limits]
            most = min(mmd_upper_bound(each, self.low_rank()) for each in problems)
        bound = UpperBound(most, SPECTRAL)
        if options.bound != TIGHT or (found is not None and bound.proves(found.measured.mmd)):
            return bound
        over = problem if self.requirements.units is None else self.coupling.problem
        reached = None if found is None else found.measured.mmd_squared
        tight = semidefinite_bound(over, self.requirements, reached, self.progress)
        return min(bound, UpperBound(tight, SEMIDEFINITE), key=lambda each: each.mmd)

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
            },
            self.requirements.families[0],
        )

    def constraints(self, found: LocalFound) -> summary.ConstraintsSummary:
        """Compare every cell's count with its bounds, and say what else was asked for."""
        asked, members = self.requirements, found.members
        cells = tuple(
            cell
            for family in asked.families
            for cell in summarize_validation(family, family.validation.counts(members))
        )
        units, pinned = self._units(members), self._pinned(members)
        return summary.ConstraintsSummary(
            all_satisfied=all(cell.satisfied for cell in cells)
            and asked.keeps_total(members)
            and (units is None or units.divided == 0)
            and (pinned is None or pinned.satisfied),
            cells=cells,
            families=tuple(map(family_name, asked.families)),
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
        inside = np.bincount(asked.units[members], minlength=asked.n_units)
        divided = int(((inside > 0) & (inside < asked.sizes)).sum())
        return summary.UnitsSummary(
            self.dataset.together or "", asked.n_units, int(asked.sizes.max()), divided
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
            for place, quotas in enumerate(asked.families)
            for note in about_cells(quotas, self.options, asked.rounding, n_val if place == 0 else None)
        )
        units = () if asked.units is None else about_units(self.dataset.together, asked.sizes)
        return (*cells, *units, *about_convergence(converged, self.options.max_iter))

    def written(self, found: LocalFound) -> Parts:
        """The rows of both sides."""
        return Parts.of(self.dataset.rows, SIDES, found.labels)


def refuse_tight_bound(requirements: Requirements) -> None:
    """Refuse to bound tightly what is too large for that, or has no fixed counts.

    Raises
    ------
    UsageError
    """
    if not all(family.is_exact for family in requirements.families):
        raise UsageError(
            f"--bound {TIGHT} needs exact quotas, and tolerances leave the number of rows open",
            hint="drop --tolerance, or --bound",
        )
    if requirements.n_units > MOST_UNITS:
        what = "rows" if requirements.units is None else "units"
        raise UsageError(
            f"--bound {TIGHT} takes at most {MOST_UNITS:,} {what}, and there are {requirements.n_units:,}",
            hint="use --bound always",
        )


def certify(
    measured: SplitMeasures,
    members: Members,
    constraints: ValidationQuotas,
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
    measured: SplitMeasures, members: Members, requirements: Requirements, how: str
) -> FixedPoint | None:
    """Certify a split whose cells hang together by CBC, or above the size where that pays by HiGHS."""
    if how == "never":
        return None
    by = "cbc" if how == "always" or requirements.n_units <= CBC_CERTIFICATE_ROWS else "highs"
    return certify_program(measured, members, requirements, by)
