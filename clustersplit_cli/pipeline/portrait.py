"""From rows and their parts to the portrait that the HTML report draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Labels
from clustersplit_cli.core.constraints.quotas import SIDES, TRAIN, VAL
from clustersplit_cli.core.geometry.features import Features, Floats
from clustersplit_cli.core.geometry.protocol import Geometry
from clustersplit_cli.core.mmd.witness import column_shifts
from clustersplit_cli.core.parallel import Workers, tiles
from clustersplit_cli.core.search.partition import measure
from clustersplit_cli.core.search.problem import Members
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.reports.portrait import (
    Category,
    ClassDistance,
    Distribution,
    FeatureShift,
    Portrait,
    RowMap,
    RowWitness,
)

MAP_ROWS = 10_000
"""More points than that are slow to draw and hide each other."""
FEATURES_SHOWN = 12
DISTRIBUTIONS, BINS, OUTSIDE = 6, 24, 0.005
"""Columns whose values are drawn, their bins, and the share of values beyond them at each end."""
CLASSES = 20
ROWS_SHOWN, ROWS_PER_PART = 8, 3
"""Typical rows of either side, and of every fold or named part."""
LONGEST_ID = 80
_BLOCK_ROWS = 2048
_DIGITS = 5


def portray(
    dataset: Dataset,
    geometry: Geometry,
    factors: Floats,
    labels: Labels,
    names: tuple[str, ...] | None,
    random: NDArray[np.float64],
    workers: Workers,
    rng: np.random.Generator,
) -> Portrait:
    """Draw the rows on a map and find what tells the parts apart.

    Parameters
    ----------
    factors : (n, p), of a low-rank kernel whose leading directions make the map.
    labels : (n,)
    names : of the parts; None for the two sides of a split.
    random : (random partitions, values), as `Portrait` has them.
    rng : chooses the rows of the map if there are too many.
    """
    is_split = names is None
    names = SIDES if names is None else names
    k = len(names)
    witness = witness_of(geometry, labels, k, is_split=is_split)
    compared = [VAL] if is_split else range(k)  # of two sides, one against the other says it all
    shifts = np.stack(
        [
            column_shifts(
                Features(dataset.features),
                [(np.flatnonzero(labels != part), np.flatnonzero(labels == part))],
                [1.0],
                workers,
            )
            for part in compared
        ]
    )
    order = np.argsort(-np.abs(shifts).max(axis=0), kind="stable")[:FEATURES_SHOWN]
    if is_split:
        by_witness = np.argsort(-witness, kind="stable")
        shown = min(ROWS_SHOWN, len(witness) // 2)
        typical = [by_witness[::-1][:shown], by_witness[:shown]]
    else:
        members = [np.flatnonzero(labels == part) for part in range(k)]
        typical = [rows[np.argsort(-witness[rows], kind="stable")[:ROWS_PER_PART]] for rows in members]
    towards = labels == (VAL if is_split else 0)
    return Portrait(
        map=row_map(dataset, factors, labels, witness, workers, rng, towards=towards),
        names=names,
        random=tuple(map(tuple, random.tolist())),
        features=tuple(
            FeatureShift(dataset.feature_names[column], tuple(shifts[:, column].tolist())) for column in order
        ),
        n_features=shifts.shape[1],
        typical=tuple(rows_with_witness(dataset, labels, witness, rows) for rows in typical),
        distributions=distributions(dataset, labels, k, order[:DISTRIBUTIONS]),
        classes=class_distances(dataset, geometry, labels, k),
        class_word=class_word(dataset),
    )


def witness_of(geometry: Geometry, labels: Labels, k: int, *, is_split: bool) -> NDArray[np.float64]:
    """Mean kernel value of every row with its own part minus that with all others; shape (n,).

    Of a split, that with validation rows minus that with training rows.
    """
    state = measure(geometry, labels[:, None], k, np.float64)
    sums = state.sums[:, 0]
    if is_split:
        means = sums / state.sizes[0]
        return np.asarray(means[:, VAL] - means[:, TRAIN])
    own = np.take_along_axis(sums, labels[:, None], axis=1)[:, 0]
    size = state.sizes[0][labels]
    return np.asarray(own / size - (sums.sum(axis=1) - own) / (len(labels) - size))


def distributions(
    dataset: Dataset, labels: NDArray[np.int64], k: int, columns: NDArray[np.int64]
) -> tuple[Distribution, ...]:
    """Count the values of some columns in every part; values beyond the bins' ends are in the last ones."""
    found = []
    for column in columns.tolist():
        values = np.asarray(Features(dataset.features[:, [column]]).block(0, len(labels)))[:, 0]
        low, high = np.quantile(values, [OUTSIDE, 1 - OUTSIDE]).tolist()
        if not low < high:
            low, high = float(values.min()), float(values.max())
        bins = np.clip((values - low) / ((high - low) or 1.0) * BINS, 0, BINS - 1).astype(np.int64)
        shares = tuple(
            tuple(
                (np.bincount(bins[labels == part], minlength=BINS) / max((labels == part).sum(), 1)).tolist()
            )
            for part in range(k)
        )
        found.append(Distribution(dataset.feature_names[column], float(low), float(high), shares))
    return tuple(found)


