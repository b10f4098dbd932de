"""The order of the checks for folds and named parts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Labels
from clustersplit_cli.core.constraints.groups import GroupParts
from clustersplit_cli.core.constraints.quotas import Quotas
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.data.runs import read_indices
from clustersplit_cli.errors import InputError
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.context import PartitionOptions
from clustersplit_cli.pipeline.local.context import LocalFound
from clustersplit_cli.pipeline.local.engine import prepared_partition
from clustersplit_cli.pipeline.local.partition import LocalPartition
from clustersplit_cli.pipeline.result import RunResult
from clustersplit_cli.pipeline.run import assess
from clustersplit_cli.pipeline.summarize import summarize
from clustersplit_cli.progress import Progress, Stopwatch, silent
from clustersplit_cli.reports.json_report import render_json
from clustersplit_cli.reports.verification import FAILED, OK, SKIPPED, Check
from clustersplit_cli.verification.files import check_ids, stored_type
from clustersplit_cli.verification.indices import named_rows
from clustersplit_cli.verification.run import again_with_search, check_by_definition, stated_best
from clustersplit_cli.verification.stated import check_account, check_stated, differences

Indices = NDArray[np.int64]
_NAMED = 3


@dataclass(frozen=True)
class PartedClaim:
    """A directory of folds or parts as it was found; attributes as of `Claim`."""

    directory: Path
    report: Mapping[str, Any]
    config: Mapping[str, Any]
    formats: Sequence[str]
    moved: bool = False

    @property
    def into(self) -> PartitionOptions:
        """What the report says was made."""
        return stated_partition(self.report["config"])


def stated_partition(config: Mapping[str, Any]) -> PartitionOptions:
    """What the options of a report say was made."""
    k = config.get("k")
    return PartitionOptions(folds=k) if k is not None else PartitionOptions.of_text(config["parts"])


def verify_parts(
    claim: PartedClaim,
    dataset: Dataset,
    options: CheckedOptions,
    *,
    rerun: bool = False,
    progress: Progress = silent,
) -> Iterator[Check]:
    """Check a directory of folds or parts against its input; `rerun` also searches again."""
    quotas, units = claim.into.arranged(dataset, options)
    folds = claim.into.folds is not None
    parts, faults = read_parts(claim, quotas.names)
    if faults:
        yield Check("index files", FAILED, "; ".join(faults[:_NAMED]))
        yield Check("recomputed results", SKIPPED, "an index file cannot be trusted")
        return
    yield Check("index files", OK, f"whole, int64, {len(parts)} parts")
    numbers, wrong = number_rows(parts, dataset.n_rows)
    labels = numbers[dataset.rows]
    wrong += _incomplete(numbers, dataset)
    if wrong:
        yield Check("rows complete", FAILED, "; ".join(wrong[:_NAMED]))
        yield Check("recomputed results", SKIPPED, "the index files do not describe parts of the input")
        return
    yield Check("rows complete", OK, f"each of {len(dataset.rows)} rows is in one part, in ascending order")
    if folds:
        yield check_folds(claim, numbers, quotas.names)
    if dataset.ids is not None:
        yield check_ids(claim.directory, claim.formats, parts, dataset)
    yield check_counts(quotas, quotas.counts(labels))
    if quotas.forced.any():
        yield _check_pins(quotas, labels)
    if quotas.drawn:
        yield _check_drawn(quotas, labels)
    if units is not None:
        yield _check_units(units, labels)
    with prepared_partition(dataset, options, claim.into, progress) as context:
        given = context.measure(labels, converged=_said_to_converge(claim.report))
        recomputed = _recompute(claim, context, given)
        yield from check_stated(claim.report, recomputed, moved=claim.moved)
        yield check_by_definition(claim.report, context, labels)
        yield from check_account(claim.report)
        yield Check("identical rows", SKIPPED, "of parts, any of them may have any of the identical rows")
        if rerun:
            found, result = again_with_search(context, claim.config)
            changed = dataset.rows[found.labels != labels]
            faults = [f"rows {named_rows(changed)} go to other parts"] if len(changed) else []
            again = _as_report(result)
            for key in ("trace", "search", "restarts", "graded"):
                faults += differences(claim.report.get(key), again[key], key)
            how = "; ".join(faults[:_NAMED]) or "the same parts, trace and restarts"
            yield Check("search again", FAILED if faults else OK, how)


def read_parts(claim: PartedClaim, names: Sequence[str]) -> tuple[dict[str, Indices], list[str]]:
    """Read the rows of every part in every format; all must say the same."""
    parts: dict[str, Indices] = {}
    faults: list[str] = []
    for name in names:
        stem = f"{name}/val" if claim.into.folds is not None else name
        for suffix in claim.formats:
            path = claim.directory / f"{stem}.{suffix}"
            try:
                rows = read_indices(path)
            except InputError as error:
                faults.append(error.message)
                continue
            if (kind := stored_type(path, suffix)) != "int64":
                faults.append(f"{stem}.{suffix} holds {kind}, not int64")
            if not np.array_equal(parts.setdefault(stem, rows), rows):
                faults.append(f"{stem}.{suffix} differs from {stem}.{claim.formats[0]}")
    return parts, faults


def number_rows(parts: Mapping[str, Indices], n_rows: int) -> tuple[Labels, list[str]]:
    """The part of every row, -1 for none, and what keeps the files from being parts of so many rows."""
    numbers = np.full(n_rows, -1, dtype=np.int64)
    wrong: list[str] = []
    for part, (name, rows) in enumerate(parts.items()):
        outside = rows[(rows < 0) | (rows >= n_rows)]
        if len(outside):
            wrong.append(f"{name}: rows {named_rows(outside)} outside 0..{n_rows - 1}")
            continue
        if (rows[1:] <= rows[:-1]).any():
            wrong.append(f"{name}: rows repeated or not ascending")
        taken = rows[numbers[rows] >= 0]
        if len(taken):
            wrong.append(f"{name}: rows {named_rows(taken)} in another part as well")
        numbers[rows] = part
    return numbers, wrong


def _incomplete(numbers: Labels, dataset: Dataset) -> list[str]:
    """Rows that are in no part though they take part, or in one though they do not."""
    missing = dataset.rows[numbers[dataset.rows] < 0]
    extra = np.setdiff1d(np.flatnonzero(numbers >= 0), dataset.rows)
    return told_incomplete((len(missing), missing), (len(extra), extra))


def told_incomplete(missing: tuple[int, Indices], extra: tuple[int, Indices]) -> list[str]:
    """The same in words, from how many there are and the first few of them."""
    told = {"in no part": missing, "in a part though excluded or dropped": extra}
    return [f"rows {named_rows(rows, count)} {where}" for where, (count, rows) in told.items() if count]


def check_folds(claim: PartedClaim, numbers: Labels, names: Sequence[str]) -> Check:
    """Check that every fold's training rows are the other folds, and that the fold of every row is right."""
    faults = []
    try:
        for suffix in claim.formats:
            if not np.array_equal(read_indices(claim.directory / f"folds.{suffix}"), numbers):
                faults.append(f"folds.{suffix} is not the fold of every row")
            for fold, name in enumerate(names):
                rows = read_indices(claim.directory / name / f"train.{suffix}")
                if not np.array_equal(rows, np.flatnonzero((numbers >= 0) & (numbers != fold))):
                    faults.append(f"{name}/train.{suffix} is not what the other folds are")
    except InputError as error:
        faults.append(error.message)
    if faults:
        return Check("folds agree", FAILED, "; ".join(faults[:_NAMED]))
    return Check("folds agree", OK, f"{len(names)} folds, each with the others to train on")


