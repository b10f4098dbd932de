"""Read the next pieces in the background while the present one is worked on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

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
