"""The files of a run: row positions and ids of each part, and the report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.destination import PAGE_NAME, REPORT_NAME, output_error
from clustersplit_cli.data.publish import staged_directory, staged_file
from clustersplit_cli.errors import OutputError, UsageError

# Rows and bytes converted at a time: bounds memory however many rows there are and however long the ids.
_BLOCK_ROWS = 1 << 17
JSON, SPLIT_FILE = "json", "split.json"
"""The format that has all parts in one file, and the file."""
_BLOCK_BYTES = 1 << 26


def write_run(
    destination: Path,
    *,
    parts: Mapping[str, NDArray[np.int64]],
    report: str | Callable[[Path], str],
    formats: Sequence[str],
    ids: Any = None,
    id_name: str | None = None,
    vectors: Mapping[str, NDArray[Any]] | None = None,
    page: str | None = None,
    force: bool = False,
) -> list[Path]:
    """Publish a run directory whole, or leave everything as it was.

    Parameters
    ----------
    destination : the directory to make; see `publish.check_destination` for what is refused.
    parts : row positions by the name of the part (`train`, `val`); they are written in ascending order, and
        a part such as `fold_0/val` in a directory of its own.
    report : the text of `report.json`, a JSON object with a `schema_version`; or what makes it, and writes
        what else belongs into the folder, when all other files are there.
    formats : any of `FORMATS`; each part is written once per format.
    ids : an id for *every* row of the input (pyarrow Array or ChunkedArray): each part's are written too.
    id_name : the name of the id column in Parquet files.
    vectors : further numbers by name: one for every row of the input, or of validation, in its order.
    page : the text of `report.html`, if there is to be one.
    force : replace an earlier run.

    Returns
    -------
    list of Path
        The files, as they are named at the destination; the report is the last.

    Raises
    ------
    OutputError
        If the destination is refused or cannot be written, or a format cannot hold the ids.
    """
    import pyarrow as pa

    check_formats(formats)
    if ids is not None:
        ids = _contiguous(ids)
        check_ids(ids, formats)
    names: list[str] = []
    with staged_directory(destination, force=force) as directory:
        tree: dict[str, Any] = {}

        def write(stem: str, column: Any, column_name: str) -> None:
            for suffix in dict.fromkeys(formats):
                if suffix == JSON:
                    *folders, name = stem.split("/")
                    place = tree
                    for folder in folders:
                        place = place.setdefault(folder, {})
                    place[name] = (block.to_pylist() for block in _blocks(column, 8))
                    continue
                (directory / stem).parent.mkdir(exist_ok=True)
                names.append(f"{stem}.{suffix}")
                with (directory / names[-1]).open("xb") as stream:
                    _WRITERS[suffix](stream, column, column_name)

        for name, numbers in (vectors or {}).items():
            write(name, pa.array(numbers), name)
        for part, positions in parts.items():
            rows = pa.array(np.sort(positions), pa.int64())
            write(part, rows, "row")
            if ids is not None:
                write(f"{part}_ids", ids.take(rows), id_name or "id")
        if JSON in formats:
            names.append(SPLIT_FILE)
            with (directory / SPLIT_FILE).open("xb") as stream:
                write_json(stream, tree)
        if page is not None:
            names.append(PAGE_NAME)
            (directory / PAGE_NAME).write_bytes(page.encode("utf-8", "backslashreplace"))
        if callable(report):
            report = report(directory)
        names.append(REPORT_NAME)
        # A path in the report may hold bytes that are not text; \udcXX is also how JSON spells them.
        text = report if report.endswith("\n") else report + "\n"
        (directory / REPORT_NAME).write_bytes(text.encode("utf-8", "backslashreplace"))
    return [destination / name for name in names]


def write_index_stream(indices: NDArray[np.int64], stream: BinaryIO) -> None:
    """Write row positions in ascending order as text, one per line, and flush.

    Raises
    ------
    OutputError
        If the stream cannot take them.
    BrokenPipeError
        If its reader has gone (`| head`), which is no failure of ours: end quietly.
    """
    import pyarrow as pa

    try:
        _write_txt(stream, pa.array(np.sort(indices), pa.int64()), "row")
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise output_error(getattr(stream, "name", "the stream"), error) from error


def check_formats(formats: Sequence[str]) -> None:
    """Refuse formats that no writer knows."""
    known = ", ".join(FORMATS)
    if not formats:
        raise UsageError("no output format is given", hint=f"use one or more of {known}")
    for name in formats:
        if name not in FORMATS:
            raise UsageError(f"unknown output format '{name}'", hint=f"use one or more of {known}")


def check_ids(ids: Any, formats: Sequence[str]) -> None:
    """Refuse ids that a format cannot hold; Parquet holds all. Ask before the work, not after it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    narrow = [name for name in dict.fromkeys(formats) if name != "parquet"]
    if not narrow:
        return
    ids = _contiguous(ids)
    kind, types = ids.type, pa.types
    text = types.is_string(kind) or types.is_large_string(kind)
    if not (text or types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        _refuse_ids(f"are of type {kind}", narrow)
    if ids.null_count:
        _refuse_ids(f"are missing in {ids.null_count} rows (first: {pc.index(ids.is_null(), True)})", narrow)
    unfit = {
        "txt": ("hold line breaks", "[\n\r]"),
        "csv": ("hold line breaks", "[\n\r]"),
        "npy": ("end in a NUL character", "\\x00$"),
    }
    for name in narrow if text else []:
        if name not in unfit:
            continue
        what, pattern = unfit[name]
        found = pc.match_substring_regex(ids, pattern)
        if n := pc.sum(found).as_py():
            _refuse_ids(f"{what} in {n} rows (first: {pc.index(found, True)})", [name])


def _refuse_ids(what: str, formats: Sequence[str]) -> None:
    raise OutputError(
        f"ids {what}, which {' and '.join(formats)} cannot hold", hint="use --format parquet only"
    )


def _contiguous(ids: Any) -> Any:
    """Return ids as one plain array: `take` on chunks or dictionaries is slow or may overflow."""
    import pyarrow as pa

    if pa.types.is_dictionary(ids.type):
        ids = ids.cast(ids.type.value_type)
    if not isinstance(ids, pa.ChunkedArray):
        return ids
    if pa.types.is_string(ids.type):  # more than 2 GiB of text does not fit one array with 32-bit offsets
        ids = ids.cast(pa.large_string())
    return ids.combine_chunks()


def _blocks(column: Any, itemsize: int) -> Iterator[Any]:
    rows = max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // itemsize))
    for start in range(0, len(column), rows):
        yield column.slice(start, rows)


def _write_npy(stream: BinaryIO, column: Any, _name: str) -> None:
    """Write NPY block by block, straight to the file: `ndarray.tofile` hides why a write failed."""
    import pyarrow as pa

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        import pyarrow.compute as pc  # which takes a while to import

        width = pc.max(pc.utf8_length(column)).as_py() or 1
        dtype = np.dtype(f"<U{width}")
    else:
        dtype = column.slice(0, 0).to_numpy(zero_copy_only=False).dtype
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (len(column),)}
    np.lib.format.write_array_header_1_0(stream, header)
    for block in _blocks(column, dtype.itemsize):
        values = _fixed_width(block, dtype) if dtype.kind == "U" else block.to_numpy(zero_copy_only=False)
        stream.write(np.ascontiguousarray(values).view(np.uint8).data)


