"""`--parts ...:random`: chance chooses a part, and the others are driven apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from clustersplit import cluster_parts, cluster_split
from clustersplit_cli.cli.app import run
from tests.cli.conftest import matrix

Split = Callable[..., Any]
PARTS = "train=0.6,val=0.2,test=0.2:random"
WORDS = ("feats.parquet", "--parts", PARTS, "--restarts", "2", "--force")


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "feats_split/report.json").read_text())
    return found


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--keep-together", "id", "--tolerance", "auto"),
        ("--severity", "0.5"),
        ("--force-train", "pins.txt"),
    ],
    ids=" ".join,
)
def test_the_random_part_is_marked_and_everything_verifies(
    split: Split, folder: Path, more: tuple[str, ...]
) -> None:
    (folder / "pins.txt").write_text("3\n17\n", encoding="utf-8")
    result = split(*WORDS, *more)
    assert result.code == 0, result.err
    content = report(folder)
    assert [part["drawn"] for part in content["parts"]["parts"]] == [False, False, True]
    assert content["constraints"]["all_satisfied"]
    pinned = content["constraints"]["pinned"]
    assert pinned == ({"train": 2, "val": 0, "satisfied": True} if "--force-train" in more else None)
    assert "drawn at random" in result.err


def test_chance_alone_chooses_it(split: Split, folder: Path) -> None:
    """Neither kernel nor effort have a say, the seed has; rows are as likely as others to be in it."""

    def drawn(*more: str) -> tuple[int, ...]:
        assert split(*WORDS, *more).code == 0
        return tuple(np.load(folder / "feats_split/test.npy").tolist())

    first = drawn()
    assert drawn("--kernel", "linear", "--max-iter", "3") == first
    others = [drawn("--seed", seed) for seed in "123"]
    assert len({first, *others}) == 4


def test_the_others_are_driven_apart_as_if_there_were_no_random_part(folder: Path) -> None:
    table = pq.read_table("feats.parquet")
    x, y = matrix(table), np.array(table["label"])
    common: dict[str, Any] = {"gamma": 0.25, "stratify": "label", "effort": "thorough"}
    parts = cluster_parts(x, y, parts={"train": 0.6, "val": 0.2, "test": "0.2:random"}, **common)
    rest = np.sort(np.concatenate([parts["train"], parts["val"]]))
    alone = cluster_split(x[rest], y[rest], h=0.25, **common)
    assert np.bincount(np.unique(y[parts["val"]], return_inverse=True)[1]).tolist() == (
        np.bincount(np.unique(y[rest][alone.val], return_inverse=True)[1]).tolist()
    )
    assert parts.report.parts is not None
    between = parts.report.parts.mmd[0][1]
    assert between == pytest.approx(alone.report.mmd.value, rel=0.02)
    random = cluster_parts(x, y, parts={"train": 0.6, "val": 0.2, "test": 0.2}, severity=0, **common)
    assert random.report.parts is not None
    to_rest = parts.report.parts.parts[2].mmd_rest
    assert to_rest < 1.5 * random.report.parts.parts[2].mmd_rest < parts.report.parts.parts[1].mmd_rest


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ("train=0.8,test=0.2:random", "has fewer than two parts that are not random"),
        ("train=0.6,val=0.2:random,test=0.2:random", "has fewer than two parts that are not random"),
        ("train=0.6,val=0.2,test=0.2:chance", "'chance' is no way to choose rows"),
        ("train=0.6,val=0.2,test=0.2:", "'' is no way to choose rows"),
        ("train=0.6,val=0.2,test=random", "'random' is not a number"),
    ],
)
def test_what_makes_no_sense_is_refused(split: Split, parts: str, message: str) -> None:
    result = split("feats.parquet", "--parts", parts)
    assert (result.code, message in result.err) == (2, True), result.err


def test_rows_cannot_be_forced_into_it(split: Split, folder: Path) -> None:
    (folder / "pins.txt").write_text("3\n", encoding="utf-8")
    result = split(
        *("feats.parquet", "--parts", "train=0.6,val=0.2:random,test=0.2", "--force-val", "pins.txt")
    )
    assert result.code == 2
    assert "--force-val cannot be combined with val:random" in result.err


def test_other_rows_than_the_seed_draws_are_found_out(
    split: Split, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert split(*WORDS).code == 0
    out = folder / "feats_split"
    table = pq.read_table("feats.parquet")
    cells = list(zip(table["label"].to_pylist(), table["domain"].to_pylist(), strict=True))
    test, train = (np.load(out / f"{name}.npy") for name in ("test", "train"))
    i, j = next((i, j) for i in test for j in train if cells[i] == cells[j])
    for name, rows, gone, come in (("test", test, i, j), ("train", train, j, i)):
        np.save(out / f"{name}.npy", np.sort(np.where(rows == gone, come, rows)))
    assert run(["verify", "feats_split"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "failed random parts 1 rows that the seed draws for test are elsewhere" in said
