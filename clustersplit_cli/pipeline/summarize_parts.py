"""From a partition's outcome to the summary that all reports render."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.quotas import PartQuotas
from clustersplit_cli.core.search.partition import Labels
from clustersplit_cli.pipeline.context import PartedOutcome, PartedSetting
from clustersplit_cli.pipeline.notices import ROUNDING, about_kernel, about_parts
from clustersplit_cli.pipeline.summarize import summarize_input, tool_versions
from clustersplit_cli.progress import Stopwatch, peak_memory
from clustersplit_cli.reports import summary


def summarize_parts(outcome: PartedOutcome, watch: Stopwatch) -> summary.Report:
    """Put every number of the run in its place."""
    setting, measured, solution = outcome.setting, outcome.measured, outcome.solution
    memory, kernel, random = setting.held.memory, setting.held.prepared.kernel, outcome.random
    sizes = dict(zip(setting.quotas.names, measured.sizes.tolist(), strict=True))
    trace = _trace(outcome)
    gained: dict[str, float] = {}
    for earlier, later in pairwise(trace):
        gained[later.phase] = gained.get(later.phase, 0.0) + earlier.psi - later.psi
    notes = [*setting.dataset.notes, *_notices(outcome)]
    return summary.Report(
        schema_version=summary.SCHEMA_VERSION,
        tool=tool_versions(),
        input=summarize_input(setting.dataset),
        config={**outcome.config, **_resolved_options(outcome)},
        seed=setting.options.seed,
        sizes=summary.Sizes(sizes.get("train"), sizes.get("val")),
        plan=summary.Plan(memory.geometry, memory.landmarks, memory.bytes, memory.budget, memory.reason),
        mmd=summary.MMDSummary(
            value=float(np.sqrt(measured.mean_squared)),
            squared=measured.mean_squared,
            kernel=kernel.name,
            gamma=kernel.gamma,
            geometry=memory.geometry,
            subsample=None,
        ),
        objective=summary.Objective(
            measured.psi,
            measured.ssq_total,
            measured.identity_residual,
            setting.held.geometry.trace_error,
        ),
        trace=trace,
        search=summary.Search(setting.options.effort, solution.runs[solution.winner].start, gained),
        restarts=tuple(
            summary.RestartSummary(run.start, run.iterations, run.psi, run.mmd, run.converged, run.trace)
            for run in solution.runs
        ),
        constraints=_constraints(setting, solution.labels),
        certificate=None if outcome.certificate is None else summary.Certificate(**vars(outcome.certificate)),
        bound=None,
        baselines=summary.Baselines(summary.RandomBaseline(random.n, random.mean, random.sd)),
        timing=summary.Timing(dict(watch.steps), watch.total, peak_memory()),
        warnings=tuple(summary.Notice(*note) for note in notes),
        parts=_parts(outcome),
    )


def _parts(outcome: PartedOutcome) -> summary.PartsSummary:
    quotas, measured = outcome.setting.quotas, outcome.measured
    rest = np.sqrt(measured.rest_squared)
    return summary.PartsSummary(
        tuple(
            summary.PartSummary(name, float(share), int(size), float(distance))
            for name, share, size, distance in zip(
                quotas.names, quotas.shares, measured.sizes, rest, strict=True
            )
        ),
        tuple(tuple(row) for row in np.sqrt(measured.mmd_squared).tolist()),
    )


def _trace(outcome: PartedOutcome) -> tuple[summary.TracePoint, ...]:
    """The winning run's objectives; the last is the returned partition's own, to the last bit."""
    *earlier, last = outcome.solution.steps
    end = outcome.measured.psi
    falling = [(step.phase, step.psi) for step in earlier if step.psi >= end]
    return tuple(
        summary.TracePoint(phase, iteration, psi)
        for iteration, (phase, psi) in enumerate([*falling, (last.phase, end)])
    )


def _resolved_options(outcome: PartedOutcome) -> dict[str, Any]:
    """The options as they were used; those of a split in two are not among them."""
    setting = outcome.setting
    options, kernel, memory = setting.options, setting.held.prepared.kernel, setting.held.memory
    tolerance = options.tolerance
    plain = tolerance.general is not None and not tolerance.exceptions
    return {
        "kernel": options.kernel,
        "gamma": kernel.gamma,
        "degree": kernel.degree,
        "standardize": options.standardize,
        "tolerance": float(tolerance.general or 0) if plain else list(tolerance.texts),
        "nystrom": memory.landmarks if memory.landmarks is not None else "off",
        "restarts": options.restarts,
        "effort": options.effort,
        "max_iter": options.max_iter,
        "seed": options.seed,
        "solver": "exchange" if setting.units is not None else _solver(options.solver),
        "certify": options.certify,
        "memory": options.budget,
        "threads": options.threads,
        "geometry": memory.geometry,
    }


def _solver(asked: str) -> str:
    return "cbc" if asked == "cbc" else "transport"


def _constraints(setting: PartedSetting, labels: Labels) -> summary.ConstraintsSummary:
    """Compare every cell's count in every part with its bounds."""
    quotas = setting.quotas
    found = summarize_counts(quotas, quotas.counts(labels))
    forced = quotas.pinned >= 0
    pinned = None
    if forced.any():
        kept = bool((labels[forced] == quotas.pinned[forced]).all())
        to = [quotas.names[part] for part in quotas.pinned[forced].tolist()]
        pinned = summary.PinnedSummary(to.count("train"), to.count("val"), kept)
    units, tolerance = _units(setting, labels)
    return replace(
        found,
        all_satisfied=found.all_satisfied
        and (pinned is None or pinned.satisfied)
        and (units is None or not units.divided),
        integral_by=found.integral_by if units is None else None,
        tolerance=tolerance,
        units=units,
        pinned=pinned,
    )


