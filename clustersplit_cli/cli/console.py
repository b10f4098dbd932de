"""What the terminal shows while work is under way; always on stderr."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from clustersplit_cli.progress import Progress, silent
from clustersplit_cli.reports.formatting import human_number, human_seconds

if TYPE_CHECKING:
    from rich.console import Console

SECONDS_UNTIL_SHOWN = 0.7
"""Shorter work shows no progress: a bar that flashes by only disturbs."""


def wants_colour() -> bool:
    """Whether stderr is a terminal that shows colours and nobody asked for none."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def stderr_console() -> Console:
    """A console on stderr, made when something is to be shown: quiet commands do without rich."""
    return cast("Console", _ConsoleToBe())


class _ConsoleToBe:
    """Stands for a console until one is needed."""

    @cached_property
    def _made(self) -> Console:
        return _make_console()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)

    def __enter__(self) -> Console:
        return self._made.__enter__()

    def __exit__(self, *exception: Any) -> None:
        self._made.__exit__(*exception)


def _make_console() -> Console:
    """A console with colours only on a terminal, and not with NO_COLOR."""
    from rich.console import Console

    on_terminal = sys.stderr.isatty()
    return Console(
        stderr=True,
        highlight=False,
        soft_wrap=not on_terminal,
        force_terminal=on_terminal,
        no_color=not wants_colour(),
    )


@contextmanager
def progress_bar(
    console: Console, *, quiet: bool, time_left: bool = False, rows: int | None = None
) -> Iterator[Progress]:
    """Show a bar for the stage at hand, on terminals only; it disappears when the work is done.

    Parameters
    ----------
    time_left : also say how long the stage will still take, if it goes on as it did so far.
    rows : of the dataset; stages that go through all of them also show their speed.
    """
    if quiet or not console.is_terminal or console.is_dumb_terminal:
        yield silent
        return
    from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description:<11}"),
        BarColumn(bar_width=min(40, max(8, console.width - (50 if time_left else 32)))),
        TextColumn("{task.fields[share]:>4}"),
        TimeElapsedColumn(),
        *([TextColumn("{task.fields[speed]}")] if rows else []),
        *([TextColumn("{task.fields[left]}")] if time_left else []),
    )
    bar = Bar(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
    began = stage_began = bar.get_time()

    def add(stage: str) -> TaskID:
        task = bar.add_task(stage, total=None, share="", left="", speed="")
        bar.tasks[-1].start_time = began  # the clock shows the whole run
        return task

    current, task = "starting", add("starting")

    def show(stage: str, done: int, total: int) -> None:
        nonlocal current, task, stage_began
        if stage != current:
            bar.remove_task(task)
            current, task, stage_began = stage, add(stage), bar.get_time()
        share = f"{done / total:.0%}" if total else ""
        seconds = (bar.get_time() - stage_began) / done * (total - done) if done else 0.0
        left = f"{human_seconds(seconds)} left" if seconds >= 1 else ""
        elapsed = bar.get_time() - stage_began
        counts_rows = rows is not None and total == rows and done > 0 and elapsed > 0
        speed = f"{human_number(done / elapsed, 3)} rows/s" if counts_rows else ""
        bar.update(task, completed=done, total=total or None, share=share, left=left, speed=speed)

    # A timer rather than a look at the clock in `show`: a long stage may not call it for a while.
    timer = threading.Timer(SECONDS_UNTIL_SHOWN, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield show
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
