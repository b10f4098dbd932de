"""Work beside the search: what need not wait for it, in threads of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class Later(Generic[Value]):
    """A task that begins when it is told to, or at the latest when its result is asked for.

    Either may say with what arguments; the first counts.
    """

    def __init__(self, background: Background, task: Callable[..., Value]) -> None:
        self._background, self._task = background, task
        self._future: Future[Value] | None = None

    def begin(self, *arguments: Any) -> Future[Value]:
        """Begin, if that has not happened."""
        if self._future is None:
            self._future = self._background.submit(self._task, *arguments)
        return self._future

    def result(self, *arguments: Any) -> Value:
        """Wait for the result; what has not begun is done here, where an interrupt reaches it."""
        if self._future is None:
            self._future = Future()
            self._future.set_result(self._task(*arguments))
        return self._future.result()


class Background:
    """Runs tasks in threads; without threads, at once and in the order in which they are submitted.

    Whatever has not begun when the block ends is dropped.
    """

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads) if threads else None

    def __enter__(self) -> Background:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def submit(self, task: Callable[..., Value], *arguments: Any) -> Future[Value]:
        """Begin a task."""
        if self._executor is not None:
            return self._executor.submit(task, *arguments)
        done: Future[Value] = Future()
        done.set_result(task(*arguments))
        return done

    def later(self, task: Callable[..., Value]) -> Later[Value]:
        """Prepare a task that begins later."""
        return Later(self, task)
