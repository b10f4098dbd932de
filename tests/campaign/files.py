"""Tables written in every format the program reads, whole, odd and damaged."""

from __future__ import annotations

import io
import json
import os
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tests.campaign.tables import HOSTILE, Random, Table, categories, one_of, pick

FILE_NAMES = (
    "with space",
    "-dash",
    "--out",
    "a=b",
    "\u00fcml\u00e4ut",
    "\u65e5\u672c",
    "line\nbreak",
    "\x1b[31m",
    "raw\udcff",
    "[bold]x",
    "{train}",
    "%s",
    "*",
    "\U0001f642",
    ".hidden",
    "x" * 200,
    "'quote\"",
    "report.json",
)


@dataclass(frozen=True)
class Written:
    """A feature file, or directory of them.

    Attributes
    ----------
    path : as the command line names it.
    words : options that go with it, such as where its labels are.
    oddity : what was done to it; None for a file as it should be.
    """

    path: str
    words: tuple[str, ...] = ()
    oddity: str | None = None


def write(rng: Random, table: Table, folder: Path, stem: str = "feats") -> Written:
    """Write a table in some format; sometimes under an odd name, sometimes damaged."""
    odd_name = stem == "feats" and rng.random() < 0.1
    name = one_of(rng, FILE_NAMES) if odd_name else stem
    writer = pick(rng, WRITERS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old formats are deprecated, and some casts overflow
            written = writer(rng, table, folder, name)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # This table does not go into that format: every format takes plain numbers.
        plain = Table(
            np.nan_to_num(table.features.astype("f8")),
            tuple(f"f{i}" for i in range(table.features.shape[1])),
            {},
        )
        written = _npy(rng, plain, folder, name)
    if rng.random() < 0.12:
        written = _spoil(rng, folder, written)
    return replace(written, oddity=written.oddity or ("name" if odd_name else None))


def arrow_table(rng: Random, table: Table, layout: str) -> pa.Table:
    """The table as columns: one per feature, or all features in one list column."""
    arrays: list[pa.Array] = []
    names: list[str] = []
    x = table.features
    if layout == "scalars":
        for column, name in enumerate(table.names):
            values = pa.array(x[:, column])
            if rng.random() < 0.02 and len(values):
                values = pa.array([None, *values.to_pylist()[1:]], values.type)
            arrays.append(values)
            names.append(name)
    else:
        flat = pa.array(np.ascontiguousarray(x).reshape(-1))
        d = x.shape[1]
        if layout == "fixed" and d:
            arrays.append(pa.FixedSizeListArray.from_arrays(flat, d))
        elif layout == "large":
            arrays.append(
                pa.LargeListArray.from_arrays(
                    pa.array(np.arange(0, (table.n + 1) * d, d or 1)[: table.n + 1]), flat
                )
            )
        elif layout == "ragged":
            arrays.append(pa.array([row[: max(0, len(row) - int(rng.random() < 0.1))] for row in x.tolist()]))
        else:
            arrays.append(pa.array(x.tolist(), pa.list_(flat.type)))
        names.append("features")
    for name, values in table.columns.items():
        column = pa.array(values)
        if rng.random() < 0.15 and pa.types.is_string(column.type):
            column = column.dictionary_encode()
        arrays.append(column)
        names.append(name)
    order = rng.permutation(len(arrays)) if rng.random() < 0.2 else np.arange(len(arrays))
    return pa.Table.from_arrays([arrays[i] for i in order], [names[i] for i in order])


def _layout(rng: Random) -> str:
    return pick(rng, [(0.76, "scalars"), (0.08, "list"), (0.08, "fixed"), (0.05, "large"), (0.03, "ragged")])


def _parquet_options(rng: Random, n: int) -> dict[str, Any]:
    return {
        "row_group_size": int(one_of(rng, [max(1, n), max(1, n // 3), 7, 64])),
        "compression": one_of(rng, ["snappy", "gzip", "zstd", "none", "lz4", "brotli"]),
        "use_dictionary": bool(rng.random() < 0.5),
        "version": one_of(rng, ["1.0", "2.4", "2.6"]),
        "data_page_version": one_of(rng, ["1.0", "2.0"]),
        "write_statistics": bool(rng.random() < 0.8),
    }


def _parquet(rng: Random, table: Table, folder: Path, name: str) -> Written:
    path = f"{name}.parquet"
    pq.write_table(arrow_table(rng, table, _layout(rng)), folder / path, **_parquet_options(rng, table.n))
    return Written(path)


def _directory(rng: Random, table: Table, folder: Path, name: str) -> Written:
    """Several Parquet files, perhaps in hive partitions, perhaps beside things that are no data."""
    root = folder / name
    root.mkdir()
    whole = arrow_table(rng, table, _layout(rng))
    keys = [key for key in ("domain", "label", "site") if key in whole.column_names]
    if keys and rng.random() < 0.5:
        key = one_of(rng, keys)
        kept = rng.random() < 0.15  # the files have the column too
        for value in sorted({str(value)[:40] for value in table.columns[key]}):
            rows = [row for row, found in enumerate(table.columns[key]) if str(found)[:40] == value]
            place = root / f"{key}={value.replace('/', '%2F').replace(chr(0), '%00')}"
            place.mkdir()
            part = whole.take(pa.array(rows, pa.int64()))
            pq.write_table(part if kept else part.drop_columns([key]), place / "part-0.parquet")
    else:
        pieces = int(rng.integers(1, 4))
        bounds = np.linspace(0, whole.num_rows, pieces + 1).astype(int)
        for number in range(pieces):
            part = whole.slice(bounds[number], bounds[number + 1] - bounds[number])
            pq.write_table(part, root / f"part-{number}.parquet", **_parquet_options(rng, table.n))
    oddity = None
    if rng.random() < 0.35:
        oddity, add = one_of(rng, list(BESIDE.items()))
        add(root)
    return Written(name + ("/" if rng.random() < 0.3 else ""), (), oddity)


def _loop(root: Path) -> None:
    (root / "again").symlink_to(root, target_is_directory=True)


BESIDE: dict[str, Callable[[Path], object]] = {
    "readme beside": lambda root: (root / "README.txt").write_text("hello"),
    "hidden beside": lambda root: (root / ".part.parquet.crc").write_bytes(b"\0\1"),
    "_SUCCESS beside": lambda root: (root / "_SUCCESS").write_bytes(b""),
    "empty parquet beside": lambda root: (root / "zero.parquet").write_bytes(b""),
    "empty folder beside": lambda root: (root / "empty").mkdir(),
    "csv beside": lambda root: (root / "more.csv").write_text("a,b\n1,2\n"),
    "other columns beside": lambda root: pq.write_table(pa.table({"q": [1.0]}), root / "zz.parquet"),
    "loop of links": _loop,
    "broken link": lambda root: (root / "gone.parquet").symlink_to(root / "nowhere"),
    "pipe beside": lambda root: os.mkfifo(root / "pipe.parquet"),
}


def _feather(rng: Random, table: Table, folder: Path, name: str) -> Written:
    data = arrow_table(rng, table, _layout(rng))
    kind = pick(rng, [(0.5, "feather"), (0.25, "arrow"), (0.15, "stream"), (0.1, "v1")])
    path = f"{name}.{'feather' if kind in ('feather', 'v1') else 'arrow'}"
    if kind == "feather":
        chunk = int(one_of(rng, [5, 64, 65536]))
        pa.feather.write_feather(
            data,
            str(folder / path),
            compression=one_of(rng, ["lz4", "zstd", "uncompressed"]),
            chunksize=chunk,
        )
    elif kind == "v1":
        pa.feather.write_feather(data, str(folder / path), version=1)
    else:
        make = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        with make(str(folder / path), data.schema) as sink:
            sink.write_table(data, max_chunksize=int(one_of(rng, [9, 1000])))
    return Written(path)


def _csv(rng: Random, table: Table, folder: Path, name: str) -> Written:
    columns = {
        **{word: table.features[:, column].tolist() for column, word in enumerate(table.names)},
        **table.columns,
    }
    separator = pick(rng, [(0.85, ","), (0.07, ";"), (0.05, "\t"), (0.03, "|")])
    end = "\r\n" if rng.random() < 0.1 else "\n"

    def field(value: Any) -> str:
        text = "" if value is None else str(value)
        is_odd = any(letter in text for letter in (separator, '"', "\n", "\r"))
        return '"' + text.replace('"', '""') + '"' if is_odd else text

    lines = [separator.join(map(field, columns))] if rng.random() < 0.95 else []
    rows = list(zip(*columns.values(), strict=True))
    lines += [separator.join(map(field, row)) for row in rows]
    oddity = None
    if len(lines) > 2 and rng.random() < 0.08:
        oddity, line = "ragged lines", int(rng.integers(1, len(lines)))
        lines[line] += separator + "1"
    text = end.join(lines) + (end if rng.random() < 0.9 else "")
    raw = text.encode("utf-8", "surrogateescape")
    if rng.random() < 0.05:
        raw, oddity = b"\xef\xbb\xbf" + raw, oddity or "byte order mark"
    if rng.random() < 0.03:
        raw, oddity = text.encode("utf-16", "replace"), "utf-16"
    path = f"{name}.{'tsv' if separator == chr(9) else 'csv'}"
    (folder / path).write_bytes(raw)
    return Written(path, (), oddity)


def _companions(rng: Random, table: Table, folder: Path) -> tuple[str, ...]:
    """Labels and domains beside a matrix, as files of their own; sometimes of another length."""
    words: list[str] = []
    for role in ("label", "domain"):
        if role in table.columns and rng.random() < 0.85:
            values = table.columns[role] if rng.random() < 0.95 else [*table.columns[role], "more"]
            if rng.random() < 0.25:
                path = f"{role}s.txt"
                lines = "".join(f"{value}\n" for value in values)
                (folder / path).write_text(lines, encoding="utf-8", errors="replace")
                words += [f"--{role}-file", path]
                continue
            path = f"{role}s.npy"
            array = (
                np.array(values)
                if all(value is not None for value in values)
                else np.array(list(map(str, values)))
            )
            np.save(folder / path, array, allow_pickle=True)
            words += [f"--{role}-file", path]
    if not words and table.columns and rng.random() < 0.5:
        try:
            side = pa.table({key: pa.array(values) for key, values in table.columns.items()})
        except pa.ArrowException:
            return ("--stratify", "none")
        kind = one_of(rng, ["parquet", "csv", "feather"])
        path = f"meta.{kind}"
        if kind == "parquet":
            pq.write_table(side, folder / path)
        elif kind == "csv":
            pa.csv.write_csv(
                pa.table({key: pa.array(list(map(str, side[key].to_pylist()))) for key in side.column_names}),
                folder / path,
            )
        else:
            pa.feather.write_feather(side, str(folder / path))
        words += ["--metadata", path]
    return tuple(words) or (("--stratify", "none") if rng.random() < 0.8 else ())


def _npy(rng: Random, table: Table, folder: Path, name: str) -> Written:
    path, oddity = f"{name}.npy", None
    x = table.features
    kinds = [(0.06, "fortran"), (0.05, "big"), (0.05, "structured"), (0.03, "flat"), (0.03, "deep")]
    odd = [(0.02, "object"), (0.02, "text"), (0.02, "complex"), (0.02, "scalar")]
    kind = pick(rng, [(0.7, "plain"), *kinds, *odd])
    if kind == "fortran":
        x = np.asfortranarray(x)
    elif kind == "big":
        x = x.astype(x.dtype.newbyteorder(">"))
    elif kind == "structured":
        fields = [(f"f{column}", x.dtype) for column in range(x.shape[1])]
        table_ = np.zeros(len(x), dtype=[*fields, ("label", "U8")])
        for column in range(x.shape[1]):
            table_[f"f{column}"] = x[:, column]
        table_["label"] = [f"c{row % 2}" for row in range(len(x))]
        x = table_
    elif kind != "plain":
        oddity = kind
        shapes: dict[str, Callable[[], NDArray[Any]]] = {
            "flat": lambda: x.reshape(-1),
            "deep": lambda: x[:, :, None],
            "object": lambda: x.astype(object),
            "text": lambda: x.astype("U32"),
            "complex": lambda: x.astype(complex),
            "scalar": lambda: np.array(3.0),
        }
        x = shapes[kind]()
    words = () if kind == "structured" else _companions(rng, table, folder)
    if rng.random() < 0.05:
        with (folder / path).open("wb") as stream:
            np.lib.format.write_array(stream, x, version=(2, 0), allow_pickle=True)
    else:
        np.save(folder / path, x, allow_pickle=True)
    return Written(path, words, oddity)


def _npz(rng: Random, table: Table, folder: Path, name: str) -> Written:
    path = f"{name}.npz"
    arrays: dict[str, NDArray[Any]] = {one_of(rng, ["features", "X", "x", "embeddings"]): table.features}
    spelled = {"label": "y", "domain": "groups", "unit": "group"} if rng.random() < 0.4 else {}
    for column, values in table.columns.items():
        key = spelled.get(column, column)
        if key.isidentifier():
            array = np.array(values)
            arrays[key] = (
                array if array.dtype != object or rng.random() < 0.2 else np.array(list(map(str, values)))
            )
    oddity = None
    if rng.random() < 0.1:
        oddity = one_of(rng, ["label of 3-d", "short label", "no rows"])
        arrays["label"] = {
            "label of 3-d": np.zeros((table.n, 2, 2)),
            "short label": np.zeros(max(0, table.n - 1)),
            "no rows": np.zeros((0,)),
        }[oddity]
    save = np.savez_compressed if rng.random() < 0.5 else np.savez
    save(folder / path, **arrays, allow_pickle=True)
    return Written(path, (), oddity)


def _sparse(rng: Random, table: Table, folder: Path, name: str) -> Written:
    from scipy import sparse

    path = f"{name}.npz"
    x = np.where(rng.random(table.features.shape) < 0.6, 0, np.nan_to_num(table.features.astype("f8")))
    matrix = one_of(rng, [sparse.csr_matrix, sparse.csc_matrix, sparse.coo_matrix])(x)
    if rng.random() < 0.2 and hasattr(matrix, "indices") and matrix.nnz:
        what = one_of(rng, ["index out of range", "negative index", "pointers fall"])
        if what == "pointers fall":
            matrix.indptr[1:-1] = matrix.indptr[1:-1][::-1].copy()
        else:
            matrix.indices[0] = 10**6 if what == "index out of range" else -3
        with (folder / path).open("wb") as stream:
            np.savez(
                stream,
                indices=matrix.indices,
                indptr=matrix.indptr,
                format=matrix.format.encode(),
                shape=matrix.shape,
                data=matrix.data,
            )
        return Written(path, _companions(rng, table, folder), what)
    sparse.save_npz(folder / path, matrix, compressed=bool(rng.random() < 0.5))
    return Written(path, _companions(rng, table, folder))


def _json_lines(rng: Random, table: Table, folder: Path, name: str) -> Written:
    """A format that is refused by name."""
    path = f"{name}.{one_of(rng, ['jsonl', 'ndjson', 'json'])}"
    rows = [json.dumps({"f0": float(np.nan_to_num(row[:1].sum()))}) for row in table.features.astype("f8")]
    (folder / path).write_text("\n".join(rows))
    return Written(path, (), "json")


WRITERS: list[tuple[float, Callable[[Random, Table, Path, str], Written]]] = [
    (0.36, _parquet),
    (0.12, _directory),
    (0.12, _feather),
    (0.15, _csv),
    (0.12, _npy),
    (0.08, _npz),
    (0.05, _sparse),
    (0.006, _json_lines),
]


def _spoil(rng: Random, folder: Path, written: Written) -> Written:
    """Do something to a file that storage, transfers and people do to files."""
    path = folder / written.path
    if path.is_dir():
        inside = sorted(entry for entry in path.rglob("*") if entry.is_file() and not entry.is_symlink())
        if not inside:
            return written
        path = one_of(rng, inside)
    what = pick(rng, [(weight, name) for name, (weight, _) in DAMAGES.items()])
    if what == "suffix":
        suffixes = [".npy", ".npz", ".csv", ".parquet", ".feather", ".txt", ""]
        other = path.with_suffix(one_of(rng, suffixes))
        if other == path or other.exists() or path.parent != folder:
            return written
        path.rename(other)
        return replace(written, path=other.name, oddity=what)
    DAMAGES[what][1](rng, path)
    return replace(written, oddity=f"{what} {written.oddity or ''}".strip())


def _cut(rng: Random, path: Path) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[: int(rng.integers(0, len(raw) + 1))])


def _flip(rng: Random, path: Path) -> None:
    raw = bytearray(path.read_bytes())
    for place in rng.integers(0, len(raw), int(rng.integers(1, 6))) if raw else ():
        raw[place] ^= int(rng.integers(1, 256))
    path.write_bytes(raw)


def _zero(rng: Random, path: Path) -> None:
    raw = bytearray(path.read_bytes())
    first = int(rng.integers(0, len(raw) + 1))
    raw[first : first + 16] = bytes(len(raw[first : first + 16]))
    path.write_bytes(raw)


def _add(rng: Random, path: Path) -> None:
    path.write_bytes(path.read_bytes() + rng.bytes(int(rng.integers(1, 40))))


def _zip(rng: Random, path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(one_of(rng, ["x.npy", "../up.npy", "x.txt"]), path.read_bytes())
    path.write_bytes(buffer.getvalue())


def _instead(make: Callable[[Path], object]) -> Callable[[Random, Path], None]:
    def put(_: Random, path: Path) -> None:
        path.unlink()
        make(path)

    return put


DAMAGES: dict[str, tuple[float, Callable[[Random, Path], None]]] = {
    "cut": (0.24, _cut),
    "flip": (0.3, _flip),
    "zeros": (0.08, _zero),
    "added": (0.06, _add),
    "zip": (0.04, _zip),
    "empty": (0.06, lambda _, path: path.write_bytes(b"") and None),
    "gone": (0.05, _instead(lambda path: None)),
    "link loop": (0.04, _instead(lambda path: path.symlink_to(path.name))),
    "pipe": (0.04, _instead(os.mkfifo)),
    "directory": (0.04, _instead(Path.mkdir)),
    "suffix": (0.05, _add),
}


def write_rows(rng: Random, path: Path, rows: NDArray[np.int64]) -> None:
    """Row positions as NPY, text or Parquet by the path's suffix; seldom something else."""
    values: Any = rows
    if rng.random() < 0.1:
        values = one_of(
            rng,
            [
                rows.astype(float),
                np.array([one_of(rng, HOSTILE) for _ in rows] or [""]),
                rows + 10**6,
                -rows,
                np.concatenate([rows, rows]),
                rows[:0],
                rows[:, None],
                np.array([str(value) for value in categories(rng, len(rows))]),
            ],
        )
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".txt":
        path.write_text("".join(f"{value}\n" for value in np.ravel(values)), encoding="utf-8")
    else:
        pq.write_table(pa.table({"row": pa.array(np.ravel(values))}), path)
