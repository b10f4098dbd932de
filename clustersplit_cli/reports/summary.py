"""The summary of a run: every number a report can show, computed once, rendered elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clustersplit_cli.reports.readable import Readable

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ToolVersions:
    """Versions of everything that can change a result."""

    version: str
    python: str
    numpy: str
    scipy: str
    pulp: str
    cbc: str | None


@dataclass(frozen=True)
class FileSummary:
    """One input file."""

    path: str
    role: str
    bytes: int
    sha256: str | None


@dataclass(frozen=True)
class InputSummary:
    """What was read."""

    files: tuple[FileSummary, ...]
    n_rows: int
    n_features: int
    columns: tuple[str, ...]
    n_excluded: int
    n_dropped: int


@dataclass(frozen=True)
class Sizes:
    """Rows on each side; None where there are other parts."""

    train: int | None
    val: int | None


@dataclass(frozen=True)
class SubsampleMMD:
    """Unbiased MMD² under the exact kernel on a seeded subsample (Nyström runs only)."""

    mmd_squared_unbiased: float
    standard_error: float
    size: int


@dataclass(frozen=True)
class MMDSummary:
    """The maximum mean discrepancy between the two sides (biased estimator).

    `error` is what MMD² of a kernel held as factors may lack: that of the kernel itself is at least `squared`
    and at most `squared + error`. 0 where the kernel is exact; null where landmarks stand for it. `exact` is
    the MMD under the kernel itself where landmarks stand for it and one pass over all of it was worth it.
    """

    value: float
    squared: float
    kernel: str
    gamma: float | None
    geometry: str
    subsample: SubsampleMMD | None
    error: float | None = 0.0
    exact: float | None = None


@dataclass(frozen=True)
class Objective:
    """The k-means objective; `identity_residual` is |SSq(S) - Psi - |T||V|/n MMD²| / SSq(S).

    `standard_error` is that of psi and ssq_total alike: not 0 only where the trace of a Nyström kernel was
    estimated from a sample of rows.
    """

    psi: float
    ssq_total: float
    identity_residual: float
    standard_error: float


@dataclass(frozen=True)
class TracePoint:
    """The objective after one step of the winning run."""

    phase: str
    iteration: int
    psi: float


@dataclass(frozen=True)
class ProgramsSummary:
    """Assignment programs solved, those that took integers, and those stopped early.

    A program that is stopped early gives the best choice found; it is taken only if it lowers Psi.
    """

    solved: int
    branched: int
    stopped_early: int


@dataclass(frozen=True)
class Search:
    """How long the search was, which start won, and by how much each phase of its run lowered Psi."""

    effort: str
    winner: str
    gained: dict[str, float]
    programs: ProgramsSummary | None = None


@dataclass(frozen=True)
class RestartSummary:
    """Where one start ended, and Psi on the way there, thinned out to a few dozen values.

    Steps on a low-rank approximation of the kernel have the Psi that they have there, shifted to end at
    `psi`.
    """

    start: str
    iterations: int
    psi: float
    mmd: float
    converged: bool
    trace: tuple[float, ...] = ()


@dataclass(frozen=True)
class CellSummary:
    """One cell's quota and what it got; `cell` maps column words to values (empty: the whole set).

    The counts are of validation rows, or of the rows in `part` where there are several parts.
    """

    cell: dict[str, Any]
    size: int
    target: int
    lower: int
    upper: int
    actual: int
    satisfied: bool
    family: str = ""
    part: str | None = None


@dataclass(frozen=True)
class ToleranceSummary:
    """The tolerance of cells without one of their own; whether it was found, and proven the smallest."""

    general: float
    was_found: bool
    proven_smallest: bool | None


@dataclass(frozen=True)
class UnitsSummary:
    """Units of rows that stay together; `divided` of them did not."""

    column: str
    count: int
    largest: int
    divided: int


@dataclass(frozen=True)
class PinnedSummary:
    """Rows forced to a side, and whether they are there."""

    train: int
    val: int
    satisfied: bool


@dataclass(frozen=True)
class ConstraintsSummary:
    """Every cell's quota, and whether all hold.

    `integral_by` says why assignment steps end in whole numbers: total_unimodularity or branch_and_bound.
    """

    all_satisfied: bool
    cells: tuple[CellSummary, ...]
    families: tuple[str, ...] = ()
    rounding: str | None = None
    integral_by: str | None = None
    tolerance: ToleranceSummary | None = None
    units: UnitsSummary | None = None
    pinned: PinnedSummary | None = None


@dataclass(frozen=True)
class Certificate:
    """Proof that the split is a fixed point of the constrained k-means assignment step.

    `gap` is (cost of the returned split - optimum of the LP) / optimum.
    """

    backend: str  # cbc | threshold | highs | transport
    status: str
    objective: float
    gap: float
    integral: bool
    n_lps: int


@dataclass(frozen=True)
class Bound:
    """Upper bound on the MMD of any split that meets the constraints."""

    mmd_upper: float
    fraction: float
    kernel: str
    method: str
    proven_optimal: bool


@dataclass(frozen=True)
class RandomBaseline:
    """MMD of seeded random splits that meet the same quotas, or are as large where a domain is left out."""

    n: int
    mmd_mean: float
    mmd_sd: float


@dataclass(frozen=True)
class Baselines:
    """What the MMD is compared with."""

    random: RandomBaseline


@dataclass(frozen=True)
class Timing:
    """Wall-clock seconds per step, in order, and the process's peak resident memory."""

    steps: dict[str, float]
    total: float
    peak_memory_bytes: int | None


