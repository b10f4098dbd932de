"""The files of a run whose rows are in memory."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.annotate import staged_annotation
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.data.destination import WEIGHTS_NAME, Destination
from clustersplit_cli.data.writers import write_index_stream, write_run
from clustersplit_cli.pipeline.local.context import Parts


def write_parts(dataset: Dataset, parts: Parts, to: Destination, *, are_folds: bool) -> list[Path]:
    """Write everything that was asked for; return the paths of the files.

    Of folds, what to train on and the fold of every row are written besides.
    """
    annotated = [] if to.annotate is None else [to.annotate]
    if to.directory is None:
        with _annotated(dataset, parts, to):
            write_index_stream(parts.val, to.stream)
        return annotated
    rows: dict[str, NDArray[np.int64]] = dict(parts.rows)
    if are_folds:
        rows = {}
        for name, own in parts.rows.items():
            rows[f"{name}/train"] = dataset.rows[~np.isin(dataset.rows, own)]
            rows[f"{name}/val"] = own
    vectors: dict[str, NDArray[Any]] = {}
    if are_folds:
        vectors["folds"] = fold_numbers(dataset, parts)
    if parts.weights is not None:
        vectors[WEIGHTS_NAME] = parts.weights
    with _annotated(dataset, parts, to):
        paths = write_run(
            to.directory,
            parts=rows,
            report=to.report,
            formats=to.formats,
            ids=dataset.ids,
            id_name=dataset.id_name,
            vectors=vectors,
            page=to.page,
            force=to.force,
        )
    return paths + annotated


def _annotated(dataset: Dataset, parts: Parts, to: Destination) -> AbstractContextManager[None]:
    """The annotated copy of the input, if it was asked for: published with what the block writes."""
    if to.annotate is None:
        return nullcontext()
    return staged_annotation(to.source, to.annotate, part_names(dataset, parts), force=to.force)


def part_names(dataset: Dataset, parts: Parts) -> NDArray[np.str_]:
    """For every row of the input the part it went to."""
    width = max(len(name) for name in (*parts.rows, "excluded"))
    names = np.full(dataset.n_rows, "excluded", dtype=f"U{width}")
    names[dataset.dropped] = "dropped"
    for name, rows in parts.rows.items():
        names[rows] = name
    return names


def fold_numbers(dataset: Dataset, parts: Parts) -> NDArray[np.int64]:
    """For every row of the input its fold; -1 for rows that are excluded or dropped."""
    numbers = np.full(dataset.n_rows, -1, dtype=np.int64)
    numbers[dataset.rows] = parts.labels
    return numbers
