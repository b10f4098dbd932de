"""How long-running steps tell their caller how far they are."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class Progress(Protocol):
    """Called with the stage's name, the work done so far and the total (0 when unknown)."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take note."""


def silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass
class Stopwatch:
    """Wall-clock seconds per named step, and in total since it was made."""

    started: float = field(default_factory=time.perf_counter)
    steps: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the time the block takes to the named step."""
        start = time.perf_counter()
        yield
        self.steps[name] = self.steps.get(name, 0.0) + time.perf_counter() - start

    @property
    def total(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started


def peak_memory() -> int:
    """Peak resident bytes of this process so far."""
    try:
        # getrusage would also count what the parent held when it started us.
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    except (OSError, IndexError, ValueError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak
