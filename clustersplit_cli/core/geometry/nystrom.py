"""Making kernels of factors: linear kernels, Nyström and low-rank kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.factored import (
    CONVERTED_BYTES,
    SPAN_ROWS,
    FactorGeometry,
    Mixing,
    Uncentred,
    cut,
)
from clustersplit_cli.core.geometry.features import Affine, Features, Floats, Moments
from clustersplit_cli.core.geometry.kernels import Kernel
from clustersplit_cli.core.geometry.protocol import (
    KERNEL_TILE,
    choose_landmarks,
    kernel_diagonal,
    shuffled,
)
from clustersplit_cli.core.geometry.pseudo_inverse import inverse_root
from clustersplit_cli.core.parallel import Workers, tiles
from clustersplit_cli.progress import Progress, silent

TRACE_ROWS = 16384
NEAR = 4.0
"""Squared length of the mean, in units of the total variance, up to which rounding hardly grows."""


def linear_geometry(
    features: Features, kernel: Kernel, workers: Workers, known: Moments | None = None
) -> FactorGeometry:
    """The linear (or cosine) kernel through the features themselves; never forms n x n.

    Parameters
    ----------
    known : what was found of every row while the features were centred: it saves a pass.
    """
    n, d = features.shape
    if known is not None and known.squares is not None and known.remainder is not None:
        diagonal, total = known.squares, known.remainder
        uncentred = _uncentred(features, known)
    else:
        (diagonal, total), uncentred = _own_squares(features, kernel, workers), None
    return FactorGeometry(
        name="linear",
        n=n,
        rows=features.block,
        take=features.take,
        width=d,
        mixing=None,
        diagonal=diagonal,
        trace=float(diagonal.sum()),
        total=total,
        search_dtype=np.dtype(features.dtype),
        workers=workers,
        is_converted=True,
        uncentred=uncentred,
    )


def _uncentred(features: Features, found: Moments) -> Uncentred | None:
    """The features as they are, if centring is all that is done to them and they lie near their mean."""
    step = features.steps[0] if len(features.steps) == 1 else None
    if not isinstance(step, Affine) or step.shift is None or np.any(step.scale != 1.0):
        return None
    if float(step.shift @ step.shift) > NEAR * found.total_variance:
        return None
    raw = features.raw
    return Uncentred(lambda start, stop, dtype: raw[start:stop].astype(dtype, copy=False), step.shift)


def _own_squares(
    features: Features, kernel: Kernel, workers: Workers
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One pass: the diagonal of a linear kernel, and the sum of its rows' factors."""
    n, d = features.shape
    diagonal = np.empty(n)

    def one(span: tuple[int, int]) -> NDArray[np.float64]:
        summed = np.zeros(d)
        for start, stop in cut(span, CONVERTED_BYTES // (8 * d)):
            block = features.block(start, stop, dtype=np.float64)
            diagonal[start:stop] = kernel.diagonal(block)
            summed += np.ones(len(block)) @ block
        return summed

    return diagonal, sum(workers.map(one, tiles(n, SPAN_ROWS)), np.zeros(d))


def low_rank_geometry(factors: Floats, workers: Workers, lacking: float = 0.0) -> FactorGeometry:
    """The kernel whose factors are given as an array.

    Parameters
    ----------
    lacking : at least the trace of what they lack of the kernel that they stand for.
    """
    diagonal = np.einsum("ij,ij->i", factors, factors, dtype=np.float64)
    return FactorGeometry(
        name="low-rank",
        n=len(factors),
        rows=lambda start, stop, dtype: factors[start:stop].astype(dtype, copy=False),
        take=lambda rows, dtype: factors[rows].astype(dtype, copy=False),
        width=factors.shape[1],
        mixing=None,
        diagonal=diagonal,
        trace=float(diagonal.sum()),
        total=factors.sum(axis=0, dtype=np.float64),
        search_dtype=factors.dtype,
        workers=workers,
        lacking=lacking,
    )


def nystrom_geometry(
    features: Features,
    kernel: Kernel,
    landmarks: NDArray[np.int64],
    workers: Workers,
    progress: Progress = silent,
) -> FactorGeometry:
    """The Nyström approximation K̂ = C W⁺ C' on the given landmark rows."""
    landmarks = shuffled(landmarks)
    n, q = features.shape[0], len(landmarks)
    dtype = np.dtype(np.float32 if features.raw.dtype.itemsize <= 4 else np.float64)
    centres = Centres.of(kernel, features.take(landmarks))
    exact = features.take(landmarks, np.float64)
    matrix: Floats = np.empty((n, q), dtype=dtype)
    pieces = centre_tiles(n)
    factored: list[NDArray[np.float64]] = []
    sums = np.zeros((len(pieces), q))

    def one(piece: int) -> None:
        if piece < 0:
            factored.append(inverse_root(kernel.tile(exact, exact), dtype))
            return
        tile = pieces[piece]
        sums[piece] = centres.compare(features, *tile, matrix[slice(*tile)])

    # Factoring keeps one worker busy for a while: it goes first, beside the rest.
    workers.run(one, range(-1, len(pieces)), lambda done: progress("landmarks", done, len(pieces) + 1))
    mixing = factored[0]
    trace, trace_error = estimated_trace(matrix[trace_rows(n)], mixing.astype(dtype), n, workers)
    return FactorGeometry(
        name="nystrom",
        n=n,
        rows=lambda start, stop, kind: matrix[start:stop].astype(kind, copy=False),
        take=lambda rows, kind: matrix[rows].astype(kind, copy=False),
        width=q,
        mixing=mixing,
        diagonal=kernel_diagonal(features, kernel, workers),
        trace=trace,
        total=sums.sum(axis=0),
        trace_error=trace_error,
        search_dtype=dtype,
        workers=workers,
        landmarks=landmarks,
    )


def estimated_trace(some: Floats, mixing: Floats, n: int, workers: Workers) -> tuple[float, float]:
    """Sum of the diagonal of C W⁺ C', and its standard error, from some of C's n rows.

    The diagonal of all rows would cost several times the landmark matrix itself, and all it adds is a
    constant to Psi; beyond `TRACE_ROWS` rows a sample stands for it.
    """
    cut_up = Mixing.of(mixing)
    m = len(some)
    found = np.concatenate(
        list(workers.map(lambda tile: cut_up.squared_lengths(some[slice(*tile)]), tiles(m, KERNEL_TILE)))
    )
    if m == n:
        return float(found.sum()), 0.0
    spread = float(found.std(ddof=1)) * np.sqrt((1.0 - m / n) / m)
    return n * float(found.mean()), n * float(spread)


def trace_rows(n: int) -> NDArray[np.int64]:
    """The rows that a Nyström kernel's trace is estimated from."""
    return choose_landmarks(n, TRACE_ROWS, np.random.default_rng(0))


LEAST_TILE, MOST_TILE, MANY_TILES = 512, 4096, 64
"""Rows compared with all landmarks at a time: products of fewer are slower, but many workers want many."""
VALUE_ROWS = 256
"""Rows whose values stay in cache from their product to their sums."""


def centre_tiles(n: int) -> list[tuple[int, int]]:
    """Cut n rows into pieces that depend on their number alone."""
    return tiles(n, min(MOST_TILE, max(LEAST_TILE, n // MANY_TILES)))


@dataclass(frozen=True)
class Centres:
    """Landmark rows, ready to be compared with many others.

    Attributes
    ----------
    rows : (q, d), prepared for the kernel.
    terms : (q,), of these rows.
    carrying : (q, d), or (q, d + 2) with the columns 1 and -|y|²/2.
    """

    kernel: Kernel
    rows: Floats
    terms: Floats
    carrying: Floats

    @classmethod
    def of(cls, kernel: Kernel, rows: Floats) -> Centres:
        """Take prepared rows."""
        terms = kernel.terms(rows)
        if kernel.name != "rbf":
            return cls(kernel, rows, terms, rows)
        return cls(kernel, rows, terms, np.column_stack([rows, np.ones(len(rows), rows.dtype), -terms]))

    def compare(self, features: Features, start: int, stop: int, out: Floats) -> NDArray[np.float64]:
        """Put kernel values of rows start..stop with all landmarks into `out`; return their sums, (q,)."""
        d = self.rows.shape[1]
        rows: Floats = np.empty((stop - start, self.carrying.shape[1]), features.dtype)
        terms = self.kernel.terms(features.write(start, stop, rows[:, :d]))
        if self.kernel.name == "rbf":
            rows[:, d] = -terms
            rows[:, d + 1] = 1
        if self.kernel.name == "laplacian":
            products = self.kernel.distance_exponents(rows, self.rows)
        else:
            is_direct = out.dtype == rows.dtype and out.flags.c_contiguous
            products = np.matmul(rows, self.carrying.T, out=out if is_direct else None)
        summed = np.zeros(len(self.rows))
        for top in range(0, stop - start, VALUE_ROWS):
            some = slice(top, min(stop - start, top + VALUE_ROWS))
            values = self.kernel.of_products(products[some], out[some], (terms[some], self.terms))
            summed += values.sum(axis=0, dtype=np.float64)
        return summed
