"""The order of the checks, for a run directory and for a split by another tool."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from clustersplit_cli.core.baselines import WITHOUT_QUOTAS
from clustersplit_cli.core.constraints.cells import Labels
from clustersplit_cli.core.mmd.definition import by_definition
from clustersplit_cli.core.parallel import pool
from clustersplit_cli.core.search.problem import Members
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.baseline import searched_options
from clustersplit_cli.pipeline.context import requirements_of
from clustersplit_cli.pipeline.local.context import BY_THRESHOLD, LocalContext, LocalFound
from clustersplit_cli.pipeline.local.engine import prepared_split
from clustersplit_cli.pipeline.local.partition import LocalPartition
from clustersplit_cli.pipeline.local.split import LocalSplit
from clustersplit_cli.pipeline.result import RunResult
from clustersplit_cli.pipeline.run import assess, grade
from clustersplit_cli.pipeline.summarize import summarize
from clustersplit_cli.progress import Progress, Stopwatch, silent
from clustersplit_cli.reports.json_report import render_json
from clustersplit_cli.reports.verification import FAILED, OK, SKIPPED, Check
from clustersplit_cli.verification.definition import check_definition
from clustersplit_cli.verification.files import IndexFiles, check_ids, stated_formats
from clustersplit_cli.verification.indices import (
    check_partition,
    check_requirements,
    is_partition,
    named_rows,
)
from clustersplit_cli.verification.stated import check_account, check_stated, differences

SIGMAS = 6.0
CHANCE = "chance has a say in a graded split, among identical rows too"


@dataclass(frozen=True)
class Claim:
    """A run directory as it was found.

    Attributes
    ----------
    report : the content of its report.
    config : options outside the pipeline's reach, as reading resolved them now.
    moved : whether the user says where the input is now.
    """

    directory: Path
    report: Mapping[str, Any]
    config: Mapping[str, Any]
    indices: IndexFiles
    moved: bool = False

    @property
    def is_baseline(self) -> bool:
        """Whether another strategy made the split, so that nothing was searched or certified."""
        return self.report["config"].get("strategy") is not None

    @property
    def was_read_in_pieces(self) -> bool:
        """Whether an engine made the split that never had all rows in one place."""
        return bool(self.report["config"].get("engine", "local") != "local")

    @property
    def freed_by(self) -> str | None:
        """The strategy, if it is one that keeps no quotas."""
        strategy = self.report["config"].get("strategy")
        return strategy if strategy in WITHOUT_QUOTAS else None


def verify_run(
    claim: Claim,
    dataset: Dataset,
    options: CheckedOptions,
    *,
    rerun: bool = False,
    progress: Progress = silent,
) -> Iterator[Check]:
    """Check a run directory against its input.

    Parameters
    ----------
    rerun : also search again, and compare the split, the trace and the restarts.
    """
    yield claim.indices.check
    if not claim.indices.is_complete:
        yield Check("recomputed results", SKIPPED, "an index file cannot be read")
        return
    train, val = claim.indices.sides["train"], claim.indices.sides["val"]
    partition = list(check_partition(train, val, dataset))
    yield from partition
    if dataset.ids is not None and is_partition(partition):
        yield check_ids(claim.directory, stated_formats(claim.report["config"]), claim.indices.sides, dataset)
    with pool(options.threads) as workers:
        asked = requirements_of(dataset, options, workers)
    yield from check_requirements(train, val, dataset, asked, freed_by=claim.freed_by)
    if not (is_partition(partition) and len(train) and len(val)):
        yield Check("recomputed results", SKIPPED, "the index files do not describe a split of the input")
        return
    members = np.isin(dataset.rows, val)
    if claim.was_read_in_pieces and options.certify != "never":
        options = replace(options, certify=BY_THRESHOLD)
    with prepared_split(dataset, options, progress) as context:
        recomputed = _as_report(_recompute(claim, context, members))
        if claim.is_baseline:
            recomputed["certificate"] = recomputed["bound"] = None
            recomputed["config"] |= searched_options(claim.report["config"]["strategy"])
        elif claim.was_read_in_pieces and recomputed["bound"]:
            most = context.bound(with_support=False) or 0.0
            fraction = min(recomputed["mmd"]["value"] / most, 1.0) if most else 1.0
            recomputed["bound"] |= {"mmd_upper": most, "fraction": fraction}
        yield from check_stated(claim.report, recomputed, moved=claim.moved)
        yield check_by_definition(claim.report, context, members)
        yield from check_account(claim.report)
        if claim.is_baseline:
            return
        yield _check_ties(context, members)
        if rerun:
            yield _check_rerun(claim.report, context, members)


def verify_split(indices: IndexFiles, dataset: Dataset, options: CheckedOptions) -> Iterator[Check]:
    """Check a split by another tool: whether it is one, and whether every cell has its share."""
    yield indices.check
    if indices.is_complete:
        train, val = indices.sides["train"], indices.sides["val"]
        yield from check_partition(train, val, dataset, must_be_sorted=False)
        with pool(options.threads) as workers:
            asked = requirements_of(dataset, options, workers)
        yield from check_requirements(train, val, dataset, asked)


def _recompute(claim: Claim, context: LocalSplit, members: Members) -> RunResult:
    """Measure the given split through the pipeline's own functions; how it was found is not looked at."""
    found = context.measure(members, converged=said_to_converge(claim.report))
    config = {**claim.config, "leave": claim.report["config"].get("leave")}
    return assess(context, found, config, best=stated_best(claim.report))


