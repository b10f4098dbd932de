"""Small problems: do all seeds end at the same split, and how far is it from what random starts find?

On datasets that come with scikit-learn, standardized, with a fifth of every class, for kernels from wide to
almost diagonal. The best split known is the best of 200 random Lloyd starts and of all seeds, with either
effort.
`--write` replaces the table in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import time
from fractions import Fraction
from itertools import product

import numpy as np
from sklearn import datasets

from benchmarks import harness
from benchmarks.quality.search_quality import geometry_of, reach
from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.constraints.cells import joint_cells
from clustersplit_cli.core.constraints.quotas import split_quotas
from clustersplit_cli.core.parallel import Workers, pool
from clustersplit_cli.core.search.lloyd import descend
from clustersplit_cli.core.search.problem import Problem, discrepancy
from clustersplit_cli.core.search.starts import random_splits

NAMES = ("iris", "wine", "breast_cancer", "digits")
WIDTHS = ("scale", "5 x scale", "20 x scale", "100 x scale", "linear")
SAME = 1e-6


def row(name: str, width: str, workers: Workers, seeds: int) -> str:
    """One line of the table."""
    found = getattr(datasets, f"load_{name}")()
    X = (found.data - found.data.mean(axis=0)) / np.maximum(found.data.std(axis=0), 1e-12)
    values, codes = np.unique(found.target, return_inverse=True)
    limits = split_quotas(joint_cells({"label": (codes, values)}, len(X)), Fraction("0.2")).validation
    problem = Problem(geometry_of(X.astype(np.float32), width, workers), limits)
    dtype = problem.geometry.search_dtype
    starts = random_splits(limits, np.random.default_rng(1).spawn(200))
    ends = descend(problem, starts, Selection(limits), max_iter=100, dtype=dtype)
    random = float(np.sqrt(discrepancy(problem, ends.members, np.float64).mmd_squared.max()))
    began = time.perf_counter()
    reached = np.array([reach(problem, workers, seed, "normal") for seed in range(seeds)])
    seconds = (time.perf_counter() - began) / seeds
    best = max(random, reached.max(), *(reach(problem, workers, seed, "thorough") for seed in range(2)))
    n_best = int((reached >= (1.0 - SAME) * best).sum())
    return (
        f"| {name}, {len(X):,} rows, {width} | {n_best} of {seeds} | {reached.min() / best:.5f} "
        f"| {reached.min() / random:.5f} | {1000 * seconds:.0f} ms |"
    )


def main() -> None:
    """Print rows as they come, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    lines = [
        "| data, width | seeds at the best known | worst seed to that | to 200 random starts | search |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    with pool() as workers:
        for name, width in product(NAMES, WIDTHS):
            lines.append(row(name, width, workers, options.seeds))
            print(lines[-1], flush=True)
    if options.write:
        harness.write_table("small", lines)


if __name__ == "__main__":
    main()
