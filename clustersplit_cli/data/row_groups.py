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
from clustersplit_cli.similarity import DISTANCES, SIMILARITIES

BATCH_BYTES = 16 << 20
ROWS_MULTIPLE = 2048
FEWEST_BATCHES, FEWEST_ROWS = 64, 16
"""Small datasets are cut finer, so that several workers have something to do."""
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
    n_rows: int

    @property
    def batch_rows(self) -> int:
        """Rows of a batch; batches begin at its multiples, whatever files and row groups there are.

        It depends on the number of rows and columns alone, so that sums come out the same everywhere.
        """
        rows = BATCH_BYTES // self.row_bytes
        most = max(ROWS_MULTIPLE, rows // ROWS_MULTIPLE * ROWS_MULTIPLE)
        few = self.n_rows // FEWEST_BATCHES
        if few > ROWS_MULTIPLE:
            few -= few % ROWS_MULTIPLE
        return min(most, max(FEWEST_ROWS, few))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The name of every feature."""
        return self.features.feature_names(self.width)


@dataclass(frozen=True)
class Batch:
    """Some neighbouring rows: the columns that were asked for, as pyarrow arrays by name.

    Attributes
    ----------
    path : the file that the first of them is in.
    """

    layout: Layout
    path: Path
    first: int
    n_rows: int
    arrays: Mapping[str, Any]

    def column(self, name: str) -> Any:
        """A column, as a pyarrow ChunkedArray."""
        import pyarrow as pa

        return pa.chunked_array([self.arrays[name]])

    def features(self) -> NDArray[np.floating[Any]]:
        """The feature matrix of the rows; nulls are NaN."""
        names, layout = self.layout.features.names, self.layout
        arrays = [self.arrays[name] for name in names]
        chunk = ArrowChunk(self.path, self.first, 0, names, arrays, layout.features.is_list)
        values = chunk.values(None, layout.width)
        assert values is not None
        return np.ascontiguousarray(values, dtype=layout.features.dtype)

    def rows(self, start: int, stop: int) -> Batch:
        """Those of its rows that are between two rows of the dataset."""
        begin, end = max(start - self.first, 0), min(stop - self.first, self.n_rows)
        if (begin, end) == (0, self.n_rows):
            return self
        arrays = {name: array.slice(begin, end - begin) for name, array in self.arrays.items()}
        return Batch(self.layout, self.path, self.first + begin, end - begin, arrays)


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
        "--impute": None if request.impute == "none" else request.impute,
        "several --stratify": request.families or None,
        "--kernel precomputed": True if request.pairs == SIMILARITIES else None,
        "--distances": True if request.pairs == DISTANCES else None,
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
        n_rows=sum(group.n_rows for group in groups),
    )


def read_batches(
    layout: Layout, groups: Sequence[RowGroup], names: Sequence[str], start: int, stop: int
) -> Iterator[Batch]:
    """Read columns of neighbouring row groups in batches that do not depend on where the groups end.

    Parameters
    ----------
    start, stop : the rows to read; the first begins a batch.
    """
    height = layout.batch_rows
    end, held = min(start + height, stop), list[Batch]()
    for piece in read_pieces(layout, groups, names):
        while end > piece.first and piece.first + piece.n_rows > start:
            held.append(piece.rows(start, end))
            if piece.first + piece.n_rows < end:
                break
            yield _joined(held)
            start, end, held = end, min(end + height, stop), []
            if start == stop:
                return


def read_pieces(layout: Layout, groups: Sequence[RowGroup], names: Sequence[str]) -> Iterator[Batch]:
    """Read columns of some row groups as they lie there, at most `layout.batch_rows` rows at a time."""
    import pyarrow as pa

    opened: tuple[Path, Any] | None = None
    for group in groups:
        stored = [name for name in names if name not in group.partition]
        first = group.first
        with reading(group.path, "Parquet"):
            if opened is None or opened[0] != group.path:
                buffer = max(1 << 14, min(1 << 20, _BUFFERS // max(1, len(stored))))
                opened = (group.path, open_parquet(group.path, buffer_size=buffer))
            rows = max(ROWS_MULTIPLE, layout.batch_rows)
            for part in opened[1].iter_batches(rows, row_groups=[group.index], columns=stored):
                checked(pa.Table.from_batches([part]))
                arrays = {name: part.column(name) for name in stored}
                for name in names:
                    if name in group.partition:
                        arrays[name] = pa.repeat(group.partition[name], part.num_rows)
                if part.num_rows:
                    yield Batch(layout, group.path, first, part.num_rows, arrays)
                first += part.num_rows
            if first != group.first + group.n_rows:
                raise InputError(
                    f"{shown(group.path)} does not hold the {group.n_rows} rows it declares in row group "
                    f"{group.index}",
                    hint="write it again",
                )


def _joined(pieces: Sequence[Batch]) -> Batch:
    """Neighbouring pieces as one batch."""
    import pyarrow as pa

    first = pieces[0]
    if len(pieces) == 1:
        return first
    arrays = {name: pa.concat_arrays([piece.arrays[name] for piece in pieces]) for name in first.arrays}
    return Batch(first.layout, first.path, first.first, sum(piece.n_rows for piece in pieces), arrays)


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
