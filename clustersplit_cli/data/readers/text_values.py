"""The types that text spells, for formats that store only text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_NULL_WORDS = ("", "NA", "N/A", "#N/A", "NaN", "nan", "NULL", "null")


def typed(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Give text the type all of its values spell: integers, booleans, other numbers, else text.

    Numbers written with leading zeros are names, not numbers, and stay text. Words for "nothing"
    are nulls among numbers and booleans; in text only the empty string is.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    distinct = pc.unique(values)
    absent = pc.is_in(distinct, value_set=pa.array(_NULL_WORDS, distinct.type))
    spelled = distinct.filter(pc.and_(pc.invert(absent), pc.is_valid(distinct)))
    type_ = _spelled_type(spelled) if len(spelled) else None
    if type_ is None:
        return pc.if_else(pc.equal(values, ""), None, values)
    hidden = pc.is_in(values, value_set=pa.array(_NULL_WORDS, values.type))
    return pc.cast(pc.if_else(hidden, None, values), type_)


def _spelled_type(spelled: pa.Array) -> pa.DataType | None:
    """The type that every one of some distinct texts spells, None for text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.any(pc.match_substring_regex(spelled, r"^\s|\s$|^[+-]?0[0-9]")).as_py():
        return None
    try:
        if pc.all(pc.equal(pc.cast(pc.cast(spelled, pa.int64()), spelled.type), spelled)).as_py():
            return pa.int64()
    except pa.ArrowInvalid:
        pass
    if pc.all(pc.is_in(pc.utf8_lower(spelled), value_set=pa.array(["true", "false"], spelled.type))).as_py():
        return pa.bool_()
    try:
        pc.cast(spelled, pa.float64())
    except pa.ArrowInvalid:
        return None
    return pa.float64()
