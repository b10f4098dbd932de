"""Parquet: a file, or a directory of files read as one, hive partitions included."""

from __future__ import annotations

import os
import stat
import urllib.parse
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersplit_cli.data.readers.arrow_values import ArrowChunk, checked, combined, describe, describe_all
from clustersplit_cli.data.readers.delimited import typed
from clustersplit_cli.data.readers.fingerprint import Stamp, read_head, stamp
from clustersplit_cli.data.readers.naming import as_url, cure, listed, reason, shown
from clustersplit_cli.data.readers.remote import open_remote, remote_files
from clustersplit_cli.data.readers.source import BLOCK_BYTES, Column, reading
from clustersplit_cli.errors import InputError, readable

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MAGIC = b"PAR1"
MOST_READERS = 4
SMALL_GROUP_BYTES = 4 * BLOCK_BYTES
_SUFFIXES = (".parquet", ".pq", ".parq")
_MOST_OTHERS, _OTHERS_PER_FILE = 10_000, 10
"""Files and folders that a dataset may hold besides what is named as Parquet, and more for each that is."""
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Member:
    """One file of the dataset: where it is, what it holds, and the partition it lies in."""

    stamp: Stamp
    n_rows: int
    metadata: pq.FileMetaData
    schema: pa.Schema
    partition: dict[str, str | None]

    def open(self) -> pq.ParquetFile:
        """Open for reading; no read-ahead, so that one row group is never held twice."""
        return open_parquet(self.stamp.path, self.metadata)

    def n_values(self, name: str, group: int) -> int:
        """Number of values in the lists of a column; a null or empty list counts as one.

        No other column is looked at: where its size statistics are damaged, Arrow ends the process.
        """
        schema, columns = self.metadata.schema, self.metadata.row_group(group)
        places = [i for i in range(columns.num_columns) if schema.column(i).path.startswith(f"{name}.")]
        return sum(columns.column(place).num_values for place in places)


