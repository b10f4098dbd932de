"""What is asked of a shard once its rows' sides are settled: ties, ranks, sides, files and accounts."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.assignment.thresholds import Keys
from clustersplit_cli.core.duplicates import row_identity_keys
from clustersplit_cli.data.destination import output_error
from clustersplit_cli.data.side_files import DROPPED, EXCLUDED, TRAIN, VAL, write_row_sides
from clustersplit_cli.engines.rules import ByThreshold, Rule
from clustersplit_cli.engines.shard import Account, Shard
from clustersplit_cli.engines.tasks import NOTHING
from clustersplit_cli.errors import OutputError


@dataclass(frozen=True)
class NearThreshold:
    """Rows within a distance of their cell's threshold, where such rows are on both sides of it."""

    rule: ByThreshold
    low: Keys
    high: Keys
    label: str = "ties"

    def __call__(self, shard: Shard) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Their numbers, cells and sides."""
        self.rule.members(shard, NOTHING)
        column = self.rule.column or 0

        def one(rows: slice) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
            codes = shard.codes[rows]
            key = self.rule.source.keys(shard, rows)[:, column]
            near = np.flatnonzero((key >= self.low[codes]) & (key <= self.high[codes]))
            sides = self.rule.members(shard, rows)[near, 0]
            return shard.numbers(rows)[near], codes[near].astype(np.int64), sides

        parts = list(shard.workers.map(one, shard.slices()))
        if not parts:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, bool)
        numbers, cells, sides = (np.concatenate(part) for part in zip(*parts, strict=True))
        return numbers, cells, sides


@dataclass(frozen=True)
class Identities:
    """Numbers that equal rows share, for some rows."""

    wanted: NDArray[np.int64]
    label: str = "ties"

    def __call__(self, shard: Shard) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Places in `wanted` of the rows that are here, and their numbers."""
        places, rows = shard.gather(self.wanted)
        return places, row_identity_keys(rows)


@dataclass(frozen=True)
class Ranked:
    """The numbers of validation and training rows by their rank, counted from this shard's first."""

    rule: Rule
    ranks: tuple[tuple[NDArray[np.int64], ...], ...]
    label: str = "subsample"

    def __call__(self, shard: Shard) -> tuple[NDArray[np.int64], ...]:
        """Numbers of the ranks that are given for this shard, for both sides."""
        self.rule.members(shard, NOTHING)
        mine = self.ranks[shard.portion.number]
        found: list[list[NDArray[np.int64]]] = [[], []]
        seen = [0, 0]
        for rows in shard.slices():
            members = self.rule.members(shard, rows)[:, 0]
            numbers = shard.numbers(rows)
            for side, here in enumerate((numbers[members], numbers[~members])):
                ranks = mine[side] - seen[side]
                found[side].append(here[ranks[(ranks >= 0) & (ranks < len(here))]])
                seen[side] += len(here)
        return tuple(np.concatenate([np.empty(0, np.int64), *parts]) for parts in found)


@dataclass(frozen=True)
class CountSides:
    """How many rows of a shard go to each side: validation, training."""

    rule: Rule
    label: str = "count"

    def __call__(self, shard: Shard) -> tuple[int, int]:
        """Count."""
        self.rule.members(shard, NOTHING)
        n_val = sum(int(self.rule.members(shard, rows)[:, 0].sum()) for rows in shard.slices())
        return n_val, shard.n_kept - n_val


@dataclass(frozen=True)
class Sides:
    """The side of every row of the input: a byte each, for index files."""

    rule: Rule
    label: str = "write"

    def __call__(self, shard: Shard) -> NDArray[np.uint8]:
        """Shape (rows before any are left out,)."""
        self.rule.members(shard, NOTHING)
        sides = np.full(shard.portion.n_rows, EXCLUDED, dtype=np.uint8)
        sides[shard.rows.dropped] = DROPPED
        kept = np.empty(shard.n_kept, dtype=np.uint8)
        for rows in shard.slices():
            kept[rows] = np.where(self.rule.members(shard, rows)[:, 0], VAL, TRAIN)
        sides[shard.rows.kept] = kept
        return sides


@dataclass(frozen=True)
class WriteRows:
    """Write the side of every row into a folder that whoever has the rows can reach."""

    rule: Rule
    folder: Path
    label: str = "write"

    def __call__(self, shard: Shard) -> str:
        """Write this shard's part; return the file's name."""
        sides = Sides(self.rule)(shard)
        first = shard.portion.start
        try:
            return write_row_sides(self.folder, shard.portion.number, first, sides)
        except OSError as error:
            where = f"{self.folder} on {platform.node()}"
            problem = output_error(where, error)
            raise OutputError(
                problem.message, hint="choose an --out that is on a file system all workers share"
            ) from error


@dataclass(frozen=True)
class Accounts:
    """What the passes so far took."""

    label: str = "account"

    def __call__(self, shard: Shard) -> tuple[Account, str | None, int]:
        """The account, where factors are kept, and their bytes."""
        return shard.account, shard.place, shard.stored_bytes