@dataclass(frozen=True)
class Notice:
    """Something the user should know before trusting the split."""

    code: str
    message: str


@dataclass(frozen=True)
class Plan:
    """How the kernel is held, what that takes, and why."""

    geometry: str  # dense | linear | low-rank | nystrom
    landmarks: int | None
    bytes: int
    budget: int
    reason: str
    seconds: float | None = None  # that a split is expected to take
    rank: int | None = None  # columns of the factors of a low-rank kernel


@dataclass(frozen=True)
class PartSummary:
    """One of several parts; `mmd_rest` is the MMD between it and all other rows.

    `drawn`: chance chose its rows, before the others were driven apart.
    """

    name: str
    share: float
    size: int
    mmd_rest: float
    drawn: bool = False


@dataclass(frozen=True)
class PartsSummary:
    """More than two parts, or folds; `mmd[i][j]` is the MMD between parts i and j."""

    parts: tuple[PartSummary, ...]
    mmd: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class EngineSummary:
    """How rows that are not all in memory were gone through.

    `passes` counts those over all rows that refined the split; `factors` says where the rows' factors were
    kept between passes: memory, spill, recompute or mixed.
    """

    name: str  # stream | dask
    workers: int
    shards: int
    sample_rows: int
    passes: int
    factors: str
    factor_bytes: int
    source_bytes: int
    spill_bytes: int
    rows_per_second: float


@dataclass(frozen=True)
class GradeSummary:
    """Where on the scale from random splits to the best one found a graded split is.

    `asked` and `reached` are MMDs; severity 0 is `random_mmd`, the mean of random splits, and 1 `best_mmd`,
    that of the best split found. The trace and the restarts are of the search for that one, which ended at
    `best_psi`. `severity_reached` is null where all splits are alike.
    """

    severity: float
    asked: float
    reached: float
    severity_reached: float | None
    random_mmd: float
    best_mmd: float
    best_psi: float


@dataclass(frozen=True)
class AimCertificate:
    """How near to its optimum a split is that was made for a target.

    `value` is what the aim measures of the split, and `bound` what no split with these quotas surpasses: of
    lookalike the mean witness of validation minus that of training, which is the larger the better; of
    nearest and shift a squared distance.
    """

    method: str  # linear_program | relaxation
    backend: str  # cbc | threshold | exchange
    status: str
    value: float
    bound: float


@dataclass(frozen=True)
class WeightsSummary:
    """Weights of validation rows; `mmd` is that of the weighted rows and the target."""

    effective_size: float
    largest: float
    mmd: float


NO_SHIFT = 0.1
"""The p-value above which no shift is seen."""


@dataclass(frozen=True)
class TargetSummary:
    """Target rows: how far they are from the rows that are split, and from both sides.

    `severity` is where their MMD is on the scale from random splits (0) to the hardest split found (1), whose
    MMD and Psi are `best_mmd` and `best_psi`; null where none was searched for. `valid`: train and val are
    further apart than either is from the target.
    """

    name: str
    n_rows: int
    n_compared: int
    aim: str
    mmd: float
    mmd_train: float
    mmd_val: float
    p_value: float
    permutations: int
    severity: float | None
    best_mmd: float | None
    best_psi: float | None
    valid: bool
    certificate: AimCertificate | None
    weights: WeightsSummary | None


@dataclass(frozen=True)
class Report(Readable):
    """Everything `report.json` says; null where not computed."""

    renderer = "terminal:render_summary"

    schema_version: int
    tool: ToolVersions
    input: InputSummary
    config: dict[str, Any]
    seed: int
    sizes: Sizes
    plan: Plan
    mmd: MMDSummary
    objective: Objective
    trace: tuple[TracePoint, ...]
    search: Search | None
    restarts: tuple[RestartSummary, ...]
    constraints: ConstraintsSummary
    certificate: Certificate | None
    bound: Bound | None
    baselines: Baselines
    timing: Timing
    warnings: tuple[Notice, ...]
    parts: PartsSummary | None = None
    engine: EngineSummary | None = None
    graded: GradeSummary | None = None
    target: TargetSummary | None = None
