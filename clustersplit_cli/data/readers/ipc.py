"""Arrow IPC: files (Feather among them) and streams."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersplit_cli.data.readers.arrow_values import ArrowChunk, checked, describe_all
from clustersplit_cli.data.readers.fingerprint import stamp
from clustersplit_cli.data.readers.source import BLOCK_BYTES, Column, reading

if TYPE_CHECKING:
    import pyarrow as pa

_FORMAT = "Arrow"


def read_batches(reader: Any) -> Iterator[pa.RecordBatch]:
    """The batches of an open file, one after the other."""
    return map(reader.get_batch, range(reader.num_record_batches))


class IpcSource:
    """An Arrow IPC file or stream.

    Files are read, not mapped: a mapped file that shrinks would kill the process instead of raising.
    """

    def __init__(self, path: Path, is_stream: bool) -> None:
        self.path = path
        self.stamps = (stamp(path),)
        self.notes: tuple[tuple[str, str], ...] = ()
        self.default_features: str | None = None
        self._is_stream = is_stream
        with reading(path, _FORMAT), self._open() as reader:
            schema = reader.schema
        self._position = {name: i for i, name in enumerate(schema.names)}
        self.columns: dict[str, Column] = describe_all(path, schema)
        self.n_rows: int | None = None if is_stream else self._declared_rows()

    def find(self, word: str) -> str | None:
        """Return the name of the column the user means, or None."""
        return word if word in self.columns else None

    def read(self, names: Sequence[str]) -> pa.Table:
        """Read whole columns."""
        import pyarrow as pa

        if not names and self.n_rows is not None:
            return pa.table({})
        with reading(self.path, _FORMAT):
            wanted = list(names) or self._narrowest()
            with self._open(wanted) as reader:
                table = pa.Table.from_batches(self._batches(wanted), reader.schema)
        self.n_rows = table.num_rows
        return table.select(list(names))

    def scan(self, names: Sequence[str]) -> Iterator[ArrowChunk]:
        """Read feature columns batch by batch, some columns at a time where batches are large."""
        import pyarrow as pa

        pool = pa.default_memory_pool()
        with reading(self.path, _FORMAT):
            width = max(16, BLOCK_BYTES // (8 * max(1, self._rows_per_batch())))
            for first in range(0, len(names), width):
                block, start = names[first : first + width], 0
                for batch in self._batches(block):
                    # A batch may be as large as the matrix, and its compressed form is free by now.
                    pool.release_unused()
                    yield from self._cut(batch, block, start, first)
                    start += batch.num_rows

    def _cut(
        self, batch: pa.RecordBatch, names: Sequence[str], start: int, first: int
    ) -> Iterator[ArrowChunk]:
        """Cut a batch into rectangles that are small beside the matrix, or keep its lists as they are."""
        is_list = self.columns[names[0]].is_list
        width = max(16, BLOCK_BYTES // (8 * max(1, batch.num_rows)))
        for offset in range(0, len(names), width):
            block = names[offset : offset + width]
            arrays = [batch.column(name) for name in block]
            yield ArrowChunk(self.path, start, first + offset, block, arrays, is_list)

    def _narrowest(self) -> list[str]:
        """Name a column that is cheap to read."""
        scalars = [
            name for name, column in self.columns.items() if column.dtype is not None and not column.is_list
        ]
        return (scalars or list(self.columns))[:1]

    def _declared_rows(self) -> int:
        """Sum the lengths in the headers of the batches, without their data."""
        import pyarrow.dataset

        with reading(self.path, _FORMAT), self.path.open("rb") as file:
            n_rows: int = pyarrow.dataset.IpcFileFormat().make_fragment(file).count_rows()
            return n_rows

    def _rows_per_batch(self) -> int:
        """Rows of a typical batch; a stream gives all columns of a batch at once anyway."""
        if self._is_stream:
            return 1
        with self._open() as reader:
            n_batches: int = reader.num_record_batches
            return (self.n_rows or 0) // max(1, n_batches)

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield record batches that hold only some of the columns."""
        if not names:
            return
        with self._open(names) as reader:
            for batch in reader if self._is_stream else read_batches(reader):
                yield checked(batch)

    def _open(self, names: Sequence[str] = ()) -> Any:
        import pyarrow as pa
        import pyarrow.ipc

        options = pa.ipc.IpcReadOptions(included_fields=[self._position[name] for name in names])
        opener = pa.ipc.open_stream if self._is_stream else pa.ipc.open_file
        return opener(pa.OSFile(os.fsencode(self.path)), options=options)
