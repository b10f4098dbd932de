"""`baseline` writes the files of `split`, with a report that says what was not computed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run
from clustersplit_cli.cli.declarations import STRATEGIES as _NAMES
from clustersplit_cli.core.baselines import STRATEGIES, WITHOUT_QUOTAS
from clustersplit_cli.reports.json_report import report_schema

SEEDED = [name for name in STRATEGIES if name != "leave-one-domain-out"]
Baseline = Callable[..., tuple[int, str, str]]


@pytest.fixture
def baseline(folder: Path, capsys: pytest.CaptureFixture[str]) -> Baseline:
    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["baseline", *map(str, arguments)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def report_of(directory: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(Path(directory, "report.json").read_text())
    return loaded


def test_the_names_of_the_command_are_the_registered_ones() -> None:
    assert set(_NAMES) == set(STRATEGIES)


@pytest.mark.parametrize("options", [(), ("--kernel", "linear", "--h", "0.3"), ("--nystrom", "40")], ids=str)
@pytest.mark.parametrize("strategy", SEEDED)
def test_a_strategy_writes_a_run_that_verifies(
    strategy: str, options: tuple[str, ...], baseline: Baseline
) -> None:
    code, out, err = baseline(strategy, "feats.parquet", *options)
    assert (code, out) == (0, ""), err
    directory = f"feats_{strategy}"
    assert {path.name for path in Path(directory).iterdir()} == {"train.npy", "val.npy", "report.json"}
    report = report_of(directory)
    jsonschema.validate(report, report_schema())
    assert report["config"]["strategy"] == strategy
    for key in ("certificate", "bound", "search"):
        assert report[key] is None
    assert report["trace"] == report["restarts"] == []
    assert report["mmd"]["value"] > 0
    assert report["constraints"]["all_satisfied"] or strategy in WITHOUT_QUOTAS
    searched = strategy == "unconstrained"
    assert (report["config"]["restarts"] is not None) == searched
    assert run(["verify", directory]) == 0


def test_the_same_seed_gives_the_same_rows_and_another_seed_others(baseline: Baseline) -> None:
    for out, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert baseline("random", "feats.parquet", "--seed", seed, "--out", out)[0] == 0
    a, b, c = (np.load(f"{out}/val.npy").tolist() for out in "abc")
    assert a == b != c


def test_random_splits_of_two_families_differ_from_seed_to_seed(baseline: Baseline, folder: Path) -> None:
    """Every joint cell has one row, so quotas of joint cells would leave nothing to chance."""
    n = 60
    rows = np.random.default_rng(3).normal(size=(n, 2))
    columns = {"f0": rows[:, 0], "f1": rows[:, 1], "label": np.arange(n) % 6, "site": np.arange(n) // 6}
    pq.write_table(pa.table(columns), folder / "two.parquet")
    families = ("--stratify", "label", "--stratify", "site")
    for seed in (1, 2):
        code, _, err = baseline("random", "two.parquet", *families, "--seed", seed, "--out", f"of {seed}")
        assert code == 0, err
        report = report_of(f"of {seed}")
        assert report["constraints"]["all_satisfied"]
        assert report["baselines"]["random"]["mmd_sd"] > 0.01
    one, other = (np.load(folder / f"of {seed}" / "val.npy") for seed in (1, 2))
    assert not np.array_equal(one, other)


def test_every_domain_in_turn_gets_a_directory(baseline: Baseline, table: pa.Table) -> None:
    assert baseline("leave-one-domain-out", "feats.parquet")[0] == 0
    parent = Path("feats_leave-one-domain-out")
    assert {path.name for path in parent.iterdir()} == {"art", "photo"}
    domains = np.array(table["domain"].to_pylist())
    for name in ("art", "photo"):
        np.testing.assert_array_equal(np.load(parent / name / "val.npy"), np.flatnonzero(domains == name))
        report = report_of(str(parent / name))
        assert report["config"]["leave"] == name
        assert "holdout_missed" not in {warning["code"] for warning in report["warnings"]}
        assert run(["verify", str(parent / name)]) == 0


def test_a_domain_is_compared_with_random_splits_of_its_size(baseline: Baseline, folder: Path) -> None:
    """Of one distribution, nine rows in ten left out: a random tenth would differ more than that."""
    rng = np.random.default_rng(4)
    columns = {"f0": rng.normal(size=200), "f1": rng.normal(size=200), "domain": np.arange(200) % 10 > 0}
    pq.write_table(pa.table(columns), folder / "same.parquet")
    words = ("leave-one-domain-out", "same.parquet", "--stratify", "none", "--domain", "domain")
    code, _, err = baseline(*words, "--h", "0.02", "--leave", "True", "--out", "left", "--verbose")
    assert code == 0, err
    assert "splits of the same size" in err
    report = report_of("left")
    random = report["baselines"]["random"]
    assert abs(report["mmd"]["value"] - random["mmd_mean"]) < 4 * random["mmd_sd"]
    assert run(["verify", "left"]) == 0
    assert baseline("random", "same.parquet", "--stratify", "none", "--h", "0.02", "--out", "few")[0] == 0
    assert report_of("few")["baselines"]["random"]["mmd_mean"] > 1.5 * random["mmd_mean"]


def test_reports_made_in_turn_are_those_made_one_by_one(baseline: Baseline) -> None:
    baseline("leave-one-domain-out", "feats.parquet", "--out", "all", "--nystrom", "30")
    baseline("leave-one-domain-out", "feats.parquet", "--out", "one", "--leave", "photo", "--nystrom", "30")
    one, turn = report_of("one"), report_of("all/photo")
    for report in (one, turn):
        del report["timing"]
    assert one == turn


def test_domains_need_not_form_cells(baseline: Baseline, table: pa.Table) -> None:
    leave = ("--leave", "art", "--stratify", "label", "--out", "o")
    assert baseline("leave-one-domain-out", "feats.parquet", *leave)[0] == 0
    assert len(np.load("o/val.npy")) == table["domain"].to_pylist().count("art")
    assert [list(cell["cell"]) for cell in report_of("o")["constraints"]["cells"]] == [["label"]] * 3
    assert run(["verify", "o"]) == 0


def test_any_domain_name_makes_a_directory(baseline: Baseline, folder: Path, table: pa.Table) -> None:
    names = pa.array([("a/b", "..", "50%")[row % 3] for row in range(len(table))])
    pq.write_table(table.set_column(table.column_names.index("domain"), "domain", names), "odd.parquet")
    assert baseline("leave-one-domain-out", "odd.parquet", "--out", "odd")[0] == 0
    assert {path.name for path in (folder / "odd").iterdir()} == {"a%2Fb", "%2E.", "50%25"}


def test_an_existing_output_is_replaced_only_by_force(baseline: Baseline) -> None:
    for strategy in ("random", "leave-one-domain-out"):
        assert baseline(strategy, "feats.parquet")[0] == 0
        code, _, err = baseline(strategy, "feats.parquet")
        assert code == 2
        assert "--force" in err
        assert baseline(strategy, "feats.parquet", "--force")[0] == 0


def test_indices_can_go_to_stdout_and_the_input_can_be_annotated(baseline: Baseline, folder: Path) -> None:
    code, out, _ = baseline("random", "feats.parquet", "--out", "-", "--format", "txt", "-q")
    assert code == 0
    assert baseline("random", "feats.parquet", "--annotate", "with.parquet", "-q")[0] == 0
    val = np.load("feats_random/val.npy").tolist()
    assert [int(line) for line in out.split()] == val
    sides = pq.read_table("with.parquet")["split"].to_pylist()
    assert [row for row, side in enumerate(sides) if side == "val"] == val


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("best", "feats.parquet"), "unknown"),
        (("random", "feats.parquet", "--leave", "art"), "--leave"),
        (("leave-one-domain-out", "feats.parquet", "--leave", "sketch"), "no such domain"),
        (("leave-one-domain-out", "feats.parquet", "--json"), "--json"),
        (("leave-one-domain-out", "feats.parquet", "--out", "-", "--format", "txt"), "--out -"),
        (("leave-one-domain-out", "feats.parquet", "--annotate", "a.parquet"), "--annotate"),
        (("leave-one-domain-out", "feats.parquet", "--domain", "nope"), "nope"),
        (("leave-one-domain-out", "feats.parquet", "--exclude", "domain=art"), "only one domain"),
        (("greedy", "feats.parquet", "--restarts", "3"), "--restarts"),
        (("greedy", "nowhere.parquet"), "nowhere.parquet"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_bad_usage_is_one_line_and_leaves_nothing_behind(
    arguments: tuple[str, ...], word: str, baseline: Baseline, files: Callable[[], set[str]]
) -> None:
    code, out, err = baseline(*arguments)
    assert (code, out) == (2, "")
    error, hint = err.splitlines()
    assert error.startswith("error: ")
    assert word in error
    assert hint.startswith("hint: ")
    assert files() == {"feats.parquet"}
