"""Labels, domains and other columns of categories as integer codes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.dataset import Categories
from clustersplit_cli.data.readers.naming import listed
from clustersplit_cli.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

FEW_ROWS = 50_000


def encode(column: pa.ChunkedArray, word: str, rows: NDArray[np.int64]) -> Categories:
    """Encode a column at some rows.

    Parameters
    ----------
    column : text, integers, booleans, categories of these, or whole numbers stored as floats.
    word : its name in the file.
    rows : (m,) the rows that take part; a missing value in another row is no matter.
    """
    codes, values = _dictionary(_groupable(column, word), word)
    codes = codes[rows]
    missing = rows[codes < 0]
    if len(missing):
        raise no_value(word, len(missing), missing[:6].tolist())
    return _compact(codes, values)


def no_value(word: str, count: int, first: Sequence[int]) -> InputError:
    """Refuse a column that says nothing about some rows; `first` are the first few of them."""
    more = f" and {count - 5} more" if count > 5 else ""
    return InputError(
        f"column {word!r} has no value in {count} rows: {', '.join(map(str, first[:5]))}{more}",
        hint=f"fill them in, with 'unknown' for example, or leave these rows out with --exclude {word}=",
    )


def encode_units(column: pa.ChunkedArray, word: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the units of some rows in the order in which they first appear; any values will do."""
    codes, values = _dictionary(column, word)
    codes = np.where(_has_no_value(codes, values), -1, codes)[rows]
    missing = rows[codes < 0]
    if len(missing):
        raise InputError(
            f"column {word!r}, which keeps rows together, has no value in {len(missing)} rows: "
            f"{listed(missing.tolist())}",
            hint="give every row that belongs to no group a value of its own",
        )
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first, kind="stable")] = np.arange(len(first))
    return place[inverse.reshape(-1)]


def restrict(categories: Categories, kept: NDArray[np.bool_]) -> Categories:
    """Keep some of the rows, and of the values only those that still occur."""
    return _compact(categories.codes[kept], np.array(categories.values, dtype=object))


def rows_with_value(
    column: pa.ChunkedArray, word: str, name: str, value: str, option: str = "--exclude"
) -> NDArray[np.bool_]:
    """Mark the rows whose value is written as `value`; it must occur."""
    marked, spelled = marked_rows(column, name, value)
    if not marked.any():
        raise value_never_occurs(word, name, value, spelled, option)
    return marked


def marked_rows(column: pa.ChunkedArray, word: str, value: str) -> tuple[NDArray[np.bool_], list[str]]:
    """Mark the rows whose value is written as `value`, and say how the values that occur are written.

    Nothing at all stands for rows without a value, besides empty text.
    """
    codes, values = _dictionary(column, word)
    is_missing = _has_no_value(codes, values)
    spelled = [_spellings(item) for item in values.tolist()]
    matching = np.array([value in spellings for spellings in spelled], dtype=np.bool_)
    # Code -1, a missing value, reads the appended False.
    marked = np.append(matching, False)[codes]
    if not value:
        marked |= is_missing
    return marked, [words[0] for words, item in zip(spelled, values, strict=True) if not _is_nothing(item)]


