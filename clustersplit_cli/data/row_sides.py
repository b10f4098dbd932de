"""The side of every row as a Parquet dataset, written in parts by whoever has the rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.readers.arrow_values import explained
from clustersplit_cli.data.side_files import NAMES

ROWS_FOLDER = "rows"
SPLIT_COLUMN = "split"
_BLOCK_ROWS = 1 << 20


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
        with explained(path, "Parquet"):
            table = pq.ParquetFile(path).read()
            for side, parts in found.items():
                chosen = table.column("row").filter(pc.equal(table.column(SPLIT_COLUMN), side))
                parts.append(chosen.to_numpy().astype(np.int64))
    return {side: np.concatenate([np.empty(0, np.int64), *parts]) for side, parts in found.items()}
