"""What checking a split found: one line per check, on the terminal and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clustersplit_cli.reports.formatting import printable
from clustersplit_cli.reports.readable import Readable

if TYPE_CHECKING:
    from rich.console import Console

OK, FAILED, SKIPPED = "ok", "failed", "skipped"
_STYLES = {OK: "bold green", FAILED: "bold red", SKIPPED: "yellow"}


@dataclass(frozen=True)
class Check:
    """One question and its answer; `detail` names the rows, cells or numbers it rests on."""

    name: str
    status: str  # ok | failed | skipped
    detail: str


@dataclass(frozen=True)
class Verification(Readable):
    """All checks of one split, in the order in which one would ask."""

    renderer = "verification:render_verification"

    subject: str
    passed: bool
    checks: tuple[Check, ...]

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.status == FAILED)


def verification(subject: str, checks: tuple[Check, ...]) -> Verification:
    """Gather checks; skipped ones neither pass nor fail."""
    return Verification(subject, all(check.status != FAILED for check in checks), checks)


def render_verification(found: Verification, *, console: Console, failures_only: bool = False) -> None:
    """Print one line per check: its answer, its name and its detail."""
    from rich.text import Text

    plain = console.no_color or not console.is_terminal
    width = max((len(check.name) for check in found.checks), default=0)
    for check in found.failures if failures_only else found.checks:
        line = Text.assemble(
            (f"{check.status:<8}", "" if plain else _STYLES[check.status]),
            f"{check.name:<{width}}  {printable(check.detail)}",
        )
        console.print(line, soft_wrap=True, highlight=False)