def _fixed_width(block: Any, dtype: np.dtype[Any]) -> NDArray[np.str_]:
    """Turn an Arrow text array into a numpy one of `dtype`, with no Python object per row."""
    import pyarrow.compute as pc

    letters = np.frombuffer(bytes(_joined(block, "")).decode().encode("utf-32-le"), "<u4")
    lengths = pc.utf8_length(block).to_numpy()
    characters = np.zeros((len(block), dtype.itemsize // 4), "<u4")
    characters[np.arange(characters.shape[1]) < lengths[:, None]] = letters
    return characters.reshape(-1).view(dtype)


def _write_txt(stream: BinaryIO, column: Any, _name: str) -> None:
    for block in _blocks(column, 1):
        stream.write(_joined(block, "\n"))
        stream.write(b"\n")


def _joined(block: Any, separator: str) -> Any:
    """Return the values as text, one after the other, in one buffer."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = block.cast(pa.large_string())
    whole = pa.LargeListArray.from_arrays(pa.array([0, len(text)], pa.int64()), text)
    return pc.binary_join(whole, pa.scalar(separator, pa.large_string()))[0].as_buffer()


def _write_parquet(stream: BinaryIO, column: Any, name: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({name: column}), stream)


def _write_csv(stream: BinaryIO, column: Any, name: str) -> None:
    import pyarrow as pa
    import pyarrow.csv

    header = name if name.isidentifier() else '"' + name.replace('"', '""') + '"'
    stream.write(f"{header}\n".encode())
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")
    pyarrow.csv.write_csv(pa.table({name: column}), stream, options)


def write_json(stream: BinaryIO, tree: Mapping[str, Any]) -> None:
    """Write names and what they hold: lists in pieces, or names again."""
    stream.write(b"{")
    for place, (name, value) in enumerate(tree.items()):
        stream.write(f"{', ' * (place > 0)}{json.dumps(name)}: ".encode())
        if isinstance(value, Mapping):
            write_json(stream, value)
            continue
        stream.write(b"[")
        comma = ""
        for piece in value:
            values = piece.tolist() if isinstance(piece, np.ndarray) else piece
            if values:
                stream.write(f"{comma}{json.dumps(values)[1:-1]}".encode())
                comma = ", "
        stream.write(b"]")
    stream.write(b"}")


_WRITERS: dict[str, Callable[[BinaryIO, Any, str], None]] = {
    "npy": _write_npy,
    "txt": _write_txt,
    "csv": _write_csv,
    "parquet": _write_parquet,
}
FORMATS = (*_WRITERS, JSON)


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
