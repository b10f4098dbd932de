"""A run as it was recorded: its report, checked where it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clustersplit_cli.data.readers.fingerprint import content_of
from clustersplit_cli.data.readers.naming import shown
from clustersplit_cli.data.runs import report_file
from clustersplit_cli.reports.json_report import load_report


def read_report(path: Path) -> dict[str, Any]:
    """Read a report.json and make sure that it is a whole report.

    Raises
    ------
    InputError
        If it is not.
    """
    return load_report(content_of(path), source=shown(path))


def report_of(directory: Path) -> dict[str, Any]:
    """Read the report of a run directory, likewise."""
    return read_report(report_file(directory))
