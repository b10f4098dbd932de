"""From a run's result to the one summary that all reports render."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli import __version__
from clustersplit_cli.core.assignment.cbc import cbc_version
from clustersplit_cli.core.constraints.quotas import VAL, Quotas
from clustersplit_cli.core.mmd.estimators import SubsampleEstimate
from clustersplit_cli.core.search.problem import Measures
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.engines.plan import MemoryPlan
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.notices import notices
from clustersplit_cli.pipeline.result import About, RunResult
from clustersplit_cli.progress import Stopwatch, peak_memory
from clustersplit_cli.reports import summary


def summarize(result: RunResult, watch: Stopwatch) -> summary.Report:
    """Put every number of the run in its place."""
    about, measures, random = result.about, result.measures, result.random
    memory, kernel = about.memory, about.prepared.kernel
    certificate, estimate, trace = result.certificate, result.estimate, _trace(result)
    sizes = dict(zip(about.names, measures.sizes.tolist(), strict=True))
    return summary.Report(
        schema_version=summary.SCHEMA_VERSION,
        tool=tool_versions(),
        input=summarize_input(about.dataset),
        config={**result.config, **about.resolved},
        seed=about.options.seed,
        sizes=summary.Sizes(sizes.get("train"), sizes.get("val")),
        plan=summarize_plan(memory),
        mmd=summary.MMDSummary(
            value=measures.mmd,
            squared=measures.mmd_squared,
            kernel=kernel.name,
            gamma=kernel.gamma,
            geometry=memory.geometry,
            subsample=None
            if estimate is None
            else summary.SubsampleMMD(estimate.mmd_squared, estimate.standard_error, estimate.size),
            error=result.error,
            exact=_exact(estimate),
        ),
        objective=summary.Objective(
            measures.psi, measures.ssq_total, measures.identity_residual, about.trace_error
        ),
        trace=trace,
        search=_search(result, trace),
        restarts=tuple(
            summary.RestartSummary(run.start, run.iterations, run.psi, run.mmd, run.converged, run.trace)
            for run in (result.searched.runs if result.searched else ())
        ),
        constraints=result.constraints,
        certificate=None if certificate is None else summary.Certificate(**vars(certificate)),
        bound=_bound(result),
        baselines=summary.Baselines(summary.RandomBaseline(random.n, random.mean, random.sd)),
        timing=summary.Timing(dict(watch.steps), watch.total, peak_memory()),
        warnings=tuple(summary.Notice(*note) for note in notices(result)),
        parts=_parts(about, measures),
        engine=result.engine,
        graded=_graded(result),
        target=_target(result),
    )


def _graded(result: RunResult) -> summary.GradeSummary | None:
    """What MMD was asked for, and where on the scale it is."""
    grade = result.graded
    if grade is None:
        return None
    scale = grade.scale
    return summary.GradeSummary(
        severity=grade.severity,
        asked=grade.asked,
        reached=grade.reached,
        severity_reached=scale.severity(grade.reached),
        random_mmd=scale.random,
        best_mmd=scale.best,
        best_psi=grade.best_psi,
    )


def resolved_options(options: CheckedOptions, memory: MemoryPlan, kernel: Any) -> dict[str, Any]:
    """The options of every run as they were used: rules replaced by the numbers they gave."""
    tolerance = options.tolerance
    plain = tolerance.general is not None and not tolerance.exceptions
    return {
        "kernel": options.kernel,
        "gamma": kernel.gamma,
        "degree": kernel.degree,
        "standardize": options.standardize,
        # As a number if it is one, else in the words of the command line.
        "tolerance": float(tolerance.general or 0) if plain else list(tolerance.texts),
        "nystrom": "auto" if memory.rank is not None else memory.landmarks or "off",
        "restarts": options.restarts,
        "effort": options.effort,
        "max_iter": options.max_iter,
        "seed": options.seed,
        "certify": options.certify,
        "severity": options.severity if options.at_mmd is None else None,
        "at_mmd": options.at_mmd,
        "aim": options.aim,
        "weights": options.weights,
        "memory": options.budget,
        "threads": options.threads,
        "geometry": memory.geometry,
    }


@cache
def tool_versions() -> summary.ToolVersions:
    """Versions of everything that can change a result."""
    from importlib.metadata import version
    from platform import python_version

    return summary.ToolVersions(
        __version__, python_version(), np.__version__, version("scipy"), version("pulp"), cbc_version()
    )


def summarize_input(dataset: Dataset) -> summary.InputSummary:
    """What was read."""
    return summary.InputSummary(
        files=tuple(summary.FileSummary(f.path, f.role, f.bytes, f.sha256) for f in dataset.files),
        n_rows=dataset.n_rows,
        n_features=dataset.features.shape[1],
        columns=dataset.feature_columns,
        n_excluded=dataset.n_excluded,
        n_dropped=dataset.n_dropped,
    )


def summarize_plan(memory: MemoryPlan) -> summary.Plan:
    """How the kernel is held."""
    return summary.Plan(
        memory.geometry,
        memory.landmarks,
        memory.bytes,
        memory.budget,
        memory.reason,
        memory.seconds,
        memory.rank,
    )


def _exact(estimate: SubsampleEstimate | None) -> float | None:
    """The MMD under the kernel itself, of all rows, where it was computed."""
    if estimate is None or estimate.exact is None:
        return None
    return float(max(estimate.exact, 0.0) ** 0.5)


def _parts(about: About, measures: Measures) -> summary.PartsSummary | None:
    """The MMDs between parts, and of each with all other rows; None for a split in two."""
    if measures.pairs is None or measures.rest_squared is None:
        return None
    rest = np.sqrt(measures.rest_squared)
    parts = tuple(
        summary.PartSummary(name, float(share), int(size), float(distance), part in about.drawn)
        for part, (name, share, size, distance) in enumerate(
            zip(about.names, about.shares, measures.sizes, rest, strict=True)
        )
    )
    return summary.PartsSummary(parts, tuple(tuple(row) for row in np.sqrt(measures.pairs).tolist()))


def _trace(result: RunResult) -> tuple[summary.TracePoint, ...]:
    """The winning run's objectives; the last is that of where the search ended, to the last bit."""
    if result.searched is None:
        return ()
    *earlier, last = result.searched.steps
    end, target = result.measures.psi, result.target
    if result.graded is not None:
        end = result.graded.best_psi
    elif target is not None and target.best is not None:
        end = target.best[1]  # the search was for the hardest
    # A step whose objective equals the last but for rounding would make the trace rise; it may be the start.
    falling = [(step.phase, step.psi) for step in earlier if step.psi >= end]
    points = [*falling, (last.phase if falling else "start", end)]
    return tuple(summary.TracePoint(phase, iteration, psi) for iteration, (phase, psi) in enumerate(points))


