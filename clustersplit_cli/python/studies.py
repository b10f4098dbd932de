"""What one would ask before and after a split: what it would rest on, what others give, what models gain."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from clustersplit_cli.errors import UsageError
from clustersplit_cli.python.arguments import TARGET, in_python_words, prepared, warn_of
from clustersplit_cli.python.display import progress_of

if TYPE_CHECKING:
    import os

    from clustersplit_cli.data.dataset import Dataset
    from clustersplit_cli.python.choices import (
        Bound,
        Certify,
        Effort,
        Kernel,
        Rounding,
        Solver,
        Standardize,
        Tolerance,
    )
    from clustersplit_cli.reports.evaluation.summary import EvaluationReport
    from clustersplit_cli.reports.inspection import Inspection
    from clustersplit_cli.reports.strategy_comparison import StrategyComparison


def inspect(
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
) -> Inspection:
    """Look at what a split of these rows would rest on, without making one.

    Cells with their quotas and those that will be a problem, how much the features spread, what the kernel
    looks like for each width, and the memory and time that `cluster_split` with the same options would take.

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

    Returns
    -------
    Inspection
        `summary()` is a text to read; `warnings` are those that a split would give.

    Raises
    ------
    ValueError
        Saying what cannot be used and what would do.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> found = inspect(X, np.repeat([0, 1, 2], 20), h=0.25)
    >>> [(cell.size, cell.target) for cell in found.cells]
    [(20, 5), (20, 5), (20, 5)]
    """
    given = dict(locals())
    from clustersplit_cli.pipeline.inspect import examine
    from clustersplit_cli.reports.inspection import InspectedColumn

    with in_python_words():
        source = prepared(given)
        dataset = source.dataset
        kind = str(dataset.features.dtype)
        used = tuple(InspectedColumn(name, kind, "feature") for name in dataset.feature_columns)
        return examine(dataset, source.options, path="X", columns=used)


def compare(
    X: Any,
    y: Any = None,
    domains: Any = None,
    *,
    h: float | str | None = None,
    test_size: float | str | None = None,
    stratify: Any = None,
    tolerance: Tolerance = None,
    rounding: Rounding | None = None,
    repeats: int = 5,
    evaluation_domain: str | int | None = None,
    kernel: Kernel = "rbf",
    gamma: float | str | None = None,
    degree: int | None = None,
    standardize: Standardize = "none",
    nystrom: int | str = "auto",
    restarts: int = 10,
    effort: Effort = "normal",
    max_iter: int = 100,
    random_state: Any = 0,
    memory: int | str | None = None,
    threads: int | None = None,
    n_jobs: int | None = None,
    columns: str | Sequence[str] | None = None,
    transformer: Any = None,
    drop_invalid: bool = False,
    verbose: int = 0,
) -> StrategyComparison:
    """Split rows by every strategy and compare the results under one kernel, as `clustersplit compare` does.

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
    repeats : int, default 5
        Seeds per strategy, counted up from `random_state`.
    evaluation_domain : str or int, optional
        Take the rows of this domain out as E: also MMD(T, E), MMD(V, E), and whether MMD(T, V) is above
        both.
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
    verbose : int, default 0
        1 shows progress on stderr, in notebooks too.

    Returns
    -------
    StrategyComparison
        `summary()` is the table to read, `strategies` has a row for each, `runs` every split.

    Raises
    ------
    ValueError
        Saying what cannot be used and what would do.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> y, domains = np.repeat([0, 1, 2], 20), np.tile([0, 1], 30)
    >>> found = compare(X, y, domains, repeats=1, restarts=2, effort="fast")
    >>> mmd = {each.strategy: each.mmd.mean for each in found.strategies}
    >>> mmd["cluster-rbf"] > mmd["random"]
    True
    """
    given = dict(locals())
    from clustersplit_cli.cli.commands.compare import take_out
    from clustersplit_cli.pipeline import compare as comparing

    with in_python_words(), progress_of(verbose) as progress:
        if isinstance(repeats, bool) or not isinstance(repeats, (int, np.integer)) or repeats < 1:
            raise UsageError(f"repeats must be an integer of at least 1, got {repeats!r}", hint="try 5")
        source = prepared(given)
        dataset = source.dataset
        of_rows = dataset.categories.get("domain")
        if of_rows is None and domains is not None:  # which form no cells
            with_domains = prepared({**given, "stratify": "domain"}).dataset
            of_rows = with_domains.categories["domain"]
        evaluation = None
        if evaluation_domain is not None:
            dataset, of_rows, evaluation = take_out(dataset, of_rows, str(evaluation_domain))
        found = comparing.compare(
            dataset,
            source.options,
            repeats=int(repeats),
            domains=of_rows,
            evaluation=evaluation,
            progress=progress,
        )
    warn_of(found.warnings, stacklevel=2)
    return found


def evaluate(
    X: Any,
    y: Any,
    domains: Any = None,
    *,
    h: float | str | None = None,
    test_size: float | str | None = None,
    rounding: Rounding | None = None,
    probe: Literal["logreg", "mlp", "svm", "neighbours", "forest", "mixed"] = "mixed",
    probe_rows: int = 1000,
    search: int = 20,
    repeats: int = 3,
    strategies: Sequence[str] | None = None,
    evaluation_domains: Sequence[str | int] | None = None,
    folds: int | None = None,
    select: Literal["mean", "worst", "worst-gap"] = "mean",
    curve: bool = False,
    target: Any = None,
    refit: bool = False,
    gamma: float | str | None = None,
    standardize: Standardize = "none",
    nystrom: int | str = "auto",
    restarts: int = 10,
    effort: Effort = "fast",
    max_iter: int = 100,
    random_state: Any = 0,
    memory: int | str | None = None,
    threads: int | None = None,
    n_jobs: int = 1,
    columns: str | Sequence[str] | None = None,
    transformer: Any = None,
    drop_invalid: bool = False,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    force: bool = False,
    verbose: int = 0,
) -> EvaluationReport:
    """Check whether models chosen on a cluster split do better on a domain that nobody has seen.

    Every domain in turn is set aside. Models with hyper-parameters drawn at random are trained on the
    training side of every strategy's split of the others, chosen on its validation side by class-balanced
    accuracy, and tested on the domain set aside. It takes scikit-learn; your own training code is called by
    `clustersplit evaluate --command`.

    Parameters
    ----------
    X : array, data frame, table, tensor or sparse matrix of shape (n, d)
        The features: a NumPy array, list of rows, pandas or polars data frame, Arrow table, tensor on the
        CPU, or SciPy sparse matrix (linear and cosine kernels). A table may hold them in one column of
        lists.
    y : array of shape (n,) or str
        One label per row, or the name of a column of X.
    domains : array of shape (n,) or str
        One domain per row, or the name of a column of X. Each is set aside in turn. May be left out with a
        target.
    h : float or str, default 0.2
        Share of validation rows. Text such as '0.29' is taken exactly.
    test_size : float or str, optional
        Another name of `h`, as in scikit-learn.
    rounding : {'nearest', 'balanced'}, optional
        'nearest' rounds every cell by itself, 'balanced' makes the total exactly h. By default 'nearest',
        and 'balanced' for several families.
    probe : {'logreg', 'mlp', 'svm', 'neighbours', 'forest', 'mixed'}, default 'mixed'
        Models to train on the features; 'mixed' draws among all.
    probe_rows : int, default 1000
        Most rows to train a probe on, and to score it on.
    search : int, default 20
        Settings of hyper-parameters to draw.
    repeats : int, default 3
        Repeats with other settings, splits and seeds.
    strategies : list of str, optional
        Among 'random', 'cluster-linear', 'cluster-rbf', 'kfold-' before each, ':joint' or ':label' after for
        the cells, 'leave-one-domain-out' and 'mix-up', and 'target-lookalike', 'target-nearest' and
        'weighted', which see the domain set aside without its labels. By default all but those and some of
        the k-fold ones; 'weighted' too with `curve`.
    evaluation_domains : list of str or int, optional
        Evaluate on these domains only. By default all in turn.
    folds : int, optional
        Folds of the k-fold strategies. By default 1 / h.
    select : {'mean', 'worst', 'worst-gap'}, default 'mean'
        Choose by the mean over validation domains, by the worst, or by the worst less its distance to the
        best.
    curve : bool, default False
        Also train on graded splits: accuracy against the MMD, read where each domain that was set aside is.
    target : array of shape (m, d), table or the like, optional
        With `curve`: rows without labels of where models will be used, with the features of X, to estimate
        the accuracy on.
    refit : bool, default False
        Also test chosen settings retrained on all development rows.
    gamma : float or str, optional
        Kernel width: a number, 'scale' (1 / total variance; laplacian: 1 / total
        deviation), '1/d' or 'median'. By default 'scale'.
    standardize : {'none', 'zscore', 'l2'}, default 'none'
        Scale columns to unit variance, or rows to unit length, first.
    nystrom : int or str, default 'auto'
        Number of landmark rows that approximate the kernel; 'off' for the exact one; 'auto' takes 2000 if
        the exact one does not fit memory.
    restarts : int, default 10
        Starts of the search; the best one wins.
    effort : {'fast', 'normal', 'thorough'}, default 'fast'
        How long to refine the best starts.
    max_iter : int, default 100
        Most steps of a start.
    random_state : int, NumPy generator or None, default 0
        The seed. The same seed gives the same result; a generator or None gives another one each time.
    memory : int or str, optional
        Memory budget: bytes, or text such as '8GB'. By default 60 % of what the machine has.
    threads : int, optional
        Worker threads, by default one per core. The result does not depend on them.
    n_jobs : int, default 1
        Trainings at a time; -1 for all cores. More than one start processes, so a script needs `if __name__
        == "__main__":`.
    columns : str or list of str, optional
        Feature columns of a table, by name or glob; by default all without another role.
    transformer : transformer or function, optional
        Embeds the rows first. A scikit-learn transformer that is not fitted is copied, and the copy fitted.
    drop_invalid : bool, default False
        Leave out rows with NaN or infinite features.
    out : str or path, optional
        A directory that keeps every trial and the report. By default nothing is kept.
    resume : bool, default False
        Go on with an interrupted evaluation in `out`, or extend one.
    force : bool, default False
        Replace an earlier evaluation in `out`.
    verbose : int, default 0
        1 shows progress on stderr, in notebooks too.

    Returns
    -------
    EvaluationReport
        `summary()` is the verdict to read.

    Raises
    ------
    ValueError
        Saying what cannot be used and what would do.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y, domains = np.tile([0, 1], 60), np.repeat([0, 1, 2], 40)
    >>> X = rng.normal(size=(120, 3)) + y[:, None]
    >>> found = evaluate(X, y, domains, probe="logreg", search=2, repeats=1, strategies=["cluster-rbf"])
    >>> sorted({run.strategy for run in found.runs})
    ['cluster-rbf:joint', 'cluster-rbf:label', 'oracle', 'random:joint']
    """
    given = dict(locals())
    from clustersplit_cli.cleanup import temporary_folder
    from clustersplit_cli.cli.commands.evaluate import config_of, plan_of
    from clustersplit_cli.core.parallel import available_cores
    from clustersplit_cli.data.destination import check_destination, is_vacant, resolve
    from clustersplit_cli.data.publish import staged_file
    from clustersplit_cli.evaluation.run import evaluate as evaluate_dataset

    with (
        in_python_words(jobs="n_jobs", evaluation_domain="evaluation_domains"),
        progress_of(verbose) as progress,
    ):
        if out is None and (resume or force):
            raise UsageError("resume and force are for a directory that is kept", hint="pass out")
        if resume and force:
            raise UsageError("resume goes on and force starts over", hint="use one of them")
        said = {
            "strategy": None if strategies is None else list(strategies),
            "evaluation_domain": None if evaluation_domains is None else [*map(str, evaluation_domains)],
            "jobs": available_cores() if n_jobs == -1 else n_jobs,
        }
        given |= {**said, **dict.fromkeys(("command", "space", "timeout", "exclude")), "impute": "none"}
        stratify = "label" if domains is None and target is not None else "label,domain"
        source = prepared({**given, "n_jobs": None, "stratify": stratify})
        plan = plan_of({**given, "target": None if target is None else TARGET}, source.options)
        dataset = _named_by_content(source.dataset)
        with temporary_folder() as folder:
            directory = Path(folder) / "evaluation" if out is None else Path(out)
            if is_vacant(resolve(directory)):
                check_destination(directory, force=False)
            report = evaluate_dataset(
                dataset,
                Path("X"),
                source.options,
                plan,
                directory,
                config=config_of(given, source.options, plan, dataset),
                resume=resume,
                force=force,
                progress=progress,
            )
            if out is not None:
                with staged_file(directory / "report.json", force=True) as file:
                    file.write_text(report.to_json(), encoding="utf-8")
    warn_of(report.warnings, stacklevel=2)
    return report


def _named_by_content(dataset: Dataset) -> Dataset:
    """The same with a hash of the rows, so that an evaluation goes on with the same ones only."""
    from clustersplit_cli.data.dataset import InputFile

    features: Any = dataset.features
    digest = hashlib.sha256(repr((features.shape, features.dtype.str)).encode())
    of_target = () if dataset.target is None else (dataset.target.features,)
    for array in (features, *of_target, *(column.codes for column in dataset.categories.values())):
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    digest.update(repr([column.values for column in dataset.categories.values()]).encode())
    file = InputFile("X", "features", int(features.nbytes), digest.hexdigest())
    return replace(dataset, read_from=lambda: (file,))
