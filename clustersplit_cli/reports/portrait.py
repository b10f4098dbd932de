"""What a picture of a split shows beyond its numbers: where the rows lie, and what tells the sides apart."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Category:
    """One categorical column of the rows on the map: `names[codes[i]]` is the value of row i."""

    codes: tuple[int, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class RowMap:
    """The rows on the two leading directions of kernel PCA.

    Attributes
    ----------
    x, y : coordinates; of two sides, validation lies towards the right and the top on average.
    explained : share of the low-rank kernel's variance along each direction.
    rows : positions in the input.
    ids : what the user calls them, or None.
    part : the number of the row's part; 0 is training and 1 validation where there are but these.
    witness : mean kernel value with validation rows minus that with training rows; of several parts, that
        with the row's own part minus that with all others.
    categories : the columns that form cells, by the user's words.
    n_rows : rows that take part; more than are shown if the map is a sample.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    explained: tuple[float, float]
    rows: tuple[int, ...]
    ids: tuple[str, ...] | None
    part: tuple[int, ...]
    witness: tuple[float, ...]
    categories: dict[str, Category]
    n_rows: int


@dataclass(frozen=True)
class FeatureShift:
    """Mean in every part, or in validation, minus that of all other rows, in standard deviations."""

    name: str
    shifts: tuple[float, ...]


@dataclass(frozen=True)
class Distribution:
    """The values of one column: of every part the share of its rows in bins of equal width."""

    name: str
    low: float
    high: float
    shares: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class ClassDistance:
    """How far parts are apart among the rows of one class.

    Attributes
    ----------
    value : of the column that the classes are in.
    sizes : rows of every part.
    mmd : between the two sides; of more parts, between each and the rest. None where one has no row.
    """

    value: str
    sizes: tuple[int, ...]
    mmd: tuple[float | None, ...]


@dataclass(frozen=True)
class RowWitness:
    """A row that looks most like one of the sides, or its part."""

    row: int
    id: str | None
    part: int
    witness: float
    values: dict[str, str]


@dataclass(frozen=True)
class Portrait:
    """Everything the HTML report draws that `report.json` does not hold.

    Attributes
    ----------
    names : of the parts.
    random : for every random partition behind the baseline its MMD between the two sides; of folds and named
        parts, that of each part with all other rows.
    features : the columns that differ most, the largest difference first.
    n_features : all columns there are.
    typical : rows that look most like each part, the most typical first.
    distributions : of the columns that differ most.
    classes : of the column `class_word`, the most frequent first.
    """

    map: RowMap
    names: tuple[str, ...]
    random: tuple[tuple[float, ...], ...]
    features: tuple[FeatureShift, ...]
    n_features: int
    typical: tuple[tuple[RowWitness, ...], ...]
    distributions: tuple[Distribution, ...] = ()
    classes: tuple[ClassDistance, ...] = ()
    class_word: str = ""
