"""Which rows are compared with which: files, the groups of a column, or the sides of a split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Cells, joint_cells
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.data.dataset import Categories, Dataset, InputFile
from clustersplit_cli.errors import InputError
from clustersplit_cli.reports.mmd.summary import EarlierReport
from clustersplit_cli.similarity import Nearness

MOST_GROUPS = 256
TRAIN, VAL, EVALUATION = "train", "val", "evaluation"
_SHOWN = 5

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """One group of rows, as positions in the pool."""

    name: str
    rows: Rows


@dataclass(frozen=True)
class Comparison:
    """A pool of rows and the parts of it to be compared.

    Attributes
    ----------
    features : (n, d) the pool: all rows that take part, and no others.
    feature_names : of the d columns.
    has_scalar_columns : whether those are columns of their own, and not elements of a list.
    parts : the groups; every row of the pool is in one of them.
    n_fitted : the kernel's width and the standardization are resolved on that many rows from the first.
    cells : the cells that parts are compared within; None to compare them as a whole.
    positions : (n,) position of each row in its file.
    sides : whether the parts are train and val, with evaluation the third if there is one.
    files : everything that was read.
    """

    features: Floats
    feature_names: tuple[str, ...]
    feature_columns: tuple[str, ...]
    has_scalar_columns: bool
    parts: tuple[Part, ...]
    n_fitted: int
    cells: Cells | None
    positions: Rows
    sides: bool
    files: tuple[InputFile, ...]
    n_excluded: int
    n_dropped: int
    notes: tuple[tuple[str, str], ...]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Every pair of parts, in order."""
        return [(i, j) for i in range(len(self.parts)) for j in range(i + 1, len(self.parts))]

    @property
    def main_pair(self) -> tuple[int, int] | None:
        """The pair the comparison is about: the sides of a split, or the only two parts."""
        return (0, 1) if self.sides or len(self.parts) == 2 else None


@dataclass(frozen=True)
class Question:
    """What to find out about a comparison.

    Attributes
    ----------
    estimator : biased or unbiased.
    permutations : regroupings per test; 0 for no test.
    earlier : what the report of the split says, if this program made it.
    optimised : whether the sides were chosen for being far apart.
    near : how similar rows of the main pair are to be counted; None: not at all.
    """

    estimator: str = "biased"
    permutations: int = 0
    earlier: EarlierReport | None = None
    optimised: bool = False
    near: Nearness | None = None

    @property
    def reuses_report(self) -> bool:
        """Whether the report states this very number, so that it must come out again."""
        return self.earlier is not None and self.earlier.reused and self.estimator == "biased"


def compare_files(datasets: Sequence[Dataset], names: Sequence[str], within: Sequence[str]) -> Comparison:
    """Compare whole files with each other."""
    parts, start = [], 0
    for name, dataset in zip(_distinct(names), datasets, strict=True):
        parts.append(Part(name, np.arange(start, start + len(dataset.rows))))
        start += len(dataset.rows)
    return _comparison(datasets, parts, within, sides=False)


def compare_groups(dataset: Dataset, word: str, within: Sequence[str]) -> Comparison:
    """Compare the groups that a column's values make."""
    column = dataset.categories[word]
    if len(column.values) < 2:
        raise InputError(
            f"column {word!r} has the value {column.values[0]!r} in all rows: there is nothing to compare",
            hint="choose another column with --by",
        )
    if len(column.values) > MOST_GROUPS:
        raise InputError(
            f"column {word!r} has {len(column.values)} distinct values, and --by takes at most {MOST_GROUPS}",
            hint="choose a column of groups, or bin its values",
        )
    order = np.argsort(column.codes, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(column.codes))[:-1])
    parts = [Part(str(value), rows) for value, rows in zip(column.values, groups, strict=True)]
    return _comparison([dataset], parts, within, sides=False)


