"""Some row groups of a dataset, and the passes over them; one machine has one shard, a cluster many.

Nothing in a shard is more than a copy: what it holds follows from the files and from what it is told, so
that a shard that is lost can be made again elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.duplicates import row_identity_keys
from clustersplit_cli.core.geometry.features import Floats, Step
from clustersplit_cli.core.parallel import Workers, tiles
from clustersplit_cli.data.readers.naming import as_url
from clustersplit_cli.data.row_groups import Batch, Layout, RowGroup, read_batches, read_pieces
from clustersplit_cli.data.row_labels import Labels, RowLabels
from clustersplit_cli.engines.factors import FactorPlan, Numbering
from clustersplit_cli.engines.plan import SLICE_ROWS
from clustersplit_cli.engines.store import SPILL, Room, Store, read_ahead
from clustersplit_cli.engines.survey import Found, ShardRows, Surveyor

SUM_ROWS = 2048
CONVERTED_ROWS = 256


@dataclass(frozen=True)
class Portion:
    """What a shard is made from: its number, the dataset, its rows, and the row groups that they are in.

    Attributes
    ----------
    start, stop : its rows before any are left out; `start` begins a batch.
    """

    number: int
    layout: Layout
    groups: tuple[RowGroup, ...]
    start: int
    stop: int

    @property
    def n_rows(self) -> int:
        """Rows before any are left out."""
        return self.stop - self.start


@dataclass
class Account:
    """Bytes that were read, and how many times all rows were gone through."""

    source_bytes: int = 0
    spill_bytes: int = 0
    passes: int = 0


def _unheard(rows: int) -> None:
    """Nobody listens."""


@dataclass
class Shard:
    """The rows of a portion, ready for passes over them."""

    portion: Portion
    room: Room
    workers: Workers
    numbering: Numbering | None = None
    plan: FactorPlan | None = None
    row_labels: RowLabels | None = None
    edition: int = 0
    on_rows: Callable[[int], None] = _unheard
    account: Account = field(default_factory=Account)
    _rows: ShardRows | None = None
    _store: Store | None = None
    _codes: NDArray[np.integer[Any]] | None = None
    _scored: tuple[bytes, NDArray[np.float64]] | None = None
    _labels: Labels | None = None
    _identities: NDArray[np.uint64] | None = None

    def survey(self, shift: NDArray[np.float64] | None, steps: tuple[Step, ...] = ()) -> Found:
        """Look at all rows for the first time, or anew; without a shift, not at the columns' statistics."""
        self.close()
        self._store = self._codes = self._scored = self._labels = self._identities = None
        surveyor = Surveyor(self.portion.layout, shift, steps, self.workers)
        layout = self.portion.layout
        names = [
            *layout.features.names,
            *layout.family.values(),
            *(column for _, column, _ in layout.exclude),
        ]
        for batch, raw in self._read(tuple(dict.fromkeys(names))):
            surveyor.take(batch, raw)
            self.on_rows(batch.n_rows)
        self._rows = surveyor.rows()
        self.account.passes += 1
        return surveyor.found

    @property
    def rows(self) -> ShardRows:
        """Which rows take part, and their cells."""
        if self._rows is None:  # this shard replaces one that was lost
            self.survey(None)
            assert self._rows is not None
        return self._rows

    @property
    def n_kept(self) -> int:
        """Rows that take part."""
        return len(self.rows.codes)

    @property
    def offset(self) -> int:
        """The number of its first row among all that take part."""
        assert self.numbering is not None
        return self.numbering.offsets[self.portion.number]

    @property
    def codes(self) -> NDArray[np.integer[Any]]:
        """The cell of every row."""
        if self._codes is None:
            assert self.numbering is not None
            numbers = [self.numbering.cells.get(cell, -1) for cell in self.rows.cells] or [0]
            small = np.min_scalar_type(-len(self.numbering.cells))
            self._codes = np.array(numbers, dtype=small)[self.rows.codes]
        return self._codes

    def give(self, labels: RowLabels) -> None:
        """Take labels of its rows, in place of earlier ones."""
        self.row_labels, self._labels = labels, None

    def all_labels(self) -> Labels:
        """The labels it was given, of all its rows, before any are left out."""
        assert self.row_labels is not None
        return self.row_labels.of(self.portion.start, self.portion.n_rows)

    def labels(self, rows: slice) -> Labels:
        """The labels of some rows that take part."""
        if self._labels is None:
            every, kept = self.all_labels(), self.rows.kept
            self._labels = every if kept.all() else every[kept]
        return self._labels[rows]

    def slices(self) -> list[slice]:
        """The rows in pieces, for work that needs no factors."""
        return [slice(*piece) for piece in tiles(self.n_kept, SLICE_ROWS)]

    def numbers(self, rows: slice) -> NDArray[np.int64]:
        """The numbers of some rows among all that take part."""
        return np.arange(self.offset + rows.start, self.offset + rows.stop)

    def positions(self, rows: slice) -> NDArray[np.int64]:
        """Where some rows are in the dataset."""
        found = [np.empty(0, np.int64)]
        done = 0
        for (start, stop), (first, size) in zip(self.rows.extents, self._batches(), strict=True):
            if start < rows.stop and stop > rows.start:
                kept = np.flatnonzero(self.rows.kept[done : done + size])
                found.append(first + kept[max(rows.start - start, 0) : rows.stop - start])
            done += size
        return np.concatenate(found)

    def identities(self) -> NDArray[np.uint64]:
        """A number for every row that equal rows of a cell share, and others hardly ever do.

        They take the place of the witnesses, so that a shard holds no more than before.
        """
        if self._identities is None:
            self._scored = None
            found = np.empty(self.n_kept, np.uint64)
            for rows, raw in self.raw_blocks():
                of_cells = row_identity_keys(self.codes[rows].astype(np.float64)[:, None])

                def one(tile: tuple[int, int], raw: Floats = raw) -> NDArray[np.uint64]:
                    return row_identity_keys(raw[slice(*tile)])

                keys = np.concatenate(list(self.workers.map(one, tiles(len(raw), SUM_ROWS))))
                found[rows] = keys ^ of_cells
                self.on_rows(len(raw))
            self._identities = found
        return self._identities

    def raw_blocks(self) -> Iterator[tuple[slice, Floats]]:
        """The rows that take part, from the source, in pieces that are the same on every pass."""
        done = 0
        reading = self._read(self.portion.layout.features.names)
        for (start, stop), (batch, raw) in zip(self.rows.extents, reading, strict=True):
            keep = self.rows.kept[done : done + batch.n_rows]
            done += batch.n_rows
            if stop > start:
                yield slice(start, stop), raw if keep.all() else raw[keep]

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """What is kept of all rows, in pieces that are the same on every pass."""
        assert self.plan is not None
        if self._store is None:
            self._store = Store(self.n_kept, self.plan.width, self.plan.stored, self.room)
        self.account.passes += 1
        yield from (
            self._kept_blocks(self._store) if self._store.is_complete else self._made_blocks(self._store)
        )

    def scores(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """F @ weights, of shape (n, r); the last answer is kept."""
        digest = hashlib.sha256(np.ascontiguousarray(weights).tobytes()).digest()
        if self._scored is not None and self._scored[0] == digest:
            return self._scored[1]
        plan = self.plan
        assert plan is not None
        result = np.empty((self.n_kept, weights.shape[1]))
        self._scored = None
        for rows, block in self.blocks():
            into = result[rows]

            def one(tile: tuple[int, int], block: Floats = block, into: NDArray[np.float64] = into) -> None:
                into[slice(*tile)] = plan.factors(block[slice(*tile)]) @ weights

            for _ in self.workers.map(one, tiles(len(block), CONVERTED_ROWS)):
                pass
            self.on_rows(len(block))
        self._scored = (digest, result)
        return result

    def gather(self, wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
        """Raw rows by their numbers, ascending: those wanted that are here, and their places in `wanted`."""
        layout = self.portion.layout
        places = np.flatnonzero((wanted >= self.offset) & (wanted < self.offset + self.n_kept))
        rows = self.portion.start + np.flatnonzero(self.rows.kept)[wanted[places] - self.offset]
        result: Floats = np.empty((len(rows), layout.width), layout.features.dtype)
        firsts = np.array([group.first for group in self.portion.groups])
        needed = np.unique(np.searchsorted(firsts, rows, side="right") - 1).tolist()
        groups = tuple(self.portion.groups[group] for group in needed)
        for piece in read_ahead(read_pieces(layout, groups, layout.features.names)):
            begin, end = np.searchsorted(rows, [piece.first, piece.first + piece.n_rows])
            if begin < end:
                raw = piece.features()
                self.account.source_bytes += raw.nbytes
                result[begin:end] = raw[rows[begin:end] - piece.first]
            self.on_rows(piece.n_rows)
        return places, result

    def _batches(self) -> Iterator[tuple[int, int]]:
        """First row and size of every batch, in the order in which they are read."""
        start, height = self.portion.start, self.portion.layout.batch_rows
        for first, last in tiles(self.portion.n_rows, height):
            yield start + first, last - first

    def _read(self, names: tuple[str, ...]) -> Iterator[tuple[Batch, Floats]]:
        """Batches and their features, read and decoded in the background."""
        portion = self.portion

        def decoded() -> Iterator[tuple[Batch, Floats]]:
            for batch in read_batches(portion.layout, portion.groups, names, portion.start, portion.stop):
                yield batch, batch.features()

        for batch, raw in read_ahead(decoded()):
            self.account.source_bytes += raw.nbytes
            yield batch, raw

    def _made_blocks(self, store: Store) -> Iterator[tuple[slice, Floats]]:
        """Make the blocks from the source, keeping them if there is room."""
        assert self.plan is not None
        for rows, raw in self.raw_blocks():
            block = self.plan.to_store(raw, self.workers)
            store.write(rows.start, block)
            yield rows, block
        store.is_complete = store.keeps

    def _kept_blocks(self, store: Store) -> Iterator[tuple[slice, Floats]]:
        def read() -> Iterator[tuple[slice, Floats]]:
            for start, stop in self.rows.extents:
                if stop > start:
                    yield slice(start, stop), store.read(start, stop)

        if store.place != SPILL:
            yield from read()
            return
        for rows, block in read_ahead(read()):
            self.account.spill_bytes += block.nbytes
            yield rows, block

    def close(self) -> None:
        """Give back what is kept."""
        if self._store is not None:
            self._store.close()

    @property
    def place(self) -> str | None:
        """Where factors are kept; None before the first pass."""
        return None if self._store is None else self._store.place

    @property
    def stored_bytes(self) -> int:
        """Bytes of factors that are kept."""
        return self._store.bytes if self._store is not None and self._store.keeps else 0


def portions(layout: Layout, count: int) -> list[Portion]:
    """Cut the dataset into at most `count` portions of neighbouring rows, about equal.

    Batches are the same whatever the portions are. So a portion ends with the batch in which a row group
    ends, and the next one skips the rows of that batch.
    """
    cuts, height = [0], layout.batch_rows
    share = layout.n_rows / max(1, min(count, len(layout.groups)))
    for group in layout.groups:
        if group.first > cuts[-1] and group.first + group.n_rows / 2 > share * len(cuts):
            cuts.append(-(-group.first // height) * height)
    cuts = [cut for cut in dict.fromkeys(cuts) if cut < layout.n_rows]
    return [portion_of(layout, number, *span) for number, span in enumerate(pairwise([*cuts, layout.n_rows]))]


def portion_of(layout: Layout, number: int, start: int, stop: int) -> Portion:
    """The portion of some rows."""
    groups = [group for group in layout.groups if group.first < stop and group.first + group.n_rows > start]
    return Portion(number, layout, tuple(groups), start, stop)


def without_others(portion: Portion) -> Portion:
    """The same portion with nothing of the dataset but its own row groups, to be sent elsewhere.

    A worker is seldom in the folder in which the command was given: paths are whole.
    """
    groups = tuple(
        group if as_url(group.path) else replace(group, path=group.path.absolute())
        for group in portion.groups
    )
    return replace(portion, groups=groups, layout=replace(portion.layout, groups=(), stamps=()))
