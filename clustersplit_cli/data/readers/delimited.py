"""CSV, with commas, semicolons or tabs."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clustersplit_cli.data.readers.arrow_values import ArrowChunk, describe_all
from clustersplit_cli.data.readers.fingerprint import stamp, text_of
from clustersplit_cli.data.readers.naming import shown
from clustersplit_cli.data.readers.source import Column, reading
from clustersplit_cli.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_FORMAT = "CSV"
_DELIMITERS = ",\t;"
_LONGEST_HEADER = 1 << 26
_SMALLEST_BLOCK = 4 << 20


class CsvSource:
    """A CSV file with a header; features are read as float64, other columns by what their values spell."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stamps = (stamp(path),)
        self.notes: tuple[tuple[str, str], ...] = ()
        self.default_features: str | None = None
        self.n_rows: int | None = None
        with reading(path, _FORMAT):
            header, self._delimiter = _header(path)
            # Several rows must fit into a block, and a row is seldom longer than 32 bytes a column.
            self._block = max(
                _SMALLEST_BLOCK, 64 * max(len(header), 32 * (header.count(self._delimiter) + 1))
            )
            _check_header(path, next(csv.reader([header], delimiter=self._delimiter)))
            with self._open() as reader:
                schema = reader.schema
        self.columns: Mapping[str, Column] = {
            # Nothing but gaps in the first block: numbers may follow.
            name: Column(name, column.type_name, np.dtype(np.float64))
            if column.type_name == "null"
            else column
            for name, column in describe_all(path, schema).items()
        }

    def find(self, word: str) -> str | None:
        """Return the name of the column the user means, or None."""
        return word if word in self.columns else None

    def read(self, names: Sequence[str]) -> pa.Table:
        """Read whole columns, and learn the number of rows."""
        import pyarrow as pa

        wanted = list(names) or list(self.columns)[:1]
        with reading(self.path, _FORMAT), self._open(dict.fromkeys(wanted, pa.string())) as reader:
            table = reader.read_all()
        self.n_rows = table.num_rows
        return pa.table({name: typed(table.column(name)) for name in names})

    def scan(self, names: Sequence[str]) -> Iterator[ArrowChunk]:
        """Read feature columns block by block."""
        import pyarrow as pa

        start = 0
        with reading(self.path, _FORMAT), self._open(dict.fromkeys(names, pa.float64())) as reader:
            for batch in reader:
                yield ArrowChunk(
                    self.path, start, 0, names, [batch.column(name) for name in names], is_list=False
                )
                start += batch.num_rows

    def _open(self, types: Mapping[str, pa.DataType] | None = None) -> Any:
        """Open a stream of batches, with all columns as they look or only some with given types."""
        import pyarrow as pa
        import pyarrow.csv

        return pa.csv.open_csv(
            pa.OSFile(os.fsencode(self.path)),
            read_options=pa.csv.ReadOptions(block_size=self._block),
            parse_options=pa.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                include_columns=list(types or {}), column_types=dict(types or {})
            ),
        )


def _header(path: Path) -> tuple[str, str]:
    """Return the first line that is not empty, and the delimiter it uses most."""
    with path.open("rb") as file:
        while line := file.readline(_LONGEST_HEADER):
            if text := line.decode("utf-8-sig").strip("\r\n"):
                return text, max(_DELIMITERS, key=text.count)
    raise ValueError("it has no header")


def _check_header(path: Path, names: Sequence[str]) -> None:
    """Refuse a first line of numbers, unless they are column numbers."""
    if names and all(_is_number(name) for name in names) and not all(name.isdecimal() for name in names):
        raise InputError(
            f"{shown(path)} has no header: its first line is numbers",
            hint="add a first line with column names",
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class LinesSource:
    """Text with one value a line, for the rows of another file: what its values spell, as in a CSV."""

    def __init__(self, path: Path, role: str) -> None:
        self.path = path
        self.stamps = (stamp(path),)
        self.notes: tuple[tuple[str, str], ...] = ()
        self.default_features: str | None = None
        self.n_rows: int | None = None
        self.columns: Mapping[str, Column] = {role: Column(role, "text", None)}

    def find(self, word: str) -> str | None:
        """Return the one column there is."""
        return next(iter(self.columns))

    def read(self, names: Sequence[str]) -> pa.Table:
        """Read the values; an empty line is a row without one."""
        import pyarrow as pa

        lines = text_of(self.path).removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
        if not lines[-1]:  # the last line may end like the others
            lines.pop()
        self.n_rows = len(lines)
        return pa.table({name: typed(pa.array(lines, pa.string())) for name in names})

    def scan(self, names: Sequence[str]) -> Iterator[ArrowChunk]:
        """Refuse: companions hold no features."""
        raise InputError(f"{shown(self.path)} holds no features")


_NULL_WORDS = ("", "NA", "N/A", "#N/A", "NaN", "nan", "NULL", "null")


def typed(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Give text the type all of its values spell: integers, booleans, other numbers, else text.

    Numbers written with leading zeros are names, not numbers, and stay text. Words for "nothing"
    are nulls among numbers and booleans; in text only the empty string is.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    distinct = pc.unique(values)
    absent = pc.is_in(distinct, value_set=pa.array(_NULL_WORDS, distinct.type))
    spelled = distinct.filter(pc.and_(pc.invert(absent), pc.is_valid(distinct)))
    type_ = _spelled_type(spelled) if len(spelled) else None
    if type_ is None:
        return pc.if_else(pc.equal(values, ""), None, values)
    hidden = pc.is_in(values, value_set=pa.array(_NULL_WORDS, values.type))
    return pc.cast(pc.if_else(hidden, None, values), type_)


def _spelled_type(spelled: pa.Array) -> pa.DataType | None:
    """The type that every one of some distinct texts spells, None for text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.any(pc.match_substring_regex(spelled, r"^\s|\s$|^[+-]?0[0-9]")).as_py():
        return None
    try:
        if pc.all(pc.equal(pc.cast(pc.cast(spelled, pa.int64()), spelled.type), spelled)).as_py():
            return pa.int64()
    except pa.ArrowInvalid:
        pass
    if pc.all(pc.is_in(pc.utf8_lower(spelled), value_set=pa.array(["true", "false"], spelled.type))).as_py():
        return pa.bool_()
    try:
        pc.cast(spelled, pa.float64())
    except pa.ArrowInvalid:
        return None
    return pa.float64()
