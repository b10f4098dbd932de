"""How long-running steps tell their caller how far they are."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called with the stage's name, the work done so far and the total (0 when unknown)."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take note."""


def silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""
