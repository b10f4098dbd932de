"""From a run's outcome to the one summary that all reports render."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from clustersplit_cli import __version__
from clustersplit_cli.core.cbc import cbc_version
from clustersplit_cli.core.constraints import Constraints
from clustersplit_cli.core.problem import Members
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.notices import notices
from clustersplit_cli.outcome import Outcome
from clustersplit_cli.reports import summary
from clustersplit_cli.stopwatch import Stopwatch, peak_memory


def summarize(outcome: Outcome, watch: Stopwatch) -> summary.Report:
    """Put every number of the run in its place."""
    measured, memory, kernel = outcome.measured, outcome.memory, outcome.prepared.kernel
    certificate, estimate, random = outcome.certificate, outcome.estimate, outcome.random
    return summary.Report(
        schema_version=summary.SCHEMA_VERSION,
        tool=tool_versions(),
        input=_input(outcome.dataset),
        config={**outcome.config, **_resolved_options(outcome)},
        seed=outcome.options.seed,
        sizes=summary.Sizes(measured.n_train, measured.n_val),
        plan=summary.Plan(memory.geometry, memory.landmarks, memory.bytes, memory.budget, memory.reason),
        mmd=summary.MMDSummary(
            value=outcome.mmd,
            squared=measured.mmd_squared,
            kernel=kernel.name,
            gamma=kernel.gamma,
            geometry=memory.geometry,
            subsample=None
            if estimate is None
            else summary.SubsampleMMD(estimate.mmd_squared, estimate.standard_error, estimate.size),
        ),
        objective=summary.Objective(
            measured.psi, measured.ssq_total, measured.identity_residual, outcome.trace_error
        ),
        trace=_trace(outcome),
        search=_search(outcome),
        restarts=tuple(
            summary.RestartSummary(run.start, run.iterations, run.psi, run.mmd, run.converged)
            for run in outcome.solution.runs
        ),
        constraints=_constraints(outcome.constraints, outcome.solution.members),
        certificate=None if certificate is None else summary.Certificate(**vars(certificate)),
        bound=_bound(outcome),
        baselines=summary.Baselines(summary.RandomBaseline(random.n, random.mean, random.sd)),
        timing=summary.Timing(dict(watch.steps), watch.total, peak_memory()),
        warnings=tuple(summary.Notice(*note) for note in outcome.dataset.notes) + notices(outcome),
    )


def tool_versions() -> summary.ToolVersions:
    """Versions of everything that can change a result."""
    from importlib.metadata import version
    from platform import python_version

    return summary.ToolVersions(
        __version__, python_version(), np.__version__, version("scipy"), version("pulp"), cbc_version()
    )


def _resolved_options(outcome: Outcome) -> dict[str, Any]:
    """The options as they were used: rules replaced by the numbers they gave."""
    options, prepared, memory = outcome.options, outcome.prepared, outcome.memory
    return {
        "holdout": float(options.holdout),
        "kernel": options.kernel,
        "gamma": prepared.kernel.gamma,
        "degree": prepared.kernel.degree,
        "standardize": options.standardize,
        "tolerance": float(options.tolerance),
        "rounding": options.rounding,
        "nystrom": memory.landmarks if memory.landmarks is not None else "off",
        "restarts": options.restarts,
        "effort": options.effort,
        "max_iter": options.max_iter,
        "seed": options.seed,
        "solver": "cbc" if options.solver == "cbc" else "selection",
        "certify": options.certify,
        "bound": options.bound,
        "memory": options.budget,
        "threads": options.threads,
        "geometry": memory.geometry,
    }


def _input(dataset: Dataset) -> summary.InputSummary:
    return summary.InputSummary(
        files=tuple(summary.FileSummary(f.path, f.role, f.bytes, f.sha256) for f in dataset.files),
        n_rows=dataset.n_rows,
        n_features=dataset.features.shape[1],
        columns=dataset.feature_columns,
        n_excluded=dataset.n_excluded,
        n_dropped=dataset.n_dropped,
    )


def _trace(outcome: Outcome) -> tuple[summary.TracePoint, ...]:
    """The winning run's objectives; the last is the returned split's own, to the last bit."""
    *earlier, last = outcome.solution.steps
    end = outcome.measured.psi
    # A step whose objective equals the last but for rounding would make the trace rise.
    falling = [(step.phase, step.psi) for step in earlier if step.psi >= end]
    return tuple(
        summary.TracePoint(phase, iteration, psi)
        for iteration, (phase, psi) in enumerate([*falling, (last.phase, end)])
    )


def _bound(outcome: Outcome) -> summary.Bound | None:
    """The upper bound, and what fraction of it the split reaches."""
    if outcome.bound is None:
        return None
    fraction = outcome.mmd / outcome.bound if outcome.bound > 0 else 1.0
    kernel = "nystrom" if outcome.memory.geometry == "nystrom" else "exact"
    return summary.Bound(outcome.bound, min(fraction, 1.0), kernel)


def _search(outcome: Outcome) -> summary.Search:
    """Who won, and how far each phase of its run lowered Psi."""
    trace = _trace(outcome)
    gained: dict[str, float] = {}
    for earlier, later in pairwise(trace):
        gained[later.phase] = gained.get(later.phase, 0.0) + earlier.psi - later.psi
    winner = outcome.solution.runs[outcome.solution.winner].start
    return summary.Search(outcome.options.effort, winner, gained)


def _constraints(constraints: Constraints, members: Members) -> summary.ConstraintsSummary:
    """Compare every cell's count with its bounds."""
    actual = constraints.counts(members)
    cells = tuple(
        summary.CellSummary(
            cell=dict(name),
            size=int(constraints.cells.sizes[g]),
            target=int(constraints.target[g]),
            lower=int(constraints.lower[g]),
            upper=int(constraints.upper[g]),
            actual=int(actual[g]),
            satisfied=bool(constraints.lower[g] <= actual[g] <= constraints.upper[g]),
        )
        for g, name in enumerate(constraints.cells.names)
    )
    return summary.ConstraintsSummary(all(cell.satisfied for cell in cells), cells)
