"""From rows, labels and domains in memory to a validated dataset, as reading files would give it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.dataset import Categories, Dataset
from clustersplit_cli.data.foreign import X_NAME, Rows, as_column
from clustersplit_cli.data.readers import matrix as matrices
from clustersplit_cli.data.readers.categories import encode, restrict
from clustersplit_cli.data.readers.columns import choose_features
from clustersplit_cli.data.readers.naming import listed, suggestion
from clustersplit_cli.data.sparse import finite_sparse_rows, is_constant_sparse, is_sparse
from clustersplit_cli.errors import InputError
from clustersplit_cli.progress import silent

if TYPE_CHECKING:
    import pyarrow as pa

LABEL, DOMAIN = "label", "domain"


def make_dataset(
    rows: Rows,
    y: Any = None,
    domains: Any = None,
    *,
    columns: Sequence[str] = (),
    stratify: Sequence[str] | None = None,
    drop_invalid: bool = False,
) -> Dataset:
    """Check everything and put it together, as reading a file would.

    Parameters
    ----------
    y, domains : one value per row, or the name of a column of a table.
    columns : globs of the feature columns of a table; by default all columns without another role.
    stratify : words (`label`, `domain`, columns of a table) whose combinations are the cells; None: label and
        domain, as far as they are given.

    Raises
    ------
    InputError
        Naming the rows, columns or values that cannot be used.
    """
    given = {word: values for word, values in ((LABEL, y), (DOMAIN, domains)) if values is not None}
    if stratify is None:
        stratify = tuple(given)
    everything = np.arange(rows.n)
    reserved: set[str] = {values for values in given.values() if isinstance(values, str)}
    categories: dict[str, Categories] = {}
    for word in stratify:
        if (
            word in (LABEL, DOMAIN)
            and word not in given
            and (rows.table is None or word not in rows.table.columns)
        ):
            raise InputError(
                f"cells of '{word}' were asked for, but no {word}s were given",
                hint=f"pass {'y' if word == LABEL else 'domains'}, or change stratify",
            )
        values = given.get(word, word)
        if isinstance(values, str):
            reserved.add(values)
        categories[word] = encode(_category_column(values, word, rows), word, everything)
    matrix, names, sources = _features(rows, columns, reserved)
    finite = finite_sparse_rows(matrix) if is_sparse(matrix) else matrices.finite_rows(matrix)
    kept, dropped = everything[finite], everything[~finite]
    if len(dropped):
        if not drop_invalid:
            raise _not_finite(matrix, finite, everything, names)
        matrix = matrix[kept]
        categories = {word: restrict(column, finite) for word, column in categories.items()}
    if len(kept) < 2:
        raise InputError(
            f"X has {len(kept) or 'no'} usable row{'s' * (len(kept) != 1)}", hint="a split needs at least two"
        )
    if is_constant_sparse(matrix) if is_sparse(matrix) else matrices.is_constant(matrix):
        raise InputError(
            f"all features are constant: all {len(kept)} rows are the same", hint="choose other features"
        )
    return Dataset(
        features=matrix,
        feature_names=names,
        feature_columns=sources,
        categories=categories,
        rows=kept,
        n_rows=rows.n,
        n_dropped=len(dropped),
        dropped=dropped,
    )


def _features(
    rows: Rows, columns: Sequence[str], reserved: set[str]
) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
    """Return the matrix, the names of its columns and of the columns they came from."""
    if rows.table is None:
        if columns:
            raise InputError(
                f"columns {listed(columns)} were asked for, but X has no column names",
                hint="pass a data frame, or choose the columns of the array yourself",
            )
        names = tuple(map(str, range(rows.matrix.shape[1])))
        return rows.matrix, names, names
    source = rows.table
    chosen = choose_features(source, columns or ("*",), reserved)
    matrix = matrices.read_matrix(source, chosen, np.ones(rows.n, np.bool_), silent)
    return matrix, chosen.feature_names(matrix.shape[1]), chosen.names


def feature_matrix(rows: Rows) -> Any:
    """Return all columns as one matrix, dense or sparse, of values that need not be finite."""
    return _features(rows, (), set())[0]


def _category_column(values: Any, word: str, rows: Rows) -> pa.ChunkedArray:
    """Return one value per row as an Arrow column, or say what is wrong with them."""
    import pyarrow as pa

    if isinstance(values, str):
        names = [] if rows.table is None else list(rows.table.columns)
        if rows.table is None or values not in names:
            raise InputError(f"X has no column {values!r}", hint=suggestion(values, names))
        column = rows.table.table.column(values)
    else:
        column = as_column(values, word)
    if len(column) != rows.n:
        raise InputError(
            f"there are {len(column)} {word}s for {rows.n} rows of X", hint="pass one value per row"
        )
    if column.null_count:
        missing = np.flatnonzero(np.asarray(column.is_null()))
        raise InputError(
            f"{word} has no value in {len(missing)} rows: {listed(missing.tolist())}",
            hint="fill them in, with 'unknown' for example, or leave those rows out of X",
        )
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _not_finite(
    matrix: Any, finite: NDArray[np.bool_], positions: NDArray[np.int64], names: tuple[str, ...]
) -> InputError:
    if is_sparse(matrix):
        offenders = np.flatnonzero(~finite)
        return InputError(
            f"{len(offenders)} of {len(finite)} rows of X have NaN or infinite features: rows "
            f"{listed(offenders.tolist())}",
            hint="leave those rows out with drop_invalid=True",
        )
    found = matrices.not_finite(X_NAME, matrix, finite, positions, names)
    return InputError(found.message, hint="leave those rows out with drop_invalid=True")
