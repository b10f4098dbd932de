"""The files of a run directory: are they there, whole, of the right type, and do they agree?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.data.destination import WEIGHTS_NAME
from clustersplit_cli.data.readers.fingerprint import stamp
from clustersplit_cli.data.row_labels import files_of_folds, files_of_sides, labels_of
from clustersplit_cli.data.runs import PARTS, part_file, read_indices, read_part, read_weights
from clustersplit_cli.data.writers import JSON
from clustersplit_cli.errors import InputError
from clustersplit_cli.pipeline.context import PartitionOptions
from clustersplit_cli.pipeline.result import GivenParts
from clustersplit_cli.reports.verification import FAILED, OK, Check

Indices = NDArray[np.int64]
_NAMED = 3

WEIGHT_ERROR = 1e-3
"""How far weights of mean 1 may be off: the last steps of their search depend on rounding."""


@dataclass(frozen=True)
class IndexFiles:
    """The row positions of all parts, where they could be read, and what is wrong with the files.

    Attributes
    ----------
    parts : by the path of their file, without its suffix.
    directory, formats : where and how they were written; no formats where shards wrote the side of every row.
    """

    parts: Mapping[str, Indices]
    faults: tuple[str, ...]
    n_parts: int = len(PARTS)
    directory: Path = Path()
    formats: tuple[str, ...] = ()
    are_folds: bool = False

    @property
    def check(self) -> Check:
        """The check that the files are as they should be."""
        if self.faults:
            return Check("index files", FAILED, "; ".join(self.faults[: _NAMED * len(PARTS)]))
        if self.n_parts > len(PARTS):
            return Check("index files", OK, f"whole, int64, {self.n_parts} parts")
        sizes = " and ".join(f"{len(rows)} {part} rows" for part, rows in self.parts.items())
        return Check("index files", OK, f"whole, int64, {sizes}")

    @property
    def is_complete(self) -> bool:
        """Whether all parts could be read."""
        return len(self.parts) == self.n_parts

    def given(self, n_rows: int, *, trusted: bool) -> GivenParts:
        """The part of every row.

        Parameters
        ----------
        trusted : whether the files are right, so that an engine may read parts of them.
        """
        labels, find = labels_of(self.parts, n_rows), files_of_folds if self.are_folds else files_of_sides
        is_known = self.are_folds or tuple(self.parts) == PARTS  # others have no labels in files
        return GivenParts(labels, find(self.directory, self.formats) if trusted and is_known else None)


def read_index_files(
    directory: Path, formats: Sequence[str], into: PartitionOptions | None = None
) -> IndexFiles:
    """Read the index files of a run in every format it was written in; all must say the same."""
    parts: dict[str, Indices] = {}
    faults: list[str] = []
    stems = PARTS if into is None else into.stems
    for stem in stems:
        for suffix in formats:
            path = part_file(directory, stem, suffix)
            try:
                rows = read_indices(path, stem)
            except InputError as error:
                faults.append(error.message)
                continue
            if (kind := stored_type(path, suffix)) != "int64":
                faults.append(f"{stem}.{suffix} holds {kind}, not int64")
            if not np.array_equal(parts.setdefault(stem, rows), rows):
                faults.append(f"{stem}.{suffix} differs from {stem}.{formats[0]}")
    are_folds = into is not None and into.folds is not None
    return IndexFiles(parts, tuple(faults), len(stems), directory, tuple(formats), are_folds)


def read_pair(train: Path, val: Path) -> IndexFiles:
    """Read anyone's index files: any format, any integer type."""
    sides: dict[str, Indices] = {}
    faults: list[str] = []
    for part, path in zip(PARTS, (train, val), strict=True):
        try:
            sides[part] = read_indices(path, part)
        except InputError as error:
            if not path.exists():
                raise
            faults.append(error.message)
    return IndexFiles(sides, tuple(faults))


def stated_formats(config: Mapping[str, Any]) -> list[str]:
    """The formats that a run was written in."""
    return list(config.get("format", ["npy"]))


