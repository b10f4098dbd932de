"""Permutation tests and the matrix between domains, side by side with the bare kernel they rest on.

    python benchmarks/speed/permutations.py [gas_drift.parquet]

The bare kernel is float32 `X @ X.T` in numpy and an exponential in place, with as many threads, timed in the
same run; ratios to it are what counts, seconds depend on the machine and on what else it does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import prepare
from clustersplit_cli.core.mmd.permutation import permuted_exactly, regroupings
from clustersplit_cli.core.parallel import pool
from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.readers import load
from clustersplit_cli.options import SplitOptions, check_options
from clustersplit_cli.pipeline.mmd.groups import Comparison, Question, compare_groups
from clustersplit_cli.pipeline.mmd.run import compare

ROUNDS = 5
ROWS, FEATURES, PERMUTATIONS = 5000, 256, 1000
GAS_DRIFT = Path(__file__).resolve().parents[3] / "shared" / "data" / "gas_drift.parquet"


def bare_kernel(x: NDArray[np.float32], gamma: float) -> None:
    """The whole kernel matrix, as short as numpy allows."""
    matrix = x @ x.T
    squares = matrix.diagonal().copy()
    matrix *= 2
    matrix -= squares[:, None]
    matrix -= squares[None, :]
    matrix *= gamma
    np.exp(matrix, out=matrix)


def best(work: Callable[[], object]) -> float:
    """Seconds of the fastest of some rounds."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def show(name: str, seconds: float, kernel: float) -> None:
    """One line of the table."""
    print(f"{name:<58}{seconds:>9.2f} s{seconds / kernel:>9.2f}")


def permutations() -> None:
    """A test of two groups of random rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    kernel = best(lambda: bare_kernel(x, 1 / FEATURES))
    show(f"bare kernel, {ROWS} x {FEATURES}", kernel, kernel)
    groups = np.arange(ROWS // 5), np.arange(ROWS // 5, ROWS)

    def test() -> None:
        with pool() as workers:
            prepared = prepare(Features(x), "rbf", "scale", 3, workers, rng)
            draws = regroupings(len(groups[0]), len(groups[1]), PERMUTATIONS, rng)
            permuted_exactly(prepared.features, prepared.kernel, groups, draws, "biased", workers)

    show(f"{PERMUTATIONS} permutations on it, kernel and draws included", best(test), kernel)


def domains(path: Path) -> None:
    """The matrix between all domains of a file."""
    dataset = load(ReadRequest(path, stratify=("domain", "label")))
    x = dataset.features.astype(np.float32)
    x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-12)
    n, d = x.shape
    kernel = best(lambda: bare_kernel(x, 1 / d))
    show(f"bare kernel, {path.stem} ({n} x {d})", kernel, kernel)
    options = check_options(SplitOptions(standardize="zscore"))
    whole = compare_groups(dataset, "domain", ())
    inside = compare_groups(dataset, "domain", ("label",))

    def measured(comparison: Comparison, count: int) -> float:
        return best(lambda: compare(comparison, options, Question(permutations=count)))

    pairs = f"{len(whole.pairs)} pairs of {len(whole.parts)} domains"
    show(pairs, measured(whole, 0), kernel)
    show(f"{pairs}, within labels", measured(inside, 0), kernel)
    show(f"{pairs}, {PERMUTATIONS} permutations each", measured(whole, PERMUTATIONS), kernel)


def main() -> None:
    """Print the table."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else GAS_DRIFT
    print(f"{'best of ' + str(ROUNDS):<58}{'time':>11}{'ratio':>9}")
    permutations()
    if path.exists():
        domains(path)


if __name__ == "__main__":
    main()
