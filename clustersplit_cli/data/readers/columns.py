"""Which columns are the features."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from clustersplit_cli.data.readers.naming import listed, shown, suggestion
from clustersplit_cli.data.readers.source import Column, Source
from clustersplit_cli.errors import InputError

_NUMBERED = re.compile(r"(.*?)[0-9]+", re.DOTALL)
_CURE = "choose the features with --columns 'GLOB', or the name of one list column"


@dataclass(frozen=True)
class FeatureColumns:
    """The chosen columns: several scalar ones, or a single list column.

    Attributes
    ----------
    names : in file order.
    dtype : of the feature matrix.
    is_list : whether the one column holds lists.
    guessed : whether nothing but their type spoke for them.
    """

    names: tuple[str, ...]
    dtype: np.dtype[Any]
    is_list: bool
    guessed: bool = False

    def feature_names(self, width: int) -> tuple[str, ...]:
        """Name every feature."""
        return tuple(f"{self.names[0]}[{i}]" for i in range(width)) if self.is_list else self.names


def coordinate_names(width: int) -> tuple[str, ...]:
    """Name features that were made of values of pairs of rows."""
    return tuple(f"coordinate[{i}]" for i in range(width))


def choose_features(source: Source, globs: Sequence[str], reserved: Collection[str]) -> FeatureColumns:
    """Choose the feature columns: those asked for, else by the default rules.

    Parameters
    ----------
    source : the features file.
    globs : column names or shell patterns; empty for the default rules.
    reserved : columns with another role, which are never features.
    """
    free = [column for name, column in source.columns.items() if name not in reserved]
    guessed = False
    if globs:
        chosen = _matching(source, globs, free)
    else:
        chosen, guessed = _by_default(source, free)
    _check(source, chosen)
    dtype = np.result_type(*(float_type(column.dtype) for column in chosen if column.dtype is not None))
    return FeatureColumns(tuple(column.name for column in chosen), dtype, chosen[0].is_list, guessed)


def _matching(source: Source, globs: Sequence[str], free: Sequence[Column]) -> list[Column]:
    """Return the columns that a pattern or a name asks for; each one must ask for something."""
    wanted: set[str] = set()
    for glob in globs:
        exact = source.find(glob)
        names = {exact} if exact else {name for name in source.columns if fnmatchcase(name, glob)}
        if not names:
            raise InputError(
                f"no column of {shown(source.path)} matches {glob!r}",
                hint=suggestion(glob, [column.name for column in free]),
            )
        usable = names & {column.name for column in free}
        if not usable:
            raise InputError(
                f"{glob!r} matches only columns that have another role: {listed(sorted(map(repr, names)))}",
                hint=_CURE,
            )
        wanted |= usable
    return [column for column in free if column.name in wanted]


def _by_default(source: Source, free: Sequence[Column]) -> tuple[list[Column], bool]:
    """Return the only list of floats, else the largest numbered set, else all floats (a guess)."""
    by_name = {column.name: column for column in free}
    if source.default_features in by_name:
        return [by_name[source.default_features]], False
    float_lists = [column for column in free if column.is_list and _is_float(column)]
    if len(float_lists) == 1:
        return float_lists, False
    numbered = _largest_numbered_set(source, [column for column in free if not column.is_list])
    if numbered:
        return numbered, False
    floats = [column for column in free if not column.is_list and _is_float(column)]
    if floats:
        return floats, True
    if len(float_lists) > 1:
        names = listed([repr(column.name) for column in float_lists])
        raise InputError(
            f"{shown(source.path)} has several list columns: {names}", hint="choose one with --columns NAME"
        )
    found = listed([f"{column.name!r} ({column.type_name})" for column in free]) if free else "none"
    raise InputError(
        f"{shown(source.path)} has no numeric feature columns; columns without another role: {found}",
        hint=_CURE,
    )


def _largest_numbered_set(source: Source, scalars: Sequence[Column]) -> list[Column]:
    """Return the columns named `<prefix><integer>` of the prefix that has most numeric ones.

    A lone numbered column says nothing, unless it is the only column there is. A column of text in the
    winning set stays in: it is refused later, by name, instead of being left out in silence.
    """
    sets: dict[str, list[Column]] = {}
    for column in scalars:
        match = _NUMBERED.fullmatch(column.name)
        if match:
            sets.setdefault(match[1], []).append(column)
    sizes = {
        prefix: sum(column.dtype is not None for column in members)
        for prefix, members in sets.items()
        if len(members) > 1 or len(scalars) == 1
    }
    largest = max(sizes.values(), default=0)
    if not largest:
        return []
    winners = [prefix for prefix, size in sizes.items() if size == largest]
    if len(winners) > 1:
        patterns = listed([repr(f"{prefix}*") for prefix in winners])
        raise InputError(
            f"{shown(source.path)} has several sets of {largest} numbered columns: {patterns}",
            hint="choose with --columns, which may be repeated",
        )
    return sets[winners[0]]


def _check(source: Source, chosen: Sequence[Column]) -> None:
    """Raise unless the columns can be one matrix."""
    unusable = [f"{column.name!r} ({column.type_name})" for column in chosen if column.dtype is None]
    if unusable:
        raise InputError(
            f"feature columns of {shown(source.path)} are not numbers: {listed(unusable)}", hint=_CURE
        )
    if len(chosen) > 1 and any(column.is_list for column in chosen):
        names = listed([repr(column.name) for column in chosen if column.is_list])
        raise InputError(
            f"a list column cannot be combined with other feature columns: {names}",
            hint="choose either one list column or scalar columns with --columns",
        )


def _is_float(column: Column) -> bool:
    return column.dtype is not None and column.dtype.kind == "f"


def float_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The smallest floating-point type that holds every value (64-bit integers: nearly every value)."""
    if dtype.kind == "f":
        return dtype if dtype.itemsize <= 8 else np.dtype(np.float64)
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)
