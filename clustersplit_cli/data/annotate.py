"""The input's rows with the part each went to, as one Parquet file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.publish import check_file_destination, staged_file
from clustersplit_cli.data.readers.formats import open_features
from clustersplit_cli.data.rows import open_rows
from clustersplit_cli.errors import InputError, OutputError

SPLIT_COLUMN = "split"


def check_annotation(source: Path) -> None:
    """Refuse an input that cannot be annotated; ask before the work, not after it.

    Raises
    ------
    InputError
        If the input is damaged or has a column called `split` already.
    """
    if SPLIT_COLUMN in open_features(source).columns:
        raise InputError(
            f"{source} has a column named '{SPLIT_COLUMN}' already, which --annotate would add",
            hint="rename the column, or leave out --annotate",
        )


def annotate(source: Path, destination: Path, parts: NDArray[np.str_], *, force: bool = False) -> None:
    """Copy the input's rows to a Parquet file; parameters and errors as in `staged_annotation`."""
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
    """Copy the input's rows to a Parquet file, with a column `split` that names each row's part.

    The copy is made before the block and published after it, so that what the block writes and the copy
    appear together or, if the block raises, not at all.

    Parameters
    ----------
    source : the features, as a file or a directory.
    destination : the file to write; it appears whole or not at all.
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
    import pyarrow.parquet as pq

    check_file_destination(destination, force=force, inputs=[source])
    check_annotation(source)
    rows = open_rows(source)
    schema = rows.schema.append(pa.field(SPLIT_COLUMN, pa.string()))
    done = 0
    with staged_file(destination, force=force) as path:
        try:
            with path.open("xb") as stream, pq.ParquetWriter(stream, schema) as writer:
                for table in rows.batches:
                    named = parts[done : done + table.num_rows]
                    done += table.num_rows
                    if len(named) < table.num_rows:
                        raise _changed(source, f"more than {len(parts)}", len(parts))
                    writer.write_table(table.append_column(SPLIT_COLUMN, pa.array(named, pa.string())))
        except pa.ArrowException as error:
            reason = str(error).splitlines()[0]
            raise OutputError(
                f"{source} cannot be copied to Parquet: {reason}", hint="leave out --annotate"
            ) from error
        if done < len(parts):
            raise _changed(source, str(done), len(parts))
        yield


def _changed(source: Path, found: str, expected: int) -> InputError:
    return InputError(
        f"{source} changed while it was used: it has {found} rows, but had {expected} when it was split",
        hint="run again when nothing writes to it",
    )
