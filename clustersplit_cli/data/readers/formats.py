"""Which format a file has, by its first bytes, and its name only where they are silent."""

from __future__ import annotations

import os
import re
from pathlib import Path

from clustersplit_cli.data.readers import arrays, ipc, parquet
from clustersplit_cli.data.readers import arrays as npy
from clustersplit_cli.data.readers.delimited import CsvSource, LinesSource
from clustersplit_cli.data.readers.fingerprint import read_head, stamp
from clustersplit_cli.data.readers.naming import as_url, shown
from clustersplit_cli.data.readers.source import Source, reading
from clustersplit_cli.errors import InputError

_HEAD = 4096
STDIN = "-"
_MAGIC = {
    b"PAR1": "Parquet",
    b"ARROW1": "Arrow",
    b"\xff\xff\xff\xff": "Arrow stream",
    npy.MAGIC: "NPY",
    b"PK\x03\x04": "NPZ",
    b"PK\x05\x06": "NPZ",
}
_FOREIGN = {
    b"FEA1": ("Feather version 1", "write it again with pyarrow.feather.write_feather"),
    b"PARE": ("encrypted Parquet", "decrypt it first"),
    b"\x1f\x8b": ("gzip", "decompress it first"),
    b"\x28\xb5\x2f\xfd": ("zstd", "decompress it first"),
    b"\x89HDF": ("HDF5", "convert it to Parquet or NPY"),
}
_BY_SUFFIX = {
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".parq": "Parquet",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".ipc": "Arrow",
    ".npy": "NPY",
    ".npz": "NPZ",
}
_TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
_JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
_JSON_OBJECT = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[?\s*\{\s*\"")
_JSON_CURE = (
    "convert it: python -c 'import sys, pyarrow.json as j, pyarrow.parquet as p; "
    'p.write_table(j.read_json(sys.argv[1]), "feats.parquet")\' '
)
_SUPPORTED = "Parquet, Arrow/Feather, CSV, NPY and NPZ can be read"


def open_features(path: Path) -> Source:
    """Open a file or directory of features, or what is behind a URL."""
    if as_url(path) is not None:
        with reading(path, "Parquet"):
            return parquet.ParquetSource.of_url(path)
    format_ = "directory" if _is_directory(path) else detect(path)
    with reading(path, format_):
        if format_ == "NPY":
            return arrays.open_array(path)
        return arrays.ArchiveSource(path) if format_ == "NPZ" else _open_table(path, format_)


def open_table(path: Path) -> Source:
    """Open a table of metadata: Parquet (a directory too), Arrow/Feather or CSV."""
    format_ = "directory" if _is_directory(path) else detect(path)
    if format_ in ("NPY", "NPZ"):
        raise InputError(
            f"{shown(path)} is {format_}, but --metadata needs a table",
            hint="give Parquet, CSV or Feather; arrays go to --label-file and --domain-file",
        )
    with reading(path, format_):
        return _open_table(path, format_)


def open_companion(path: Path, role: str) -> Source:
    """Open a file of labels or domains."""
    format_ = "a directory" if _is_directory(path) else detect(path)
    if format_ not in ("NPY", "CSV"):
        raise InputError(
            f"{shown(path)} is {format_}, but --{role}-file needs a NPY array or text, one value a line",
            hint=f"save it with numpy.save, or give a table with --metadata and its column with --{role}",
        )
    with reading(path, "text" if format_ == "CSV" else format_):
        return LinesSource(path, role) if format_ == "CSV" else arrays.CompanionSource(path, role)


def detect(path: Path) -> str:
    """Return the name of a file's format, or explain why it has none."""
    if str(path) == STDIN and not os.path.lexists(path):
        raise InputError(
            "'-' is standard input, which cannot be read a second time to verify a split",
            hint="write it to a file first: command > feats.csv",
        )
    if not stamp(path).bytes:
        raise InputError(f"{shown(path)} is empty (0 bytes)", hint=_SUPPORTED)
    head = read_head(path, _HEAD)
    _refuse_json(path, head)
    for magic, format_ in _MAGIC.items():
        if head.startswith(magic):
            return format_
    for magic, (foreign, cure) in _FOREIGN.items():
        if head.startswith(magic):
            raise InputError(
                f"{shown(path)} is {foreign}, which is not supported", hint=f"{cure}; {_SUPPORTED}"
            )
    expected = _BY_SUFFIX.get(path.suffix.lower())
    if path.suffix.lower() in _TEXT_SUFFIXES and b"\0" not in head and not _is_text(head):
        raise InputError(
            f"{shown(path)} is text, but not in UTF-8",
            hint="convert it, with iconv -f latin1 -t utf-8 for example",
        )
    found = "text" if _is_text(head) else f"bytes that start with {head[:6].hex(' ')}"
    if expected is not None or found != "text":
        wanted = (
            f"{expected} expected by its name, found {found}"
            if expected
            else f"unknown format, found {found}"
        )
        raise InputError(f"{shown(path)}: {wanted}", hint=f"check how the file was written; {_SUPPORTED}")
    return "CSV"


def _refuse_json(path: Path, head: bytes) -> None:
    """Name JSON and JSON Lines, which would look like a CSV of one odd column."""
    lines = _JSON_OBJECT.match(head)
    if lines is None and not (path.suffix.lower() in _JSON_SUFFIXES and _is_text(head)):
        return
    is_list = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    name = "JSON" if is_list or path.suffix.lower() == ".json" else "JSON Lines"
    cure = "convert it to Parquet with pandas.read_json" if name == "JSON" else _JSON_CURE + shown(path)
    raise InputError(f"{shown(path)} is {name}, which is not supported", hint=f"{cure}; {_SUPPORTED}")


def _is_directory(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises on names that are too long or out of reach


def _open_table(path: Path, format_: str) -> Source:
    if format_ == "directory":
        return parquet.ParquetSource.of_directory(path)
    if format_ == "Parquet":
        return parquet.ParquetSource.of_file(path)
    if format_ == "CSV":
        return CsvSource(path)
    return ipc.IpcSource(path, is_stream=format_ == "Arrow stream")


def _is_text(head: bytes) -> bool:
    """Whether the first bytes can be text; the last character may be cut in two."""
    if b"\0" in head:
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start >= len(head) - 3
    return True
