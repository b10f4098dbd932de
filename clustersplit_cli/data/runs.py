"""Earlier results, read back: index files by any tool, and the directories that this program writes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.destination import REPORT_NAME, WEIGHTS_NAME
from clustersplit_cli.data.readers.arrays import describe_shape, open_npy
from clustersplit_cli.data.readers.arrow_values import combined
from clustersplit_cli.data.readers.fingerprint import stamp, text_of
from clustersplit_cli.data.readers.formats import detect
from clustersplit_cli.data.readers.naming import listed, shown
from clustersplit_cli.data.readers.source import reading
from clustersplit_cli.data.writers import JSON, SPLIT_FILE
from clustersplit_cli.errors import InputError

Indices = NDArray[np.int64]

PARTS = ("train", "val")
ROW_COLUMN = "row"
_CURE = "row positions are integers, as in numpy.save('val.npy', numpy.flatnonzero(mask))"
_DAMAGED = "see what is wrong with clustersplit verify"
_SUFFIXES = (".npy", ".parquet", ".txt", ".csv")


@dataclass(frozen=True)
class SplitRun:
    """A run directory.

    Attributes
    ----------
    directory : as the user named it.
    report : the content of `report.json`, as `reports.json_report.load_report` returned it.
    train, val : row positions as they are in the files: possibly unsorted, repeated or out of range.
    paths : every index file of each part, the one that was read first.
    weights : of validation rows, where the run has some.
    """

    directory: Path
    report: Mapping[str, Any]
    train: Indices
    val: Indices
    paths: Mapping[str, tuple[Path, ...]]
    weights: NDArray[np.float64] | None = None


def load_run(directory: Path, report: Mapping[str, Any]) -> SplitRun:
    """Read a directory that `clustersplit split` or `clustersplit baseline` wrote, in whatever format.

    Parameters
    ----------
    report : its report, checked.

    Raises
    ------
    InputError
        If it holds no split in two, or a file of it is missing or damaged.
    """
    if is_partition_run(report["config"]):
        held = "folds" if report["config"].get("k") is not None else "named parts"
        raise InputError(
            f"{shown(directory)} holds {held}, not a split in two",
            hint="their MMDs are in its report.json; compare two files of rows with "
            "clustersplit mmd FEATURES --train FILE --val FILE, or read them with Partition.load in Python",
        )
    paths = {part: index_files(directory, part) for part in PARTS}
    train, val = (read_indices(paths[part][0], part) for part in PARTS)
    weights = None
    if report["config"].get("weights"):
        weights = read_weights(directory, (report["config"].get("format") or ["npy"])[0])
    return SplitRun(directory, report, train, val, paths, weights)


def read_weights(directory: Path, suffix: str) -> NDArray[np.float64]:
    """Read the weights of validation rows, in the order of their positions.

    Raises
    ------
    InputError
        If the file is missing, damaged, or does not hold numbers.
    """
    path = part_file(directory, WEIGHTS_NAME, suffix)
    stamp(path)
    with reading(path, "weights"):
        values: Any
        if suffix == "npy":
            values = np.load(path, allow_pickle=False)
        elif suffix in ("txt", "csv"):
            values = np.loadtxt(path, ndmin=1, skiprows=int(suffix == "csv"))
        elif suffix == JSON:
            values = json.loads(text_of(path))[WEIGHTS_NAME]
        else:
            import pyarrow.parquet as pq

            values = pq.read_table(path).column(0).to_numpy()
        return np.asarray(values, dtype=np.float64).reshape(-1)


def is_partition_run(config: Mapping[str, Any]) -> bool:
    """Whether a run made folds or named parts."""
    return config.get("k") is not None or config.get("parts") is not None


def part_file(directory: Path, part: str, suffix: str) -> Path:
    """Where the rows of a part are in one format; `part` may be in a folder, as `fold_0/val` is."""
    return directory / (SPLIT_FILE if suffix == JSON else f"{part}.{suffix}")


def read_part(directory: Path, part: str, suffix: str) -> Indices:
    """Read the rows of a part in one format; errors as of `read_indices`."""
    return read_indices(part_file(directory, part, suffix), part)


def read_indices(path: Path, part: str | None = None) -> Indices:
    """Read row positions from NPY (1-D), text, CSV, JSON or Parquet (one column, or one named `row`).

    The format is told by the content, but for JSON, which holds several parts by name.
    Values are returned as read: whether they are in range, distinct and sorted is for the caller to judge.

    Parameters
    ----------
    part : the one that is read of several, such as `train` or `fold_0/val`.

    Raises
    ------
    InputError
        If the file is missing, damaged, or does not hold integers.
    """
    if path.suffix.lower() == f".{JSON}":
        return _from_json(path, part)
    format_ = detect(path)
    if format_ == "NPY":
        return _from_npy(path)
    if format_ == "Parquet":
        return _from_parquet(path)
    if format_ == "CSV":
        return _from_text(path)
    raise InputError(f"{shown(path)} is {format_}, which cannot hold row positions", hint=_CURE)


def report_file(directory: Path) -> Path:
    """Where the report of a run directory is.

    Raises
    ------
    InputError
        If it is no directory, or has no report.
    """
    hint = "name the directory of an earlier run, the one that holds its report.json"
    if not os.path.isdir(directory):  # noqa: PTH112 - Path.is_dir raises on names that are too long
        what = "is not a directory" if os.path.lexists(directory) else "does not exist"
        raise InputError(f"{shown(directory)} {what}", hint=hint)
    if not os.path.lexists(directory / REPORT_NAME):
        raise InputError(f"{shown(directory)} has no {REPORT_NAME}", hint=hint)
    return directory / REPORT_NAME


def index_files(directory: Path, part: str) -> tuple[Path, ...]:
    """Find all index files of a part."""
    named = [directory / f"{part}{suffix}" for suffix in _SUFFIXES]
    named.append(directory / SPLIT_FILE)
    found = tuple(path for path in named if os.path.isfile(path))  # noqa: PTH113 - raises on long names
    if not found:
        raise InputError(
            f"{shown(directory)} has neither {' nor '.join(path.name for path in named)}",
            hint="make the run again",
        )
    return found


def _indices_of(directory: Path, part: str) -> Indices:
    return read_indices(index_files(directory, part)[0], part)


def _from_npy(path: Path) -> Indices:
    array = open_npy(path)
    if array.dtype.kind == "b":
        raise InputError(
            f"{shown(path)} holds a mask ({describe_shape(array)}), not row positions", hint=_CURE
        )
    if len(array.shape) != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"{shown(path)} holds {describe_shape(array)}, not row positions in one dimension", hint=_CURE
        )
    return _as_int64(array.whole(), path)


def _from_parquet(path: Path) -> Indices:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path, "Parquet"), path.open("rb") as stream:
        file = pq.ParquetFile(stream)
        names = list(file.schema_arrow.names)
        names = [ROW_COLUMN] if ROW_COLUMN in names else names
        if len(names) != 1:
            raise InputError(
                f"{shown(path)} has {len(names)} columns and none is named '{ROW_COLUMN}'",
                hint="keep only the column of row positions",
            )
        column = combined(file.read(columns=names).column(names[0]))
    if not pa.types.is_integer(column.type):
        raise InputError(
            f"column {names[0]!r} of {shown(path)} holds {column.type}, not row positions", hint=_CURE
        )
    if column.null_count:
        raise InputError(f"column {names[0]!r} of {shown(path)} has {column.null_count} nulls", hint=_CURE)
    return _as_int64(column.to_numpy(zero_copy_only=False), path)


def _from_text(path: Path) -> Indices:
    import pyarrow as pa
    import pyarrow.compute as pc

    lines = text_of(path).splitlines()
    if lines and lines[0].strip() in (ROW_COLUMN, path.stem):  # the header of a CSV
        lines = lines[1:]
    words = pc.utf8_trim_whitespace(pa.array(lines, pa.large_string()))
    is_number = pc.match_substring_regex(words, r"^-?[0-9]{1,18}$")
    unread = np.flatnonzero(~is_number.to_numpy(zero_copy_only=False)).tolist()
    # Blank lines at the end are how some editors leave a file; anywhere else something is missing.
    while unread and unread[-1] == len(words) - 1 and words[-1].as_py() == "":
        unread.pop()
        words = words[:-1]
    if unread:
        places = listed([f"line {line + 1} ({words[line].as_py()[:20]!r})" for line in unread[:3]])
        raise InputError(
            f"{shown(path)} has {len(unread)} lines that are no row positions: {places}",
            hint="one integer per line, nothing else",
        )
    return np.asarray(words.cast(pa.int64()).to_numpy(), dtype=np.int64)


def _from_json(path: Path, part: str | None) -> Indices:
    """Read the rows of one part of a file that holds them all by name."""
    try:
        found: Any = json.loads(text_of(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{shown(path)} is no JSON: {str(error)[:80]}", hint=_DAMAGED) from None
    words = (part or "").split("/") if part else []
    for word in words:
        if not isinstance(found, dict) or word not in found:
            raise InputError(f"{shown(path)} has no part {part!r}", hint='{"train": [...], "val": [...]}')
        found = found[word]
    if not isinstance(found, list) or not all(type(value) is int and abs(value) < 2**63 for value in found):
        raise InputError(f"{part or 'the content'} of {shown(path)} is no list of row positions", hint=_CURE)
    return np.array(found, dtype=np.int64)


def _as_int64(values: NDArray[Any], path: Path) -> Indices:
    if values.dtype.kind == "u" and len(values) and int(values.max()) > np.iinfo(np.int64).max:
        raise InputError(
            f"{shown(path)} holds {int(values.max())}, which is no row position of any file", hint=_CURE
        )
    return values.astype(np.int64)


@dataclass(frozen=True)
class PartitionRun:
    """A directory of folds or named parts; attributes as of `SplitRun`.

    Attributes
    ----------
    parts : the row positions of every part, by name, ascending.
    labels : (rows of the input,) the number of every row's part; -1 for a row in none.
    """

    directory: Path
    report: Mapping[str, Any]
    parts: Mapping[str, Indices]
    labels: NDArray[np.int64]


def load_parts(directory: Path, report: Mapping[str, Any]) -> PartitionRun:
    """Read a directory that `clustersplit kfold` or `clustersplit split --parts` wrote, in whatever format.

    Parameters
    ----------
    report : its report, checked.

    Raises
    ------
    InputError
        If it holds no folds or parts, or a file of it is missing or damaged.
    """
    if not is_partition_run(report["config"]):
        raise InputError(
            f"{shown(directory)} holds a split in train and val, not folds or named parts",
            hint="in Python, read it with Split.load",
        )
    stem = "{}/val" if report["config"].get("k") is not None else "{}"
    names = [part["name"] for part in report["parts"]["parts"]]
    parts = {name: np.sort(_indices_of(directory, stem.format(name))) for name in names}
    stated = report["input"]
    n_rows = stated["n_rows"]
    # Before anything as large as the report says is made, its number of rows must be that of the files.
    if sum(map(len, parts.values())) != n_rows - stated["n_excluded"] - stated["n_dropped"]:
        raise InputError(
            f"the index files of {shown(directory)} do not describe a split of the input", hint=_DAMAGED
        )
    labels = np.full(n_rows, -1, dtype=np.int64)
    for number, (name, rows) in enumerate(parts.items()):
        if len(rows) == 0 or rows[0] < 0 or rows[-1] >= n_rows or (labels[rows] >= 0).any():
            raise InputError(
                f"{name} of {shown(directory)} has no rows, rows of other parts, or rows that do not exist",
                hint=_DAMAGED,
            )
        labels[rows] = number
    return PartitionRun(directory, report, parts, labels)
