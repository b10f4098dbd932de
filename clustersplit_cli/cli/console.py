"""What the terminal shows while work is under way; always on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from clustersplit_cli.progress import Progress, silent

if TYPE_CHECKING:
    from rich.console import Console


def stderr_console() -> Console:
    """A console on stderr; colours only on a terminal, and not with NO_COLOR."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


@contextmanager
def progress_bar(console: Console, *, quiet: bool) -> Iterator[Progress]:
    """Show a bar for the stage at hand, on terminals only; it disappears when the work is done."""
    if quiet or not console.is_terminal:
        yield silent
        return
    from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description:<12}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    with Bar(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                for task in tasks.values():
                    bar.update(task, visible=False)
                tasks[stage] = bar.add_task(stage, total=total or None)
            bar.update(tasks[stage], completed=done, total=total or None)

        yield show
