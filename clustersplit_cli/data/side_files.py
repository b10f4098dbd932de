"""Index files from one byte per row: written in pieces, so that no list of all positions is ever held."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.destination import REPORT_NAME, output_error
from clustersplit_cli.data.publish import staged_directory
from clustersplit_cli.data.writers import JSON, SPLIT_FILE, check_formats, write_json

TRAIN, VAL, EXCLUDED, DROPPED = 0, 1, 254, 255
"""Of parts that are not two, the numbers are those of the parts."""
MOST_PARTS = EXCLUDED
PAIR = ("train", "val")
_BLOCK_ROWS = 1 << 20


def _words(names: Sequence[str]) -> NDArray[np.str_]:
    """What every byte says."""
    nobody = [""] * (EXCLUDED - len(names))
    return np.array([*names, *nobody, "excluded", "dropped"])


@dataclass(frozen=True)
class SideNames:
    """The side, or the part, of every row in words, spelled out only where it is looked at."""

    sides: NDArray[np.uint8]
    names: Sequence[str] = PAIR

    def __len__(self) -> int:
        return len(self.sides)

    def __getitem__(self, rows: slice) -> NDArray[np.str_]:
        return np.asarray(_words(self.names)[self.sides[rows]])


def positions(sides: NDArray[np.uint8], side: int) -> Iterator[NDArray[np.int64]]:
    """The rows of one side, ascending, in pieces."""
    for start in range(0, len(sides), _BLOCK_ROWS):
        yield start + np.flatnonzero(sides[start : start + _BLOCK_ROWS] == side)


def _others(sides: NDArray[np.uint8], fold: int) -> Iterator[NDArray[np.int64]]:
    """The rows of all other folds, likewise."""
    for start in range(0, len(sides), _BLOCK_ROWS):
        piece = sides[start : start + _BLOCK_ROWS]
        yield start + np.flatnonzero((piece != fold) & (piece < EXCLUDED))


def _folds(sides: NDArray[np.uint8]) -> Iterator[NDArray[np.int64]]:
    """The fold of every row, -1 for none, likewise."""
    for start in range(0, len(sides), _BLOCK_ROWS):
        piece = sides[start : start + _BLOCK_ROWS]
        yield np.where(piece < EXCLUDED, piece.astype(np.int64), -1)


def _listed(
    sides: NDArray[np.uint8], parts: Sequence[str], *, are_folds: bool
) -> Iterator[tuple[str, str, Iterator[NDArray[np.int64]], int]]:
    """What is written: the name of every list, that of its column, the numbers in pieces, and how many."""
    counts = np.bincount(sides, minlength=DROPPED + 1)
    kept = int(counts[:EXCLUDED].sum())
    if are_folds:
        yield "folds", "folds", _folds(sides), len(sides)
    for part, name in enumerate(parts):
        if are_folds:
            yield f"{name}/train", "row", _others(sides, part), kept - int(counts[part])
        yield f"{name}/val" if are_folds else name, "row", positions(sides, part), int(counts[part])


def write_sides(
    destination: Path,
    sides: NDArray[np.uint8],
    *,
    report: str,
    formats: Sequence[str],
    parts: Sequence[str] = PAIR,
    are_folds: bool = False,
    force: bool = False,
) -> list[Path]:
    """Publish a run directory whole, or leave everything as it was; see `writers.write_run`.

    Parameters
    ----------
    parts, are_folds : names of the parts, and whether each is a fold: then what to train on is written too.
    """
    check_formats(formats)
    names: list[str] = []
    with staged_directory(destination, force=force) as directory:
        tree: dict[str, Any] = {}
        for suffix in dict.fromkeys(formats):
            for stem, column, pieces, count in _listed(sides, parts, are_folds=are_folds):
                if suffix == JSON:
                    *folders, name = stem.split("/")
                    place = tree
                    for folder in folders:
                        place = place.setdefault(folder, {})
                    place[name] = pieces
                    continue
                names.append(f"{stem}.{suffix}")
                (directory / names[-1]).parent.mkdir(exist_ok=True)
                with (directory / names[-1]).open("xb") as stream:
                    _WRITERS[suffix](stream, pieces, count, column)
        if JSON in formats:
            names.append(SPLIT_FILE)
            with (directory / SPLIT_FILE).open("xb") as stream:
                write_json(stream, tree)
        names.append(REPORT_NAME)
        (directory / REPORT_NAME).write_bytes(report.encode("utf-8", "backslashreplace"))
    return [destination / name for name in names]


def write_stream(sides: NDArray[np.uint8], stream: BinaryIO) -> None:
    """Write the validation rows as text, one per line, and flush; errors as `write_index_stream` has."""
    try:
        _write_txt(stream, positions(sides, VAL), 0, "row")
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise output_error(getattr(stream, "name", "the stream"), error) from error


def _write_npy(stream: BinaryIO, parts: Iterator[NDArray[np.int64]], count: int, _column: str) -> None:
    header = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(np.int64)),
        "fortran_order": False,
        "shape": (count,),
    }
    np.lib.format.write_array_header_1_0(stream, header)
    for rows in parts:
        stream.write(rows.view(np.uint8).data)


def _write_txt(stream: BinaryIO, parts: Iterator[NDArray[np.int64]], _count: int, _column: str) -> None:
    for rows in parts:
        if len(rows):
            stream.write(("\n".join(map(str, rows.tolist())) + "\n").encode("ascii"))


def _write_parquet(stream: BinaryIO, parts: Iterator[NDArray[np.int64]], _count: int, column: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(column, pa.int64())])
    with pq.ParquetWriter(stream, schema) as writer:
        for rows in parts:
            writer.write_table(pa.table({column: rows}, schema=schema))


def _write_csv(stream: BinaryIO, parts: Iterator[NDArray[np.int64]], count: int, column: str) -> None:
    stream.write(f"{column}\n".encode())
    _write_txt(stream, parts, count, column)


_Writer = Callable[[BinaryIO, Iterator[NDArray[np.int64]], int, str], None]
_WRITERS: dict[str, _Writer] = {
    "npy": _write_npy,
    "txt": _write_txt,
    "csv": _write_csv,
    "parquet": _write_parquet,
}
