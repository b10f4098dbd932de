"""The exception tree: every error a user can cause, with its exit code and its cure."""

from __future__ import annotations


class ClusterSplitError(Exception):
    """An expected failure: one line saying what is wrong, one line with the cure."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


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
