"""Labels that an earlier run, or another tool, gave the rows: handed to the shards, and compared there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.row_labels import NOBODY, LabelFiles, LabelsInMemory
from clustersplit_cli.data.side_files import VAL
from clustersplit_cli.engine_options import STREAM
from clustersplit_cli.engines.executor import Engine
from clustersplit_cli.engines.rules import Rule
from clustersplit_cli.engines.shard import Shard
from clustersplit_cli.engines.tasks import NOTHING

NAMED = 16
"""Rows that are named, of those that are counted."""


def give_labels(engine: Engine, files: LabelFiles | None, labels: LabelsInMemory) -> bool:
    """Give every shard the labels of its rows.

    Where all workers see the files, each reads its own part of them, and nothing that grows with the rows
    travels; else each shard is sent its own part, once. Returns whether they read them.
    """
    if files is not None and engine.name != STREAM and all(engine.run(CanRead(files))):
        engine.give(files)
        return True
    engine.give(labels)
    return False


@dataclass(frozen=True)
class CanRead:
    """Whether a shard's machine sees the very files."""

    files: LabelFiles
    label: str = "labels"

    def __call__(self, shard: Shard) -> bool:
        """Look at them."""
        return self.files.are_here


@dataclass(frozen=True)
class Claims:
    """What the labels of some rows come to.

    Attributes
    ----------
    counts : (cells, labels) rows that take part.
    missing, extra : how many rows take part without a label, or have one and take no part; the first few.
    """

    counts: NDArray[np.int64]
    n_missing: int
    missing: NDArray[np.int64]
    n_extra: int
    extra: NDArray[np.int64]


@dataclass(frozen=True)
class CountLabels:
    """Count the rows of every cell with every label."""

    n_cells: int
    n_labels: int
    label: str = "count"

    def __call__(self, shard: Shard) -> Claims:
        """Count the rows that are here."""
        counts = np.zeros((self.n_cells, self.n_labels), dtype=np.int64)
        missing = [np.empty(0, np.int64)]
        n_missing = 0
        for rows in shard.slices():
            labels = shard.labels(rows).astype(np.int64)
            fine = (labels >= 0) & (labels < self.n_labels)
            flat = shard.codes[rows].astype(np.int64)[fine] * self.n_labels + labels[fine]
            counts += np.bincount(flat, minlength=counts.size).reshape(counts.shape)
            bare = np.flatnonzero(~fine)
            n_missing += len(bare)
            if len(bare) and sum(map(len, missing)) < NAMED:
                missing.append(shard.positions(rows)[bare[:NAMED]])
        extra = np.flatnonzero(~shard.rows.kept & (shard.all_labels() != NOBODY))
        return Claims(
            counts,
            n_missing,
            np.concatenate(missing)[:NAMED],
            len(extra),
            shard.portion.groups[0].first + extra[:NAMED],
        )


def count_labels(engine: Engine, n_cells: int, n_labels: int) -> Claims:
    """Count on all shards."""
    parts = engine.run(CountLabels(n_cells, n_labels))
    return Claims(
        np.sum([part.counts for part in parts], axis=0),
        sum(part.n_missing for part in parts),
        np.concatenate([part.missing for part in parts])[:NAMED],
        sum(part.n_extra for part in parts),
        np.concatenate([part.extra for part in parts])[:NAMED],
    )


@dataclass(frozen=True)
class CountDiffering:
    """Count the rows that a rule puts on another side than their label says."""

    rule: Rule
    label: str = "count"

    def __call__(self, shard: Shard) -> int:
        """Count the rows that are here."""
        self.rule.members(shard, NOTHING)
        return sum(
            int((self.rule.members(shard, rows)[:, 0] != (shard.labels(rows) == VAL)).sum())
            for rows in shard.slices()
        )
