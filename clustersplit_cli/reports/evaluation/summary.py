"""The summary of `clustersplit evaluate`: every number it can show, computed once, rendered elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clustersplit_cli.reports.readable import Readable
from clustersplit_cli.reports.summary import FileSummary, Notice, Timing, ToolVersions

EVALUATION_SCHEMA_VERSION = 1
ORACLE = "oracle"


@dataclass(frozen=True)
class EvaluationInput:
    """What was read."""

    files: tuple[FileSummary, ...]
    n_rows: int
    n_features: int
    n_classes: int
    domains: tuple[str, ...]
    n_excluded: int
    n_dropped: int


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error, null where one run cannot tell."""

    mean: float
    se: float | None


@dataclass(frozen=True)
class Sensitivity:
    """What gain could have been seen, with four chances in five, at the level of the test.

    `gain` is the smallest one; null where one number tells nothing of chance. `more_domains` and
    `more_repeats` are how many more of either, with all else as it is, would show a gain of two points; null
    where no number would, or more than a thousand.
    """

    gain: float | None
    more_domains: int | None
    more_repeats: int | None


@dataclass(frozen=True)
class StrategyScore:
    """Models chosen by one strategy, tested on the evaluation domains.

    `test` is class-balanced accuracy, its standard error over repeats. `gain` is the difference to the
    random reference on the same rounds, its standard error over evaluation domains. `gap_closed` is the
    gain as a percentage of what the oracle gains; null where the oracle gains next to nothing. `optimism` is
    the chosen model's validation accuracy less that on the evaluation domain, its standard error over these.
    """

    strategy: str
    n_runs: int
    test: Estimate
    gain: Estimate | None
    gap_closed: Estimate | None
    p_value: float | None
    finding: str  # reference | gains | loses | unclear
    optimism: Estimate | None
    sensitivity: Sensitivity | None


@dataclass(frozen=True)
class Protocol:
    """One way of testing: the model trained on T, or the chosen setting retrained on all development rows."""

    name: str  # train | refit
    room: Estimate
    strategies: tuple[StrategyScore, ...]
    verdict: tuple[str, ...]


@dataclass(frozen=True)
class TrainingSetScore:
    """What a strategy's training set allows, whoever chooses: the best setting on E, trained on its T.

    `difference` is to the same on the random reference's training set. `rank_correlation` is Spearman's
    between validation and test accuracy over settings.
    """

    strategy: str
    oracle: Estimate
    difference: Estimate | None
    rank_correlation: Estimate | None
    mmd: Estimate


@dataclass(frozen=True)
class Correlation:
    """Spearman's rho between MMD(T,V) and test accuracy, its p-value, and how many points there are."""

    rho: float
    p_value: float
    n: int


@dataclass(frozen=True)
class DiscrepancyAndTest:
    """Does a larger MMD(T,V) go with better models?

    `strategies`: one point per strategy, means over all runs. `runs`: one point per run, both numbers less
    their means over the strategies of the same round; they share domains, so the p-value is optimistic.
    """

    strategies: Correlation | None
    runs: Correlation | None


@dataclass(frozen=True)
class EvaluationRun:
    """One strategy in one round; null where no setting could be chosen.

    `validation` is what the setting was chosen by, `validation_mean` its mean over validation domains.
    """

    domain: str
    repeat: int
    strategy: str
    mmd: float | None
    setting: int | None
    validation: float | None
    test: float | None
    refit: float | None
    oracle: float | None
    rank_correlation: float | None
    validation_mean: float | None


@dataclass(frozen=True)
class CurvePoint:
    """The splits of one severity: means over repeats, and the deviation of the accuracy."""

    level: float
    mmd: float
    accuracy: float
    sd: float | None


@dataclass(frozen=True)
class DomainCurve:
    """Accuracy over graded splits, of the settings that the reference chose, read where a domain is.

    `mmd` is that of the development rows and the domain, `severity` its place between random splits (0) and
    the hardest found (1): above 1 the curve ends before it. `error` is one standard error of `expected`:
    what the estimate was off on the other domains, at least what chance explains. `observed` is the
    accuracy there, null for a target. `scores` are validation accuracies of the model each strategy chose.
    """

    domain: str
    is_target: bool
    mmd: float
    p_value: float
    severity: float | None
    points: tuple[CurvePoint, ...]
    expected: float
    error: float
    observed: float | None
    scores: dict[str, float]


@dataclass(frozen=True)
class EstimatorScore:
    """How an estimate of the accuracy on a domain that was left out compares with what was found there.

    `name` is a strategy, whose validation accuracy it is, or `curve`. Standard errors are over domains.
    """

    name: str
    n_runs: int
    bias: Estimate
    absolute: Estimate


@dataclass(frozen=True)
class Curve:
    """Accuracy against the MMD of graded splits, as an estimate for unseen domains."""

    levels: tuple[float, ...]
    domains: tuple[DomainCurve, ...]
    estimators: tuple[EstimatorScore, ...]
    verdict: tuple[str, ...]


@dataclass(frozen=True)
class FailedTrial:
    """A trial without a result, and why."""

    key: str
    domain: str
    repeat: int
    params: dict[str, Any]
    error: str


@dataclass(frozen=True)
class TrialCounts:
    """How many trials there were; the first failed ones by name."""

    n_trials: int
    n_failed: int
    failed: tuple[FailedTrial, ...]


@dataclass(frozen=True)
class EvaluationReport(Readable):
    """Everything one run of `clustersplit evaluate` found."""

    renderer = "evaluation.terminal:render_evaluation"

    schema_version: int
    command: str
    tool: ToolVersions
    input: EvaluationInput
    config: dict[str, Any]
    seed: int
    reference: str
    protocols: tuple[Protocol, ...]
    training_sets: tuple[TrainingSetScore, ...]
    discrepancy: DiscrepancyAndTest
    curve: Curve | None
    runs: tuple[EvaluationRun, ...]
    trials: TrialCounts
    timing: Timing
    warnings: tuple[Notice, ...]
