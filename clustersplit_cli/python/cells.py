"""Labels and families of cells as Python callers have them: arrays, several columns, continuous numbers."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clustersplit_cli.data.foreign import as_array
from clustersplit_cli.errors import InputError, UsageError
from clustersplit_cli.options import parse_families

if TYPE_CHECKING:
    from clustersplit_cli.data.in_memory import Description

AUTO = "auto"
MOST_BINS, ROWS_PER_BIN = 10, 20
LABEL, DOMAIN = "label", "domain"


def described(said: Description, stratify: Any) -> Description:
    """Turn what a caller said of labels and cells into columns of one value per row and families of them.

    A label of several columns is one family per column, an array in `stratify` is one more family.

    Raises
    ------
    UsageError, InputError
        Saying what cannot be used.
    """
    texts, arrays = _texts_and_arrays(stratify)
    labels = _columns_of(said.y)
    default = (*(LABEL,) * (said.y is not None), *(DOMAIN,) * (said.domains is not None))
    asked: Any = said.label_bins
    if labels and asked not in (None, AUTO):
        raise UsageError("label_bins cuts one column of numbers", hint="pass y in one dimension")
    said = replace(said, y=None, label_bins=None) if labels else replace(said, label_bins=_bins(said))
    more = {f"stratify_{place}" if len(arrays) > 1 else "stratify": each for place, each in enumerate(arrays)}
    words, families = parse_families(texts)
    if not (labels or more):
        return replace(said, stratify=words, families=families)
    whole = (default,) * bool(default) if words is None else families or (words,)
    groups = [
        tuple(column if word == LABEL else word for word in family)
        for family in whole
        for column in (labels if labels and LABEL in family else [LABEL])
    ]
    groups += [(word,) for word in more]
    return replace(
        said,
        stratify=tuple(dict.fromkeys(word for family in groups for word in family)),
        families=tuple(groups) if len(groups) > 1 else (),
        more={**labels, **more},
    )


def _texts_and_arrays(stratify: Any) -> tuple[list[str] | None, list[Any]]:
    """Tell texts that name families from arrays of values."""
    if stratify is None:
        return None, []
    if isinstance(stratify, str):
        return [stratify], []
    if not isinstance(stratify, (list, tuple)):
        return None, [stratify]
    texts = [each for each in stratify if isinstance(each, str)]
    arrays = [each for each in stratify if not isinstance(each, str)]
    if arrays and all(np.ndim(each) == 0 for each in arrays):
        return None, [stratify]
    return texts or None, arrays


def _columns_of(y: Any) -> Mapping[str, Any]:
    """The columns of a label in two dimensions, by the words that their cells have; none if it has one.

    Raises
    ------
    InputError
        If they hold anything but 0 and 1.
    """
    if y is None or isinstance(y, str):
        return {}
    if hasattr(y, "column_names") and hasattr(y, "itercolumns"):  # an Arrow table
        names, columns = list(y.column_names), [column.to_numpy() for column in y.itercolumns()]
    elif hasattr(y, "columns") and hasattr(y, "shape"):  # a data frame
        names, columns = list(y.columns), [np.asarray(y[name]) for name in y.columns]
    elif len(getattr(y, "shape", ())) == 2 or _is_nested(y):
        array = as_array(y, "y")
        names, columns = list(range(array.shape[-1])), list(array.T) if array.ndim == 2 else []
    else:
        return {}
    if len(columns) < 2:
        return {}
    for name, column in zip(names, columns, strict=True):
        values = np.unique(column)
        if not np.isin(values, [0, 1]).all():
            odd = values[~np.isin(values, [0, 1])][0]
            raise InputError(
                f"y has {len(columns)} columns, and column {name} holds {odd!s}, not only 0 and 1",
                hint="pass classes as one column, and other columns to stratify",
            )
    return {f"{LABEL}_{name}": column.astype(np.int64) for name, column in zip(names, columns, strict=True)}


def _is_nested(y: Any) -> bool:
    """Whether this is a list of rows."""
    return isinstance(y, (list, tuple)) and len(y) > 0 and isinstance(y[0], (list, tuple))


def _bins(said: Description) -> int | None:
    """The number of bins that the label is cut into; `auto` cuts continuous numbers only."""
    bins: Any = said.label_bins
    if bins is None:
        return None
    if isinstance(bins, str) and bins == AUTO:
        return _bins_of(said.y)
    try:
        count = operator.index(bins)
    except TypeError:
        raise UsageError(
            f"label_bins must be an integer or 'auto', got {bins!r}", hint="for example label_bins=5"
        ) from None
    if count < 2:
        raise UsageError(f"label_bins must be at least 2, got {count}", hint="for example label_bins=5")
    return count


def _bins_of(y: Any) -> int | None:
    """As many bins as leave each enough rows, for numbers that are not all whole; None for other labels."""
    if y is None or isinstance(y, str):
        return None
    try:
        values = as_array(y, "y")
    except InputError:  # told when it is read
        return None
    if values.dtype.kind != "f" or values.ndim != 1 or not len(values):
        return None
    finite = values[np.isfinite(values)]
    if (finite == np.floor(finite)).all():
        return None
    return max(2, min(MOST_BINS, len(values) // ROWS_PER_BIN))


def told_bins(said: Description) -> str:
    """What a splitter says of a label that it cuts by itself."""
    return (
        f"y is continuous, so it is cut into {said.label_bins} bins of about equal size, each of which keeps "
        f"its share; pass label_bins={said.label_bins} to choose that"
    )
