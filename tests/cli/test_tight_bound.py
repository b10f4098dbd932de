"""`--bound tight`, in the report and through `verify`; what it cannot bound is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersplit_cli.cli.app import run

WORDS = ["x.npy", "--stratify", "label", "--label-file", "y.npy"]


@pytest.fixture(autouse=True)
def few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of each class is unlike the rest."""
    rng = np.random.default_rng(4)
    labels = np.arange(40) % 2
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", rng.normal(size=(40, 3)) + 3.0 * (np.arange(40)[:, None] >= 32))
    np.save("y.npy", labels)
    np.save("unit.npy", np.arange(40) // 2)


def bound_of(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(out, "report.json").read_text())["bound"]
    return found


def test_a_split_is_proven_optimal_and_verified(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["split", *WORDS, "--out", "loose"]) == 0
    assert "proven" not in capsys.readouterr().err
    loose = bound_of("loose")
    assert (loose["method"], loose["proven_optimal"]) == ("spectral", False)
    assert run(["split", *WORDS, "--bound", "tight", "--out", "tight"]) == 0
    assert "proven optimal" in capsys.readouterr().err
    tight = bound_of("tight")
    assert (tight["method"], tight["proven_optimal"]) == ("semidefinite", True)
    assert tight["mmd_upper"] < loose["mmd_upper"]
    assert run(["verify", "tight", "--quiet"]) == 0
    stated = json.loads(Path("tight/report.json").read_text())
    for change in (
        {"mmd_upper": tight["mmd_upper"] * 0.999},
        {"method": "spectral"},
        {"proven_optimal": False},
    ):
        stated["bound"] = tight | change
        Path("tight/report.json").write_text(json.dumps(stated))
        assert run(["verify", "tight", "--quiet"]) == 1


@pytest.mark.parametrize(
    "words",
    [["--stratify", "none"], ["--keep-together", "unit", "--tolerance", "0"], ["--h", "0.5"]],
    ids=["families", "units", "half"],
)
def test_it_is_never_looser_and_never_below_the_split(words: list[str]) -> None:
    options = [*WORDS, *words]
    if "--keep-together" in words:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"unit": np.load("unit.npy")}), "units.parquet")
        options += ["--metadata", "units.parquet"]
    assert run(["split", *options, "--quiet", "--out", "loose"]) == 0
    assert run(["split", *options, "--quiet", "--bound", "tight", "--out", "tight"]) == 0
    assert bound_of("tight")["mmd_upper"] <= bound_of("loose")["mmd_upper"]
    assert bound_of("tight")["fraction"] <= 1.0
    np.testing.assert_array_equal(np.load("tight/val.npy"), np.load("loose/val.npy"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tolerance", "0.5"], "exact quotas"),
        (["--engine", "stream"], "needs all rows in memory"),
        (["--parts", "a=0.5,b=0.5"], "--bound cannot be combined with --parts"),
        (["--aim", "nearest", "--target", "x.npy"], "--aim nearest asks for another"),
    ],
)
def test_what_it_cannot_bound_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["split", *WORDS, "--bound", "tight", *words, "--out", "run"]) == 2
    assert said in capsys.readouterr().err
    assert not Path("run").exists()


def test_more_rows_than_it_can_take_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.random.default_rng(0).normal(size=(1001, 2)))
    np.save("y.npy", np.zeros(1001, dtype=int))
    assert run(["split", *WORDS, "--bound", "tight", "--out", "run"]) == 2
    assert "at most 1,000 rows, and there are 1,001\nhint: use --bound always" in capsys.readouterr().err
