"""From a request to a validated dataset."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clustersplit_cli.core.geometry.coordinates import coordinates
from clustersplit_cli.data.dataset import MEDIAN, ColumnUse, Dataset, Extent, ReadRequest, TargetRows
from clustersplit_cli.data.pins import read_pins
from clustersplit_cli.data.readers import matrix as matrices
from clustersplit_cli.data.readers.arrays import PlainArraySource
from clustersplit_cli.data.readers.arrow_values import combined
from clustersplit_cli.data.readers.categories import (
    bin_numbers,
    encode,
    encode_units,
    restrict,
    rows_with_value,
)
from clustersplit_cli.data.readers.columns import FeatureColumns, choose_features, coordinate_names
from clustersplit_cli.data.readers.fingerprint import Fingerprints
from clustersplit_cli.data.readers.formats import open_companion, open_features, open_table
from clustersplit_cli.data.readers.naming import listed, shown
from clustersplit_cli.data.readers.roles import DOMAIN, LABEL, Inputs, Place, Roles, assign_roles
from clustersplit_cli.data.readers.source import Source, reading
from clustersplit_cli.errors import ClusterSplitError, InputError, UsageError
from clustersplit_cli.progress import Progress, silent

if TYPE_CHECKING:
    import pyarrow as pa

_FEWEST_ROWS = 2
_NAMES_IN_NOTE = 20
TARGET_ROWS = 20_000
"""Rows of a target that are compared with; of more, a seeded sample."""


def peek(request: ReadRequest) -> Extent:
    """Return the size of the features from headers alone, so that memory can be planned before reading.

    Raises
    ------
    InputError : a file is missing or damaged, or a column that is needed does not exist.
    """
    inputs, _, features = open_request(request)
    column = inputs.features.columns[features.names[0]]
    width = column.width if features.is_list else len(features.names)
    return Extent(inputs.features.n_rows, width, features.dtype.itemsize)


def survey(request: ReadRequest) -> tuple[ColumnUse, ...]:
    """List every column of the features and the metadata with its type and what it is used for.

    Raises
    ------
    InputError : a file is missing or damaged, or a column that is needed does not exist.
    """
    inputs, roles, features = open_request(request)
    chosen = set(features.names)
    used: dict[tuple[str, str], str] = {}
    if roles.ids is not None:
        used[roles.ids.role, roles.ids.column] = "id"
    used.update({(place.role, place.column): "exclude" for _, place, _ in roles.exclude})
    for word, place in roles.family.items():
        used[place.role, place.column] = word if word in (LABEL, DOMAIN) else "cells"
    found = []
    for role, source in inputs.by_role().items():
        for name, column in source.columns.items():
            use = used.get((role, name), "feature" if role == "features" and name in chosen else "unused")
            found.append(ColumnUse(name, column.type_name, use))
    return tuple(found)


def column_names(paths: Sequence[Path]) -> list[str]:
    """The names of all columns of some tables, for completion; a file that cannot be read has none."""
    names: dict[str, None] = {}
    for path in paths:
        with suppress(ClusterSplitError):
            names.update(dict.fromkeys(open_features(path).columns))
    return list(names)


def load(request: ReadRequest, progress: Progress = silent) -> Dataset:
    """Read and validate everything a request names.

    The feature matrix is allocated once and filled in pieces; besides it only a few of those pieces are held.

    Raises
    ------
    InputError : an input is missing or damaged, has values that cannot be used, or changes while it is read.
    UsageError : options that contradict each other.
    """
    inputs, roles, features = open_request(request)
    target = load_target(request, progress) if request.target else None
    sources = inputs.by_role()
    with Fingerprints([(look, role) for role, source in sources.items() for look in source.stamps]) as prints:
        columns = _Columns(inputs, roles)
        n_rows = columns.n_rows
        excluded = np.zeros(n_rows, np.bool_)
        for word, place, value in roles.exclude:
            excluded |= rows_with_value(columns.at(place), word, place.column, value)
        kept = ~excluded
        rows = np.flatnonzero(kept)
        _check_enough(len(rows), f"only {len(rows)} of {n_rows} rows are left after --exclude")
        notes = reading_notes(inputs, roles, features)
        categories = {}
        for word, place in roles.family.items():
            if word == LABEL and request.label_bins is not None:
                categories[word], found = bin_numbers(
                    columns.at(place), place.column, rows, request.label_bins
                )
                notes += found
            else:
                categories[word] = encode(columns.at(place), place.column, rows)
        units = (
            None
            if roles.together is None
            else encode_units(columns.at(roles.together), roles.together.column, rows)
        )
        ids = columns.ids(roles.ids)
        pins = read_pins(request, ids, n_rows, rows)
        matrix = matrices.read_matrix(inputs.features, features, kept, progress)
        names = features.feature_names(matrix.shape[1])
        if request.pairs is not None:
            matrix = matrices.of_kept(matrix, request, rows, n_rows)
            names = tuple(names[row] for row in rows.tolist())
        if request.impute == MEDIAN:
            notes += matrices.impute_median(matrix, names)
        finite = matrices.finite_rows(matrix)
        n_dropped = len(finite) - int(finite.sum())
        dropped = rows[~finite]
        if n_dropped:
            if not request.drop_invalid:
                raise matrices.not_finite(request.path, matrix, finite, rows, names)
            _check_enough(
                len(finite) - n_dropped,
                f"{n_dropped} of {len(finite)} rows have features that are not finite",
            )
            notes += (matrices.dropping(matrix, finite, names, categories),)
            matrix, rows = matrices.drop_rows(matrix, finite), rows[finite]
            categories = {word: restrict(column, finite) for word, column in categories.items()}
            units = None if units is None else np.unique(units[finite], return_inverse=True)[1].reshape(-1)
            pins = pins.restricted_to(finite)
        if matrices.is_constant(matrix):
            raise InputError(
                f"all features of {shown(request.path)} are constant: all {len(rows)} rows are the same",
                hint="choose other features with --columns",
            )
        if request.pairs is not None:
            matrix, found = coordinates(matrix, request.pairs, shown(request.path), rows)
            notes, names = notes + found, coordinate_names(matrix.shape[1])
        prints.check()
        of_target = target.read_from if target else tuple
        return Dataset(
            features=matrix,
            feature_names=names,
            feature_columns=features.names,
            categories=categories,
            rows=rows,
            n_rows=n_rows,
            n_excluded=int(excluded.sum()),
            n_dropped=n_dropped,
            ids=ids,
            id_name=request.id_column,
            read_from=lambda: (*prints.files(), *pins.files, *of_target()),
            notes=notes,
            dropped=dropped,
            families=request.families,
            together=request.together,
            units=units,
            pinned=pins.sides,
            target=target,
            pairs=request.pairs,
        )


def load_target(request: ReadRequest, progress: Progress = silent) -> TargetRows:
    """Read the rows that `--target` names, with the features of those that are split.

    Raises
    ------
    InputError : it is missing or damaged, or has other features, no rows, or rows that are not finite.
    """
    assert request.target is not None
    inputs, _, features = open_request(request)
    source, roles, name = inputs.features, None, request.target_domain
    if name is not None:
        # The target's rows are those that are left out of the split for it.
        asked = replace(request, target=None, exclude=(("domain", name),), stratify=(), families=())
        asked = replace(asked, label_bins=None, together=None, id_column=None)
        inputs, roles, _ = open_request(asked)
    else:
        assert request.target_file is not None
        source, features = _as_in(source, features, open_features(request.target_file))
    with Fingerprints([] if roles else [(look, "target") for look in source.stamps]) as prints:
        if roles is not None:
            columns = _Columns(inputs, roles)
            ((word, place, value),) = roles.exclude
            kept = rows_with_value(columns.at(place), word, place.column, value, "--target")
        else:
            if source.n_rows is None:
                source.read([])
            kept = np.ones(source.n_rows or 0, np.bool_)
        if not kept.any():
            raise InputError(f"the target {shown_target(request)} has no rows", hint="give --target rows")
        matrix = matrices.read_matrix(source, features, kept, progress)
        finite = matrices.finite_rows(matrix)
        if not finite.all():
            if not request.drop_invalid:
                names = features.feature_names(matrix.shape[1])
                raise matrices.not_finite(source.path, matrix, finite, np.flatnonzero(kept), names)
            matrix = matrices.drop_rows(matrix, finite)
        if not len(matrix):
            raise InputError(
                f"the target {shown_target(request)} has no row whose features are all finite",
                hint="give --target rows without NaN",
            )
        prints.check()
    return replace(sampled_target(matrix, request.target), read_from=tuple if roles else prints.files)


def sampled_target(matrix: matrices.Matrix, name: str) -> TargetRows:
    """The rows of a target; of very many a sample, always the same."""
    n_rows = len(matrix)
    if n_rows > TARGET_ROWS:
        chosen = np.random.default_rng(0).choice(n_rows, TARGET_ROWS, replace=False)
        matrix = np.ascontiguousarray(matrix[np.sort(chosen)])
    return TargetRows(matrix, name, n_rows)


def shown_target(request: ReadRequest) -> str:
    """A target, as messages name it."""
    return request.target or "" if request.target_file is None else shown(request.target_file)


def _as_in(split: Source, features: FeatureColumns, target: Source) -> tuple[Source, FeatureColumns]:
    """The features of a target: those of the rows that are split, by name, or by place without names."""
    by_name = not isinstance(target, PlainArraySource) and not isinstance(split, PlainArraySource)
    by_name |= isinstance(split, PlainArraySource) and len(split.columns) == len(target.columns)
    asked = tuple(map(escape, features.names)) if by_name else ()
    chosen = choose_features(target, asked, ())
    if by_name:
        chosen = replace(chosen, names=features.names)
    width = split.columns[features.names[0]].width if features.is_list else len(features.names)
    found = target.columns[chosen.names[0]].width if chosen.is_list else len(chosen.names)
    if width is not None and found is not None and found != width:
        raise InputError(
            f"{shown(target.path)} has {found} features but {shown(split.path)} has {width}",
            hint="the target needs the features that are split, in the same order; see --columns",
        )
    return target, chosen


class _Columns:
    """The columns with a role, read from wherever they are and checked to be aligned."""

    def __init__(self, inputs: Inputs, roles: Roles) -> None:
        places = [*roles.family.values(), *(place for _, place, _ in roles.exclude)]
        places += [place for place in (roles.ids, roles.together) if place is not None]
        self._tables: dict[str, pa.Table] = {}
        lengths: dict[str, int] = {}
        for role, source in inputs.by_role().items():
            names = list(dict.fromkeys(place.column for place in places if place.role == role))
            with reading(source.path, "a table"):
                self._tables[role] = source.read(names)
            lengths[role] = source.n_rows or 0
        self.n_rows = lengths["features"]
        for role, length in lengths.items():
            if length != self.n_rows:
                path = inputs.by_role()[role].path
                raise InputError(
                    f"{shown(path)} has {length} rows but {shown(inputs.features.path)} has {self.n_rows}",
                    hint=f"the {role} file must have one row for each row of the features, in the same order",
                )
        _check_enough(
            self.n_rows,
            f"{shown(inputs.features.path)} has {self.n_rows or 'no'} row{'s' * (self.n_rows != 1)}",
        )

    def at(self, place: Place) -> pa.ChunkedArray:
        """Return a column that was read."""
        return self._tables[place.role].column(place.column)

    def ids(self, place: Place | None) -> pa.Array | None:
        """Return the id column; every row must have an id."""
        if place is None:
            return None
        column = combined(self.at(place))
        if column.null_count:
            missing = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
            raise InputError(
                f"id column {place.column!r} has no value in {len(missing)} rows: {listed(missing.tolist())}",
                hint="fill them in, or choose another column with --id",
            )
        return column


def open_request(request: ReadRequest) -> tuple[Inputs, Roles, FeatureColumns]:
    """Open all files and decide what every column is for, without reading data."""
    inputs = Inputs(
        features=open_features(request.path),
        label=None if request.label_file is None else open_companion(request.label_file, "label"),
        domain=None if request.domain_file is None else open_companion(request.domain_file, "domain"),
        metadata=None if request.metadata is None else open_table(request.metadata),
    )
    roles = assign_roles(request, inputs)
    if request.label_bins is not None and LABEL not in roles.family:
        raise UsageError(
            "--label-bins has no effect, because --stratify does not name the label",
            hint="drop --label-bins, or add label to --stratify",
        )
    return inputs, roles, choose_features(inputs.features, request.columns, roles.reserved)


def _check_enough(n_rows: int, message: str) -> None:
    if n_rows < _FEWEST_ROWS:
        raise InputError(message, hint="a split needs at least two rows")


def reading_notes(inputs: Inputs, roles: Roles, features: FeatureColumns) -> tuple[tuple[str, str], ...]:
    """Collect what the user should know about how the input was understood."""
    notes = [note for source in inputs.by_role().values() for note in source.notes] + list(roles.notes)
    if features.guessed:
        names = listed(features.names, _NAMES_IN_NOTE)
        notes.append(
            (
                "feature_columns_guessed",
                f"all floating-point columns are taken as features: {names}; see --columns",
            )
        )
    return tuple(notes)
