"""From many starts to one partition into k parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import DTypeLike, NDArray

from clustersplit_cli.core.constraints.cells import Labels, sample_rows
from clustersplit_cli.core.constraints.quotas import Quotas
from clustersplit_cli.core.effort import Effort
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.geometry.low_rank import LowRankKernel, explored_rows
from clustersplit_cli.core.geometry.nystrom import low_rank_geometry
from clustersplit_cli.core.geometry.protocol import Geometry
from clustersplit_cli.core.search.exhaustive import MOST_FREE, all_choices, batches, best_of
from clustersplit_cli.core.search.partition import (
    PartAssigner,
    State,
    measure,
    one_hot,
    remeasure,
    without_empty_parts,
)
from clustersplit_cli.core.search.problem import SMALL
from clustersplit_cli.core.search.solution import Restart, Solution, StagedSearch, Step, joined, shortened
from clustersplit_cli.core.search.swaps import polish_pairs
from clustersplit_cli.progress import Progress, silent

ROUGH_ROUNDS, FINAL_ROUNDS = 3, 12
WORTHWHILE = 2e-5
"""A step that explains less than this share of scatter more is none worth taking on a low-rank kernel."""
FIRST_GAINS, GONE_ON_WITH = 2e-4, 3
"""The same for all starts of many rows, and how many of them are gone on with."""
WORTH_POLISHING = 1e-6
"""On many rows exchanges go on as long as a round of them lowers Psi by more than this share."""
FIRST_MOMENTUM, MOST_MOMENTUM = 0.5, 2.0
"""How far beyond a step's own centroids it goes, in steps like the one before."""
PERTURBED = 0.15
"""Share of the rows that are drawn again in a perturbed partition."""


@dataclass(frozen=True)
class PartitionCandidate:
    """One run: the partition it has reached, its Psi, and what it passed, as (phase, Psi).

    `trace` is Psi at the start and after every step, where the last one was taken.
    """

    start: int
    labels: Labels
    psi: float
    passed: tuple[tuple[str, float], ...]
    steps: int
    converged: bool
    trace: tuple[float, ...] = ()


@dataclass(frozen=True)
class Sample:
    """Some of the rows, on which partitions are explored where there are many.

    Attributes
    ----------
    factors : of these rows, in a low-rank approximation of the kernel.
    kernel : the kernel they stand for.
    assigner : to parts as large, in every cell, as the sample's share of it.
    """

    factors: Floats
    kernel: Geometry
    assigner: PartAssigner

    def to_all_rows(self, labels: Labels, assigner: PartAssigner, factors: Floats) -> Labels:
        """Carry partitions (rows, r) over: all rows to the centroids of the sample's parts; shape (n, r)."""
        k = assigner.quotas.k
        marks = one_hot(labels, k, factors.dtype)
        state = measure(self.kernel, labels, k, factors.dtype)
        sizes = np.maximum(state.sizes, 1)
        sums = (factors @ (self.factors.T @ marks)).reshape(len(factors), labels.shape[1], k)
        carried = [
            assigner.assign_in_order(
                (-2.0 * sums[:, run] / sizes[run] + state.inside[run] / sizes[run] ** 2)[None]
            ).labels[0]
            for run in range(labels.shape[1])
        ]
        return without_empty_parts(assigner.quotas, np.stack(carried, axis=1))

    def carry_over(
        self, candidates: Sequence[PartitionCandidate], assigner: PartAssigner, factors: Floats
    ) -> list[PartitionCandidate]:
        """Carry candidates over; Psi is a sum over rows."""
        labels = self.to_all_rows(
            np.stack([candidate.labels for candidate in candidates], axis=1), assigner, factors
        )
        share = len(factors) / len(self.factors)
        return [
            replace(
                candidate,
                labels=labels[:, run],
                psi=candidate.psi * share,
                passed=(),
                trace=tuple(psi * share for psi in candidate.trace),
            )
            for run, candidate in enumerate(candidates)
        ]


