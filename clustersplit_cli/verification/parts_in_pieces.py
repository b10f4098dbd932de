"""The checks of folds and named parts whose rows are read in pieces: what sizes tell, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from clustersplit_cli.core.constraints.cells import Labels
from clustersplit_cli.core.constraints.quotas import Quotas
from clustersplit_cli.data.row_labels import LabelsInMemory, files_of_folds
from clustersplit_cli.engines.checks import LabelCounts, count_labels, give_labels
from clustersplit_cli.engines.tasks import Survey
from clustersplit_cli.pipeline.notices import about_parts
from clustersplit_cli.pipeline.sharded.engine import ShardedEngine, surveyed_dataset
from clustersplit_cli.pipeline.sharded.prepare import count_cells
from clustersplit_cli.pipeline.summarize import summarize_counts, summarize_input
from clustersplit_cli.reports.json_report import render_json
from clustersplit_cli.reports.verification import FAILED, OK, SKIPPED, Check
from clustersplit_cli.verification.parts import (
    PartedClaim,
    check_counts,
    check_folds,
    number_rows,
    read_parts,
    told_incomplete,
)
from clustersplit_cli.verification.stated import check_account, check_stated

NEED_ALL_ROWS = (
    *("MMD", "objective", "by definition", "certificate", "random baseline"),
    *("configuration", "geometry", "identical rows"),
)
"""Checks of `verify_parts` that work on a kernel of all rows."""
_NEEDS_ROWS = "needs all rows in one place: use --engine local"
_NAMED = 3


def verify_parts_in_pieces(claim: PartedClaim, engine: ShardedEngine) -> Iterator[Check]:
    """Check a directory of folds or parts against its input, by one pass that counts."""
    numbers, checks = _read(claim, engine.layout.n_rows)
    yield from checks
    if numbers is None:
        yield Check("recomputed results", SKIPPED, "the index files do not describe parts of the input")
        return
    labels = LabelsInMemory(numbers.astype(np.min_scalar_type(-len(_names(claim)))))
    del numbers
    counted = count_cells(engine.layout, engine.executor, Survey(), engine.watch)
    quotas = claim.into.of_cells(counted.cells, engine.options)
    is_folds = claim.into.folds is not None
    give_labels(engine.executor, files_of_folds(claim.directory, claim.formats) if is_folds else None, labels)
    counted_labels = count_labels(engine.executor, len(counted.cells.sizes), quotas.k)
    wrong = told_incomplete(
        (counted_labels.n_missing, counted_labels.missing), (counted_labels.n_extra, counted_labels.extra)
    )
    if wrong:
        yield Check("rows complete", FAILED, "; ".join(wrong))
        yield Check("recomputed results", SKIPPED, "the index files do not describe parts of the input")
        return
    yield Check(
        "rows complete", OK, f"each of {counted.found.n_kept} rows is in one part, in ascending order"
    )
    yield check_counts(quotas, counted_labels.counts)
    yield _check_totals(claim.report, quotas, counted_labels)
    dataset = surveyed_dataset(engine.layout, counted.found, engine.prints)
    recomputed = {
        "input": json.loads(render_json(summarize_input(dataset))),
        "constraints": json.loads(render_json(summarize_counts(quotas, counted_labels.counts))),
    }
    yield from check_stated(claim.report, recomputed, moved=claim.moved)
    yield _check_warnings(claim.report, quotas)
    yield from check_account(claim.report)
    for name in NEED_ALL_ROWS:
        yield Check(name, SKIPPED, _NEEDS_ROWS)


def _names(claim: PartedClaim) -> list[str]:
    into = claim.into
    if into.folds is not None:
        return [f"fold_{fold}" for fold in range(into.folds)]
    return [name for name, _ in into.parts]


def _read(claim: PartedClaim, n_rows: int) -> tuple[Labels | None, list[Check]]:
    """The part of every row, if the files say so; the lists of rows are given up again."""
    names = _names(claim)
    parts, faults = read_parts(claim, names)
    if faults:
        return None, [Check("index files", FAILED, "; ".join(faults[:_NAMED]))]
    checks = [Check("index files", OK, f"whole, int64, {len(parts)} parts")]
    numbers, wrong = number_rows(parts, n_rows)
    if wrong:
        return None, [*checks, Check("rows complete", FAILED, "; ".join(wrong[:_NAMED]))]
    if claim.into.folds is not None:
        checks.append(check_folds(claim, numbers, names))
    return numbers, checks


def _check_totals(report: Mapping[str, Any], quotas: Quotas, counted_labels: LabelCounts) -> Check:
    """Compare the rows of every part with what the report states."""
    totals = dict(zip(quotas.names, counted_labels.counts.sum(axis=0).tolist(), strict=True))
    try:
        stated = {part["name"]: part["size"] for part in report["parts"]["parts"]}
    except (KeyError, TypeError):
        return Check("part totals", FAILED, "the report does not list its parts")
    if stated != totals:
        wrong = [name for name in {**totals, **stated} if stated.get(name) != totals.get(name)]
        told = [f"{name} has {totals.get(name)} rows, {stated.get(name)} in the report" for name in wrong]
        return Check("part totals", FAILED, "; ".join(told[:_NAMED]))
    least, most = min(totals.values()), max(totals.values())
    return Check("part totals", OK, f"{len(totals)} parts of {least} to {most} rows, as stated")


def _check_warnings(report: Mapping[str, Any], quotas: Quotas) -> Check:
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
