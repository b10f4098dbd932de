"""Arrow IPC: files (Feather among them) and streams."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersplit_cli.data.readers.arrow_values import ArrowChunk, describe_all, explained
from clustersplit_cli.data.readers.fingerprint import stamp
from clustersplit_cli.data.readers.source import BLOCK_BYTES, Column

if TYPE_CHECKING:
    import pyarrow as pa

_FORMAT = "Arrow"


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
        with explained(path, _FORMAT), self._open() as reader:
            schema = reader.schema
        self._position = {name: i for i, name in enumerate(schema.names)}
        self.columns: dict[str, Column] = describe_all(path, schema)
        self._batch_rows: list[int] | None = None
        if not is_stream:
            self._count()

    @property
    def n_rows(self) -> int | None:
        """Number of rows, unknown before a stream is read."""
        return None if self._batch_rows is None else sum(self._batch_rows)

    def find(self, word: str) -> str | None:
        """Return the name of the column the user means, or None."""
        return word if word in self.columns else None

    def read(self, names: Sequence[str]) -> pa.Table:
        """Read whole columns."""
        import pyarrow as pa

        if self._batch_rows is None:
            self._count()
        if not names:
            return pa.table({})
        with explained(self.path, _FORMAT):
            return pa.Table.from_batches(self._batches(names)).select(list(names))

    def scan(self, names: Sequence[str]) -> Iterator[ArrowChunk]:
        """Read feature columns batch by batch, some columns at a time where batches are large."""
        is_list = self.columns[names[0]].is_list
        largest = max(self._batch_rows or [1], default=1)
        width = max(16, BLOCK_BYTES // (8 * max(1, largest)))
        with explained(self.path, _FORMAT):
            for first in range(0, len(names), width):
                block, start = names[first : first + width], 0
                for batch in self._batches(block):
                    arrays = [batch.column(name) for name in block]
                    yield ArrowChunk(self.path, start, first, block, arrays, is_list)
                    start += batch.num_rows

    def _count(self) -> None:
        """Count the rows of every batch by reading the narrowest column there is."""
        scalars = [
            name for name, column in self.columns.items() if column.dtype is not None and not column.is_list
        ]
        others = [name for name, column in self.columns.items() if not column.is_list]
        names = (scalars or others or list(self.columns))[:1]
        with explained(self.path, _FORMAT):
            self._batch_rows = [batch.num_rows for batch in self._batches(names)]

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield record batches that hold only some of the columns."""
        if not names:
            return
        with self._open(names) as reader:
            if self._is_stream:
                yield from reader
            else:
                for i in range(reader.num_record_batches):
                    yield reader.get_batch(i)

    def _open(self, names: Sequence[str] = ()) -> Any:
        import pyarrow as pa
        import pyarrow.ipc

        options = pa.ipc.IpcReadOptions(included_fields=[self._position[name] for name in names])
        opener = pa.ipc.open_stream if self._is_stream else pa.ipc.open_file
        return opener(pa.OSFile(os.fsencode(self.path)), options=options)