@dataclass(frozen=True)
class ExploredPartitions:
    """Where starts lead, and the best partitions on all rows.

    Attributes
    ----------
    names, starts : of the starts, (rows, r) on the rows that were explored.
    ends : where every start ended, as partitions of all rows.
    chosen : those worth refining on the kernel itself.
    sample : the rows that were explored; None: all of them.
    factors : of all rows, in the low-rank approximation.
    """

    names: list[str]
    starts: Labels
    ends: list[PartitionCandidate]
    chosen: list[PartitionCandidate]
    sample: Sample | None
    factors: Floats


@dataclass(frozen=True)
class FoundPartition:
    """A converged partition, and where the others ended."""

    explored: ExploredPartitions
    refined: list[PartitionCandidate]
    best: PartitionCandidate

    @property
    def labels(self) -> Labels:
        """The part of every row."""
        return self.best.labels


@dataclass(frozen=True)
class PartitionSearch(StagedSearch[ExploredPartitions, FoundPartition]):
    """Searches for the partition with the smallest Psi that the effort affords.

    Attributes
    ----------
    low_rank : a low-rank approximation of the kernel, on which starts descend if there are many rows.
    """

    geometry: Geometry
    low_rank: LowRankKernel
    assigner: PartAssigner
    restarts: int
    max_iter: int
    effort: Effort
    rng: np.random.Generator
    progress: Progress = silent

    def explore(self) -> ExploredPartitions:
        """See where starts lead, on a low-rank kernel if there are many rows."""
        geometry, assigner, progress = self.geometry, self.assigner, self.progress
        start_rng, perturb_rng, sample_rng = self.rng.spawn(3)
        factors = self.low_rank.factors(np.arange(geometry.n))
        is_small = geometry.n <= SMALL
        rough = geometry if is_small else low_rank_geometry(factors, assigner.workers)
        sample = draw_sample(assigner, factors, sample_rng)
        explored, some = (rough, assigner) if sample is None else (sample.kernel, sample.assigner)
        names, starts = _starts(some, factors if sample is None else sample.factors, self.restarts, start_rng)
        starts = without_empty_parts(some.quotas, starts)
        candidates = [
            PartitionCandidate(run, starts[:, run], np.inf, (), 0, False) for run in range(starts.shape[1])
        ]
        dtype = rough.search_dtype
        ends = descend_partitions(
            *(explored, candidates, some, self.max_iter, dtype, "explore", progress),
            worthwhile=None if is_small else FIRST_GAINS,
        )
        if not is_small:
            near = sorted(ends, key=lambda candidate: candidate.psi)[:GONE_ON_WITH]
            near = descend_partitions(
                explored, near, some, self.max_iter, dtype, "explore", progress, worthwhile=WORTHWHILE
            )
            further = {candidate.start: candidate for candidate in near}
            ends = [further.get(candidate.start, candidate) for candidate in ends]
        best = self._perturb(explored, min(ends, key=lambda candidate: candidate.psi), some, perturb_rng)
        wanted = max(1, self.effort.candidates // 4)
        chosen = sorted([*ends, best], key=lambda candidate: candidate.psi)[:wanted]
        if sample is not None:
            ends = sample.carry_over(ends, assigner, factors)
            carried = sample.carry_over(chosen[:1], assigner, factors)
            chosen = descend_partitions(
                rough, carried, assigner, self.max_iter, dtype, "explore", progress, worthwhile=WORTHWHILE
            )
        return ExploredPartitions(names, starts, ends, chosen, sample, factors)

    def refine(self, explored: ExploredPartitions) -> FoundPartition:
        """Refine the best partitions on the kernel itself, and the best of all in float64."""
        geometry, assigner, sample = self.geometry, self.assigner, explored.sample
        refined = [self._refine(candidate, exactly=False) for candidate in explored.chosen]
        begun = min(refined, key=lambda candidate: candidate.psi)
        first = explored.starts[:, [begun.start]]
        if sample is not None:
            first = sample.to_all_rows(first, assigner, explored.factors)
        self.progress("measure", 0, 0)
        begun = _begun(geometry, begun, first, assigner.quotas.k)
        best = _better_of_all(geometry, self._refine(begun, exactly=True), assigner.quotas)
        return FoundPartition(explored, [*refined, best], best)

    def account(self, found: FoundPartition) -> Solution:
        """Measure where all starts ended and the steps that led to the best partition."""
        self.progress("starts", 0, 0)
        names, best = found.explored.names, found.best
        last = {candidate.start: candidate for candidate in found.explored.ends} | {
            candidate.start: candidate
            for candidate in sorted(found.refined, key=lambda candidate: -candidate.psi)
        }
        in_turn = [last[start] for start in range(len(names))]
        runs = _runs(self.geometry, names, in_turn, self.assigner.quotas.k)
        return Solution(best.labels, _steps(best), runs, best.start, best.converged)

    def _refine(self, candidate: PartitionCandidate, *, exactly: bool) -> PartitionCandidate:
        """Descend and exchange rows between pairs of parts in turn, until a descent changes nothing."""
        geometry, assigner = self.geometry, self.assigner
        converged: PartitionCandidate | None = None
        dtype = np.dtype(np.float64) if exactly else geometry.search_dtype
        k = assigner.quotas.k
        labels = candidate.labels
        state = measure(geometry, labels[:, None], k, dtype)
        for _ in range(FINAL_ROUNDS if exactly else ROUGH_ROUNDS):
            (candidate,) = descend_partitions(
                geometry, [candidate], assigner, self.max_iter, dtype, "lloyd", self.progress, state=state
            )
            if exactly and geometry.is_low_rank and (candidate.labels != labels).any():
                # Sums that many steps have added to are made anew, and it must have converged by these.
                (candidate,) = descend_partitions(
                    geometry, [candidate], assigner, self.max_iter, dtype, "lloyd", self.progress
                )
            if converged is not None and candidate.psi >= converged.psi:
                return converged
            converged = candidate
            state = remeasure(geometry, candidate.labels[:, None], k, dtype, (labels[:, None], state))
            polished = polish_pairs(geometry, candidate.labels, assigner.quotas, dtype, state, self.progress)
            labels, state = polished.labels, polished.state
            least = WORTH_POLISHING * candidate.psi if geometry.n > SMALL else 0.0
            if polished.changes == 0 or candidate.psi - polished.psi <= least:
                break
            candidate = replace(
                candidate,
                labels=polished.labels,
                psi=polished.psi,
                passed=(*candidate.passed, ("polish", polished.psi)),
                trace=(*candidate.trace, polished.psi),
            )
        return converged or candidate

    def _perturb(
        self,
        explored: Geometry,
        best: PartitionCandidate,
        assigner: PartAssigner,
        rng: np.random.Generator,
    ) -> PartitionCandidate:
        """Draw some rows' parts again and descend, until two rounds in a row bring nothing."""
        effort, max_iter, stale, batch = self.effort, self.max_iter, 0, self.effort.batch // 8
        for done in range(effort.max_rounds if batch else 0):
            if stale == 2:
                break
            self.progress("perturb", done, effort.max_rounds)
            state = measure(explored, best.labels[:, None], assigner.quotas.k, explored.search_dtype)
            costs = state.costs()[0]
            noise = rng.normal(scale=PERTURBED * float(costs.std()), size=(batch, *costs.shape))
            redrawn = assigner.assign_in_order(costs + noise).labels
            perturbed = [replace(best, labels=labels, passed=(), trace=()) for labels in redrawn]
            ends = descend_partitions(
                *(explored, perturbed, assigner, max_iter, explored.search_dtype, "perturb"),
                worthwhile=WORTHWHILE if explored.n > SMALL else None,
            )
            better = min(ends, key=lambda candidate: candidate.psi)
            gain = best.psi - better.psi
            stale = 0 if gain > 1e-5 * abs(best.psi) else stale + 1
            if gain > 0:
                best = replace(
                    better, steps=best.steps + 1, trace=(*best.trace, better.psi)
                )  # a round, a step
        return best


def draw_sample(assigner: PartAssigner, factors: Floats, rng: np.random.Generator) -> Sample | None:
    """Draw the rows to explore on; None where all are explored: there are few, or some are forced."""
    quotas, n = assigner.quotas, len(factors)
    if explored_rows(n) >= n or (quotas.pinned >= 0).any():
        return None
    rows = sample_rows(quotas.cells, explored_rows(n), rng)
    some = np.ascontiguousarray(factors[rows])
    part = replace(assigner, quotas=sampled_quotas(quotas, quotas.cells.codes[rows], quotas.pinned[rows]))
    return Sample(some, low_rank_geometry(some, assigner.workers), part)


def sampled_quotas(
    quotas: Quotas, codes: NDArray[np.int64], pinned: NDArray[np.int64] | None = None
) -> Quotas:
    """The same shares of the cells of a sample, whose rows touch every cell, and some of which are forced."""
    cells = quotas.cells.with_codes(codes)
    share = (cells.sizes / quotas.cells.sizes)[:, None]
    target = np.floor(quotas.target * share).astype(np.int64)
    rest = quotas.target * share - target
    missing = cells.sizes - target.sum(axis=1)
    target += np.argsort(np.argsort(-rest, axis=1, kind="stable"), axis=1) < missing[:, None]
    pins = np.full(len(codes), -1, np.int64) if pinned is None else pinned
    lower, upper = target, target
    if not quotas.is_exact:
        lower = np.minimum(target, np.floor(quotas.lower * share).astype(np.int64))
        upper = np.maximum(target, np.ceil(quotas.upper * share).astype(np.int64))
    return replace(
        quotas,
        cells=cells,
        target=target,
        lower=lower,
        upper=upper,
        pinned=pins,
    )


def _better_of_all(geometry: Geometry, candidate: PartitionCandidate, quotas: Quotas) -> PartitionCandidate:
    """The best of all partitions, if they are few enough to look at and it is better."""
    if int((quotas.pinned < 0).sum()) > MOST_FREE:
        return candidate
    table = (quotas.cells.codes[:, None] == np.arange(len(quotas.cells.sizes))).astype(np.int64)
    choices = all_choices(table, quotas.lower, quotas.upper, quotas.pinned)
    each = (measure(geometry, some, quotas.k, np.float64).psi for some in batches(choices))
    labels, psi = best_of(choices, each)
    if not psi < candidate.psi - 1e-12 * geometry.trace:
        return candidate
    return replace(
        candidate,
        labels=labels,
        psi=psi,
        passed=(*candidate.passed, ("enumerate", psi)),
        trace=(*candidate.trace, psi),
        converged=True,
    )


def descend_partitions(
    geometry: Geometry,
    candidates: Sequence[PartitionCandidate],
    assigner: PartAssigner,
    max_iter: int,
    dtype: DTypeLike,
    phase: str,
    progress: Progress = silent,
    *,
    worthwhile: float | None = None,
    state: State | None = None,
) -> list[PartitionCandidate]:
    """Alternate centroids and assignment from every partition, all as one batch, until Psi stops falling.

    Parameters
    ----------
    worthwhile : stop where a step explains less than this share of scatter more, and let every centroid
        serve its own part; without it, go on while Psi falls.
    state : what the candidates' partitions measure, if it is known.
    """
    k = assigner.quotas.k
    result = list(candidates)
    present = np.stack([candidate.labels for candidate in result], axis=1)
    if state is None:
        state = measure(geometry, present, k, dtype)
    for run, candidate in enumerate(result):
        psi = float(state.psi[run])
        result[run] = replace(candidate, psi=psi, trace=joined(candidate.trace, (psi,)))
    noise = worthwhile or (1e-7 if np.dtype(dtype) == np.float32 else 1e-13)
    in_order = worthwhile is not None or geometry.n > SMALL
    spread = max(_scatter(geometry), np.finfo(np.float64).tiny)
    active = list(range(len(result)))
    prices: NDArray[np.float64] | None = None
    momentum = Momentum.at_rest(len(result), is_used=geometry.n > SMALL)
    for number in range(max_iter):
        progress(f"step {number + 1}", len(result) - len(active), len(result) if len(result) > 1 else 0)
        costs = state.costs()
        found = (assigner.assign_in_order if in_order else assigner.assign)(momentum.ahead(costs), prices)
        proposals = found.labels
        if len(active) == 1:
            after = remeasure(geometry, proposals.T, k, dtype, (present, state))
        else:
            after = measure(geometry, proposals.T, k, dtype)
        before = np.array([result[run].psi for run in active])
        # Refusing what does not lower Psi (a tie, or rounding) keeps the descent finite.
        lower = before - after.psi > noise * np.maximum(spread - before, 0.0)
        for column in np.flatnonzero(lower).tolist():
            candidate = result[active[column]]
            result[active[column]] = replace(
                candidate,
                labels=proposals[column],
                psi=float(after.psi[column]),
                passed=(*candidate.passed, (phase, float(after.psi[column]))),
                steps=candidate.steps + 1,
                trace=(*candidate.trace, float(after.psi[column])),
            )
        kept = lower | (momentum.factors > 0)  # a step that went too far is taken again without momentum
        if worthwhile is None and assigner.permuting and geometry.n > SMALL:
            # On many rows other centroids for the parts are tried where nothing else is left to gain.
            is_last, in_order = in_order and not kept.any(), kept.any()
            kept |= is_last
        momentum = momentum.after(costs, lower).only(kept)
        active = [run for run, goes_on in zip(active, kept.tolist(), strict=True) if goes_on]
        if not active:
            break
        prices, present = found.prices[kept], np.where(lower, proposals.T, present)[:, kept]
        state = state.replaced(after, lower).only(kept)
    return [replace(candidate, converged=run not in active) for run, candidate in enumerate(result)]


@dataclass(frozen=True)
class Momentum:
    """How far centroids of a batch go on the way they went in the step before, which saves many small steps.

    Attributes
    ----------
    factors : (r,), how many times the last change of the costs is added to them; 0 for a plain step.
    reached : (r,), the factor to come back to after a plain step.
    costs : (r, n, k), those of the step before, where there was one.
    """

    is_used: bool
    factors: NDArray[np.float64]
    reached: NDArray[np.float64]
    costs: NDArray[np.float64] | None = None

    @classmethod
    def at_rest(cls, runs: int, *, is_used: bool) -> Momentum:
        """Before the first step."""
        return cls(is_used, np.zeros(runs), np.full(runs, FIRST_MOMENTUM))

    def ahead(self, costs: NDArray[np.float64]) -> NDArray[np.float64]:
        """What rows would cost if the centroids moved on."""
        if self.costs is None or not self.factors.any():
            return costs
        return np.asarray(costs + self.factors[:, None, None] * (costs - self.costs))

    def after(self, costs: NDArray[np.float64], lower: NDArray[np.bool_]) -> Momentum:
        """What follows from a step from these costs, which lowered Psi in some runs."""
        if not self.is_used:
            return self
        was_plain = self.factors == 0
        grown = np.where(was_plain, self.reached, np.minimum(1.5 * self.reached, MOST_MOMENTUM))
        reached = np.where(lower, grown, np.maximum(self.reached / 3.0, FIRST_MOMENTUM))
        held = costs
        if self.costs is not None and not lower.all():
            held = np.where(lower[:, None, None], costs, self.costs)
        return replace(self, factors=np.where(lower, reached, 0.0), reached=reached, costs=held)

    def only(self, runs: NDArray[np.bool_]) -> Momentum:
        """The same for some of the runs."""
        costs = None if self.costs is None else self.costs[runs]
        return replace(self, factors=self.factors[runs], reached=self.reached[runs], costs=costs)


def _scatter(geometry: Geometry) -> float:
    ones = np.ones((geometry.n, 1), dtype=geometry.search_dtype)
    return geometry.trace - float(geometry.measure(ones)[1][0]) / geometry.n


def _begun(geometry: Geometry, candidate: PartitionCandidate, start: Labels, k: int) -> PartitionCandidate:
    """State in float64, on the kernel itself, where a run began and where it is; between them is one step.

    Parameters
    ----------
    start : (n, 1), the partition it began from.
    """
    both = np.column_stack([start, candidate.labels])
    first, here = (float(psi) for psi in measure(geometry, both, k, np.float64).psi)
    begins = here if np.isinf(first) else first  # a start that leaves a part empty has no Psi
    passed = (("start", begins),) if here >= begins else (("start", begins), ("explore", here))
    return replace(candidate, psi=here, passed=passed, trace=joined(candidate.trace, (here,)))


def _starts(
    assigner: PartAssigner, factors: Floats, restarts: int, rng: np.random.Generator
) -> tuple[list[str], Labels]:
    """Name and make the starts: around seeds far apart, along leading directions, and at random."""
    n_random = max(1, restarts // 5)
    n_spectral = max(0, (restarts - n_random) // 3)
    names, columns = [], list(_along_directions(assigner, factors, n_spectral))
    for run, stream in enumerate(rng.spawn(restarts)):
        if run < n_spectral:
            names.append(f"spectral-{run}")
        elif run < restarts - n_random:
            names.append(f"seeds-{run - n_spectral}")
            columns.append(_around_seeds(assigner, factors, stream))
        else:
            names.append(f"random-{run - (restarts - n_random)}")
            columns.append(assigner.random(stream))
    return names, np.stack(columns, axis=1)


def _along_directions(assigner: PartAssigner, factors: Floats, count: int) -> Iterator[Labels]:
    """Cut every cell along leading directions of what varies within cells, into parts side by side."""
    if count == 0:
        return
    cells = assigner.quotas.cells
    means = np.add.reduceat(factors[cells.order], cells.offsets[:-1], axis=0, dtype=np.float64)
    means /= cells.sizes[:, None]
    gram = (factors.T @ factors).astype(np.float64) - (means.T * cells.sizes) @ means
    vectors = np.linalg.eigh(gram)[1]
    for number in range(count):
        direction = vectors[:, -1 - number % vectors.shape[1]]
        direction = direction * np.sign(direction[np.abs(direction).argmax()])
        scores = factors @ direction - (means @ direction)[cells.codes]
        # Costs |score - anchor|² with anchors in order put every cell's parts side by side.
        anchors = np.linspace(-1.0, 1.0, assigner.quotas.k) * float(scores.std())
        yield assigner.assign_in_order((scores[None, :, None] - anchors) ** 2).labels[0]


def _around_seeds(assigner: PartAssigner, factors: Floats, rng: np.random.Generator) -> Labels:
    """Take rows far from each other as centroids (k-means++), and assign all rows to them."""
    squares = np.einsum("ij,ij->i", factors, factors)
    seeds = [int(rng.integers(len(factors)))]
    costs = [squares + squares[seeds[0]] - 2.0 * factors @ factors[seeds[0]]]
    for _ in range(assigner.quotas.k - 1):
        nearest = np.maximum(np.min(costs, axis=0), 0.0).astype(np.float64)
        total = float(nearest.sum())
        odds = nearest / total if total > 0 else None
        drawn = int(rng.choice(len(factors), p=odds))
        seeds.append(drawn)
        costs.append(squares + squares[drawn] - 2.0 * factors @ factors[drawn])
    labels: Labels = assigner.assign(np.stack(costs, axis=1).astype(np.float64)[None]).labels[0]
    return labels


def _runs(
    geometry: Geometry, names: Sequence[str], ends: Sequence[PartitionCandidate], k: int
) -> tuple[Restart, ...]:
    """Measure where all starts ended, on the kernel itself and in float64."""
    labels = np.stack([candidate.labels for candidate in ends], axis=1)
    state = measure(geometry, labels, k, np.float64)
    scatter = _scatter(geometry)
    runs = []
    for run, (name, candidate) in enumerate(zip(names, ends, strict=True)):
        sizes = state.sizes[run].astype(np.float64)
        pairs = (sizes.sum() ** 2 - (sizes**2).sum()) / 2
        squared = max(scatter - float(state.psi[run]), 0.0) * geometry.n / pairs
        psi = float(state.psi[run])
        measured = tuple(value for value in candidate.trace if value < np.inf)
        steps = candidate.steps - (len(candidate.trace) - len(measured))  # from where no part is empty
        trace = shortened(measured, psi)
        runs.append(Restart(name, steps, psi, float(np.sqrt(squared)), candidate.converged, trace))
    return tuple(runs)


def _steps(candidate: PartitionCandidate) -> tuple[Step, ...]:
    """Keep the steps that led down to the end."""
    kept: list[tuple[str, float]] = []
    for phase, psi in reversed(candidate.passed):
        if not kept or psi >= kept[-1][1]:
            kept.append((phase, psi))
    return tuple(Step(phase, number, psi) for number, (phase, psi) in enumerate(reversed(kept)))
