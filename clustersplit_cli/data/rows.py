"""Every column of an input, some rows at a time, for copying it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.readers.arrays import NpyArray, as_arrow, open_npy, open_npz
from clustersplit_cli.data.readers.arrow_values import checked
from clustersplit_cli.data.readers.formats import detect, open_features
from clustersplit_cli.data.readers.ipc import read_batches
from clustersplit_cli.data.readers.source import reading

FEATURES_COLUMN = "features"  # what a plain array, which has no column names, is called
_BATCH_BYTES = 32 << 20
_MOST_ROWS = 1 << 16
_CSV_BLOCK_BYTES = 8 << 20
_CSV_RETRIES = 16


@dataclass(frozen=True)
class TableRows:
    """The columns of an input (a pyarrow Schema) and its rows in order (pyarrow Tables)."""

    schema: Any
    batches: Iterator[Any]


def open_rows(path: Path) -> TableRows:
    """Open an input for copying: the same files, in the same order, as for reading features.

    Tables stream in constant memory, and so do C-ordered arrays; archives and Fortran-ordered arrays are
    read whole.

    Raises
    ------
    InputError
        If the input is missing or damaged.
    """
    format_ = "Parquet" if path.is_dir() else detect(path)
    if format_ == "Parquet":
        return _parquet_rows(path)
    if format_ == "CSV":
        return _csv_rows(path)
    if format_ == "NPY":
        return _npy_rows(path)
    if format_ == "NPZ":
        return _npz_rows(path)
    return _ipc_rows(path, is_stream=format_ == "Arrow stream")


def _parquet_rows(path: Path) -> TableRows:
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = open_features(path)
    files = [stamp.path for stamp in source.stamps]

    def open_file(file: Path) -> Any:
        return pq.ParquetFile(pa.OSFile(os.fsencode(file)), buffer_size=1 << 20, pre_buffer=False)

    with reading(files[0], "Parquet"):
        stored = open_file(files[0]).schema_arrow
    # Columns that no file holds are hive partitions: one value per file, known to the reader.
    partitions = source.read([name for name in source.columns if name not in stored.names])
    schema = stored
    for field in partitions.schema:
        schema = schema.append(field)

    def batches() -> Iterator[Any]:
        start = 0
        for name in files:
            with reading(name, "Parquet"):
                file = open_file(name)
                bytes_ = sum(file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups))
                step = _rows_per_batch(bytes_ / max(1, file.metadata.num_rows))
                for batch in map(checked, file.iter_batches(step)):
                    table = pa.Table.from_batches([batch]).select(stored.names)
                    for column, values in zip(partitions.schema, partitions.columns, strict=True):
                        table = table.append_column(column, values.slice(start, batch.num_rows))
                    yield table.cast(schema)
                    start += batch.num_rows

    return TableRows(schema, batches())


def _ipc_rows(path: Path, *, is_stream: bool) -> TableRows:
    import pyarrow as pa
    import pyarrow.ipc

    def reader() -> Any:
        file = pa.OSFile(os.fsencode(path))
        return pa.ipc.open_stream(file) if is_stream else pa.ipc.open_file(file)

    def batches() -> Iterator[Any]:
        with reading(path, "Arrow"), reader() as opened:
            for batch in map(checked, opened if is_stream else read_batches(opened)):
                step = _rows_per_batch(batch.nbytes / max(1, batch.num_rows))
                for start in range(0, batch.num_rows, step):
                    yield pa.Table.from_batches([batch.slice(start, step)])

    with reading(path, "Arrow"), reader() as opened:
        return TableRows(opened.schema, batches())


def _csv_rows(path: Path) -> TableRows:
    import pyarrow as pa
    import pyarrow.csv

    names = list(open_features(path).columns)
    block_bytes = max(_CSV_BLOCK_BYTES, 2048 * len(names))  # a row must fit into a block

    def reader(delimiter: str, types: dict[str, Any]) -> Any:
        return pa.csv.open_csv(
            pa.OSFile(os.fsencode(path)),
            read_options=pa.csv.ReadOptions(block_size=block_bytes),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(column_types=types),
        )

    def delimiter_that_gives_the_names() -> str:
        for delimiter in ",\t;":
            with suppress(pa.ArrowInvalid), reader(delimiter, {}) as opened:
                if opened.schema.names == names:
                    return delimiter
        raise ValueError("its columns cannot be told apart")

    def settled_types(delimiter: str) -> Any:
        """Read the file until no column contradicts the type that its first block suggested."""
        types: dict[str, Any] = {}
        for _ in range(_CSV_RETRIES):
            with reader(delimiter, types) as opened:
                schema = opened.schema
                try:
                    for _ in opened:
                        pass
                    return schema
                except pa.ArrowInvalid as error:
                    found = re.match(r"In CSV column #(\d+): CSV conversion error", str(error))
                    if found is None:
                        raise
                    field = schema.field(int(found[1]))
            types[field.name] = pa.float64() if pa.types.is_integer(field.type) else pa.string()
        return pa.schema([(name, pa.string()) for name in names])

    with reading(path, "CSV"):
        delimiter = delimiter_that_gives_the_names()
        schema = settled_types(delimiter)

    def batches() -> Iterator[Any]:
        with (
            reading(path, "CSV"),
            reader(delimiter, {field.name: field.type for field in schema}) as opened,
        ):
            for batch in opened:
                yield pa.Table.from_batches([batch])

    return TableRows(schema, batches())


def _npy_rows(path: Path) -> TableRows:
    import pyarrow as pa

    array = open_npy(path)

    def table(block: NDArray[Any]) -> Any:
        if block.dtype.names is None:
            return pa.table({FEATURES_COLUMN: _column(block, array.label)})
        return pa.table({name: _column(block[name], array.label) for name in block.dtype.names})

    def batches() -> Iterator[Any]:
        if array.fortran_order:
            yield from _sliced(table(array.whole()))
        else:
            for _, block in array.blocks():
                yield table(block)

    return TableRows(table(np.empty((0, *array.shape[1:]), array.dtype)).schema, batches())


def _npz_rows(path: Path) -> TableRows:
    import pyarrow as pa

    n_rows = open_features(path).n_rows
    arrays: dict[str, NpyArray] = {
        name: array for name, array in open_npz(path).items() if array.shape[:1] == (n_rows,)
    }
    table = pa.table({name: _column(array.whole(), array.label) for name, array in arrays.items()})
    return TableRows(table.schema, _sliced(table))


def _column(block: NDArray[Any], label: str) -> Any:
    """Return an array as a column: a value per row, or a list of fixed length per row."""
    import pyarrow as pa

    values = as_arrow(block.reshape(-1), label)
    if block.ndim == 1:
        return values
    width = int(np.prod(block.shape[1:]))
    if width:
        return pa.FixedSizeListArray.from_arrays(values, width)
    return pa.array([[]] * len(block), pa.list_(values.type, 0))


def _sliced(table: Any) -> Iterator[Any]:
    step = _rows_per_batch(table.nbytes / max(1, table.num_rows))
    for start in range(0, table.num_rows, step):
        yield table.slice(start, step)


def _rows_per_batch(row_bytes: float) -> int:
    return max(1, min(_MOST_ROWS, int(_BATCH_BYTES / max(1.0, row_bytes))))
