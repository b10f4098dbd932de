"""Arrow columns as numpy numbers: types, nulls, lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.readers.naming import listed, shown
from clustersplit_cli.data.readers.source import Column
from clustersplit_cli.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa


def describe(name: str, type_: pa.DataType) -> Column:
    """Describe a column of an Arrow schema."""
    import pyarrow as pa

    stored = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
    fixed = pa.types.is_fixed_size_list(stored)
    if fixed or pa.types.is_list(stored) or pa.types.is_large_list(stored):
        width = stored.list_size if fixed else None
        return Column(name, str(type_), _number_dtype(stored.value_type), is_list=True, width=width)
    return Column(name, str(type_), _number_dtype(stored))


def describe_all(path: Path, schema: pa.Schema) -> dict[str, Column]:
    """Describe every column of a schema, by name."""
    columns: dict[str, Column] = {}
    for field in schema:
        if field.name in columns:
            raise InputError(
                f"{shown(path)} has two columns named {field.name!r}", hint="give every column its own name"
            )
        columns[field.name] = describe(field.name, field.type)
    return columns


@dataclass(frozen=True)
class ArrowChunk:
    """A rectangle held in Arrow arrays: scalar columns, or the one list column."""

    path: Path
    start: int
    first: int
    names: Sequence[str]
    arrays: Sequence[pa.Array]
    is_list: bool

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.arrays[0])

    @property
    def width(self) -> int | None:
        """Number of features it covers; None for all of them."""
        return None if self.is_list else len(self.arrays)

    def values(self, keep: NDArray[np.bool_] | None, width: int | None) -> NDArray[Any] | None:
        """Return the rectangle as numbers, without the rows where `keep` is false; nulls are NaN."""
        if self.is_list:
            return self._lists(keep, width)
        columns: list[NDArray[Any]] = [_numbers(array) for array in self.arrays]
        if keep is not None:
            columns = [column[keep] for column in columns]
        # Reads each column in order; the transposed view is then copied into the matrix in one call.
        return np.asarray(np.stack(columns).T)

    def _lists(self, keep: NDArray[np.bool_] | None, width: int | None) -> NDArray[Any] | None:
        """Stack lists of one length; a null list becomes a row of NaN."""
        import pyarrow as pa

        array = self.arrays[0]
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        rows = np.arange(self.start, self.start + len(array))
        if keep is not None:  # before looking at the lists: one that is left out may be of any length
            array, rows = array.filter(pa.array(keep)), rows[keep]
        if pa.types.is_fixed_size_list(array.type):
            lengths = np.full(len(array), array.type.list_size)
        else:
            lengths = np.diff(array.offsets.to_numpy())
        present = np.ones(len(array), np.bool_)
        if array.null_count:
            present = array.is_valid().to_numpy(zero_copy_only=False)
        if not present.any():
            return None if width is None else np.full((len(array), width), np.nan, np.float16)
        width = int(lengths[present][0]) if width is None else width
        ragged = present & (lengths != width)
        if ragged.any():
            raise _ragged_lists(self.path, self.names[0], width, rows[ragged], lengths[ragged])
        flat = _numbers(_flattened(array)).reshape(int(present.sum()), width)
        if present.all():
            return flat
        block = np.full((len(array), width), np.nan, np.result_type(flat.dtype, np.float16))
        block[present] = flat
        return block


def _flattened(array: pa.Array) -> pa.Array:
    """The values of all lists but null ones.

    Arrow's own functions take longer to import than a small file to read: they are left for what needs them.
    """
    import pyarrow as pa

    if array.null_count:
        return array.flatten()
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        return array.values.slice(array.offset * size, len(array) * size)
    edges = array.offsets
    return array.values.slice(edges[0].as_py(), edges[-1].as_py() - edges[0].as_py())


def _ragged_lists(
    path: Path, name: str, width: int, rows: NDArray[np.int64], lengths: NDArray[np.int64]
) -> InputError:
    """Say which rows hold lists of another length than those before."""
    pairs = [f"row {row} has {n}" for row, n in zip(rows[:6].tolist(), lengths[:6].tolist(), strict=True)]
    return InputError(
        f"lists in column {name!r} of {shown(path)} differ in length: the first has {width}, {listed(pairs)}",
        hint="make all lists the same length, or leave those rows out with --exclude COLUMN=VALUE",
    )


def combined(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, without a copy if it is one already."""
    import pyarrow as pa

    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def checked(data: Any) -> Any:
    """Return Arrow data whose offsets, text and categories are known to be sound.

    Readers do not look at them, and working on damaged ones ends the process.
    """
    data.validate(full=True)
    return data


def _number_dtype(type_: pa.DataType) -> np.dtype[Any] | None:
    """The numpy type of an Arrow number or boolean, None for anything else."""
    import pyarrow as pa

    if pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_floating(type_):
        dtype: np.dtype[Any] = np.dtype(type_.to_pandas_dtype())
        return dtype
    return None


def _numbers(array: pa.Array) -> NDArray[Any]:
    """Return numbers as numpy, zero-copy where the layout allows; nulls become NaN."""
    import pyarrow as pa

    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    if not array.null_count:
        return np.asarray(array.to_numpy(zero_copy_only=False))
    present = np.asarray(array.is_valid())
    values = array.drop_null().to_numpy(zero_copy_only=False)
    numbers = np.full(len(array), np.nan, dtype=np.result_type(values.dtype, np.float16))
    numbers[present] = values
    return numbers
