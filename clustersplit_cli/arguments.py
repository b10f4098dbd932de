"""The Python side of the options: what callers pass, in the words and types of the command line."""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clustersplit_cli.errors import (
    ClusterSplitWarning,
    InfeasibleError,
    InputError,
    InvalidArgumentError,
    MemoryPlanError,
    UsageError,
)
from clustersplit_cli.options import CheckedOptions, SplitOptions, check_options, parse_families

if TYPE_CHECKING:
    from clustersplit_cli.data.dataset import Dataset
    from clustersplit_cli.data.in_memory import Description
    from clustersplit_cli.reports.summary import Notice

_FLAG = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
_FLAGS = ("weights",)
_INTEGERS = ("restarts", "max_iter", "seed", "degree", "threads")
_PYTHON_NAMES = {"seed": "random_state", "holdout": "h", "keep_together": "groups"}


@contextmanager
def in_python_words() -> Iterator[None]:
    """Turn errors that the caller can cure into `ValueError`s that speak of parameters, not of flags."""
    try:
        yield
    except (UsageError, InputError, InfeasibleError, MemoryPlanError) as error:
        hint = None if error.hint is None else python_words(error.hint)
        raise InvalidArgumentError(python_words(error.message), hint=hint) from error


def python_words(text: str) -> str:
    """Name parameters as Python does.

    >>> python_words("raise --max-iter or --seed")
    'raise max_iter or random_state'
    """

    def name(match: re.Match[str]) -> str:
        word = match[1].replace("-", "_")
        return _PYTHON_NAMES.get(word, word)

    return _FLAG.sub(name, text)


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
            if name == "holdout":
                raise UsageError("h must be a number, got None", hint="for example 0.2")
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
        shown = _PYTHON_NAMES.get(name, name)
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


def dataset_from(
    X: Any,
    said: Description,
    *,
    stratify: str | Sequence[str] | None,
    columns: str | Sequence[str] | None,
    transformer: Any,
) -> Dataset:
    """Make a validated dataset of what a caller passed.

    Parameters
    ----------
    said : all but what `stratify` and `columns` say.
    stratify : one family of cells, or several.
    """
    from clustersplit_cli.data.dataset import EXACT_DUPLICATES
    from clustersplit_cli.data.foreign import as_rows
    from clustersplit_cli.data.in_memory import make_dataset

    words, families = parse_families([stratify] if isinstance(stratify, str) else stratify)
    if said.label_bins is not None and _integer("label_bins", said.label_bins) < 2:
        raise UsageError(f"label_bins must be at least 2, got {said.label_bins}", hint="for example 5")
    said = replace(said, stratify=words, families=families, columns=globs_of(columns))
    if transformer is not None:
        named = {"y": said.y, "domains": said.domains, "groups": said.groups}
        taken = {
            name: _column(X, values)
            for name, values in named.items()
            if isinstance(values, str) and values != EXACT_DUPLICATES
        }
        said = replace(said, **taken)
    rows = as_rows(embedded(X, said.y, transformer))
    if transformer is not None and rows.n != (n_rows := _count(X)):
        raise InputError(
            f"the transformer made {rows.n} rows of {n_rows}",
            hint="it must return one row for every row of X",
        )
    return make_dataset(rows, said)


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


def reading_config(dataset: Dataset, said: Description) -> dict[str, Any]:
    """What the report repeats of how the rows were described, in the words of the command line."""
    return {
        "stratify": [",".join(words) or "none" for words in dataset.families or (tuple(dataset.categories),)],
        "drop_invalid": said.drop_invalid,
        **({} if said.impute == "none" else {"impute": said.impute}),
        "label_bins": said.label_bins,
        "keep_together": dataset.together,
        "target": None if dataset.target is None else dataset.target.name,
    }


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