def summarize_counts(quotas: PartQuotas, counts: NDArray[np.int64]) -> summary.ConstraintsSummary:
    """The constraints of parts of single rows, none of them forced, from counts: (cells, parts)."""
    family = ",".join(quotas.cells.names[0]) or "none"
    cells = tuple(
        summary.CellSummary(
            cell=dict(quotas.cells.names[cell]),
            size=int(quotas.cells.sizes[cell]),
            target=int(quotas.target[cell, part]),
            lower=int(quotas.lower[cell, part]),
            upper=int(quotas.upper[cell, part]),
            actual=int(counts[cell, part]),
            satisfied=bool(quotas.lower[cell, part] <= counts[cell, part] <= quotas.upper[cell, part]),
            family=family,
            part=name,
        )
        for cell in range(len(quotas.cells.names))
        for part, name in enumerate(quotas.names)
    )
    return summary.ConstraintsSummary(
        all_satisfied=all(cell.satisfied for cell in cells),
        cells=cells,
        families=(family,),
        integral_by="total_unimodularity",
        tolerance=None,
        units=None,
        pinned=None,
    )


def _units(
    setting: PartedSetting, labels: Labels
) -> tuple[summary.UnitsSummary | None, summary.ToleranceSummary | None]:
    """What stays together, and how far off that puts the counts."""
    found = setting.units
    if found is None:
        return None, None
    first = np.full(len(found.table), -1, dtype=np.int64)
    first[found.units] = labels
    divided = len(np.unique(found.units[labels != first[found.units]]))
    sizes = found.table.sum(axis=1)
    units = summary.UnitsSummary(setting.dataset.together or "", len(sizes), int(sizes.max()), divided)
    was_found = setting.options.tolerance.is_auto
    # Equal shares cannot be bettered; another tolerance is the best that exchanges led to.
    proven = found.tolerance == 0 if was_found else None
    return units, summary.ToleranceSummary(float(found.tolerance), was_found, proven)


def _notices(outcome: PartedOutcome) -> Iterator[tuple[str, str]]:
    setting, random, measured = outcome.setting, outcome.random, outcome.measured
    held = setting.held
    yield from about_kernel(held.prepared, held.spread, setting.options.standardize)
    yield from about_parts(setting.quotas)
    if not outcome.solution.converged:
        yield (
            "not_converged",
            f"the best run had not converged after {setting.options.max_iter} iterations; raise --max-iter",
        )
    threshold = random.mean + 3 * random.sd
    rounding = ROUNDING * threshold**2 + 1e-12 * measured.ssq_total / setting.quotas.n
    if measured.mean_squared <= threshold**2 + rounding:
        yield (
            "not_above_random",
            f"MMD {measured.mean_squared**0.5:.4g} is not above that of random parts by three standard "
            f"deviations ({random.mean:.4g} ± {random.sd:.2g})",
        )
