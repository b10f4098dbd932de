"""Scikit-learn splitters over the same pipeline."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import BaseCrossValidator

from clustersplit_cli.core.search.problem import evaluate
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.data.in_memory import Description
from clustersplit_cli.errors import UsageError
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.context import PartitionOptions
from clustersplit_cli.pipeline.ladder import parse_levels
from clustersplit_cli.pipeline.local.engine import partition, prepared_split
from clustersplit_cli.pipeline.run import assess, grade
from clustersplit_cli.pipeline.summarize import summarize
from clustersplit_cli.progress import Progress, Stopwatch, silent
from clustersplit_cli.python.arguments import (
    OF_SEARCH,
    SplitInput,
    in_python_words,
    options_of,
    source_from,
    warn_of,
    with_target,
)
from clustersplit_cli.python.cells import told_bins
from clustersplit_cli.python.display import progress_of
from clustersplit_cli.python.ladders import cluster_ladder
from clustersplit_cli.python.partitions import folds_of
from clustersplit_cli.reports.summary import Notice
from clustersplit_cli.similarity import pairs_of

if TYPE_CHECKING:
    from clustersplit_cli.python.choices import (
        Aim,
        Effort,
        GroupsAre,
        Impute,
        Kernel,
        Rounding,
        Solver,
        Standardize,
        Tolerance,
    )

_MEANINGS = ("groups", "domains")
_TAKEN = (*OF_SEARCH, "tolerance", "threads", "n_jobs", "random_state", "target", "aim")


class _ClusterSplitter(BaseCrossValidator):  # type: ignore[misc]
    """What both splitters share: what rows are, what `groups` means, and how parameters are shown."""

    __metadata_request__split = {"groups": True, "domains": True}  # noqa: RUF012 - read by scikit-learn

    def split(
        self, X: Any, y: Any = None, groups: Any = None, domains: Any = None
    ) -> Iterator[tuple[Indices, Indices]]:
        """Yield the row positions of training and validation.

        Parameters
        ----------
        X : array, data frame, table, tensor or sparse matrix of shape (n, d)
            The features, as for `cluster_split`.
        y : array of shape (n,) or (n, m), or str, optional
            One label per row; continuous numbers are cut into bins, unless `label_bins` is None.
        groups : array of shape (n,) or str, optional
            Rows of one group stay together; with `groups_are="domains"`, the domains.
        domains : array of shape (n,) or str, optional
            One domain per row.

        Yields
        ------
        train, val : array
            Row positions.

        Raises
        ------
        ValueError
            Saying what cannot be used and what would do.
        """
        for train, val in self._find(X, y, groups, domains).splits:
            yield train.copy(), val.copy()

    @abstractmethod
    def _find(self, X: Any, y: Any, groups: Any, domains: Any) -> SeveralSplits:
        """Search, or remember, the splits of these rows."""

    def _prepared(self, X: Any, y: Any, groups: Any, domains: Any, **more: Any) -> SplitInput:
        """Check rows and parameters."""
        groups, domains = self._meaning(groups, domains)
        said = Description(
            y=y,
            domains=domains,
            groups=groups,
            label_bins=self.label_bins,
            drop_invalid=self.drop_invalid,
            impute=self.impute,
        )
        given = {name: getattr(self, name) for name in _TAKEN if hasattr(self, name)}
        options = options_of({**given, **more}, groups)
        said = replace(said, pairs=pairs_of(options.kernel, distances=options.distances))
        chosen = {name: getattr(self, name) for name in ("stratify", "columns", "transformer")}
        source = source_from(X, said, options, **chosen)
        target = getattr(self, "target", None)
        dataset = with_target(source.dataset, target, self.transformer, drop_invalid=self.drop_invalid)
        return replace(source, dataset=dataset)

    def _told(self, source: SplitInput) -> tuple[Notice, ...]:
        """That a label was cut into bins, if nobody asked for that."""
        cut = self.label_bins == "auto" and source.said.label_bins is not None
        return (Notice("cut_label", told_bins(source.said)),) if cut else ()

    def _meaning(self, groups: Any, domains: Any) -> tuple[Any, Any]:
        """Tell groups that stay together from domains."""
        if self.groups_are not in _MEANINGS:
            raise UsageError(
                f"groups_are {self.groups_are!r} is unknown",
                hint="use groups_are='groups' to keep them together, or groups_are='domains'",
            )
        if self.groups_are == "groups" or groups is None:
            return groups, domains
        if domains is not None:
            raise UsageError("domains were given twice, as groups too", hint="pass one of them")
        return None, groups

    def __repr__(self) -> str:
        """Show the parameters that are not the defaults."""
        shown = []
        for name, parameter in signature(type(self).__init__).parameters.items():
            if name != "self" and repr(value := getattr(self, name)) != repr(parameter.default):
                shown.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


class ClusterShuffleSplit(_ClusterSplitter):
    """Validation sets that differ from training as much as possible while every cell keeps its share.

    With `n_splits` above one the splits are different local optima, the one with the largest MMD first. If
    there are fewer than that, a warning says how many there are, and so does `get_n_splits(X, y)`. With a
    `severity` below 1 they are different graded splits of the same MMD.

    Parameters
    ----------
    n_splits : int, default 1
        Number of splits; the first of one is what `cluster_split` returns.
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
    label_bins : int, 'auto' or None, default 'auto'
        Cut labels that are numbers into that many bins of about equal size; 'auto' does so, in up to ten and
        with a warning, where they are not all whole.
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
    groups_are : {'groups', 'domains'}, default 'groups'
        What `groups` means: rows that stay together, as everywhere in scikit-learn, or the domains.
    verbose : int, default 0
        1 shows progress on stderr, in notebooks too.

    Notes
    -----
    `split` takes `domains` as metadata of its own: with scikit-learn's metadata routing on, pass `domains=`
    to `fit` of a search, or in `params` of `cross_validate`. With routing off, only `groups` reaches a
    splitter: set `groups_are="domains"` and pass the domains as `groups`.

    The last results are remembered, so that comparing models on the same rows searches once.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> y = np.tile([0, 1], 20)
    >>> cv = ClusterShuffleSplit(h=0.25)
    >>> [(len(train), len(val)) for train, val in cv.split(X, y)]
    [(30, 10)]
    """

    def __init__(
        self,
        n_splits: int = 1,
        *,
        h: float | str | None = None,
        test_size: float | str | None = None,
        stratify: Any = None,
        tolerance: Tolerance = None,
        rounding: Rounding | None = None,
        label_bins: int | Literal["auto"] | None = "auto",
        severity: float | str | None = None,
        at_mmd: float | str | None = None,
        target: Any = None,
        aim: Aim = "worst",
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
        memory: int | str | None = None,
        threads: int | None = None,
        n_jobs: int | None = None,
        columns: str | Sequence[str] | None = None,
        transformer: Any = None,
        drop_invalid: bool = False,
        impute: Impute = "none",
        distances: bool = False,
        groups_are: GroupsAre = "groups",
        verbose: int = 0,
    ) -> None:
        self.n_splits = n_splits
        self.h = h
        self.test_size = test_size
        self.stratify = stratify
        self.tolerance = tolerance
        self.rounding = rounding
        self.label_bins = label_bins
        self.severity = severity
        self.at_mmd = at_mmd
        self.target = target
        self.aim = aim
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.standardize = standardize
        self.nystrom = nystrom
        self.restarts = restarts
        self.effort = effort
        self.max_iter = max_iter
        self.random_state = random_state
        self.solver = solver
        self.memory = memory
        self.threads = threads
        self.n_jobs = n_jobs
        self.columns = columns
        self.transformer = transformer
        self.drop_invalid = drop_invalid
        self.impute = impute
        self.distances = distances
        self.groups_are = groups_are
        self.verbose = verbose

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None, domains: Any = None) -> int:
        """Return the number of splits: `n_splits`, or as many as there are if the rows given have fewer.

        Parameters
        ----------
        X : array or table of shape (n, d), optional
            The features; without them the answer is `n_splits`.
        y : array of shape (n,) or (n, m), optional
            The labels.
        groups : array of shape (n,), optional
            The groups.
        domains : array of shape (n,), optional
            The domains.

        Returns
        -------
        int
            The number of splits.
        """
        if X is None or self.n_splits == 1 or not isinstance(self.random_state, (int, np.integer)):
            return self.n_splits
        return len(self._find(X, y, groups, domains).splits)

    def _find(self, X: Any, y: Any, groups: Any, domains: Any) -> SeveralSplits:
        with in_python_words():
            if isinstance(self.n_splits, bool) or not isinstance(self.n_splits, (int, np.integer)):
                raise UsageError(f"n_splits must be an integer, got {self.n_splits!r}", hint="try n_splits=1")
            if self.n_splits < 1:
                raise UsageError(f"n_splits must be at least 1, got {self.n_splits}", hint="try n_splits=1")
            more = {"h": self.h, "test_size": self.test_size}
            source = self._prepared(X, y, groups, domains, **more)
            count = int(self.n_splits)
            if count > 1 and not source.options.is_searched_for:
                raise UsageError(
                    f"n_splits is {count}, and --aim {source.options.aim} makes one split",
                    hint="try n_splits=1",
                )

            def find() -> SeveralSplits:
                with progress_of(self.verbose) as progress:
                    found = _searched(source.dataset, source.options, count, progress)
                warn_of((*self._told(source), *found.warnings), stacklevel=6)
                return found

            return remembered(source, "split", count, find)


class ClusterKFold(_ClusterSplitter):
    """Folds that differ from each other as much as possible, each with an equal share of every cell.

    Every fold in turn is a validation set unlike the rows that are trained on, and every row is validated on
    once.

    Parameters
    ----------
    n_splits : int, default 5
        Number of folds, at least 2; `cluster_folds` and `clustersplit kfold` make the same ones.
    stratify : str, array of shape (n,), or list of these, optional
        'label', 'domain', 'label,domain', columns of X, or 'none'; several texts make several families of
        cells, each of which keeps its shares. An array is one more family. By default, 'label,domain' as far
        as they are given.
    tolerance : float, str or list, optional
        Only with groups, which rarely allow equal shares: by what share of it a fold may miss its quota of a
        cell. By default 'auto': what each cell needs when groups are dealt out evenly.
    label_bins : int, 'auto' or None, default 'auto'
        Cut labels that are numbers into that many bins of about equal size; 'auto' does so, in up to ten and
        with a warning, where they are not all whole.
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
    groups_are : {'groups', 'domains'}, default 'groups'
        What `groups` means: rows that stay together, as everywhere in scikit-learn, or the domains.
    verbose : int, default 0
        1 shows progress on stderr, in notebooks too.

    Notes
    -----
    About metadata and remembered results see `ClusterShuffleSplit`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> y = np.tile([0, 1], 20)
    >>> cv = ClusterKFold(4)
    >>> [(len(train), np.bincount(y[val]).tolist()) for train, val in cv.split(X, y)]
    [(30, [5, 5]), (30, [5, 5]), (30, [5, 5]), (30, [5, 5])]
    """

    def __init__(
        self,
        n_splits: int = 5,
        *,
        stratify: Any = None,
        tolerance: Tolerance = None,
        label_bins: int | Literal["auto"] | None = "auto",
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
        memory: int | str | None = None,
        threads: int | None = None,
        n_jobs: int | None = None,
        columns: str | Sequence[str] | None = None,
        transformer: Any = None,
        drop_invalid: bool = False,
        impute: Impute = "none",
        distances: bool = False,
        groups_are: GroupsAre = "groups",
        verbose: int = 0,
    ) -> None:
        self.n_splits = n_splits
        self.stratify = stratify
        self.tolerance = tolerance
        self.label_bins = label_bins
        self.severity = severity
        self.at_mmd = at_mmd
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.standardize = standardize
        self.nystrom = nystrom
        self.restarts = restarts
        self.effort = effort
        self.max_iter = max_iter
        self.random_state = random_state
        self.solver = solver
        self.memory = memory
        self.threads = threads
        self.n_jobs = n_jobs
        self.columns = columns
        self.transformer = transformer
        self.drop_invalid = drop_invalid
        self.impute = impute
        self.distances = distances
        self.groups_are = groups_are
        self.verbose = verbose

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None, domains: Any = None) -> int:
        """Return the number of folds.

        Parameters
        ----------
        X : array or table of shape (n, d), optional
            Has no effect.
        y : array of shape (n,) or (n, m), optional
            Has no effect.
        groups : array of shape (n,), optional
            Has no effect.
        domains : array of shape (n,), optional
            Has no effect.

        Returns
        -------
        int
            `n_splits`.
        """
        return self.n_splits

    def _find(self, X: Any, y: Any, groups: Any, domains: Any) -> SeveralSplits:
        with in_python_words():
            into = folds_of(self.n_splits)
            source = self._prepared(X, y, groups, domains)

            def find() -> SeveralSplits:
                with progress_of(self.verbose) as progress:
                    found = all_folds(source.dataset, source.options, into, progress)
                warn_of((*self._told(source), *found.warnings), stacklevel=6)
                return found

            return remembered(source, "folds", int(self.n_splits), find)


class ClusterLadderSplit(BaseCrossValidator):  # type: ignore[misc]
    """Graded splits at several severities, level by level, and in each of them repeat by repeat.

    Parameters
    ----------
    levels : list of float or str, default (0, 0.25, 0.5, 0.75, 1)
        Severities, from 0 to 1.
    repeats : int, default 3
        Splits per level.
    **options : Any
        Those of `cluster_ladder`, which makes the same splits.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> cv = ClusterLadderSplit((0, 1), repeats=2, h=0.25)
    >>> [(len(train), len(val)) for train, val in cv.split(X)]
    [(30, 10), (30, 10), (30, 10), (30, 10)]
    """

    def __init__(
        self, levels: Sequence[float] | str = (0, 0.25, 0.5, 0.75, 1), repeats: int = 3, **options: Any
    ) -> None:
        self.levels = levels
        self.repeats = repeats
        self.options = options

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of splits.

        Parameters
        ----------
        X : array or table of shape (n, d), optional
            The features.
        y : array of shape (n,) or (n, m), optional
            The labels.
        groups : array of shape (n,), optional
            Rows of one group stay together.

        Returns
        -------
        int
            Levels times repeats.
        """
        with in_python_words():
            text = self.levels if isinstance(self.levels, str) else ",".join(map(str, self.levels))
            return len(parse_levels(text)) * self.repeats

    def split(
        self, X: Any, y: Any = None, groups: Any = None, domains: Any = None
    ) -> Iterator[tuple[Indices, Indices]]:
        """Yield the row positions of training and validation.

        Parameters
        ----------
        X : array or table of shape (n, d)
            The features.
        y : array of shape (n,) or (n, m), optional
            The labels.
        groups : array of shape (n,), optional
            Rows of one group stay together.
        domains : array of shape (n,), optional
            One domain per row.

        Yields
        ------
        train, val : array
            Row positions.
        """
        more = {} if groups is None else {"groups": groups}
        options = {**self.options, **more}
        for rung in cluster_ladder(X, y, domains, levels=self.levels, repeats=self.repeats, **options):
            yield rung.split.train, rung.split.val

    def __repr__(self) -> str:
        """Show all parameters."""
        more = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"ClusterLadderSplit({self.levels!r}, repeats={self.repeats}{more})"


