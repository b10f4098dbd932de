"""Local search past a fixed point of Lloyd: swap rows of a cell, or move single rows within bounds.

Swapping i in V with j in T of the same cell lowers Psi by `2 (p_j + m_i - c K_ij)`, where
`c = 1/|V| + 1/|T|`, `p_j = s_j + c K_jj / 2` and `m_i = -s_i + c K_ii / 2` (s is the witness). Since K_ij
is bounded from below, only rows near their cell's threshold can take part in a gain. Those are
the candidates, and their kernel block is all it takes to follow any number of swaps exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from clustersplit_cli.core.constraints.cells import Cells, Labels
from clustersplit_cli.core.constraints.quotas import Quotas, ValidationQuotas
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.geometry.protocol import Geometry
from clustersplit_cli.core.search.partition import State, measure, remeasure
from clustersplit_cli.core.search.problem import SMALL, Members, Problem
from clustersplit_cli.progress import Progress, silent

MAX_CANDIDATES = 2000
MAX_SWEEPS = 1000
RELATIVE_GAIN = 1e-12
"""Gains below this share of the total scatter are rounding, not progress."""
WORTHWHILE = 1e-6
"""On many rows an exchange of rows between parts gains more than this share of a row's mean scatter."""


@dataclass
class _Sides:
    """A split seen from some of its rows: all arrays are over those rows, the sums are over everything.

    `to_val` and `to_train` are K 1_V and K 1_T; `inside_val` and `inside_train` are 1_V'K1_V and 1_T'K1_T;
    `counts` are the validation rows per cell.
    """

    codes: NDArray[np.int64]
    in_val: NDArray[np.bool_]
    to_val: NDArray[np.float64]
    to_train: NDArray[np.float64]
    diagonal: NDArray[np.float64]
    n_val: int
    n_train: int
    inside_val: float
    inside_train: float
    counts: NDArray[np.int64]

    def flip(self, row: int, column: NDArray[np.float64]) -> None:
        """Move one row to the other side; `column` holds its kernel values with these rows."""
        sign = -1 if self.in_val[row] else 1
        own = float(self.diagonal[row])
        self.inside_val += sign * 2 * float(self.to_val[row]) + own
        self.inside_train -= sign * 2 * float(self.to_train[row]) - own
        self.to_val += sign * column
        self.to_train -= sign * column
        self.n_val += sign
        self.n_train -= sign
        self.counts[self.codes[row]] += sign
        self.in_val[row] = not self.in_val[row]

    def swap_parts(self) -> tuple[NDArray[np.float64], float]:
        """Return m on validation rows and p on training rows, as one array, and c."""
        c = 1.0 / self.n_val + 1.0 / self.n_train
        witness = self.to_val / self.n_val - self.to_train / self.n_train
        return np.where(self.in_val, -witness, witness) + 0.5 * c * self.diagonal, c

    def swap_gain(self, out: int, into: int, between: float) -> float:
        """The fall in Psi if `out` left the validation side for `into`; `between` is their kernel value."""
        c = 1.0 / self.n_val + 1.0 / self.n_train
        rise = (self.to_val[into] - self.to_val[out]) / self.n_val
        rise -= (self.to_train[into] - self.to_train[out]) / self.n_train
        return float(2.0 * (rise + c * (0.5 * (self.diagonal[into] + self.diagonal[out]) - between)))

    def move_gains(self, limits: ValidationQuotas) -> NDArray[np.float64]:
        """The fall in Psi if each row alone changed sides; -inf where the bounds forbid it."""
        sign = np.where(self.in_val, -1.0, 1.0)
        room = np.where(
            self.in_val,
            (self.counts > limits.lower)[self.codes] & (self.n_val > 1),
            (self.counts < limits.upper)[self.codes] & (self.n_train > 1),
        )
        val = self.inside_val + sign * 2.0 * self.to_val + self.diagonal
        train = self.inside_train - sign * 2.0 * self.to_train + self.diagonal
        before = self.inside_val / self.n_val + self.inside_train / self.n_train
        after_val = val / np.maximum(self.n_val + sign, 1)
        after_train = train / np.maximum(self.n_train - sign, 1)
        return np.where(room, after_val + after_train - before, -np.inf)


@dataclass(frozen=True)
class Polished:
    """A split that no candidate exchange improves; `changes` counts the exchanges made."""

    members: Members
    changes: int


def polish(
    problem: Problem,
    members: Members,
    witness: NDArray[np.floating],
    *,
    among: NDArray[np.int64] | None = None,
) -> Polished:
    """Exchange rows until no exchange among the candidates lowers Psi.

    Parameters
    ----------
    members : (n,)
    witness : (n,), K z of that split; in float32 it is good enough to find exchanges, not to rule them out.
    among : rows, ascending, among which all are that can take part in a gain, if that is known; then the
        witness need be right at these alone.
    """
    return _polish(problem, members, witness, RELATIVE_GAIN * problem.ssq_total, among)


