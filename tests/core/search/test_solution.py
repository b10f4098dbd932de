"""Which of many splits are worth going on with."""

from __future__ import annotations

import numpy as np

from clustersplit_cli.core.search.solution import Candidate, _steps, best_distinct, best_varied

N = 1000


def candidate(psi: float, first: int) -> Candidate:
    """A split of 200 rows in a run."""
    members = np.zeros(N, dtype=bool)
    members[first : first + 200] = True
    return Candidate(0, members, psi, np.zeros(N), (), True)


def test_the_best_are_distinct_and_in_order() -> None:
    candidates = [candidate(3.0, 0), candidate(1.0, 10), candidate(2.0, 10), candidate(4.0, 20)]
    assert [kept.psi for kept in best_distinct(candidates, 5)] == [1.0, 3.0, 4.0]
    assert [kept.psi for kept in best_distinct(candidates, 2)] == [1.0, 3.0]
    assert best_distinct(candidates, 0) == []


def test_three_in_four_are_far_from_each_other() -> None:
    alike = [candidate(1.0 + 0.1 * place, place) for place in range(8)]
    far = [candidate(5.0, 300), candidate(6.0, 600), candidate(7.0, 750)]
    assert [kept.psi for kept in best_varied([*far, *alike], 4)] == [1.0, 5.0, 6.0, 1.1]
    assert [kept.psi for kept in best_varied(alike, 4)] == [1.0, 1.1, 1.2, 1.3]
    assert [kept.psi for kept in best_varied([*far, *alike], 3)] == [1.0, 5.0, 6.0]


def test_the_trace_begins_with_a_start_where_the_first_split_was_lower_by_a_rounding() -> None:
    steps = _steps(["start", "explore", "polish"], [2.0, 2.1, 2.0 + 1e-15])
    assert [(step.phase, step.psi) for step in steps] == [("start", 2.1), ("polish", 2.0 + 1e-15)]
    assert _steps(["start", "perturb"], [2.0, 2.0 + 1e-15])[0].phase == "start"
