"""The witness of every row, as one Parquet file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.publish import staged_file


def write_witness(
    path: Path,
    groups: Sequence[str],
    codes: NDArray[np.int64],
    rows: NDArray[np.int64],
    values: NDArray[np.float64],
    *,
    force: bool = False,
) -> None:
    """Write columns `group`, `row` and `witness`; the file appears whole or not at all.

    Parameters
    ----------
    groups : names of the groups.
    codes : (n,) the group of each row.
    rows : (n,) the position of each row in its file.
    values : (n,) the witness; NaN, where there is none, becomes null.
    force : replace an earlier file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pa.array(list(groups), pa.string())
    table = pa.table(
        {
            "group": pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), names),
            "row": pa.array(rows, pa.int64()),
            "witness": pa.array(values, pa.float64(), from_pandas=True),
        }
    )
    with staged_file(path, force=force) as place, place.open("xb") as stream:
        pq.write_table(table, stream)