def _polish(
    problem: Problem,
    members: Members,
    witness: NDArray[np.floating],
    least: float,
    among: NDArray[np.int64] | None = None,
) -> Polished:
    """Exchange rows until no exchange gains more than `least`."""
    rows = _candidates(problem, members, witness, least, among)
    if len(rows) == 0:
        return Polished(members, 0)
    kernel = problem.geometry.block(rows, rows)
    # The diagonal to the last bit that of the block, which a geometry's own need not be.
    near = _look(problem, members, witness, rows, kernel.diagonal().copy())
    changes = _exchange(near, kernel, problem.constraints, least)
    polished = members.copy()
    polished[rows] = near.in_val
    return Polished(polished, changes)


def _look(
    problem: Problem,
    members: Members,
    witness: NDArray[np.floating],
    rows: NDArray[np.int64],
    diagonal: NDArray[np.float64],
) -> _Sides:
    """Describe the split from some rows: K 1_V follows from K z and K 1."""
    limits = problem.constraints
    n_val = int(problem.count(members[:, None])[0])
    n_train = problem.n_rows - n_val
    near, total = witness[rows].astype(np.float64), problem.geometry.row_sums_at(rows)
    to_val = (near + total / n_train) / (1.0 / n_val + 1.0 / n_train)
    inside_val, inside_train = (0.0, 0.0) if limits.is_exact else _inside(problem, members, witness)
    return _Sides(
        limits.cells.codes[rows],
        members[rows],
        to_val,
        total - to_val,
        diagonal,
        n_val,
        n_train,
        inside_val,
        inside_train,
        limits.counts(members),
    )


def _inside(problem: Problem, members: Members, witness: NDArray[np.floating]) -> tuple[float, float]:
    """1_V'K1_V and 1_T'K1_T, which only moves of single rows ask for."""
    n_val = int(problem.count(members[:, None])[0])
    n_train = problem.n_rows - n_val
    to_val = (witness.astype(np.float64) + problem.row_sums / n_train) / (1.0 / n_val + 1.0 / n_train)
    return float(to_val[members].sum()), float((problem.row_sums - to_val)[~members].sum())


def _candidates(
    problem: Problem,
    members: Members,
    witness: NDArray[np.floating],
    least: float,
    among: NDArray[np.int64] | None,
) -> NDArray[np.int64]:
    """List the rows that can take part in a gain, the most promising ones if they are too many."""
    limits = problem.constraints
    narrowed = among if limits.is_exact else None  # a single row may move from anywhere
    place = slice(None) if narrowed is None else narrowed
    codes, diagonal = limits.cells.codes[place], problem.geometry.diagonal[place]
    n_val = int(problem.count(members[:, None])[0])
    c = 1.0 / n_val + 1.0 / (problem.n_rows - n_val)
    in_val = members[place]
    part = np.where(in_val, -witness[place], witness[place]) + 0.5 * c * diagonal
    # A row can hope for the other side's largest part in its cell, and for the smallest K_ij possible.
    best_val, best_train = np.full(len(limits.target), -np.inf), np.full(len(limits.target), -np.inf)
    np.maximum.at(best_val, codes[in_val], part[in_val])
    np.maximum.at(best_train, codes[~in_val], part[~in_val])
    hope = part + np.where(in_val, best_train[codes], best_val[codes])
    if not problem.geometry.is_nonnegative:
        norms = np.sqrt(np.maximum(diagonal, 0.0))
        farthest = np.zeros(len(limits.target))
        np.maximum.at(farthest, codes, norms)
        hope += c * farthest[codes] * norms
    hope *= 2.0
    if not limits.is_exact:
        everyone = _look(problem, members, witness, np.arange(problem.n), diagonal)
        hope = np.maximum(hope, everyone.move_gains(limits))
    found = np.flatnonzero(hope > least)
    if len(found) > MAX_CANDIDATES:
        found = np.sort(found[np.argsort(-hope[found], kind="stable")[:MAX_CANDIDATES]])
    return found if narrowed is None else narrowed[found]


def _exchange(near: _Sides, kernel: NDArray[np.float64], limits: ValidationQuotas, least: float) -> int:
    """Sweep over the cells, making the best swap of every validation row while it still pays."""
    cells = [np.flatnonzero(near.codes == cell) for cell in np.flatnonzero(np.bincount(near.codes))]
    changes = 0
    for _ in range(MAX_SWEEPS):
        made = 0 if limits.is_exact else _move_best(near, kernel, limits, least)
        for gain, out, into in _proposals(near, kernel, cells):
            if gain <= least:
                break
            still_there = near.in_val[out] and not near.in_val[into]
            if still_there and near.swap_gain(out, into, float(kernel[out, into])) > least:
                near.flip(out, kernel[:, out])
                near.flip(into, kernel[:, into])
                made += 1
        if made == 0:
            break
        changes += made
    return changes


def _move_best(near: _Sides, kernel: NDArray[np.float64], limits: ValidationQuotas, least: float) -> int:
    """Move single rows, the most profitable first, until none pays."""
    made = 0
    for _ in range(len(near.codes)):
        gains = near.move_gains(limits)
        row = int(np.argmax(gains))
        if gains[row] <= least:
            break
        near.flip(row, kernel[:, row])
        made += 1
    return made