def _has_no_value(codes: NDArray[np.int32], values: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark the rows of a dictionary that have no value, or one that is not a number."""
    nothing = np.array([_is_nothing(item) for item in values.tolist()], dtype=np.bool_)
    return np.append(nothing, True)[codes]


def _is_nothing(item: object) -> bool:
    return item is None or (isinstance(item, float) and math.isnan(item))


def value_never_occurs(
    word: str, name: str, value: str, spelled: Iterable[str], option: str = "--exclude"
) -> InputError:
    """Refuse to name a value that no row has; `name` is that of the column that the word means."""
    return InputError(
        f"{option} {word}={value}: column {name!r} never has the value {value!r}",
        hint=f"its values: {listed(sorted(spelled), 10)}",
    )


def group_values(column: pa.ChunkedArray, word: str) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """A code per row, -1 where there is no value, and the distinct values, which can name groups."""
    return _dictionary(_groupable(column, word), word)


def _groupable(column: pa.ChunkedArray, word: str) -> pa.ChunkedArray:
    """Return the column with values that can name groups, or refuse its type."""
    import pyarrow as pa

    type_ = column.type
    if pa.types.is_dictionary(type_):
        return _groupable(column.cast(type_.value_type), word)
    if pa.types.is_floating(type_):
        return _whole_numbers(column.cast(pa.float64()), word)
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        try:
            return column.cast(pa.large_string())
        except pa.ArrowInvalid:
            raise _refusal(word, "bytes that are not UTF-8 text") from None
    if str(type_) == "string_view":
        return column.cast(pa.large_string())
    if _is_text(type_) or pa.types.is_integer(type_) or pa.types.is_boolean(type_) or pa.types.is_null(type_):
        return column
    raise _refusal(word, str(type_))


def _whole_numbers(column: pa.ChunkedArray, word: str) -> pa.ChunkedArray:
    """Turn floats into integers; NaN is a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = pc.if_else(pc.is_nan(column), None, column)
    try:
        return pc.cast(column, pa.int64())
    except pa.ArrowInvalid:
        fractions = column.filter(pc.not_equal(pc.floor(column), column))
        example = f", such as {fractions[0]}" if len(fractions) else ""
        raise _refusal(word, f"numbers that are not whole{example}") from None


def _refusal(word: str, what: str) -> InputError:
    return InputError(
        f"column {word!r} holds {what}, which cannot name groups",
        hint="store it as text or integers, cut numbers by --label-bins N, or choose another column",
    )


def _dictionary(column: pa.ChunkedArray, word: str) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return a code per row, -1 where there is no value, and the distinct values as Python objects."""
    import pyarrow as pa

    is_whole = pa.types.is_integer(column.type) and not column.null_count
    if len(column) <= FEW_ROWS and (is_whole or _is_text(column.type)):
        return _numbered(column.to_numpy(zero_copy_only=False).tolist())
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_null(column.type):
        return np.full(len(column), -1, np.int32), np.empty(0, dtype=object)
    if pa.types.is_float16(column.type):  # Arrow cannot hash half floats
        column = column.cast(pa.float32())
    try:
        encoded = column.dictionary_encode()
    except pa.ArrowNotImplementedError:
        raise _refusal(word, str(column.type)) from None
    if not encoded.num_chunks:
        return np.empty(0, np.int32), np.empty(0, dtype=object)
    indices = [pc.fill_null(chunk.indices, -1).to_numpy(zero_copy_only=False) for chunk in encoded.chunks]
    distinct = encoded.chunk(0).dictionary  # all chunks share it
    values = np.empty(len(distinct), dtype=object)
    values[:] = distinct.to_pylist()
    return np.concatenate(indices).astype(np.int32, copy=False), values


def _is_text(type_: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _numbered(items: list[Any]) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """The same for a few values, without Arrow's functions: importing them would take longer."""
    numbers: dict[Any, int] = {}
    codes = np.fromiter((numbers.setdefault(item, len(numbers)) for item in items), np.int32, len(items))
    values = np.empty(len(numbers), dtype=object)
    values[:] = list(numbers)
    if None in numbers:
        codes[codes == numbers[None]] = -1
    return codes, values


def _compact(codes: NDArray[np.int32], values: NDArray[Any]) -> Categories:
    """Drop values that do not occur and sort the others."""
    occurring = np.flatnonzero(np.bincount(codes, minlength=len(values)))
    # Python compares text by code point, and numbers (False and True among them) by size.
    order = sorted(occurring.tolist(), key=lambda code: values[code])
    position = np.full(len(values), -1, np.int32)
    position[order] = np.arange(len(order), dtype=np.int32)
    return Categories(position[codes], tuple(values[order].tolist()))


def _spellings(value: object) -> Sequence[str]:
    """The ways a user may write a value."""
    if isinstance(value, bool):
        return (str(value), str(value).lower())
    if isinstance(value, float) and value.is_integer():
        return (str(int(value)), str(value))
    return (value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value),)


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
    # Integers stay integers: beyond 2^53 floats cannot tell neighbours apart.
    values = column.take(pa.array(rows)).to_numpy()
    values = values.astype(np.float64) if values.dtype == np.float16 else values
    missing = rows[~np.isfinite(values)]
    if len(missing):
        raise InputError(
            f"column {word!r} has no finite number in {len(missing)} rows: {listed(missing.tolist())}",
            hint=f"fill them in, or leave these rows out with --exclude {word}=",
        )
    # Cuts are values that occur: the first of the next bin.
    places = np.ceil(np.arange(1, bins) / bins * (len(values) - 1)).astype(np.int64)
    cuts = np.unique(np.sort(values)[places])
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
