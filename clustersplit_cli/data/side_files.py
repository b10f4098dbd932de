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
from clustersplit_cli.data.writers import JSON, SPLIT_FILE, check_formats, write_json

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
    sides: NDArray[np.uint8],
    *,
    report: str,
    formats: Sequence[str],
    force: bool = False,
) -> list[Path]:
    """Publish a run directory whole, or leave everything as it was; see `writers.write_run`."""
    check_formats(formats)
    names: list[str] = []
    with staged_directory(destination, force=force) as directory:
        for part, side in (("train", TRAIN), ("val", VAL)):
            for suffix in dict.fromkeys(formats):
                if suffix == JSON:
                    continue
                names.append(f"{part}.{suffix}")
                count = int((sides == side).sum())
                with (directory / names[-1]).open("xb") as stream:
                    _WRITERS[suffix](stream, positions(sides, side), count)
        if JSON in formats:
            names.append(SPLIT_FILE)
            with (directory / SPLIT_FILE).open("xb") as stream:
                write_json(stream, {"train": positions(sides, TRAIN), "val": positions(sides, VAL)})
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


def _write_csv(stream: BinaryIO, parts: Iterator[NDArray[np.int64]], count: int) -> None:
    stream.write(b"row\n")
    _write_txt(stream, parts, count)


_Writer = Callable[[BinaryIO, Iterator[NDArray[np.int64]], int], None]
_WRITERS: dict[str, _Writer] = {
    "npy": _write_npy,
    "txt": _write_txt,
    "csv": _write_csv,
    "parquet": _write_parquet,
}
