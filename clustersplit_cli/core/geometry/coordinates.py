"""Coordinates of rows of which only similarities or distances are known.

A positive semi-definite matrix K of similarities is L L', so the rows of L are features whose inner products
are K. Distances D give inner products too, -J D² J / 2 with J = I - 11'/n, and so features with these
distances.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from clustersplit_cli.core.parallel import tiles
from clustersplit_cli.errors import InputError
from clustersplit_cli.similarity import DISTANCES, SIMILARITIES

Matrix = NDArray[np.floating[Any]]

TILE = 1024
SYMMETRY = 1e-5
"""Difference of two entries that should be equal, as a share of the largest, that rounding may explain."""
ROUNDING = {"d": 1e-10, "f": 2e-6}
"""Least eigenvalue below zero, as a share of the largest diagonal entry, that rounding may explain."""
MARGIN = 1.01
ATTEMPTS = 4
FARTHEST = 1e140


def coordinates(
    matrix: Matrix, what: str, source: str, rows: NDArray[np.int64]
) -> tuple[Matrix, tuple[tuple[str, str], ...]]:
    """Features of rows whose similarities or distances are given, and notes on the way.

    Parameters
    ----------
    matrix : (n, n), all finite; it is overwritten.
    what : `SIMILARITIES` or `DISTANCES`.
    source : what messages call the matrix.
    rows : (n,) the positions of its rows in the input.

    Returns
    -------
    coordinates : (n, rank)

    Raises
    ------
    InputError
        If it is not symmetric, or the values cannot be what they are said to be.
    """
    held = np.dtype(np.float32 if matrix.dtype.itemsize <= 4 else np.float64)
    whole: NDArray[np.float64] = np.asarray(matrix, dtype=np.float64)
    largest = float(np.abs(whole).max())
    if not 1 / FARTHEST < largest < FARTHEST:
        raise InputError(f"the largest value of {source} is {largest:.3g}", hint=f"rescale the {what}")
    _make_symmetric(whole, largest, what, source, rows)
    (_check_distances if what == DISTANCES else _check_similarities)(whole, largest, source, rows)
    if what == DISTANCES:
        whole = _inner_products(whole)
    with threadpool_limits(limits=1, user_api="blas"):  # the same digits whatever the number of cores
        factors, shift, lowest = _factored(whole, ROUNDING[held.char], what, source)
    notes = () if shift == 0.0 else ((_told(what, shift, lowest),))
    return np.ascontiguousarray(factors, dtype=held), notes


def _make_symmetric(
    whole: NDArray[np.float64], largest: float, what: str, source: str, rows: NDArray[np.int64]
) -> None:
    """Average the matrix with its transpose, tile by tile."""
    for left in tiles(len(whole), TILE):
        for right in tiles(len(whole), TILE):
            if right < left:
                continue
            above, below = whole[slice(*left), slice(*right)], whole[slice(*right), slice(*left)].T
            apart = np.abs(above - below)
            worst = int(apart.argmax())
            if apart.flat[worst] > SYMMETRY * largest:
                one, other = np.unravel_index(worst, apart.shape)
                first, second = left[0] + int(one), right[0] + int(other)
                raise InputError(
                    f"{source} is not symmetric: row {rows[first]}, column {rows[second]} is "
                    f"{whole[first, second]:.6g}, and row {rows[second]}, column {rows[first]} is "
                    f"{whole[second, first]:.6g}",
                    hint=f"{what} of a and b, and of b and a, must be equal: average them first",
                )
            mean = (above + below) / 2
            whole[slice(*left), slice(*right)] = mean
            whole[slice(*right), slice(*left)] = mean.T


def _check_distances(
    whole: NDArray[np.float64], largest: float, source: str, rows: NDArray[np.int64]
) -> None:
    own, least = np.abs(whole.diagonal()), float(whole.min())
    if own.max() > SYMMETRY * largest:
        worst = int(own.argmax())
        raise InputError(
            f"row {rows[worst]} of {source} has a distance of {whole[worst, worst]:.6g} from itself",
            hint="distances have zeros on the diagonal; for similarities use --kernel precomputed alone",
        )
    if least < -SYMMETRY * largest:
        one, other = (int(place) for place in np.unravel_index(int(whole.argmin()), whole.shape))
        raise InputError(
            f"the distance of rows {rows[one]} and {rows[other]} in {source} is {least:.6g}",
            hint="distances are not negative; for similarities use --kernel precomputed alone",
        )


def _check_similarities(
    whole: NDArray[np.float64], largest: float, source: str, rows: NDArray[np.int64]
) -> None:
    own = whole.diagonal()
    if np.abs(own).max() <= SYMMETRY * largest and whole.min() >= -SYMMETRY * largest:
        raise InputError(
            f"{source} has zeros on its diagonal, so it holds distances and no similarities",
            hint="add --distances",
        )
    if own.min() < -SYMMETRY * largest:
        worst = int(own.argmin())
        raise InputError(
            f"the similarity of row {rows[worst]} of {source} with itself is {own[worst]:.6g}",
            hint="it cannot be negative; for distances add --distances",
        )


def _inner_products(whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """-J D² J / 2, in place."""
    whole *= whole
    of_rows = whole.mean(axis=1)
    whole -= of_rows[:, None]
    whole -= of_rows[None, :] - of_rows.mean()
    whole *= -0.5
    return whole


def _factored(
    whole: NDArray[np.float64], rounding: float, what: str, source: str
) -> tuple[NDArray[np.float64], float, float]:
    """L of L L' = K + s I with the smallest s for which there is one; also s, and K's least eigenvalue."""
    scale = float(np.abs(whole.diagonal()).max())
    slack, shift, lowest = rounding * scale, 0.0, 0.0
    for _ in range(ATTEMPTS):
        factors = _cholesky(whole, shift, slack)
        if factors is not None:
            return factors, shift, lowest
        lowest = min(_least_eigenvalue(whole), -slack) if shift == 0.0 else lowest
        shift = MARGIN * max(-lowest, shift) + slack
        if shift > float(np.abs(whole.diagonal()).mean()):
            break
    sums = "pass the square roots of distances that are sums, such as Hamming or edit distances, or "
    raise InputError(
        f"the {what} in {source} are far from those of points in a space: the least eigenvalue of their "
        f"matrix is {lowest:.3g}, and the mean of its diagonal {whole.diagonal().mean():.3g}",
        hint=f"{sums if what == DISTANCES else ''}check that rows and columns are in the same order",
    )


def _cholesky(whole: NDArray[np.float64], shift: float, slack: float) -> NDArray[np.float64] | None:
    """L of L L' = K + shift I to within `slack`; None where there is no such L."""
    from scipy.linalg import get_lapack_funcs

    shifted = np.asfortranarray(whole)
    shifted = shifted if shifted is not whole else whole.copy(order="F")
    np.fill_diagonal(shifted, whole.diagonal() + shift)
    (factor,) = get_lapack_funcs(("pstrf",), (shifted,))
    packed, order, rank, _ = factor(shifted, tol=slack, lower=1, overwrite_a=1)
    factors = np.zeros((len(whole), rank))
    for start, stop in tiles(len(whole), TILE):
        block = np.tril(packed[start:stop, :rank], k=start)
        factors[order[start:stop] - 1] = block
    # Where nothing positive is left on the diagonal, what is left must be nothing but rounding.
    left = whole.diagonal() + shift - np.einsum("ij,ij->i", factors, factors)
    probes = np.random.default_rng(0).choice([-1.0, 1.0], size=(len(whole), 4))
    missing = whole @ probes + shift * probes - factors @ (factors.T @ probes)
    spread = float(np.sqrt((missing**2).mean()))
    limit = slack * max(1.0, float(len(whole)) ** 0.5)
    return factors if left.min() >= -4 * slack and spread <= 4 * limit else None


def _least_eigenvalue(whole: NDArray[np.float64]) -> float:
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    start = np.random.default_rng(0).normal(size=len(whole))
    if len(whole) < 3 * TILE:
        return float(np.linalg.eigvalsh(whole)[0])
    try:
        found = eigsh(whole, k=1, which="SA", tol=1e-4, v0=start, return_eigenvectors=False)
    except ArpackNoConvergence:
        return float(np.linalg.eigvalsh(whole)[0])
    return float(found[0])


def _told(what: str, shift: float, lowest: float) -> tuple[str, str]:
    """The note on a matrix that is not positive semi-definite."""
    change = (
        f"{shift:.3g} is added to the similarity of every row with itself"
        if what == SIMILARITIES
        else f"{2 * shift:.3g} is added to every squared distance between different rows"
    )
    return (
        "not_positive",
        f"the {what} are not those of points in a space: their matrix has an eigenvalue of {lowest:.3g}; so "
        f"{change}, which prefers no split of the same sizes to another, and raises their MMD",
    )