def _searched(dataset: Dataset, options: CheckedOptions, count: int, progress: Progress) -> SeveralSplits:
    """Search for several splits; a warning says if there are fewer."""
    found = several_splits(dataset, options, count, progress)
    there = len(found.splits)
    if there == count:
        return found
    many = "is 1 good split" if there == 1 else f"are {there} good splits that differ in many rows"
    few = Notice("few_optima", f"there {many}, not {count}: n_splits={there} would do")
    return replace(found, warnings=(*found.warnings, few))


Indices = NDArray[np.int64]


@dataclass(frozen=True)
class SeveralSplits:
    """Row positions (train, val) of different splits and their MMD, with warnings.

    Local optima come with the largest MMD first, folds in their own order.
    """

    splits: tuple[tuple[Indices, Indices], ...]
    mmd: tuple[float, ...]
    warnings: tuple[Notice, ...]


def several_splits(
    dataset: Dataset, options: CheckedOptions, count: int, progress: Progress = silent
) -> SeveralSplits:
    """Find up to `count` local optima that differ in many rows, or draw graded splits of the best one.

    For one, that is what `split` finds.
    """
    options = replace(options, certify="never", bound="never")
    with prepared_split(dataset, options, progress) as context:
        found = context.refine(context.explore())
        best = None
        if options.is_graded:
            random, measured = context.random_baseline(found), found.measured
            drawn = [grade(context, found, random, draw)[0] for draw in range(count)]
            best = float(max(measured.mmd_squared, 0.0) ** 0.5), measured.psi
            found, members = drawn[0], tuple(each.members for each in drawn)
        elif not options.is_searched_for:
            best = context.measures(found).mmd, found.measured.psi
            found = context.aimed(found)
            members = (found.members,)
        else:
            members = context.different(found, count)
        result = assess(context, found, {}, best=best)
        squares = [evaluate(context.problem, each).mmd_squared for each in members]
    # Graded splits stay as they were drawn: the first is that of one alone.
    order = sorted(range(len(members)), key=lambda place: 0.0 if options.is_graded else -squares[place])
    return SeveralSplits(
        tuple((dataset.rows[~members[place]], dataset.rows[members[place]]) for place in order),
        tuple(float(max(squares[place], 0.0) ** 0.5) for place in order),
        summarize(result, Stopwatch()).warnings,
    )


