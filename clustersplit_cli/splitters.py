"""Scikit-learn splitters over the same pipeline."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from inspect import signature
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator

from clustersplit_cli.arguments import (
    dataset_from,
    in_python_words,
    options_from,
    tolerance_or_default,
    warn_of,
)
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.data.in_memory import Description
from clustersplit_cli.errors import UsageError
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.partitions import folds_of
from clustersplit_cli.remembering import remembered
from clustersplit_cli.reports.summary import Notice
from clustersplit_cli.several import Indices, SeveralSplits, all_folds, several_splits

_MEANINGS = ("groups", "domains")
_OF_SEARCH = (
    *("kernel", "gamma", "degree", "standardize", "nystrom", "restarts", "effort", "max_iter"),
    *("solver", "memory", "threads"),
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
        )
        dataset = dataset_from(
            X, said, stratify=self.stratify, columns=self.columns, transformer=self.transformer
        )
        given = {name: getattr(self, name) for name in _OF_SEARCH}
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
    there are fewer than that, a warning says how many there are, and so does `get_n_splits(X, y)`.

    Parameters
    ----------
    n_splits : number of splits; the first of one is what `cluster_split` returns.
    h, kernel, gamma, ... : as for `cluster_split` and the options of `clustersplit split`.
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
        groups_are: str = "groups",
    ) -> None:
        self.n_splits = n_splits
        self.h = h
        self.stratify = stratify
        self.tolerance = tolerance
        self.rounding = rounding
        self.label_bins = label_bins
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
        groups_are: str = "groups",
    ) -> None:
        self.n_splits = n_splits
        self.stratify = stratify
        self.tolerance = tolerance
        self.label_bins = label_bins
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
        self.groups_are = groups_are

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None, domains: Any = None) -> int:
        """Return the number of folds."""
        return self.n_splits

    def _find(self, X: Any, y: Any, groups: Any, domains: Any) -> SeveralSplits:
        with in_python_words():
            parting = folds_of(self.n_splits)
            dataset, options = self._prepared(X, y, groups, domains)

            def find() -> SeveralSplits:
                found = all_folds(dataset, options, parting)
                warn_of(found.warnings, stacklevel=6)
                return found

            return remembered(dataset, options, "folds", int(self.n_splits), find)


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
