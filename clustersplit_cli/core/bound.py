"""An upper bound on the MMD of any split that meets the constraints exactly.

With all cell counts fixed, a split's weights are z = z0 + w, where z0 is constant on cells, w sums to zero
on every cell, and |w| = r is known. So MMD² = z'Kz is at most the maximum of c + 2 b'w + w'Aw over the
sphere |w| = r, with A = PKP, b = PKz0, c = z0'Kz0 (P removes cell means), and for every mu above the
eigenvalues of A that maximum is at most c + mu r² + b'(mu - A)⁻¹b. The best mu gives the bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints import Constraints
from clustersplit_cli.core.dense import DenseGeometry
from clustersplit_cli.core.factored import FactorGeometry
from clustersplit_cli.core.geometry import Geometry
from clustersplit_cli.core.image import Image
from clustersplit_cli.core.problem import Problem
from clustersplit_cli.core.starts import cell_means

LEADING = 12
"""Eigenpairs of a dense kernel that are taken out before the rest is bounded by its Frobenius norm."""
ALL_ROWS = 600
"""Up to this many rows a dense kernel is diagonalised in full."""
MOST_GROUPS = 64
"""Groups of cells whose means are taken out of a dense kernel before its Frobenius norm bounds the rest."""
ROUNDINGS = 16
GRID, GRIDS = 64, 4


@dataclass(frozen=True)
class Spectrum:
    """Upper bounds on the eigenvalues of A = PKP, and b in the same basis.

    For any e > 0, A is at most the sum of (values_i + e) u_i u_i' plus rest + coupling²/e on the complement
    of the u_i: where A takes the u_i to the complement, 2 x'Ay is at most e |x|² + |Ax|²/e |y|².

    Attributes
    ----------
    values : (m,)
    squares : (m,), (u_i'b)².
    rest : bound on A within the complement.
    rest_square : squared length of what remains of b.
    coupling : bound on how far A takes the u_i out of the space they span; 0 for exact eigenvectors.
    """

    values: NDArray[np.float64]
    squares: NDArray[np.float64]
    rest: float
    rest_square: float
    coupling: float = 0.0


def mmd_upper_bound(problem: Problem, image: Image) -> float:
    """Bound the MMD of every split of the problem, whose cell counts must be fixed.

    Parameters
    ----------
    image : a low-rank image of the kernel, from which leading eigenvectors are sought.
    """
    limits = problem.constraints
    level = _cell_level(limits)
    z0 = level[limits.cells.codes]
    n_val = int(limits.target.sum())
    radius_squared = 1.0 / n_val + 1.0 / (problem.n - n_val) - float(z0 @ z0)
    spectrum, constant = spectral_bound(problem.geometry, limits, z0, image)
    if radius_squared <= 0:
        return float(np.sqrt(max(constant, 0.0)))
    return float(np.sqrt(max(constant + _best_dual(spectrum, radius_squared), 0.0)))


def _cell_level(limits: Constraints) -> NDArray[np.float64]:
    """The mean weight of each cell's rows, the same for every split."""
    n_val = limits.target.sum()
    in_train = limits.cells.sizes - limits.target
    n_train = in_train.sum()
    return np.asarray((limits.target / n_val - in_train / n_train) / limits.cells.sizes)


def _best_dual(spectrum: Spectrum, radius_squared: float) -> float:
    """The least over all e of what `_least_dual` gives, a convex function of e, too."""
    coupling = spectrum.coupling

    def dual(log_e: float) -> float:
        e = float(np.exp(log_e))
        values = np.append(spectrum.values + e, spectrum.rest + coupling**2 / e)
        return _least_dual(values, np.append(spectrum.squares, spectrum.rest_square), radius_squared)

    if coupling == 0:
        values = np.append(spectrum.values, spectrum.rest)
        return _least_dual(values, np.append(spectrum.squares, spectrum.rest_square), radius_squared)
    # Golden-section search; any e bounds the maximum, so it need not be exact.
    low, high = np.log(coupling) - 9.0, np.log(coupling) + 9.0
    golden = (np.sqrt(5.0) - 1.0) / 2.0
    for _ in range(24):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if dual(left) < dual(right):
            high = right
        else:
            low = left
    return min(dual((low + high) / 2.0), dual(float(np.log(coupling))))


def _least_dual(values: NDArray[np.float64], squares: NDArray[np.float64], radius_squared: float) -> float:
    """Minimise mu r² + sum of b_i²/(mu - a_i), a convex function of mu, over mu above all a_i."""
    top = max(float(values.max()), 0.0)
    # At the optimum r² = sum of b_i²/(mu - a_i)², so mu - top is at most |b|/r.
    farthest = float(np.sqrt(squares.sum() / radius_squared))
    if farthest == 0:
        return top * radius_squared
    # A hair above the top eigenvalue with no b there, b²/(mu - a) is 0/0 whose limit is 0.
    gaps, pulling = (top - values)[squares > 0, None], squares[squares > 0]
    low, high, best = np.log(farthest) - 60.0, np.log(farthest), np.inf
    # Narrowed down grid by grid; any mu bounds the maximum, so it need not be exact.
    for _ in range(GRIDS):
        excess = np.exp(np.linspace(low, high, GRID))
        found = (top + excess) * radius_squared + pulling @ (1.0 / (gaps + excess))
        place = int(found.argmin())
        best = min(best, float(found[place]))
        low, high = (float(np.log(excess[max(0, min(GRID - 1, place + side))])) for side in (-1, 1))
    return best


@singledispatch
def spectral_bound(
    geometry: Geometry, limits: Constraints, z0: NDArray[np.float64], image: Image
) -> tuple[Spectrum, float]:
    """Bound the spectrum of PKP, with b = PKz0 in its basis, and compute c = z0'Kz0."""
    raise TypeError(f"no bound is known for a {type(geometry).__name__}")


@spectral_bound.register
def _dense(
    geometry: DenseGeometry, limits: Constraints, z0: NDArray[np.float64], image: Image
) -> tuple[Spectrum, float]:
    """Take out leading eigenpairs and bound the rest by the trace and the Frobenius norm they leave.

    With U orthonormal, T = U'AU diagonal and R = AU - UT, the squared Frobenius norm of A on the complement
    of U is |A|² - |T|² - 2|R|². Leading eigenvalues alone would bound nothing.
    """
    if geometry.n <= ALL_ROWS:
        matrix = geometry.matrix.rows(0, geometry.n).astype(np.float64)
        centred = _centre(limits, _centre(limits, matrix).T)
        values, vectors = np.linalg.eigh((centred + centred.T) / 2)
        pull = _centre(limits, (matrix @ z0)[:, None])[:, 0]
        squares = (vectors.T @ pull) ** 2
        return Spectrum(values, squares, 0.0, 0.0), float(z0 @ matrix @ z0)
    basis, _ = np.linalg.qr(_leading_directions(limits, image, LEADING))
    means = _coarse_means(limits)
    together = np.concatenate([basis, means, z0[:, None]], axis=1)
    # Sums over short tiles in the kernel's own precision are good enough, with a margin below.
    product = geometry.matrix.multiply(together.astype(geometry.search_dtype), geometry.workers).T
    to_basis, to_means, to_z0 = np.split(product, [basis.shape[1], product.shape[1] - 1], axis=1)
    values, rotation = np.linalg.eigh(basis.T @ to_basis)
    vectors = basis @ rotation
    # The margin for what products and sums in the kernel's own precision may be off by.
    margin = ROUNDINGS * float(np.finfo(geometry.search_dtype).eps)
    noise = margin * float(np.abs(values).max())
    coupling = float(np.linalg.norm(_centre(limits, to_basis) @ rotation - vectors * values, 2)) + noise
    # From here on for the coarser projection that removes `means` alone.
    between = means.T @ to_means
    coarse = (to_basis - means @ (means.T @ to_basis)) @ rotation - vectors * values
    whole = (1.0 + margin) * geometry.matrix.sum_of_squares(geometry.workers)
    squares = whole - 2.0 * float((to_means**2).sum()) + float((between**2).sum())
    squares -= float((values**2).sum()) + 2.0 * float((coarse**2).sum())
    trace = geometry.trace - float(np.trace(between)) - float(values.sum())
    rest = _largest_possible(trace, squares, geometry.n - means.shape[1] - len(values)) + noise
    pull = _centre(limits, to_z0)[:, 0]
    along = (vectors.T @ pull) ** 2
    left = max(float(pull @ pull) - float(along.sum()), 0.0)
    return Spectrum(values + noise, along, rest, left, coupling), float(z0 @ to_z0[:, 0])


def _largest_possible(total: float, squares: float, count: int) -> float:
    """Bound the largest of `count` numbers by their sum and sum of squares (Samuelson's inequality)."""
    if count <= 0:
        return 0.0
    mean, squares = total / count, max(squares, 0.0)
    # A little is added for the rounding in the two sums, which are differences of larger ones.
    variance = max(squares / count - mean**2, 0.0) + 1e-12 * squares / count
    return float(mean + np.sqrt((count - 1) * variance))


@spectral_bound.register
def _factored(
    geometry: FactorGeometry, limits: Constraints, z0: NDArray[np.float64], image: Image
) -> tuple[Spectrum, float]:
    """With K = BB', the non-zero eigenvalues of PKP are those of the small matrix (PB)'PB: all of them."""
    return factored_spectrum(*geometry.factor_moments(limits, z0), limits, geometry.search_dtype)


def factored_spectrum(
    gram: NDArray[np.float64],
    sums: NDArray[np.float64],
    at_z0: NDArray[np.float64],
    limits: Constraints,
    precision: np.dtype[Any],
) -> tuple[Spectrum, float]:
    """The spectrum from B'B, the sums of B's rows over each cell, and B'z0."""
    means = sums / limits.cells.sizes[:, None]
    within = gram - (means.T * limits.cells.sizes) @ means
    values, vectors = np.linalg.eigh((within + within.T) / 2)
    # b = PB(B'z0), and u_i = PB v_i / sqrt(value_i), so u_i'b = sqrt(value_i) v_i'B'z0.
    squares = np.maximum(values, 0.0) * (vectors.T @ at_z0) ** 2
    rounding = float(np.finfo(precision).eps) * 10.0 * float(np.trace(gram))
    return Spectrum(values + rounding, squares, rounding, 0.0), float(at_z0 @ at_z0)


def factored_bound(
    limits: Constraints, gram: NDArray[np.float64], sums: NDArray[np.float64], precision: np.dtype[Any]
) -> float:
    """Bound the MMD of every split of rows that are known only by B'B and B's sums over each cell."""
    level, n_val, n = _cell_level(limits), int(limits.target.sum()), int(limits.cells.sizes.sum())
    radius_squared = 1.0 / n_val + 1.0 / (n - n_val) - float(level**2 @ limits.cells.sizes)
    spectrum, constant = factored_spectrum(gram, sums, level @ sums, limits, precision)
    gain = _best_dual(spectrum, radius_squared) if radius_squared > 0 else 0.0
    return float(np.sqrt(max(constant + gain, 0.0)))


def _centre(limits: Constraints, columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Remove every cell's mean from columns of shape (n, p)."""
    return np.asarray(columns - cell_means(limits, columns)[limits.cells.codes])


def _leading_directions(limits: Constraints, image: Image, count: int) -> NDArray[np.float64]:
    """Leading eigenvectors of P K P as the image sees them, shape (n, at most count)."""
    guessed = image.turned(limits).leading(count).factors(np.arange(limits.n))
    return _centre(limits, guessed.astype(np.float64))


def _coarse_means(limits: Constraints) -> NDArray[np.float64]:
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
