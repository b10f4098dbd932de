"""The promises of a split, kept on real data."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from clustersplit_cli.data.dataset import Dataset, ReadRequest
from clustersplit_cli.data.readers import load
from clustersplit_cli.options import SplitOptions, check_options
from clustersplit_cli.pipeline.local.engine import partition, prepared_split
from clustersplit_cli.pipeline.run import grade
from clustersplit_cli.progress import silent
from clustersplit_cli.reports.summary import Report

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"
FILES = {
    "sample": ROOT / "sample_data" / "gas.parquet",
    "gas": SHARED / "gas_drift.parquet",
    "speech": SHARED / "fsdd_logmel800.parquet",
    "heart": SHARED / "heart_hospitals.parquet",
    "pacs": SHARED / "pacs_effnetlite0.parquet",
}
BOTH = ("label", "domain")


@lru_cache(maxsize=1)
def read(name: str, cells: tuple[str, ...]) -> Dataset:
    path = FILES[name]
    if not path.exists():
        pytest.skip(f"{path.name} is not beside the repository, in ../shared/data")
    return load(ReadRequest(path=path, stratify=cells), silent)


def run(name: str, cells: tuple[str, ...], dtype: type, **options: str) -> Report:
    dataset = read(name, cells)
    assert dataset.features.dtype == np.float32
    dataset = replace(dataset, features=dataset.features.astype(dtype, copy=False))
    result = partition(dataset, check_options(SplitOptions(bound="never", **options)))
    labels = [dataset.categories[word] for word in cells]
    inside = np.isin(dataset.rows, result.parts.val)
    for cell in result.report.constraints.cells:
        rows = np.ones(len(inside), dtype=bool)
        for word, column in zip(cells, labels, strict=True):
            rows &= column.codes == column.values.index(cell.cell[word])
        # Half away from zero, from whole numbers: round(0.2 n) is (2 n + 5) // 10.
        assert cell.actual == inside[rows].sum() == (2 * int(rows.sum()) + 5) // 10
    return result.report


CASES = [
    ("sample", BOTH, "rbf", np.float32),
    ("sample", BOTH, "rbf", np.float64),
    ("sample", ("label",), "linear", np.float32),
    ("sample", ("label",), "linear", np.float64),
    ("gas", BOTH, "rbf", np.float32),
    ("gas", BOTH, "linear", np.float64),
    ("gas", ("label",), "linear", np.float32),
    ("gas", ("label",), "rbf", np.float64),
    ("speech", BOTH, "linear", np.float32),
    ("speech", BOTH, "rbf", np.float64),
    ("speech", ("label",), "rbf", np.float32),
    ("speech", ("label",), "linear", np.float64),
    ("pacs", BOTH, "rbf", np.float32),
    ("pacs", ("label",), "linear", np.float64),
]


@pytest.mark.parametrize(("name", "cells", "kernel", "dtype"), CASES)
def test_real_data_is_split_as_promised(name: str, cells: tuple[str, ...], kernel: str, dtype: type) -> None:
    report = run(name, cells, dtype, kernel=kernel)
    assert report.constraints.all_satisfied
    assert report.objective.identity_residual < (1e-6 if dtype is np.float32 else 1e-10)
    psi = [point.psi for point in report.trace]
    assert all(earlier >= later for earlier, later in itertools.pairwise(psi))
    assert psi[-1] == report.objective.psi
    certificate = report.certificate
    assert certificate is not None and certificate.backend == "cbc"
    assert certificate.status == "optimal" and certificate.integral
    assert abs(certificate.gap) <= 1e-6
    assert certificate.objective == pytest.approx(report.objective.psi, rel=1e-6)
    random = report.baselines.random
    assert report.mmd.value > random.mmd_mean + 10 * random.mmd_sd


def test_folds_of_tied_rows_come_to_an_end(tmp_path: Path) -> None:
    """Half of the rows are zero and the others small integers, so most distances are equal or nearly so."""
    path = SHARED / "kfold_hang.arrow"
    if not path.exists():
        pytest.skip(f"{path.name} is not beside the repository, in ../shared/data")
    words = [*("kfold", path, "--kernel", "linear", "--threads", "2", "--restarts", "5", "--k", "5")]
    # `run` kills what has not ended by then, and raises.
    subprocess.run(
        [sys.executable, "-m", "clustersplit_cli", *words, "--out", tmp_path / "out"], check=True, timeout=60
    )
    assert np.bincount(np.load(tmp_path / "out" / "folds.npy")).tolist() == [40] * 5


LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)


@pytest.mark.parametrize("name", ["sample", "gas", "speech", "heart"])
def test_graded_splits_of_real_data_are_within_one_percent_and_keep_all_quotas(name: str) -> None:
    dataset = read(name, BOTH)
    for seed in range(3):
        options = check_options(SplitOptions(seed=seed, effort="fast", restarts=3, nystrom="200"))
        with prepared_split(dataset, options) as context:
            best = context.refine(context.explore())
            random = context.random_baseline(best)
            reached = []
            for level in LEVELS:
                here = replace(context, options=replace(options, severity=level))
                found, graded = grade(here, best, random)
                quotas = context.requirements.families[0].validation
                assert np.array_equal(quotas.counts(found.members), quotas.target)
                assert abs(graded.reached - graded.asked) <= 0.01 * graded.scale.width
                reached.append(graded.reached)
        assert all(low < high for low, high in itertools.pairwise(reached))
