"""What every input format offers: named columns, read whole or chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.readers.fingerprint import Stamp
from clustersplit_cli.data.readers.naming import cure, reason, shown
from clustersplit_cli.errors import ClusterSplitError, InputError

if TYPE_CHECKING:
    import pyarrow as pa

# Large enough to amortise the cost of a call, small enough not to count beside the feature matrix.
BLOCK_BYTES = 8 << 20
DAMAGED = "the file may be truncated or damaged; write or copy it again"


@contextmanager
def reading(what: Path | str, format_: str, hint: str = DAMAGED) -> Iterator[None]:
    """Turn whatever a library raises on a file that it cannot read into one line that names the file.

    Damaged files make libraries raise nearly everything, `KeyError` and `TypeError` among them, so no list
    of exceptions would be complete.

    Parameters
    ----------
    what : the file, or how messages call the part of it that is read.
    hint : what helps if the content is at fault.

    Raises
    ------
    InputError
    """
    try:
        yield
    except ClusterSplitError:
        raise
    except MemoryError as error:
        raise InputError(
            f"{_called(what)} cannot be read as {format_}: out of memory ({reason(error)})",
            hint="if the file is not damaged, read fewer columns with --columns, or use more memory",
        ) from error
    except Exception as error:
        raise InputError(
            f"{_called(what)} cannot be read as {format_}: {reason(error)}", hint=cure(error, hint)
        ) from error


def _called(what: Path | str) -> str:
    return shown(what) if isinstance(what, Path) else what


@dataclass(frozen=True)
class Column:
    """What is known of a column before it is read.

    Attributes
    ----------
    name : the column's name; for a plain array the decimal index.
    type_name : its type in the file's own words.
    dtype : element type if the column holds numbers or booleans, singly or in lists; else None.
    is_list : whether every row holds a list.
    width : length of those lists where the file says so.
    """

    name: str
    type_name: str
    dtype: np.dtype[Any] | None
    is_list: bool = False
    width: int | None = None


class Chunk(Protocol):
    """A rectangle of the features: some consecutive rows of some consecutive feature columns."""

    @property
    def start(self) -> int:
        """Its first row."""

    @property
    def first(self) -> int:
        """Its first feature."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def width(self) -> int | None:
        """Number of features it covers; None for all of them."""

    def values(self, keep: NDArray[np.bool_] | None, width: int | None) -> NDArray[Any] | None:
        """Return the rectangle as numbers, without the rows where `keep` is false; nulls are NaN.

        `width` is the length of the lists seen so far; None is returned while all lists are null.
        """


class Source(Protocol):
    """One input: a file, or a directory read as one file."""

    @property
    def path(self) -> Path:
        """The path as the user gave it."""

    @property
    def stamps(self) -> Sequence[Stamp]:
        """The files, as they were at the first look."""

    @property
    def columns(self) -> Mapping[str, Column]:
        """All columns, in file order."""

    @property
    def notes(self) -> Sequence[tuple[str, str]]:
        """Warnings, as (code, message)."""

    @property
    def default_features(self) -> str | None:
        """The list column that is the features by the format's own convention, if there is one."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows, or None while only reading can tell."""

    def find(self, word: str) -> str | None:
        """Return the name of the column the user means, or None."""

    def read(self, names: Sequence[str]) -> pa.Table:
        """Read whole columns; afterwards `n_rows` is known even if `names` is empty."""

    def scan(self, names: Sequence[str]) -> Iterator[Chunk]:
        """Read feature columns in rectangles that together cover every row and column once."""
