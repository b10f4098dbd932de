"""Where the factors of many rows are kept between passes: in memory, in a spill file, or nowhere."""

from __future__ import annotations

import os
import queue
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.destination import output_error
from clustersplit_cli.errors import UsageError

MEMORY, SPILL, NOWHERE = "memory", "spill", "recompute"
SPARE = 1.05
"""A spill file must leave some of the disk free."""


@dataclass(frozen=True)
class Room:
    """How much may be kept, and where.

    Attributes
    ----------
    memory : bytes of factors that may be held in memory.
    spill : directory of spill files; None for the system's own.
    may_spill : whether files may be used at all.
    """

    memory: int
    spill: Path | None = None
    may_spill: bool = True

    @property
    def directory(self) -> Path:
        """Where spill files are made."""
        return Path(tempfile.gettempdir()) if self.spill is None else self.spill


class Store:
    """Rows of equal length, written once from the first to the last, then read any number of times.

    A spill file has no name: the system removes it when the process ends, however it ends.
    """

    def __init__(self, n_rows: int, width: int, dtype: np.dtype[Any], room: Room) -> None:
        self.shape, self.dtype = (n_rows, width), dtype
        self.bytes = n_rows * width * dtype.itemsize
        self.is_complete = False
        self._matrix: NDArray[Any] | None = None
        self._file: IO[bytes] | None = None
        if self.bytes <= room.memory:
            self._matrix = np.empty(self.shape, dtype)
        elif room.may_spill:
            self._file = _spill_file(room, self.bytes)
            if self._file is not None:
                weakref.finalize(self, self._file.close)  # a shard on a worker ends without a word
        self.place = NOWHERE if not self.keeps else MEMORY if self._matrix is not None else SPILL

    @property
    def keeps(self) -> bool:
        """Whether anything that is written can be read again."""
        return self._matrix is not None or self._file is not None

    def write(self, start: int, rows: NDArray[Any]) -> None:
        """Keep rows; without room, do nothing."""
        if self._matrix is not None:
            self._matrix[start : start + len(rows)] = rows
        elif self._file is not None:
            try:
                self._file.seek(start * self.shape[1] * self.dtype.itemsize)
                view = np.ascontiguousarray(rows, dtype=self.dtype).reshape(-1).view(np.uint8).data
                while view:  # a disk that is nearly full takes a part, and only then refuses
                    view = view[self._file.write(view) :]
            except OSError:
                # Space was reserved where the file system can do that; elsewhere the disk is full only now.
                self.close()

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows that were kept."""
        if self._matrix is not None:
            return self._matrix[start:stop]
        assert self._file is not None
        rows: NDArray[Any] = np.empty((stop - start, self.shape[1]), self.dtype)
        self._file.seek(start * self.shape[1] * self.dtype.itemsize)
        view = rows.reshape(-1).view(np.uint8).data
        while view:
            view = view[self._file.readinto(view) :]  # type: ignore[attr-defined]
        return rows

    def close(self) -> None:
        """Give the room back."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        self._file = self._matrix = None
        self.is_complete, self.place = False, NOWHERE


def _spill_file(room: Room, size: int) -> IO[bytes] | None:
    """A file without a name and with its space reserved, or None if the disk has not enough."""
    try:
        status = os.statvfs(room.directory)
        if status.f_bavail * status.f_frsize < SPARE * size:
            return None
        file = tempfile.TemporaryFile(dir=room.directory, buffering=0)  # noqa: SIM115 - closed with the store
    except OSError as error:
        if room.spill is None:
            return None
        problem = output_error(f"a spill file in {room.spill}", error)
        raise UsageError(f"--spill: {problem.message}", hint="name a directory you may write to") from error
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError:
        file.close()
        return None
    return file


Item = TypeVar("Item")

_DEPTH = 1
"""Finished pieces that may wait: with the one being made and the one in use, three are in memory."""


def read_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items in order, produced by a thread of their own; its errors are raised here.

    The thread ends when the items do, or when the consumer stops asking.
    """
    done = object()
    ready: queue.Queue[object] = queue.Queue(maxsize=_DEPTH)
    stopped = threading.Event()
    failures: list[BaseException] = []

    def put(item: object) -> None:
        while not stopped.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def produce() -> None:
        try:
            for item in items:
                put(item)
                if stopped.is_set():
                    return
        except BaseException as error:
            failures.append(error)
        finally:
            put(done)

    reader = threading.Thread(target=produce, name="read-ahead", daemon=True)
    reader.start()
    try:
        while (item := ready.get()) is not done:
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        reader.join()
    if failures:
        raise failures[0]
