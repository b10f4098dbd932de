"""Are the lowest of identical rows in validation? Without all rows in one place, by hashes of them.

Equal rows may be anywhere, so that no answer that is certain gets by without a few bits of every row: 32 bits
of a hash go to the client, a bounded number of rows at a time. Only hashes that both sides have are looked at
again, with all 64 bits, and what looks misplaced is compared value by value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.mmd.definition import ROWS, Definition, Matrix, SpelledKernel, from_sums
from clustersplit_cli.core.parallel import tiles
from clustersplit_cli.data.row_labels import NOBODY, LabelFiles, Labels, LabelsInMemory
from clustersplit_cli.data.side_files import TRAIN, VAL
from clustersplit_cli.engines.executor import Executor
from clustersplit_cli.engines.options import STREAM
from clustersplit_cli.engines.rules import Rule
from clustersplit_cli.engines.samples import gather
from clustersplit_cli.engines.shard import Shard
from clustersplit_cli.engines.tasks import NOTHING

ROWS_AT_ONCE = 1 << 22
LOOKED_AT = 64
"""Misplaced rows that are compared value by value; more are only counted."""
_NEVER = np.iinfo(np.int64).max
Hashes = NDArray[np.uint64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Misplaced:
    """A row in training, and a later one that is identical, of the same cell, and in validation."""

    train: int
    val: int


@dataclass(frozen=True)
class Section:
    """One of `count` equal shares of all hashes."""

    number: int
    count: int

    def pieces(self, shard: Shard) -> Iterator[tuple[Hashes, Numbers, Labels]]:
        """Hashes, numbers and labels of the rows in it."""
        identities = shard.identities()
        for rows in shard.slices():
            keys = identities[rows]
            here = np.flatnonzero(keys % np.uint64(self.count) == np.uint64(self.number))
            yield keys[here], shard.numbers(rows)[here], shard.labels(rows)[here]


def _short(keys: Hashes) -> NDArray[np.uint32]:
    """Half of a hash: not the half that sections go by."""
    return np.asarray(keys >> np.uint64(32), dtype=np.uint32)


@dataclass(frozen=True)
class ShortHashes:
    """Half of the hashes that each side has in a section, each once."""

    section: Section
    label: str = "identical"

    def __call__(self, shard: Shard) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Those of training and of validation."""
        found: list[list[NDArray[np.uint32]]] = [[], []]
        for keys, _, labels in self.section.pieces(shard):
            for side in (TRAIN, VAL):
                found[side].append(np.unique(_short(keys[labels == side])))
        train, val = (np.unique(np.concatenate([np.empty(0, np.uint32), *side])) for side in found)
        return train, val


@dataclass(frozen=True)
class Extremes:
    """For every hash that both sides may have: the first row in training, and the last in validation."""

    section: Section
    wanted: NDArray[np.uint32]
    label: str = "identical"

    def __call__(self, shard: Shard) -> tuple[Hashes, Numbers, Numbers]:
        """Hashes, ascending, and the two numbers; where there is none, one that makes no pair."""
        found = [(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))]
        for keys, numbers, labels in self.section.pieces(shard):
            here = np.isin(_short(keys), self.wanted)
            first = np.where(labels == TRAIN, numbers, _NEVER)[here]
            last = np.where(labels == VAL, numbers, -1)[here]
            found.append(_merged([(keys[here], first, last)]))
        return _merged(found)


@dataclass(frozen=True)
class WithHashes:
    """The numbers of all rows with some hashes, and their labels."""

    wanted: Hashes
    label: str = "identical"

    def __call__(self, shard: Shard) -> tuple[Numbers, Labels]:
        """Those that are here."""
        numbers, labels = [np.empty(0, np.int64)], [np.empty(0, np.int8)]
        identities = shard.identities()
        for rows in shard.slices():
            here = np.flatnonzero(np.isin(identities[rows], self.wanted))
            numbers.append(shard.numbers(rows)[here])
            labels.append(shard.labels(rows)[here])
        return np.concatenate(numbers), np.concatenate(labels)


@dataclass(frozen=True)
class Positions:
    """Where in the dataset a few rows are."""

    wanted: Numbers
    label: str = "identical"

    def __call__(self, shard: Shard) -> dict[int, int]:
        """Positions by number, of those that are here."""
        local = [n - shard.offset for n in self.wanted.tolist() if 0 <= n - shard.offset < shard.n_kept]
        return {shard.offset + n: int(shard.positions(slice(n, n + 1))[0]) for n in local}


