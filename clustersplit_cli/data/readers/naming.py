"""How files and columns are named in messages and reports."""

from __future__ import annotations

import difflib
import os
import re
import urllib.parse
from collections.abc import Iterable, Sequence
from pathlib import Path

_SHOWN_AT_MOST = 5
_REASON_LENGTH = 200


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
    r"""Return the path as text that any JSON writer accepts.

    Bytes that are not UTF-8 are written as `\xNN`; every other path comes back as it was given, but for the
    user name and the key in a URL.
    """
    url = as_url(path)
    if url is not None:
        return without_secrets(url)
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def shown(path: Path) -> str:
    """Return the path on one line: control characters are escaped, so a message never breaks."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in report_path(path))


def reason(error: Exception) -> str:
    """Return what went wrong on one line, without the path that the system's own text repeats."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).splitlines()[0][:_REASON_LENGTH]


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
