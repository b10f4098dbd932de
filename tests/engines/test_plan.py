from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersplit_cli.engines.plan import (
    MemoryPlan,
    Workload,
    machine_memory,
    memory_budget,
    most_factors,
    parse_memory,
    plan_memory,
)
from clustersplit_cli.errors import MemoryPlanError, UsageError

GB = 10**9


def work(n: int, d: int = 100, itemsize: int = 4, restarts: int = 10, threads: int = 2) -> Workload:
    return Workload(n, d, itemsize, restarts, threads)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("512", 512),
        ("1k", 1000),
        ("2GB", 2 * GB),
        ("0.3gb", 300_000_000),
        ("1.1GB", 1_100_000_000),
        ("512MiB", 512 << 20),
        (" 1.5 GiB ", 3 << 29),
        ("2T", 2 * 10**12),
        ("1tib", 1 << 40),
        ("7b", 7),
    ],
)
def test_sizes_are_read_with_decimal_and_binary_units(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "0", "0GB", "-1GB", "lots", "1e9", "GB", "1 PB", "0.5", "nan"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size") as caught:
        parse_memory(text)
    assert "--memory 8GB" in str(caught.value.hint)


def test_the_budget_is_what_was_asked_for_or_a_share_of_the_machine() -> None:
    assert memory_budget("3GB") == 3 * GB
    assert memory_budget(None) == int(0.6 * machine_memory())


def group(root: Path, name: str, limit: str, version: int) -> None:
    folder = root / name if version == 2 else root / "memory" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ("memory.max" if version == 2 else "memory.limit_in_bytes")).write_text(limit + "\n")


@pytest.mark.parametrize("version", [1, 2])
def test_the_lowest_limit_of_the_control_groups_counts(version: int, tmp_path: Path) -> None:
    root, membership = tmp_path / "cgroup", tmp_path / "self"
    prefix = "0::" if version == 2 else "5:memory:"
    membership.write_text(f"{prefix}/user/job\n")
    everything = machine_memory(root, membership)
    group(root, "user/job/inner", "1000", version)  # not ours
    assert machine_memory(root, membership) == everything
    group(root, "user/job", "max", version)
    assert machine_memory(root, membership) == everything
    group(root, "user", "50000000", version)
    assert machine_memory(root, membership) == 50_000_000
    group(root, "user/job", "40000000", version)
    assert machine_memory(root, membership) == 40_000_000
    group(root, ".", "30000000", version)  # what a container sees as its own
    assert machine_memory(root, membership) == 30_000_000


def test_without_control_groups_the_machine_counts(tmp_path: Path) -> None:
    assert machine_memory(tmp_path / "none", tmp_path / "nothing") == (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    )


def test_a_kernel_that_fits_is_held_whole() -> None:
    plan = plan_memory(work(10_000), is_linear=False, nystrom="auto", budget=8 * GB)
    assert (plan.geometry, plan.landmarks, plan.budget) == ("dense", None, 8 * GB)
    assert 4e8 < plan.bytes < 1.2e9
    assert plan.reason == "the exact kernel matrix fits"


def test_doubles_take_twice_the_kernel() -> None:
    single, double = work(20_000, d=1, itemsize=4).dense(), work(20_000, d=1, itemsize=8).dense()
    assert double - single == pytest.approx(20_000**2 * 4 / 2, rel=0.05)  # half of a symmetric matrix
    assert work(20_000, d=1, itemsize=2).dense() == pytest.approx(single, rel=0.01)


def test_a_kernel_that_does_not_fit_is_approximated() -> None:
    plan = plan_memory(work(200_000, 256), is_linear=False, nystrom="auto", budget=8 * GB)
    assert (plan.geometry, plan.landmarks) == ("nystrom", 2000)
    assert plan.bytes <= 8 * GB
    assert "the exact kernel matrix would take 8" in plan.reason


def test_a_kernel_that_fits_and_takes_long_is_approximated() -> None:
    plan = plan_memory(work(60_000, 512), is_linear=False, nystrom="auto", budget=16 * GB)
    assert (plan.geometry, plan.landmarks) == ("nystrom", 2000)
    assert "GB and about 24 s; --nystrom off computes it" in plan.reason
    exact = plan_memory(work(60_000, 512), is_linear=False, nystrom="off", budget=16 * GB)
    assert exact.geometry == "dense"
    assert exact.seconds is not None and plan.seconds is not None
    assert exact.seconds > 3 * plan.seconds
    five = plan.of_parts(5)
    assert five.seconds is not None and 2 * plan.seconds < five.seconds < 3 * plan.seconds
    assert plan.of_parts(2) == plan
    assert plan_memory(work(25_000, 512), is_linear=False, nystrom="auto", budget=16 * GB).geometry == "dense"


