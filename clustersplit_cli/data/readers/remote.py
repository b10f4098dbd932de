"""Files behind a URL that pyarrow's file systems understand, such as s3://bucket/key."""

from __future__ import annotations

import time
import urllib.parse
from functools import lru_cache
from pathlib import Path
from typing import Any

from clustersplit_cli.data.readers.fingerprint import Stamp
from clustersplit_cli.data.readers.naming import as_url, without_secrets
from clustersplit_cli.data.readers.source import reading
from clustersplit_cli.errors import InputError

_HINT = "check the URL and the credentials; other servers than AWS need ?endpoint_override=HOST:PORT"


def remote_files(path: Path) -> list[tuple[str, Stamp]]:
    """The file a URL names, or all below it: relative names, in no order, with their sizes.

    Raises
    ------
    InputError
        If the server cannot be reached, or there is nothing there.
    """
    import pyarrow.fs as pafs

    url = as_url(path)
    assert url is not None
    with reading(without_secrets(url), "a file behind a URL", _HINT):
        system, place = _system(url), _place(url)
        info = system.get_file_info(place)
        if info.type == pafs.FileType.File:
            return [("", _stamp(path, info))]
        if info.type != pafs.FileType.Directory:
            raise InputError(f"{without_secrets(url)} does not exist", hint=_HINT)
        below = system.get_file_info(pafs.FileSelector(place, recursive=True))
    files = [entry for entry in below if entry.type == pafs.FileType.File]
    return [(_relative(entry.path, place), _stamp(_sibling(url, entry.path), entry)) for entry in files]


def open_remote(path: Path) -> Any:
    """Open a file behind a URL for reading."""
    url = as_url(path)
    assert url is not None
    with reading(without_secrets(url), "a file behind a URL", _HINT):
        return _system(url).open_input_file(_place(url))


def _system(url: str) -> Any:
    parts = urllib.parse.urlsplit(url)
    # One file system for everything behind the same server: making one may ask it for its region.
    return _made(f"{parts.scheme}://{parts.netloc}/?{parts.query}" if parts.query else _root(parts))


def _root(parts: urllib.parse.SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc}"


@lru_cache(maxsize=8)
def _made(root: str) -> Any:
    import pyarrow.fs as pafs

    system, _ = pafs.FileSystem.from_uri(root)
    return system


def _place(url: str) -> str:
    """The path within the file system: for S3 the bucket and the key."""
    parts = urllib.parse.urlsplit(url)
    netloc = parts.netloc.rpartition("@")[2]
    path = urllib.parse.unquote(parts.path)
    return path if parts.scheme in ("hdfs", "viewfs") else (netloc + path).rstrip("/")


def _relative(place: str, root: str) -> str:
    return place.removeprefix(root).lstrip("/")


def _sibling(url: str, place: str) -> Path:
    """The path that stands for another file of the same file system."""
    parts = urllib.parse.urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    lead = f"{parts.scheme}:/{user + '@' if user else ''}"
    query = f"?{parts.query}" if parts.query else ""
    return Path(lead + urllib.parse.quote(place.lstrip("/"), safe="/=") + query)


def _stamp(path: Path, info: Any) -> Stamp:
    modified = info.mtime_ns or 0
    return Stamp(path, 0, 0, int(info.size), modified, modified, time.time_ns())
