"""The Python API: splits of rows in memory, the discrepancy of two samples, and earlier runs read back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.arguments import (
    dataset_from,
    embedded,
    in_python_words,
    of_target,
    options_from,
    reading_config,
    tolerance_or_default,
    warn_of,
    with_target,
)
from clustersplit_cli.data.in_memory import Description
from clustersplit_cli.errors import InputError, UsageError
from clustersplit_cli.reports.summary import Report

if TYPE_CHECKING:
    from clustersplit_cli.data.dataset import Dataset
    from clustersplit_cli.options import CheckedOptions
    from clustersplit_cli.pipeline.context import PartitionOptions


@dataclass(frozen=True, repr=False)
class Split:
    """A train/validation split.

    Attributes
    ----------
    train, val : row positions, ascending, 0-based: `X[split.train]`, or `X.iloc[split.train]` with pandas.
    report : everything that `report.json` says, as attributes: `split.report.mmd.value`.
    weights : of the validation rows, in their order, with `weights=True`; else None.
    """

    train: NDArray[np.int64]
    val: NDArray[np.int64]
    report: Report
    weights: NDArray[np.float64] | None = None

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Split:
        """Read the directory of a `clustersplit split` back.

        Raises
        ------
        ValueError
            If it is no run directory, or damaged; or holds folds or named parts, for `Partition.load`.
        """
        from clustersplit_cli.data.runs import load_run
        from clustersplit_cli.reports.json_report import restore_report
        from clustersplit_cli.verification.recorded import report_of

        with in_python_words():
            run = load_run(Path(directory), report_of(Path(directory)))
        return cls(run.train, run.val, restore_report(run.report), run.weights)

    def to_predefined_split(self) -> Any:
        """Return a `sklearn.model_selection.PredefinedSplit` with this split as its only fold.

        Raises
        ------
        ValueError
            If some rows are on neither side, which scikit-learn would put into training.
        """
        from sklearn.model_selection import PredefinedSplit

        n_rows = self.report.input.n_rows
        left_out = n_rows - len(self.train) - len(self.val)
        with in_python_words():
            if left_out:
                raise InputError(
                    f"{left_out} of {n_rows} rows are on neither side, which a PredefinedSplit cannot say",
                    hint="use cv=[(split.train, split.val)]",
                )
        fold = np.full(n_rows, -1)
        fold[self.val] = 0
        return PredefinedSplit(fold)

    def __repr__(self) -> str:
        return f"Split({len(self.train):,} train, {len(self.val):,} val, MMD {self.report.mmd.value:.4g})"


def cluster_split(
    X: Any,
    y: Any = None,
    domains: Any = None,
    *,
    groups: Any = None,
    h: float | str = 0.2,
    stratify: str | Sequence[str] | None = None,
    tolerance: float | str | Sequence[float | str] | None = None,
    rounding: str | None = None,
    label_bins: int | None = None,
    force_train: Any = None,
    force_val: Any = None,
    severity: float | str | None = None,
    at_mmd: float | str | None = None,
    target: Any = None,
    aim: str = "worst",
    weights: bool = False,
    kernel: str = "rbf",
    gamma: float | str | None = None,
    degree: int | None = None,
    standardize: str = "none",
    nystrom: int | str = "auto",
    restarts: int = 10,
    effort: str = "normal",
    max_iter: int = 100,
    random_state: Any = 0,
    solver: str = "auto",
    certify: str = "auto",
    bound: str = "auto",
    memory: int | str | None = None,
    threads: int | None = None,
    columns: str | Sequence[str] | None = None,
    transformer: Any = None,
    drop_invalid: bool = False,
    impute: str = "none",
) -> Split:
    """Split rows so that validation differs from training as much as possible and every cell keeps its share.

    The parameters are the options of `clustersplit split`; equal ones, with `random_state` for `--seed`, give
    equal splits.

    Parameters
    ----------
    X : (n, d) array, list of rows, tensor on the CPU, pandas or polars data frame, Arrow table, or SciPy
        sparse matrix (linear and cosine kernels). A table may hold its features in one column of lists.
    y, domains : one label and one domain per row, or the names of columns of X. Without either, only the size
        of the validation set is kept.
    groups : rows of one group stay together: one value per row, the name of a column of X, or
        'exact-duplicates' for rows with the same features. As in scikit-learn; `--keep-together`.
    h : share of validation rows.
    stratify : 'label', 'domain', 'label,domain', columns of X, or 'none'; a list of such texts makes several
        families of cells, each of which keeps its shares.
    tolerance : by what share of it a cell may miss its quota; 'auto' for the smallest that can be met; a list
        such as [0.05, 'label=dog=0.2'] for cells of their own. By default 0, and 'auto' with groups.
    label_bins : cut numeric labels into that many quantile bins.
    force_train, force_val : rows that must be on a side: positions, or a mask.
    severity : how hard the split is, from 0, an ordinary random one, to 1, the hardest found and the default:
        its MMD is that share of the way between them, to within 1 %.
    at_mmd : ask for an MMD in that range instead.
    target : rows of where the model will be used, with the same features; they need no labels and go to
        neither side.
    aim : what validation is to be, with a target: 'worst', 'lookalike', 'nearest', 'shift' or 'severity'.
    weights : also weigh the validation rows so that they stand for the target: `split.weights`.
    columns : feature columns of a table, by name or glob; by default all without another role.
    transformer : scikit-learn transformer or function that embeds the rows first. One that is not fitted is
        copied, and the copy fitted.
    random_state : integer, or a NumPy generator or None for another split each time.
    drop_invalid : leave out rows with NaN or infinite features.
    impute : 'median' takes missing features for the median of their column, for the distances only.

    Returns
    -------
    Split

    Raises
    ------
    ValueError
        Saying what cannot be used and what would do.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> y = np.repeat([0, 1, 2], 20)
    >>> split = cluster_split(X, y, h=0.25)
    >>> np.bincount(y[split.val]).tolist()
    [5, 5, 5]
    """
    from clustersplit_cli.pipeline.local.engine import partition

    said = Description(
        y=y,
        domains=domains,
        groups=groups,
        force_train=force_train,
        force_val=force_val,
        label_bins=label_bins,
        drop_invalid=drop_invalid,
        impute=impute,
    )
    with in_python_words():
        dataset = dataset_from(X, said, stratify=stratify, columns=columns, transformer=transformer)
        dataset = with_target(dataset, target, transformer, drop_invalid=drop_invalid)
        options = options_from(
            {
                "holdout": h,
                **of_target(target, aim, weights),
                "kernel": kernel,
                "gamma": gamma,
                "degree": degree,
                "standardize": standardize,
                "tolerance": tolerance_or_default(tolerance, groups),
                "rounding": rounding,
                "nystrom": nystrom,
                "restarts": restarts,
                "effort": effort,
                "max_iter": max_iter,
                "solver": solver,
                "certify": certify,
                "bound": bound,
                "severity": severity,
                "at_mmd": at_mmd,
                "memory": memory,
                "threads": threads,
            },
            random_state,
        )
        found = partition(dataset, options, config=reading_config(dataset, said))
    warn_of(found.report.warnings, stacklevel=2)
    return Split(found.parts.train, found.parts.val, found.report, found.parts.weights)


def mmd(
    X: Any,
    Y: Any,
    *,
    kernel: str = "rbf",
    gamma: float | str | None = None,
    degree: int | None = None,
    standardize: str = "none",
    estimator: str = "biased",
    squared: bool = False,
    random_state: Any = 0,
    threads: int | None = None,
    transformer: Any = None,
) -> float:
    """Maximum mean discrepancy between two samples of rows, under the exact kernel.

    Kernel width and standardization are those of both samples together, so for a split it is the value in the
    report: `mmd(X[split.train], X[split.val]) == split.report.mmd.value`, but for rounding.

    Parameters
    ----------
    X, Y : (n, d) and (m, d), as for `cluster_split`, but dense.
    estimator : 'biased' (the paper's), or 'unbiased', whose square may be negative and must be asked for as
        such.
    squared : return MMD².
    transformer : embeds both samples; it must be fitted, or a function.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> mmd(rows[:100], rows[100:]) < mmd(rows[:100], rows[100:] + 1)
    True
    """
    from clustersplit_cli.core.mmd.estimators import ESTIMATORS, squared_discrepancies
    from clustersplit_cli.core.mmd.sums import exact_sums
    from clustersplit_cli.core.parallel import pool
    from clustersplit_cli.pipeline.context import Streams, prepare_features

    with in_python_words():
        if estimator not in ESTIMATORS:
            raise UsageError(
                f"estimator {estimator!r} is unknown", hint=f"choose one of {', '.join(ESTIMATORS)}"
            )
        if estimator == "unbiased" and not squared:
            raise UsageError("the unbiased estimate of MMD² may be negative", hint="pass squared=True")
        options = options_from(
            {
                "kernel": kernel,
                "gamma": gamma,
                "degree": degree,
                "standardize": standardize,
                "threads": threads,
            },
            random_state,
        )
        samples = [_dense_rows(rows, name, transformer) for rows, name in ((X, "X"), (Y, "Y"))]
        if samples[0].shape[1] != samples[1].shape[1]:
            raise InputError(
                f"X has {samples[0].shape[1]} features and Y has {samples[1].shape[1]}",
                hint="pass samples of the same features",
            )
        rows = np.concatenate(samples)
        groups = [np.arange(len(samples[0])), np.arange(len(samples[0]), len(rows))]
        with pool(options.threads) as workers:
            prepared = prepare_features(rows, options, workers, Streams.from_seed(options.seed).samples)
            sums = exact_sums(prepared.features, prepared.kernel, groups, workers)
        value = float(squared_discrepancies(sums, estimator)[0, 1])
    return value if squared else float(max(value, 0.0) ** 0.5)


def _dense_rows(rows: Any, name: str, transformer: Any) -> NDArray[np.floating[Any]]:
    """Check one sample."""
    from clustersplit_cli.data.foreign import as_rows
    from clustersplit_cli.data.in_memory import feature_matrix
    from clustersplit_cli.data.sparse import is_sparse

    matrix: Any = feature_matrix(as_rows(embedded(rows, None, transformer)))
    if is_sparse(matrix):
        raise InputError(f"{name} is sparse", hint=f"pass {name}.toarray()")
    if len(matrix) == 0 or not np.isfinite(matrix).all():
        raise InputError(f"{name} has no rows, or NaN or infinite features", hint="leave such rows out")
    return np.asarray(matrix)


Indices = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Partition:
    """Folds, or parts with names.

    Attributes
    ----------
    parts : row positions of every part, ascending, 0-based, by its name (`fold_0`, `fold_1`, ... of folds).
    labels : the number of every row's part; -1 for a row that is in none.
    report : everything that `report.json` says, as attributes: `partition.report.parts.mmd`.
    """

    parts: Mapping[str, Indices]
    labels: NDArray[np.int64]
    report: Report

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Partition:
        """Read the directory of a `clustersplit kfold` or `clustersplit split --parts` back.

        Raises
        ------
        ValueError
            If it is no run directory, or damaged; or holds a split in two, for `Split.load`.
        """
        from clustersplit_cli.data.runs import load_parts
        from clustersplit_cli.reports.json_report import restore_report
        from clustersplit_cli.verification.recorded import report_of

        with in_python_words():
            run = load_parts(Path(directory), report_of(Path(directory)))
        return cls(run.parts, run.labels, restore_report(run.report))

    def __getitem__(self, name: str) -> Indices:
        return self.parts[name]

    def folds(self) -> Iterator[tuple[Indices, Indices]]:
        """Yield (all other rows, the rows of a part) for every part: train and validate on each in turn."""
        for part, rows in enumerate(self.parts.values()):
            yield np.flatnonzero((self.labels >= 0) & (self.labels != part)), rows

    def to_predefined_split(self) -> Any:
        """Return a `sklearn.model_selection.PredefinedSplit` that validates on every part in turn.

        Raises
        ------
        ValueError
            If some rows are in no part, which scikit-learn would put into training.
        """
        from sklearn.model_selection import PredefinedSplit

        left_out = int((self.labels < 0).sum())
        with in_python_words():
            if left_out:
                raise UsageError(
                    f"{left_out} rows are in no part, which a PredefinedSplit cannot say",
                    hint="use cv=list(partition.folds())",
                )
        return PredefinedSplit(self.labels)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {len(rows):,}" for name, rows in self.parts.items())
        return f"Partition({sizes}; mean MMD {self.report.mmd.value:.4g})"


def cluster_folds(
    X: Any,
    y: Any = None,
    domains: Any = None,
    *,
    k: int = 5,
    groups: Any = None,
    stratify: str | None = None,
    tolerance: float | str | Sequence[float | str] | None = None,
    label_bins: int | None = None,
    severity: float | str | None = None,
    at_mmd: float | str | None = None,
    kernel: str = "rbf",
    gamma: float | str | None = None,
    degree: int | None = None,
    standardize: str = "none",
    nystrom: int | str = "auto",
    restarts: int = 10,
    effort: str = "normal",
    max_iter: int = 100,
    random_state: Any = 0,
    solver: str = "auto",
    certify: str = "auto",
    memory: int | str | None = None,
    threads: int | None = None,
    columns: str | Sequence[str] | None = None,
    transformer: Any = None,
    drop_invalid: bool = False,
    impute: str = "none",
) -> Partition:
    """Part rows into k folds that differ as much as possible, each with an equal share of every cell.

    The parameters are those of `cluster_split` and the options of `clustersplit kfold`; equal ones, with
    `random_state` for `--seed`, give equal folds.

    Parameters
    ----------
    k : number of folds.
    tolerance : only with groups, which rarely allow equal shares: by what share of it a fold may miss its
        quota of a cell. By default 'auto': what each cell needs when groups are dealt out evenly.

    Raises
    ------
    ValueError
        Saying what cannot be used and what would do.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> y = np.repeat([0, 1, 2], 20)
    >>> folds = cluster_folds(X, y, k=4)
    >>> [np.bincount(y[val]).tolist() for train, val in folds.folds()]
    [[5, 5, 5], [5, 5, 5], [5, 5, 5], [5, 5, 5]]
    """
    given = dict(locals())
    with in_python_words():
        dataset, options, said = prepared(given)
        return _partition(dataset, options, folds_of(k), {**reading_config(dataset, said), "k": int(k)})


def cluster_parts(
    X: Any,
    y: Any = None,
    domains: Any = None,
    *,
    parts: Mapping[str, float | str] | str,
    groups: Any = None,
    stratify: str | None = None,
    tolerance: float | str | Sequence[float | str] | None = None,
    label_bins: int | None = None,
    force_train: Any = None,
    force_val: Any = None,
    severity: float | str | None = None,
    at_mmd: float | str | None = None,
    kernel: str = "rbf",
    gamma: float | str | None = None,
    degree: int | None = None,
    standardize: str = "none",
    nystrom: int | str = "auto",
    restarts: int = 10,
    effort: str = "normal",
    max_iter: int = 100,
    random_state: Any = 0,
    solver: str = "auto",
    certify: str = "auto",
    memory: int | str | None = None,
    threads: int | None = None,
    columns: str | Sequence[str] | None = None,
    transformer: Any = None,
    drop_invalid: bool = False,
    impute: str = "none",
) -> Partition:
    """Part rows into named parts of any shares that differ from each other as much as possible.

    The parameters are those of `cluster_split` and the options of `clustersplit split --parts`.

    Parameters
    ----------
    parts : the share of every part, such as `{"train": 0.7, "val": 0.15, "test": 0.15}`; they add up to 1. Of
        a part with a share such as `"0.15:random"` chance chooses the rows, and the others are driven apart.
    force_train, force_val : rows that must be in the parts of these names.

    Raises
    ------
    ValueError
        Saying what cannot be used and what would do.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> found = cluster_parts(X, parts={"train": 0.7, "val": 0.15, "test": 0.15})
    >>> {name: len(rows) for name, rows in found.parts.items()}
    {'train': 28, 'val': 6, 'test': 6}
    """
    given = dict(locals())
    with in_python_words():
        text = _parts_text(parts)
        from clustersplit_cli.pipeline.context import PartitionOptions

        into = PartitionOptions.of_text(text)
        dataset, options, said = prepared(given)
        return _partition(dataset, options, into, {**reading_config(dataset, said), "parts": text})


def _parts_text(parts: Any) -> str:
    """Names and shares as the command line has them."""
    if isinstance(parts, str):
        return parts
    if not isinstance(parts, Mapping):
        raise UsageError(
            f"parts must be a dictionary of names and shares, got {parts!r}",
            hint='for example {"train": 0.7, "val": 0.15, "test": 0.15}',
        )
    return ",".join(f"{name}={share}" for name, share in parts.items())


OF_LEVELS = ("severity", "at_mmd", "aim", "weights")
"""Options that say where one split is on the scale, which a ladder does itself."""


@dataclass(frozen=True)
class Rung:
    """A graded split of a ladder: its level, its repeat and the split."""

    level: float
    repeat: int
    split: Split


def cluster_ladder(
    X: Any,
    y: Any = None,
    domains: Any = None,
    *,
    levels: Sequence[float] | str = (0, 0.25, 0.5, 0.75, 1),
    repeats: int = 3,
    random_state: Any = 0,
    **options: Any,
) -> list[Rung]:
    """Split rows at several severities, from ordinary random splits to the hardest found.

    Equal to `clustersplit ladder`, and split by split to `cluster_split` with `severity` and a `random_state`
    that counts up with the repeat; but every repeat searches once for all levels.

    Parameters
    ----------
    levels : severities, from 0 to 1.
    repeats : splits per level.
    options : those of `cluster_split`, without `severity`, `at_mmd`, `aim` and `weights`.

    Returns
    -------
    list of Rung
        Level by level, and in each of them repeat by repeat.

    Raises
    ------
    ValueError
        Saying what cannot be used and what would do.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(80, 2))
    >>> rungs = cluster_ladder(X, levels=(0, 0.5, 1), repeats=1)
    >>> mmds = [rung.split.report.mmd.value for rung in rungs]
    >>> mmds == sorted(mmds)
    True
    """
    from inspect import signature

    from clustersplit_cli.pipeline.ladder import climb, parse_levels
    from clustersplit_cli.pipeline.local.engine import opened_local

    taken = {name: given.default for name, given in signature(cluster_split).parameters.items()}
    with in_python_words():
        unknown = [name for name in options if name not in taken or name in OF_LEVELS]
        if unknown:
            raise UsageError(f"{', '.join(unknown)} is no option of a ladder", hint="see cluster_split")
        if isinstance(repeats, bool) or not isinstance(repeats, (int, np.integer)) or repeats < 1:
            raise UsageError(f"repeats must be an integer of at least 1, got {repeats!r}", hint="try 3")
        text = levels if isinstance(levels, str) else ",".join(map(str, levels))
        asked = parse_levels(text)
        given = {**taken, **options, "X": X, "y": y, "domains": domains, "random_state": random_state}
        dataset, checked, said = prepared({**given, "holdout": given["h"]})
        rungs = []
        with opened_local(dataset, checked) as engine:
            for repeat in range(int(repeats)):
                again = engine.seeded(checked.seed + repeat)
                for level, made in climb(again, asked, reading_config(dataset, said)):
                    split = Split(made.parts.train, made.parts.val, made.report)
                    rungs.append(Rung(level, repeat, split))
    notices = dict.fromkeys(notice for rung in rungs for notice in rung.split.report.warnings)
    warn_of(list(notices), stacklevel=2)
    return sorted(rungs, key=lambda rung: (rung.level, rung.repeat))


OF_ROWS = ("y", "domains", "groups", "force_train", "force_val", "label_bins", "drop_invalid", "impute")
OF_SEARCH = (
    *("kernel", "gamma", "degree", "standardize", "nystrom", "restarts", "effort", "max_iter"),
    *("solver", "certify", "severity", "at_mmd", "memory", "threads"),
    *("holdout", "rounding", "bound"),
)


def prepared(given: Mapping[str, Any]) -> tuple[Dataset, CheckedOptions, Description]:
    """Make a dataset and options of what a caller passed, by the names of the parameters."""
    said = Description(**{name: given[name] for name in OF_ROWS if name in given})
    chosen = {name: given[name] for name in ("stratify", "columns", "transformer")}
    dataset = dataset_from(given["X"], said, **chosen)
    search = {name: given[name] for name in OF_SEARCH if name in given}
    search["tolerance"] = tolerance_or_default(given["tolerance"], said.groups)
    return dataset, options_from(search, given["random_state"]), said


def folds_of(k: Any) -> PartitionOptions:
    """Check a number of folds."""
    from clustersplit_cli.pipeline.context import PartitionOptions

    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 2:
        raise UsageError(f"the number of folds must be an integer of at least 2, got {k!r}", hint="try 5")
    return PartitionOptions(folds=int(k))


def _partition(
    dataset: Dataset, options: CheckedOptions, into: PartitionOptions, config: Mapping[str, Any]
) -> Partition:
    from clustersplit_cli.pipeline.local.engine import partition

    found = partition(dataset, options, into, config=config)
    warn_of(found.report.warnings, stacklevel=3)
    labels = np.full(dataset.n_rows, -1, dtype=np.int64)
    labels[dataset.rows] = found.parts.labels
    return Partition(dict(found.parts.rows), labels, found.report)
