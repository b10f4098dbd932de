"""Honest runs that are tampered with, made once per process."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from tests.campaign.process import call, fresh, run

RUNS: dict[str, str] = {
    "split": "split feats.parquet --restarts 2",
    "tolerance": "split feats.parquet --restarts 2 --tolerance 0.3 --kernel linear --effort fast",
    "families": "split feats.parquet --restarts 2 --stratify label --stratify domain --effort fast",
    "groups": "split feats.parquet --restarts 2 --keep-together unit --tolerance auto --effort fast",
    "pins": "split feats.parquet --restarts 2 --force-val pins.txt --exclude domain=y --id id --format txt",
    "nystrom": "split feats.parquet --restarts 2 --nystrom 10 --effort fast --certify never",
    "cbc": "split feats.parquet --restarts 2 --solver cbc --effort fast",
    "parts": "split feats.parquet --restarts 2 --parts train=0.6,val=0.4 --effort fast",
    "drawn": "split feats.parquet --restarts 2 --parts train=0.5,val=0.3,test=0.2:random --effort fast",
    "folds": "kfold feats.parquet --restarts 2 --k 3 --effort fast",
    "graded": "split feats.parquet --restarts 2 --severity 0.5 --effort fast",
    "stream": "split feats.parquet --restarts 2 --engine stream --nystrom 10",
    "stream-folds": "kfold feats.parquet --restarts 2 --engine stream --nystrom 10 --k 3",
    "random": "baseline random feats.parquet",
    "domain": "baseline leave-one-domain-out feats.parquet --leave x",
}
Leaf = tuple[str | int, ...]


def write_inputs(folder: Path) -> None:
    """Write the files that the runs read."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, n = np.random.default_rng(5), 40
    columns = {f"f{column}": rng.normal(size=n).astype(np.float32) for column in range(3)}
    words = {"label": ["a", "b"] * (n // 2), "domain": [*"xxy"] * (n // 3) + ["x"] * (n % 3)}
    more = {"unit": [row // 2 for row in range(n)], "id": [f"row {row}" for row in range(n)]}
    pq.write_table(pa.table({**columns, **words, **more}), folder / "feats.parquet", row_group_size=15)
    (folder / "pins.txt").write_text("row 3\nrow 6\n")


@cache
def honest(place: Path) -> dict[str, Path]:
    """Make every run below `place`; return the folder of each, where `out` is the run."""
    found = {}
    for name, words in RUNS.items():
        home = place / name
        fresh(home)
        call(lambda home=home: write_inputs(home / "work"))  # type: ignore[misc]
        done = run((*words.split(), "--columns", "f*", "--out", "out"), home)
        if done.code != 0:
            raise RuntimeError(f"the honest run {name} fails: {done.err}")
        found[name] = home / "work"
    return found


def copy_of(run_folder: Path, place: Path) -> Path:
    """A fresh place with a copy of a run's folder."""
    fresh(place)
    shutil.copytree(run_folder, place / "work", dirs_exist_ok=True)
    return place / "work" / "out" / "report.json"


def leaves(value: Any, path: Leaf = ()) -> list[Leaf]:
    """The places of all values of a report, containers too, in order."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += leaves(inner, (*path, index))
    return found


@cache
def places(report: Path) -> list[Leaf]:
    """The places of all values of the report of an honest run."""
    return leaves(json.loads(report.read_text(encoding="utf-8")))