def stated_best(report: Mapping[str, Any]) -> tuple[float, float] | None:
    """MMD and Psi of the best split that a graded one refers to, which only a new search could tell."""
    grade = report["graded"]
    return None if grade is None else (grade["best_mmd"], grade["best_psi"])


def again_with_search(
    context: LocalSplit | LocalPartition, config: Mapping[str, Any] = MappingProxyType({})
) -> tuple[LocalFound, RunResult]:
    """Search again with the same seed, and grade what is found if that is asked for."""
    found = context.refine(context.explore())
    searched, best = context.account(found), None
    if context.options.is_graded:
        found, graded = grade(context, found, context.random_baseline(found))
        best = graded.scale.best, graded.best_psi
    return found, assess(context, found, config, searched, best)


def _as_report(result: RunResult) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(render_json(summarize(result, Stopwatch())))
    return report


def said_to_converge(report: Mapping[str, Any]) -> bool:
    """Whether the report's winner converged, which only a new search could tell."""
    try:
        winner = report["search"]["winner"]
        return any(run["start"] == winner and run["converged"] for run in report["restarts"])
    except (KeyError, TypeError):
        return True


def check_by_definition(report: Mapping[str, Any], context: LocalContext, labels: Labels | Members) -> Check:
    """Compare MMD², Psi and SSq, of a split or of parts, with sums of kernel values in float64."""
    geometry, kernel = context.kernel.geometry, context.kernel.prepared.kernel
    with np.errstate(over="ignore", invalid="ignore"):
        found = by_definition(
            context.dataset.features,
            labels,
            kernel=kernel.name,
            gamma=kernel.gamma,
            degree=kernel.degree,
            standardize=context.options.standardize,
            centred=kernel.origin is not None,
            landmarks=geometry.landmarks,
            workers=context.workers,
            on_done=lambda done, total: context.progress("definition", done, total),
        )
    # The trace of a Nyström kernel, and with it the scatter, may be an estimate.
    slack = SIGMAS * geometry.trace_error
    return check_definition(report, found, context.kernel.memory.geometry, len(labels), slack)


def _check_ties(context: LocalSplit, members: Members) -> Check:
    """Among identical rows of a cell the lowest go to validation; no number could tell them apart."""
    if context.options.is_graded:
        return Check("identical rows", SKIPPED, CHANCE)
    if context.requirements.units is not None:
        return Check("identical rows", SKIPPED, "units of rows stay together")
    wrong = context.dataset.rows[context.lowest_rows_first(members) != members]
    if len(wrong):
        return Check(
            "identical rows", FAILED, f"not the lowest ones are in validation: rows {named_rows(wrong)}"
        )
    return Check("identical rows", OK, "the lowest of each cell are in validation")


def _check_rerun(report: Mapping[str, Any], context: LocalSplit, members: Members) -> Check:
    """Search again with the same seed: the split and the account of the search must be the same."""
    found, result = again_with_search(context)
    wrong = context.dataset.rows[found.members != members]
    faults = [f"rows {named_rows(wrong)} go to the other side"] if len(wrong) else []
    again = _as_report(result)
    for key in ("trace", "search", "restarts", "graded"):
        faults += differences(report.get(key), again[key], key)
    if faults:
        return Check("search again", FAILED, "; ".join(faults[:3]))
    return Check("search again", OK, "the same split, trace and restarts")
