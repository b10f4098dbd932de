"""Does constrained k-means vary less from start to start than the greedy kind?

Twenty runs of each, h = 0.5, cells by label alone, linear kernel: mean and standard deviation of Psi.

    python benchmarks/quality/spread.py [FILE ...]

- descent: one descent from a random split, the two-orientation assignment step solved exactly. This is
  the algorithm as published, with one start.
- split: all that `clustersplit split` does, with twenty seeds.
- greedy: k-means++ centres, greedy assignment, swaps of pairs that gain.
- greedy, turned: a descent from where greedy ended, which may also exchange the clusters' roles.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.baselines import SEEDED
from clustersplit_cli.core.search.lloyd import descend
from clustersplit_cli.core.search.problem import objectives
from clustersplit_cli.core.search.starts import random_splits
from clustersplit_cli.data.dataset import Categories, Dataset, ReadRequest
from clustersplit_cli.data.readers import load
from clustersplit_cli.options import SplitOptions, check_options
from clustersplit_cli.pipeline.context import Streams
from clustersplit_cli.pipeline.local.engine import prepared_split
from clustersplit_cli.pipeline.local.split import LocalSplit

RUNS = 20
ROUNDING = 1e-8
"""Descents in float32 stop this close, relative to the total scatter, to where they would stop exactly."""
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def synthetic(n: int = 2000, d: int = 16, labels: int = 5) -> Dataset:
    """Gaussian clusters that have nothing to do with the labels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) + 2.0 * rng.normal(size=(8, d))[rng.integers(0, 8, n)]
    cells = {"label": Categories(rng.integers(0, labels, n).astype(np.int32), tuple(range(labels)))}
    return Dataset(X, tuple(map(str, range(d))), ("x",), cells, np.arange(n), n)


def datasets(paths: list[str]) -> Iterator[tuple[str, Dataset]]:
    """The named files, or the shared ones, and a synthetic one."""
    if not paths:
        yield "synthetic", synthetic()
    for path in [Path(path) for path in paths] or sorted(DATA.glob("*.parquet")):
        yield path.stem, load(ReadRequest(path, stratify=("label",)))


def psi_of_runs(context: LocalSplit) -> dict[str, np.ndarray]:
    """Psi of twenty runs of each method."""
    problem, seeds = context.problem, range(RUNS)
    starts = random_splits(problem.constraints, np.random.default_rng(0).spawn(RUNS))
    descent = descend(
        problem, starts, Selection(problem.constraints), max_iter=200, dtype=problem.geometry.search_dtype
    )
    found = {
        "descent": descent.members,
        "split": np.stack(
            [replace(context, streams=Streams.from_seed(seed)).find() for seed in seeds], axis=1
        ),
        "greedy": np.stack(
            [SEEDED["greedy"](context.strategy_context, np.random.default_rng(seed)) for seed in seeds],
            axis=1,
        ),
    }
    found["greedy, turned"] = descend(
        problem, found["greedy"], Selection(problem.constraints), max_iter=200, dtype=np.float64
    ).members
    return {name: objectives(problem, members) for name, members in found.items()}


def main() -> None:
    """Print one line per dataset and method."""
    options = check_options(SplitOptions(holdout="0.5", kernel="linear"))
    print("| data | method | Psi / SSq, mean | sd | least | most | sd of greedy / sd |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, dataset in datasets(sys.argv[1:]):
        with prepared_split(dataset, options) as context:
            psi = {
                method: values / context.problem.ssq_total for method, values in psi_of_runs(context).items()
            }
        reference = psi["greedy"].std(ddof=1)
        for method, values in psi.items():
            sd = values.std(ddof=1)
            ratio = "" if method == "greedy" else f"{reference / sd:.2g}" if sd > ROUNDING else "no spread"
            figures = f"{values.mean():.6f} | {sd:.1e} | {values.min():.6f} | {values.max():.6f}"
            print(f"| {name} | {method} | {figures} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
