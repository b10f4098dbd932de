"""Along which directions a kernel varies within cells, and how much it can vary along all others.

A = PKP is a kernel without what is constant on cells (P removes cell means), and b = PKz0 what a vector z0
that is constant on cells does to the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.geometry.features import Floats
from clustersplit_cli.core.geometry.low_rank import LowRankKernel
from clustersplit_cli.core.geometry.scatter import cell_means
from clustersplit_cli.core.geometry.symmetric import SymmetricMatrix
from clustersplit_cli.core.parallel import Workers

LEADING = 24
"""Directions that are known row by row; of a dense kernel the rest is bounded by its Frobenius norm."""
FEWEST, MOST_ENTRIES = 4, 1 << 22
"""The same where rows are many: as many directions as make so many entries, but not fewer than that."""
ALL_ROWS = 600
"""Up to this many rows a dense kernel is diagonalised in full."""
MOST_GROUPS = 64
"""Groups of cells whose means are taken out of a dense kernel before its Frobenius norm bounds the rest."""
ROUNDINGS = 16


@dataclass(frozen=True)
class Spectrum:
    """Upper bounds on the eigenvalues of A, leading first, and b in the same basis.

    For any e > 0, A is at most the sum of (values_i + e) u_i u_i' plus rest + coupling²/e on the complement
    of the u_i: where A takes the u_i to the complement, 2 x'Ay is at most e |x|² + |Ax|²/e |y|².

    Attributes
    ----------
    values : (m,)
    pulls : (m,), u_i'b.
    rest : bound on A within the complement.
    rest_pull : length of what remains of b.
    coupling : bound on how far A takes the u_i out of the space they span; 0 for exact eigenvectors.
    directions : (n, k), P times the first of the u_i, row by row; k = 0 where rows are out of reach.
    slack : (k,), how far entries of `directions` may be off by rounding.
    """

    values: NDArray[np.float64]
    pulls: NDArray[np.float64]
    rest: float
    rest_pull: float
    coupling: float = 0.0
    directions: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    slack: NDArray[np.float64] | float = 0.0


def dense_spectrum(
    matrix: SymmetricMatrix,
    trace: float,
    limits: ValidationQuotas,
    z0: NDArray[np.float64],
    low_rank: LowRankKernel,
    workers: Workers,
) -> tuple[Spectrum, float]:
    """Take out leading eigenpairs and bound the rest by the trace and the Frobenius norm they leave.

    With U orthonormal, T = U'AU diagonal and R = AU - UT, the squared Frobenius norm of A on the complement
    of U is |A|² - |T|² - 2|R|². Leading eigenvalues alone would bound nothing.
    """
    if matrix.n <= ALL_ROWS:
        entries = matrix.rows(0, matrix.n).astype(np.float64)
        centred = _centre(limits, _centre(limits, entries).T)
        values, vectors = _leading_first(*np.linalg.eigh((centred + centred.T) / 2))
        pull = _centre(limits, (entries @ z0)[:, None])[:, 0]
        known = _centre(limits, vectors[:, :LEADING])
        return Spectrum(values, vectors.T @ pull, 0.0, 0.0, 0.0, known), float(z0 @ entries @ z0)
    basis, _ = np.linalg.qr(_leading_directions(limits, low_rank, LEADING))
    means = _coarse_means(limits)
    stacked = np.concatenate([basis, means, z0[:, None]], axis=1)
    # Sums over short tiles in the kernel's own precision are good enough, with a margin below.
    product = matrix.multiply(stacked.astype(matrix.dtype), workers).T
    to_basis, to_means, to_z0 = np.split(product, [basis.shape[1], product.shape[1] - 1], axis=1)
    values, rotation = _leading_first(*np.linalg.eigh(basis.T @ to_basis))
    vectors = basis @ rotation
    # The margin for what products and sums in the kernel's own precision may be off by.
    margin = ROUNDINGS * float(np.finfo(matrix.dtype).eps)
    noise = margin * float(np.abs(values).max())
    coupling = float(np.linalg.norm(_centre(limits, to_basis) @ rotation - vectors * values, 2)) + noise
    # From here on for the coarser projection that removes `means` alone.
    between = means.T @ to_means
    coarse = (to_basis - means @ (means.T @ to_basis)) @ rotation - vectors * values
    whole = (1.0 + margin) * matrix.sum_of_squares(workers)
    squares = whole - 2.0 * float((to_means**2).sum()) + float((between**2).sum())
    squares -= float((values**2).sum()) + 2.0 * float((coarse**2).sum())
    left_trace = trace - float(np.trace(between)) - float(values.sum())
    rest = _largest_possible(left_trace, squares, matrix.n - means.shape[1] - len(values)) + noise
    pull = _centre(limits, to_z0)[:, 0]
    along = vectors.T @ pull
    left = float(np.sqrt(max(float(pull @ pull) - float(along @ along), 0.0)))
    known = _centre(limits, vectors)
    return Spectrum(values + noise, along, rest, left, coupling, known), float(z0 @ to_z0[:, 0])


def _largest_possible(total: float, squares: float, count: int) -> float:
    """Bound the largest of `count` numbers by their sum and sum of squares (Samuelson's inequality)."""
    if count <= 0:
        return 0.0
    mean, squares = total / count, max(squares, 0.0)
    # A little is added for the rounding in the two sums, which are differences of larger ones.
    variance = max(squares / count - mean**2, 0.0) + 1e-12 * squares / count
    return float(mean + np.sqrt((count - 1) * variance))


def factored_spectrum(
    gram: NDArray[np.float64],
    sums: NDArray[np.float64],
    at_z0: NDArray[np.float64],
    limits: ValidationQuotas,
    precision: np.dtype[Any],
    factors_along: Callable[[NDArray[np.float64]], Floats] | None = None,
    longest: float = 0.0,
) -> tuple[Spectrum, float]:
    """The spectrum from B'B, the sums of B's rows over each cell, and B'z0.

    Parameters
    ----------
    factors_along : gives B y for y of shape (p, k); without it no directions are known row by row.
    longest : length of the longest row of B.
    """
    means = sums / limits.cells.sizes[:, None]
    within = gram - (means.T * limits.cells.sizes) @ means
    values, vectors = _leading_first(*np.linalg.eigh((within + within.T) / 2))
    # b = PB(B'z0), and u_i = PB v_i / sqrt(value_i), so u_i'b = sqrt(value_i) v_i'B'z0.
    pulls = np.sqrt(np.maximum(values, 0.0)) * (vectors.T @ at_z0)
    eps = float(np.finfo(precision).eps)
    rounding = eps * 10.0 * float(np.trace(gram))
    # Along directions that might be rounding alone nothing is known.
    count = min(LEADING, max(FEWEST, MOST_ENTRIES // limits.n), int((values > 100.0 * rounding).sum()))
    known = Spectrum(values + rounding, pulls, rounding, 0.0)
    if factors_along is not None and count:
        roots = np.sqrt(values[:count])
        directions = _centre(limits, factors_along(vectors[:, :count] / roots).astype(np.float64))
        known = replace(known, directions=directions, slack=ROUNDINGS * eps * longest / roots)
    return known, float(at_z0 @ at_z0)


def _leading_first(
    values: NDArray[np.float64], vectors: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return values[::-1], vectors[:, ::-1]


def _centre(limits: ValidationQuotas, columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Remove every cell's mean from columns of shape (n, p)."""
    return np.asarray(columns - cell_means(limits.cells, columns)[limits.cells.codes])


def _leading_directions(limits: ValidationQuotas, low_rank: LowRankKernel, count: int) -> NDArray[np.float64]:
    """Leading eigenvectors of P K P as the low-rank kernel sees them, shape (n, at most count)."""
    guessed = low_rank.turned(limits).leading(count).factors(np.arange(limits.n))
    return _centre(limits, guessed.astype(np.float64))


def _coarse_means(limits: ValidationQuotas) -> NDArray[np.float64]:
    """Orthonormal indicators of cells, merged into a few groups when there are many.

    Removing fewer means than P does leaves a larger Frobenius norm, so the bound stays valid.
    """
    n_cells = len(limits.target)
    group = (np.arange(n_cells) * min(n_cells, MOST_GROUPS)) // n_cells
    codes = group[limits.cells.codes]
    sizes = np.bincount(codes)
    indicators = np.zeros((limits.n, len(sizes)))
    indicators[np.arange(limits.n), codes] = 1.0 / np.sqrt(sizes)[codes]
    return indicators
