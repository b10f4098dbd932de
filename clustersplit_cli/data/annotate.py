"""The input's rows with the part each went to, as one file whose name says its format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.publish import check_file_destination, staged_file
from clustersplit_cli.data.readers.formats import open_features
from clustersplit_cli.data.readers.naming import shown
from clustersplit_cli.data.rows import open_rows
from clustersplit_cli.errors import InputError, OutputError, UsageError

SPLIT_COLUMN = "split"


def _parquet_writer(stream: BinaryIO, schema: Any) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetWriter(stream, schema)


def _csv_writer(stream: BinaryIO, schema: Any) -> Any:
    import pyarrow.csv

    return pyarrow.csv.CSVWriter(stream, schema)


def _feather_writer(stream: BinaryIO, schema: Any) -> Any:
    import pyarrow.ipc

    return pyarrow.ipc.new_file(stream, schema)


_WRITERS: dict[str, tuple[str, Callable[[BinaryIO, Any], Any]]] = {
    ".parquet": ("Parquet", _parquet_writer),
    ".pq": ("Parquet", _parquet_writer),
    ".csv": ("CSV", _csv_writer),
    ".feather": ("Feather", _feather_writer),
    ".arrow": ("Feather", _feather_writer),
}


def _writer(destination: Path) -> tuple[str, Callable[[BinaryIO, Any], Any]]:
    """The format that a name stands for, and what writes it."""
    found = _WRITERS.get(destination.suffix.lower())
    if found is None:
        raise UsageError(
            f"--annotate {shown(destination)}: the name does not say the format",
            hint="end it in .parquet, .csv or .feather",
        )
    return found


def check_annotation(source: Path, destination: Path) -> None:
    """Refuse an input that cannot be annotated; ask before the work, not after it.

    Raises
    ------
    UsageError
        If the destination's name does not say the format.
    InputError
        If the input is damaged, has a column called `split` already, or one that the format cannot hold.
    """
    import pyarrow as pa

    format_, writer = _writer(destination)
    if format_ == "CSV":
        for field in open_rows(source).schema:
            try:
                writer(BytesIO(), pa.schema([field])).close()
            except pa.ArrowException as error:
                raise InputError(
                    f"column {field.name!r} of {shown(source)} is of type {field.type}, too much for CSV",
                    hint="end the name after --annotate in .parquet or .feather",
                ) from error
    if SPLIT_COLUMN in open_features(source).columns:
        raise InputError(
            f"{source} has a column named '{SPLIT_COLUMN}' already, which --annotate would add",
            hint="rename the column, or leave out --annotate",
        )


def annotate(source: Path, destination: Path, parts: NDArray[np.str_], *, force: bool = False) -> None:
    """Copy the input's rows to a file; parameters and errors as in `staged_annotation`."""
    with staged_annotation(source, destination, parts, force=force):
        pass


class Names(Protocol):
    """The part of every row, in words: an array, or what can be sliced like one."""

    def __len__(self) -> int:
        """Number of rows."""

    def __getitem__(self, rows: slice, /) -> NDArray[np.str_]:
        """Those of some rows."""


@contextmanager
def staged_annotation(
    source: Path, destination: Path, parts: Names, *, force: bool = False
) -> Iterator[None]:
    """Copy the input's rows to a file, with a column `split` that names each row's part.

    The copy is made before the block and published after it, so that what the block writes and the copy
    appear together or, if the block raises, not at all.

    Parameters
    ----------
    source : the features, as a file or a directory.
    destination : the file to write, its suffix the format; it appears whole or not at all.
    parts : (n_rows,) the part of every row of the input: `train`, `val`, `excluded` or `dropped`.
    force : replace an earlier file.

    Raises
    ------
    InputError
        If the input cannot be read, has a column called `split`, or no longer has `n_rows` rows.
    OutputError
        If the destination is refused or cannot be written.
    """
    import pyarrow as pa

    check_file_destination(destination, force=force, inputs=[source])
    check_annotation(source, destination)
    format_, writer_of = _writer(destination)
    rows = open_rows(source)
    schema = rows.schema.append(pa.field(SPLIT_COLUMN, pa.string()))
    done = 0
    with staged_file(destination, force=force) as path:
        try:
            with path.open("xb") as stream, writer_of(stream, schema) as writer:
                for table in rows.batches:
                    named = parts[done : done + table.num_rows]
                    done += table.num_rows
                    if len(named) < table.num_rows:
                        raise _changed(source, f"more than {len(parts)}", len(parts))
                    writer.write_table(table.append_column(SPLIT_COLUMN, pa.array(named, pa.string())))
        except pa.ArrowException as error:
            reason = str(error).splitlines()[0]
            raise OutputError(
                f"{source} cannot be copied to {format_}: {reason}", hint="leave out --annotate"
            ) from error
        if done < len(parts):
            raise _changed(source, str(done), len(parts))
        yield


def _changed(source: Path, found: str, expected: int) -> InputError:
    return InputError(
        f"{source} changed while it was used: it has {found} rows, but had {expected} when it was split",
        hint="run again when nothing writes to it",
    )
