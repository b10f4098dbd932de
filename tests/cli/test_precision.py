"""MMD, Psi and scatter have the promised digits, or the rows are refused: any size, offset and type."""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from clustersplit_cli.cli.app import run
from tests.cli.precision import (
    DIGITS,
    PROMISED,
    Case,
    by_definition,
    faults,
    kernel_matrix,
    table,
)

SHAPES = ("normal", "clusters", "repeated", "outlier", "integers", "columns")
TYPES = ("float64", "float64", "float32", "float16", "int64", "int8")
GAMMAS = (None, None, "scale", "1/d", "median")


def drawn(seed: int, shape: str, dtype: str, exponent: int, offset: float) -> np.ndarray:
    """Rows of about one, moved by an offset, in units of a power of ten."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(6, 14)), int(rng.integers(1, 4))
    rows = rng.normal(size=(n, d))
    if shape == "clusters":
        rows[: n // 2] += 10.0 ** rng.integers(0, 7)
    elif shape == "repeated":
        rows = rows[rng.integers(0, 3, n)]
    elif shape == "outlier":
        rows[int(rng.integers(n))] *= 10.0 ** rng.integers(1, 9)
    elif shape == "integers":
        rows = rng.integers(-2, 3, (n, d)).astype(np.float64)
    elif shape == "columns":
        rows *= 10.0 ** rng.integers(-9, 10, d)
    rows += offset
    if dtype != "float64":
        # Within float16's range; integers keep three digits.
        rows *= 10.0 ** rng.integers(-2, 4) / np.abs(rows).max()
        limit = 100.0 if dtype == "int8" else 6e4
        return np.clip(np.round(rows * 10) if dtype[0] == "i" else rows, -limit, limit).astype(dtype)
    with np.errstate(over="ignore"):
        return np.clip(rows * 10.0**exponent, -1e308, 1e308)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kernel = draw(st.sampled_from(("rbf", "polynomial", "linear", "cosine", "laplacian")))
    exponent = draw(st.one_of(st.just(0), st.integers(-12, 12), st.integers(-300, 300)))
    offset = draw(st.sampled_from((0.0, 0.0, 1.0, -1e2, 1e4, 1e6, -1e8, 1e10, 1e12)))
    rows = drawn(
        draw(st.integers(0, 2**32)),
        draw(st.sampled_from(SHAPES)),
        draw(st.sampled_from(TYPES)),
        exponent,
        offset,
    )
    gamma = degree = None
    if kernel in ("rbf", "laplacian", "polynomial"):
        power = st.one_of(st.integers(-20, 20), st.integers(-300, 300)).map("1e{}".format)
        gamma = draw(st.one_of(st.sampled_from(GAMMAS), power))
    if kernel == "polynomial":
        degree = draw(st.sampled_from((None, 1, 2, 4, 5, 7)))
    how = draw(st.sampled_from(("none", "none", "zscore", "l2")))
    return Case(rows, kernel, how, gamma, degree, draw(st.sampled_from(("local", "local", "stream"))))


ROWS = np.random.default_rng(0).normal(size=(40, 4))
HUGE = np.concatenate([ROWS[:12], np.full((1, 4), 1e200)])


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(case=cases())
@example(case=Case(ROWS + 1e8, "polynomial"))
@example(case=Case(ROWS + 1e8, "polynomial", engine="stream"))
@example(case=Case((ROWS + 1e3).astype(np.float32), "polynomial", gamma="1e-3"))
@example(case=Case(ROWS * 1e-160, "rbf", "zscore"))
@example(case=Case(ROWS * 1e-160, "rbf", "zscore", engine="stream"))
@example(case=Case(HUGE, "rbf", "zscore"))
@example(case=Case(HUGE, "linear", "zscore", engine="stream"))
@example(case=Case(ROWS, "rbf", gamma="1e12"))
@example(case=Case(ROWS, "rbf", gamma="1e-300", engine="stream"))
@example(case=Case(ROWS.astype(np.float32), "rbf", gamma="1e-9"))
@example(case=Case(ROWS, "laplacian"))
@example(case=Case(ROWS.astype(np.float32), "laplacian", gamma="1e-9", engine="stream"))
@example(case=Case((ROWS + 1e6).astype(np.float32), "cosine"))
@example(case=Case(np.array([[99.99058, 100.0], *[[100.0, 100.0]] * 8], np.float32), "polynomial"))
@example(case=Case(1e-19 * (ROWS[:8] + 1e3), "linear"))
def test_numbers_have_the_promised_digits_or_the_rows_are_refused(case: Case, tmp_path: Path) -> None:
    assert faults(case, tmp_path)[1] == []


@pytest.mark.parametrize("engine", ["local", "stream"])
@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (ROWS + 1e8, {"kernel": "polynomial"}),
        (ROWS + 1e8, {"kernel": "polynomial", "standardize": "zscore"}),
        (ROWS * 1e-100, {"kernel": "rbf"}),
        (ROWS * 1e-100, {"kernel": "polynomial", "standardize": "zscore"}),
        ((ROWS * 0.01).astype(np.float32), {"kernel": "rbf", "gamma": "1/d"}),
        (ROWS, {"kernel": "rbf", "gamma": "1e-20"}),
        (ROWS * 1e60, {"kernel": "linear"}),
    ],
)
def test_what_can_be_computed_is_not_refused(
    rows: np.ndarray, words: dict[str, str], engine: str, tmp_path: Path
) -> None:
    assert faults(Case(rows, engine=engine, **words), tmp_path) == ("accepted", [])


@pytest.mark.parametrize("engine", ["local", "stream"])
@pytest.mark.parametrize(
    ("case", "said"),
    [
        (Case(ROWS, "rbf", gamma="1e12"), "--gamma 1e+12 is too large for features of total variance 3.68"),
        (
            Case(ROWS, "rbf", gamma="1e-300"),
            "--gamma 1e-300 is too small for features of total variance 3.68",
        ),
        (Case(ROWS * 1e-100, "linear"), "too small to square"),
        (Case(ROWS + 1e12, "cosine"), "all rows point almost the same way"),
        (Case(ROWS * 1e30, "polynomial", gamma="1.0"), "overflows on features of up to"),
    ],
)
def test_what_cannot_be_computed_is_refused(case: Case, said: str, engine: str, tmp_path: Path) -> None:
    how, wrong = faults(Case(case.rows, case.kernel, gamma=case.gamma, engine=engine), tmp_path)
    assert how.startswith("refused") and said in how
    assert wrong == []


OF_OTHER_COMMANDS = [
    Case(ROWS + 1e8, "polynomial"),
    Case((ROWS + 1e3).astype(np.float32), "polynomial", gamma="1e-3"),
    Case(ROWS.astype(np.float32), "rbf", gamma="1e-9"),
    Case(ROWS + 1e10, "linear"),
]


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
@pytest.mark.parametrize("case", OF_OTHER_COMMANDS)
def test_mmd_has_the_promised_digits(
    case: Case, estimator: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, second = tmp_path / "rows.parquet", np.arange(len(case.rows)) % 2 == 1
    pq.write_table(table(case.rows), path)
    asked = ["--by", "label", "--json", "--estimator", estimator, "--permutations", "19"]
    assert run(["mmd", str(path), "--columns", "f*", *asked, *case.words]) == 0
    report = json.loads(capsys.readouterr().out)
    with localcontext(DIGITS):
        matrix = kernel_matrix(case, report["kernel"]["gamma"], report["kernel"]["degree"])
        squared, _, scatter = by_definition(matrix, second)
        if estimator == "unbiased":
            # Without pairs of a row with itself, means within a group lose its own scatter over size - 1.
            for side in (second, ~second):
                size, own = int(side.sum()), matrix[np.ix_(side, side)]
                squared -= (np.diagonal(own).sum() - own.sum() / size) / (size * (size - 1))
        slack = PROMISED["dense"] * scatter / len(second)
        assert abs(Decimal(report["mmd"]["squared"]) - squared) <= slack
    assert report["pairs"][0]["p_value"] is not None


@pytest.mark.parametrize("case", OF_OTHER_COMMANDS)
def test_folds_have_the_promised_digits(case: Case, tmp_path: Path) -> None:
    path, out = tmp_path / "rows.parquet", tmp_path / "out"
    pq.write_table(table(case.rows), path)
    quick = ["--columns", "f*", "--k", "3", "--restarts", "2", "--effort", "fast", "--out", str(out), "-q"]
    assert run(["kfold", str(path), *quick, *case.words]) == 0
    report, folds = json.loads((out / "report.json").read_text()), np.load(out / "folds.npy")
    with localcontext(DIGITS):
        matrix = kernel_matrix(case, report["mmd"]["gamma"], report["config"]["degree"])
        trace = Decimal(np.diagonal(matrix).sum())
        psi = trace
        for fold in range(3):
            rows = folds == fold
            psi -= matrix[np.ix_(rows, rows)].sum() / int(rows.sum())
        scatter = trace - matrix.sum() / len(folds)
        assert abs(Decimal(report["objective"]["psi"]) - psi) <= PROMISED["dense"] * scatter
    assert run(["verify", str(out)]) == 0
