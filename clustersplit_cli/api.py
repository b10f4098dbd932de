"""The Python API: splits of rows in memory, the discrepancy of two samples, and earlier runs read back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.arguments import (
    dataset_from,
    embedded,
    in_python_words,
    options_from,
    reading_config,
    tolerance_or_default,
    warn_of,
)
from clustersplit_cli.data.in_memory import Description
from clustersplit_cli.errors import InputError, UsageError
from clustersplit_cli.reports.summary import Report


@dataclass(frozen=True, repr=False)
class Split:
    """A train/validation split.

    Attributes
    ----------
    train, val : row positions, ascending, 0-based: `X[split.train]`, or `X.iloc[split.train]` with pandas.
    report : everything that `report.json` says, as attributes: `split.report.mmd.value`.
    """

    train: NDArray[np.int64]
    val: NDArray[np.int64]
    report: Report

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Split:
        """Read the directory of a `clustersplit split` back.

        Raises
        ------
        ValueError
            If it is no run directory, or damaged; or holds folds or named parts, for `Partition.load`.
        """
        from clustersplit_cli.data.runs import load_run
        from clustersplit_cli.reports.restore import restore_report

        with in_python_words():
            run = load_run(Path(directory))
            report = restore_report(run.report_text, source=str(run.report_path))
        return cls(run.train, run.val, report)

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
    columns : feature columns of a table, by name or glob; by default all without another role.
    transformer : scikit-learn transformer or function that embeds the rows first. One that is not fitted is
        copied, and the copy fitted.
    random_state : integer, or a NumPy generator or None for another split each time.
    drop_invalid : leave out rows with NaN or infinite features.

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
    from clustersplit_cli.pipeline import run as pipeline

    said = Description(
        y=y,
        domains=domains,
        groups=groups,
        force_train=force_train,
        force_val=force_val,
        label_bins=label_bins,
        drop_invalid=drop_invalid,
    )
    with in_python_words():
        dataset = dataset_from(X, said, stratify=stratify, columns=columns, transformer=transformer)
        options = options_from(
            {
                "holdout": h,
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
                "memory": memory,
                "threads": threads,
            },
            random_state,
        )
        found = pipeline.split(dataset, options, config=reading_config(dataset, said))
    warn_of(found.report.warnings, stacklevel=2)
    return Split(found.train, found.val, found.report)


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
    from clustersplit_cli.pipeline.preparation import prepare_features
    from clustersplit_cli.pipeline.run import Streams

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
