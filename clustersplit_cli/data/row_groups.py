"""A Parquet dataset as row groups that can be read one by one, here or on another machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.readers.arrow_values import ArrowChunk, checked
from clustersplit_cli.data.readers.columns import FeatureColumns
from clustersplit_cli.data.readers.facade import open_request, reading_notes
from clustersplit_cli.data.readers.fingerprint import Stamp
from clustersplit_cli.data.readers.naming import shown
from clustersplit_cli.data.readers.parquet import ParquetSource, open_parquet
from clustersplit_cli.data.readers.source import reading
from clustersplit_cli.errors import InputError, UsageError, needs_all_rows

BATCH_BYTES = 16 << 20
ROWS_MULTIPLE = 2048
_BUFFERS = 32 << 20
"""Bytes of all columns' read buffers together."""
_CURE = "use --engine local"


@dataclass(frozen=True)
class RowGroup:
    """One row group of one file.

    Attributes
    ----------
    path : the file, or the URL in the form of a path.
    first : its first row in the dataset.
    partition : the hive partition's columns, as pyarrow scalars by name.
    """

    path: Path
    index: int
    n_rows: int
    first: int
    bytes: int
    partition: Mapping[str, Any]


@dataclass(frozen=True)
class Layout:
    """What is read of a dataset, and where it lies; small enough to be sent to another machine.

    Attributes
    ----------
    width : number of features.
    row_bytes : bytes of a row's features or factors, whichever are more.
    family : the columns that form cells, by the user's words.
    exclude : (word, column, value as text) of rows to leave out.
    """

    path: Path
    groups: tuple[RowGroup, ...]
    features: FeatureColumns
    width: int
    row_bytes: int
    family: Mapping[str, str]
    exclude: tuple[tuple[str, str, str], ...]
    drop_invalid: bool
    stamps: tuple[Stamp, ...]
    notes: tuple[tuple[str, str], ...]

    @property
    def n_rows(self) -> int:
        """Rows of the whole dataset."""
        return sum(group.n_rows for group in self.groups)

    @property
    def batch_rows(self) -> int:
        """Rows read at a time; depends on the dataset alone, so that sums come out the same everywhere."""
        rows = BATCH_BYTES // self.row_bytes
        return max(ROWS_MULTIPLE, rows // ROWS_MULTIPLE * ROWS_MULTIPLE)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The name of every feature."""
        return self.features.feature_names(self.width)


@dataclass(frozen=True)
class Batch:
    """Some rows of one row group: the columns that were asked for."""

    layout: Layout
    group: RowGroup
    first: int
    table: Any

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    def column(self, name: str) -> Any:
        """A column, as a pyarrow ChunkedArray; that of a partition is constant."""
        import pyarrow as pa

        if name in self.group.partition:
            return pa.chunked_array([pa.repeat(self.group.partition[name], self.n_rows)])
        return pa.chunked_array([self.table.column(name)])

    def features(self) -> NDArray[np.floating[Any]]:
        """The feature matrix of the rows; nulls are NaN."""
        names, layout = self.layout.features.names, self.layout
        arrays = [self.column(name).combine_chunks() for name in names]
        arrays = [array.chunk(0) if hasattr(array, "chunk") else array for array in arrays]
        chunk = ArrowChunk(self.group.path, self.first, 0, names, arrays, layout.features.is_list)
        with reading(self.group.path, "Parquet"):
            values = chunk.values(None, layout.width)
        assert values is not None
        return np.ascontiguousarray(values, dtype=layout.features.dtype)


def open_layout(request: ReadRequest, factors: int = 0) -> Layout:
    """Open a Parquet dataset for reading in row groups; nothing but footers is read.

    Parameters
    ----------
    factors : numbers that will be made of every row.

    Raises
    ------
    UsageError
        If the request needs what only the local engine can do.
    InputError
        If a file is missing or damaged, or a column that is needed does not exist.
    """
    unsupported = {
        "--label-file": request.label_file,
        "--domain-file": request.domain_file,
        "--metadata": request.metadata,
        "--label-bins": request.label_bins,
        "--keep-together": request.together,
        "--force-train": request.force_train,
        "--force-val": request.force_val,
        "--id": request.id_column,
        "several --stratify": request.families or None,
    }
    given = [name for name, value in unsupported.items() if value is not None]
    if given:
        raise needs_all_rows(", ".join(given))
    inputs, roles, features = open_request(request)
    source = inputs.features
    if not isinstance(source, ParquetSource):
        raise UsageError(
            f"{shown(request.path)} is not Parquet, which is what can be read in pieces",
            hint=f"convert it to Parquet, or {_CURE}",
        )
    used = [*features.names, *(place.column for place in roles.family.values())]
    source.check_same_types([*used, *(place.column for _, place, _ in roles.exclude)])
    groups = tuple(_row_groups(source))
    if not groups:
        raise InputError(f"{shown(request.path)} has no rows", hint="a split needs at least two rows")
    width = source.columns[features.names[0]].width if features.is_list else len(features.names)
    width = _list_width(groups, features) if width is None else width
    if width == 0:
        raise InputError(
            f"column {features.names[0]!r} of {shown(request.path)} has only empty lists",
            hint="choose other features with --columns",
        )
    itemsize = features.dtype.itemsize
    return Layout(
        path=request.path,
        groups=groups,
        features=features,
        width=width,
        row_bytes=max(width * itemsize, factors * max(itemsize, 4)),
        family={word: place.column for word, place in roles.family.items()},
        exclude=tuple((word, place.column, value) for word, place, value in roles.exclude),
        drop_invalid=request.drop_invalid,
        stamps=tuple(source.stamps),
        notes=reading_notes(inputs, roles, features),
    )


def read_batches(layout: Layout, groups: Sequence[RowGroup], names: Sequence[str]) -> Iterator[Batch]:
    """Read columns of some row groups, `layout.batch_rows` rows at a time and never across two groups."""
    import pyarrow as pa

    opened: tuple[Path, Any] | None = None
    for group in groups:
        stored = [name for name in names if name not in group.partition]
        with reading(group.path, "Parquet"):
            if opened is None or opened[0] != group.path:
                buffer = max(1 << 14, min(1 << 20, _BUFFERS // max(1, len(stored))))
                opened = (group.path, open_parquet(group.path, buffer_size=buffer))
            first = group.first
            held: list[Any] = []
            for part in opened[1].iter_batches(layout.batch_rows, row_groups=[group.index], columns=stored):
                held.append(part)
                n_held = sum(piece.num_rows for piece in held)
                if n_held < layout.batch_rows and first + n_held < group.first + group.n_rows:
                    continue  # a reader may stop short at the end of a page
                table = checked(pa.Table.from_batches(held).combine_chunks())
                held = []
                for start in range(0, table.num_rows, layout.batch_rows):
                    batch = table.slice(start, layout.batch_rows).to_batches()[0]
                    yield Batch(layout, group, first, batch)
                    first += batch.num_rows
            if first != group.first + group.n_rows:
                raise InputError(
                    f"{shown(group.path)} does not hold the {group.n_rows} rows it declares in row group "
                    f"{group.index}",
                    hint="write it again",
                )


def _row_groups(source: ParquetSource) -> Iterator[RowGroup]:
    first = 0
    for number, member in enumerate(source.members):
        partition = {name: source.constant(name, number, 1)[0] for name in member.partition}
        for index in range(member.metadata.num_row_groups):
            found = member.metadata.row_group(index)
            if found.num_rows:
                yield RowGroup(
                    member.stamp.path, index, found.num_rows, first, found.total_byte_size, partition
                )
            first += found.num_rows


def _list_width(groups: Sequence[RowGroup], features: FeatureColumns) -> int:
    """The length of the first list that is not null."""
    import pyarrow.compute as pc

    for group in groups:
        with reading(group.path, "Parquet"):
            file = open_parquet(group.path)
            for part in file.iter_batches(ROWS_MULTIPLE, row_groups=[group.index], columns=features.names):
                lengths = pc.drop_null(pc.list_value_length(part.column(0)))
                if len(lengths):
                    return int(lengths[0].as_py())
    raise InputError(
        f"column {features.names[0]!r} of {shown(groups[0].path)} has only null lists",
        hint="choose other features with --columns",
    )
