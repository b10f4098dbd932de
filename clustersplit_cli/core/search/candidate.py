"""A split under way: where it started, what it passed through, where it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.search.problem import Members


@dataclass(frozen=True)
class Candidate:
    """One run of the search.

    Attributes
    ----------
    start : number of the start it came from.
    members : (n,), the split it has reached.
    psi : its objective, on whatever kernel and in whatever precision it was last seen.
    witness : (n,), K z there.
    passed : the splits it went through, the first included, packed by `np.packbits`, with their phases.
    converged : whether its last descent stopped by itself.
    trace : Psi at the start and after every step, where the last one was taken.
    """

    start: int
    members: Members
    psi: float
    witness: NDArray[np.floating]
    passed: tuple[tuple[str, NDArray[np.uint8]], ...]
    converged: bool
    trace: tuple[float, ...] = ()

    @property
    def iterations(self) -> int:
        """Steps taken since the start."""
        return len(self.passed) - 1

    def measured_while_refined(self) -> dict[bytes, float]:
        """Psi of the splits, packed, that it passed since it was first measured on the kernel itself."""
        n_refining = 0
        while n_refining < len(self.passed) and self.passed[-1 - n_refining][0] in REFINING:
            n_refining += 1
        if not 0 < n_refining < min(len(self.passed), len(self.trace)):
            return {}
        pairs = zip(self.passed[-1 - n_refining :], self.trace[-1 - n_refining :], strict=True)
        return {split.tobytes(): psi for (_, split), psi in pairs}

    def through(self, phase: str, splits: Sequence[NDArray[np.uint8]]) -> Candidate:
        """Return the candidate with further splits passed."""
        return replace(self, passed=(*self.passed, *((phase, split) for split in splits)))


REFINING = ("lloyd", "leap", "polish")
"""Phases that refine splits, on the kernel itself once they come from an approximation of it."""
UNMEASURED = float("nan")
"""In a trace: a step whose Psi the next descent will state."""
LONGEST_TRACE = 24


def joined(trace: tuple[float, ...], psi: Sequence[float]) -> tuple[float, ...]:
    """Continue a trace by a descent from where it ended.

    The descent may be on another kernel, where the same split has another Psi: what was seen before is
    shifted to meet it.
    """
    if not trace:
        return tuple(psi)
    if math.isnan(trace[-1]):
        return (*trace[:-1], *psi)
    return (*(value + psi[0] - trace[-1] for value in trace), *psi[1:])


def shortened(trace: tuple[float, ...], end: float) -> tuple[float, ...]:
    """A trace as reports show it: ending at the Psi that was measured, and at most `LONGEST_TRACE` long."""
    whole = joined(trace, (end,))
    if len(whole) <= LONGEST_TRACE:
        return whole
    kept = np.linspace(0, len(whole) - 1, LONGEST_TRACE).round().astype(int)
    return tuple(whole[place] for place in kept)


CLOSE, VARIED = 1000, 20
"""Splits that differ in at most one row in a thousand are close; varied ones differ in one in twenty."""


def are_close(one: Candidate, other: Candidate, one_in: int = CLOSE) -> bool:
    """Whether two splits differ in one row in a thousand: then polishing leads both to the same place."""
    return one_in * int((one.members != other.members).sum()) <= len(one.members)


def best_distinct(candidates: Sequence[Candidate], count: int, one_in: int = CLOSE) -> list[Candidate]:
    """The `count` best candidates of which no two have almost the same split, best first."""
    kept: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda candidate: candidate.psi):
        if len(kept) == count:
            break
        if not any(are_close(candidate, other, one_in) for other in kept):
            kept.append(candidate)
    return kept


def best_varied(candidates: Sequence[Candidate], count: int) -> list[Candidate]:
    """The `count` best candidates, three in four of them far from each other.

    Where a low-rank kernel prefers one optimum and the kernel itself another, the best candidates on the
    former may all lead to its own.
    """
    varied = best_distinct(candidates, count - count // 4, VARIED)
    others = [
        candidate for candidate in candidates if not any(are_close(candidate, other) for other in varied)
    ]
    return [*varied, *best_distinct(others, count - len(varied))]