def class_word(dataset: Dataset) -> str:
    """The column whose values are the classes: the label, or else the first that forms cells."""
    return "label" if "label" in dataset.categories else next(iter(dataset.categories), "")


def class_distances(
    dataset: Dataset, geometry: Geometry, labels: NDArray[np.int64], k: int
) -> tuple[ClassDistance, ...]:
    """Measure parts against all other rows, among the rows of each class alone."""
    word = class_word(dataset)
    if not word:
        return ()
    column = dataset.categories[word]
    sizes = np.bincount(column.codes * k + labels, minlength=len(column.values) * k).reshape(-1, k)
    chosen = np.argsort(-sizes.sum(axis=1), kind="stable")[:CLASSES]
    own = [1] if k == 2 else range(k)  # of two parts, one against the rest is the other one too
    pairs = [(code, part) for code in chosen.tolist() for part in own]
    weights = np.zeros((len(labels), len(pairs)))
    for place, (code, part) in enumerate(pairs):
        inside, here = column.codes == code, labels == part
        counts = sizes[code, part], sizes[code].sum() - sizes[code, part]
        if min(counts):
            weights[inside & here, place] = 1.0 / counts[0]
            weights[inside & ~here, place] = -1.0 / counts[1]
    squared = np.maximum(geometry.energy(weights), 0.0)
    values = [
        float(value**0.5) if weights[:, place].any() else None for place, value in enumerate(squared.tolist())
    ]
    return tuple(
        ClassDistance(
            str(column.values[code]),
            tuple(sizes[code].tolist()),
            tuple(value for value, (other, _) in zip(values, pairs, strict=True) if other == code),
        )
        for code in chosen.tolist()
    )


def row_map(
    dataset: Dataset,
    factors: Floats,
    labels: NDArray[np.int64],
    witness: NDArray[np.float64],
    workers: Workers,
    rng: np.random.Generator,
    *,
    towards: Members,
) -> RowMap:
    """Place the rows on the leading directions of the factors.

    Parameters
    ----------
    labels : (n,) the number of every row's part.
    towards : (n,) rows that are to lie to the right and at the top, on average.
    """
    n = len(labels)
    sample = np.arange(n) if n <= MAP_ROWS else np.sort(rng.choice(n, MAP_ROWS, replace=False))
    centre, directions, explained = leading_directions(factors, workers)
    place = (factors[sample].astype(np.float64) - centre) @ directions
    gap = (factors[towards].mean(axis=0, dtype=np.float64) - centre) @ directions
    place *= np.where(gap < 0, -1.0, 1.0)
    return RowMap(
        x=_rounded(place[:, 0]),
        y=_rounded(place[:, 1]),
        explained=explained,
        rows=tuple(dataset.rows[sample].tolist()),
        ids=_ids(dataset, sample),
        part=tuple(labels[sample].tolist()),
        witness=_rounded(witness[sample]),
        categories={
            word: Category(tuple(column.codes[sample].tolist()), tuple(map(str, column.values)))
            for word, column in dataset.categories.items()
        },
        n_rows=n,
    )


def leading_directions(
    factors: Floats, workers: Workers
) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[float, float]]:
    """The mean of the factors' rows, the two directions along which they vary most, and their shares.

    Returns
    -------
    (p,), (p, 2), and the share of the total variance along each direction. A direction that does not
    exist is zero.
    """
    n, p = factors.shape
    centre = factors.mean(axis=0, dtype=np.float64)

    def scatter(tile: tuple[int, int]) -> NDArray[np.float64]:
        block = factors[slice(*tile)].astype(np.float64) - centre
        return np.asarray(block.T @ block)

    total = sum(workers.map(scatter, tiles(n, _BLOCK_ROWS)), np.zeros((p, p)))
    values, vectors = np.linalg.eigh(total)
    directions = np.zeros((p, 2))
    directions[:, : min(p, 2)] = vectors[:, ::-1][:, :2]
    leading = [*np.maximum(values[::-1][:2], 0.0).tolist(), 0.0][:2]
    whole = float(np.trace(total)) or 1.0
    return centre, directions, (leading[0] / whole, leading[1] / whole)


def rows_with_witness(
    dataset: Dataset, labels: NDArray[Any], witness: NDArray[np.float64], rows: NDArray[np.int64]
) -> tuple[RowWitness, ...]:
    """Describe some rows: what they are called, their part, witness and categories."""
    ids = _ids(dataset, rows)
    return tuple(
        RowWitness(
            row=int(dataset.rows[row]),
            id=None if ids is None else ids[place],
            part=int(labels[row]),
            witness=float(witness[row]),
            values={
                word: str(column.values[column.codes[row]]) for word, column in dataset.categories.items()
            },
        )
        for place, row in enumerate(rows.tolist())
    )


def _ids(dataset: Dataset, rows: NDArray[np.int64]) -> tuple[str, ...] | None:
    """What the user calls these rows, shortened to what a label can show."""
    if dataset.ids is None:
        return None
    chosen = dataset.ids.take(dataset.rows[rows]).to_pylist()
    return tuple(
        text if len(text) <= LONGEST_ID else f"{text[: LONGEST_ID - 1]}…" for text in map(str, chosen)
    )


def _rounded(values: NDArray[np.float64]) -> tuple[float, ...]:
    """Keep as many digits as a screen can show."""
    return tuple(float(f"{value:.{_DIGITS}g}") for value in values.tolist())
