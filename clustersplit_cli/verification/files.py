"""The files of a run directory: are they there, whole, of the right type, and do they agree?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.data.readers.fingerprint import stamp
from clustersplit_cli.data.runs import PARTS, read_indices
from clustersplit_cli.data.side_files import ROWS_FOLDER, read_row_sides
from clustersplit_cli.errors import InputError
from clustersplit_cli.reports.verification import FAILED, OK, Check

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class IndexFiles:
    """The row positions of both parts, where they could be read, and what is wrong with the files."""

    sides: Mapping[str, Indices]
    faults: tuple[str, ...]

    @property
    def check(self) -> Check:
        """The check that the files are as they should be."""
        if self.faults:
            return Check("index files", FAILED, "; ".join(self.faults))
        sizes = " and ".join(f"{len(rows)} {part} rows" for part, rows in self.sides.items())
        return Check("index files", OK, f"whole, int64, {sizes}")

    @property
    def is_complete(self) -> bool:
        """Whether both parts could be read."""
        return len(self.sides) == len(PARTS)


def read_run_indices(directory: Path, formats: Sequence[str]) -> IndexFiles:
    """Read the index files of a run in every format it was written in; all must say the same."""
    sides: dict[str, Indices] = {}
    faults: list[str] = []
    if not formats:  # the workers of a cluster wrote the side of every row
        try:
            return IndexFiles(read_row_sides(directory / ROWS_FOLDER), ())
        except InputError as error:
            return IndexFiles({}, (error.message,))
    for part in PARTS:
        for suffix in formats:
            path = directory / f"{part}.{suffix}"
            try:
                rows = read_indices(path)
            except InputError as error:
                faults.append(error.message)
                continue
            if (kind := stored_type(path, suffix)) != "int64":
                faults.append(f"{path.name} holds {kind}, not int64")
            if not np.array_equal(sides.setdefault(part, rows), rows):
                faults.append(f"{path.name} differs from {part}.{formats[0]}")
    return IndexFiles(sides, tuple(faults))


def read_pair(train: Path, val: Path) -> IndexFiles:
    """Read anyone's index files: any format, any integer type."""
    sides: dict[str, Indices] = {}
    faults: list[str] = []
    for part, path in zip(PARTS, (train, val), strict=True):
        try:
            sides[part] = read_indices(path)
        except InputError as error:
            if not path.exists():
                raise
            faults.append(error.message)
    return IndexFiles(sides, tuple(faults))


def stated_formats(config: Mapping[str, Any]) -> list[str]:
    """The formats that a run was written in; none where the workers of a cluster wrote it."""
    return list(config.get("format", ["npy"]))


def check_ids(
    directory: Path, formats: Sequence[str], sides: Mapping[str, Indices], dataset: Dataset
) -> Check:
    """Check that the id files hold the ids of the rows of the index files, in the same order."""
    import pyarrow as pa

    faults: list[str] = []
    for part, rows in sides.items():
        # Dictionaries and chunks are ways to store the same values.
        wanted = pa.chunked_array([dataset.ids]) if isinstance(dataset.ids, pa.Array) else dataset.ids
        if pa.types.is_dictionary(wanted.type):
            wanted = wanted.cast(wanted.type.value_type)
        expected = wanted.take(pa.array(rows)).to_pylist()
        for suffix in formats:
            path = directory / f"{part}_ids.{suffix}"
            try:
                stamp(path)
                found = _READ_IDS[suffix](path)
            except (InputError, OSError, ValueError, EOFError, pa.ArrowException) as error:
                faults.append(
                    f"{path.name} cannot be read: {(str(error) or 'it is cut off').splitlines()[0]}"
                )
                continue
            said = pa.array(expected).cast(pa.string()).to_pylist() if suffix == "txt" else expected
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


_READ_IDS = {"npy": _ids_from_npy, "txt": _ids_from_text, "parquet": _ids_from_parquet}
