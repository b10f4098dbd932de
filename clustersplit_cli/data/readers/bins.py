"""Numbers as categories: quantile bins of a regression target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.dataset import Categories
from clustersplit_cli.data.readers.naming import listed
from clustersplit_cli.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa


def bin_numbers(
    column: pa.ChunkedArray, word: str, rows: NDArray[np.int64], bins: int
) -> tuple[Categories, tuple[tuple[str, str], ...]]:
    """Cut a column of numbers, at some rows, into bins that hold about equally many of them.

    Equal numbers are never torn apart, so there may be fewer bins than asked for.

    Returns
    -------
    The bins, named by the numbers they span, and warnings as (code, message).

    Raises
    ------
    InputError
        If the column holds anything but finite numbers.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise InputError(
            f"column {word!r} holds {column.type}, and --label-bins cuts numbers",
            hint="drop --label-bins, or choose a column of numbers with --label",
        )
    values = column.cast(pa.float64()).to_numpy()[rows]
    missing = rows[~np.isfinite(values)]
    if len(missing):
        raise InputError(
            f"column {word!r} has no finite number in {len(missing)} rows: {listed(missing.tolist())}",
            hint=f"fill them in, or leave these rows out with --exclude {word}=",
        )
    # Cuts are values that occur: the first of the next bin.
    cuts = np.unique(np.quantile(values, np.arange(1, bins) / bins, method="higher"))
    codes = np.searchsorted(cuts, values, side="right")
    kept, codes = np.unique(codes, return_inverse=True)
    names = []
    for code in range(len(kept)):
        inside = values[codes == code]
        names.append(f"{code + 1}: {inside.min():.6g} to {inside.max():.6g}")
    notes: tuple[tuple[str, str], ...] = ()
    if len(kept) < bins:
        message = f"--label-bins {bins} gave {len(kept)} bins, because column {word!r} repeats numbers"
        notes = (("fewer_bins", message),)
    return Categories(codes.reshape(-1).astype(np.int32), tuple(names)), notes
