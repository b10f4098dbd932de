"""How files and columns are named in messages and reports."""

from __future__ import annotations

import difflib
import errno
import os
import re
import urllib.parse
from collections.abc import Iterable, Sequence
from pathlib import Path

from clustersplit_cli.errors import printable

_SHOWN_AT_MOST = 5
_REASON_LENGTH = 200
_CURES = {
    errno.ELOOP: "symbolic links lead to each other here; name the file itself",
    errno.ENAMETOOLONG: "check the path; most systems allow names of 255 bytes",
    errno.EACCES: "check the permissions of the file and of the folders above it",
    errno.EPERM: "check the permissions of the file and of the folders above it",
    errno.EIO: "check the disk or the network, and copy the file again",
    errno.EMFILE: "allow more open files, with ulimit -n",
}

_URL_AS_PATH = re.compile(r"(s3|gs|gcs|abfs|abfss|hdfs|viewfs):/+(.*)", re.DOTALL)


def as_url(path: Path) -> str | None:
    """The URL that a path stands for, or None if it is a path.

    A URL travels through the program as a path, in which the two slashes after the scheme become one.

    >>> as_url(Path("s3://bucket/rows.parquet"))
    's3://bucket/rows.parquet'
    """
    match = _URL_AS_PATH.fullmatch(str(path))
    return None if match is None else f"{match[1]}://{match[2]}"


def without_secrets(url: str) -> str:
    """The URL as it may be shown: without a user name and a key.

    >>> without_secrets("s3://me:secret@bucket/key?region=eu-west-1")
    's3://bucket/key?region=eu-west-1'
    """
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def report_path(path: Path) -> str:
    """Return the path as a report records it: as it was given, but for the user name and the key in a URL.

    Bytes that are not UTF-8 are lone surrogates, as everywhere in Python. JSON has escapes for them, so that
    the path can be read back; what is shown to people goes through `shown`.
    """
    url = as_url(path)
    return os.fspath(path) if url is None else without_secrets(url)


def shown(path: Path) -> str:
    """Return the path on one line: control characters are escaped, so a message never breaks."""
    return printable(report_path(path))


def reason(error: Exception) -> str:
    """Return what went wrong on one line, without the path that the system's own text repeats."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).splitlines()[0][:_REASON_LENGTH]


def cure(error: Exception, otherwise: str) -> str:
    """Return what helps against an error of the system, or `otherwise`."""
    return _CURES.get(getattr(error, "errno", None) or 0, otherwise)


def closest(word: str, candidates: Iterable[str], n: int = 3) -> list[str]:
    """Return the candidates that look most like `word`, best first, ignoring case."""
    by_folded: dict[str, str] = {}
    for candidate in candidates:
        by_folded.setdefault(candidate.casefold(), candidate)
    matches = difflib.get_close_matches(word.casefold(), by_folded, n=n, cutoff=0.5)
    return [by_folded[match] for match in matches]


def listed(items: Sequence[object], at_most: int = _SHOWN_AT_MOST) -> str:
    """Join items with commas, and say how many more there are when there are many.

    >>> listed(["a", "b", "c"], at_most=2)
    'a, b and 1 more'
    """
    text = ", ".join(str(item) for item in items[:at_most])
    return text if len(items) <= at_most else f"{text} and {len(items) - at_most} more"


def suggestion(word: str, candidates: Iterable[str]) -> str:
    """Say which of the candidates the user may have meant, or what there is to choose from."""
    names = list(candidates)
    near = closest(word, names)
    if near:
        return f"closest: {listed([repr(name) for name in near])}"
    return f"there is: {listed([repr(name) for name in names], 8)}" if names else "there are none"