class ParquetSource:
    """One Parquet file, or all Parquet files below a directory in bytewise order of their paths."""

    def __init__(self, path: Path, members: Sequence[Member], notes: Sequence[tuple[str, str]] = ()) -> None:
        self.path = path
        self.notes = tuple(notes)
        self.default_features: str | None = None
        self.stamps = tuple(member.stamp for member in members)
        self.members = tuple(members)
        self.n_rows: int | None = sum(member.n_rows for member in members)
        self.columns = self._describe()

    @classmethod
    def of_file(cls, path: Path) -> ParquetSource:
        """Open a single file."""
        return cls(path, [_member(stamp(path), {})])

    @classmethod
    def of_directory(cls, path: Path) -> ParquetSource:
        """Open every Parquet file below a directory; names starting with `.` or `_` are not data."""
        found = _files_below(path)
        data = [name for name in found if _is_parquet(path / name)]
        if not data:
            holds = f"; it holds {listed([shown(Path(name)) for name in found])}" if found else ""
            raise InputError(
                f"directory {shown(path)} has no Parquet files{holds}",
                hint="give a single file, or a directory of .parquet files",
            )
        ignored = [shown(Path(name)) for name in found if name not in set(data)]
        notes = [("files_ignored", f"not Parquet, ignored: {listed(ignored)}")] if ignored else []
        members = [_member(stamp(path / name), _partition(name)) for name in data]
        _check_same_columns(members)
        return cls(path, members, notes)

    @classmethod
    def of_url(cls, path: Path) -> ParquetSource:
        """Open a file behind a URL, or all Parquet files below it."""
        files = {name: found for name, found in remote_files(path) if not name or _may_be_data(name)}
        data = sorted((name for name in files if not name or _has_suffix(name)), key=os.fsencode)
        if not data:
            raise InputError(
                f"{shown(path)} has no Parquet files below it",
                hint="give a single file, or a prefix of .parquet files",
            )
        members = [_member(files[name], _partition(name)) for name in data]
        _check_same_columns(members)
        return cls(path, members)

    def find(self, word: str) -> str | None:
        """Return the name of the column the user means, or None."""
        return word if word in self.columns else None

    def read(self, names: Sequence[str]) -> pa.Table:
        """Read whole columns."""
        import pyarrow as pa

        self.check_same_types(names)
        parts: dict[str, list[pa.Array]] = {name: [] for name in names}
        for number, member in enumerate(self.members):
            stored = [name for name in names if name not in member.partition]
            with reading(member.stamp.path, "Parquet"):
                table = checked(member.open().read(columns=stored)) if stored else None
            for name in names:
                if name in member.partition:
                    parts[name].append(self.constant(name, number, member.n_rows))
                elif table is not None:
                    parts[name].extend(table.column(name).chunks)
        return pa.table(
            {name: _chunked(chunks, self._type(name)) for name, chunks in parts.items()} if names else {}
        )

    def scan(self, names: Sequence[str]) -> Iterator[ArrowChunk]:
        """Read feature columns row group by row group, a few columns or a few rows at a time."""
        self.check_same_types(names)
        if self.columns[names[0]].is_list:
            yield from self._scan_lists(names[0])
            return
        start = 0
        for number, member in enumerate(self.members):
            with reading(member.stamp.path, "Parquet"):
                file = member.open()
                for group in range(member.metadata.num_row_groups):
                    yield from self._scan_scalars(number, file, group, start, names)
                    start += member.metadata.row_group(group).num_rows

    def _scan_lists(self, name: str) -> Iterator[ArrowChunk]:
        """Read a list column: small row groups several at a time, since Arrow decodes a column by one thread.

        Decoding lists takes twice the room of their values, so large row groups are read some rows at a time.
        """
        import pyarrow as pa

        groups = [(m, group) for m in self.members for group in range(m.metadata.num_row_groups)]
        readers, start = min(MOST_READERS, pa.cpu_count()), 0
        under_way: dict[int, Future[list[pa.Array]]] = {}
        pool = ThreadPoolExecutor(readers)
        try:
            for place, (member, group) in enumerate(groups):
                for later in range(place, min(place + readers + 1, len(groups))):
                    if later not in under_way and _is_small(*groups[later], name):
                        under_way[later] = pool.submit(lambda job: list(_batches(*job, name)), groups[later])
                with reading(member.stamp.path, "Parquet"):
                    ready = under_way.pop(place).result() if place in under_way else None
                    for array in _batches(member, group, name) if ready is None else ready:
                        yield ArrowChunk(self.path, start, 0, [name], [array], is_list=True)
                        start += len(array)
        finally:
            pool.shutdown(cancel_futures=True)

    def _scan_scalars(
        self, number: int, file: pq.ParquetFile, group: int, start: int, names: Sequence[str]
    ) -> Iterator[ArrowChunk]:
        """Read scalar columns some columns at a time: Parquet stores them one after the other."""
        partition = self.members[number].partition
        n_rows = self.members[number].metadata.row_group(group).num_rows
        width = max(16, min(len(names), BLOCK_BYTES // (8 * max(1, n_rows))))
        for first in range(0, len(names), width):
            block = names[first : first + width]
            stored = [name for name in block if name not in partition]
            table = file.read_row_group(group, columns=stored)
            arrays = [
                combined(table.column(name)) if name not in partition else self.constant(name, number, n_rows)
                for name in block
            ]
            yield ArrowChunk(self.path, start, first, block, arrays, is_list=False)

    def _describe(self) -> dict[str, Column]:
        """Describe the columns of the files, then those of the partitions."""
        first = self.members[0]
        columns = describe_all(self.path, first.schema)
        columns |= {name: describe(name, self._type(name)) for name in first.partition}
        for name, column in columns.items():
            if column.is_list and column.width is None and name not in first.partition:
                columns[name] = Column(name, column.type_name, column.dtype, True, self._list_width(name))
        return columns

    def _list_width(self, name: str) -> int | None:
        """Infer the common length of lists from the number of values the file declares."""
        values = sum(
            member.n_values(name, group)
            for member in self.members
            for group in range(member.metadata.num_row_groups)
        )
        return values // self.n_rows if self.n_rows and values % self.n_rows == 0 else None

    @cached_property
    def _partitions(self) -> dict[str, pa.Array]:
        """The partition columns, one value per file, typed by what all values spell."""
        import pyarrow as pa

        return {
            name: typed(pa.array([member.partition[name] for member in self.members], pa.string()))
            for name in self.members[0].partition
        }

    def constant(self, name: str, number: int, n_rows: int) -> pa.Array:
        """A partition's value, repeated for every row of a file."""
        import pyarrow as pa

        return pa.repeat(self._partitions[name][number], n_rows)

    def _type(self, name: str) -> Any:
        first = self.members[0]
        return self._partitions[name].type if name in first.partition else first.schema.field(name).type

    def check_same_types(self, names: Sequence[str]) -> None:
        """Raise if a column that is used changes its type from file to file."""
        first = self.members[0]
        for member in self.members[1:]:
            for name in names:
                if name in member.partition:
                    continue
                expected, found = first.schema.field(name).type, member.schema.field(name).type
                if _plain(expected) != _plain(found):
                    raise InputError(
                        f"column {name!r} is {found} in {shown(member.stamp.path)} but {expected} in "
                        f"{shown(first.stamp.path)}",
                        hint="write all files of the directory with the same column types",
                    )


def _is_small(member: Member, group: int, name: str) -> bool:
    """Whether several row groups like this one may be held at a time."""
    return 8 * member.n_values(name, group) <= SMALL_GROUP_BYTES


def _batches(member: Member, group: int, name: str) -> Iterator[pa.Array]:
    """Read a list column of one row group some rows at a time."""
    n_rows = member.metadata.row_group(group).num_rows
    per_row = 8 * member.n_values(name, group) // max(1, n_rows)
    rows = max(1, min(n_rows, BLOCK_BYTES // max(1, per_row)))
    for batch in member.open().iter_batches(rows, row_groups=[group], columns=[name]):
        yield batch.column(name)


def open_parquet(
    path: Path, metadata: pq.FileMetaData | None = None, buffer_size: int = 1 << 20
) -> pq.ParquetFile:
    """Open a file, or what is behind a URL.

    From a server a row group's columns are fetched together: every request costs a round trip.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if as_url(path) is not None:
        return pq.ParquetFile(open_remote(path), metadata=metadata, pre_buffer=True)
    return pq.ParquetFile(
        pa.OSFile(os.fsencode(path)), metadata=metadata, buffer_size=buffer_size, pre_buffer=False
    )


def _member(first_look: Stamp, partition: dict[str, str | None]) -> Member:
    """Read a file's footer."""
    with reading(first_look.path, "Parquet"):
        file = open_parquet(first_look.path)
        return Member(first_look, file.metadata.num_rows, file.metadata, file.schema_arrow, partition)


def _files_below(root: Path) -> list[str]:
    """The relative paths of all files below a directory that may hold data, in bytewise order.

    Raises
    ------
    InputError
        If a folder cannot be listed, or nearly all that is there is something else than Parquet.
    """
    found: list[str] = []
    allowed = _MOST_OTHERS
    for relative, is_file in _walk(root, "", frozenset()):
        if is_file:
            found.append(relative)
        allowed += _OTHERS_PER_FILE if is_file and _has_suffix(relative) else -1
        if allowed < 0:
            raise InputError(
                f"directory {shown(root)} holds more than {_MOST_OTHERS} things not named as Parquet",
                hint="name the directory of the dataset alone; its files end in .parquet",
            )
    return sorted(found, key=os.fsencode)


def _walk(root: Path, below: str, above: frozenset[tuple[int, int]]) -> Iterator[tuple[str, bool]]:
    """Yield the relative paths of folders and files, and which are files; links never lead in circles.

    Parameters
    ----------
    above : the identities of the folders that hold this one.
    """
    folder = root / below
    try:
        status = folder.stat()
        identity = status.st_dev, status.st_ino
        entries = [] if identity in above else [(e.name, _is_folder(e)) for e in os.scandir(folder)]
    except OSError as error:
        raise InputError(
            f"cannot list {shown(folder)}: {reason(error)}",
            hint=cure(error, "name the directory of the dataset alone"),
        ) from error
    for name, is_folder in entries:
        relative = f"{below}/{name}" if below else name
        if is_folder:
            # `_key=value` is a partition; `_temporary` and `.cache` are not data.
            if not name.startswith(".") and (not name.startswith("_") or "=" in name):
                yield relative, False
                yield from _walk(root, relative, above | {identity})
        elif not name.startswith((".", "_")):
            yield relative, True


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder or a link to one; a link that leads nowhere is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_parquet(path: Path) -> bool:
    """Whether a file of a directory claims to be Parquet, by its name or its first bytes."""
    if _has_suffix(path.name):
        return True
    try:
        # Opening a pipe may block, and so may reading some of the system's files, which claim to be empty.
        status = path.stat()
        return stat.S_ISREG(status.st_mode) and status.st_size > len(MAGIC) and read_head(path, 4) == MAGIC
    except (OSError, InputError):
        return False


def _has_suffix(name: str) -> bool:
    return Path(name).suffix.lower() in _SUFFIXES


def _may_be_data(relative: str) -> bool:
    """Whether no folder of a relative path, nor the name, is hidden; `_key=value` is a partition."""
    *folders, name = relative.split("/")
    hidden = [folder.startswith(".") or (folder.startswith("_") and "=" not in folder) for folder in folders]
    return not any(hidden) and not name.startswith((".", "_"))


def _partition(relative: str) -> dict[str, str | None]:
    """Read `key=value` folders of a relative path."""
    pairs = (folder.split("=", 1) for folder in relative.split("/")[:-1] if "=" in folder)
    return {
        readable(urllib.parse.unquote(key)): None
        if value == _NULL_PARTITION
        else urllib.parse.unquote(readable(value))
        for key, value in pairs
    }


def _check_same_columns(members: Sequence[Member]) -> None:
    """Raise if the files of a directory do not have the same columns or partitions."""
    first = members[0]
    expected = {*first.schema.names, *first.partition}
    for member in members[1:]:
        names = {*member.schema.names, *member.partition}
        missing, extra = sorted(expected - names), sorted(names - expected)
        in_part = sorted(first.partition.keys() ^ member.partition.keys())
        if in_part and not (missing or extra):
            raise InputError(
                f"column {in_part[0]!r} is in the folder names of {shown(first.stamp.path)} or of "
                f"{shown(member.stamp.path)}, but not of both",
                hint=f"put all files into folders named {in_part[0]}=VALUE, or none",
            )
        if missing or extra:
            what = f"lacks column {missing[0]!r}" if missing else f"has a column {extra[0]!r}"
            raise InputError(
                f"{shown(member.stamp.path)} {what}, unlike {shown(first.stamp.path)}",
                hint="all files of a directory must have the same columns",
            )


def _plain(type_: pa.DataType) -> pa.DataType:
    """The type of the values, whatever way a string or a category is stored."""
    import pyarrow as pa

    value = type_.value_type if pa.types.is_dictionary(type_) else type_
    return pa.string() if pa.types.is_large_string(value) else value


def _chunked(chunks: list[pa.Array], type_: pa.DataType) -> pa.ChunkedArray:
    """Join the files' chunks, which may store the same values as categories here and plainly there."""
    import pyarrow as pa

    value = type_.value_type if pa.types.is_dictionary(type_) else type_
    if len({chunk.type for chunk in chunks}) <= 1:
        return pa.chunked_array(chunks, chunks[0].type if chunks else type_)
    return pa.chunked_array([chunk.cast(value) for chunk in chunks], value)
