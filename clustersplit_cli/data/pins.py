"""Rows that the user forces to a side: files of row positions, or of ids."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.dataset import InputFile, ReadRequest
from clustersplit_cli.data.readers.arrow_values import checked
from clustersplit_cli.data.readers.fingerprint import content_of, stamp, text_of
from clustersplit_cli.data.readers.naming import listed, report_path, shown
from clustersplit_cli.data.readers.source import reading
from clustersplit_cli.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

TRAIN, VAL, FREE = 0, 1, -1
_ROLES: Mapping[str, int] = {"force-train": TRAIN, "force-val": VAL}


@dataclass(frozen=True)
class Pins:
    """Where rows are forced to: 0 training, 1 validation, -1 free; None if no row is."""

    sides: NDArray[np.int8] | None
    files: tuple[InputFile, ...]

    def restricted_to(self, kept: NDArray[np.bool_]) -> Pins:
        """The same for some of the rows."""
        return self if self.sides is None else replace(self, sides=self.sides[kept])


def read_pins(request: ReadRequest, ids: Any, n_rows: int, rows: NDArray[np.int64]) -> Pins:
    """Read which rows are forced to a side.

    Parameters
    ----------
    ids : the id of every row of the input: then the files hold ids; None: row positions.
    n_rows : rows of the input.
    rows : (n,) the rows that take part.

    Raises
    ------
    InputError
        If a row does not exist, does not take part, or is forced to both sides.
    """
    paths = {"force-train": request.force_train, "force-val": request.force_val}
    if not any(paths.values()):
        return Pins(None, ())
    sides = np.full(n_rows, FREE, np.int8)
    takes_part = np.zeros(n_rows, dtype=bool)
    takes_part[rows] = True
    files = []
    for role, path in paths.items():
        if path is None:
            continue
        positions = _positions(path, n_rows) if ids is None else _by_id(path, ids, request.id_column or "id")
        both = positions[(sides[positions] != FREE) & (sides[positions] != _ROLES[role])]
        if len(both):
            raise InputError(
                f"rows are forced to both sides: {listed(both.tolist())}",
                hint="name each in one of --force-train and --force-val",
            )
        absent = positions[~takes_part[positions]]
        if len(absent):
            raise InputError(
                f"{shown(path)} forces rows that are excluded: {listed(absent.tolist())}",
                hint=f"take them out of --{role}, or out of --exclude",
            )
        sides[positions] = _ROLES[role]
        content = content_of(path)
        files.append(InputFile(report_path(path), role, len(content), hashlib.sha256(content).hexdigest()))
    return Pins(sides[rows], tuple(files))


def forced_sides(train: Any, val: Any, n_rows: int) -> NDArray[np.int8] | None:
    """The same for rows in memory: row positions, or a mask over all rows; None if neither is given.

    Raises
    ------
    InputError
        If they are no positions of rows, or some row is forced to both sides.
    """
    if train is None and val is None:
        return None
    sides = np.full(n_rows, FREE, np.int8)
    for values, side, name in ((train, TRAIN, "force_train"), (val, VAL, "force_val")):
        if values is None:
            continue
        positions = _given_positions(values, name, n_rows)
        both = positions[(sides[positions] != FREE) & (sides[positions] != side)]
        if len(both):
            raise InputError(
                f"rows are forced to both sides: {listed(both.tolist())}",
                hint="name each in one of force_train and force_val",
            )
        sides[positions] = side
    return sides


def _given_positions(values: Any, name: str, n_rows: int) -> NDArray[np.int64]:
    given = np.asarray(values)
    if given.dtype == bool and given.shape == (n_rows,):
        return np.flatnonzero(given).astype(np.int64)
    if given.ndim != 1 or (given.dtype.kind not in "iu" and len(given)):
        raise InputError(
            f"{name} holds {given.dtype} of shape {given.shape}, not row positions",
            hint=f"pass integers from 0 to {n_rows - 1}, or a mask of {n_rows} rows",
        )
    outside = given[(given < 0) | (given >= n_rows)]
    if len(outside):
        raise InputError(
            f"{name} has row positions outside 0..{n_rows - 1}: {listed(outside.tolist())}",
            hint="positions count from 0",
        )
    return np.unique(given).astype(np.int64)


def _positions(path: Path, n_rows: int) -> NDArray[np.int64]:
    from clustersplit_cli.data.runs import read_indices  # here, because it reads with the same readers

    positions = read_indices(path)
    outside = positions[(positions < 0) | (positions >= n_rows)]
    if len(outside):
        raise InputError(
            f"{shown(path)} has row positions outside 0..{n_rows - 1}: {listed(outside.tolist())}",
            hint="positions count from 0; to give ids instead, name their column with --id",
        )
    return np.unique(positions)


def _by_id(path: Path, ids: pa.Array, name: str) -> NDArray[np.int64]:
    """Find all rows that have one of the ids in a file; every id must be there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pc.unique(_id_words(path))
    words = ids.cast(ids.type.value_type) if pa.types.is_dictionary(ids.type) else ids
    words = words.cast(pa.large_string())
    unknown = wanted.filter(pc.invert(pc.is_in(wanted, value_set=words)))
    if len(unknown):
        raise InputError(
            f"{shown(path)} has ids that column {name!r} has not: {listed(unknown.to_pylist())}",
            hint="write ids as they are in that column, one per line",
        )
    found = pc.is_in(words, value_set=wanted)
    return np.flatnonzero(found.to_numpy(zero_copy_only=False)).astype(np.int64)


def _id_words(path: Path) -> pa.Array:
    """The ids of a file as text: NPY, Parquet with one column, or text with one per line."""
    import pyarrow as pa

    stamp(path)
    with reading(path, "ids", "one id per line, NPY, or one Parquet column"):
        if path.suffix.lower() == ".npy":
            values = np.load(path, allow_pickle=False)
            return pa.array(values.reshape(-1).tolist()).cast(pa.large_string())
        if path.suffix.lower() in (".parquet", ".pq"):
            import pyarrow.parquet as pq

            ids = pq.ParquetFile(path).read().column(0).combine_chunks()
            return checked(ids).cast(pa.large_string())
        lines = text_of(path).splitlines()
    return pa.array([line for line in lines if line], pa.large_string())
