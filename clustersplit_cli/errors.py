"""The exception tree: every error a user can cause, with its exit code and its cure."""

from __future__ import annotations

import re

_UNDECODED = re.compile("[\udc80-\udcff]")
_LONGEST_WORD, _LONGEST_TEXT = 300, 1200


def shortened(text: str) -> str:
    """Leave out the middle of words and texts that nobody would read to the end, and say how long they are.

    >>> shortened(f"no column {'a' * 20_000}").count("a")
    252
    """
    text = re.sub(rf"\S{{{_LONGEST_WORD + 1},}}", lambda match: _without_middle(match[0], 200, 50), text)
    return text if len(text) <= _LONGEST_TEXT else _without_middle(text, 800, 250)


def _without_middle(text: str, head: int, tail: int) -> str:
    return f"{text[:head]}...[{len(text)} characters]...{text[-tail:]}"


def readable(text: str) -> str:
    r"""Return text that every output can hold: bytes that are not UTF-8 are written as `\xNN`.

    >>> readable("caf\udce9")
    'caf\\xe9'
    """
    text = _UNDECODED.sub(lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", text)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")  # other lone surrogates


def printable(text: str) -> str:
    r"""Keep text to one line that any terminal can show, whatever names it quotes.

    >>> printable("two\nlines")
    'two\\nlines'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in readable(text))


class ClusterSplitError(Exception):
    """An expected failure: one line saying what is wrong, one line with the cure."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = shortened(message)
        self.hint = None if hint is None else shortened(hint)
        super().__init__(self.message)


class CheckFailedError(ClusterSplitError):
    """A check the user asked for did not hold."""

    exit_code = 1


class UsageError(ClusterSplitError):
    """An option has a value that cannot be used, or options contradict each other."""


class InputError(ClusterSplitError):
    """An input file is missing, unreadable, malformed, or holds unusable values."""


class OutputError(ClusterSplitError):
    """The output exists already or cannot be written."""


class MemoryPlanError(ClusterSplitError):
    """The work does not fit the memory budget."""


class InfeasibleError(ClusterSplitError):
    """No split meets the constraints."""

    exit_code = 3


class SolverError(ClusterSplitError):
    """The solver is missing or failed."""

    exit_code = 4


def needs_all_rows(what: str, cure: str = "leave it out, or use --engine local") -> UsageError:
    """What is asked for works on rows in memory, and these are read in pieces."""
    return UsageError(f"{what} needs all rows in memory", hint=cure)


class ClusterError(ClusterSplitError):
    """The cluster cannot be reached, or failed."""

    exit_code = 4


class TrialError(ClusterSplitError):
    """Trainings that others run for an evaluation failed."""

    exit_code = 4


class UnfinishedError(ClusterSplitError):
    """A run was interrupted and can be resumed; ends as the signal would have ended it."""

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


class InvalidArgumentError(ClusterSplitError, ValueError):
    """What a Python caller passed cannot be used; says so, and the cure, in one message."""

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class ClusterSplitWarning(UserWarning):
    """Something to know before trusting a split, for Python callers; the report has it too."""