def find_misplaced(
    executor: Executor, n: int, width: int, dtype: np.dtype[Any]
) -> tuple[list[Misplaced], int]:
    """Find rows in training before an identical one of their cell in validation.

    Returns
    -------
    The first of them, compared value by value, by their positions in the dataset; and how many there are.
    """
    sections = max(1, -(-n // ROWS_AT_ONCE))
    first: list[tuple[int, int, int]] = []
    count = 0
    for number in range(sections):
        section = Section(number, sections)
        train, val = (np.unique(np.concatenate(side)) for side in _sides(executor.run(ShortHashes(section))))
        both = np.intersect1d(train, val, assume_unique=True)
        if not len(both):
            continue
        keys, least, greatest = _merged(executor.run(Extremes(section, both)))
        wrong = np.flatnonzero(least < greatest)
        count += len(wrong)
        found = zip(least[wrong].tolist(), greatest[wrong].tolist(), keys[wrong].tolist(), strict=True)
        first = sorted([*first, *found])[:LOOKED_AT]
    sure = list(_confirmed(executor, first, width, dtype))
    where: dict[int, int] = {}
    named = np.unique(np.array([(pair.train, pair.val) for pair in sure[:LOOKED_AT]], np.int64))
    for part in executor.run(Positions(named)) if len(named) else ():
        where |= part
    told = [Misplaced(where[pair.train], where[pair.val]) for pair in sure]
    return told, count - len(first) + len(sure)


def _confirmed(
    executor: Executor, suspects: list[tuple[int, int, int]], width: int, dtype: np.dtype[Any]
) -> Iterator[Misplaced]:
    """Those pairs that are really identical; where a hash deceived, all rows that share it are compared."""
    if not suspects:
        return
    numbers = np.array([(train, val) for train, val, _ in suspects], np.int64)
    at_hand = gather(executor, {"pairs": np.unique(numbers)}, width, dtype)
    places = at_hand.places(numbers)
    same = (at_hand.raw[places[:, 0]] == at_hand.raw[places[:, 1]]).all(axis=1)
    same &= at_hand.codes[places[:, 0]] == at_hand.codes[places[:, 1]]
    for (train, val, _), is_same in zip(suspects, same.tolist(), strict=True):
        if is_same:
            yield Misplaced(train, val)
    deceived = np.array([key for (_, _, key), is_same in zip(suspects, same, strict=True) if not is_same])
    if len(deceived):
        parts = executor.run(WithHashes(deceived.astype(np.uint64)))
        every, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
        at_hand = gather(executor, {"all": every}, width, dtype)
        yield from _compared(at_hand.raw, at_hand.codes, every, labels)


def _compared(raw: Floats, codes: NDArray[np.int64], numbers: Numbers, labels: Labels) -> Iterator[Misplaced]:
    """Compare rows in memory; numbers ascend."""
    groups: dict[tuple[int, bytes], list[int]] = {}
    for place, row in enumerate(raw + raw.dtype.type(0)):  # -0.0 equals 0.0
        groups.setdefault((int(codes[place]), row.tobytes()), []).append(place)
    for places in groups.values():
        train = [int(numbers[place]) for place in places if labels[place] == TRAIN]
        val = [int(numbers[place]) for place in places if labels[place] == VAL]
        if train and val and train[0] < val[-1]:
            yield Misplaced(train[0], val[-1])


def _merged(parts: list[tuple[Hashes, Numbers, Numbers]]) -> tuple[Hashes, Numbers, Numbers]:
    """Every hash once, with the least of the first numbers and the greatest of the second."""
    keys, first, last = (np.concatenate(column) for column in zip(*parts, strict=True))
    found, inverse = np.unique(keys, return_inverse=True)
    least, greatest = np.full(len(found), _NEVER), np.full(len(found), -1)
    np.minimum.at(least, inverse.reshape(-1), first)
    np.maximum.at(greatest, inverse.reshape(-1), last)
    return found, least, greatest


def _sides(parts: list[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    return [train for train, _ in parts], [val for _, val in parts]


NAMED = 16
"""Rows that are named, of those that are counted."""


def give_labels(executor: Executor, files: LabelFiles | None, labels: LabelsInMemory) -> bool:
    """Give every shard the labels of its rows.

    Where all workers see the files, each reads its own part of them, and nothing that grows with the rows
    travels; else each shard is sent its own part, once. Returns whether they read them.
    """
    if files is not None and executor.name != STREAM and all(executor.run(CanRead(files))):
        executor.give(files)
        return True
    executor.give(labels)
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
class LabelCounts:
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

    def __call__(self, shard: Shard) -> LabelCounts:
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
        return LabelCounts(
            counts,
            n_missing,
            np.concatenate(missing)[:NAMED],
            len(extra),
            shard.portion.start + extra[:NAMED],
        )


def count_labels(executor: Executor, n_cells: int, n_labels: int) -> LabelCounts:
    """Count on all shards."""
    parts = executor.run(CountLabels(n_cells, n_labels))
    return LabelCounts(
        np.sum([part.counts for part in parts], axis=0),
        sum(part.n_missing for part in parts),
        np.concatenate([part.missing for part in parts])[:NAMED],
        sum(part.n_extra for part in parts),
        np.concatenate([part.extra for part in parts])[:NAMED],
    )


@dataclass(frozen=True)
class FindDiffering:
    """Find the rows that a rule puts on another side, or into another part, than their label says."""

    rule: Rule
    label: str = "count"

    def __call__(self, shard: Shard) -> tuple[int, NDArray[np.int64]]:
        """Count the rows that are here, and name the first of them."""
        self.rule.parts(shard, NOTHING)
        count, named = 0, [np.empty(0, np.int64)]
        for rows in shard.slices():
            here = np.flatnonzero(self.rule.parts(shard, rows) != shard.labels(rows))
            if len(here) and count < NAMED:
                named.append(shard.positions(rows)[here[:NAMED]])
            count += len(here)
        return count, np.concatenate(named)[:NAMED]


@dataclass(frozen=True)
class SumByDefinition:
    """Sums over the rows: of their kernel with the landmarks, or of the rows where the kernel is linear.

    Attributes
    ----------
    k : number of parts.
    shift : subtracted from all rows, so that less is lost to rounding.
    landmarks : (q, d) prepared and shifted; None for linear kernels.
    """

    k: int
    spelled: SpelledKernel
    shift: Matrix
    landmarks: Matrix | None
    label: str = "definition"

    def __call__(self, shard: Shard) -> tuple[Matrix, float]:
        """Sums over the rows of every part, of shape (k, p), and of squared lengths."""
        width = len(self.shift) if self.landmarks is None else len(self.landmarks)
        sums, squares = np.zeros((self.k, width)), 0.0
        for rows, raw in shard.raw_blocks():
            chosen = (shard.labels(rows) == np.arange(self.k)[:, None]).astype(np.float64)

            def one(
                tile: tuple[int, int], raw: Floats = raw, chosen: NDArray[np.float64] = chosen
            ) -> tuple[Matrix, float]:
                block = self.spelled.rows(raw[slice(*tile)]) - self.shift
                if self.landmarks is not None:
                    block = self.spelled.values(block, self.landmarks)
                return chosen[:, slice(*tile)] @ block, float((block**2).sum())

            for part, square in shard.workers.map(one, tiles(len(raw), ROWS)):
                sums += part
                squares += square
            shard.on_rows(len(raw))
        return sums, squares


def define_linear(
    executor: Executor, spelled: SpelledKernel, shift: Matrix, sizes: NDArray[np.int64]
) -> Definition:
    """Measure the labelled parts, of these sizes, where the kernel is an inner product."""
    found = executor.run(SumByDefinition(len(sizes), spelled, shift, None))
    sums = np.sum([part for part, _ in found], axis=0)
    return from_sums(sums, sizes, sum(square for _, square in found))


def define_nystrom(
    executor: Executor,
    spelled: SpelledKernel,
    shift: Matrix,
    sizes: NDArray[np.int64],
    landmarks: Floats,
    traced: Floats,
) -> Definition:
    """Measure them under the Nyström kernel.

    Parameters
    ----------
    landmarks : raw rows.
    traced : the raw rows that the trace is estimated from.
    """
    centres = spelled.rows(landmarks) - shift
    mixing = spelled.mixing(centres, landmarks.dtype)
    found = executor.run(SumByDefinition(len(sizes), spelled, shift, centres))
    sums = np.sum([part for part, _ in found], axis=0) @ mixing
    squares = 0.0
    for tile in tiles(len(traced), ROWS):
        rows = spelled.rows(traced[slice(*tile)]) - shift
        squares += float(((spelled.values(rows, centres) @ mixing) ** 2).sum())
    return from_sums(sums, sizes, squares * float(sizes.sum()) / len(traced))
