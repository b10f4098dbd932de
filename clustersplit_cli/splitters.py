"""Scikit-learn splitters over the same pipeline."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from inspect import signature
from threading import Lock
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator

from clustersplit_cli.arguments import dataset_from, in_python_words, options_from, warn_of
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.errors import UsageError
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.reports.summary import Notice
from clustersplit_cli.several import Indices, SeveralSplits, several_splits

_REMEMBERED = 16
_OPTIONS = (
    "kernel",
    "gamma",
    "degree",
    "standardize",
    "tolerance",
    "rounding",
    "nystrom",
    "restarts",
    "effort",
    "max_iter",
    "solver",
    "memory",
    "threads",
)


class ClusterShuffleSplit(BaseCrossValidator):  # type: ignore[misc]
    """Validation sets that differ from training as much as possible while every cell keeps its share.

    With `n_splits` above one the splits are different local optima, the one with the largest MMD first. If
    there are fewer than that, a warning says how many there are, and so does `get_n_splits(X, y)`.

    Parameters
    ----------
    n_splits : number of splits; the first of one is what `cluster_split` returns.
    h, kernel, gamma, ... : as for `cluster_split` and the options of `clustersplit split`.
    groups_are : what `groups` means: 'domains', domains; the only meaning so far.
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

    __metadata_request__split = {"groups": True, "domains": True}  # noqa: RUF012 - read by scikit-learn

    def __init__(
        self,
        n_splits: int = 1,
        *,
        h: float | str = 0.2,
        kernel: str = "rbf",
        gamma: float | str | None = None,
        degree: int | None = None,
        standardize: str = "none",
        stratify: str | Sequence[str] | None = None,
        tolerance: float | str = 0,
        rounding: str = "nearest",
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
        groups_are: str | None = None,
    ) -> None:
        self.n_splits = n_splits
        self.h = h
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.standardize = standardize
        self.stratify = stratify
        self.tolerance = tolerance
        self.rounding = rounding
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

    def split(
        self, X: Any, y: Any = None, groups: Any = None, domains: Any = None
    ) -> Iterator[tuple[Indices, Indices]]:
        """Yield the row positions of training and validation, best split first.

        Parameters
        ----------
        X, y, domains : as for `cluster_split`.
        groups : the domains, with `groups_are="domains"`.

        Raises
        ------
        ValueError
            Saying what cannot be used and what would do.
        """
        found = self._find(X, y, groups, domains)
        for train, val in found.splits:
            yield train.copy(), val.copy()

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None, domains: Any = None) -> int:
        """Return the number of splits: `n_splits`, or as many as there are if the rows given have fewer."""
        if X is None or self.n_splits == 1 or not isinstance(self.random_state, (int, np.integer)):
            return self.n_splits
        return len(self._find(X, y, groups, domains).splits)

    def __repr__(self) -> str:
        """Show the parameters that are not the defaults."""
        shown = []
        for name, parameter in signature(type(self).__init__).parameters.items():
            if name != "self" and repr(value := getattr(self, name)) != repr(parameter.default):
                shown.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def _find(self, X: Any, y: Any, groups: Any, domains: Any) -> SeveralSplits:
        with in_python_words():
            if isinstance(self.n_splits, bool) or not isinstance(self.n_splits, (int, np.integer)):
                raise UsageError(f"n_splits must be an integer, got {self.n_splits!r}", hint="try n_splits=1")
            if self.n_splits < 1:
                raise UsageError(f"n_splits must be at least 1, got {self.n_splits}", hint="try n_splits=1")
            dataset = dataset_from(
                X,
                y,
                self._domains(groups, domains),
                columns=self.columns,
                stratify=self.stratify,
                transformer=self.transformer,
                drop_invalid=self.drop_invalid,
            )
            given = {name: getattr(self, name) for name in _OPTIONS}
            options = options_from({"holdout": self.h, **given}, self.random_state)
            return _remembered(dataset, options, int(self.n_splits))

    def _domains(self, groups: Any, domains: Any) -> Any:
        """Tell what `groups` means."""
        if self.groups_are not in (None, "domains"):
            raise UsageError(f"groups_are {self.groups_are!r} is unknown", hint="use groups_are='domains'")
        if groups is None:
            return domains
        if self.groups_are is None:
            raise UsageError(
                "groups were given, but rows cannot be kept together yet",
                hint="set groups_are='domains' if they are domains",
            )
        if domains is not None:
            raise UsageError("domains were given twice, as groups too", hint="pass one of them")
        return groups


_memory: OrderedDict[str, SeveralSplits] = OrderedDict()
_lock = Lock()


def _remembered(dataset: Dataset, options: CheckedOptions, count: int) -> SeveralSplits:
    """Search, or return what the same search found lately; warnings are shown when it is made."""
    key = _digest(dataset, options, count)
    with _lock:
        if key in _memory:
            _memory.move_to_end(key)
            return _memory[key]
    found = several_splits(dataset, options, count)
    notices = list(found.warnings)
    there = len(found.splits)
    if there < count:
        many = "is 1 good split" if there == 1 else f"are {there} good splits that differ in many rows"
        notices.append(Notice("few_optima", f"there {many}, not {count}: n_splits={there} would do"))
    warn_of(notices, stacklevel=4)
    with _lock:
        _memory[key] = found
        while len(_memory) > _REMEMBERED:
            _memory.popitem(last=False)
    return found


def _digest(dataset: Dataset, options: CheckedOptions, count: int) -> str:
    """Tell datasets and options apart by their content."""
    features: Any = dataset.features
    arrays = (
        [features] if isinstance(features, np.ndarray) else [features.data, features.indices, features.indptr]
    )
    arrays += [dataset.rows, *(column.codes for column in dataset.categories.values())]
    digest = hashlib.blake2b(repr((options, count, features.shape, list(dataset.categories))).encode())
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()
