"""From rows, labels and domains in memory to a validated dataset, as reading files would give it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from glob import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.coordinates import coordinates
from clustersplit_cli.data.dataset import MEDIAN, Categories, Dataset, TargetRows
from clustersplit_cli.data.foreign import X_NAME, PassedRows, as_column
from clustersplit_cli.data.pins import forced_sides
from clustersplit_cli.data.readers import matrix as matrices
from clustersplit_cli.data.readers.categories import bin_numbers, encode, encode_units, restrict
from clustersplit_cli.data.readers.columns import choose_features, coordinate_names
from clustersplit_cli.data.readers.facade import sampled_target
from clustersplit_cli.data.readers.naming import listed, shown, suggestion
from clustersplit_cli.data.sparse import finite_sparse_rows, is_constant_sparse, is_sparse
from clustersplit_cli.errors import InputError, UsageError
from clustersplit_cli.progress import silent
from clustersplit_cli.similarity import is_of_features

if TYPE_CHECKING:
    import pyarrow as pa

LABEL, DOMAIN, GROUPS = "label", "domain", "groups"


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a caller says about rows in memory besides their features.

    Attributes
    ----------
    y, domains : one value per row, or the name of a column of a table.
    groups : the same for rows that stay together; `exact-duplicates` or `near-duplicates=0.95` for rows with
        the same or similar features.
    force_train, force_val : row positions, or a mask over all rows.
    columns : globs of the feature columns of a table; () means all columns without another role.
    stratify : words (`label`, `domain`, columns of a table) whose combinations are the cells; None: label and
        domain, as far as they are given.
    families : the words of each family; () means one family.
    more : further columns, one value per row, by the words that `stratify` calls them.
    label_bins : cut the label's numbers into that many quantile bins.
    drop_invalid : leave out rows with NaN or infinite features.
    impute : `median` takes what is missing for the median of its column, `none` refuses it.
    pairs : what X holds of all pairs of rows; None: features.
    """

    y: Any = None
    domains: Any = None
    groups: Any = None
    force_train: Any = None
    force_val: Any = None
    columns: Sequence[str] = ()
    stratify: Sequence[str] | None = None
    families: tuple[tuple[str, ...], ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    label_bins: int | None = None
    drop_invalid: bool = False
    impute: str = "none"
    pairs: str | None = None


def make_dataset(rows: PassedRows, said: Description) -> Dataset:
    """Check everything and put it together, as reading a file would.

    Raises
    ------
    InputError
        Naming the rows, columns or values that cannot be used.
    """
    everything = np.arange(rows.n)
    categories, notes, reserved = _categories(rows, said)
    together, units = _units(rows, said.groups)
    if together is not None:
        reserved.add(together)
    pinned = forced_sides(said.force_train, said.force_val, rows.n)
    matrix, names, sources = _features(rows, said.columns, reserved)
    if said.pairs is not None:
        _refuse_unfit(matrix, rows.n, said)
    if said.impute == MEDIAN:
        if is_sparse(matrix):
            raise UsageError("impute has no effect on sparse features", hint="fill what is missing in X")
        if not matrix.flags.owndata:
            matrix = matrix.copy()  # the caller's own
        notes += matrices.impute_median(matrix, names)
    finite = finite_sparse_rows(matrix) if is_sparse(matrix) else matrices.finite_rows(matrix)
    kept, dropped = everything[finite], everything[~finite]
    if len(dropped):
        if not said.drop_invalid:
            raise _not_finite(matrix, finite, everything, names)
        matrix = matrix[kept]
        categories = {word: restrict(column, finite) for word, column in categories.items()}
        units = None if units is None else np.unique(units[finite], return_inverse=True)[1].reshape(-1)
        pinned = None if pinned is None else pinned[finite]
    if len(kept) < 2:
        raise InputError(
            f"X has {len(kept) or 'no'} usable row{'s' * (len(kept) != 1)}", hint="a split needs at least two"
        )
    if is_constant_sparse(matrix) if is_sparse(matrix) else matrices.is_constant(matrix):
        raise InputError(
            f"all features are constant: all {len(kept)} rows are the same", hint="choose other features"
        )
    if said.pairs is not None:
        matrix, found = coordinates(matrix.copy(), said.pairs, shown(X_NAME), kept)
        notes, names = notes + found, coordinate_names(matrix.shape[1])
    return Dataset(
        features=matrix,
        feature_names=names,
        feature_columns=sources,
        categories=categories,
        rows=kept,
        n_rows=rows.n,
        n_dropped=len(dropped),
        notes=notes,
        dropped=dropped,
        families=said.families,
        together=together,
        units=units,
        pinned=pinned,
        pairs=said.pairs,
    )


def _refuse_unfit(matrix: Any, n_rows: int, said: Description) -> None:
    """Refuse what cannot hold values of all pairs of rows, and options that need features."""
    if is_sparse(matrix):
        raise InputError(f"X is sparse, and {said.pairs} have no zeros to leave out", hint="pass X.toarray()")
    matrices.refuse_not_square(matrix.shape[1], n_rows, shown(X_NAME), said.pairs or "")
    refused = {"drop_invalid": said.drop_invalid, "impute": said.impute != "none"}
    for option, is_given in refused.items():
        if is_given:
            raise UsageError(
                f"{option} has no effect on {said.pairs} of pairs of rows", hint="leave rows out of X"
            )


def make_target(rows: PassedRows, dataset: Dataset, name: str, *, drop_invalid: bool) -> TargetRows:
    """The rows of a target, with the features of a dataset.

    Raises
    ------
    InputError
        When its features are others, or it has no rows.
    """
    if is_sparse(dataset.features):
        raise InputError("a target needs dense rows, and X is sparse", hint="pass X.toarray()")
    by_name = rows.table is not None and set(dataset.feature_columns) <= set(rows.table.columns)
    matrix, names, _ = _features(rows, tuple(map(escape, dataset.feature_columns)) if by_name else (), set())
    if is_sparse(matrix):
        raise InputError("the target is sparse", hint="pass target.toarray()")
    if matrix.shape[1] != dataset.features.shape[1]:
        raise InputError(
            f"the target has {matrix.shape[1]} features and X has {dataset.features.shape[1]}",
            hint="pass the same features in the same order",
        )
    if by_name and names != dataset.feature_names:
        matrix = np.ascontiguousarray(matrix[:, [names.index(each) for each in dataset.feature_names]])
    finite = matrices.finite_rows(matrix)
    if not finite.all() and not drop_invalid:
        raise InputError(
            f"{int((~finite).sum())} of {len(finite)} rows of the target have NaN or infinite features",
            hint="leave those rows out with drop_invalid=True",
        )
    if not finite.any():
        raise InputError("the target has no rows that can be used", hint="pass rows of finite features")
    return sampled_target(matrix[finite], name)


def _categories(
    rows: PassedRows, said: Description
) -> tuple[dict[str, Categories], tuple[tuple[str, str], ...], set[str]]:
    """Encode the columns of the cells; return them, warnings, and the columns of X that have a role."""
    given = {word: values for word, values in ((LABEL, said.y), (DOMAIN, said.domains)) if values is not None}
    stratify = tuple(given) if said.stratify is None else said.stratify
    given |= said.more
    if said.label_bins is not None and LABEL not in stratify:
        raise InputError(
            "label_bins has no effect, because no cells are made of labels",
            hint="pass y, or add label to stratify",
        )
    reserved: set[str] = {values for values in given.values() if isinstance(values, str)}
    categories: dict[str, Categories] = {}
    notes: tuple[tuple[str, str], ...] = ()
    everything = np.arange(rows.n)
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
        column = column_of(values, word, rows)
        if word == LABEL and said.label_bins is not None:
            categories[word], notes = bin_numbers(column, word, everything, said.label_bins)
        else:
            categories[word] = encode(column, word, everything)
    return categories, notes, reserved


def _units(rows: PassedRows, groups: Any) -> tuple[str | None, NDArray[np.int64] | None]:
    """What keeps rows together, and the unit of every row."""
    if groups is None:
        return None, None
    if isinstance(groups, str) and is_of_features(groups):
        return groups, None
    name = groups if isinstance(groups, str) else GROUPS
    return name, encode_units(column_of(groups, "group", rows), name, np.arange(rows.n))


def _features(
    rows: PassedRows, columns: Sequence[str], reserved: set[str]
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


def feature_matrix(rows: PassedRows) -> Any:
    """Return all columns as one matrix, dense or sparse, of values that need not be finite."""
    return _features(rows, (), set())[0]


def column_of(values: Any, word: str, rows: PassedRows) -> pa.ChunkedArray:
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
    return InputError(
        found.message,
        hint="leave those rows out with drop_invalid=True, or fill what is missing with impute='median'",
    )
