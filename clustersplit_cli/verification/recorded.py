"""A run as it was recorded: its report, checked where it is read, and its index files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clustersplit_cli.core.baselines import WITHOUT_QUOTAS
from clustersplit_cli.data.readers.fingerprint import content_of
from clustersplit_cli.data.readers.naming import shown
from clustersplit_cli.data.runs import is_partition_run, report_file
from clustersplit_cli.options import WORST
from clustersplit_cli.pipeline.context import PartitionOptions
from clustersplit_cli.reports.json_report import load_report
from clustersplit_cli.verification.files import IndexFiles, read_index_files, stated_formats


@dataclass(frozen=True)
class RecordedRun:
    """A run directory as it was found.

    Attributes
    ----------
    report : the content of its report.
    config : options of reading and writing, as they are resolved now.
    moved : whether the user says where the input is now.
    """

    directory: Path
    report: Mapping[str, Any]
    config: Mapping[str, Any]
    moved: bool = False

    @property
    def into(self) -> PartitionOptions | None:
        """What the report says was made; None for a split in two."""
        return recorded_partition(self.report["config"])

    @property
    def is_baseline(self) -> bool:
        """Whether another strategy made the split, so that nothing was searched or certified."""
        return self.report["config"].get("strategy") is not None

    @property
    def is_sharded(self) -> bool:
        """Whether an engine made it that never had all rows in one place."""
        return bool(self.report["config"].get("engine", "local") != "local")

    @property
    def freed_by(self) -> str | None:
        """The strategy, if it is one that keeps no quotas."""
        strategy = self.report["config"].get("strategy")
        return strategy if strategy in WITHOUT_QUOTAS else None

    @property
    def resolved(self) -> dict[str, Any]:
        """The options that a report repeats."""
        stated = self.report["config"]
        made = {name: stated[name] for name in ("k", "parts") if name in stated and self.into is not None}
        by = {name: stated.get(name) for name in ("strategy", "leave") if self.is_baseline}
        return {**self.config, **made, **by}

    @property
    def converged(self) -> bool:
        """Whether the report's winner converged, which only a new search could tell."""
        try:
            winner = self.report["search"]["winner"]
            return any(run["start"] == winner and run["converged"] for run in self.report["restarts"])
        except (KeyError, TypeError):
            return True

    @property
    def best(self) -> tuple[float, float] | None:
        """MMD and Psi of the best split that another refers to, which only a new search could tell."""
        grade, target = self.report["graded"], self.report["target"]
        if grade is None and (target is None or target["aim"] == WORST):
            return None
        stated = grade or target
        return None if stated["best_mmd"] is None else (stated["best_mmd"], stated["best_psi"])

    @property
    def formats(self) -> list[str]:
        """Of its files."""
        return stated_formats(self.report["config"])

    @property
    def has_widths(self) -> bool:
        """Whether `--gamma power` chose among candidates."""
        return bool(self.report["config"].get("widths"))

    def index_files(self) -> IndexFiles:
        """Read them, in every format it was written in."""
        return read_index_files(self.directory, stated_formats(self.report["config"]), self.into)


def recorded_partition(config: Mapping[str, Any]) -> PartitionOptions | None:
    """What the options of a report say was made; None for a split in two."""
    if not is_partition_run(config):
        return None
    if config.get("k") is not None:
        return PartitionOptions(folds=config["k"])
    return PartitionOptions.of_text(config["parts"])


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
