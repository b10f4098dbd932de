"""The MMD between the sides of a split whose rows are read in pieces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.row_labels import NOBODY, LabelFiles, LabelsInMemory, labels_of
from clustersplit_cli.engines.checks import count_labels, give_labels
from clustersplit_cli.engines.rules import Labelled
from clustersplit_cli.errors import InputError
from clustersplit_cli.pipeline.sharded.engine import ShardedEngine
from clustersplit_cli.pipeline.summarize import tool_versions
from clustersplit_cli.progress import peak_memory
from clustersplit_cli.reports.mmd import summary
from clustersplit_cli.reports.summary import FileSummary, Notice, Timing

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class GivenSides:
    """The side of every row, from lists of rows.

    Attributes
    ----------
    files : that hold the same, where parts of them can be read.
    n_wrong : rows that do not exist, and rows on both sides.
    """

    labels: LabelsInMemory
    files: LabelFiles | None
    n_wrong: int


def given_sides(train: Rows, val: Rows, n_rows: int, files: LabelFiles | None) -> GivenSides:
    """Label every row; files are of use only if their rows ascend."""
    labels = labels_of({"train": train, "val": val}, n_rows)
    n_labelled = int((labels.labels != NOBODY).sum())
    in_order = all((rows[1:] > rows[:-1]).all() for rows in (train, val))
    n_distinct = len(train) + len(val) if in_order else len(np.unique(train)) + len(np.unique(val))
    return GivenSides(labels, files if in_order else None, n_distinct - n_labelled)


def sharded_mmd(
    engine: ShardedEngine, sides: GivenSides, config: Mapping[str, Any], earlier: summary.EarlierReport | None
) -> summary.MMDReport:
    """Measure the MMD between two sides that together are all rows.

    Raises
    ------
    InputError
        If they are not.
    """
    give_labels(engine.executor, sides.files, sides.labels)
    context = engine.prepare(engine.survey())
    found = context.measure(Labelled())
    counted_labels = count_labels(engine.executor, len(context.kernel.surveyed.limits.target), 2)
    n_wrong = sides.n_wrong + counted_labels.n_missing + counted_labels.n_extra
    if n_wrong:
        raise InputError(
            f"train and val are not a split of all rows: {n_wrong} rows are on another side, or on none",
            hint="read in pieces, only a split of all rows can be measured; use --engine local",
        )
    state, kernel, memory = found.refined.split.state, context.kernel.prepared.kernel, context.memory
    squared = state.mmd_squared
    value = max(squared, 0.0) ** 0.5
    pair = summary.PairSummary("train", "val", value, squared, None, None, None)
    dataset = context.dataset()
    return summary.MMDReport(
        schema_version=summary.MMD_SCHEMA_VERSION,
        command="mmd",
        tool=tool_versions(),
        input=summary.MMDInput(
            tuple(FileSummary(f.path, f.role, f.bytes, f.sha256) for f in dataset.files),
            dataset.n_rows,
            engine.layout.width,
            dataset.feature_columns,
            dataset.n_excluded,
            dataset.n_dropped,
        ),
        config={
            **config,
            "kernel": kernel.name,
            "gamma": kernel.gamma,
            "degree": kernel.degree,
            "standardize": engine.options.standardize,
            "nystrom": memory.landmarks if memory.landmarks is not None else "off",
            "seed": engine.options.seed,
            "estimator": "biased",
            "permutations": 0,
            "memory": engine.options.budget,
            "threads": engine.options.threads,
            "engine": engine.executor.name,
        },
        seed=engine.options.seed,
        kernel=summary.KernelSummary(kernel.name, kernel.gamma, kernel.degree, engine.options.standardize),
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
        timing=Timing(dict(engine.watch.steps), engine.watch.total, peak_memory()),
        warnings=tuple(Notice(*note) for note in dataset.notes),
    )
