"""The report of a run whose rows were read in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from clustersplit_cli.core.baselines import RandomMMD
from clustersplit_cli.core.certificate import FixedPoint
from clustersplit_cli.core.mmd.estimators import SubsampleEstimate
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.engines.descent import Ground, Refined
from clustersplit_cli.engines.executor import Engine
from clustersplit_cli.engines.finishing import Accounts
from clustersplit_cli.engines.plan import MemoryPlan
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.blockwise import Prospect
from clustersplit_cli.pipeline.notices import about_cells, about_discrepancy, about_kernel
from clustersplit_cli.pipeline.summarize import family_name, summarize_cells, summarize_input, tool_versions
from clustersplit_cli.progress import Stopwatch, peak_memory
from clustersplit_cli.reports import summary


@dataclass(frozen=True)
class BlockwiseOutcome:
    """A finished run.

    Attributes
    ----------
    dataset : without rows: what was read, by name and number.
    start : the start on the sample that led to the split; None if it was not searched for.
    pass_seconds : the time that refining took.
    """

    dataset: Dataset
    options: CheckedOptions
    config: Mapping[str, Any]
    memory: MemoryPlan
    ahead: Prospect
    ground: Ground
    refined: Refined
    start: str | None
    certificate: FixedPoint | None
    bound: float | None
    random: RandomMMD
    estimate: SubsampleEstimate | None
    sample_rows: int
    max_passes: int
    pass_seconds: float
    notes: tuple[tuple[str, str], ...] = ()

    @property
    def mmd(self) -> float:
        """The MMD between the two sides."""
        return float(max(self.refined.split.state.mmd_squared, 0.0) ** 0.5)

    @property
    def at_rest(self) -> bool:
        """Whether nothing, or nothing worth a pass, was left to gain."""
        certified = self.certificate is not None and self.certificate.status == "optimal"
        return self.refined.converged or certified


def summarize_blockwise(outcome: BlockwiseOutcome, engine: Engine, watch: Stopwatch) -> summary.Report:
    """Put every number of the run in its place."""
    state, kernel = outcome.refined.split.state, outcome.ahead.prepared.kernel
    memory, certificate, estimate = outcome.memory, outcome.certificate, outcome.estimate
    trace = tuple(_trace(outcome))
    return summary.Report(
        schema_version=summary.SCHEMA_VERSION,
        tool=tool_versions(),
        input=summarize_input(outcome.dataset),
        config={**outcome.config, **_resolved(outcome, engine)},
        seed=outcome.options.seed,
        sizes=summary.Sizes(state.n_train, state.n_val),
        plan=summary.Plan(memory.geometry, memory.landmarks, memory.bytes, memory.budget, memory.reason),
        mmd=summary.MMDSummary(
            value=outcome.mmd,
            squared=state.mmd_squared,
            kernel=kernel.name,
            gamma=kernel.gamma,
            geometry=memory.geometry,
            subsample=None
            if estimate is None
            else summary.SubsampleMMD(estimate.mmd_squared, estimate.standard_error, estimate.size),
        ),
        objective=summary.Objective(
            state.psi,
            outcome.ground.kernel.ssq_total,
            outcome.ground.kernel.residual(state),
            outcome.ahead.trace_error,
        ),
        trace=trace,
        search=None if outcome.start is None else _search(outcome, trace),
        restarts=() if outcome.start is None else (_restart(outcome),),
        constraints=_constraints(outcome),
        certificate=None if certificate is None else summary.Certificate(**vars(certificate)),
        bound=_bound(outcome),
        baselines=summary.Baselines(
            summary.RandomBaseline(outcome.random.n, outcome.random.mean, outcome.random.sd)
        ),
        timing=summary.Timing(dict(watch.steps), watch.total, peak_memory()),
        warnings=tuple(
            summary.Notice(*note) for note in (*outcome.dataset.notes, *outcome.notes, *_notices(outcome))
        ),
        engine=_engine(outcome, engine),
    )


def _resolved(outcome: BlockwiseOutcome, engine: Engine) -> dict[str, Any]:
    """The options as they were used: rules replaced by the numbers they gave."""
    options, kernel, memory = outcome.options, outcome.ahead.prepared.kernel, outcome.memory
    tolerance = options.tolerance
    plain = tolerance.general is not None and not tolerance.exceptions
    searched = outcome.start is not None
    return {
        "holdout": float(options.holdout),
        "kernel": options.kernel,
        "gamma": kernel.gamma,
        "degree": kernel.degree,
        "standardize": options.standardize,
        "tolerance": float(tolerance.general or 0) if plain else list(tolerance.texts),
        "rounding": outcome.ahead.surveyed.rounding,
        "nystrom": memory.landmarks if memory.landmarks is not None else "off",
        "restarts": options.restarts if searched else None,
        "effort": options.effort if searched else None,
        "max_iter": options.max_iter if searched else None,
        "seed": options.seed,
        "solver": "selection" if searched else None,
        "certify": options.certify,
        "bound": options.bound,
        "memory": options.budget,
        "threads": options.threads,
        "geometry": memory.geometry,
        "engine": engine.name,
        "passes": outcome.max_passes if searched else None,
    }


def _trace(outcome: BlockwiseOutcome) -> Iterator[summary.TracePoint]:
    """Psi after every step; the last is the returned split's own."""
    if outcome.start is None:
        return
    *earlier, _ = outcome.refined.psi
    end = outcome.refined.split.state.psi
    # A step whose objective equals the last but for rounding would make the trace rise.
    falling = [psi for psi in earlier if psi >= end]
    for iteration, psi in enumerate([*falling, end]):
        yield summary.TracePoint("start" if iteration == 0 else "lloyd", iteration, psi)