def compare_sides(
    dataset: Dataset,
    train: Rows,
    val: Rows,
    within: Sequence[str],
    *,
    evaluation: Dataset | None = None,
    evaluation_domain: str | None = None,
    fit_on_sides: bool = False,
) -> Comparison:
    """Compare the sides of a split, and both with an evaluation set if there is one.

    Parameters
    ----------
    train, val : row positions in the file, of any origin; checked here.
    evaluation : the evaluation set as a dataset of its own, or
    evaluation_domain : the domain of `dataset` whose rows it is.
    fit_on_sides : resolve width and standardization without the evaluation rows, as `split` did.
    """
    places = {TRAIN: _places(dataset, train, TRAIN), VAL: _places(dataset, val, VAL)}
    both = np.intersect1d(places[TRAIN], places[VAL])
    if len(both):
        raise InputError(
            f"{len(both)} rows are in both train and val: {_listed(dataset.rows[both])}",
            hint="a row can be on one side only",
        )
    sides = np.sort(np.concatenate([places[TRAIN], places[VAL]]))
    is_val = np.isin(sides, places[VAL])
    held_out = np.empty(0, np.int64)
    if evaluation_domain is not None:
        held_out = _domain_rows(dataset, evaluation_domain, sides)
    datasets = [taken(dataset, np.concatenate([sides, held_out]))]
    parts = [Part(TRAIN, np.flatnonzero(~is_val)), Part(VAL, np.flatnonzero(is_val))]
    if evaluation is not None:
        datasets.append(evaluation)
    n_evaluation = sum(len(each.rows) for each in datasets) - len(sides)
    if n_evaluation:
        parts.append(Part(EVALUATION, len(sides) + np.arange(n_evaluation)))
    return _comparison(datasets, parts, within, sides=True, n_fitted=len(sides) if fit_on_sides else None)


def _comparison(
    datasets: Sequence[Dataset],
    parts: Sequence[Part],
    within: Sequence[str],
    *,
    sides: bool,
    n_fitted: int | None = None,
) -> Comparison:
    """Put the rows of all datasets into one pool."""
    first = datasets[0]
    matrices, notes = aligned(datasets)
    features = matrices[0] if len(matrices) == 1 else np.concatenate(matrices)
    cells = None
    if within:
        cells = joint_cells({word: merged(datasets, word) for word in within}, len(features))
    return Comparison(
        features=features,
        feature_names=first.feature_names,
        feature_columns=first.feature_columns,
        has_scalar_columns=first.feature_names == first.feature_columns,
        parts=tuple(parts),
        n_fitted=len(features) if n_fitted is None else n_fitted,
        cells=cells,
        positions=np.concatenate([dataset.rows for dataset in datasets]),
        sides=sides,
        files=tuple(file for dataset in datasets for file in dataset.files),
        n_excluded=sum(dataset.n_excluded for dataset in datasets),
        n_dropped=sum(dataset.n_dropped for dataset in datasets),
        notes=tuple(dict.fromkeys(note for dataset in datasets for note in dataset.notes)) + notes,
    )


def _places(dataset: Dataset, positions: Rows, side: str) -> Rows:
    """Turn row positions in the file into rows of the dataset, or say which of them cannot be used."""
    if not len(positions):
        raise InputError(f"there are no {side} rows", hint="both sides of a split need rows")
    outside = positions[(positions < 0) | (positions >= dataset.n_rows)]
    if len(outside):
        raise InputError(
            f"{len(outside)} {side} rows are not among the {dataset.n_rows} rows of the features: "
            f"{_listed(outside)}",
            hint="row positions count from 0; name the features that the split was made from",
        )
    distinct, counts = np.unique(positions, return_counts=True)
    repeated = distinct[counts > 1]
    if len(repeated):
        raise InputError(
            f"{len(repeated)} {side} rows are listed more than once: {_listed(repeated)}",
            hint="list every row once",
        )
    place = np.full(dataset.n_rows, -1, np.int64)
    place[dataset.rows] = np.arange(len(dataset.rows))
    found = place[positions]
    missing = positions[found < 0]
    if len(missing):
        raise InputError(
            f"{len(missing)} {side} rows were left out by --exclude or --drop-invalid: {_listed(missing)}",
            hint="exclude only what the split excluded",
        )
    return np.sort(found)


def _domain_rows(dataset: Dataset, name: str, sides: Rows) -> Rows:
    """Find the rows of the evaluation domain, none of which may be on a side of the split."""
    domain = dataset.categories["domain"]
    matching = [code for code, value in enumerate(domain.values) if str(value) == name]
    if not matching:
        names = ", ".join(str(value) for value in domain.values[:10])
        raise InputError(f"no row has the domain {name!r}", hint=f"--evaluation-domain is one of: {names}")
    rows = np.flatnonzero(np.isin(domain.codes, matching))
    shared = np.intersect1d(rows, sides)
    if len(shared):
        raise InputError(
            f"{len(shared)} rows of the evaluation domain {name!r} are in train or val: "
            f"{_listed(dataset.rows[shared])}",
            hint=f"make the split with --exclude domain={name}, or name a domain that it left out",
        )
    return rows


def _distinct(names: Sequence[str]) -> list[str]:
    """Number names that repeat: two files can have the same."""
    seen: Counter[str] = Counter()
    result = []
    for name in names:
        seen[name] += 1
        result.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return result


def _listed(rows: Rows) -> str:
    shown = ", ".join(str(row) for row in rows[:_SHOWN].tolist())
    return shown + (f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else "")


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