def check_counts(quotas: Quotas, counts: Labels) -> Check:
    """Compare the rows of every cell in every part, of shape (cells, parts), with their bounds."""
    wrong = np.argwhere((counts < quotas.lower) | (counts > quotas.upper)).tolist()
    if wrong:
        named = [
            f"{quotas.cells.describe(cell)}: {counts[cell, part]} in {quotas.names[part]}, "
            f"wanted {quotas.lower[cell, part]} to {quotas.upper[cell, part]}"
            for cell, part in wrong[:_NAMED]
        ]
        return Check("cell counts", FAILED, f"{len(wrong)} counts out of bounds: {'; '.join(named)}")
    return Check("cell counts", OK, f"{len(quotas.cells.sizes)} cells in {quotas.k} parts, all within bounds")


def _check_pins(quotas: Quotas, labels: Labels) -> Check:
    """Check that forced rows are in the parts they are forced into."""
    forced = quotas.forced
    astray = int((labels[forced] != quotas.pinned[forced]).sum())
    if astray:
        return Check("forced rows", FAILED, f"{astray} rows are not in the part they are forced into")
    return Check("forced rows", OK, f"all {int(forced.sum())} in place")


def _check_drawn(quotas: Quotas, labels: Labels) -> Check:
    """Check that the parts that chance chose have the rows that the seed gives them."""
    names = ", ".join(quotas.names[part] for part in quotas.drawn)
    drawn = np.isin(quotas.pinned, quotas.drawn)
    astray = int((labels[drawn] != quotas.pinned[drawn]).sum())
    if astray:
        return Check("random parts", FAILED, f"{astray} rows that the seed draws for {names} are elsewhere")
    return Check("random parts", OK, f"{names}: {int(drawn.sum())} rows, those that the seed draws")


def _check_units(units: GroupParts, labels: Labels) -> Check:
    """Check that all rows of a unit are in one part."""
    part = np.full(len(units.table), -1, dtype=np.int64)
    part[units.units] = labels
    divided = np.unique(units.units[labels != part[units.units]])
    if len(divided):
        row = int(np.flatnonzero(units.units == divided[0])[0])
        return Check("units whole", FAILED, f"{len(divided)} units are divided, such as that of row {row}")
    return Check("units whole", OK, f"{len(part)} units, none divided")


def _said_to_converge(report: Mapping[str, Any]) -> bool:
    """Whether the report's winner converged, which only a new search could tell."""
    try:
        winner = report["search"]["winner"]
        return any(run["start"] == winner and run["converged"] for run in report["restarts"])
    except (KeyError, TypeError):
        return True


def _recompute(claim: PartedClaim, context: LocalPartition, found: LocalFound) -> dict[str, Any]:
    return _as_report(assess(context, found, claim.config, best=stated_best(claim.report)))


def _as_report(result: RunResult) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(render_json(summarize(result, Stopwatch())))
    return report
