"""What an engine is: shards somewhere, and a way to have all of them do the same thing."""

from __future__ import annotations

from typing import Protocol, TypeVar

from clustersplit_cli.data.row_labels import RowLabels
from clustersplit_cli.engines.factors import FactorPlan, Numbering
from clustersplit_cli.engines.tasks import Task

Result = TypeVar("Result")


class Executor(Protocol):
    """Holds the shards of one dataset."""

    @property
    def name(self) -> str:
        """As `--engine` calls it."""

    @property
    def n_workers(self) -> int:
        """Threads, or worker processes of a cluster."""

    @property
    def notes(self) -> tuple[tuple[str, str], ...]:
        """What a user should know about it, as (code, message)."""

    def tell(self, numbering: Numbering, plan: FactorPlan | None = None) -> None:
        """Tell every shard how rows are numbered, and how they become factors."""

    def give(self, labels: RowLabels) -> None:
        """Give every shard the labels of its rows, in place of earlier ones."""

    def run(self, task: Task[Result]) -> list[Result]:
        """Have every shard do a task; the results come in the order of the shards."""
