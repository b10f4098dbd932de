"""Folds, named parts, groups, pins and families in Python: the same as the command line's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit import Partition, Split, cluster_folds, cluster_parts, cluster_split
from clustersplit_cli.cli.app import run

ROWS = 120
FAST: dict[str, Any] = {"restarts": 4}
FLAGS = ("--restarts", "4", "-q")
PARTS = {"train": 0.6, "val": 0.25, "test": 0.15}
PARTS_TEXT = "train=0.6,val=0.25,test=0.15"


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(3)
    patient = rng.integers(0, 40, ROWS)
    rows = rng.normal(size=(ROWS, 4)) + 3 * rng.normal(size=(3, 4))[patient % 3]
    columns = {f"f{column}": rows[:, column].astype(np.float32) for column in range(4)}
    return pa.table(
        {
            **columns,
            "label": np.array(["cat", "dog"])[rng.integers(0, 2, ROWS)],
            "domain": rng.integers(0, 2, ROWS),
            "patient": patient,
            "age": rng.normal(size=ROWS),
        }
    )


@pytest.fixture(scope="module")
def features(table: pa.Table) -> Any:
    return np.stack([table[f"f{column}"].to_numpy() for column in range(4)], axis=1)


@pytest.fixture
def command_line(table: pa.Table, tmp_path: Path) -> Callable[..., Path]:
    pq.write_table(table, tmp_path / "feats.parquet")

    def call(command: str, *options: str) -> Path:
        out = tmp_path / "out"
        assert run([command, str(tmp_path / "feats.parquet"), "--out", str(out), *FLAGS, *options]) == 0
        return out

    return call


def values(table: pa.Table, name: str) -> Any:
    return table[name].to_numpy(zero_copy_only=False)


def assert_same(ours: Partition, theirs: Partition) -> None:
    assert list(ours.parts) == list(theirs.parts)
    np.testing.assert_array_equal(ours.labels, theirs.labels)
    for name, rows in ours.parts.items():
        np.testing.assert_array_equal(rows, theirs[name])
    assert ours.report.mmd == theirs.report.mmd
    assert ours.report.parts == theirs.report.parts
    assert ours.report.restarts == theirs.report.restarts


# Parts of whole groups, equal in size, hardly differ more than random ones here, and are said to.
@pytest.mark.filterwarnings("ignore:MMD .* is not above that of random parts")
@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({}, ()),
        ({"k": 3, "random_state": 7, "kernel": "linear"}, ("--k", "3", "--seed", "7", "--kernel", "linear")),
        ({"groups": "patient"}, ("--keep-together", "patient", "--tolerance", "auto")),
        ({"groups": "patient", "tolerance": 0.4}, ("--keep-together", "patient", "--tolerance", "0.4")),
    ],
)
def test_folds_are_those_of_kfold(
    options: dict[str, Any],
    flags: tuple[str, ...],
    table: pa.Table,
    features: Any,
    command_line: Callable[..., Path],
) -> None:
    theirs = Partition.load(command_line("kfold", "--stratify", "label", *flags))
    given = {**options}
    if "groups" in given:
        given["groups"] = values(table, given["groups"])
    ours = cluster_folds(features, values(table, "label"), **FAST, **given)
    assert_same(ours, theirs)
    assert sorted(np.concatenate(list(ours.parts.values())).tolist()) == list(range(ROWS))


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({}, ()),
        ({"tolerance": [0.1, "label=dog=0.3"]}, ("--tolerance", "0.1", "--tolerance", "label=dog=0.3")),
        ({"groups": "patient"}, ("--keep-together", "patient", "--tolerance", "auto")),
    ],
)
def test_parts_are_those_of_split_parts(
    options: dict[str, Any],
    flags: tuple[str, ...],
    table: pa.Table,
    features: Any,
    command_line: Callable[..., Path],
) -> None:
    theirs = Partition.load(command_line("split", "--parts", PARTS_TEXT, "--stratify", "label", *flags))
    given = {**options}
    if "groups" in given:
        given["groups"] = values(table, given["groups"])
    ours = cluster_parts(features, values(table, "label"), parts=PARTS, **FAST, **given)
    assert_same(ours, theirs)
    assert [part.share for part in ours.report.parts.parts] == [0.6, 0.25, 0.15]  # type: ignore[union-attr]


@pytest.mark.parametrize("groups", ["patient", "exact-duplicates"])
def test_groups_of_a_split_are_those_that_the_command_line_keeps_together(
    groups: str, table: pa.Table, features: Any, command_line: Callable[..., Path]
) -> None:
    flags = ("--keep-together", groups, "--tolerance", "auto", "--stratify", "label")
    theirs = Split.load(command_line("split", *flags))
    given = values(table, groups) if groups == "patient" else groups
    ours = cluster_split(features, values(table, "label"), groups=given, **FAST)
    np.testing.assert_array_equal(ours.val, theirs.val)
    if groups == "patient":
        assert not np.intersect1d(given[ours.train], given[ours.val]).size
        by_name = cluster_split(table, "label", groups="patient", columns="f*", **FAST)
        np.testing.assert_array_equal(by_name.val, ours.val)
        assert by_name.report.constraints.units == theirs.report.constraints.units


def test_families_pins_tolerances_and_bins_are_those_of_the_command_line(
    table: pa.Table, features: Any, command_line: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "train.txt").write_text("0\n5\n")
    (tmp_path / "val.txt").write_text("7\n")
    flags = ("--stratify", "label", "--stratify", "domain", "--tolerance", "0.05", "--tolerance")
    pins = ("--force-train", str(tmp_path / "train.txt"), "--force-val", str(tmp_path / "val.txt"))
    out = command_line("split", *flags, "label=dog=0.1", *pins)
    theirs = Split.load(out)
    ours = cluster_split(
        features,
        values(table, "label"),
        values(table, "domain"),
        stratify=["label", "domain"],
        tolerance=[0.05, "label=dog=0.1"],
        force_train=[5, 0],
        force_val=np.arange(ROWS) == 7,
        **FAST,
    )
    np.testing.assert_array_equal(ours.val, theirs.val)
    assert ours.report.constraints == theirs.report.constraints
    assert 7 in ours.val and {0, 5} <= set(ours.train.tolist())
    theirs = Split.load(
        command_line("split", "--label", "age", "--label-bins", "4", "--stratify", "label", "--force")
    )
    binned = cluster_split(features, values(table, "age"), label_bins=4, **FAST)
    np.testing.assert_array_equal(binned.val, theirs.val)
    assert len(binned.report.constraints.cells) == 4


def test_parts_take_pinned_rows_with_their_groups(table: pa.Table, features: Any) -> None:
    patient = values(table, "patient")
    found = cluster_parts(features, parts=PARTS, groups=patient, force_val=[3], force_train=[4], **FAST)
    assert set(np.flatnonzero(patient == patient[3])) <= set(found["val"].tolist())
    assert set(np.flatnonzero(patient == patient[4])) <= set(found["train"].tolist())
    pinned = found.report.constraints.pinned
    assert pinned is not None and pinned.satisfied


def test_folds_are_iterated_as_train_and_validation(features: Any) -> None:
    rows = features.copy()
    rows[4] = np.nan
    found = cluster_folds(rows, k=3, drop_invalid=True, **FAST)
    assert found.labels[4] == -1
    pairs = list(found.folds())
    assert len(pairs) == 3
    for (train, val), name in zip(pairs, ("fold_0", "fold_1", "fold_2"), strict=True):
        np.testing.assert_array_equal(val, found[name])
        assert sorted([*train.tolist(), *val.tolist()]) == [row for row in range(ROWS) if row != 4]
    with pytest.raises(ValueError, match=r"1 rows are in no part.*list\(partition.folds\(\)\)"):
        found.to_predefined_split()
    whole = cluster_folds(features, k=3, **FAST)
    for (train, val), (ours, mine) in zip(whole.to_predefined_split().split(), whole.folds(), strict=True):
        np.testing.assert_array_equal(train, ours)
        np.testing.assert_array_equal(val, mine)
    assert repr(whole).startswith("Partition(fold_0: 40, fold_1: 40, fold_2: 40; mean MMD 0.")


def test_each_kind_of_run_says_what_reads_it(command_line: Callable[..., Path]) -> None:
    out = command_line("kfold", "--k", "2")
    with pytest.raises(ValueError, match=r"holds folds, not a split in two.*Partition.load"):
        Split.load(out)
    command_line("split", "--force")
    with pytest.raises(ValueError, match=r"holds a split in train and val.*Split.load"):
        Partition.load(out)
    with pytest.raises(ValueError, match="does not exist"):
        Partition.load(out / "nowhere")


def test_a_damaged_run_of_parts_is_refused(command_line: Callable[..., Path]) -> None:
    out = command_line("split", "--parts", PARTS_TEXT)
    others, n_val = np.load(out / "train.npy"), len(np.load(out / "val.npy"))
    np.save(out / "val.npy", others[:n_val])
    with pytest.raises(ValueError, match=r"val of .* has no rows, rows of other parts"):
        Partition.load(out)
    np.save(out / "val.npy", others[: n_val - 1])
    with pytest.raises(ValueError, match=r"the index files of .* do not describe a split of the input"):
        Partition.load(out)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda features: cluster_folds(features, k=1),
            "number of folds must be an integer of at least 2, got 1",
        ),
        (lambda features: cluster_folds(features, k=2.0), "number of folds must be an integer"),
        (
            lambda features: cluster_folds(features, tolerance=0.1),
            "tolerance has no effect on folds of single rows",
        ),
        (
            lambda features: cluster_folds(features, groups=np.zeros(ROWS)),
            "1 units that stay together cannot make 5",
        ),
        (lambda features: cluster_folds(features, groups=[1, 2]), "there are 2 groups for 120 rows"),
        (lambda features: cluster_folds(features, groups="patient"), "X has no column 'patient'"),
        (
            lambda features: cluster_folds(features, groups=np.arange(ROWS), solver="cbc"),
            "solver='cbc' cannot be combined",
        ),
        (lambda features: cluster_parts(features, parts={"a": 0.5}), "at least two parts"),
        (
            lambda features: cluster_parts(features, parts=3),
            "parts must be a dictionary of names and shares, got 3",
        ),
        (
            lambda features: cluster_split(features, h=0.2, test_size=0.2),
            "h and test_size are names of one parameter",
        ),
        (
            lambda features: cluster_split(np.ma.masked_greater(features, 1.0)),
            "X has [0-9]+ masked values",
        ),
        (
            lambda features: cluster_split(features, groups=np.where(np.arange(ROWS) == 5, np.nan, 1.0)),
            "has no value in 1 rows: 5",
        ),
        (lambda features: cluster_parts(features, parts={"a": 0.5, "b": 0.4}), "add up to 0.9, not to 1"),
        (
            lambda features: cluster_parts(features, parts="a=0.5,b=0.5", force_val=[1]),
            "no part is named val",
        ),
        (
            lambda features: cluster_split(features, force_val=[120]),
            r"force_val has row positions outside 0..119: 120",
        ),
        (lambda features: cluster_split(features, force_val=[0.5]), "force_val holds float64"),
        (lambda features: cluster_split(features, force_val=[1], force_train=[1]), "forced to both sides: 1"),
        (lambda features: cluster_split(features, label_bins=3), "label_bins has no effect"),
        (
            lambda features: cluster_split(features, features[:, 0], label_bins=1),
            "label_bins must be at least 2",
        ),
        (
            lambda features: cluster_split(features, stratify=["none", "none"]),
            "stratify='none' was given twice",
        ),
        (
            lambda features: cluster_folds(features, groups=np.repeat([0, 1], [70, 50]), k=2, tolerance=0.1),
            "within tolerance=0.1 of its share; with tolerance=0.158334 there are some",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_words_of_python(
    call: Callable[[Any], Any], message: str, features: Any
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call(features)
    assert "--" not in str(caught.value)
