"""`clustersplit inspect`: what it says agrees with what `split` does, at any width."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run


@pytest.fixture
def inspect(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def call(*arguments: object) -> Any:
        capsys.readouterr()
        code = run(["inspect", *map(str, arguments)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def findings(inspect: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    def call(*arguments: object) -> dict[str, Any]:
        code, out, _ = inspect("feats.parquet", "--json", *arguments)
        assert code == 0
        found: dict[str, Any] = json.loads(out)
        return found

    return call


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--h", "0.31", "--rounding", "balanced", "--stratify", "label"),
        ("--tolerance", "0.5", "--gamma", "median", "--seed", "3", "--standardize", "zscore"),
        ("--exclude", "domain=art", "--nystrom", "20", "--gamma", "0.7"),
    ],
)
def test_cells_width_and_plan_are_those_of_the_split(
    options: tuple[str, ...], findings: Callable[..., Any], split: Callable[..., Any]
) -> None:
    found = findings(*options)
    done = split("feats.parquet", "--json", "-q", *options)
    report = json.loads(done.out)
    keys = ("cell", "size", "target", "lower", "upper")
    theirs = [{key: cell[key] for key in keys} for cell in report["constraints"]["cells"]]
    assert [{key: cell[key] for key in keys} for cell in found["cells"]] == theirs
    (chosen,) = [width for width in found["widths"] if width["chosen"]]
    assert chosen["gamma"] == report["mmd"]["gamma"]
    assert found["plan"] == report["plan"]
    assert found["n_rows"] == report["input"]["n_rows"]
    assert found["n_excluded"] == report["input"]["n_excluded"]
    assert found["estimate"]["seconds"] > 0


def test_every_column_is_listed_with_its_type_and_use(findings: Callable[..., Any]) -> None:
    found = findings("--id", "id")
    uses = {column["name"]: (column["type"], column["use"]) for column in found["columns"]}
    assert uses == {
        **{f"f{column}": ("float", "feature") for column in range(4)},
        "label": ("string", "label"),
        "domain": ("string", "domain"),
        "id": ("string", "id"),
    }
    found = findings("--stratify", "domain", "--columns", "f0,f1", "--exclude", "label=cat")
    uses = {column["name"]: column["use"] for column in found["columns"]}
    assert uses == {
        **{"f0": "feature", "f1": "feature", "f2": "unused", "f3": "unused"},
        **{"label": "exclude", "domain": "domain", "id": "unused"},
    }
    assert found["n_features"] == 2


def test_spreads_and_kernel_shares_follow_their_definitions(
    folder: Path, findings: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3)) * [1.0, 500.0, 0.0]
    columns = {f"f{place}": X[:, place] for place in range(3)}
    pq.write_table(pa.table({**columns, "label": np.arange(100) % 2}), folder / "feats.parquet")
    found = findings("--gamma", "1/d")
    spread = found["spread"]
    assert (spread["narrowest"], spread["widest"], spread["constant"]) == ("f0", "f1", ["f2"])
    assert spread["widest_deviation"] == pytest.approx(X[:, 1].std())
    distances = ((X[:, None] - X[None]) ** 2).sum(axis=2)[np.triu_indices(100, k=1)]
    assert [width["rule"] for width in found["widths"]] == ["scale", "1/d", "median"]
    for width in found["widths"]:
        values = np.exp(-width["gamma"] * distances)
        assert width["near_zero"] == pytest.approx((values < 0.01).mean())
        assert width["near_one"] == pytest.approx((values > 0.99).mean())
        assert width["median"] == pytest.approx(np.median(values), abs=1e-9)
    codes = {notice["code"] for notice in found["warnings"]}
    assert {"degenerate_kernel", "uneven_spreads"} <= codes
    assert "degenerate_kernel" not in {notice["code"] for notice in findings()["warnings"]}


def test_cells_that_will_be_a_problem_come_with_the_reason(findings: Callable[..., Any]) -> None:
    assert all(cell["problem"] is None for cell in findings()["cells"])
    few = findings("--h", "0.02")
    assert {cell["problem"] for cell in few["cells"] if cell["target"] == 0} == {"no validation row"}
    assert "cells_without_validation" in {notice["code"] for notice in few["warnings"]}
    most = findings("--h", "0.98")
    assert "no training row" in {cell["problem"] for cell in most["cells"]}
    rare = findings("--stratify", "id", "--rounding", "balanced")
    assert {cell["problem"] for cell in rare["cells"]} == {"no validation row", "no training row"}


def test_a_plan_that_does_not_fit_is_a_warning_here(findings: Callable[..., Any]) -> None:
    found = findings("--memory", "1MB")
    assert (found["plan"], found["estimate"]) == (None, None)
    (notice,) = [notice for notice in found["warnings"] if notice["code"] == "plan_does_not_fit"]
    assert "more than the budget" in notice["message"]


@pytest.mark.parametrize("width", [30, 80, 200])
def test_tables_go_to_stderr_and_fit_the_terminal(
    width: int, inspect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, err = inspect("feats.parquet")
    assert (code, out) == (0, "")
    assert "\x1b" not in err
    assert max(map(len, err.splitlines())) <= width
    for word in ("columns", "features", "cells", "gamma", "memory", "time", "estimate"):
        assert word in err
    assert ("label x domain" in err) == (width >= 80)
    assert ("label=sea lion" in " ".join(err.split())) == (width < 80)


def test_the_grid_shows_quota_and_size_of_every_cell(
    inspect: Callable[..., Any], findings: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, _, err = inspect("feats.parquet")
    lines = [line.split() for line in err.splitlines()]
    for cell in findings()["cells"]:
        label, domain = cell["cell"]["label"], cell["cell"]["domain"]
        (row,) = [line for line in lines if line[: len(label.split())] == label.split() and "/" in line[-1]]
        assert row[-2:][["art", "photo"].index(domain)] == f"{cell['target']}/{cell['size']}"


def test_quiet_shows_only_warnings_and_errors_are_those_of_split(inspect: Callable[..., Any]) -> None:
    assert inspect("feats.parquet", "-q") == (0, "", "")
    code, out, err = inspect("feats.parquet", "--label", "animal")
    assert (code, out) == (2, "")
    assert "there is no column 'animal'" in err
    code, _, err = inspect("feats.parquet", "--h", "2")
    assert code == 2
    assert "--h must lie strictly between 0 and 1" in err


def test_names_that_a_terminal_would_act_on_are_escaped(folder: Path, inspect: Callable[..., Any]) -> None:
    table = pa.table({"f\x1b0": np.arange(9.0), "f\x1b1": np.arange(9.0) ** 2, "label": ["a\n"] * 9})
    pq.write_table(table, folder / "odd.parquet")
    code, _, err = inspect("odd.parquet")
    assert code == 0
    assert "\x1b" not in err
    assert "f\\x1b0" in err
    assert "label=a\\n" in err
