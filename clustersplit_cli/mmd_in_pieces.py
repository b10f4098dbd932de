"""The MMD between the sides of a split whose rows are read in pieces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.side_files import TRAIN, VAL
from clustersplit_cli.engines.finishing import Sides
from clustersplit_cli.engines.rules import Listed
from clustersplit_cli.errors import InputError
from clustersplit_cli.reports import mmd_summary as summary
from clustersplit_cli.reports.summary import FileSummary, Notice, Timing
from clustersplit_cli.scaling import Job, measure_sides
from clustersplit_cli.stopwatch import peak_memory
from clustersplit_cli.summarize import tool_versions

Rows = NDArray[np.int64]


def mmd_in_pieces(
    job: Job, train: Rows, val: Rows, config: Mapping[str, Any], earlier: summary.EarlierReport | None
) -> summary.MMDReport:
    """Measure the MMD between two sides that together are all rows.

    Raises
    ------
    InputError
        If they are not.
    """
    rule = Listed(np.unique(val))
    found = measure_sides(job, rule)
    sides = np.concatenate(job.engine.run(Sides(rule)))
    listed = np.zeros(len(sides), dtype=bool)
    listed[train[(train >= 0) & (train < len(sides))]] = True
    n_wrong = int((listed != (sides == TRAIN)).sum()) + int((sides == VAL).sum() != len(rule.positions))
    if n_wrong:
        raise InputError(
            f"train and val are not a split of all rows: {n_wrong} rows are on another side, or on none",
            hint="read in pieces, only a split of all rows can be measured; use --engine local",
        )
    state, kernel, memory = found.state, found.ahead.prepared.kernel, job.plan.memory
    squared = state.mmd_squared
    value = max(squared, 0.0) ** 0.5
    pair = summary.PairSummary("train", "val", value, squared, None, None)
    dataset = found.dataset
    return summary.MMDReport(
        schema_version=summary.MMD_SCHEMA_VERSION,
        command="mmd",
        tool=tool_versions(),
        input=summary.MMDInput(
            tuple(FileSummary(f.path, f.role, f.bytes, f.sha256) for f in dataset.files),
            dataset.n_rows,
            job.layout.width,
            dataset.feature_columns,
            dataset.n_excluded,
            dataset.n_dropped,
        ),
        config={
            **config,
            "kernel": kernel.name,
            "gamma": kernel.gamma,
            "degree": kernel.degree,
            "standardize": job.options.standardize,
            "nystrom": memory.landmarks if memory.landmarks is not None else "off",
            "seed": job.options.seed,
            "estimator": "biased",
            "permutations": 0,
            "memory": job.options.budget,
            "threads": job.options.threads,
            "engine": job.engine.name,
        },
        seed=job.options.seed,
        kernel=summary.KernelSummary(kernel.name, kernel.gamma, kernel.degree, job.options.standardize),
        method=summary.Method(
            memory.geometry, memory.landmarks, 0.0, memory.bytes, memory.budget, memory.reason
        ),
        estimator="biased",
        within=(),
        groups=(summary.GroupSummary("train", state.n_train), summary.GroupSummary("val", state.n_val)),
        mmd=summary.Discrepancy(value, squared),
        pairs=(pair,),
        permutations=None,
        validity=None,
        witness=None,
        columns=None,
        split=earlier,
        timing=Timing(dict(job.watch.steps), job.watch.total, peak_memory()),
        warnings=tuple(Notice(*note) for note in (*dataset.notes, *job.engine.notes)),
    )
