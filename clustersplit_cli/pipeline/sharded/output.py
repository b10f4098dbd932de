"""The files of a run whose rows are in shards, written without a list of all rows."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from clustersplit_cli.data.annotate import staged_annotation
from clustersplit_cli.data.destination import Destination
from clustersplit_cli.data.side_files import ROWS_FOLDER, SideNames, write_sides, write_stream
from clustersplit_cli.engines.executor import Executor
from clustersplit_cli.engines.options import DASK
from clustersplit_cli.engines.rules import Rule
from clustersplit_cli.engines.tasks import Sides, WriteRows


def write_rule(executor: Executor, rule: Rule, to: Destination) -> list[Path]:
    """Write everything that was asked for; return the paths of the files.

    The workers of a cluster write the side of every row.
    """
    by_workers = executor.name == DASK and to.directory is not None
    needs_sides = bool(to.formats) or to.annotate is not None or to.directory is None
    sides = np.concatenate(executor.run(Sides(rule))) if needs_sides else None
    annotated = [] if to.annotate is None else [to.annotate]
    writing: Any = nullcontext()
    if to.annotate is not None:
        assert sides is not None
        writing = staged_annotation(to.source, to.annotate, SideNames(sides), force=to.force)
    with writing:
        if to.directory is None:
            assert sides is not None
            write_stream(sides, to.stream)
            return annotated
        paths = write_sides(
            to.directory,
            sides if to.formats else None,
            report=to.report,
            formats=to.formats,
            force=to.force,
            also=(lambda folder: _rows_by_workers(executor, rule, folder)) if by_workers else _nothing,
        )
    return paths + annotated


def _rows_by_workers(executor: Executor, rule: Rule, directory: Path) -> list[str]:
    """Have the workers write the side of every row; name the folder."""
    folder = (directory / ROWS_FOLDER).resolve()
    folder.mkdir()
    executor.run(WriteRows(rule, folder))
    return [ROWS_FOLDER]


def _nothing(directory: Path) -> list[str]:
    return []