def test_few_rows_need_no_factors_and_their_number_fits_the_budget() -> None:
    assert most_factors(work(16_384, 7), 16 * GB) == 0
    assert most_factors(work(45_312, 7), 16 * GB) == 1536
    few = most_factors(work(45_312, 7), GB // 2)
    assert 0 < few < 1536
    assert work(45_312, 7).low_rank(few) <= GB // 2 < work(45_312, 7).low_rank(few + 128)


def test_landmarks_are_as_asked_and_at_most_all_rows() -> None:
    plan = plan_memory(work(500), is_linear=False, nystrom=2000, budget=8 * GB)
    assert (plan.geometry, plan.landmarks) == ("nystrom", 500)


def test_a_linear_kernel_is_never_formed() -> None:
    plan = plan_memory(work(2_000_000, 50), is_linear=True, nystrom="auto", budget=16 * GB)
    assert (plan.geometry, plan.landmarks) == ("linear", None)
    assert plan.bytes < 2_000_000**2


def test_a_plan_that_does_not_fit_says_the_numbers() -> None:
    with pytest.raises(MemoryPlanError) as caught:
        plan_memory(work(100_000), is_linear=False, nystrom="off", budget=2 * GB)
    assert re.fullmatch(
        r"the exact kernel for 100,000 rows of 100 features would take 20\.\d GB, "
        r"more than the budget of 2 GB",
        caught.value.message,
    )
    assert caught.value.exit_code == 2


@given(
    n=st.integers(2, 10**8),
    d=st.integers(1, 10**5),
    itemsize=st.sampled_from([2, 4, 8]),
    budget=st.integers(10**6, 10**12),
    nystrom=st.sampled_from(["auto", "off", 50, 2000, 50_000]),
    is_linear=st.booleans(),
)
def test_every_cure_of_a_plan_that_does_not_fit_cures(
    n: int, d: int, itemsize: int, budget: int, nystrom: str | int, is_linear: bool
) -> None:
    size = work(n, d, itemsize)

    def plan(how: str | int, allowed: int) -> MemoryPlan:
        return plan_memory(size, is_linear=is_linear, nystrom=how, budget=allowed)

    try:
        found = plan(nystrom, budget)
    except MemoryPlanError as error:
        cures = str(error.hint).split(" or ")
        assert cures
        for cure in cures:
            landmarks = re.fullmatch(r"use --nystrom (\d+)", cure)
            memory = re.fullmatch(r"allow --memory (\S+)", cure)
            assert landmarks or memory, cure
            fitting = plan(int(landmarks[1]), budget) if landmarks else plan(nystrom, parse_memory(memory[1]))
            assert fitting.bytes <= fitting.budget
    else:
        assert found.bytes <= budget == found.budget


RUN = """
import json, sys
import numpy as np
import scipy.linalg, scipy.sparse
import clustersplit_cli.pipeline.local.engine as pipeline
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.options import SplitOptions, check_options
from clustersplit_cli.progress import peak_memory

n, d, options = json.loads(sys.argv[1])
np.ones((300, 300)) @ np.ones((300, 300))  # BLAS sets up its buffers
before = peak_memory()
rng, features = np.random.default_rng(0), np.empty((n, d), np.float32)
for row in range(0, n, 100):
    features[row : row + 100] = rng.standard_normal((len(features[row : row + 100]), d))
dataset = Dataset(features, tuple(map(str, range(d))), (), {}, np.arange(n), n)
report = pipeline.partition(dataset, check_options(SplitOptions(**options))).report
print(json.dumps([report.plan.geometry, report.plan.bytes, peak_memory() - before]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is counted differently elsewhere")
@pytest.mark.parametrize(
    ("geometry", "n", "d", "options"),
    [
        # Steps run side by side if the machine lets them, so the peak differs from run to run. What is held
        # throughout, the features or half of the kernel, is more than the least share by itself.
        ("dense", 6000, 20, {}),
        ("dense", 1024, 15_000, {}),
        ("nystrom", 6000, 20, {"nystrom": "1000"}),
        ("linear", 40_000, 300, {"kernel": "linear"}),
        ("linear", 200, 1500, {"kernel": "linear"}),
    ],
)
def test_the_plan_is_no_less_than_what_a_run_takes(
    geometry: str, n: int, d: int, options: dict[str, Any]
) -> None:
    options = {"certify": "never", "effort": "fast", "threads": 2, "memory": "20GB", **options}
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps([n, d, options])], capture_output=True, text=True, check=True
    )
    held, planned, taken = json.loads(done.stdout)
    assert held == geometry
    assert taken <= planned
    assert taken > 0.15 * planned  # a plan that always says a terabyte would be no plan
