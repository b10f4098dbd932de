"""The least that a kernel costs in numpy, as a limit to compare the command with.

    python -m benchmarks.bare kernel X.npy GAMMA
    python -m benchmarks.bare landmarks X.npy GAMMA Q

computes it once and prints wall-clock and processor seconds. A process of its own pays for fresh memory, as
the command does; repeated in one process the same product takes a third less.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np


def bare_kernel(X: np.ndarray, gamma: float) -> np.ndarray:
    """The least a dense kernel costs in numpy: a full X X' and an in-place exp, in float32."""
    half = gamma * np.einsum("ij,ij->i", X, X)
    K = X @ X.T
    K *= 2 * gamma
    K -= half[:, None]
    K -= half[None, :]
    np.exp(K, out=K)
    return K


def bare_landmarks(X: np.ndarray, q: int, gamma: float, block: int = 8192) -> np.ndarray:
    """The least a landmark matrix costs in numpy: X L' and an in-place exp, in blocks, in float32."""
    centres = X[np.linspace(0, len(X) - 1, q).astype(np.int64)]
    right = gamma * np.einsum("ij,ij->i", centres, centres)
    C = np.empty((len(X), q), dtype=np.float32)
    for start in range(0, len(X), block):
        rows = X[start : start + block]
        tile = C[start : start + block]
        np.matmul(rows, centres.T, out=tile)
        tile *= 2 * gamma
        tile -= (gamma * np.einsum("ij,ij->i", rows, rows))[:, None]
        tile -= right[None, :]
        np.exp(tile, out=tile)
    return C


def bare_pass(X: np.ndarray, columns: int = 10, block: int = 8192) -> None:
    """One pass over X: multiply every block by a few vectors."""
    weights = np.ones((X.shape[1], columns), dtype=np.float32)
    for start in range(0, len(X), block):
        X[start : start + block] @ weights


def alone(what: str, rows: Path, *numbers: float) -> tuple[float, float]:
    """Wall-clock and processor seconds of one computation in a process of its own, without reading rows."""
    words = [sys.executable, "-m", "benchmarks.bare", what, str(rows), *map(str, numbers)]
    root = Path(__file__).resolve().parents[1]
    said = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, cwd=root).stdout.split()
    return float(said[0]), float(said[1])


def main() -> None:
    """Compute once and print the seconds."""
    what, rows, gamma, *landmarks = sys.argv[1:]
    X, width = np.load(rows), np.float32(gamma)
    start, busy = time.perf_counter(), time.process_time()
    if what == "kernel":
        bare_kernel(X, width)
    else:
        bare_landmarks(X, int(landmarks[0]), width)
    print(time.perf_counter() - start, time.process_time() - busy)


if __name__ == "__main__":
    main()
