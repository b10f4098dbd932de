"""This tool and its neighbours on the same features: time, MMD, Psi and quotas missed.

The neighbours are installed from the package index into an environment of their own under build/.
`--write` replaces the table in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from benchmarks import harness
from clustersplit_cli.core.constraints.cells import joint_cells
from clustersplit_cli.core.constraints.quotas import split_quotas
from clustersplit_cli.core.geometry.dense import dense_geometry
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import prepare
from clustersplit_cli.core.parallel import pool
from clustersplit_cli.core.search.problem import Problem, evaluate
from clustersplit_cli.data.dataset import Dataset, ReadRequest
from clustersplit_cli.data.readers import load
from clustersplit_cli.options import SplitOptions, check_options
from clustersplit_cli.pipeline.local.engine import partition

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / "build" / "peers"
PACKAGES = ("scikit-learn", "k-means-constrained", "splytters")

# Each runs in the neighbours' environment: X and the number of validation rows in, a mask out.
PEERS = {
    "scikit-learn KMeans (k = 2, no constraints)": """
from sklearn.cluster import KMeans
labels = KMeans(2, n_init=10, random_state=0).fit_predict(X)
mask = labels == np.argmin(np.bincount(labels))
""",
    "k-means-constrained (sizes only)": """
from k_means_constrained import KMeansConstrained
model = KMeansConstrained(2, size_min=n_val, size_max=len(X) - n_val, n_init=10, random_state=0)
labels = model.fit_predict(X)
mask = labels == np.argmin(np.bincount(labels))
""",
    "splytters mmd_maximized_split (size only)": """
from splytters import mmd_maximized_split
train, test = mmd_maximized_split(X, train_size=len(X) - n_val, gamma=gamma, random_state=0)
mask = np.zeros(len(X), dtype=bool)
mask[test] = True
""",
}
FRAME = """
import json, sys, time
import numpy as np
X, n_val, gamma = np.load(sys.argv[1]), int(sys.argv[3]), float(sys.argv[4])
start = time.perf_counter()
{body}
np.save(sys.argv[2], mask)
print(json.dumps(time.perf_counter() - start))
"""


@dataclass(frozen=True)
class Result:
    """One tool's split, measured by us."""

    tool: str
    seconds: float
    n_val: int
    mmd: float
    psi: float
    missed: int
    cells: int

    def row(self) -> str:
        """One line of the table."""
        met = f"{self.cells - self.missed} of {self.cells}"
        return (
            f"| {self.tool} | {self.seconds:.1f} | {self.n_val:,} | {self.mmd:.4f} | {self.psi:.1f} | {met} |"
        )


def install() -> Path:
    """Make the neighbours' environment once; return its interpreter."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


def main() -> None:
    """Run all tools, print rows as they come, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    python = install()
    data = load(ReadRequest(ROOT / "sample_data" / "gas.parquet"))
    X = data.features - data.features.mean(axis=0)
    X /= np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
    rows: list[str] = []
    with pool() as workers, harness.workspace() as folder:
        prepared = prepare(Features(X), "rbf", "scale", 3, workers, np.random.default_rng(0))
        columns = {word: (c.codes, c.values) for word, c in data.categories.items()}
        limits = split_quotas(joint_cells(columns, len(X)), Fraction("0.2")).validation
        problem = Problem(dense_geometry(prepared.features, prepared.kernel, workers), limits)
        n_val = int(limits.target.sum())

        def measure(tool: str, seconds: float, mask: np.ndarray) -> None:
            found = evaluate(problem, mask)
            missed = int((limits.counts(mask) != limits.target).sum())
            mmd = float(np.sqrt(found.mmd_squared))
            result = Result(tool, seconds, found.n_val, mmd, found.psi, missed, len(limits.target))
            rows.append(result.row())
            print(rows[-1], flush=True)

        for tool, chosen, categories in (
            ("clustersplit", SplitOptions(), data.categories),
            ("clustersplit --effort fast", SplitOptions(effort="fast"), data.categories),
            (
                "clustersplit --effort fast --solver cbc",
                SplitOptions(effort="fast", solver="cbc"),
                data.categories,
            ),
            ("clustersplit --stratify none (size only)", SplitOptions(), {}),
        ):
            standardized = Dataset(X, data.feature_names, data.feature_columns, categories, data.rows, len(X))
            start = time.perf_counter()
            split = partition(standardized, check_options(chosen))
            measure(tool, time.perf_counter() - start, np.isin(data.rows, split.parts.val))
        np.save(folder / "X.npy", X)
        for tool, body in PEERS.items():
            script, mask = FRAME.format(body=body), folder / "mask.npy"
            arguments = [str(folder / "X.npy"), str(mask), str(n_val), repr(prepared.kernel.gamma)]
            ran = subprocess.run(
                [str(python), "-c", script, *arguments], check=True, capture_output=True, text=True
            )
            measure(tool, json.loads(ran.stdout.splitlines()[-1]), np.load(mask))
    if options.write:
        head = [
            f"The sample data, {len(X):,} x {X.shape[1]}, columns standardized, h = 0.2, a quota for every",
            f"(label, domain) cell; MMD and Psi under one rbf kernel. On {harness.machine()}.",
            "",
            "| tool | seconds | validation rows | MMD | Psi | quotas met |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
        ]
        harness.write_table("peers", head + rows)


if __name__ == "__main__":
    main()
