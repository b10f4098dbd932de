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
from clustersplit_cli.data.row_labels import Labels
from clustersplit_cli.data.side_files import TRAIN, VAL
from clustersplit_cli.engines.executor import Engine
from clustersplit_cli.engines.samples import gather
from clustersplit_cli.engines.shard import Shard

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


def find_misplaced(engine: Engine, n: int, width: int, dtype: np.dtype[Any]) -> tuple[list[Misplaced], int]:
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
        train, val = (np.unique(np.concatenate(side)) for side in _sides(engine.run(ShortHashes(section))))
        both = np.intersect1d(train, val, assume_unique=True)
        if not len(both):
            continue
        keys, least, greatest = _merged(engine.run(Extremes(section, both)))
        wrong = np.flatnonzero(least < greatest)
        count += len(wrong)
        found = zip(least[wrong].tolist(), greatest[wrong].tolist(), keys[wrong].tolist(), strict=True)
        first = sorted([*first, *found])[:LOOKED_AT]
    sure = list(_confirmed(engine, first, width, dtype))
    where: dict[int, int] = {}
    named = np.unique(np.array([(pair.train, pair.val) for pair in sure[:LOOKED_AT]], np.int64))
    for part in engine.run(Positions(named)) if len(named) else ():
        where |= part
    told = [Misplaced(where[pair.train], where[pair.val]) for pair in sure]
    return told, count - len(first) + len(sure)


def _confirmed(
    engine: Engine, suspects: list[tuple[int, int, int]], width: int, dtype: np.dtype[Any]
) -> Iterator[Misplaced]:
    """Those pairs that are really identical; where a hash deceived, all rows that share it are compared."""
    if not suspects:
        return
    numbers = np.array([(train, val) for train, val, _ in suspects], np.int64)
    at_hand = gather(engine, {"pairs": np.unique(numbers)}, width, dtype)
    places = at_hand.places(numbers)
    same = (at_hand.raw[places[:, 0]] == at_hand.raw[places[:, 1]]).all(axis=1)
    same &= at_hand.codes[places[:, 0]] == at_hand.codes[places[:, 1]]
    for (train, val, _), is_same in zip(suspects, same.tolist(), strict=True):
        if is_same:
            yield Misplaced(train, val)
    deceived = np.array([key for (_, _, key), is_same in zip(suspects, same, strict=True) if not is_same])
    if len(deceived):
        parts = engine.run(WithHashes(deceived.astype(np.uint64)))
        every, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
        at_hand = gather(engine, {"all": every}, width, dtype)
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
