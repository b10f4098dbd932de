"""The second half of the search: refine splits on the kernel itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from clustersplit_cli.core.assignment.selection import Assigner
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.search.lloyd import Descent, descend, leap
from clustersplit_cli.core.search.problem import Members, Problem
from clustersplit_cli.core.search.solution import UNMEASURED, Candidate, joined
from clustersplit_cli.core.search.swaps import polish


@dataclass(frozen=True)
class Refiner:
    """Descends, leaps and polishes in turn on a problem's own kernel.

    Attributes
    ----------
    rough_rounds, final_rounds : of descending, leaping and polishing, at most.
    most_polished : splits still moving that leap and are polished in a round, the best ones; None: all.
    last_assigner : the assignment step in float64, if it is another one.
    """

    problem: Problem
    assigner: Assigner
    max_iter: int
    rough_rounds: int
    final_rounds: int
    most_polished: int | None = None
    last_assigner: Assigner | None = None

    def refine(
        self, candidates: Sequence[Candidate], *, exactly: bool, measured: bool = False, fully: bool = False
    ) -> list[Candidate]:
        """Refine all candidates as one batch, until nothing lowers Psi any more or rounds run out.

        The last thing is always a descent, so the result is a fixed point of the assignment step.

        Parameters
        ----------
        exactly : in float64 and without leaps, else in the kernel's own precision.
        measured : whether the candidates' witness is that of their splits on the problem's kernel, in the
            precision asked for.
        fully : whether to go on for as many rounds as at last.
        """
        problem = self.problem
        dtype = np.dtype(np.float64) if exactly else problem.geometry.search_dtype
        assigner = (self.last_assigner if exactly else None) or self.assigner
        max_rounds = self.final_rounds if exactly or fully else self.rough_rounds
        result = list(candidates)
        seen = list(candidates) if measured else None
        active = list(range(len(result)))
        converged_at: dict[int, Candidate] = {}
        for done in range(max_rounds):
            near = None if seen is None else (_stack(seen, active), _witnesses(seen, active))
            end = descend(
                problem, _stack(result, active), assigner, max_iter=self.max_iter, dtype=dtype, near=near
            )
            _advance(result, active, "lloyd", end)
            for run in active:
                # What looked like a gain in rounded numbers may be none: then it stays where it was.
                if run in converged_at and result[run].psi >= converged_at[run].psi:
                    result[run] = converged_at[run]
            active = [run for run in active if result[run] is not converged_at.get(run)]
            if done == max_rounds - 1 or not active:
                break
            converged_at = {run: result[run] for run in active}
            active = sorted(sorted(active, key=lambda run: result[run].psi)[: self.most_polished])
            if not exactly:
                end = leap(problem, _gather(result, active, end), assigner, max_iter=self.max_iter)
                leapt = [column for column in range(len(active)) if end.visited[column]]
                _advance(result, active, "leap", end, leapt)
            seen = list(result)
            for run in active:
                candidate = result[run]
                polished = polish(problem, candidate.members, candidate.witness)
                if polished.changes:
                    moved = replace(candidate, members=polished.members, trace=(*candidate.trace, UNMEASURED))
                    result[run] = moved.through("polish", [np.packbits(polished.members)])
            active = [run for run in active if result[run] is not converged_at[run]]
            if not active:
                break
        return result


def _gather(candidates: Sequence[Candidate], runs: Sequence[int], end: Descent) -> Descent:
    """Where the given candidates have converged, as one descent."""
    chosen = [candidates[run] for run in runs]
    return replace(
        end,
        members=_stack(candidates, runs),
        psi=np.array([candidate.psi for candidate in chosen]),
        witness=_witnesses(candidates, runs),
    )


def _stack(candidates: Sequence[Candidate], runs: Sequence[int]) -> Members:
    return np.stack([candidates[run].members for run in runs], axis=1)


def _witnesses(candidates: Sequence[Candidate], runs: Sequence[int]) -> Floats:
    return np.stack([candidates[run].witness for run in runs], axis=1)


def _advance(
    candidates: list[Candidate],
    runs: Sequence[int],
    phase: str,
    end: Descent,
    columns: Sequence[int] | None = None,
) -> None:
    """Move candidates to where their columns of the batch ended."""
    for column in range(len(runs)) if columns is None else columns:
        moved = replace(
            candidates[runs[column]],
            members=end.members[:, column],
            psi=float(end.psi[column]),
            witness=end.witness[:, column],
            converged=bool(end.converged[column]),
            trace=joined(candidates[runs[column]].trace, end.trace[column]),
        )
        candidates[runs[column]] = moved.through(phase, end.visited[column])