def _proposals(
    near: _Sides, kernel: NDArray[np.float64], cells: list[NDArray[np.int64]]
) -> list[tuple[float, int, int]]:
    """For every validation row its best partner at present: (gain, row out, row in), best first."""
    part, c = near.swap_parts()
    found: list[tuple[float, int, int]] = []
    for rows in cells:
        out, into = rows[near.in_val[rows]], rows[~near.in_val[rows]]
        if len(out) == 0 or len(into) == 0:
            continue
        gains = part[out][:, None] + part[into][None, :] - c * kernel[out][:, into]
        best = gains.argmax(axis=1)
        value = 2.0 * gains[np.arange(len(out)), best]
        paying = np.flatnonzero(value > 0)
        found.extend(
            zip(value[paying].tolist(), out[paying].tolist(), into[best[paying]].tolist(), strict=True)
        )
    return sorted(found, key=lambda swap: (-swap[0], swap[1], swap[2]))


@dataclass(frozen=True)
class PolishedPartition:
    """A partition after exchanges, their number, and what it measures."""

    labels: Labels
    changes: int
    state: State

    @property
    def psi(self) -> float:
        """Its objective."""
        return float(self.state.psi[0])


@dataclass(frozen=True)
class _SomeRows:
    """A kernel seen from some of its rows: what polishing asks of a geometry."""

    whole: Geometry
    rows: NDArray[np.int64]
    row_sums: NDArray[np.float64]

    @property
    def n(self) -> int:
        return len(self.rows)

    @property
    def is_nonnegative(self) -> bool:
        return self.whole.is_nonnegative

    @property
    def diagonal(self) -> NDArray[np.float64]:
        return self.whole.diagonal[self.rows]

    def row_sums_at(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.row_sums[rows]

    def block(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.whole.block(self.rows[left], self.rows[right])

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"some rows of a kernel have no {name}")


def tournament(k: int) -> list[list[tuple[int, int]]]:
    """Pair every two of k parts once, in rounds in which no part is twice.

    >>> tournament(4)
    [[(0, 3), (1, 2)], [(0, 2), (1, 3)], [(0, 1), (2, 3)]]
    """
    places = [*range(k), *([-1] * (k % 2))]
    half = len(places) // 2
    rounds = []
    for _ in range(len(places) - 1):
        pairs = zip(places[:half], places[: half - 1 : -1], strict=True)
        rounds.append(sorted((min(pair), max(pair)) for pair in pairs if -1 not in pair))
        places = [places[0], places[-1], *places[1:-1]]
    return rounds


def _least_gain(geometry: Geometry, psi: float) -> float:
    """What an exchange has to gain: more than rounding, and on many rows more than is worth a pass."""
    rounding = RELATIVE_GAIN * geometry.trace
    return rounding if geometry.n <= SMALL else max(rounding, WORTHWHILE * psi / geometry.n)


def polish_pairs(
    geometry: Geometry,
    labels: Labels,
    quotas: Quotas,
    dtype: DTypeLike,
    state: State | None = None,
    progress: Progress = silent,
) -> PolishedPartition:
    """Swap rows of a cell between two parts, pair after pair, while that lowers Psi.

    Parameters
    ----------
    labels : (n,)
    dtype : precision of the passes over the kernel.
    state : what the labels measure, if it is known.
    """
    k = quotas.k
    current = labels.copy()
    if state is None:
        state = measure(geometry, current[:, None], k, dtype)
    sums: Floats = state.sums[:, 0].astype(np.float64)
    # A row that is forced into a part is in a cell of its own kind, and that kind has it all on one side.
    kinds = np.unique(quotas.cells.codes * (k + 1) + quotas.pinned + 1, return_inverse=True)[1].reshape(-1)
    changes, least = 0, _least_gain(geometry, float(state.psi[0]))
    done, n_pairs = 0, k * (k - 1) // 2
    for pairs in tournament(k):
        before = current.copy()
        for first, second in pairs:
            progress("pairs", done, n_pairs)
            done += 1
            rows = np.flatnonzero((current == first) | (current == second))
            members = current[rows] == first
            codes = np.unique(kinds[rows], return_inverse=True)[1].reshape(-1).astype(np.int64)
            sizes = np.bincount(codes)
            counts = np.bincount(codes[members], minlength=len(sizes))
            limits = ValidationQuotas.exactly(Cells(codes, tuple({} for _ in sizes), sizes), counts)
            pair = Problem(_SomeRows(geometry, rows, sums[rows, first] + sums[rows, second]), limits)
            n_first, n_second = int(members.sum()), int((~members).sum())
            witness = sums[rows, first] / n_first - sums[rows, second] / n_second
            polished = _polish(pair, members, witness, least)
            changes += polished.changes
            current[rows] = np.where(polished.members, first, second)
        # Pairs without a part in common do not touch each other's sums: one product tells all of them.
        moved = np.flatnonzero(current != before)
        if len(moved):
            state = remeasure(geometry, current[:, None], k, dtype, (before[:, None], state))
            sums = state.sums[:, 0].astype(np.float64)
    return PolishedPartition(current, changes, state)
