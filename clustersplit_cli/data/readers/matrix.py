"""The feature matrix: filled chunk by chunk into its own memory, then checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.dataset import Categories, ReadRequest
from clustersplit_cli.data.readers.columns import FeatureColumns
from clustersplit_cli.data.readers.naming import listed, shown
from clustersplit_cli.data.readers.source import BLOCK_BYTES, Source, reading
from clustersplit_cli.errors import InputError, MemoryPlanError, UsageError
from clustersplit_cli.progress import Progress

Matrix = NDArray[np.floating[Any]]
Cell = tuple[Any, ...]
_SHOWN_ROWS = 3
_SHOWN_COLUMNS = 3
_SHOWN_VALUES = 4
CURE_OF_INVALID = (
    "leave those rows out with --drop-invalid, which keeps the row numbers of the file, or fill what is "
    "missing with --impute median"
)


@dataclass
class Invalid:
    """Rows with features that are not finite, counted by column.

    Attributes
    ----------
    n : such rows.
    rows : (d,) those that are not finite in the column.
    alone : (d,) those that are not finite in this column only: they could be kept without it.
    """

    n: int
    rows: NDArray[np.int64]
    alone: NDArray[np.int64]

    @classmethod
    def none(cls, d: int) -> Invalid:
        """No rows so far, of d columns."""
        return cls(0, np.zeros(d, np.int64), np.zeros(d, np.int64))

    def add(self, rows: Matrix) -> None:
        """Count rows of which each has a value that is not finite."""
        bad = ~np.isfinite(rows)
        self.n += len(bad)
        self.rows += bad.sum(axis=0)
        self.alone += bad[bad.sum(axis=1) == 1].sum(axis=0)

    def merge(self, other: Invalid) -> None:
        """Add the counts of other rows."""
        self.n += other.n
        self.rows += other.rows
        self.alone += other.alone

    def in_words(self, names: Sequence[str]) -> str:
        """Name the columns that most rows are lost by, and what leaving each of them out would keep."""
        worst = [int(column) for column in np.argsort(-self.rows, kind="stable") if self.rows[column]]
        said = [
            f"{names[column]} in {self.rows[column]} rows ({self.alone[column]} of them in no other column)"
            for column in worst[:_SHOWN_COLUMNS]
        ]
        more = f" and {len(worst) - _SHOWN_COLUMNS} more columns" if len(worst) > _SHOWN_COLUMNS else ""
        return ", ".join(said) + more


def about_dropped(
    invalid: Invalid,
    names: Sequence[str],
    words: Sequence[str],
    kept: Mapping[Cell, int],
    dropped: Mapping[Cell, int],
) -> tuple[str, str]:
    """Say which rows are lost: by column, by the values of every word, and the cells that vanished.

    Parameters
    ----------
    words : what the columns of the cells are called.
    kept, dropped : rows of every cell, by the values of its columns.
    """
    total = invalid.n + sum(kept.values())
    said = [f"{invalid.n} of {total} rows are dropped, not finite in {invalid.in_words(names)}"]
    for place, word in enumerate(words):
        lost, whole = _by_value(dropped, place), _by_value({**kept}, place)
        shares = sorted(
            lost, key=lambda value: (-lost[value] / (lost[value] + whole.get(value, 0)), str(value))
        )
        listed_ = [f"{value} {lost[value]} of {lost[value] + whole.get(value, 0)}" for value in shares]
        more = f" and {len(shares) - _SHOWN_VALUES} more" if len(shares) > _SHOWN_VALUES else ""
        said.append(f"by {word}: {', '.join(listed_[:_SHOWN_VALUES])}{more}")
    gone = [cell for cell in dropped if cell not in kept] if words else []
    if gone:
        spelled = sorted(
            ", ".join(f"{word}={value}" for word, value in zip(words, cell, strict=True)) for cell in gone
        )
        named = "; ".join(spelled[:_SHOWN_ROWS])
        more = f"; and {len(gone) - _SHOWN_ROWS} more" if len(gone) > _SHOWN_ROWS else ""
        said.append(f"no row is left of {len(gone)} cell{'s' * (len(gone) != 1)} ({named}{more})")
    return "dropped_rows", "; ".join(said) + "; leave columns out with --columns, or use --impute median"


def _by_value(cells: Mapping[Cell, int], place: int) -> dict[Any, int]:
    """Sum the rows of cells with the same value of one column."""
    found: dict[Any, int] = {}
    for cell, count in cells.items():
        found[cell[place]] = found.get(cell[place], 0) + count
    return found


def cell_counts(columns: Sequence[Categories], chosen: NDArray[np.bool_]) -> dict[Cell, int]:
    """Count the chosen rows of every cell, by the values of its columns."""
    if not columns:
        return {(): int(chosen.sum())}
    codes = np.stack([column.codes[chosen] for column in columns], axis=1)
    cells, counts = np.unique(codes, axis=0, return_counts=True)
    return {
        tuple(column.values[code] for column, code in zip(columns, cell, strict=True)): count
        for cell, count in zip(cells.tolist(), counts.tolist(), strict=True)
    }


def dropping(
    matrix: Matrix, finite: NDArray[np.bool_], names: Sequence[str], categories: Mapping[str, Categories]
) -> tuple[str, str]:
    """The note on the rows that are dropped because they are not finite."""
    invalid, offenders = Invalid.none(matrix.shape[1]), np.flatnonzero(~finite)
    step = _rows_per_block(matrix)
    for start in range(0, len(offenders), step):
        invalid.add(matrix[offenders[start : start + step]])
    columns = list(categories.values())
    counts = cell_counts(columns, finite), cell_counts(columns, ~finite)
    return about_dropped(invalid, names, tuple(categories), *counts)


def impute_median(matrix: Matrix, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Fill what is missing with the median of its column, in place; return a note if anything was.

    Raises
    ------
    InputError
        If a column has no value at all.
    """
    missing = np.zeros(matrix.shape[1], np.int64)
    for rows in _row_blocks(matrix):
        missing += np.isnan(matrix[rows]).sum(axis=0)
    for column in np.flatnonzero(missing).tolist():
        if missing[column] == len(matrix):
            raise InputError(
                f"column {names[column]!r} has no value in any row, so it has no median",
                hint="leave it out with --columns",
            )
        values = matrix[:, column]
        gaps = np.isnan(values)
        values[gaps] = np.median(values[~gaps].astype(np.float64))
    if not missing.any():
        return ()
    worst = np.argsort(-missing, kind="stable")[:_SHOWN_COLUMNS]
    said = ", ".join(f"{names[column]} in {missing[column]} rows" for column in worst if missing[column])
    more = int((missing > 0).sum()) - _SHOWN_COLUMNS
    note = (
        f"{missing.sum()} missing values are taken for the median of their column where rows are compared: "
        f"{said}{f' and {more} more columns' if more > 0 else ''}"
    )
    return (("imputed", note),)


