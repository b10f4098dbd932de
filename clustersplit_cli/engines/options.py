"""Which engine is to be used, and how: the options that say where the arrays live."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from clustersplit_cli.errors import UsageError

AUTO, LOCAL, STREAM, DASK = "auto", "local", "stream", "dask"
ENGINES = (AUTO, LOCAL, STREAM, DASK)
DEFAULT_PASSES = 6
NO_SPILL = "none"


@dataclass(frozen=True)
class EngineOptions:
    """What the user asked for; None where they did not say.

    Attributes
    ----------
    passes : most passes over all rows that refine a split.
    spill : directory of spill files; `none` for no such files.
    scheduler : address of a Dask scheduler.
    """

    engine: str = AUTO
    passes: int | None = None
    spill: str | None = None
    scheduler: str | None = None

    @property
    def max_passes(self) -> int:
        """Passes at most."""
        return DEFAULT_PASSES if self.passes is None else self.passes

    @property
    def spill_directory(self) -> Path | None:
        """Where spill files go; None for the system's own place."""
        return None if self.spill in (None, NO_SPILL) else Path(str(self.spill))

    def check(self) -> None:
        """Refuse values that make no sense, and options that would have no effect.

        Raises
        ------
        UsageError
        """
        if self.engine not in ENGINES:
            raise UsageError(
                f"--engine '{self.engine}' is unknown", hint=f"choose one of {', '.join(ENGINES)}"
            )
        if self.passes is not None and self.passes < 2:
            raise UsageError(
                f"--passes must be at least 2, got {self.passes}", hint="every step takes two passes"
            )
        if self.scheduler is not None and self.engine != DASK:
            raise UsageError("--scheduler has no effect without --engine dask", hint="add --engine dask")
        if self.engine == LOCAL and (self.passes is not None or self.spill is not None):
            idle = "--passes" if self.passes is not None else "--spill"
            raise UsageError(f"{idle} has no effect with --engine local", hint="use --engine stream or dask")
        directory = self.spill_directory
        if directory is not None and not directory.is_dir():
            raise UsageError(f"--spill {directory} is not a directory", hint="name one that exists")
