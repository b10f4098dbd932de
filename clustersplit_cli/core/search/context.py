"""What every step of a search needs besides the splits it works on."""

from __future__ import annotations

from dataclasses import dataclass

from clustersplit_cli.core.assignment.selection import CellAssigner
from clustersplit_cli.core.effort import Effort
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.core.search.problem import Problem
from clustersplit_cli.progress import Progress, silent


@dataclass(frozen=True)
class SearchContext:
    """A problem, the assignment step, who does the work, and how long to go on.

    Attributes
    ----------
    assigner : the assignment step on all rows.
    restarts : number of starts.
    max_iter : steps of a descent at most.
    """

    problem: Problem
    assigner: CellAssigner
    workers: Workers
    restarts: int
    max_iter: int
    effort: Effort
    progress: Progress = silent