def read_matrix(
    source: Source, features: FeatureColumns, kept: NDArray[np.bool_], progress: Progress
) -> Matrix:
    """Read the feature columns of the kept rows.

    Parameters
    ----------
    kept : (n_rows,) whether a row takes part.

    Returns
    -------
    (kept.sum(), d) C-contiguous matrix of `features.dtype`; nulls are NaN.
    """
    n_rows = len(kept)
    position = np.concatenate(([0], np.cumsum(kept)))  # of every row in the matrix
    width = None if features.is_list else len(features.names)
    matrix = None if width is None else _allocate(int(position[-1]), width, features)
    covered = 0.0  # rows, counting a row of which half the columns are read as a half
    for chunk in source.scan(features.names):
        stop = chunk.start + chunk.n_rows
        covered += chunk.n_rows * (chunk.width / (width or chunk.width) if chunk.width else 1.0)
        if stop > n_rows:
            break
        keep = kept[chunk.start : stop]
        begin, end = int(position[chunk.start]), int(position[stop])
        with reading(source.path, "features"):
            values = chunk.values(None if keep.all() else keep, width) if end > begin else None
        if values is not None:
            if matrix is None:
                width = values.shape[1]
                matrix = _allocate(int(position[-1]), width, features)
                matrix[:begin] = np.nan  # null lists that came before the first list
            matrix[begin:end, chunk.first : chunk.first + values.shape[1]] = values
        progress("read", min(n_rows, round(covered)), n_rows)
    if round(covered) != n_rows:
        raise InputError(
            f"{shown(source.path)} does not hold the {n_rows} rows it declares", hint="write it again"
        )
    if matrix is None or matrix.shape[1] == 0:
        raise InputError(
            f"column {features.names[0]!r} of {shown(source.path)} has only empty or null lists",
            hint="choose other features with --columns",
        )
    return matrix


