"""Foreign objects as what the program works on: arrays, data frames, Arrow tables, tensors, lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.readers.arrow_values import ArrowChunk, describe_all
from clustersplit_cli.data.readers.columns import float_type
from clustersplit_cli.data.readers.source import Column
from clustersplit_cli.data.sparse import checked_sparse, is_sparse
from clustersplit_cli.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

X_NAME = Path("X")


@dataclass(frozen=True)
class TableSource:
    """An Arrow table as a source of columns, under the name that users know it by."""

    table: Any
    columns: dict[str, Column]
    path: Path = X_NAME
    stamps: tuple[()] = ()
    notes: tuple[()] = ()
    default_features: str | None = None

    @property
    def n_rows(self) -> int | None:
        """Number of rows."""
        count: int = self.table.num_rows
        return count

    def find(self, word: str) -> str | None:
        """Return the name of the column the user means, or None."""
        return word if word in self.columns else None

    def read(self, names: Sequence[str]) -> pa.Table:
        """Return whole columns."""
        return self.table.select(list(names))

    def scan(self, names: Sequence[str]) -> Iterator[ArrowChunk]:
        """Yield the feature columns as they are held."""
        is_list = self.columns[names[0]].is_list
        for first, name in enumerate(names):
            start = 0
            for array in self.table.column(name).chunks:
                yield ArrowChunk(self.path, start, first, [name], [array], is_list)
                start += len(array)


@dataclass(frozen=True)
class PassedRows:
    """What X was made into: a matrix and the names of its columns, or a table whose columns may be chosen."""

    matrix: Any = None
    table: TableSource | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.matrix.shape[0]) if self.table is None else self.table.table.num_rows


def as_rows(X: Any) -> PassedRows:
    """Take X as it is where it can be used so, and copy it where it cannot.

    Raises
    ------
    InputError
        When X is no matrix of numbers and no table.
    """
    if is_sparse(X):
        return PassedRows(matrix=checked_sparse(X))
    table = _as_table(X)
    if table is not None:
        return PassedRows(table=TableSource(table, describe_all(X_NAME, table.schema)))
    return PassedRows(matrix=_as_matrix(as_array(X, "X")))


def as_array(values: Any, what: str) -> NDArray[Any]:
    """Make an array of whatever offers to become one; tensors must be on the CPU."""
    if type(values).__module__.partition(".")[0] == "torch":
        values = _from_tensor(values, what)
    if np.ma.is_masked(values):
        raise InputError(
            f"{what} has {int(np.ma.getmaskarray(values).sum())} masked values",
            hint=f"fill them in, with {what}.filled(0) for example, or leave their rows out",
        )
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(
            f"{what} cannot be made an array: {str(error).splitlines()[0]}",
            hint="pass a NumPy array, a data frame, an Arrow table, a tensor on the CPU or a list of rows",
        ) from error


def _from_tensor(tensor: Any, what: str) -> Any:
    device = getattr(getattr(tensor, "device", None), "type", "cpu")
    if device != "cpu":
        raise InputError(f"{what} is a tensor on {device}", hint=f"pass {what}.cpu()")
    try:
        return tensor.detach().numpy()
    except (TypeError, RuntimeError) as error:
        raise InputError(
            f"{what} is a tensor of {tensor.dtype}: {str(error).splitlines()[0]}", hint=f"pass {what}.float()"
        ) from error


def _as_table(values: Any) -> pa.Table | None:
    """Return an Arrow table if the values are one, or a data frame, or a column of lists; else None."""
    module = type(values).__module__.partition(".")[0]
    if module not in ("pyarrow", "polars", "pandas") and not hasattr(values, "__arrow_c_stream__"):
        return None
    import pyarrow as pa

    if hasattr(values, "collect") and hasattr(values, "explain"):
        raise InputError("X is a lazy frame", hint="pass X.collect()")
    try:
        if module == "pandas":
            if hasattr(values, "columns"):
                return _from_pandas(values)
            values = pa.array(values.tolist() if values.dtype == object else values)
        elif hasattr(values, "to_arrow"):
            values = values.to_arrow()
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            return pa.table({"X": values})
        return pa.table(values)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(
            f"X cannot be made an Arrow table: {str(error).splitlines()[0]}",
            hint="keep columns of numbers, or embed the rows with transformer",
        ) from error


def _from_pandas(frame: Any) -> pa.Table:
    """Column by column: names need not be text, and the index is no column."""
    import pyarrow as pa

    names = [str(name) for name in frame.columns]
    arrays = [pa.array(frame.iloc[:, place], from_pandas=True) for place in range(len(names))]
    return pa.Table.from_arrays(arrays, names=names)


def _as_matrix(array: NDArray[Any]) -> NDArray[np.floating[Any]]:
    """Check that an array is a matrix of numbers; the copy is made only where it is needed."""
    if array.ndim != 2:
        raise InputError(
            f"X has shape {array.shape}, features need two dimensions",
            hint="flatten the rows with X.reshape(len(X), -1), or embed them with transformer",
        )
    if array.dtype == object:
        with suppress(TypeError, ValueError):  # refused below, by its type
            array = array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"X holds values of type {array.dtype}, features need numbers",
            hint="encode them, or embed the rows with transformer",
        )
    if array.shape[1] == 0:
        raise InputError(f"X has shape {array.shape}: it has no features", hint="pass at least one column")
    return np.ascontiguousarray(array, dtype=float_type(array.dtype.newbyteorder("=")))


def as_column(values: Any, word: str) -> Any:
    """Turn a sequence of values into an Arrow array."""
    import pyarrow as pa

    try:
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            return values
        if hasattr(values, "to_arrow"):
            return values.to_arrow()
        if type(values).__module__.partition(".")[0] == "pandas" and not hasattr(values, "columns"):
            return pa.array(values, from_pandas=True)
        if isinstance(values, (list, tuple)):
            return pa.array(values)
        array = as_array(values, word)
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim != 1:
            raise InputError(
                f"{word} has shape {array.shape}, cells need one value per row",
                hint="choose one column, or set stratify to 'none'",
            )
        return pa.array(
            array.tolist() if array.dtype == object else array.astype(array.dtype.newbyteorder("="))
        )
    except (pa.ArrowException, TypeError) as error:
        raise InputError(
            f"{word} holds values that cannot name groups: {str(error).splitlines()[0]}",
            hint="use text or integers, of one type",
        ) from error
