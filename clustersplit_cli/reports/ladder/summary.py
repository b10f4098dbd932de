"""The summary of a ladder: where every graded split is, and the range of its scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from clustersplit_cli.reports.summary import FileSummary, InputSummary, Notice, ToolVersions

if TYPE_CHECKING:
    from clustersplit_cli.reports.summary import Report

__all__ = ["FileSummary", "InputSummary", "LadderReport", "LevelSummary", "Notice", "RungSummary"]
LADDER_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class RungSummary:
    """One run; `directory` is below that of the ladder. The range is that of its own seed."""

    level: float
    repeat: int
    seed: int
    directory: str | None
    mmd: float
    asked: float
    random_mmd: float
    best_mmd: float


@dataclass(frozen=True)
class LevelSummary:
    """The MMDs of one level; the deviation is null where there is one repeat."""

    level: float
    mmd_mean: float
    mmd_sd: float | None


@dataclass(frozen=True)
class LadderReport:
    """Everything `ladder.json` says."""

    schema_version: int
    tool: ToolVersions
    input: InputSummary
    config: dict[str, Any]
    seed: int
    levels: tuple[LevelSummary, ...]
    runs: tuple[RungSummary, ...]
    warnings: tuple[Notice, ...]


def summarize_rung(level: float, repeat: int, report: Report, directory: str | None = None) -> RungSummary:
    """Where one run is on the scale; the hardest split is the upper end itself."""
    value, grade = report.mmd.value, report.graded
    random = report.baselines.random.mmd_mean
    asked, best = (value, value) if grade is None else (grade.asked, grade.best_mmd)
    return RungSummary(level, repeat, report.seed, directory, value, asked, random, best)


def summarize_ladder(rungs: Sequence[RungSummary], first: Report, warnings: Sequence[Notice]) -> LadderReport:
    """Put the runs together.

    Parameters
    ----------
    first : the report of the first run.
    warnings : of all runs; each is kept once.
    """
    levels = list(dict.fromkeys(rung.level for rung in rungs))
    found = {level: [rung.mmd for rung in rungs if rung.level == level] for level in levels}
    own = ("severity", "at_mmd", "seed", "parts")
    return LadderReport(
        schema_version=LADDER_SCHEMA_VERSION,
        tool=first.tool,
        input=first.input,
        config={
            **{name: value for name, value in first.config.items() if name not in own},
            "levels": levels,
            "repeats": max(map(len, found.values())),
        },
        seed=min(rung.seed for rung in rungs),
        levels=tuple(
            LevelSummary(level, fmean(values), stdev(values) if len(values) > 1 else None)
            for level, values in found.items()
        ),
        runs=tuple(sorted(rungs, key=lambda rung: (levels.index(rung.level), rung.repeat))),
        warnings=tuple(dict.fromkeys(warnings)),
    )