def _search(outcome: BlockwiseOutcome, trace: tuple[summary.TracePoint, ...]) -> summary.Search:
    gained: dict[str, float] = {}
    for earlier, later in pairwise(trace):
        gained[later.phase] = gained.get(later.phase, 0.0) + earlier.psi - later.psi
    return summary.Search(outcome.options.effort, outcome.start or "", gained, None)


def _restart(outcome: BlockwiseOutcome) -> summary.RestartSummary:
    """The one start that was carried over from the sample to all rows."""
    psi = outcome.refined.split.state.psi
    steps = len(outcome.refined.psi) - 1
    return summary.RestartSummary(outcome.start or "", steps, psi, outcome.mmd, outcome.at_rest)


def _constraints(outcome: BlockwiseOutcome) -> summary.ConstraintsSummary:
    limits = outcome.ahead.surveyed.limits
    name = family_name(limits)
    cells = tuple(summarize_cells(name, limits, outcome.refined.split.counts))
    tolerance = outcome.options.tolerance
    return summary.ConstraintsSummary(
        all_satisfied=all(cell.satisfied for cell in cells),
        cells=cells,
        families=(name,),
        rounding=outcome.ahead.surveyed.rounding,
        integral_by="total_unimodularity",
        tolerance=summary.ToleranceSummary(
            float(tolerance.general or 0), tolerance.is_auto, True if tolerance.is_auto else None
        ),
        units=None,
        pinned=None,
    )


def _bound(outcome: BlockwiseOutcome) -> summary.Bound | None:
    if outcome.bound is None:
        return None
    fraction = outcome.mmd / outcome.bound if outcome.bound > 0 else 1.0
    kernel = "nystrom" if outcome.memory.geometry == "nystrom" else "exact"
    return summary.Bound(outcome.bound, min(fraction, 1.0), kernel)


def _notices(outcome: BlockwiseOutcome) -> Iterator[tuple[str, str]]:
    ahead, options, state = outcome.ahead, outcome.options, outcome.refined.split.state
    yield from about_kernel(ahead.prepared, ahead.spread, options.standardize)
    limits = ahead.surveyed.limits
    yield from about_cells(limits, options, ahead.surveyed.rounding, state.n_val)
    if not outcome.at_rest:
        yield (
            "not_converged",
            f"the split was still improving after {outcome.max_passes} passes; raise --passes",
        )
    scatter = outcome.ground.kernel.ssq_total / ahead.surveyed.n
    yield from about_discrepancy(state.mmd_squared, outcome.random, scatter)


def _engine(outcome: BlockwiseOutcome, engine: Engine) -> summary.EngineSummary:
    accounts = engine.run(Accounts())
    places = {place for _, place, _ in accounts if place is not None} or {"recompute"}
    passes = outcome.refined.passes
    seconds = max(outcome.pass_seconds, 1e-9)
    return summary.EngineSummary(
        name=engine.name,
        workers=engine.n_workers,
        shards=len(accounts),
        sample_rows=outcome.sample_rows,
        passes=passes,
        factors=places.pop() if len(places) == 1 else "mixed",
        factor_bytes=sum(size for _, _, size in accounts),
        source_bytes=sum(account.source_bytes for account, _, _ in accounts),
        spill_bytes=sum(account.spill_bytes for account, _, _ in accounts),
        rows_per_second=passes * outcome.ahead.surveyed.n / seconds,
    )
