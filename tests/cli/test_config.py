"""The report repeats the options as they were resolved, and `--config` takes them back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

Split = Callable[..., Any]

NON_DEFAULT = {
    "columns": ["f[0-2]", "f3"],
    "label": "species",
    "domain": "style",
    "metadata": "meta.parquet",
    "stratify": ["domain,label"],
    "exclude": ["batch=2"],
    "id": "id",
    "format": ["txt", "npy"],
    "holdout": 0.29,
    "kernel": "polynomial",
    "gamma": 0.0625,
    "degree": 2,
    "standardize": "zscore",
    "tolerance": 0.25,
    "rounding": "balanced",
    "nystrom": 25,
    "restarts": 2,
    "max_iter": 3,
    "effort": "fast",
    "seed": 11,
    "solver": "cbc",
    "certify": "always",
    "bound": "always",
}


@pytest.fixture
def many(folder: Path, table: pa.Table) -> Path:
    """A file that needs every option, with a companion."""
    features = table.select(["f0", "f1", "f2", "f3", "id"])
    features = features.set_column(0, "f0", pa.array([None, *features["f0"].to_pylist()[1:]], pa.float32()))
    pq.write_table(features, folder / "many.parquet")
    meta = {"species": table["label"], "style": table["domain"], "batch": pa.array(np.arange(120) % 3)}
    pq.write_table(pa.table(meta), folder / "meta.parquet")
    return folder


def words(options: dict[str, Any]) -> list[str]:
    """The options as they are typed."""
    line: list[str] = []
    for name, value in options.items():
        for item in value if isinstance(value, list) else [value]:
            line += [f"--{name.replace('_', '-')}", str(item)]
    return line


def config(folder: Path, out: str) -> dict[str, Any]:
    options: dict[str, Any] = json.loads((folder / out / "report.json").read_text())["config"]
    return options


def index_files(folder: Path, out: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / out).iterdir() if path.suffix != ".json"}


def test_every_option_is_reported_as_resolved_and_replays_to_the_same_bytes(split: Split, many: Path) -> None:
    first = split("many.parquet", *words(NON_DEFAULT), "--drop-invalid", "--out", "first")
    assert first.code == 0, first.err
    resolved = config(many, "first")
    assert {name: resolved[name] for name in NON_DEFAULT} == NON_DEFAULT
    assert resolved["drop_invalid"] is True
    again = split("many.parquet", "--config", "first/report.json", "--out", "again")
    assert again.code == 0, again.err
    assert index_files(many, "again") == index_files(many, "first")
    assert set(index_files(many, "first")) == {
        f"{stem}.{suffix}" for stem in ("train", "val", "train_ids", "val_ids") for suffix in ("txt", "npy")
    }
    assert config(many, "again") == resolved


def test_defaults_are_reported_as_what_they_became(split: Split, folder: Path) -> None:
    assert split("feats.parquet", "--threads", 2, "--memory", "3GB", quick=False).code == 0
    resolved = config(folder, "feats_split")
    assert resolved.pop("gamma") == pytest.approx(0.25, rel=0.5)
    assert resolved == {
        "features": "feats.parquet",
        "columns": [],
        "label": "label",
        "domain": "domain",
        "label_file": None,
        "domain_file": None,
        "metadata": None,
        "stratify": ["label,domain"],
        "exclude": [],
        "id": None,
        "drop_invalid": False,
        "parts": None,
        "label_bins": None,
        "keep_together": None,
        "force_train": None,
        "force_val": None,
        "format": ["npy"],
        "holdout": 0.2,
        "severity": 1.0,
        "at_mmd": None,
        "target": None,
        "aim": "worst",
        "weights": False,
        "kernel": "rbf",
        "degree": None,
        "standardize": "none",
        "tolerance": 0.0,
        "rounding": "nearest",
        "nystrom": "off",
        "restarts": 10,
        "max_iter": 100,
        "effort": "normal",
        "seed": 0,
        "solver": "selection",
        "certify": "auto",
        "bound": "auto",
        "memory": 3 * 10**9,
        "threads": 2,
        "geometry": "dense",
        "engine": "local",
        "passes": None,
    }


def test_columns_that_were_not_used_are_null(split: Split, folder: Path) -> None:
    assert split("feats.parquet", "--stratify", "none").code == 0
    resolved = config(folder, "feats_split")
    assert (resolved["label"], resolved["domain"], resolved["stratify"]) == (None, None, ["none"])


def test_companions_stand_in_the_place_of_columns(split: Split, folder: Path, table: pa.Table) -> None:
    np.save(folder / "y.npy", np.asarray(table["label"]).astype(str))
    assert split("feats.parquet", "--label-file", "y.npy", "--out", "a").code == 0
    resolved = config(folder, "a")
    assert (resolved["label"], resolved["label_file"], resolved["domain"]) == (None, "y.npy", "domain")
    assert split("feats.parquet", "--config", "a/report.json", "--out", "b").code == 0
    assert index_files(folder, "a") == index_files(folder, "b")


@pytest.mark.parametrize(
    ("beside", "changed"),
    [
        (("--h", "0.4"), {"holdout": 0.4}),
        (("--holdout", "0.4"), {"holdout": 0.4}),
        (("--seed", "3"), {"seed": 3}),
        (("--format", "parquet"), {"format": ["parquet"]}),
        (("--kernel", "linear"), {"kernel": "linear", "gamma": None, "degree": None, "geometry": "linear"}),
        (("--stratify", "label"), {"stratify": ["label"], "domain": None}),
        (("--threads", "1"), {"threads": 1}),
    ],
)
def test_options_given_beside_a_config_win(
    beside: tuple[str, str], changed: dict[str, Any], split: Split, folder: Path
) -> None:
    earlier = ("--kernel", "polynomial", "--degree", 2, "--seed", 9, "--h", "0.3", "--format", "txt")
    assert split("feats.parquet", *earlier, "--out", "a").code == 0
    result = split("feats.parquet", "--config", "a/report.json", *beside, "--out", "b")
    assert result.code == 0, result.err
    assert config(folder, "b") == {**config(folder, "a"), **changed}


def test_a_default_given_beside_a_config_wins_too(split: Split, folder: Path) -> None:
    assert split("feats.parquet", "--seed", 9, "--out", "a").code == 0
    assert split("feats.parquet", "--config", "a/report.json", "--seed", 0, "--out", "b").code == 0
    assert config(folder, "b")["seed"] == 0


def test_a_column_beside_a_config_overrules_its_companion_file(
    split: Split, folder: Path, table: pa.Table
) -> None:
    np.save(folder / "y.npy", np.asarray(table["label"]).astype(str))
    assert split("feats.parquet", "--label-file", "y.npy", "--out", "a").code == 0
    assert split("feats.parquet", "--config", "a/report.json", "--label", "label", "--out", "b").code == 0
    assert config(folder, "b")["label_file"] is None
    assert (
        split("feats.parquet", "--config", "b/report.json", "--label-file", "y.npy", "--out", "c").code == 0
    )
    assert config(folder, "c")["label"] is None


def test_a_config_works_for_another_file_without_a_domain(
    split: Split, folder: Path, table: pa.Table
) -> None:
    pq.write_table(table.drop_columns(["domain"]), folder / "other.parquet")
    assert split("feats.parquet", "--out", "a").code == 0
    result = split("other.parquet", "--config", "a/report.json", "--stratify", "label", "--out", "b")
    assert result.code == 0, result.err


def test_where_to_write_and_the_machine_are_not_replayed(split: Split, folder: Path) -> None:
    assert split("feats.parquet", "--threads", 1, "--memory", "3GB", "--annotate", "x.parquet").code == 0
    result = split("feats.parquet", "--config", "feats_split/report.json", "--out", "b", "--threads", 2)
    assert result.code == 0, result.err
    assert config(folder, "b")["threads"] == 2
    assert config(folder, "b")["memory"] != 3 * 10**9


@pytest.mark.parametrize(
    ("name", "value", "option"),
    [
        ("restarts", "ten", "--restarts"),
        ("restarts", None, "--restarts"),
        ("restarts", True, "--restarts"),
        ("holdout", [0.2], "--h"),
        ("columns", "f0", "--columns"),
        ("drop_invalid", 1, "--drop-invalid"),
        ("label_file", 3, "--label-file"),
        ("kernel", 5, "--kernel"),
    ],
)
def test_a_config_edited_by_hand_is_checked(
    name: str, value: Any, option: str, split: Split, folder: Path
) -> None:
    assert split("feats.parquet", "--out", "a").code == 0
    path = folder / "a" / "report.json"
    report = json.loads(path.read_text())
    report["config"][name] = value
    path.write_text(json.dumps(report))
    result = split("feats.parquet", "--config", "a/report.json", "--out", "b")
    assert result.code == 2
    assert result.lines == [
        f"error: --config a/report.json: {value!r} is no value for {name}",
        f"hint: give {option} on the command line, or an unchanged report.json",
    ]
    assert not (folder / "b").exists()


def test_a_value_out_of_bounds_in_a_config_is_refused_like_any_other(split: Split, folder: Path) -> None:
    assert split("feats.parquet", "--out", "a").code == 0
    path = folder / "a" / "report.json"
    path.write_text(path.read_text().replace('"holdout": 0.2', '"holdout": 2'))
    result = split("feats.parquet", "--config", "a/report.json", "--out", "b")
    assert result.lines[0] == "error: --h must lie strictly between 0 and 1, got 2"


def test_every_option_of_the_command_is_in_the_config_or_has_a_reason_not_to_be(
    split: Split, folder: Path
) -> None:
    from typer.main import get_command

    from clustersplit_cli.cli.app import program
    from clustersplit_cli.options import OPTIONS

    assert split("feats.parquet").code == 0
    command: Any = get_command(program())
    names = {parameter.name for parameter in command.commands["split"].params}
    of_this_run_only = {
        "spill",
        "scheduler",
        "out",
        "annotate",
        "html",
        "force",
        "config",
        "json",
        "quiet",
        "verbose",
        "n_splits",
        "debug",
    }
    unless_it_is_used = {"impute", "distances"}
    stated = set(config(folder, "feats_split")) | unless_it_is_used
    assert names - of_this_run_only == stated - {"geometry"}
    replayed = {option.name for option in OPTIONS.values() if option.is_replayed}
    assert names - of_this_run_only - {"features", "memory", "threads"} == replayed - {"k"}


def test_features_may_be_left_out_with_an_earlier_run(split: Split, folder: Path) -> None:
    np.save(folder / "y.npy", np.arange(120) % 3)
    assert split("feats.parquet", "--label-file", "y.npy", "--seed", 3, "--out", "a").code == 0
    assert split("--config", "a/report.json", "--out", "b").code == 0
    for name in ("train.npy", "val.npy"):
        assert (folder / "a" / name).read_bytes() == (folder / "b" / name).read_bytes()
    (folder / "feats.parquet").rename(folder / "moved.parquet")
    refused = split("--config", "a/report.json", "--out", "c")
    assert refused.code == 2
    assert refused.lines == [
        "error: the input feats.parquet is not there any more",
        "hint: say where it is with FEATURES",
    ]
    assert split("moved.parquet", "--config", "a/report.json", "--out", "c").code == 0
    assert split().lines[0] == "error: missing argument 'FEATURES'"