def all_folds(
    dataset: Dataset, options: CheckedOptions, into: PartitionOptions, progress: Progress = silent
) -> SeveralSplits:
    """Make folds, and validate on each in turn."""
    found = partition(dataset, replace(options, certify="never"), into, progress=progress)
    report, labels = found.report.parts, found.parts.labels
    assert report is not None
    splits = tuple(
        (dataset.rows[labels != fold], dataset.rows[labels == fold]) for fold in range(len(report.parts))
    )
    return SeveralSplits(splits, tuple(part.mmd_rest for part in report.parts), found.report.warnings)


KEPT = 16
_memory: OrderedDict[str, SeveralSplits] = OrderedDict()
_lock = Lock()


def remembered(source: SplitInput, kind: str, count: int, find: Callable[[], SeveralSplits]) -> SeveralSplits:
    """Search with `find`, or return what the same search found lately."""
    key = _digest(source.dataset, source.options, kind, count)
    with _lock:
        if key in _memory:
            _memory.move_to_end(key)
            return _memory[key]
    found = find()
    with _lock:
        _memory[key] = found
        while len(_memory) > KEPT:
            _memory.popitem(last=False)
    return found


def forget() -> None:
    """Forget all searches."""
    with _lock:
        _memory.clear()


def _digest(dataset: Dataset, options: CheckedOptions, kind: str, count: int) -> str:
    """Tell datasets and options apart by their content."""
    features: Any = dataset.features
    arrays = (
        [features] if isinstance(features, np.ndarray) else [features.data, features.indices, features.indptr]
    )
    arrays += [dataset.rows, *(column.codes for column in dataset.categories.values())]
    target = None if dataset.target is None else dataset.target.features
    arrays += [array for array in (dataset.units, dataset.pinned, target) if array is not None]
    words = [(word, column.values) for word, column in dataset.categories.items()]
    said = (options, kind, count, features.shape, words, dataset.families, dataset.together)
    digest = hashlib.blake2b(repr(said).encode())
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()
