"""The checks of a run whose rows are read in pieces: the same numbers, by passes over the dataset."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from clustersplit_cli.data.side_files import TRAIN, VAL
from clustersplit_cli.engines.finishing import Sides
from clustersplit_cli.engines.rules import Listed
from clustersplit_cli.reports.json_report import render_json
from clustersplit_cli.reports.verification import FAILED, OK, SKIPPED, Check
from clustersplit_cli.scaling import Job, measure_blockwise, nameless, split_blockwise
from clustersplit_cli.verification.indices import check_partition, is_partition
from clustersplit_cli.verification.run import Claim, said_to_converge
from clustersplit_cli.verification.stated import check_stated, check_trace

_NEEDS_MEMORY = "needs all rows in memory"


def verify_run_in_pieces(claim: Claim, job: Job, *, rerun: bool = False) -> Iterator[Check]:
    """Check a run directory against its input, on whatever engine the job has.

    Parameters
    ----------
    rerun : also search again, and compare the split.
    """
    yield claim.indices.check
    if not claim.indices.is_complete:
        yield Check("recomputed results", SKIPPED, "an index file cannot be read")
        return
    train, val = claim.indices.sides["train"], claim.indices.sides["val"]
    if not (len(train) and len(val)):
        yield Check("recomputed results", SKIPPED, "a side is empty")
        return
    certified = not claim.is_baseline and job.options.certify != "never"
    rule = Listed(np.unique(val))
    measured = measure_blockwise(
        job, rule, claim.config, certified=certified, converged=said_to_converge(claim.report)
    )
    sides = np.concatenate(job.engine.run(Sides(rule)))
    shell = replace(nameless(job.layout), rows=np.flatnonzero((sides == TRAIN) | (sides == VAL)))
    partition = list(check_partition(train, val, shell))
    yield from partition
    cells = measured.report.constraints.cells
    wrong = [cell for cell in cells if not cell.satisfied]
    if wrong:
        yield Check("cell counts", FAILED, f"{len(wrong)} of {len(cells)} cells are out of their bounds")
    else:
        yield Check("cell counts", OK, f"{len(cells)} cells, all within their bounds")
    if not is_partition(partition):
        yield Check("recomputed results", SKIPPED, "the index files do not describe a split of the input")
        return
    recomputed: dict[str, Any] = json.loads(render_json(measured.report))
    if claim.is_baseline:
        recomputed["bound"] = None
    elif not claim.was_read_in_pieces and recomputed["certificate"] and claim.report["certificate"]:
        # The local engine asks CBC where rows are few; the proof is another, the fixed point the same.
        by = {name: claim.report["certificate"].get(name) for name in ("backend", "n_lps")}
        recomputed["certificate"] |= by
    yield from check_stated(claim.report, recomputed)
    yield Check("by definition", SKIPPED, _NEEDS_MEMORY)
    if claim.is_baseline:
        return
    yield check_trace(claim.report)
    yield Check("identical rows", SKIPPED, _NEEDS_MEMORY)
    if rerun:
        again = split_blockwise(job, claim.config)
        found = np.concatenate(job.engine.run(Sides(again.rule)))
        n_wrong = int(((found == VAL) != (sides == VAL)).sum())
        if n_wrong:
            yield Check("search again", FAILED, f"{n_wrong} rows go to the other side")
        else:
            yield Check("search again", OK, "the same split")
