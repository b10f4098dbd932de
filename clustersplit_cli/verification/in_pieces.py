"""The checks of a run whose rows are read in pieces: the same numbers, by passes over the dataset."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from clustersplit_cli.data.row_labels import LabelsInMemory, files_of_sides, labels_of
from clustersplit_cli.engines.checks import CountDiffering, count_labels, find_misplaced, give_labels
from clustersplit_cli.engines.rules import Labelled
from clustersplit_cli.pipeline.baseline import searched_options
from clustersplit_cli.pipeline.run import assess, run
from clustersplit_cli.pipeline.sharded.engine import ShardedEngine
from clustersplit_cli.pipeline.summarize import summarize
from clustersplit_cli.progress import Stopwatch
from clustersplit_cli.reports.json_report import render_json
from clustersplit_cli.reports.verification import FAILED, OK, SKIPPED, Check
from clustersplit_cli.verification.definition import check_sharded_definition
from clustersplit_cli.verification.files import read_run_indices, stated_formats
from clustersplit_cli.verification.indices import check_complete, check_positions, is_partition
from clustersplit_cli.verification.run import CHANCE, Claim, said_to_converge, stated_best
from clustersplit_cli.verification.stated import RELATIVE, check_account, check_stated, differences

_NAMED = 3


def verify_run_in_pieces(claim: Claim, engine: ShardedEngine, *, rerun: bool = False) -> Iterator[Check]:
    """Check a run directory against its input, on whatever engine has its rows.

    Parameters
    ----------
    rerun : also search again, and compare the split.
    """
    labels, files, partition = _read(claim, engine.layout.n_rows)
    yield files
    yield from partition
    if labels is None or not is_partition(partition):
        yield Check("recomputed results", SKIPPED, "the index files do not describe a split of the input")
        return
    formats = stated_formats(claim.report["config"])
    in_order = all(check.status == OK for check in (files, *partition))
    give_labels(engine.executor, files_of_sides(claim.directory, formats) if in_order else None, labels)
    if claim.is_baseline:
        engine = replace(engine, options=replace(engine.options, certify="never"))
    given = engine.without_search()
    context = given.prepare(given.survey())
    found = context.measure(Labelled(), converged=said_to_converge(claim.report))
    result = assess(context, found, claim.config, best=stated_best(claim.report))
    stated = summarize(result, Stopwatch())
    cells = stated.constraints.cells
    counted_labels = count_labels(engine.executor, len(cells), 2)
    complete = check_complete(
        (counted_labels.n_missing, counted_labels.missing),
        (counted_labels.n_extra, counted_labels.extra),
        int(counted_labels.counts.sum()) + counted_labels.n_missing,
        engine.layout.n_rows,
    )
    yield complete
    wrong = [cell for cell in cells if not cell.satisfied]
    if wrong:
        yield Check("cell counts", FAILED, f"{len(wrong)} of {len(cells)} cells are out of their bounds")
    else:
        yield Check("cell counts", OK, f"{len(cells)} cells, all within their bounds")
    if not is_partition([*partition, complete]):
        yield Check("recomputed results", SKIPPED, "the index files do not describe a split of the input")
        return
    recomputed: dict[str, Any] = json.loads(render_json(stated))
    if claim.is_baseline:
        recomputed["bound"] = None
        recomputed["config"] |= searched_options(claim.report["config"]["strategy"])
    elif not claim.was_read_in_pieces and recomputed["certificate"] and claim.report["certificate"]:
        # The local engine asks CBC where rows are few; the proof is another, the fixed point the same.
        by = {name: claim.report["certificate"].get(name) for name in ("backend", "n_lps")}
        recomputed["certificate"] |= by
    if claim.report["bound"] and recomputed["bound"] and not claim.was_read_in_pieces:
        yield _check_tighter_bound(claim.report, recomputed.pop("bound"))
    yield from check_stated(claim.report, recomputed, moved=claim.moved)
    yield check_sharded_definition(claim.report, context, found)
    yield from check_account(claim.report)
    if claim.is_baseline:
        return
    yield _check_ties(engine, context.kernel.surveyed.n)
    if rerun:
        yield _check_rerun(claim, engine)


def _check_rerun(claim: Claim, engine: ShardedEngine) -> Check:
    """Search again with the same seed: the split must be the same, and the range of a graded one."""
    again = run(engine, config=claim.config)
    n_wrong = sum(engine.executor.run(CountDiffering(again.parts)))
    grade: Any = json.loads(render_json(again.report.graded))
    faults = [f"{n_wrong} rows go to the other side"] if n_wrong else []
    faults += differences(claim.report["graded"], grade, "graded")
    if faults:
        return Check("search again", FAILED, "; ".join(faults[:_NAMED]))
    return Check("search again", OK, "the same split")


def _check_tighter_bound(report: Mapping[str, Any], recomputed: Mapping[str, Any]) -> Check:
    """Compare a bound that was found by looking at rows in memory with what passes over pieces can tell."""
    stated, proven, mmd = report["bound"]["mmd_upper"], recomputed["mmd_upper"], report["mmd"]["value"]
    if not mmd * (1.0 - RELATIVE) <= stated <= proven * (1.0 + RELATIVE):
        return Check("bound", FAILED, f"{stated:.6g} is not between the MMD {mmd:.6g} and {proven:.6g}")
    return Check("bound", SKIPPED, f"MMD at most {proven:.6g}; the stated {stated:.6g} takes rows in memory")


def _check_ties(engine: ShardedEngine, n: int) -> Check:
    """Among identical rows of a cell the lowest go to validation; no number could tell them apart."""
    if engine.options.is_graded:
        return Check("identical rows", SKIPPED, CHANCE)
    found, count = find_misplaced(engine.executor, n, engine.layout.width, engine.layout.features.dtype)
    if not found:
        return Check("identical rows", OK, "the lowest of each cell are in validation")
    pairs = [f"row {pair.val} is, and the identical row {pair.train} is not" for pair in found[:_NAMED]]
    more = f"; and {count - _NAMED} more" if count > _NAMED else ""
    return Check("identical rows", FAILED, f"not the lowest ones are in validation: {'; '.join(pairs)}{more}")


def _read(claim: Claim, n_rows: int) -> tuple[LabelsInMemory | None, Check, list[Check]]:
    """The side of every row, if the files say so; the lists of rows, eight times as large, are given up."""
    indices = read_run_indices(claim.directory, stated_formats(claim.report["config"]))
    if not indices.is_complete or not all(len(rows) for rows in indices.sides.values()):
        return None, indices.check, []
    positions = list(check_positions(indices.sides, n_rows))
    sides = {side: indices.sides[side] for side in ("train", "val")}
    return labels_of(sides, n_rows), indices.check, positions
