"""From a run's outcome to the one summary that all reports render."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli import __version__
from clustersplit_cli.core.assignment.cbc import cbc_version
from clustersplit_cli.core.constraints.cells import Constraints
from clustersplit_cli.core.constraints.families import TRAIN, VAL
from clustersplit_cli.core.constraints.requirements import Requirements
from clustersplit_cli.core.search.problem import Members
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.pipeline.notices import notices
from clustersplit_cli.pipeline.result import Outcome
from clustersplit_cli.progress import Stopwatch, peak_memory
from clustersplit_cli.reports import summary


def summarize(outcome: Outcome, watch: Stopwatch) -> summary.Report:
    """Put every number of the run in its place."""
    measured, memory, kernel = outcome.measured, outcome.memory, outcome.prepared.kernel
    certificate, estimate, random = outcome.certificate, outcome.estimate, outcome.random
    return summary.Report(
        schema_version=summary.SCHEMA_VERSION,
        tool=tool_versions(),
        input=summarize_input(outcome.dataset),
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
            summary.RestartSummary(run.start, run.iterations, run.psi, run.mmd, run.converged, run.trace)
            for run in outcome.solution.runs
        ),
        constraints=_constraints(outcome),
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
        "tolerance": _tolerance(outcome),
        "rounding": outcome.requirements.rounding,
        "nystrom": memory.landmarks if memory.landmarks is not None else "off",
        "restarts": options.restarts,
        "effort": options.effort,
        "max_iter": options.max_iter,
        "seed": options.seed,
        "solver": _solver(outcome),
        "certify": options.certify,
        "bound": options.bound,
        "memory": options.budget,
        "threads": options.threads,
        "geometry": memory.geometry,
        "engine": "local",
        "passes": None,
    }


def _tolerance(outcome: Outcome) -> float | list[str]:
    """As a number if it is one, else in the words of the command line."""
    tolerance = outcome.options.tolerance
    if tolerance.general is None or tolerance.exceptions:
        return list(tolerance.texts)
    return float(tolerance.general)


def _solver(outcome: Outcome) -> str:
    if outcome.options.solver == "cbc":
        return "cbc"
    return "selection" if outcome.requirements.separates else "highs"


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
    account = outcome.solution.account
    programs = None if account is None else summary.ProgramsSummary(**vars(account))
    return summary.Search(outcome.options.effort, winner, gained, programs)


def _constraints(outcome: Outcome) -> summary.ConstraintsSummary:
    """Compare every cell's count with its bounds, and say what else was asked for."""
    asked, members = outcome.requirements, outcome.solution.members
    names = [family_name(family) for family in asked.families]
    cells = tuple(
        cell
        for name, family in zip(names, asked.families, strict=True)
        for cell in _cells(name, family, members)
    )
    units, pinned = _units(outcome), _pinned(asked, members)
    return summary.ConstraintsSummary(
        all_satisfied=all(cell.satisfied for cell in cells)
        and (units is None or units.divided == 0)
        and (pinned is None or pinned.satisfied),
        cells=cells,
        families=tuple(names),
        rounding=asked.rounding,
        integral_by="total_unimodularity" if asked.is_unimodular else "branch_and_bound",
        tolerance=summary.ToleranceSummary(
            float(asked.tolerance), outcome.options.tolerance.is_auto, asked.tolerance_proven
        ),
        units=units,
        pinned=pinned,
    )


def family_name(family: Constraints) -> str:
    """The columns of a family, as `--stratify` takes them."""
    return ",".join(family.cells.names[0]) or "none"


def _cells(name: str, family: Constraints, members: Members) -> list[summary.CellSummary]:
    return summarize_cells(name, family, family.counts(members))


def summarize_cells(name: str, family: Constraints, actual: NDArray[np.int64]) -> list[summary.CellSummary]:
    """Compare the counts of a family's cells with their bounds."""
    return [
        summary.CellSummary(
            cell=dict(cell),
            size=int(family.cells.sizes[g]),
            target=int(family.target[g]),
            lower=int(family.lower[g]),
            upper=int(family.upper[g]),
            actual=int(actual[g]),
            satisfied=bool(family.lower[g] <= actual[g] <= family.upper[g]),
            family=name,
        )
        for g, cell in enumerate(family.cells.names)
    ]


def _units(outcome: Outcome) -> summary.UnitsSummary | None:
    asked = outcome.requirements
    if asked.units is None:
        return None
    inside = np.bincount(asked.units[outcome.solution.members], minlength=asked.n_atoms)
    divided = int(((inside > 0) & (inside < asked.sizes)).sum())
    column = outcome.dataset.together or ""
    return summary.UnitsSummary(column, asked.n_atoms, int(asked.sizes.max()), divided)


def _pinned(asked: Requirements, members: Members) -> summary.PinnedSummary | None:
    train, val = asked.pinned == TRAIN, asked.pinned == VAL
    if not (train.any() or val.any()):
        return None
    satisfied = bool(members[val].all() and not members[train].any())
    return summary.PinnedSummary(int(train.sum()), int(val.sum()), satisfied)
