"""Scikit-learn splitters over the same pipeline."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import BaseCrossValidator

from clustersplit_cli.api import cluster_ladder, folds_of
from clustersplit_cli.arguments import (
    dataset_from,
    in_python_words,
    of_target,
    options_from,
    tolerance_or_default,
    warn_of,
    with_target,
)
from clustersplit_cli.core.search.problem import evaluate
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.data.in_memory import Description
from clustersplit_cli.errors import UsageError
from clustersplit_cli.options import WORST, CheckedOptions
from clustersplit_cli.pipeline.context import PartitionOptions
from clustersplit_cli.pipeline.ladder import parse_levels
from clustersplit_cli.pipeline.local.engine import partition, prepared_split
from clustersplit_cli.pipeline.run import assess, grade
from clustersplit_cli.pipeline.summarize import summarize
from clustersplit_cli.progress import Stopwatch
from clustersplit_cli.reports.summary import Notice

_MEANINGS = ("groups", "domains")
_OF_SEARCH = (
    *("kernel", "gamma", "degree", "standardize", "nystrom", "restarts", "effort", "max_iter"),
    *("solver", "severity", "at_mmd", "memory", "threads"),
)


class _ClusterSplitter(BaseCrossValidator):  # type: ignore[misc]
    """What both splitters share: what rows are, what `groups` means, and how parameters are shown."""

    __metadata_request__split = {"groups": True, "domains": True}  # noqa: RUF012 - read by scikit-learn

    def split(
        self, X: Any, y: Any = None, groups: Any = None, domains: Any = None
    ) -> Iterator[tuple[Indices, Indices]]:
        """Yield the row positions of training and validation.

        Parameters
        ----------
        X, y, domains : as for `cluster_split`.
        groups : rows of one group stay together; with `groups_are="domains"`, the domains.

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

    def _prepared(
        self, X: Any, y: Any, groups: Any, domains: Any, **more: Any
    ) -> tuple[Dataset, CheckedOptions]:
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
        dataset = dataset_from(
            X, said, stratify=self.stratify, columns=self.columns, transformer=self.transformer
        )
        given = {name: getattr(self, name) for name in _OF_SEARCH}
        target = getattr(self, "target", None)
        dataset = with_target(dataset, target, self.transformer, drop_invalid=self.drop_invalid)
        if target is not None or hasattr(self, "aim"):
            given |= of_target(target, getattr(self, "aim", WORST), weights=False)
        given["tolerance"] = tolerance_or_default(self.tolerance, groups)
        return dataset, options_from({**given, **more}, self.random_state)

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
    n_splits : number of splits; the first of one is what `cluster_split` returns.
    h, kernel, gamma, ... : as for `cluster_split` and the options of `clustersplit split`.
    target, aim : rows of where the model will be used, and what validation is to be, as for `cluster_split`;
        with another aim than 'worst' there is one split.
    groups_are : what `groups` means: 'groups', rows that stay together, as everywhere in scikit-learn; or
        'domains'.
    random_state : integer, or a NumPy generator or None for other splits at every call.

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
        h: float | str = 0.2,
        stratify: str | Sequence[str] | None = None,
        tolerance: float | str | Sequence[float | str] | None = None,
        rounding: str | None = None,
        label_bins: int | None = None,
        severity: float | str | None = None,
        at_mmd: float | str | None = None,
        target: Any = None,
        aim: str = "worst",
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
        memory: int | str | None = None,
        threads: int | None = None,
        columns: str | Sequence[str] | None = None,
        transformer: Any = None,
        drop_invalid: bool = False,
        impute: str = "none",
        groups_are: str = "groups",
    ) -> None:
        self.n_splits = n_splits
        self.h = h
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
        self.columns = columns
        self.transformer = transformer
        self.drop_invalid = drop_invalid
        self.impute = impute
        self.groups_are = groups_are

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None, domains: Any = None) -> int:
        """Return the number of splits: `n_splits`, or as many as there are if the rows given have fewer."""
        if X is None or self.n_splits == 1 or not isinstance(self.random_state, (int, np.integer)):
            return self.n_splits
        return len(self._find(X, y, groups, domains).splits)

    def _find(self, X: Any, y: Any, groups: Any, domains: Any) -> SeveralSplits:
        with in_python_words():
            if isinstance(self.n_splits, bool) or not isinstance(self.n_splits, (int, np.integer)):
                raise UsageError(f"n_splits must be an integer, got {self.n_splits!r}", hint="try n_splits=1")
            if self.n_splits < 1:
                raise UsageError(f"n_splits must be at least 1, got {self.n_splits}", hint="try n_splits=1")
            dataset, options = self._prepared(X, y, groups, domains, holdout=self.h, rounding=self.rounding)
            count = int(self.n_splits)
            if count > 1 and not options.is_searched_for:
                raise UsageError(
                    f"n_splits is {count}, and --aim {options.aim} makes one split", hint="try n_splits=1"
                )
            return remembered(dataset, options, "split", count, lambda: _searched(dataset, options, count))


