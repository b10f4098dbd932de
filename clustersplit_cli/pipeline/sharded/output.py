"""The files of a run whose rows are in shards, written without a list of all rows."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from clustersplit_cli.data.annotate import staged_annotation
from clustersplit_cli.data.destination import Destination
from clustersplit_cli.data.side_files import PAIR, SideNames, write_sides, write_stream
from clustersplit_cli.engines.executor import Executor
from clustersplit_cli.engines.rules import Rule
from clustersplit_cli.engines.tasks import Sides
from clustersplit_cli.pipeline.context import PartitionOptions


def write_rule(
    executor: Executor, rule: Rule, to: Destination, into: PartitionOptions | None = None
) -> list[Path]:
    """Write everything that was asked for; return the paths of the files."""
    sides = np.concatenate(executor.run(Sides(rule)))
    names = PAIR if into is None else into.names
    are_folds = into is not None and into.folds is not None
    annotated = [] if to.annotate is None else [to.annotate]
    writing: Any = nullcontext()
    if to.annotate is not None:
        writing = staged_annotation(to.source, to.annotate, SideNames(sides, names), force=to.force)
    with writing:
        if to.directory is None:
            write_stream(sides, to.stream)
            return annotated
        paths = write_sides(
            to.directory,
            sides,
            report=to.report,
            formats=to.formats,
            parts=names,
            are_folds=are_folds,
            force=to.force,
        )
    return paths + annotated
