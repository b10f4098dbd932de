"""Kernels that few factors hold: chosen by themselves, and everything stated of them holds for the kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersplit_cli.cli.app import run as command
from clustersplit_cli.engines import plan as plans

ROWS = 1_500


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try factors on files that a test can afford."""
    monkeypatch.setattr(plans, "FEW_ROWS", 500)
    monkeypatch.setattr(plans, "ROWS_PER_FACTOR", 8)


@pytest.fixture
def narrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Rows in the plane: their kernel has a low rank."""
    rng = np.random.default_rng(3)
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", rng.normal(size=(ROWS, 2)) + rng.integers(0, 3, (ROWS, 1)))
    np.save("y.npy", rng.integers(0, 3, ROWS))
    return "x.npy"


def ran(name: str, *words: str, out: str = "run") -> dict[str, Any]:
    labels = ["--label-file", "y.npy", "--domain-file", "y.npy"]
    assert command([*name.split(), "x.npy", *labels, *words, "--out", out, "--quiet"]) == 0
    report: dict[str, Any] = json.loads(Path(out, "report.json").read_text())
    return report


def test_the_split_is_that_of_the_kernel_and_its_mmd_within_the_stated_error(narrow: str) -> None:
    found, dense = ran("split"), ran("split", "--nystrom", "off", out="dense")
    assert found["plan"]["geometry"] == found["mmd"]["geometry"] == "low-rank"
    assert found["config"]["nystrom"] == "auto"
    assert 0 < found["mmd"]["error"] <= 1e-6 * found["mmd"]["squared"]
    np.testing.assert_array_equal(np.load("run/val.npy"), np.load("dense/val.npy"))
    lacking = dense["mmd"]["squared"] - found["mmd"]["squared"]
    assert -1e-12 <= lacking <= found["mmd"]["error"]
    assert dense["mmd"]["error"] == 0.0
    assert dense["plan"]["rank"] is None


def test_bound_and_certificate_hold_for_the_kernel_itself(narrow: str) -> None:
    found = ran("split")
    assert found["bound"]["kernel"] == "exact"
    assert found["bound"]["mmd_upper"] >= ran("split", "--nystrom", "off", out="dense")["mmd"]["value"]
    assert found["certificate"]["status"] == "optimal"
    assert found["certificate"]["gap"] > 0


@pytest.mark.parametrize(
    "name", ["split", "kfold --k 3", "split --parts a=0.5,b=0.3,c=0.2", "baseline random"]
)
def test_every_command_states_its_error_and_verifies(
    narrow: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *more = name.split()
    if first == "baseline":
        first, more = name, []
    found = ran(first, *more)
    assert found["plan"]["geometry"] == "low-rank"
    assert found["mmd"]["error"] > 0
    is_small = found["mmd"]["error"] <= 1e-6 * found["mmd"]["squared"]
    assert is_small != any(note["code"] == "low_rank_error" for note in found["warnings"])
    capsys.readouterr()
    assert command(["verify", "run"]) == 0, capsys.readouterr().err


def test_a_changed_error_is_found_out(narrow: str) -> None:
    found = ran("split")
    found["mmd"]["error"] *= 3
    Path("run/report.json").write_text(json.dumps(found))
    assert command(["verify", "run", "--quiet"]) == 1


def test_the_plan_says_what_was_chosen_and_why(narrow: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["split", "x.npy", "--stratify", "none", "--out", "run", "--verbose"]) == 0
    said = capsys.readouterr().err
    assert "kernel: low-rank rbf with up to" in said
    assert "factors hold it to a millionth of MMD², about" in said


def test_factors_that_do_not_hold_all_rows_give_way_to_the_kernel(
    narrow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.load("x.npy")
    rows[:40] = np.random.default_rng(0).normal(size=(40, 2)) * 1_000  # far apart, and few are in a sample
    np.save("x.npy", rows)
    monkeypatch.setattr("clustersplit_cli.pipeline.context.TRIED_ROWS", 300)
    monkeypatch.setattr("clustersplit_cli.pipeline.context.MORE_FACTORS", 1.0)
    found = ran("split", "--gamma", "0.2")
    assert found["plan"]["geometry"] == "dense"
    assert "few factors do not hold it" in found["plan"]["reason"]
    assert command(["verify", "run", "--quiet"]) == 0


def test_wide_rows_keep_the_exact_kernel(narrow: str) -> None:
    np.save("x.npy", np.random.default_rng(0).normal(size=(ROWS, 40)))
    assert ran("split")["plan"]["geometry"] == "dense"


def test_any_number_of_threads_gives_the_same_split(narrow: str) -> None:
    one, two = (ran("split", "--threads", str(count), out=f"{count}") for count in (1, 2))
    assert one["mmd"] == two["mmd"]
    np.testing.assert_array_equal(np.load("1/val.npy"), np.load("2/val.npy"))


def test_landmarks_state_the_mmd_under_the_kernel_itself_where_a_pass_over_it_is_cheap(narrow: str) -> None:
    found, exact = ran("split", "--nystrom", "30"), ran("split", "--nystrom", "off", out="dense")
    assert exact["mmd"]["exact"] is None
    rows, val = np.load("x.npy"), np.load("run/val.npy")
    kernel = np.exp(-found["mmd"]["gamma"] * ((rows[:, None] - rows[None]) ** 2).sum(axis=2))
    z = np.full(ROWS, -1.0 / (ROWS - len(val)))
    z[val] = 1.0 / len(val)
    assert found["mmd"]["exact"] == pytest.approx(np.sqrt(z @ kernel @ z), rel=1e-9)
    assert found["mmd"]["exact"] != found["mmd"]["value"]
    assert command(["verify", "run", "--quiet"]) == 0
    found["mmd"]["exact"] *= 1.001
    Path("run/report.json").write_text(json.dumps(found))
    assert command(["verify", "run", "--quiet"]) == 1


def test_folds_under_landmarks_state_it_too(narrow: str) -> None:
    found = ran("kfold", "--k", "3", "--nystrom", "30")
    assert found["mmd"]["exact"] == pytest.approx(found["mmd"]["value"], rel=0.2)
    assert command(["verify", "run", "--quiet"]) == 0


def test_factors_are_not_verified_in_pieces(narrow: str, capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {f"f{i}": column for i, column in enumerate(np.load("x.npy").T)}
    pq.write_table(pa.table(columns | {"label": np.load("y.npy")}), "x.parquet")
    assert command(["split", "x.parquet", "--stratify", "label", "--out", "run", "--quiet"]) == 0
    assert json.loads(Path("run/report.json").read_text())["plan"]["geometry"] == "low-rank"
    capsys.readouterr()
    assert command(["verify", "run", "--engine", "stream"]) == 2
    assert "factors of it" in capsys.readouterr().err
