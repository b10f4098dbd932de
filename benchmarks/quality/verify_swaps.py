"""Would `verify` notice any two rows of a cell that changed sides?

For the split of every file: the smallest relative change of MMD² over all swaps within a cell, beside the
tolerance of `verify`.

    python benchmarks/quality/verify_swaps.py [FILE ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from clustersplit_cli.core.search.problem import Members, Problem, discrepancy
from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.readers import load
from clustersplit_cli.options import SplitOptions, check_options
from clustersplit_cli.pipeline.local.engine import prepared_split
from clustersplit_cli.verification.stated import RELATIVE

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def relative_changes(problem: Problem, members: Members) -> np.ndarray:
    """Relative change of MMD² for every swap of a validation and a training row of one cell."""
    state = discrepancy(problem, members[:, None], np.float64)
    witness, limits = state.witness[:, 0], problem.constraints
    step = 1.0 / members.sum() + 1.0 / (~members).sum()
    found = []
    for cell in range(len(limits.target)):
        rows = limits.cells.order[limits.cells.offsets[cell] : limits.cells.offsets[cell + 1]]
        val, train = rows[members[rows]], rows[~members[rows]]
        own = np.diag(problem.geometry.block(val, val))[:, None] + np.diag(
            problem.geometry.block(train, train)
        )
        change = 2 * step * (witness[train] - witness[val][:, None])
        change += step**2 * (own - 2 * problem.geometry.block(val, train))
        found.append(np.abs(change).ravel() / state.mmd_squared[0])
    return np.concatenate(found)


def main() -> None:
    """Print one line per file."""
    print("| data | swaps | smallest change | below the tolerance |\n| --- | --- | --- | --- |")
    for path in [Path(word) for word in sys.argv[1:]] or sorted(DATA.glob("*.parquet")):
        dataset = load(ReadRequest(path))
        with prepared_split(dataset, check_options(SplitOptions())) as context:
            changes = relative_changes(context.problem, context.find())
        below = int((changes <= RELATIVE).sum())
        print(f"| {path.stem} | {len(changes):,} | {changes.min():.1e} | {below} |", flush=True)


if __name__ == "__main__":
    main()
