"""The MMD between the sides of a whole split, asked of the engine that has its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.quotas import SIDES
from clustersplit_cli.data.row_labels import NOBODY, LabelFiles, labels_of
from clustersplit_cli.errors import InputError
from clustersplit_cli.pipeline.engine import Engine
from clustersplit_cli.pipeline.result import GivenParts
from clustersplit_cli.pipeline.summarize import tool_versions
from clustersplit_cli.progress import peak_memory
from clustersplit_cli.reports.mmd import summary
from clustersplit_cli.reports.summary import FileSummary, Notice, Timing

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class GivenSides:
    """The side of every row, from lists of rows; `n_wrong`: rows that do not exist, or are on both sides."""

    parts: GivenParts
    n_wrong: int


def given_sides(train: Rows, val: Rows, n_rows: int, files: LabelFiles | None) -> GivenSides:
    """Label every row; files are of use only if their rows ascend."""
    labels = labels_of({"train": train, "val": val}, n_rows)
    n_labelled = int((labels.labels != NOBODY).sum())
    in_order = all((rows[1:] > rows[:-1]).all() for rows in (train, val))
    n_distinct = len(train) + len(val) if in_order else len(np.unique(train)) + len(np.unique(val))
    return GivenSides(GivenParts(labels, files if in_order else None), n_distinct - n_labelled)


def mmd_of_split(engine: Engine[Any, Any], sides: GivenSides, config: Mapping[str, Any]) -> summary.MMDReport:
    """Measure the MMD between two sides that together are all rows.

    Raises
    ------
    InputError
        If they are not.
    """
    given, surveyed = engine.give(sides.parts), engine.survey()
    counted = engine.count_given(surveyed, sides.parts)
    n_wrong = sides.n_wrong + counted.missing[0] + counted.extra[0]
    if n_wrong:
        raise InputError(
            f"train and val are not a split of all rows: {n_wrong} rows are on another side, or on none",
            hint="read in pieces, only a split of all rows can be measured; use --engine local",
        )
    context = engine.prepare(surveyed)
    measures, about = context.measures(context.measure(given)), context.about(searched=False)
    options, kernel, memory, dataset = about.options, about.prepared.kernel, about.memory, about.dataset
    pair = summary.PairSummary("train", "val", measures.mmd, measures.mmd_squared, None, None, None)
    return summary.MMDReport(
        schema_version=summary.MMD_SCHEMA_VERSION,
        command="mmd",
        tool=tool_versions(),
        input=summary.MMDInput(
            tuple(FileSummary(f.path, f.role, f.bytes, f.sha256) for f in dataset.files),
            dataset.n_rows,
            dataset.features.shape[1],
            dataset.feature_columns,
            dataset.n_excluded,
            dataset.n_dropped,
        ),
        config={
            **config,
            "kernel": kernel.name,
            "gamma": kernel.gamma,
            "degree": kernel.degree,
            "standardize": options.standardize,
            "nystrom": memory.landmarks if memory.landmarks is not None else "off",
            "seed": options.seed,
            "estimator": "biased",
            "permutations": 0,
            "memory": options.budget,
            "threads": options.threads,
            "engine": about.resolved["engine"],
        },
        seed=options.seed,
        kernel=summary.KernelSummary(kernel.name, kernel.gamma, kernel.degree, options.standardize),
        method=summary.Method(
            memory.geometry, memory.landmarks, 0.0, memory.bytes, memory.budget, memory.reason
        ),
        estimator="biased",
        within=(),
        groups=tuple(
            summary.GroupSummary(*side) for side in zip(SIDES, measures.sizes.tolist(), strict=True)
        ),
        mmd=summary.Discrepancy(measures.mmd, measures.mmd_squared),
        pairs=(pair,),
        permutations=None,
        validity=None,
        witness=None,
        columns=None,
        near_duplicates=None,
        split=None,
        timing=Timing(dict(context.watch.steps), context.watch.total, peak_memory()),
        warnings=tuple(Notice(*note) for note in dataset.notes),
    )
