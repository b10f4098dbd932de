"""Earlier folds and named parts, read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.destination import REPORT_NAME
from clustersplit_cli.data.readers.naming import shown
from clustersplit_cli.data.runs import Indices, index_files, is_parted, read_indices, read_report
from clustersplit_cli.errors import InputError


@dataclass(frozen=True)
class PartedRun:
    """A directory of folds or named parts; attributes as of `Run`.

    Attributes
    ----------
    parts : the row positions of every part, by name, ascending.
    labels : (rows of the input,) the number of every row's part; -1 for a row in none.
    """

    directory: Path
    report: Mapping[str, Any]
    report_text: str
    parts: Mapping[str, Indices]
    labels: NDArray[np.int64]

    @property
    def report_path(self) -> Path:
        """Where the report is."""
        return self.directory / REPORT_NAME


def load_parts(directory: Path) -> PartedRun:
    """Read a directory that `clustersplit kfold` or `clustersplit split --parts` wrote, in whatever format.

    Raises
    ------
    InputError
        If it is no such directory, or a file of it is missing or damaged.
    """
    report, text = read_report(directory)
    if not is_parted(report["config"]):
        raise InputError(
            f"{shown(directory)} holds a split in train and val, not folds or named parts",
            hint="in Python, read it with Split.load",
        )
    damaged = "see what is wrong with clustersplit verify"
    try:
        names = [part["name"] for part in report["parts"]["parts"]]
        n_rows = int(report["input"]["n_rows"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the report of {shown(directory)} does not list its parts", hint=damaged) from error
    stem = "{}/val" if report["config"].get("k") is not None else "{}"
    labels = np.full(n_rows, -1, dtype=np.int64)
    parts: dict[str, Indices] = {}
    for number, name in enumerate(names):
        rows = np.sort(read_indices(index_files(directory, stem.format(name))[0]))
        if len(rows) == 0 or rows[0] < 0 or rows[-1] >= n_rows or (labels[rows] >= 0).any():
            raise InputError(
                f"{name} of {shown(directory)} has no rows, rows of other parts, or rows that do not exist",
                hint=damaged,
            )
        labels[rows] = number
        parts[name] = rows
    return PartedRun(directory, report, text, parts, labels)
