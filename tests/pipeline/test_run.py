from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.cbc import find_cbc
from clustersplit_cli.core.search.solution import Step
from clustersplit_cli.data.dataset import Dataset, Extent, ReadRequest
from clustersplit_cli.data.readers import load
from clustersplit_cli.errors import InfeasibleError, InputError, MemoryPlanError
from clustersplit_cli.options import SplitOptions, check_options
from clustersplit_cli.pipeline.context import Streams, plan
from clustersplit_cli.pipeline.local.engine import partition, prepared_split
from clustersplit_cli.pipeline.local.split import certify
from clustersplit_cli.pipeline.run import Run, assess
from clustersplit_cli.pipeline.summarize import summarize
from clustersplit_cli.progress import Stopwatch

Maker = Callable[..., Dataset]


def run(dataset: Dataset, **options: Any) -> Run:
    return partition(dataset, check_options(SplitOptions(**{"effort": "fast", **options})))


def clustered(n: int, seed: int = 0, dtype: type = np.float64) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, 4)) + 2 * rng.integers(0, 3, n)[:, None]).astype(dtype)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear", "cosine", "polynomial"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("tolerance", ["0", "0.4"])
def test_a_report_states_what_the_split_is(
    kernel: str, dtype: type, tolerance: str, make_dataset: Maker
) -> None:
    labels = np.repeat(["a", "b", "c"], [100, 60, 41])
    found = run(make_dataset(clustered(201, 1, dtype), label=labels), kernel=kernel, tolerance=tolerance)
    report = found.report
    assert found.parts.val.dtype == found.parts.train.dtype == np.int64
    assert np.array_equal(np.sort(np.concatenate([found.parts.train, found.parts.val])), np.arange(201))
    assert (np.diff(found.parts.train) > 0).all() and (np.diff(found.parts.val) > 0).all()
    assert (report.sizes.train, report.sizes.val) == (len(found.parts.train), len(found.parts.val))
    assert report.constraints.all_satisfied
    for cell in report.constraints.cells:
        assert cell.actual == (labels[found.parts.val] == cell.cell["label"]).sum()
        assert cell.size == (labels == cell.cell["label"]).sum()
        assert cell.lower <= cell.actual <= cell.upper
    if tolerance == "0":
        assert [cell.actual for cell in report.constraints.cells] == [20, 12, 8]
    assert report.mmd.value == pytest.approx(report.mmd.squared**0.5)
    assert report.objective.identity_residual < (1e-6 if dtype is not np.float64 else 1e-10)
    psi = [point.psi for point in report.trace]
    assert all(earlier >= later for earlier, later in itertools.pairwise(psi))
    assert psi[-1] == report.objective.psi
    assert [point.iteration for point in report.trace] == list(range(len(psi)))
    certificate = report.certificate
    assert certificate is not None and certificate.backend == "cbc" and certificate.status == "optimal"
    assert certificate.integral and abs(certificate.gap) <= 1e-6
    assert certificate.objective == pytest.approx(report.objective.psi, rel=1e-6)
    assert report.mmd.value > report.baselines.random.mmd_mean


@pytest.mark.parametrize("seed", range(12))
def test_the_trace_never_rises_not_even_by_rounding(seed: int, make_dataset: Maker) -> None:
    rng = np.random.default_rng(seed)
    X = clustered(120, seed, (np.float32, np.float64)[seed % 2])
    X[60:] = X[rng.integers(0, 60, 60)]  # ties, after which rounding is all that differs
    kernel = ("rbf", "linear", "polynomial")[seed % 3]
    report = run(make_dataset(X), kernel=kernel, certify="never", tolerance=("0", "0.4")[seed % 2]).report
    psi = [point.psi for point in report.trace]
    assert all(earlier >= later for earlier, later in itertools.pairwise(psi))
    assert psi[-1] == report.objective.psi


def test_a_step_that_differs_from_the_end_by_rounding_alone_is_no_step(make_dataset: Maker) -> None:
    options = check_options(SplitOptions(certify="never", effort="fast"))
    with prepared_split(make_dataset(clustered(60)), options) as context:
        found = context.refine(context.explore())
        searched, psi = context.account(found), found.measured.psi
        values = [("start", 2 * psi), ("lloyd", psi), ("polish", np.nextafter(psi, 0)), ("lloyd", psi)]
        steps = tuple(Step(phase, number, float(value)) for number, (phase, value) in enumerate(values))
        result = assess(context, found, {}, replace(searched, steps=steps))
        low = (Step("start", 0, float(np.nextafter(psi, 0))), Step("perturb", 1, psi))
        low_start = assess(context, found, {}, replace(searched, steps=low))
    trace = summarize(result, Stopwatch()).trace
    assert [(point.phase, point.iteration, point.psi) for point in trace] == [
        ("start", 0, 2 * psi),
        ("lloyd", 1, psi),
        ("lloyd", 2, psi),
    ]
    trace = summarize(low_start, Stopwatch()).trace
    assert [(point.phase, point.iteration, point.psi) for point in trace] == [("start", 0, psi)]


