"""Partitions of rows in memory into folds, or into parts with names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from clustersplit_cli.errors import UsageError
from clustersplit_cli.python.arguments import SplitInput, in_python_words, one_of, prepared, warn_of
from clustersplit_cli.python.display import progress_of
from clustersplit_cli.python.results import Partition

if TYPE_CHECKING:
    from clustersplit_cli.pipeline.context import PartitionOptions
    from clustersplit_cli.progress import Progress
    from clustersplit_cli.python.choices import (
        Certify,
        Effort,
        Impute,
        Kernel,
        Solver,
        Standardize,
        Tolerance,
    )


def cluster_folds(
    X: Any,
    y: Any = None,
    domains: Any = None,
    *,
    k: int | None = None,
    n_splits: int | None = None,
    groups: Any = None,
    stratify: Any = None,
    tolerance: Tolerance = None,
    label_bins: int | Literal["auto"] | None = None,
    severity: float | str | None = None,
    at_mmd: float | str | None = None,
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
    memory: int | str | None = None,
    threads: int | None = None,
    n_jobs: int | None = None,
    columns: str | Sequence[str] | None = None,
    transformer: Any = None,
    drop_invalid: bool = False,
    impute: Impute = "none",
    distances: bool = False,
    verbose: int = 0,
) -> Partition:
    """Split rows into k folds that differ as much as possible, each with an equal share of every cell.

    The parameters are those of `cluster_split` and the options of `clustersplit kfold`; equal ones, with
    `random_state` for `--seed`, give equal folds.

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
    k : int, default 5
        Number of folds.
    n_splits : int, optional
        Another name of `k`, as in scikit-learn.
    groups : array of shape (n,) or str, optional
        Rows of one group stay together: one value per row, the name of a column of X, 'exact-duplicates' for
        rows with the same features, or 'near-duplicates=0.95' for rows of that cosine similarity.
    stratify : str, array of shape (n,), or list of these, optional
        'label', 'domain', 'label,domain', columns of X, or 'none'; several texts make several families of
        cells, each of which keeps its shares. An array is one more family. By default, 'label,domain' as far
        as they are given.
    tolerance : float, str or list, optional
        Only with groups, which rarely allow equal shares: by what share of it a fold may miss its quota of a
        cell. By default 'auto': what each cell needs when groups are dealt out evenly.
    label_bins : int or 'auto', optional
        Cut labels that are numbers into that many bins of about equal size; 'auto' does so, in up to ten,
        where they are not all whole.
    severity : float or str, optional
        How hard the split is, from 0, an ordinary random one, to 1, the hardest found and the default: its
        MMD is that share of the way between them, to within 1 %.
    at_mmd : float or str, optional
        An MMD in that range instead.
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
    Partition
        Iterating over it yields `(train, val)` for every fold.

    Raises
    ------
    ValueError
        Saying what cannot be used and what would do.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> y = np.repeat([0, 1, 2], 20)
    >>> [np.bincount(y[val]).tolist() for train, val in cluster_folds(X, y, k=4)]
    [[5, 5, 5], [5, 5, 5], [5, 5, 5], [5, 5, 5]]
    """
    given = dict(locals())
    with in_python_words(), progress_of(verbose) as progress:
        count = one_of(5, k=k, n_splits=n_splits)
        source = prepared(given, folds_of(count))
        return _partition(source, {"k": int(count)}, progress)


def cluster_parts(
    X: Any,
    y: Any = None,
    domains: Any = None,
    *,
    parts: Mapping[str, float | str] | str,
    groups: Any = None,
    stratify: Any = None,
    tolerance: Tolerance = None,
    label_bins: int | Literal["auto"] | None = None,
    force_train: Any = None,
    force_val: Any = None,
    severity: float | str | None = None,
    at_mmd: float | str | None = None,
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
    memory: int | str | None = None,
    threads: int | None = None,
    n_jobs: int | None = None,
    columns: str | Sequence[str] | None = None,
    transformer: Any = None,
    drop_invalid: bool = False,
    impute: Impute = "none",
    distances: bool = False,
    verbose: int = 0,
) -> Partition:
    """Split rows into named parts of any shares that differ from each other as much as possible.

    The parameters are those of `cluster_split` and the options of `clustersplit split --parts`.

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
    parts : dict of str to float, or str
        The share of every part, such as `{"train": 0.7, "val": 0.15, "test": 0.15}`; they add up to 1. Of a
        part with a share such as `"0.15:random"` chance chooses the rows, and the others are driven apart.
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
    label_bins : int or 'auto', optional
        Cut labels that are numbers into that many bins of about equal size; 'auto' does so, in up to ten,
        where they are not all whole.
    force_train : array of int or bool, optional
        Rows that must be in the part named train: positions, or a mask.
    force_val : array of int or bool, optional
        Rows that must be in the part named val.
    severity : float or str, optional
        How hard the split is, from 0, an ordinary random one, to 1, the hardest found and the default: its
        MMD is that share of the way between them, to within 1 %.
    at_mmd : float or str, optional
        An MMD in that range instead.
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
    Partition
        Iterating over it yields the rows of every part, in the order of `parts`.

    Raises
    ------
    ValueError
        Saying what cannot be used and what would do.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> found = cluster_parts(X, parts={"train": 0.7, "val": 0.15, "test": 0.15})
    >>> {name: len(rows) for name, rows in found.items()}
    {'train': 28, 'val': 6, 'test': 6}
    """
    given = dict(locals())
    with in_python_words(), progress_of(verbose) as progress:
        text = _parts_text(parts)
        from clustersplit_cli.pipeline.context import PartitionOptions

        source = prepared(given, PartitionOptions.of_text(text))
        return _partition(source, {"parts": text}, progress)


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


def folds_of(k: Any) -> PartitionOptions:
    """Check a number of folds."""
    from clustersplit_cli.pipeline.context import PartitionOptions

    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 2:
        raise UsageError(f"the number of folds must be an integer of at least 2, got {k!r}", hint="try 5")
    return PartitionOptions(folds=int(k))


def _partition(source: SplitInput, config: Mapping[str, Any], progress: Progress) -> Partition:
    from clustersplit_cli.pipeline.local.engine import partition

    dataset, into = source.dataset, source.into
    config = {**source.config, **config}
    found = partition(dataset, source.options, into, config=config, progress=progress)
    warn_of(found.report.warnings, stacklevel=3)
    labels = np.full(dataset.n_rows, -1, dtype=np.int64)
    labels[dataset.rows] = found.parts.labels
    return Partition(found.report, parts=dict(found.parts.rows), labels=labels, _source=source)
