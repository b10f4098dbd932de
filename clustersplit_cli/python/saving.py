"""A run directory of rows in memory: what the command line would have read and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.cli.request import reading_config
from clustersplit_cli.data.dataset import Dataset, InputFile, ReadRequest
from clustersplit_cli.data.destination import INPUT_FOLDER
from clustersplit_cli.data.in_memory import DOMAIN, LABEL, column_of
from clustersplit_cli.data.readers import load
from clustersplit_cli.data.writers import write_run
from clustersplit_cli.errors import InputError
from clustersplit_cli.pipeline.summarize import summarize_input
from clustersplit_cli.python.arguments import SplitInput, families_of
from clustersplit_cli.reports.readable import render_json
from clustersplit_cli.reports.summary import Notice, Report
from clustersplit_cli.similarity import is_of_features

Indices = NDArray[np.int64]
FORMATS = ("npy",)


def save(
    source: SplitInput,
    parts: Mapping[str, Indices],
    labels: Indices,
    report: Report,
    directory: Path,
    features: Path | None,
    given: Mapping[str, Any],
    *,
    force: bool,
) -> None:
    """Publish the directory; its report is that of the same run on the files.

    Parameters
    ----------
    features : the file that the rows are in; None: they are written too.
    given : where label and domain are in files, by the options of the command line.

    Raises
    ------
    InputError
        If the files do not hold the rows.
    """
    if source.dataset.target is not None:
        raise InputError(
            "a split with a target cannot be saved: its report is about files, and the target is none",
            hint="make it of files at the command line",
        )
    into = source.into
    are_folds = into is not None and into.folds is not None
    files = dict(parts)
    if are_folds:
        files = {}
        for number, (name, rows) in enumerate(parts.items()):
            files[f"{name}/train"] = np.flatnonzero((labels >= 0) & (labels != number))
            files[f"{name}/val"] = rows

    def report_of(staging: Path) -> str:
        """Write the input where it is to be, unless it is elsewhere, and read it back."""
        if features is None:
            (staging / INPUT_FOLDER).mkdir()
            request = _written(source, staging / INPUT_FOLDER)
        else:
            request = _request(source, features, given)
            request = _with_forced(source, request, staging / INPUT_FOLDER)
        dataset = load(request)
        _refuse_other_rows(source.dataset, dataset)
        return render_json(_as_of_files(report, source.dataset, dataset, request, staging, source))

    write_run(
        directory,
        parts=files,
        report=report_of,
        formats=FORMATS,
        vectors={"folds": labels} if are_folds else {},
        force=force,
    )


def _request(source: SplitInput, features: Path, given: Mapping[str, Any]) -> ReadRequest:
    """What to read, in the words of the command line."""
    said, dataset = source.said, source.dataset
    families = families_of(dataset)
    return ReadRequest(
        path=features,
        columns=tuple(said.columns),
        label=given["label"],
        domain=given["domain"],
        label_file=given["label_file"],
        domain_file=given["domain_file"],
        metadata=given["metadata"],
        stratify=tuple(dataset.categories),
        families=families if len(families) > 1 else (),
        drop_invalid=said.drop_invalid,
        label_bins=said.label_bins,
        together=dataset.together,
        pairs=said.pairs,
    )


def _written(source: SplitInput, folder: Path) -> ReadRequest:
    """Write features, and the columns of cells and groups, into a folder."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, dataset = source.rows, source.dataset
    if hasattr(dataset.features, "indptr"):
        raise InputError(
            "X is sparse, and files hold dense rows", hint="save the row numbers with numpy.save"
        )
    if rows.table is None:
        features = folder / "features.npy"
        np.save(features, rows.matrix, allow_pickle=False)
    else:
        features = folder / "features.parquet"
        pq.write_table(rows.table.table.select(list(dataset.feature_columns)), features)
    said = source.said
    given = {LABEL: said.y, DOMAIN: said.domains, **said.more}
    columns = {}
    for word in dataset.categories:
        values = given.get(word)
        columns[word] = column_of(word if values is None else values, word, rows)
    together = dataset.together
    if together is not None and not is_of_features(together):
        if together in columns:
            raise InputError(
                f"cells and groups are both of a column named {together!r}",
                hint="pass groups as values of another name",
            )
        columns[together] = column_of(said.groups, together, rows)
    metadata = None
    if columns:
        metadata = folder / "rows.parquet"
        pq.write_table(pa.table(columns), metadata)
    words = {word: word if word in columns else None for word in (LABEL, DOMAIN)}
    elsewhere = {"label_file": None, "domain_file": None, "metadata": metadata}
    request = _request(source, features, {**words, **elsewhere})
    every = ("*",) if rows.table is not None else ()
    return _with_forced(source, replace(request, columns=every), folder)


def _with_forced(source: SplitInput, request: ReadRequest, folder: Path) -> ReadRequest:
    """Write the rows that are forced to a side."""
    for side, name in enumerate(("force_train", "force_val")):
        if getattr(source.said, name) is None or source.dataset.pinned is None:
            continue
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}.npy"
        np.save(path, source.dataset.rows[source.dataset.pinned == side], allow_pickle=False)
        request = replace(request, **{name: path})  # type: ignore[arg-type]
    return request


def _refuse_other_rows(ours: Dataset, theirs: Dataset) -> None:
    """Compare what was split with what the files hold."""
    if ours.n_rows != theirs.n_rows or not np.array_equal(ours.rows, theirs.rows):
        raise InputError(
            f"the file has {theirs.n_rows} rows and X has {ours.n_rows}, or others were dropped",
            hint="name the file that X was read from, or leave features out to write the rows",
        )
    different = [
        name
        for name, same in {
            "features": ours.features.shape == theirs.features.shape
            and np.array_equal(ours.features, theirs.features),
            **{
                word: column.values == theirs.categories[word].values
                and np.array_equal(column.codes, theirs.categories[word].codes)
                for word, column in ours.categories.items()
            },
            "groups": ours.units is None
            or (theirs.units is not None and np.array_equal(ours.units, theirs.units)),
        }.items()
        if not same
    ]
    if different:
        raise InputError(
            f"the file holds other values than those that were split: {', '.join(different)}",
            hint="name the file that X was read from, without changes, or leave features out",
        )


def _as_of_files(
    report: Report, ours: Dataset, theirs: Dataset, request: ReadRequest, staging: Path, source: SplitInput
) -> Report:
    """The report that the command line would have written of the files, which take the place of X."""

    def place(path: Path | None) -> Path | None:
        return None if path is None else path.relative_to(staging) if staging in path.parents else path

    def named(file: InputFile) -> InputFile:
        return replace(file, path=str(place(Path(file.path))))

    paths = ("path", "label_file", "domain_file", "metadata", "force_train", "force_val")
    places: dict[str, Any] = {name: place(getattr(request, name)) for name in paths}
    stated = replace(request, **places)
    output: Any = SimpleNamespace(formats=FORMATS)
    config = {**report.config, **reading_config(stated, theirs, output)}
    into = source.into
    if into is not None and into.folds is None:
        config["parts"] = report.config["parts"]
    files = tuple(map(named, theirs.files))
    known = [Notice(*note) for note in ours.notes]
    warnings = (
        *(Notice(*note) for note in theirs.notes),
        *(notice for notice in report.warnings if notice not in known),
    )
    named_dataset = replace(theirs, read_from=lambda: files)
    return replace(report, input=summarize_input(named_dataset), config=config, warnings=warnings)