class ClusterKFold(_ClusterSplitter):
    """Folds that differ from each other as much as possible, each with an equal share of every cell.

    Every fold in turn is a validation set unlike the rows that are trained on, and every row is validated on
    once.

    Parameters
    ----------
    n_splits : number of folds, at least 2; `cluster_folds` and `clustersplit kfold` make the same ones.
    kernel, gamma, ... : as for `cluster_folds` and the options of `clustersplit kfold`.
    tolerance : only with groups: by what share of it a fold may miss its quota of a cell. By default 'auto':
        what each cell needs when groups are dealt out evenly.
    groups_are : what `groups` means: 'groups', rows that stay together, as everywhere in scikit-learn; or
        'domains'.
    random_state : integer, or a NumPy generator or None for other folds at every call.

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
        memory: int | str | None = None,
        threads: int | None = None,
        columns: str | Sequence[str] | None = None,
        transformer: Any = None,
        drop_invalid: bool = False,
        impute: str = "none",
        groups_are: str = "groups",
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
        self.columns = columns
        self.transformer = transformer
        self.drop_invalid = drop_invalid
        self.impute = impute
        self.groups_are = groups_are

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None, domains: Any = None) -> int:
        """Return the number of folds."""
        return self.n_splits

    def _find(self, X: Any, y: Any, groups: Any, domains: Any) -> SeveralSplits:
        with in_python_words():
            into = folds_of(self.n_splits)
            dataset, options = self._prepared(X, y, groups, domains)

            def find() -> SeveralSplits:
                found = all_folds(dataset, options, into)
                warn_of(found.warnings, stacklevel=6)
                return found

            return remembered(dataset, options, "folds", int(self.n_splits), find)


class ClusterLadderSplit(BaseCrossValidator):  # type: ignore[misc]
    """Graded splits at several severities, level by level, and in each of them repeat by repeat.

    Parameters
    ----------
    levels, repeats, options : as for `cluster_ladder`, which makes the same splits.

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
        """Return the number of splits."""
        with in_python_words():
            text = self.levels if isinstance(self.levels, str) else ",".join(map(str, self.levels))
            return len(parse_levels(text)) * self.repeats

    def split(
        self, X: Any, y: Any = None, groups: Any = None, domains: Any = None
    ) -> Iterator[tuple[Indices, Indices]]:
        """Yield the row positions of training and validation; parameters as of `cluster_split`."""
        more = {} if groups is None else {"groups": groups}
        options = {**self.options, **more}
        for rung in cluster_ladder(X, y, domains, levels=self.levels, repeats=self.repeats, **options):
            yield rung.split.train, rung.split.val

    def __repr__(self) -> str:
        """Show all parameters."""
        more = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"ClusterLadderSplit({self.levels!r}, repeats={self.repeats}{more})"


def _searched(dataset: Dataset, options: CheckedOptions, count: int) -> SeveralSplits:
    """Search for several splits; warnings are shown when it is made, and say if there are fewer."""
    found = several_splits(dataset, options, count)
    notices = list(found.warnings)
    there = len(found.splits)
    if there < count:
        many = "is 1 good split" if there == 1 else f"are {there} good splits that differ in many rows"
        notices.append(Notice("few_optima", f"there {many}, not {count}: n_splits={there} would do"))
    warn_of(notices, stacklevel=6)
    return found


Indices = NDArray[np.int64]


@dataclass(frozen=True)
class SeveralSplits:
    """Row positions (train, val) of different splits and their MMD, with warnings.

    Local optima come with the largest MMD first, folds in their own order.
    """

    splits: tuple[tuple[Indices, Indices], ...]
    mmd: tuple[float, ...]
    warnings: tuple[Notice, ...]


def several_splits(dataset: Dataset, options: CheckedOptions, count: int) -> SeveralSplits:
    """Find up to `count` local optima that differ in many rows, or draw graded splits of the best one.

    For one, that is what `split` finds.
    """
    options = replace(options, certify="never", bound="never")
    with prepared_split(dataset, options) as context:
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


def all_folds(dataset: Dataset, options: CheckedOptions, into: PartitionOptions) -> SeveralSplits:
    """Make folds, and validate on each in turn."""
    found = partition(dataset, replace(options, certify="never"), into)
    report, labels = found.report.parts, found.parts.labels
    assert report is not None
    splits = tuple(
        (dataset.rows[labels != fold], dataset.rows[labels == fold]) for fold in range(len(report.parts))
    )
    return SeveralSplits(splits, tuple(part.mmd_rest for part in report.parts), found.report.warnings)


KEPT = 16
_memory: OrderedDict[str, SeveralSplits] = OrderedDict()
_lock = Lock()


def remembered(
    dataset: Dataset, options: CheckedOptions, kind: str, count: int, find: Callable[[], SeveralSplits]
) -> SeveralSplits:
    """Search with `find`, or return what the same search found lately."""
    key = _digest(dataset, options, kind, count)
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
