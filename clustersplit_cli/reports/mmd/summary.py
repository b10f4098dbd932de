"""The summary of `clustersplit mmd`: every number it can show, computed once, rendered elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clustersplit_cli.reports.readable import Readable
from clustersplit_cli.reports.summary import FileSummary, Notice, Timing, ToolVersions

MMD_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class MMDInput:
    """What was read."""

    files: tuple[FileSummary, ...]
    n_rows: int
    n_features: int
    columns: tuple[str, ...]
    n_excluded: int
    n_dropped: int


@dataclass(frozen=True)
class KernelSummary:
    """The kernel that all pairs share; `gamma` and `degree` are null where it has none."""

    name: str
    gamma: float | None
    degree: int | None
    standardize: str


@dataclass(frozen=True)
class Method:
    """How the kernel was summed, what that was expected to take, and why."""

    geometry: str  # exact | dense | linear | nystrom
    landmarks: int | None
    exact_seconds: float
    bytes: int
    budget: int
    reason: str


@dataclass(frozen=True)
class GroupSummary:
    """One group of rows."""

    name: str
    size: int


@dataclass(frozen=True)
class Discrepancy:
    """An estimate of MMD and of its square; null where it is undefined."""

    value: float | None
    squared: float | None


@dataclass(frozen=True)
class CellDiscrepancy:
    """Two groups within one cell."""

    cell: dict[str, Any]
    first_size: int
    second_size: int
    value: float | None
    squared: float | None
    p_value: float | None


@dataclass(frozen=True)
class PairSummary:
    """Two groups; within cells, the square is the mean of the cells' weighted by their rows.

    `random_mean` is the mean MMD of the regroupings of the permutation test.
    """

    first: str
    second: str
    value: float | None
    squared: float | None
    p_value: float | None
    random_mean: float | None
    cells: tuple[CellDiscrepancy, ...] | None


@dataclass(frozen=True)
class Permutations:
    """The permutation test; `descriptive` where the groups were chosen for being far apart."""

    n: int
    descriptive: bool


@dataclass(frozen=True)
class Validity:
    """Whether train and val are further apart than either is from evaluation.

    That is what choosing hyper-parameters on a worst-case validation set assumes.
    """

    valid: bool
    train_val: float | None
    train_evaluation: float | None
    val_evaluation: float | None


@dataclass(frozen=True)
class WitnessRow:
    """One row and its witness: large where it looks like the second group."""

    group: str
    row: int
    value: float


@dataclass(frozen=True)
class WitnessSummary:
    """The rows that look most like the second group, and most like the first."""

    first: str
    second: str
    largest: tuple[WitnessRow, ...]
    smallest: tuple[WitnessRow, ...]


@dataclass(frozen=True)
class ColumnShift:
    """A column's mean in the second group minus that in the first, in standard deviations of the column."""

    column: str
    difference: float


@dataclass(frozen=True)
class NearDuplicates:
    """Rows of the second group that are nearly the same as a row of the first.

    `closest` are the most similar rows of different groups, by their numbers in the order of the groups, and
    `similarity` theirs; null if none are similar enough.
    """

    least: float
    measure: str
    rows: int
    of: int
    closest: tuple[int, int] | None
    similarity: float | None


@dataclass(frozen=True)
class EarlierReport:
    """What the report of the split says, to compare with; `random_mean` is of its random splits."""

    directory: str
    mmd: float | None
    random_mean: float | None
    same_input: bool
    reused: bool


@dataclass(frozen=True)
class MMDReport(Readable):
    """Everything `clustersplit mmd --json` says; null where not computed."""

    renderer = "mmd.terminal:render_mmd"

    schema_version: int
    command: str
    tool: ToolVersions
    input: MMDInput
    config: dict[str, Any]
    seed: int
    kernel: KernelSummary
    method: Method
    estimator: str
    within: tuple[str, ...]
    groups: tuple[GroupSummary, ...]
    mmd: Discrepancy | None
    pairs: tuple[PairSummary, ...]
    permutations: Permutations | None
    validity: Validity | None
    witness: WitnessSummary | None
    columns: tuple[ColumnShift, ...] | None
    near_duplicates: NearDuplicates | None
    split: EarlierReport | None
    timing: Timing
    warnings: tuple[Notice, ...]