def test_positions_are_those_of_the_input_rows(make_dataset: Maker) -> None:
    dataset = make_dataset(clustered(50))
    rows = np.sort(np.random.default_rng(0).choice(1000, 50, replace=False))
    plain, moved = run(dataset), run(replace(dataset, rows=rows, n_rows=1000))
    assert np.array_equal(moved.parts.val, rows[plain.parts.val])
    assert np.array_equal(moved.parts.train, rows[plain.parts.train])


def test_joint_cells_keep_their_shares(make_dataset: Maker) -> None:
    rng = np.random.default_rng(2)
    label, domain = rng.integers(0, 3, 300), rng.integers(0, 4, 300)
    found = run(make_dataset(clustered(300, 2), label=label, domain=domain), holdout="0.29")
    cells = found.report.constraints.cells
    assert len(cells) == 12
    for cell in cells:
        inside = (label == cell.cell["label"]) & (domain == cell.cell["domain"])
        assert cell.target == int(0.29 * inside.sum() + 0.5) == inside[found.parts.val].sum()


def test_balanced_rounding_meets_the_total_exactly(make_dataset: Maker) -> None:
    dataset = make_dataset(clustered(300), label=np.arange(300) // 4)
    assert run(dataset, holdout="0.3", rounding="balanced").report.sizes.val == 90
    assert run(dataset, holdout="0.3").report.sizes.val == 75


def test_equal_seeds_give_equal_splits_and_other_seeds_other_searches(make_dataset: Maker) -> None:
    rng = np.random.default_rng(3)
    dataset = make_dataset(rng.normal(size=(400, 10)), label=rng.integers(0, 3, 400))
    one, same = run(dataset, seed=1), run(dataset, seed=1)
    assert np.array_equal(one.parts.val, same.parts.val)
    assert one.report.objective == same.report.objective and one.report.trace == same.report.trace
    assert run(dataset, seed=2).report.restarts != one.report.restarts


@pytest.mark.parametrize("kernel", ["rbf", "linear", "polynomial"])
@pytest.mark.parametrize("nystrom", ["auto", "150"])
def test_the_number_of_workers_changes_nothing(kernel: str, nystrom: str, make_dataset: Maker) -> None:
    if kernel == "linear" and nystrom != "auto":
        pytest.skip("linear kernels have no landmarks")
    rng = np.random.default_rng(4)
    X = rng.normal(size=(2600, 6)).astype(np.float32)
    X[1000:] = X[rng.integers(0, 1000, 1600)]  # many duplicates, where a last bit changes a choice
    dataset = make_dataset(X, label=rng.integers(0, 3, 2600))
    found = [run(dataset, kernel=kernel, nystrom=nystrom, threads=t, certify="never") for t in (1, 2, 3)]
    for other in found[1:]:
        assert np.array_equal(found[0].parts.val, other.parts.val)
        assert found[0].report.objective == other.report.objective
        assert found[0].report.trace == other.report.trace
        assert found[0].report.restarts == other.report.restarts


@pytest.mark.parametrize(("kernel", "seed"), [("rbf", 0), ("rbf", 3), ("linear", 5), ("polynomial", 5)])
def test_among_equal_rows_of_a_cell_the_lowest_go_to_validation(
    kernel: str, seed: int, make_dataset: Maker
) -> None:
    rng = np.random.default_rng(seed)
    kinds, labels = rng.integers(0, 20, 1300), rng.integers(0, 2, 1300)
    dataset = make_dataset(rng.normal(size=(20, 7)).astype(np.float32)[kinds], label=labels)
    found = run(dataset, kernel=kernel, certify="never")
    chosen = np.isin(np.arange(1300), found.parts.val)
    mixed = 0
    for kind, label in itertools.product(range(20), range(2)):
        rows = chosen[(kinds == kind) & (labels == label)]
        assert (np.diff(rows.astype(int)) <= 0).all()
        mixed += 0 < rows.sum() < len(rows)
    assert mixed  # somewhere the rule had to decide


BLAS_RUN = """
import sys
import numpy as np
from clustersplit_cli.data.dataset import Categories, Dataset
from clustersplit_cli.options import SplitOptions, check_options
from clustersplit_cli.pipeline.local.engine import partition

rng = np.random.default_rng(6)
X = rng.normal(size=(1200, 30)).astype(np.float32)
X[600:] = X[rng.integers(0, 600, 600)]
names = tuple(map(str, range(30)))
labels = Categories(rng.integers(0, 3, 1200).astype(np.int32), (0, 1, 2))
dataset = Dataset(X, names, names, {"label": labels}, np.arange(1200), 1200)
for kernel in ("rbf", "linear"):
    found = partition(dataset, check_options(SplitOptions(kernel=kernel, effort="fast", certify="never")))
    sys.stdout.write(f"{found.parts.val.tobytes().hex()} {found.report.objective.psi.hex()}\\n")
"""


def test_the_number_of_blas_threads_changes_nothing() -> None:
    answers = {
        subprocess.run(
            [sys.executable, "-c", BLAS_RUN],
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2")
    }
    assert len(answers) == 1 and len(answers.pop().splitlines()) == 2


@pytest.mark.parametrize("tolerance", ["0", "0.4"])
def test_cbc_in_every_step_finds_what_selection_finds(tolerance: str, make_dataset: Maker) -> None:
    rng = np.random.default_rng(7)
    dataset = make_dataset(rng.normal(size=(40, 3)), label=rng.integers(0, 2, 40))
    options = {"restarts": 2, "tolerance": tolerance}
    default, cbc = run(dataset, **options), run(dataset, solver="cbc", **options)
    assert (default.report.config["solver"], cbc.report.config["solver"]) == ("selection", "cbc")
    # Normal features have no ties: at every threshold the costs are further apart than CBC can blur.
    assert np.array_equal(default.parts.val, cbc.parts.val)
    assert default.report.objective == cbc.report.objective


def test_cbc_in_every_step_of_a_small_problem_is_started_a_few_times_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_dataset: Maker
) -> None:
    starts, counting = tmp_path / "starts", tmp_path / "cbc"
    counting.write_text(f'#!/bin/sh\necho >> {starts}\nexec {find_cbc()} "$@"\n')
    counting.chmod(0o755)
    monkeypatch.setenv("CLUSTERSPLIT_CBC", str(counting))
    find_cbc.cache_clear()
    rng = np.random.default_rng(9)
    dataset = make_dataset(rng.normal(size=(30, 4)), label=rng.integers(0, 4, 30))
    found = run(dataset, solver="cbc", effort="normal")
    find_cbc.cache_clear()
    assert found.report.certificate is not None and found.report.certificate.status == "optimal"
    # Some thousand programs; each start of CBC takes longer than solving a hundred of them.
    assert 20 < len(starts.read_text()) < 200


def test_cbc_on_ties_reaches_the_same_objective(make_dataset: Maker) -> None:
    X = np.repeat(np.random.default_rng(8).normal(size=(10, 3)), 4, axis=0)
    dataset = make_dataset(X)
    default, cbc = run(dataset, restarts=2), run(dataset, solver="cbc", restarts=2)
    for found in (default, cbc):
        certificate = found.report.certificate
        assert certificate is not None and certificate.status == "optimal"
        assert certificate.objective == pytest.approx(found.report.objective.psi, rel=1e-6)
    assert cbc.report.objective.psi == pytest.approx(default.report.objective.psi, rel=1e-9)


def test_certificates_by_choice(make_dataset: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = make_dataset(clustered(60))
    by_cbc, without = run(dataset).report.certificate, run(dataset, certify="never").report.certificate
    assert by_cbc is not None and (by_cbc.backend, by_cbc.n_lps) == ("cbc", 2)
    assert without is None
    monkeypatch.setattr("clustersplit_cli.pipeline.local.context.CBC_CERTIFICATE_ROWS", 59)
    large, always = run(dataset).report.certificate, run(dataset, certify="always").report.certificate
    assert large is not None and (large.backend, large.status, large.integral) == (
        "threshold",
        "optimal",
        True,
    )
    assert always is not None and always.backend == "cbc"
    assert large.objective == pytest.approx(always.objective, rel=1e-9)


def test_a_split_of_someone_else_is_told_to_be_no_fixed_point(make_dataset: Maker) -> None:
    from clustersplit_cli.core.search.problem import evaluate

    with prepared_split(make_dataset(clustered(80)), check_options(SplitOptions())) as context:
        problem = context.problem
        best = context.find()
        poor = np.zeros(80, dtype=bool)
        poor[np.random.default_rng(0).permutation(80)[:16]] = True
        for members, status in ((best, "optimal"), (poor, "not a fixed point")):
            for how in ("auto", "always"):
                verdict = certify(evaluate(problem, members), members, problem.constraints, how)
                assert verdict is not None and verdict.status == status


def test_nystrom_on_all_rows_finds_the_exact_split(make_dataset: Maker) -> None:
    dataset = make_dataset(clustered(150, 9))
    exact, approximate = run(dataset, nystrom="off"), run(dataset, nystrom="150")
    assert np.array_equal(exact.parts.val, approximate.parts.val)
    assert approximate.report.mmd.geometry == "nystrom"
    assert approximate.report.objective.psi == pytest.approx(exact.report.objective.psi, rel=1e-8)
    sample = approximate.report.mmd.subsample
    assert exact.report.mmd.subsample is None and sample is not None and sample.size == 150


def test_a_budget_too_small_for_the_kernel_takes_landmarks_and_says_so(make_dataset: Maker) -> None:
    dataset = make_dataset(clustered(12_000, 10))
    dense, few = (
        plan(Extent(12_000, 4, 8), check_options(SplitOptions(nystrom=how, memory="9GB", threads=1)))
        for how in ("off", "2000")
    )
    assert dense is not None and few is not None and few.bytes < dense.bytes
    budget = f"{(few.bytes + dense.bytes) // 2}"
    report = run(dataset, memory=budget, threads=1, restarts=2, certify="never", bound="never").report
    assert report.plan.geometry == report.mmd.geometry == "nystrom"
    assert report.plan.landmarks == report.config["nystrom"] == 2000
    assert report.plan.bytes <= report.plan.budget == int(budget)
    assert "the exact kernel matrix would take" in report.plan.reason
    with pytest.raises(MemoryPlanError):
        run(dataset, memory=budget, threads=1, nystrom="off")


def test_the_bound_is_left_out_where_it_costs_more_than_the_split(make_dataset: Maker) -> None:
    wide = make_dataset(np.random.default_rng(15).normal(size=(40, 2500)))
    assert run(wide, kernel="linear", certify="never").report.bound is None
    narrow = make_dataset(clustered(40))
    assert run(narrow, kernel="linear", certify="never").report.bound is not None
    assert run(narrow, kernel="linear", certify="never", bound="never").report.bound is None
    assert run(narrow, kernel="linear", certify="never", tolerance="0.5").report.bound is None


def test_the_plan_is_known_before_reading_or_not_at_all() -> None:
    options = check_options(SplitOptions(memory="8GB"))
    known = plan(Extent(1000, 10, 4), options)
    assert known is not None and known.geometry == "dense"
    for unknown in (Extent(None, 10, 4), Extent(1000, None, 4), Extent(1000, 10, None)):
        assert plan(unknown, options) is None


def test_two_rows_are_split(make_dataset: Maker) -> None:
    for kernel in ("rbf", "linear", "cosine", "polynomial"):
        found = run(make_dataset(np.array([[0.0, 1.0], [1.0, 0.5]])), kernel=kernel, holdout="0.5")
        assert (len(found.parts.train), len(found.parts.val)) == (1, 1)
        assert found.report.objective.psi == pytest.approx(0, abs=1e-12)


def test_cells_of_one_row_take_their_side(make_dataset: Maker) -> None:
    labels = np.concatenate([np.zeros(58), [1, 2]])
    found = run(make_dataset(clustered(60), label=labels), holdout="0.5")
    assert {58, 59} <= set(found.parts.val.tolist())


def test_rows_that_are_equal_within_every_cell_are_split_by_number(make_dataset: Maker) -> None:
    X = np.repeat(np.random.default_rng(11).normal(size=(3, 2)), 10, axis=0)
    found = run(make_dataset(X, label=np.repeat([0, 1, 2], 10)))
    assert found.parts.val.tolist() == [0, 1, 10, 11, 20, 21]


def test_ten_thousand_cells_are_split(make_dataset: Maker) -> None:
    rng = np.random.default_rng(12)
    labels = np.repeat(np.arange(10_000), 2)
    dataset = make_dataset(rng.normal(size=(20_000, 3)).astype(np.float32), label=labels)
    found = run(dataset, holdout="0.5", kernel="linear", restarts=2, certify="never")
    assert (np.bincount(labels[found.parts.val]) == 1).all()


@pytest.mark.parametrize(
    ("scale", "dtype"), [(1e-30, np.float32), (1e30, np.float32), (1e-100, np.float64), (1e100, np.float64)]
)
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear", "cosine", "polynomial"])
def test_the_unit_of_the_features_does_not_matter(
    kernel: str, scale: float, dtype: type, make_dataset: Maker
) -> None:
    X = clustered(90, 13)
    if kernel == "linear" and dtype is np.float64:  # the only one that takes features as they are
        with pytest.raises(InputError, match=r"features are too (small|large) to square"):
            run(make_dataset(X * scale), kernel=kernel)
        scale **= 0.5
    plain = run(make_dataset(X), kernel=kernel, effort="normal", certify="never")
    scaled = run(make_dataset((X * scale).astype(dtype)), kernel=kernel, effort="normal")
    certificate = scaled.report.certificate
    assert np.array_equal(plain.parts.val, scaled.parts.val)
    assert certificate is not None and certificate.status == "optimal"


@pytest.mark.parametrize("gamma", ["1e-25", "1e-20", "1e-12", "1e-7", "1e5", "1e8"])
@pytest.mark.parametrize("nystrom", ["off", "50"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_kernel_that_says_nothing_still_ends_in_a_sound_split(
    gamma: str, nystrom: str, dtype: type, make_dataset: Maker
) -> None:
    rng = np.random.default_rng(14)
    dataset = make_dataset(rng.normal(size=(200, 5)).astype(dtype), label=rng.integers(0, 2, 200))
    report = run(dataset, gamma=gamma, nystrom=nystrom).report
    assert report.constraints.all_satisfied
    assert report.certificate is not None and report.certificate.status == "optimal"
    assert np.isfinite([report.mmd.value, report.objective.psi, report.baselines.random.mmd_mean]).all()
    assert "degenerate_kernel" in [notice.code for notice in report.warnings]


@pytest.mark.parametrize("tolerance", ["1", "4", "100"])
def test_a_tolerance_that_could_empty_a_side_never_does(tolerance: str, make_dataset: Maker) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 40))
        found = run(make_dataset(rng.normal(size=(n, 2))), holdout="0.4", tolerance=tolerance)
        assert 0 < len(found.parts.val) < n
        certificate = found.report.certificate
        assert certificate is not None and certificate.status == "optimal"


def test_what_cannot_be_split_is_an_error_before_any_search(make_dataset: Maker) -> None:
    with pytest.raises(InfeasibleError):
        run(make_dataset(clustered(10), label=np.arange(10)))
    with pytest.raises(InputError, match="all features are constant"):
        run(make_dataset(np.full((20, 3), 0.1)))


def test_streams_are_independent_of_each_other() -> None:
    one, other = Streams.from_seed(3), Streams.from_seed(3)
    one.landmarks.random(100)
    assert one.search.random() == other.search.random()
    assert one.baseline[0].random() == other.baseline[0].random()
    assert Streams.from_seed(4).search.random() != Streams.from_seed(3).search.random()


def test_a_report_is_plain_numbers(make_dataset: Maker) -> None:
    from clustersplit_cli.reports.readable import render_json

    report = run(make_dataset(clustered(60), label=np.arange(60) % 2)).report
    parsed = json.loads(render_json(report))
    assert parsed["config"]["holdout"] == 0.2 and parsed["objective"]["psi"] == report.objective.psi
    assert set(parsed["timing"]["steps"]) >= {"prepare", "kernel", "search", "certificate", "baseline"}


def test_a_split_that_is_a_fixed_point_has_converged_however_few_iterations_it_took() -> None:
    sample = Path(__file__).resolve().parents[2] / "sample_data" / "gas.parquet"
    dataset = load(ReadRequest(path=sample, stratify=("label",)))
    best = run(dataset, kernel="linear", standardize="zscore").report.mmd.value
    ends = []
    for iterations in range(1, 5):
        report = run(dataset, kernel="linear", standardize="zscore", max_iter=iterations).report
        assert report.certificate is not None
        is_told = "not_converged" in {notice.code for notice in report.warnings}
        assert is_told == (report.certificate.status != "optimal"), iterations
        ends.append((is_told, report.mmd.value == best))
    assert ends[0] == (True, False)
    assert (False, True) in ends[1:3]
