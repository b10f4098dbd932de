"""Index files from one byte per row: written in pieces, so that no list of all positions is ever held."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.destination import REPORT_NAME, output_error
from clustersplit_cli.data.publish import staged_directory
from clustersplit_cli.data.readers.fingerprint import stamp
from clustersplit_cli.data.readers.source import reading
from clustersplit_cli.data.writers import check_formats

TRAIN, VAL, EXCLUDED, DROPPED = range(4)
NAMES = np.array(["train", "val", "excluded", "dropped"])
_BLOCK_ROWS = 1 << 20


@dataclass(frozen=True)
class SideNames:
    """The side of every row in words, spelled out only where it is looked at."""

    sides: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.sides)

    def __getitem__(self, rows: slice) -> NDArray[np.str_]:
        return np.asarray(NAMES[self.sides[rows]])


def positions(sides: NDArray[np.uint8], side: int) -> Iterator[NDArray[np.int64]]:
    """The rows of one side, ascending, in pieces."""
    for start in range(0, len(sides), _BLOCK_ROWS):
        yield start + np.flatnonzero(sides[start : start + _BLOCK_ROWS] == side)


def write_sides(
    destination: Path,
    sides: NDArray[np.uint8] | None,
    *,
    report: str,
    formats: Sequence[str],
    force: bool = False,
    also: Callable[[Path], Sequence[str]] = lambda directory: (),
) -> list[Path]:
    """Publish a run directory whole, or leave everything as it was; see `writers.write_run`.

    Parameters
    ----------
    sides : the side of every row; None if no index files are wanted.
    also : writes further files into the directory that is being made, and names them.
    """
    if sides is not None:
        check_formats(formats)
    names: list[str] = []
    with staged_directory(destination, force=force) as directory:
        for part, side in (("train", TRAIN), ("val", VAL)) if sides is not None else ():
            assert sides is not None
            for suffix in dict.fromkeys(formats):
                names.append(f"{part}.{suffix}")
                count = int((sides == side).sum())
                with (directory / names[-1]).open("xb") as stream:
                    _WRITERS[suffix](stream, positions(sides, side), count)
        names.extend(also(directory))
        names.append(REPORT_NAME)
        (directory / REPORT_NAME).write_bytes(report.encode("utf-8", "backslashreplace"))
    return [destination / name for name in names]


def write_stream(sides: NDArray[np.uint8], stream: BinaryIO) -> None:
    """Write the validation rows as text, one per line, and flush; errors as `write_index_stream` has."""
    try:
        _write_txt(stream, positions(sides, VAL), 0)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise output_error(getattr(stream, "name", "the stream"), error) from error


def _write_npy(stream: BinaryIO, parts: Iterator[NDArray[np.int64]], count: int) -> None:
    header = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(np.int64)),
        "fortran_order": False,
        "shape": (count,),
    }
    np.lib.format.write_array_header_1_0(stream, header)
    for rows in parts:
        stream.write(rows.view(np.uint8).data)


def _write_txt(stream: BinaryIO, parts: Iterator[NDArray[np.int64]], _count: int) -> None:
    for rows in parts:
        if len(rows):
            stream.write(("\n".join(map(str, rows.tolist())) + "\n").encode("ascii"))


def _write_parquet(stream: BinaryIO, parts: Iterator[NDArray[np.int64]], _count: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("row", pa.int64())])
    with pq.ParquetWriter(stream, schema) as writer:
        for rows in parts:
            writer.write_table(pa.table({"row": rows}, schema=schema))


_Writer = Callable[[BinaryIO, Iterator[NDArray[np.int64]], int], None]
_WRITERS: dict[str, _Writer] = {"npy": _write_npy, "txt": _write_txt, "parquet": _write_parquet}


ROWS_FOLDER = "rows"
SPLIT_COLUMN = "split"


def write_row_sides(folder: Path, number: int, first: int, sides: NDArray[np.uint8]) -> str:
    """Write one part: the numbers and sides of consecutive rows, from `first` on; return the file's name.

    The file appears whole or not at all, so that a writer that dies can be replaced by another.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("row", pa.int64()), (SPLIT_COLUMN, pa.string())])
    name = f"part-{number:05d}.parquet"
    unfinished = folder / f".{name}"
    words = pa.array(NAMES.tolist(), pa.string())
    with pq.ParquetWriter(unfinished, schema) as writer:
        for start in range(0, len(sides), _BLOCK_ROWS):
            piece = sides[start : start + _BLOCK_ROWS]
            rows = pa.array(np.arange(first + start, first + start + len(piece)))
            spelled = pa.DictionaryArray.from_arrays(pa.array(piece.astype(np.int8)), words).cast(pa.string())
            writer.write_table(pa.table([rows, spelled], schema=schema))
    unfinished.replace(folder / name)
    return name


def read_row_sides(folder: Path) -> dict[str, NDArray[np.int64]]:
    """The rows of training and of validation, ascending.

    Raises
    ------
    InputError
        If a part is damaged.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found: dict[str, list[NDArray[np.int64]]] = {"train": [], "val": []}
    for path in sorted(folder.glob("part-*.parquet")):
        stamp(path)
        with reading(path, "Parquet"):
            table = pq.ParquetFile(path).read()
            for side, parts in found.items():
                chosen = table.column("row").filter(pc.equal(table.column(SPLIT_COLUMN), side))
                parts.append(chosen.to_numpy().astype(np.int64))
    return {side: np.concatenate([np.empty(0, np.int64), *parts]) for side, parts in found.items()}
