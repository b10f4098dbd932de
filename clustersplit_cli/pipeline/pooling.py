"""Rows of several datasets as if they were of one: same columns, same categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.data.dataset import Categories, Dataset
from clustersplit_cli.errors import InputError

Rows = NDArray[np.int64]


def taken(dataset: Dataset, places: Rows) -> Dataset:
    """Keep some rows of a dataset, in the order given; no copy if that is all of them, in their order."""
    if np.array_equal(places, np.arange(len(dataset.rows))):
        return dataset
    return replace(
        dataset,
        features=np.ascontiguousarray(dataset.features[places]),
        rows=dataset.rows[places],
        categories={
            word: Categories(column.codes[places], column.values)
            for word, column in dataset.categories.items()
        },
    )


def aligned(datasets: Sequence[Dataset]) -> tuple[list[Floats], tuple[tuple[str, str], ...]]:
    """Return the feature matrices with the columns of the first, and warnings."""
    first = datasets[0]
    matrices, notes = [first.features], []
    for other in datasets[1:]:
        here, there = (dataset.files[0].path for dataset in (first, other))
        if len(other.feature_names) != len(first.feature_names):
            raise InputError(
                f"{there} has {len(other.feature_names)} features but {here} has {len(first.feature_names)}",
                hint="choose the same features in all files with --columns",
            )
        if set(other.feature_names) == set(first.feature_names):
            place = {name: column for column, name in enumerate(other.feature_names)}
            order = [place[name] for name in first.feature_names]
            in_order = order == list(range(len(order)))
            matrices.append(other.features if in_order else other.features[:, order])
            continue
        matrices.append(other.features)
        pair = next(
            pair for pair in zip(first.feature_names, other.feature_names, strict=True) if pair[0] != pair[1]
        )
        notes.append(
            (
                "columns_by_position",
                f"{here} and {there} name their features differently, so they are matched by position: "
                f"{pair[0]!r} with {pair[1]!r}",
            )
        )
    return matrices, tuple(notes)


def merged(datasets: Sequence[Dataset], word: str) -> tuple[NDArray[Any], Sequence[Any]]:
    """Put one column of several datasets together; equal values are one value."""
    columns = [dataset.categories[word] for dataset in datasets]
    kinds = {isinstance(value, str) for column in columns for value in column.values}
    if len(kinds) > 1:
        raise InputError(
            f"column {word!r} holds text in one file and numbers in another", hint="store it the same way"
        )
    values = sorted({value for column in columns for value in column.values})
    code: Mapping[Any, int] = {value: place for place, value in enumerate(values)}
    return (
        np.concatenate(
            [np.array([code[value] for value in column.values], np.int64)[column.codes] for column in columns]
        ),
        values,
    )
