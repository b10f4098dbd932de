"""The summary of a ladder: where every graded split is, and the range of its scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from clustersplit_cli.reports.summary import FileSummary, InputSummary, Notice, ToolVersions

if TYPE_CHECKING:
    from clustersplit_cli.reports.summary import Report

__all__ = [
    "FileSummary",
    "InputSummary",
    "LadderReport",
    "LevelSummary",
    "Notice",
    "RungSummary",
    "TargetPlace",
]
LADDER_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class RungSummary:
    """One run; `directory` is below that of the ladder. The range is that of its own seed.

    `target_mmd` is the MMD of all rows and the target under its kernel, null without one.
    """

    level: float
    repeat: int
    seed: int
    directory: str | None
    mmd: float
    asked: float
    random_mmd: float
    best_mmd: float
    target_mmd: float | None


@dataclass(frozen=True)
class LevelSummary:
    """The MMDs of one level; the deviation is null where there is one repeat."""

    level: float
    mmd_mean: float
    mmd_sd: float | None


@dataclass(frozen=True)
class TargetPlace:
    """Where the target is on the scale: `mmd` is that of all rows and it, the mean over runs.

    `severity` is the mean over runs; above 1 the target is beyond the hardest split found, null where all
    splits are alike.
    """

    name: str
    n_rows: int
    mmd: float
    p_value: float
    severity: float | None


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
    target: TargetPlace | None
    warnings: tuple[Notice, ...]


def summarize_rung(level: float, repeat: int, report: Report, directory: str | None = None) -> RungSummary:
    """Where one run is on the scale; the hardest split is the upper end itself."""
    value, grade = report.mmd.value, report.graded
    random = report.baselines.random.mmd_mean
    asked, best = (value, value) if grade is None else (grade.asked, grade.best_mmd)
    away = None if report.target is None else report.target.mmd
    return RungSummary(level, repeat, report.seed, directory, value, asked, random, best, away)


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
        target=_place(rungs, first),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _place(rungs: Sequence[RungSummary], first: Report) -> TargetPlace | None:
    """Where the target is on the scales of all repeats."""
    found = first.target
    if found is None:
        return None
    known = [(rung, rung.target_mmd) for rung in rungs if rung.target_mmd is not None]
    places = [
        (mmd - rung.random_mmd) / (rung.best_mmd - rung.random_mmd)
        for rung, mmd in known
        if rung.best_mmd > rung.random_mmd
    ]
    mmd, severity = fmean(mmd for _, mmd in known), fmean(places) if places else None
    return TargetPlace(found.name, found.n_rows, mmd, found.p_value, severity)
