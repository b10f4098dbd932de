from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pulp
import pytest
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.cbc import find_cbc
from clustersplit_cli.core.assignment.pulp_model import _CBC, Branching, Model, Row


def random_model(rng: np.random.Generator, search: Branching | None) -> tuple[Model, list[Row]]:
    n = 30
    rows = [
        (np.arange(0, 12), np.ones(12, np.int64), 4, 4),
        (np.arange(8, 25), np.ones(17, np.int64), 3, 9),
        (np.arange(n), rng.integers(1, 5, size=n), 20, 40),
    ]
    fixed = np.full(n, -1, np.int8)
    fixed[:2] = 0, 1
    return Model(find_cbc(), rows, fixed, search), rows


def contents(path: Path) -> tuple[list[tuple[object, ...]], dict[str, float], list[tuple[object, ...]]]:
    """What an MPS file says, as PuLP reads it."""
    _, program = pulp.LpProblem.fromMPS(str(path))
    variables = sorted((each.name, each.lowBound, each.upBound, each.cat) for each in program.variables())
    costs = {each.name: value for each, value in program.objective.items()}
    constraints = sorted(
        (
            name,
            each.sense,
            each.constant,
            sorted((variable.name, weight) for variable, weight in each.items()),
        )
        for name, each in program._constraints.items()
    )
    return variables, costs, constraints


@pytest.mark.parametrize("search", [None, Branching(None, 0.0, 10.0)], ids=["relaxed", "integer"])
def test_the_file_for_cbc_says_what_pulps_own_would(search: Branching | None, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    model, _ = random_model(rng, search)
    program = model._program
    for costs in (rng.normal(size=30), -rng.normal(size=30) / 7.0):
        program.set_costs(costs.tolist())
        program.writeMPS(str(tmp_path / "ours.mps"), rename=1)
        program.setObjective(pulp.LpAffineExpression(zip(model._of_units, costs.tolist(), strict=True)))
        pulp.LpProblem.writeMPS(program, str(tmp_path / "pulps.mps"))
        assert contents(tmp_path / "ours.mps") == contents(tmp_path / "pulps.mps")


def test_programs_solved_at_the_same_time_do_not_disturb_each_other() -> None:
    rng = np.random.default_rng(1)
    model, rows = random_model(rng, None)
    costs = [rng.normal(size=30) for _ in range(6)]
    apart = [model.solve(each) for each in costs]
    with ThreadPoolExecutor(6) as threads:
        together = list(threads.map(model.solve, costs))
    for (values, cost), (same_values, same_cost) in zip(apart, together, strict=True):
        assert np.array_equal(values, same_values) and cost == same_cost
        assert _is_allowed(values, rows)


@pytest.mark.parametrize("stars", [False, True])
def test_solutions_are_read_as_pulps_own_reader_does(stars: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    model, _ = random_model(rng, None)
    model._program.set_costs(rng.normal(size=30).tolist())
    model._program.writeMPS(str(tmp_path / "program.mps"))
    solution = tmp_path / "solution.sol"
    words = ["-initialSolve", "-printingOptions", "all", "-solution", str(solution)]
    subprocess.run([find_cbc(), str(tmp_path / "program.mps"), *words], check=True, capture_output=True)
    if stars:  # with which CBC marks what is infeasible
        lines = solution.read_text().splitlines()
        solution.write_text("\n".join([lines[0], *(f"**{line}" for line in lines[1:5]), *lines[5:], ""]))
    named = (model._of_units, *model._program._names)
    status, values, _, _, slacks, sol_status = _CBC().readsol_MPS(str(solution), None, *named)
    expected = pulp.COIN_CMD().readsol_MPS(str(solution), None, *named)
    assert (status, values, slacks, sol_status) == (expected[0], expected[1], expected[4], expected[5])
    assert len(values) == 30 and any(values.values())


def _is_allowed(values: NDArray[np.float64], rows: list[Row]) -> bool:
    weights = [float(weight @ values[members]) for members, weight, _, _ in rows]
    inside = [
        low - 1e-9 <= total <= high + 1e-9 for total, (_, _, low, high) in zip(weights, rows, strict=True)
    ]
    return all(inside) and values[0] == 0 and values[1] == 1
