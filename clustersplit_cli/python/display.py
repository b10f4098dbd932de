"""`verbose=1`: how far the work is, on one line of stderr, in terminals, notebooks and logs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clustersplit_cli.errors import UsageError
from clustersplit_cli.progress import Progress, silent

SECONDS_BETWEEN = 0.1
WIDTH = 40


@contextmanager
def progress_of(verbose: Any) -> Iterator[Progress]:
    """Show progress if the caller wants it, and at the end the seconds that it took."""
    if not isinstance(verbose, int) or verbose < 0:
        raise UsageError(f"verbose must be 0 or 1, got {verbose!r}", hint="for example verbose=1")
    if not verbose:
        yield silent
        return
    line = Line(overwrites=_overwrites(sys.stderr))
    try:
        yield line
    finally:
        line.end()


class Line:
    """A line that is written over where that can be, and begun anew for every stage where it cannot."""

    def __init__(self, *, overwrites: bool) -> None:
        self.overwrites = overwrites
        self.began = self.shown_at = time.perf_counter()
        self.stage = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Say what is done now, and how much of it."""
        now = time.perf_counter()
        is_new = stage != self.stage
        if not is_new and (not self.overwrites or now - self.shown_at < SECONDS_BETWEEN):
            return
        self.stage, self.shown_at = stage, now
        share = f" {done / total:.0%}" if total and self.overwrites else ""
        self._write(f"clustersplit: {stage}{share}")

    def end(self) -> None:
        """Say how long it took."""
        self._write(f"clustersplit: {time.perf_counter() - self.began:.1f} s")
        if self.overwrites:
            sys.stderr.write("\n")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r{text:<{WIDTH}}" if self.overwrites else f"{text}\n")
        sys.stderr.flush()


def _overwrites(stream: Any) -> bool:
    """Whether a carriage return begins the same line again: in terminals and in notebooks."""
    in_notebook = type(stream).__module__.partition(".")[0] == "ipykernel"
    return bool(in_notebook or (hasattr(stream, "isatty") and stream.isatty()))
