"""The order of the checks, once: for splits, folds and parts, wherever an engine has their rows."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from typing import Any

from clustersplit_cli.core.constraints.quotas import Quotas
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.pipeline.baseline import searched_options
from clustersplit_cli.pipeline.engine import Context, Engine
from clustersplit_cli.pipeline.notices import about_parts
from clustersplit_cli.pipeline.result import CountedParts, RunResult
from clustersplit_cli.pipeline.run import assess, for_aim, grade
from clustersplit_cli.pipeline.summarize import summarize, summarize_counts, summarize_input
from clustersplit_cli.progress import Stopwatch
from clustersplit_cli.reports.readable import render_json
from clustersplit_cli.reports.verification import FAILED, OK, SKIPPED, Check
from clustersplit_cli.similarity import Nearness
from clustersplit_cli.verification.definition import check_definition
from clustersplit_cli.verification.files import IndexFiles, check_folds, check_ids, check_weights
from clustersplit_cli.verification.indices import (
    NEEDS_ROWS,
    check_complete,
    check_crossing,
    check_positions,
    check_requirements,
    is_partition,
    named_rows,
)
from clustersplit_cli.verification.recorded import RecordedRun
from clustersplit_cli.verification.stated import RELATIVE, check_account, check_stated, differences

NEED_KERNEL = (
    *("MMD", "objective", "by definition", "certificate", "random baseline"),
    *("configuration", "geometry", "identical rows"),
)
"""Checks that take a kernel, which an engine may not hold for parts."""
_NAMED = 3


def verify_run(
    run: RecordedRun, engine: Engine[Any, Any], *, rerun: bool = False, near: Nearness | None = None
) -> Iterator[Check]:
    """Check a run directory against its input.

    Parameters
    ----------
    rerun : also search again, and compare the partition, the trace and the restarts.
    near : how similar rows of different parts may not be.
    """
    if not rerun:
        engine = engine.without_search()
    partition = yield from _check_indices(run.index_files(), engine, run=run, near=near)
    if partition is None:
        return
    surveyed, given, counted = partition
    if not engine.has_kernel:
        yield from _check_sizes(run, engine.describe(surveyed), counted)
        return
    context = engine.prepare(surveyed)
    found = context.measure(given, converged=run.converged)
    resolved = {**run.resolved, **context.width_candidates()} if run.has_widths else run.resolved
    result = assess(context, found, resolved, best=run.best)
    recomputed = _as_report(result)
    if run.is_sharded == context.has_all_rows:  # the MMD under the kernel itself takes all rows in one place
        recomputed["mmd"]["exact"] = None if run.is_sharded else run.report["mmd"]["exact"]
    if run.is_baseline:
        recomputed["config"] |= searched_options(run.report["config"]["strategy"])
    elif run.is_sharded == context.has_all_rows:
        yield from _allow_other_proofs(run, context, recomputed)
    yield from check_stated(run.report, recomputed, moved=run.moved)
    yield check_definition(run.report, context.definition(found))
    if result.target is not None and result.target.matching is not None:
        yield check_weights(run.directory, run.formats, result.target.matching.weights)
    yield from check_account(run.report)
    if run.is_baseline:
        return
    yield _check_ties(run, context, given)
    if rerun:
        yield _check_rerun(run, context, given)


def verify_split(
    files: IndexFiles, engine: Engine[Any, Any], *, near: Nearness | None = None
) -> Iterator[Check]:
    """Check a split by another tool: whether it is one, and whether every cell has its share."""
    yield from _check_indices(files, engine, near=near)


def _check_indices(
    files: IndexFiles,
    engine: Engine[Any, Any],
    *,
    run: RecordedRun | None = None,
    near: Nearness | None = None,
) -> Generator[Check, None, tuple[Any, Any, CountedParts] | None]:
    """Check that index files describe a partition of the input that meets what was asked for.

    Returns
    -------
    What the engine surveyed, the partition in its form, and its counts; None if the files describe none.
    """
    yield files.check
    if not files.is_complete:
        if run is not None:
            yield Check("recomputed results", SKIPPED, "an index file cannot be read")
        return None
    described = engine.describe()
    checks = list(check_positions(files.parts, described.n_rows, must_be_sorted=run is not None))
    yield from checks
    if files.are_folds:
        yield check_folds(files, described.n_rows)
    trusted = run is not None and all(check.status == OK for check in checks)
    parts = files.given(described.n_rows, trusted=trusted)
    is_split_of_some = files.n_parts > 2 or all(map(len, files.parts.values()))
    identified = files if described.ids is not None and run is not None else None
    del files  # lists of rows are eight times as large as labels
    given = engine.give(parts)
    surveyed = engine.survey()
    counted = engine.count_given(surveyed, parts)
    checks.append(check_complete(counted, described.n_rows))
    yield checks[-1]
    if identified is not None and is_partition(checks):
        yield check_ids(identified, described)
    yield from check_requirements(counted, freed_by=None if run is None else run.freed_by)
    if near is not None and is_partition(checks):
        yield check_crossing(engine.crossing(given, near), near, counted.families[0].names)
    if run is None:
        return None
    if not (is_partition(checks) and is_split_of_some):
        yield Check("recomputed results", SKIPPED, "the index files do not describe a split of the input")
        return None
    return surveyed, given, counted


def _as_report(result: RunResult) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(render_json(summarize(result, Stopwatch())))
    return report


def _allow_other_proofs(
    run: RecordedRun, context: Context[Any], recomputed: dict[str, Any]
) -> Iterator[Check]:
    """Engines prove the same fixed point in different ways, and bounds that are not equally tight."""
    stated = run.report
    said, found = stated["certificate"], recomputed["certificate"]
    if said and found and said["backend"] != found["backend"]:
        found |= {"backend": said["backend"], "n_lps": said["n_lps"] if said["backend"] == "cbc" else 0}
    if not (stated["bound"] and recomputed["bound"]):
        return
    if not context.has_all_rows:
        yield _check_tighter_bound(stated, recomputed.pop("bound"))
        return
    again = context.bound(with_support=False)
    most = again.mmd if again else 0.0
    fraction = min(recomputed["mmd"]["value"] / most, 1.0) if most else 1.0
    recomputed["bound"] |= {"mmd_upper": most, "fraction": fraction}


def _check_tighter_bound(report: Mapping[str, Any], recomputed: Mapping[str, Any]) -> Check:
    """Compare a bound that takes rows in memory with what passes over shards can tell."""
    stated, proven, mmd = report["bound"]["mmd_upper"], recomputed["mmd_upper"], report["mmd"]["value"]
    if not mmd * (1.0 - RELATIVE) <= stated <= proven * (1.0 + RELATIVE):
        return Check("bound", FAILED, f"{stated:.6g} is not between the MMD {mmd:.6g} and {proven:.6g}")
    return Check("bound", SKIPPED, f"MMD at most {proven:.6g}; the stated {stated:.6g} needs rows in memory")


def _check_ties(run: RecordedRun, context: Context[Any], given: Any) -> Check:
    """Among identical rows of a cell the lowest go to validation; no number could tell them apart."""
    if context.options.is_graded:
        return Check("identical rows", SKIPPED, "a graded split chooses among identical rows at random")
    found = context.misplaced_ties(given)
    if found is None:
        why = "units of rows stay together"
        if run.into is not None:
            why = "of parts, any of them may have any of the identical rows"
        return Check("identical rows", SKIPPED, why)
    count, rows = found
    if count:
        return Check(
            "identical rows", FAILED, f"not the lowest ones are in validation: rows {named_rows(rows, count)}"
        )
    return Check("identical rows", OK, "the lowest of each cell are in validation")


def _check_rerun(run: RecordedRun, context: Context[Any], given: Any) -> Check:
    """Search again with the same seed: the partition and the account of the search must be the same."""
    found = context.refine(context.explore())
    searched, best = context.account(found), None
    if context.options.is_graded:
        found, graded = grade(context, found, context.random_baseline(found))
        best = graded.scale.best, graded.best_psi
    elif searched is not None and not context.options.is_searched_for:
        found, best = for_aim(context, found)
    count, rows = context.differing(found, given)
    other = "the other side" if run.into is None else "other parts"
    faults = [f"rows {named_rows(rows, count)} go to {other}"] if count else []
    again = _as_report(assess(context, found, run.resolved, searched, best))
    for key in ("trace", "search", "restarts", "graded", "target"):
        faults += differences(run.report.get(key), again[key], key)
    if faults:
        return Check("search again", FAILED, "; ".join(faults[:_NAMED]))
    same = "split" if run.into is None else "parts"
    return Check("search again", OK, f"the same {same}, trace and restarts")


def _check_sizes(run: RecordedRun, dataset: Dataset, counted: CountedParts) -> Iterator[Check]:
    """Check what sizes tell of parts, where the engine has no kernel for them."""
    (quotas,), (counts,) = counted.families, counted.counts
    yield _check_totals(run.report, quotas, counts.sum(axis=0).tolist())
    recomputed = {
        "input": json.loads(render_json(summarize_input(dataset))),
        "constraints": json.loads(render_json(summarize_counts(quotas, counts))),
    }
    yield from check_stated(run.report, recomputed, moved=run.moved)
    yield _check_size_warnings(run.report, quotas)
    yield from check_account(run.report)
    for name in NEED_KERNEL:
        yield Check(name, SKIPPED, NEEDS_ROWS)


def _check_totals(report: Mapping[str, Any], quotas: Quotas, sizes: list[int]) -> Check:
    """Compare the rows of every part with what the report states."""
    totals = dict(zip(quotas.names, sizes, strict=True))
    try:
        stated = {part["name"]: part["size"] for part in report["parts"]["parts"]}
    except (KeyError, TypeError):
        return Check("part totals", FAILED, "the report does not list its parts")
    if stated != totals:
        wrong = [name for name in {**totals, **stated} if stated.get(name) != totals.get(name)]
        each = [f"{name} has {totals.get(name)} rows, {stated.get(name)} in the report" for name in wrong]
        return Check("part totals", FAILED, "; ".join(each[:_NAMED]))
    least, most = min(totals.values()), max(totals.values())
    return Check("part totals", OK, f"{len(totals)} parts of {least} to {most} rows, as stated")


def _check_size_warnings(report: Mapping[str, Any], quotas: Quotas) -> Check:
    """Check that the report warns of cells that are too small, if and only if some are."""
    wanted = [message for _, message in about_parts(quotas)]
    codes = {code for code, _ in about_parts(quotas)} or {"cells_missing_in_parts"}
    try:
        stated = [note["message"] for note in report["warnings"] if note["code"] in codes]
    except (KeyError, TypeError):
        return Check("warnings", FAILED, "the report's warnings are malformed")
    if stated != wanted:
        return Check("warnings", FAILED, f"about sizes it should say {wanted}, and says {stated}")
    return Check("warnings", OK, "about sizes, as stated; others need all rows in one place")
