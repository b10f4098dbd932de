"""`verify`: results, directories and pairs of row numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersplit import Partition, Split, cluster_folds, cluster_parts, cluster_split, verify


def failed(found: Any) -> set[str]:
    assert found.passed == (not found.failures)
    return {check.name for check in found.failures}


@pytest.mark.parametrize("rerun", [False, True])
def test_results_pass(rerun: bool, data: Any, quick: Any) -> None:
    for made in (
        cluster_split(*data, **quick),
        cluster_folds(*data, k=3, **quick),
        cluster_parts(data.X, parts="a=0.5,b=0.5", groups=np.arange(90) // 2, **quick),
    ):
        found = verify(made, rerun=rerun)
        assert found.passed, found.summary()
        assert ("search again" in {check.name for check in found.checks}) == rerun
        assert "by definition" in found.summary()


def test_results_that_were_changed_fail(data: Any, quick: Any) -> None:
    split = cluster_split(*data, **quick)
    swapped = np.sort(np.append(split.val[1:], split.train[0]))
    rows = {"val": swapped, "train": np.setdiff1d(np.arange(90), swapped)}
    assert {"MMD", "objective"} <= failed(verify(replace(split, **rows)))
    other = replace(split.report, mmd=replace(split.report.mmd, value=split.report.mmd.value + 0.1))
    assert failed(verify(replace(split, report=other))) == {"MMD", "by definition"}
    folds = cluster_folds(*data, k=3, **quick)
    moved = {**folds.parts, "fold_0": folds["fold_1"], "fold_1": folds["fold_0"][1:]}
    assert "rows complete" in failed(verify(replace(folds, parts=moved)))


def test_directories_are_checked_as_the_command_does(data: Any, quick: Any, tmp_path: Path) -> None:
    split = cluster_split(*data, **quick)
    directory = split.save(tmp_path / "run")
    assert verify(directory).passed
    assert verify(str(directory), rerun=True).passed
    assert verify(Split.load(directory)).passed
    folds = cluster_folds(*data, k=3, **quick)
    assert verify(Partition.load(folds.save(tmp_path / "folds"))).passed
    rows = np.load(directory / "val.npy")
    np.save(directory / "val.npy", rows[1:])
    assert "rows complete" in failed(verify(directory))
    moved = tmp_path / "features.npy"
    (directory / "input" / "features.npy").rename(moved)
    with pytest.raises(ValueError, match="is not there any more"):
        verify(directory)
    np.save(directory / "val.npy", rows)
    assert verify(directory, features=moved).passed


def test_pairs_are_checked_against_their_rows(data: Any) -> None:
    val = np.arange(0, 90, 5)
    train = np.setdiff1d(np.arange(90), val)
    assert verify((train, val), *data).passed
    assert verify([train.tolist(), val.tolist()], data.X, test_size=0.2).passed
    assert failed(verify((train, val), *data, h=0.4)) == {"cell counts"}
    assert "sides disjoint" in failed(verify((np.append(train, 0), val), *data))
    assert failed(verify((train, val), data.X, groups=np.arange(90) // 2, tolerance=1)) == {"units whole"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], [1]), "checked against its rows; pass X"),
        (([0.5], [1]), "train has 1 dimensions of float64"),
        ("nowhere", "nowhere does not exist"),
        (3, "a int is no result with rows, no directory and no pair"),
    ],
)
def test_what_cannot_be_verified_is_said(arguments: Any, message: str, data: Any) -> None:
    given = {"X": data.X} if message.startswith("train") else {}
    with pytest.raises(ValueError, match=message):
        verify(arguments, **given)


def test_what_has_no_effect_is_refused(data: Any, quick: Any) -> None:
    split = cluster_split(*data, **quick)
    for given in ({"X": data.X}, {"h": 0.3}, {"drop_invalid": True}, {"features": "x.npy"}):
        with pytest.raises(ValueError, match=r"has no effect here|is for a directory"):
            verify(split, **given)
    with pytest.raises(ValueError, match="rerun is for results"):
        verify((split.train, split.val), data.X, rerun=True)
