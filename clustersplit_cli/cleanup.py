"""What has to be undone where the process ends before a block does: staging areas, temporary folders."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_open: dict[object, Callable[[], object]] = {}
_is_ending = False


@contextmanager
def undone_at_the_end(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` if the process ends at once while the block is open; blocks undo themselves otherwise.

    Raises
    ------
    RuntimeError
        If the process is ending: what is begun now would not be undone.
    """
    key = object()
    with _lock:
        if _is_ending:
            raise RuntimeError("the process is ending")
        _open[key] = undo
    try:
        yield
    finally:
        with _lock:
            _open.pop(key, None)


def refuse_new_blocks() -> None:
    """Open no more blocks from now on."""
    global _is_ending  # noqa: PLW0603
    with _lock:
        _is_ending = True


def undo_open_blocks() -> None:
    """Undo what blocks that are open have begun, the last one first; what cannot be undone stays."""
    with _lock:
        undone = list(_open.values())[::-1]
    for undo in undone:
        try:
            undo()
        except Exception:  # the others are to be undone all the same
            continue


@contextmanager
def temporary_folder(parent: str | None = None) -> Iterator[str]:
    """Yield a new folder that is gone after the block, and if the process ends within it."""
    folder = os.path.join(parent or tempfile.gettempdir(), f"clustersplit-{secrets.token_hex(16)}")  # noqa: PTH118
    # From before it is there until it is gone: a signal may come between any two steps.
    with undone_at_the_end(lambda: shutil.rmtree(folder, ignore_errors=True)):
        try:
            os.mkdir(folder, 0o700)  # noqa: PTH102
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