def _search(result: RunResult, trace: Sequence[summary.TracePoint]) -> summary.Search | None:
    """Who won, and how far each phase of its run lowered Psi."""
    searched = result.searched
    if searched is None:
        return None
    gained: dict[str, float] = {}
    for earlier, later in pairwise(trace):
        gained[later.phase] = gained.get(later.phase, 0.0) + earlier.psi - later.psi
    account = searched.account
    programs = None if account is None else summary.ProgramsSummary(**vars(account))
    winner = searched.runs[searched.winner].start
    return summary.Search(result.about.options.effort, winner, gained, programs)


def _target(result: RunResult) -> summary.TargetSummary | None:
    """How far the target is, and where that is on the scale from random splits to the hardest."""
    found = result.target
    if found is None:
        return None
    whole, train, val = found.distances.roots()
    severity, best = None, found.best
    if best is not None and best[0] > result.random.mean:
        severity = (whole - result.random.mean) / (best[0] - result.random.mean)
    weights = found.matching
    return summary.TargetSummary(
        name=found.rows.name,
        n_rows=found.rows.n_rows,
        n_compared=len(found.rows.features),
        aim=found.aim,
        mmd=whole,
        mmd_train=train,
        mmd_val=val,
        p_value=found.test.p_value,
        permutations=found.test.permutations,
        severity=severity,
        best_mmd=None if best is None else best[0],
        best_psi=None if best is None else best[1],
        valid=result.measures.mmd > max(train, val),
        certificate=found.certificate,
        weights=None
        if weights is None
        else summary.WeightsSummary(
            weights.effective_size, float(weights.weights.max()), weights.squared**0.5
        ),
    )


def _bound(result: RunResult) -> summary.Bound | None:
    """The upper bound, and what fraction of it the split reaches."""
    if result.bound is None:
        return None
    bound, mmd = result.bound, result.measures.mmd
    kernel = "exact" if result.about.memory.landmarks is None else "nystrom"
    proven = kernel == "exact" and bound.proves(mmd)
    return summary.Bound(bound.mmd, bound.share(mmd), kernel, bound.method, proven)


def family_name(family: Quotas) -> str:
    """The columns of a family, as `--stratify` takes them."""
    return ",".join(family.cells.names[0]) or "none"


def summarize_validation(family: Quotas, counts: NDArray[np.int64]) -> list[summary.CellSummary]:
    """Compare the validation rows of a family's cells, (cells,), with their bounds."""
    return [_cell(family, cell, VAL, int(actual), None) for cell, actual in enumerate(counts)]


def _cell(family: Quotas, cell: int, part: int, actual: int, name: str | None) -> summary.CellSummary:
    lower, upper = int(family.lower[cell, part]), int(family.upper[cell, part])
    return summary.CellSummary(
        cell=dict(family.cells.names[cell]),
        size=int(family.cells.sizes[cell]),
        target=int(family.target[cell, part]),
        lower=lower,
        upper=upper,
        actual=actual,
        satisfied=lower <= actual <= upper,
        family=family_name(family),
        part=name,
    )


def summarize_counts(quotas: Quotas, counts: NDArray[np.int64]) -> summary.ConstraintsSummary:
    """The constraints of parts of single rows, none of them forced, from counts: (cells, parts)."""
    cells = tuple(
        _cell(quotas, cell, part, int(counts[cell, part]), name)
        for cell in range(len(quotas.cells.names))
        for part, name in enumerate(quotas.names)
    )
    return summary.ConstraintsSummary(
        all_satisfied=all(cell.satisfied for cell in cells),
        cells=cells,
        families=(family_name(quotas),),
        integral_by="total_unimodularity",
        tolerance=None,
        units=None,
        pinned=None,
    )
