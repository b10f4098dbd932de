"""Index files from one byte per row are those from lists of rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clustersplit_cli.data.runs import part_file, read_indices
from clustersplit_cli.data.side_files import (
    DROPPED,
    EXCLUDED,
    TRAIN,
    VAL,
    SideNames,
    write_sides,
)
from clustersplit_cli.data.writers import FORMATS, write_run

SIDES = (
    np.random.default_rng(0)
    .choice([TRAIN, VAL, EXCLUDED, DROPPED], 5000, p=[0.7, 0.2, 0.07, 0.03])
    .astype(np.uint8)
)
REPORT = '{"schema_version": 1}\n'


def test_every_format_holds_the_same_rows_as_from_a_list(tmp_path: Path) -> None:
    parts = {"train": np.flatnonzero(SIDES == TRAIN), "val": np.flatnonzero(SIDES == VAL)}
    write_run(tmp_path / "list", parts=parts, report=REPORT, formats=FORMATS)
    paths = write_sides(tmp_path / "sides", SIDES, report=REPORT, formats=FORMATS)
    assert {path.name for path in paths} == {path.name for path in (tmp_path / "list").iterdir()}
    for suffix in FORMATS:
        for part in parts:
            mine, theirs = (part_file(tmp_path / folder, part, suffix) for folder in ("sides", "list"))
            np.testing.assert_array_equal(read_indices(mine, part), read_indices(theirs, part))
            if suffix != "parquet":  # whose row groups depend on how it was written
                assert mine.read_bytes() == theirs.read_bytes()


def test_folds_hold_the_same_rows_as_from_lists(tmp_path: Path) -> None:
    names = ("fold_0", "fold_1")
    mine = write_sides(tmp_path / "mine", SIDES, report=REPORT, formats=FORMATS, parts=names, are_folds=True)
    rows = [np.flatnonzero(fold == SIDES) for fold in range(2)]
    theirs = write_run(
        tmp_path / "theirs",
        parts={
            f"{name}/{side}": rows[(fold + (side == "train")) % 2]
            for fold, name in enumerate(names)
            for side in ("train", "val")
        },
        report=REPORT,
        formats=FORMATS,
        vectors={"folds": np.where(SIDES < EXCLUDED, SIDES.astype(np.int64), -1)},
    )
    assert {path.relative_to(tmp_path / "mine") for path in mine} == {
        path.relative_to(tmp_path / "theirs") for path in theirs
    }
    for path in (path for path in mine if path.suffix in (".npy", ".txt")):
        assert path.read_bytes() == (tmp_path / "theirs" / path.relative_to(tmp_path / "mine")).read_bytes()


def test_a_side_without_rows_is_an_empty_file(tmp_path: Path) -> None:
    write_sides(tmp_path / "run", np.full(4, TRAIN, np.uint8), report=REPORT, formats=FORMATS)
    assert (tmp_path / "run" / "val.txt").read_bytes() == b""
    assert len(np.load(tmp_path / "run" / "val.npy")) == 0


def test_names_are_spelled_where_they_are_looked_at() -> None:
    names = SideNames(SIDES)
    assert len(names) == 5000
    np.testing.assert_array_equal(names[10:20] == "dropped", SIDES[10:20] == DROPPED)
