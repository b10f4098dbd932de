"""The frozen corpus: commands that together use every command, engine, kernel and kind of constraint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS, FEATURES = 360, 6
QUICK = "feats.parquet --restarts 4 --effort fast"

COMMANDS: dict[str, str] = {
    # Splits in memory: kernels.
    "split-rbf": "split feats.parquet",
    "split-thorough": "split feats.parquet --effort thorough --stratify label",
    "split-narrow": f"split {QUICK} --gamma 40",
    "split-median": f"split {QUICK} --gamma median --h 0.5",
    "split-linear": f"split {QUICK} --kernel linear",
    "split-cosine": f"split {QUICK} --kernel cosine --standardize zscore",
    "split-polynomial": f"split {QUICK} --kernel polynomial",
    "split-nystrom": f"split {QUICK} --nystrom 60",
    # Splits in memory: constraints.
    "split-tolerance": f"split {QUICK} --tolerance 0.2",
    "split-balanced": f"split {QUICK} --h 0.29 --rounding balanced",
    "split-two-families": f"split {QUICK} --stratify label --stratify domain",
    "split-three-families": f"split {QUICK} --stratify label --stratify domain --stratify site",
    "split-groups": f"split {QUICK} --keep-together patient --tolerance auto --stratify label",
    "split-pins": f"split {QUICK} --force-val pins.txt --exclude site=2 --id id --format npy --format txt",
    "split-no-cells": f"split {QUICK} --stratify none",
    "split-cbc": "split small.parquet --solver cbc --restarts 4",
    "split-tiny": "split tiny.parquet",
    # Folds and named parts.
    "kfold-rbf": f"kfold {QUICK} --k 4",
    "kfold-linear": f"kfold {QUICK} --k 5 --kernel linear",
    "kfold-nystrom": f"kfold {QUICK} --k 3 --nystrom 60",
    "kfold-groups": f"kfold {QUICK} --k 3 --keep-together patient --tolerance auto --stratify label",
    "parts": f"split {QUICK} --parts train=0.6,val=0.2,test=0.2",
    "parts-pins": f"split {QUICK} --parts train=0.7,val=0.3 --tolerance 0.1 --force-val pins.txt --id id",
    # Rows on disk, and on a cluster.
    "split-stream": f"split {QUICK} --engine stream --nystrom 50",
    "split-stream-linear": f"split {QUICK} --engine stream --kernel linear",
    "split-dask": f"split {QUICK} --engine dask --nystrom 50 --threads 2",
    "baseline-stream": "baseline random feats.parquet --engine stream --nystrom 50",
    # Other strategies, measurements and looks.
    "baseline-random": "baseline random feats.parquet",
    "baseline-greedy": "baseline greedy feats.parquet --kernel linear",
    "baseline-domain": "baseline leave-one-domain-out feats.parquet --leave photo",
    "compare": "compare small.parquet --json --repeats 2",
    "inspect": "inspect feats.parquet --json",
    "mmd-by-domain": "mmd feats.parquet --by domain --within label --permutations 50 --json",
    "mmd-two-files": "mmd feats.parquet small.parquet --estimator unbiased --json",
}

FOLLOW_UPS: dict[str, str] = {
    "verify": "verify out --json",
    "mmd": "mmd feats.parquet --split out --json",
}
"""What is asked of the run directory of commands that leave one; `mmd` only of splits of `feats.parquet`."""


def write_inputs(folder: Path) -> None:
    """Write the files that the commands read: rows in clusters, some of them identical."""
    rng = np.random.default_rng(20)
    centres = rng.normal(scale=2.0, size=(5, FEATURES))
    x = (centres[rng.integers(0, 5, ROWS)] + rng.normal(size=(ROWS, FEATURES))).astype(np.float32)
    x[1::12] = x[::12]
    sites = rng.integers(0, 3, ROWS)
    table = pa.table(
        {
            **{f"f{column}": x[:, column] for column in range(FEATURES)},
            "label": np.array(["cat", "dog", "cow"])[rng.integers(0, 3, ROWS)],
            "domain": np.array(["art", "photo"])[rng.integers(0, 2, ROWS)],
            "site": sites,
            "patient": [f"p{number}" for number in np.repeat(np.arange(ROWS // 3), 3)],
            "id": [f"row {row}" for row in range(ROWS)],
        }
    )
    pq.write_table(table, folder / "feats.parquet", row_group_size=100)
    pq.write_table(table.slice(0, 60), folder / "small.parquet")
    pq.write_table(table.slice(0, 11), folder / "tiny.parquet")
    forced = np.flatnonzero(sites != 2)[3:20:8]
    (folder / "pins.txt").write_text("".join(f"row {row}\n" for row in forced), encoding="utf-8")
