"""The Python side of the options: what callers pass, in the words and types of the command line."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from clustersplit_cli.errors import (
    CheckFailedError,
    ClusterSplitError,
    ClusterSplitWarning,
    InputError,
    InvalidArgumentError,
    UsageError,
)
from clustersplit_cli.options import CheckedOptions, SplitOptions, check_options
from clustersplit_cli.python.cells import described
from clustersplit_cli.python.words import PYTHON_NAMES, python_words

if TYPE_CHECKING:
    from clustersplit_cli.data.dataset import Dataset
    from clustersplit_cli.data.foreign import PassedRows
    from clustersplit_cli.data.in_memory import Description
    from clustersplit_cli.pipeline.context import PartitionOptions
    from clustersplit_cli.reports.summary import Notice

_FLAGS = ("weights", "distances")
_INTEGERS = ("restarts", "max_iter", "seed", "degree", "threads")
_CURABLE = 2, 3
"""Exit codes of errors that the caller can cure: the input, the options, and what cannot be met at once."""


@contextmanager
def in_python_words(**names: str) -> Iterator[None]:
    """Turn errors that the caller can cure into `ValueError`s that speak of parameters, not of flags.

    Parameters
    ----------
    names : what the caller's parameters are called where that is not the usual name.
    """
    try:
        yield
    except CheckFailedError:
        raise
    except ClusterSplitError as error:
        if error.exit_code not in _CURABLE or isinstance(error, InvalidArgumentError):
            raise
        hint = None if error.hint is None else python_words(error.hint, names)
        told = InvalidArgumentError(python_words(error.message, names), hint=hint)
        told.exit_code = error.exit_code
    else:
        return
    raise told from None


def one_of(default: Any, **given: Any) -> Any:
    """The value of a parameter that has several names, of which a caller uses one.

    >>> one_of(0.2, h=None, test_size=0.3)
    0.3
    """
    said = {name: value for name, value in given.items() if value is not None}
    if len(said) > 1:
        raise UsageError(f"{' and '.join(said)} are names of one parameter", hint="give one of them")
    return next(iter(said.values()), default)


def thread_count(threads: Any, n_jobs: Any) -> int | None:
    """Worker threads; -1 is how scikit-learn says all."""
    count = one_of(None, threads=threads, n_jobs=n_jobs)
    return None if count == -1 and not isinstance(count, bool) else count


def options_from(arguments: Mapping[str, Any], random_state: Any) -> CheckedOptions:
    """Check options given as Python values, with the command line's own checks.

    Parameters
    ----------
    arguments : by the names of `SplitOptions`; numbers may be numbers.
    random_state : an integer, a `numpy.random.RandomState` or `Generator`, or None for one from the system.
    """
    given: dict[str, Any] = {**arguments, "seed": as_seed(random_state)}
    for name, value in given.items():
        if value is None:
            continue
        if name in _FLAGS:
            given[name] = bool(value)
        elif name in _INTEGERS:
            given[name] = _integer(name, value)
        else:
            # The text of a number is what the command line would get: 0.29 stays 29/100.
            given[name] = [*map(str, value)] if isinstance(value, (list, tuple)) else str(value)
    return check_options(SplitOptions(**given))


def as_seed(random_state: Any) -> int:
    """Turn a random state into a seed; every call draws another one from a generator."""
    if random_state is None:
        from secrets import randbits

        return randbits(31)
    if hasattr(random_state, "integers"):
        return int(random_state.integers(2**31))
    if hasattr(random_state, "randint"):
        return int(random_state.randint(2**31 - 1))
    return _integer("seed", random_state)


def _integer(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        shown = PYTHON_NAMES.get(name, name)
        raise UsageError(
            f"{shown} must be an integer, got {value!r}", hint=f"for example {shown}=1"
        ) from None


def globs_of(columns: str | Sequence[str] | None) -> tuple[str, ...]:
    """Read `columns`: one glob or several."""
    return () if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)


def embedded(X: Any, y: Any, transformer: Any) -> Any:
    """Apply a transformer: a fitted one as it is, an unfitted one after fitting a copy of it, or a function.

    Raises
    ------
    UsageError
        When it is none of these.
    """
    if transformer is None:
        return X
    if hasattr(transformer, "transform"):
        return (
            _unfitted(transformer).fit_transform(X, y)
            if _needs_fit(transformer)
            else transformer.transform(X)
        )
    if not callable(transformer):
        raise UsageError(
            f"transformer {transformer!r} has no transform method and is no function",
            hint="pass a scikit-learn transformer, or a function from rows to features",
        )
    return transformer(X)


def _needs_fit(transformer: Any) -> bool:
    try:
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted
    except ImportError:
        return False
    try:
        check_is_fitted(transformer)
    except NotFittedError:
        return True
    except TypeError:  # no scikit-learn estimator: it has to know itself whether it can transform
        return False
    return False


def _unfitted(transformer: Any) -> Any:
    from sklearn.base import clone

    return clone(transformer)


@dataclass(frozen=True)
class SplitInput:
    """Rows in memory as a caller passed them, and how they are split.

    Attributes
    ----------
    rows : all rows, embedded if there is a transformer.
    said : what the caller said of them.
    dataset : the rows that take part.
    into : None for a split in two.
    """

    rows: PassedRows
    said: Description
    dataset: Dataset
    options: CheckedOptions
    into: PartitionOptions | None = None

    @property
    def config(self) -> dict[str, Any]:
        """What the report repeats of how the rows were described, in the words of the command line."""
        dataset, said = self.dataset, self.said
        return {
            "stratify": [",".join(words) or "none" for words in families_of(dataset)],
            "drop_invalid": said.drop_invalid,
            **({} if said.impute == "none" else {"impute": said.impute}),
            **({"distances": True} if self.options.distances else {}),
            "label_bins": said.label_bins,
            "keep_together": dataset.together,
            "target": None if dataset.target is None else dataset.target.name,
        }


def families_of(dataset: Dataset) -> tuple[tuple[str, ...], ...]:
    """The columns of every family of cells."""
    return dataset.families or (tuple(dataset.categories),)


def source_from(
    X: Any,
    said: Description,
    options: CheckedOptions,
    *,
    stratify: Any,
    columns: str | Sequence[str] | None,
    transformer: Any,
    into: PartitionOptions | None = None,
) -> SplitInput:
    """Make a validated dataset of what a caller passed.

    Parameters
    ----------
    said : all but what `stratify` and `columns` say.
    stratify : texts that name families of cells, or arrays, each of which is one more family.
    """
    from clustersplit_cli.data.foreign import as_rows
    from clustersplit_cli.data.in_memory import make_dataset
    from clustersplit_cli.similarity import is_of_features

    said = replace(described(said, stratify), columns=globs_of(columns))
    if transformer is not None:
        named = {"y": said.y, "domains": said.domains, "groups": said.groups}
        taken = {
            name: _column(X, values)
            for name, values in named.items()
            if isinstance(values, str) and not (name == "groups" and is_of_features(values))
        }
        said = replace(said, **taken)
    rows = as_rows(embedded(X, said.y, transformer))
    if transformer is not None and rows.n != (n_rows := _count(X)):
        raise InputError(
            f"the transformer made {rows.n} rows of {n_rows}",
            hint="it must return one row for every row of X",
        )
    return SplitInput(rows, said, make_dataset(rows, said), options, into)


TARGET = "target"
"""What reports call rows that were passed as a target."""


def of_target(target: Any, aim: str, weights: bool) -> dict[str, Any]:
    """The options about a target, as the command line has them."""
    return {"target": None if target is None else TARGET, "aim": aim, "weights": weights}


def with_target(dataset: Dataset, target: Any, transformer: Any, *, drop_invalid: bool) -> Dataset:
    """The dataset and the rows of a target, if any were passed."""
    if target is None:
        return dataset
    from clustersplit_cli.data.foreign import as_rows
    from clustersplit_cli.data.in_memory import make_target

    if transformer is not None and hasattr(transformer, "transform") and _needs_fit(transformer):
        raise UsageError(
            "a target needs a transformer that is fitted: it has to embed both in the same way",
            hint="fit it on X first",
        )
    rows = as_rows(embedded(target, None, transformer))
    return replace(dataset, target=make_target(rows, dataset, TARGET, drop_invalid=drop_invalid))


OF_ROWS = ("y", "domains", "groups", "force_train", "force_val", "label_bins", "drop_invalid", "impute")
OF_SEARCH = (
    *("rounding", "kernel", "gamma", "degree", "standardize", "nystrom", "restarts", "effort", "max_iter"),
    *("solver", "certify", "bound", "severity", "at_mmd", "memory", "distances"),
)
"""Parameters that are options of the same name."""


def prepared(given: Mapping[str, Any], into: PartitionOptions | None = None) -> SplitInput:
    """Make rows and options of what a caller passed, by the names of the parameters."""
    from clustersplit_cli.data.in_memory import Description
    from clustersplit_cli.similarity import pairs_of

    said = Description(**{name: given[name] for name in OF_ROWS if name in given})
    options = options_of(given, said.groups)
    chosen = {name: given[name] for name in ("stratify", "columns", "transformer")}
    said = replace(said, pairs=pairs_of(options.kernel, distances=options.distances))
    source = source_from(given["X"], said, options, **chosen, into=into)
    target, drop = given.get("target"), given["drop_invalid"]
    dataset = with_target(source.dataset, target, given["transformer"], drop_invalid=drop)
    return replace(source, dataset=dataset)


def options_of(given: Mapping[str, Any], groups: Any = None) -> CheckedOptions:
    """Check the options among what a caller passed."""
    search = {name: given[name] for name in OF_SEARCH if name in given}
    search["threads"] = thread_count(given.get("threads"), given.get("n_jobs"))
    search["tolerance"] = tolerance_or_default(given.get("tolerance"), groups)
    if "aim" in given:
        search |= of_target(given.get("target"), given["aim"], given.get("weights", False))
    search["holdout"] = one_of(0.2, h=given.get("h"), test_size=given.get("test_size"))
    return options_from(search, given.get("random_state", 0))


def tolerance_or_default(tolerance: Any, groups: Any) -> Any:
    """A tolerance that was not given is 0; for rows kept together, the smallest that can be met."""
    if tolerance is not None:
        return tolerance
    return 0 if groups is None else "auto"


def _column(X: Any, name: str) -> Any:
    """Take a column of a table by its name, before the table is transformed."""
    from clustersplit_cli.data.foreign import as_rows

    table = as_rows(X).table
    if table is None or name not in table.columns:
        raise InputError(f"X has no column {name!r}", hint="pass one value per row instead of a name")
    return table.table.column(name)


def _count(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def warn_of(notices: Sequence[Notice], *, stacklevel: int) -> None:
    """Show a report's warnings the Python way."""
    for notice in notices:
        warnings.warn(python_words(notice.message), ClusterSplitWarning, stacklevel=stacklevel + 1)
