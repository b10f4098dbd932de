"""Splits of rows in memory in two, and arrays that are split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from clustersplit_cli.errors import InputError
from clustersplit_cli.python.arguments import in_python_words, prepared, warn_of
from clustersplit_cli.python.display import progress_of
from clustersplit_cli.python.results import Indices, Split

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from clustersplit_cli.python.choices import (
        Aim,
        Bound,
        Certify,
        Effort,
        Impute,
        Kernel,
        Rounding,
        Solver,
        SplitKeywords,
        Standardize,
        Tolerance,
    )


def cluster_split(
    X: Any,
    y: Any = None,
    domains: Any = None,
    *,
    h: float | str | None = None,
    test_size: float | str | None = None,
    groups: Any = None,
    stratify: Any = None,
    tolerance: Tolerance = None,
    rounding: Rounding | None = None,
    label_bins: int | Literal["auto"] | None = None,
    force_train: Any = None,
    force_val: Any = None,
    severity: float | str | None = None,
    at_mmd: float | str | None = None,
    target: Any = None,
    aim: Aim = "worst",
    weights: bool = False,
    kernel: Kernel = "rbf",
    gamma: float | str | None = None,
    degree: int | None = None,
    standardize: Standardize = "none",
    nystrom: int | str = "auto",
    restarts: int = 10,
    effort: Effort = "normal",
    max_iter: int = 100,
    random_state: Any = 0,
    solver: Solver = "auto",
    certify: Certify = "auto",
    bound: Bound = "auto",
    memory: int | str | None = None,
    threads: int | None = None,
    n_jobs: int | None = None,
    columns: str | Sequence[str] | None = None,
    transformer: Any = None,
    drop_invalid: bool = False,
    impute: Impute = "none",
    distances: bool = False,
    verbose: int = 0,
) -> Split:
    """Split rows so that validation differs from training as much as possible and every cell keeps its share.

    The parameters are the options of `clustersplit split`; equal ones, with `random_state` for `--seed`, give
    equal splits.

    Parameters
    ----------
    X : array, data frame, table, tensor or sparse matrix of shape (n, d)
        The features: a NumPy array, list of rows, pandas or polars data frame, Arrow table, tensor on the
        CPU, or SciPy sparse matrix (linear and cosine kernels). A table may hold them in one column of
        lists.
    y : array of shape (n,) or (n, m), or str, optional
        One label per row, or the name of a column of X. In two dimensions, columns of 0 and 1, each of which
        is a family of cells.
    domains : array of shape (n,) or str, optional
        One domain per row, or the name of a column of X. Without labels and domains, only the size of the
        validation set is kept.
    h : float or str, default 0.2
        Share of validation rows. Text such as '0.29' is taken exactly.
    test_size : float or str, optional
        Another name of `h`, as in scikit-learn.
    groups : array of shape (n,) or str, optional
        Rows of one group stay together: one value per row, the name of a column of X, 'exact-duplicates' for
        rows with the same features, or 'near-duplicates=0.95' for rows of that cosine similarity.
    stratify : str, array of shape (n,), or list of these, optional
        'label', 'domain', 'label,domain', columns of X, or 'none'; several texts make several families of
        cells, each of which keeps its shares. An array is one more family. By default, 'label,domain' as far
        as they are given.
    tolerance : float, str or list, optional
        By what share of it a cell may miss its quota; 'auto' for the smallest that can be met; a list such
        as `[0.05, 'label=dog=0.2']` for cells of their own. By default 0, and 'auto' with groups.
    rounding : {'nearest', 'balanced'}, optional
        'nearest' rounds every cell by itself, 'balanced' makes the total exactly h. By default 'nearest',
        and 'balanced' for several families.
    label_bins : int or 'auto', optional
        Cut labels that are numbers into that many bins of about equal size; 'auto' does so, in up to ten,
        where they are not all whole.
    force_train : array of int or bool, optional
        Rows that must be in training: positions, or a mask.
    force_val : array of int or bool, optional
        Rows that must be in validation.
    severity : float or str, optional
        How hard the split is, from 0, an ordinary random one, to 1, the hardest found and the default: its
        MMD is that share of the way between them, to within 1 %.
    at_mmd : float or str, optional
        An MMD in that range instead.
    target : array or table of shape (m, d), optional
        Rows of where the model will be used, with the same features. They need no labels, and go to neither
        side.
    aim : {'worst', 'lookalike', 'nearest', 'shift', 'severity'}, default 'worst'
        What validation is to be, with a target.
    weights : bool, default False
        Also weigh the validation rows so that they stand for the target: `split.weights`.
    kernel : {'rbf', 'laplacian', 'linear', 'cosine', 'polynomial', 'tanimoto', 'precomputed'}, default 'rbf'
        How rows are compared; 'precomputed': X holds the similarities of all rows with each other.
    gamma : float or str, optional
        Kernel width: a number, 'scale' (1 / total variance; laplacian: 1 / total
        deviation), '1/d' or 'median'. By default 'scale'.
    degree : int, optional
        Degree of the polynomial kernel. By default 3.
    standardize : {'none', 'zscore', 'l2'}, default 'none'
        Scale columns to unit variance, or rows to unit length, first.
    nystrom : int or str, default 'auto'
        Number of landmark rows that approximate the kernel; 'off' for the exact one; 'auto' takes 2000 if
        the exact one does not fit memory.
    restarts : int, default 10
        Starts of the search; the best one wins.
    effort : {'fast', 'normal', 'thorough'}, default 'normal'
        How long to refine the best starts.
    max_iter : int, default 100
        Most steps of a start.
    random_state : int, NumPy generator or None, default 0
        The seed. The same seed gives the same result; a generator or None gives another one each time.
    solver : {'auto', 'cbc'}, default 'auto'
        'cbc' solves every assignment step as a linear program with CBC, as the paper does, which is slow.
    certify : {'auto', 'always', 'never'}, default 'auto'
        Whether a linear program proves the result a fixed point; 'auto' by CBC up to 50,000 rows.
    bound : {'auto', 'always', 'tight', 'never'}, default 'auto'
        Whether to bound the MMD of any such split; 'auto' unless that takes longer than the split; 'tight' as
        near as a semidefinite program gets, which takes minutes, up to 1,000 rows or units.
    memory : int or str, optional
        Memory budget: bytes, or text such as '8GB'. By default 60 % of what the machine has.
    threads : int, optional
        Worker threads, by default one per core. The result does not depend on them.
    n_jobs : int, optional
        Another name of `threads`, as in scikit-learn; -1 for all cores.
    columns : str or list of str, optional
        Feature columns of a table, by name or glob; by default all without another role.
    transformer : transformer or function, optional
        Embeds the rows first. A scikit-learn transformer that is not fitted is copied, and the copy fitted.
    drop_invalid : bool, default False
        Leave out rows with NaN or infinite features.
    impute : {'none', 'median'}, default 'none'
        'median' takes missing features for the median of their column, for the distances only.
    distances : bool, default False
        X holds the distances of all rows from each other, of shape (n, n), for the kernels 'rbf' and
        'linear'.
    verbose : int, default 0
        1 shows progress on stderr, in notebooks too.

    Returns
    -------
    Split
        Row positions of both sides, and the report.

    Raises
    ------
    ValueError
        Saying what cannot be used and what would do.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> y = np.repeat([0, 1, 2], 20)
    >>> train, val = cluster_split(X, y, h=0.25)
    >>> np.bincount(y[val]).tolist()
    [5, 5, 5]
    """
    given = dict(locals())
    from clustersplit_cli.pipeline.local.engine import partition

    with in_python_words(), progress_of(verbose) as progress:
        source = prepared(given)
        found = partition(source.dataset, source.options, config=source.config, progress=progress)
    warn_of(found.report.warnings, stacklevel=2)
    parts = found.parts
    return Split(found.report, train=parts.train, val=parts.val, weights=parts.weights, _source=source)


def cluster_train_val_split(
    X: Any,
    y: Any = None,
    *arrays: Any,
    test_size: float | str = 0.2,
    domains: Any = None,
    groups: Any = None,
    stratify: Any = None,
    **options: Unpack[SplitKeywords],
) -> list[Any]:
    """Split arrays as scikit-learn's `train_test_split` does, with `cluster_split` choosing the rows.

    Parameters
    ----------
    X : array, data frame, table, tensor or list of n rows
        The features, as for `cluster_split`.
    y : array of shape (n,) or (n, m), optional
        One label per row.
    *arrays : arrays, data frames, tables, tensors or lists of n rows
        More to be split in the same way.
    test_size : float or str, default 0.2
        Share of validation rows; `h` of `cluster_split`.
    domains : array of shape (n,) or str, optional
        One domain per row, or the name of a column of X.
    groups : array of shape (n,) or str, optional
        Rows of one group stay together.
    stratify : str, array of shape (n,), or list of these, optional
        What keeps its share, as for `cluster_split`.
    **options : Any
        The other options of `cluster_split`.

    Returns
    -------
    list
        Training and validation rows of everything given, in scikit-learn's order: `X_train, X_val, y_train,
        y_val, ...`; without `y`, there is nothing of it.

    Raises
    ------
    ValueError
        Saying what cannot be used and what would do.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> y = np.repeat([0, 1, 2], 20)
    >>> X_train, X_val, y_train, y_val = cluster_train_val_split(X, y, test_size=0.25)
    >>> X_train.shape, np.bincount(y_val).tolist()
    ((45, 3), [5, 5, 5])
    """
    h = options.pop("h", None)
    with in_python_words():
        if h is not None:
            raise InputError("h is called test_size here", hint=f"pass test_size={h!r}")
        if isinstance(y, str):
            raise InputError(f"y={y!r} names a column, and nothing to split", hint="pass the labels")
    found = cluster_split(X, y, domains, test_size=test_size, groups=groups, stratify=stratify, **options)
    given = [X, *([] if y is None else [y]), *arrays]
    n_rows = found.report.input.n_rows
    with in_python_words():
        for place, each in enumerate(arrays):
            if (count := _count(each)) != n_rows:
                raise InputError(
                    f"array {place} after y has {count} rows, and X has {n_rows}",
                    hint="pass arrays of one value per row",
                )
    return [taken(each, rows) for each in given for rows in found]


def _count(rows: Any) -> int:
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def taken(rows: Any, positions: Indices) -> Any:
    """Some rows of an array, a data frame, a table, a tensor or a list, in the same form."""
    if hasattr(rows, "iloc"):
        return rows.iloc[positions]
    if hasattr(rows, "take") and type(rows).__module__.partition(".")[0] == "pyarrow":
        return rows.take(positions)
    if hasattr(rows, "tocsr"):
        return rows.tocsr()[positions]
    if hasattr(rows, "shape"):
        return rows[positions]
    return [rows[place] for place in positions.tolist()]
