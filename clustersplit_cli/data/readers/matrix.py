"""The feature matrix: filled chunk by chunk into its own memory, then checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.readers.columns import FeatureColumns
from clustersplit_cli.data.readers.naming import listed, shown
from clustersplit_cli.data.readers.source import BLOCK_BYTES, Source, reading
from clustersplit_cli.errors import InputError, MemoryPlanError
from clustersplit_cli.progress import Progress

Matrix = NDArray[np.floating[Any]]
_SHOWN_ROWS = 3


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
        hint="leave those rows out with --drop-invalid; row numbers stay as they are in the file",
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