def _allocate(n: int, width: int, features: FeatureColumns) -> Matrix:
    """Reserve the matrix; its pages are only taken from the system as they are filled."""
    try:
        return np.empty((n, width), features.dtype)
    except (MemoryError, ValueError):
        gigabytes = n * width * features.dtype.itemsize / 1e9
        raise MemoryPlanError(
            f"the features need {gigabytes:.1f} GB of memory ({n} rows, {width} columns, {features.dtype})",
            hint="choose fewer columns with --columns, or use a machine with more memory",
        ) from None


def of_kept(matrix: Matrix, request: ReadRequest, rows: NDArray[np.int64], n_rows: int) -> Matrix:
    """The values of pairs of kept rows, of shape (n, n), from those of kept rows with all rows."""
    name = shown(request.path)
    refuse_not_square(matrix.shape[1], n_rows, name, request.pairs or "")
    refused = {"--drop-invalid": request.drop_invalid, f"--impute {request.impute}": request.impute != "none"}
    for option, is_given in refused.items():
        if is_given:
            raise UsageError(
                f"{option} has no effect on {request.pairs} of pairs of rows",
                hint="leave rows out with --exclude",
            )
    return matrix if len(rows) == n_rows else np.ascontiguousarray(matrix[:, rows])


def refuse_not_square(width: int, n_rows: int, name: str, what: str) -> None:
    """Refuse a matrix that has not a column for every row."""
    if width != n_rows:
        raise InputError(
            f"{name} has {n_rows} rows and {width} feature columns, and {what} need a column for every row",
            hint="choose them with --columns, or leave --kernel precomputed and --distances out",
        )


def finite_rows(matrix: Matrix) -> NDArray[np.bool_]:
    """Mark the rows without NaN and infinities."""
    finite = np.ones(len(matrix), np.bool_)
    for rows in _row_blocks(matrix):
        finite[rows] = np.isfinite(matrix[rows]).all(axis=1)
    return finite


def not_finite(
    path: Path, matrix: Matrix, finite: NDArray[np.bool_], rows: NDArray[np.int64], names: tuple[str, ...]
) -> InputError:
    """Say how many rows have NaN or infinite features, and where the first of them are."""
    offenders = np.flatnonzero(~finite)
    places = []
    for row in offenders[:_SHOWN_ROWS].tolist():
        bad = np.flatnonzero(~np.isfinite(matrix[row])).tolist()
        places.append(f"row {rows[row]} ({listed([names[column] for column in bad], 3)})")
    more = f" and {len(offenders) - _SHOWN_ROWS} more" if len(offenders) > _SHOWN_ROWS else ""
    return InputError(
        f"{len(offenders)} of {len(matrix)} rows of {shown(path)} have missing, NaN or infinite features: "
        f"{', '.join(places)}{more}",
        hint=CURE_OF_INVALID,
    )


def drop_rows(matrix: Matrix, kept: NDArray[np.bool_]) -> Matrix:
    """Move the kept rows up and give the rest of the memory back; `matrix` must own its memory."""
    rows = np.flatnonzero(kept)
    step = _rows_per_block(matrix)
    for start in range(0, len(rows), step):
        # The right-hand side is gathered first, and a row never moves down: nothing is overwritten unread.
        moved = rows[start : start + step]
        matrix[start : start + len(moved)] = matrix[moved]
    matrix.resize((len(rows), matrix.shape[1]), refcheck=False)
    return matrix


def is_constant(matrix: Matrix) -> bool:
    """Whether all rows are the same."""
    return all(bool((matrix[rows] == matrix[0]).all()) for rows in _row_blocks(matrix))


def _row_blocks(matrix: Matrix) -> Iterator[slice]:
    """Cut the rows into blocks that fit the cache."""
    step = _rows_per_block(matrix)
    return (slice(start, start + step) for start in range(0, len(matrix), step))


def _rows_per_block(matrix: Matrix) -> int:
    row_bytes: int = matrix.itemsize * matrix.shape[1]
    return max(1, BLOCK_BYTES // 8 // max(1, row_bytes))