def check_folds(files: IndexFiles, n_rows: int) -> Check:
    """Check that every fold's training rows are the other folds, and that the fold of every row is right."""
    faults, numbers = [], labels_of(files.parts, n_rows).labels.astype(np.int64)
    try:
        for suffix in files.formats:
            if not np.array_equal(read_part(files.directory, "folds", suffix), numbers):
                faults.append(f"folds.{suffix} is not the fold of every row")
            for fold, stem in enumerate(files.parts):
                name = Path(stem).parent.name
                rows = read_part(files.directory, f"{name}/train", suffix)
                if not np.array_equal(rows, np.flatnonzero((numbers >= 0) & (numbers != fold))):
                    faults.append(f"{name}/train.{suffix} is not what the other folds are")
    except InputError as error:
        faults.append(error.message)
    if faults:
        return Check("folds agree", FAILED, "; ".join(faults[:_NAMED]))
    return Check("folds agree", OK, f"{files.n_parts} folds, each with the others to train on")


def check_ids(files: IndexFiles, dataset: Dataset) -> Check:
    """Check that the id files hold the ids of the rows of the index files, in the same order."""
    import pyarrow as pa

    faults: list[str] = []
    for part, rows in files.parts.items():
        # Dictionaries and chunks are ways to store the same values.
        wanted = pa.chunked_array([dataset.ids]) if isinstance(dataset.ids, pa.Array) else dataset.ids
        if pa.types.is_dictionary(wanted.type):
            wanted = wanted.cast(wanted.type.value_type)
        expected = wanted.take(pa.array(rows)).to_pylist()
        for suffix in files.formats:
            path = part_file(files.directory, f"{part}_ids", suffix)
            try:
                stamp(path)
                found = _ids_from_json(path, f"{part}_ids") if suffix == JSON else _READ_IDS[suffix](path)
            except (InputError, OSError, ValueError, KeyError, EOFError, pa.ArrowException) as error:
                faults.append(
                    f"{path.name} cannot be read: {(str(error) or 'it is cut off').splitlines()[0]}"
                )
                continue
            as_text = suffix in ("txt", "csv")
            said = pa.array(expected).cast(pa.string()).to_pylist() if as_text else expected
            if found != said:
                pairs = zip(found, said, strict=False)
                place = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(found), len(said)))
                faults.append(f"{path.name} is wrong from entry {place} on")
    if faults:
        return Check("id files", FAILED, "; ".join(faults))
    return Check("id files", OK, f"the ids of column {dataset.id_name}, in the order of the rows")


def stored_type(path: Path, suffix: str) -> str:
    """The type in which a readable index file stores its numbers; text has none of its own."""
    if suffix == "npy":
        dtype = np.load(path, mmap_mode="r", allow_pickle=False).dtype
        return "int64" if dtype == np.int64 else str(dtype)
    if suffix == "parquet":
        import pyarrow.parquet as pq

        return str(pq.read_schema(path).field(0).type)
    return "int64"


def _ids_from_npy(path: Path) -> list[Any]:
    values: list[Any] = np.load(path, allow_pickle=False).tolist()
    return values


def _ids_from_text(path: Path) -> list[Any]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def _ids_from_parquet(path: Path) -> list[Any]:
    import pyarrow.parquet as pq

    values: list[Any] = pq.read_table(path).column(0).to_pylist()
    return values


def _ids_from_csv(path: Path) -> list[Any]:
    import pyarrow as pa
    import pyarrow.csv

    name = next(iter(pyarrow.csv.open_csv(path).schema.names))
    options = pyarrow.csv.ConvertOptions(column_types={name: pa.string()})
    values: list[Any] = pyarrow.csv.read_csv(path, convert_options=options).column(0).to_pylist()
    return values


def _ids_from_json(path: Path, part: str) -> list[Any]:
    found: Any = json.loads(path.read_text(encoding="utf-8"))
    for word in part.split("/"):
        found = found[word]
    return list(found)


_READ_IDS = {
    "npy": _ids_from_npy,
    "txt": _ids_from_text,
    "csv": _ids_from_csv,
    "parquet": _ids_from_parquet,
}


def check_weights(directory: Path, formats: Sequence[str], recomputed: NDArray[np.float64]) -> Check:
    """Compare the weights of validation rows with recomputed ones."""
    faults = []
    for suffix in formats:
        try:
            found = read_weights(directory, suffix)
        except InputError as error:
            faults.append(error.message)
            continue
        if found.shape != recomputed.shape or not np.abs(found - recomputed).max() <= WEIGHT_ERROR:
            faults.append(f"{WEIGHTS_NAME}.{suffix} does not hold the weights of kernel mean matching")
    if faults:
        return Check("weights", FAILED, "; ".join(faults))
    return Check("weights", OK, f"{len(recomputed)}, as recomputed")
