"""Kernels, the rules for their width, and the test for a kernel that carries no information."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Affine, Features, Floats, Moments, moments, unit_rows
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.errors import InputError, UsageError

KERNELS = ("rbf", "linear", "cosine", "polynomial")
WIDTH_RULES = ("scale", "1/d", "median")
STANDARDIZATIONS = ("none", "zscore", "l2")

# Above this squared length a float32 exponent is off by more than 1e-4.
FLOAT32_SAFE_SQUARED_LENGTH = 1e3
# Sums over all pairs of rows, of squares of this size, stay within float64's range.
LARGEST_SUM, SMALLEST_VARIANCE = 1e300, 1e-290
ROUNDING = 1e-12
LOWEST_EXPONENT = {"f": -42.0, "d": -345.0}
"""Exponents in float32 and float64 below which a kernel value, or its square, would be subnormal: processors
compute with such numbers tens of times slower, and beside the ones on the diagonal they are nothing."""
MEDIAN_SAMPLE = 1000
DEGENERACY_SAMPLE = 500


@dataclass(frozen=True)
class Kernel:
    """A kernel with its parameters resolved to numbers.

    `gamma` is None for linear and cosine, `degree` is None for all but polynomial.
    """

    name: str
    gamma: float | None = None
    degree: int | None = None

    @property
    def is_linear(self) -> bool:
        """Whether the kernel is an inner product of the prepared features themselves."""
        return self.name in ("linear", "cosine")

    @property
    def is_nonnegative(self) -> bool:
        """Whether no kernel value can be negative."""
        return self.name == "rbf"

    def tile(
        self,
        left: Floats,
        right: Floats,
        halves: tuple[Floats, Floats] | None = None,
        out: Floats | None = None,
    ) -> Floats:
        """Kernel values between two blocks of *prepared* rows, shapes (a, d), (b, d) -> (a, b).

        Parameters
        ----------
        halves : half the squared lengths of both blocks' rows, where they are known.
        out : where to put the values, which may be held in less precision than they are computed in.
        """
        # numpy walks over rows that do not follow each other through small buffers, at twice the time: only
        # the last step writes to such a place.
        is_direct = out is not None and out.dtype == left.dtype and (self.is_linear or out.flags.c_contiguous)
        values: Floats = np.matmul(left, right.T, out=out if is_direct else None)
        if self.name == "rbf":
            # Prepared rows carry sqrt(2 gamma): exp(-gamma |x - y|^2) = exp(x.y - |x|^2/2 - |y|^2/2).
            of_left, of_right = halves or (half_squares(left), half_squares(right))
            values -= of_left[:, None]
            values -= of_right[None, :]
        return self.of_products(values, values if out is None else out)

    def of_products(self, products: Floats, out: Floats) -> Floats:
        """Put into `out` the kernel values of rows whose inner products, for rbf their exponents, are given.

        Parameters
        ----------
        products : are not kept.
        """
        if self.name == "rbf":
            lowest = max(LOWEST_EXPONENT[products.dtype.char], LOWEST_EXPONENT[out.dtype.char])
            np.clip(products, lowest, 0, out=products)
            np.exp(products, out=out)
        elif self.name == "polynomial":
            assert self.gamma is not None and self.degree is not None
            products *= self.gamma
            products += 1
            np.power(products, self.degree, out=out)
        elif out is not products:
            out[...] = products
        return out

    def diagonal(self, rows: Floats) -> NDArray[np.float64]:
        """Kernel values of prepared rows with themselves."""
        if self.name == "rbf":
            return np.ones(len(rows))
        squares = 2.0 * half_squares(rows.astype(np.float64, copy=False))
        if self.name == "polynomial":
            assert self.gamma is not None and self.degree is not None
            squares = (self.gamma * squares + 1.0) ** self.degree
        return np.asarray(squares, dtype=np.float64)


def half_squares(rows: Floats) -> NDArray[np.floating[Any]]:
    """Half the squared length of each row."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows) / 2)


@dataclass(frozen=True)
class Prepared:
    """Features mapped so that the kernel's formula applies to them, and what was found on the way.

    `spread_ratio` is the largest column standard deviation over the smallest non-zero one, after
    standardizing. `moments` are those of the features before they were centred, where rows were looked at.
    """

    kernel: Kernel
    features: Features
    spread_ratio: float
    moments: Moments | None = None


def standardize(features: Features, how: str, workers: Workers) -> Features:
    """Apply `--standardize`: nothing, unit variance per column, or unit length per row."""
    if how == "zscore":
        found = moments(features, workers)
        # A constant column carries nothing: centring makes it zero, so its scale is irrelevant.
        scale = 1 / np.where(found.deviation > 0, found.deviation, 1)
        return features.then(Affine(found.mean, scale))
    if how == "l2":
        return features.then(unit_rows)
    return features


def prepare(
    features: Features,
    name: str,
    gamma: str | float,
    degree: int,
    workers: Workers,
    rng: np.random.Generator,
) -> Prepared:
    """Resolve the kernel's width and map the features for it.

    RBF and linear kernels see centred features: distances and MMD do not change under a common shift,
    and rounding errors shrink.

    Raises
    ------
    InputError
        When all features are constant, or their squares or the kernel leave the range of float64.
    """
    if name == "cosine":
        features = features.then(unit_rows)
    found = moments(features, workers, by_row=name in ("linear", "cosine"))
    prepared = prepare_with(features, found, features.shape[0], name, gamma, degree, rng)
    return prepared if found.squares is None else replace(prepared, moments=found)


def prepare_with(
    features: Features,
    found: Moments,
    n: int,
    name: str,
    gamma: str | float,
    degree: int,
    rng: np.random.Generator,
) -> Prepared:
    """Do the same for features whose moments are known; parameters and errors as in `prepare`.

    Parameters
    ----------
    features : all rows, or those from which a median distance is taken; for cosine kernels unit rows.
    n : number of all rows.
    """
    d = features.shape[1]
    total_variance = found.total_variance
    _refuse_unusable(found, n)
    varying = found.deviation[found.deviation > 0]
    spread_ratio = float(varying.max() / varying.min())
    if name in ("linear", "cosine"):
        kernel = Kernel(name)
        features = features.then(Affine(found.mean, 1.0))
        in_range = 1e-15 < total_variance < 1e30 and found.largest < 1e15
    else:
        width = resolve_gamma(gamma, features, total_variance, rng)
        if name == "rbf":
            if not width * total_variance * n < LARGEST_SUM:
                raise UsageError(
                    f"--gamma {width:g} is too large for features of total variance {total_variance:.3g}",
                    hint="try --gamma scale",
                )
            kernel = Kernel(name, gamma=width)
            features = features.then(Affine(found.mean, float(2 * np.sqrt(width / 2))))
            in_range = 8 * width * total_variance < FLOAT32_SAFE_SQUARED_LENGTH
        else:
            kernel = Kernel(name, gamma=width, degree=degree)
            with np.errstate(over="ignore"):
                reach = float((1 + width * np.square(found.largest) * d) ** np.float64(degree))
            # Kernels of features of up to 32 bits are held in float32.
            if not reach < (1e30 if features.raw.dtype.itemsize <= 4 else LARGEST_SUM / n**2):
                raise InputError(
                    f"the polynomial kernel of degree {degree} overflows on features of up to "
                    f"{found.largest:.3g}",
                    hint="use a smaller --degree or --gamma, or --standardize zscore",
                )
            in_range = 1e-15 < found.largest < 1e15 and 1e-30 < width < 1e30
    in_range &= all(step.suits_float32 for step in features.steps if isinstance(step, Affine))
    precision = np.float32 if features.raw.dtype.itemsize <= 4 and in_range else np.float64
    return Prepared(kernel, Features(features.raw, features.steps, precision), spread_ratio)


def _refuse_unusable(found: Moments, n: int) -> None:
    """Refuse features that do not vary, or whose squares leave the range of float64."""
    if not found.deviation.any():
        raise InputError(
            "all features are constant, so every split has an MMD of zero",
            hint="choose other columns with --columns",
        )
    if not SMALLEST_VARIANCE < found.total_variance < LARGEST_SUM / n**2:
        size = "small" if found.total_variance < 1 else "large"
        raise InputError(
            f"features are too {size} to square: the largest absolute value is {found.largest:.3g}",
            hint="use --standardize zscore, or rescale the features",
        )


def parse_gamma(text: str) -> str | float:
    """Read `--gamma`: one of the rules, or a positive finite number."""
    if text in WIDTH_RULES:
        return text
    try:
        value = float(text)
    except ValueError:
        raise UsageError(
            f"--gamma '{text}' is neither a number nor one of {', '.join(WIDTH_RULES)}",
            hint="for example --gamma scale or --gamma 0.01",
        ) from None
    if not (np.isfinite(value) and value > 0):
        raise UsageError(f"--gamma must be a positive finite number, got {text}", hint="try --gamma scale")
    return value


def resolve_gamma(
    gamma: str | float, features: Features, total_variance: float, rng: np.random.Generator
) -> float:
    """Turn a width rule into a number: `scale` is 1/sum of variances, `median` 1/median squared distance."""
    if isinstance(gamma, (int, float)):
        return float(gamma)
    if gamma == "scale":
        return 1.0 / total_variance
    if gamma == "1/d":
        return 1.0 / features.shape[1]
    distances = sampled_squared_distances(features, MEDIAN_SAMPLE, rng)
    middle = float(np.median(distances))
    if middle <= 0:
        raise InputError(
            "--gamma median: more than half of the sampled rows are identical, so the median distance is 0",
            hint="use --gamma scale or a number",
        )
    return 1.0 / middle


def sampled_squared_distances(features: Features, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Squared distances between all pairs of a seeded sample of rows."""
    n = features.shape[0]
    rows = np.sort(rng.choice(n, size=min(n, size), replace=False))
    sample = features.take(rows, dtype=np.float64)
    sample -= sample.mean(axis=0)
    half = half_squares(sample)
    lengths = half[:, None] + half[None, :]
    squared = 2 * (lengths - sample @ sample.T)
    squared[squared < ROUNDING * lengths] = 0.0  # equal rows
    return np.asarray(squared[np.triu_indices(len(rows), k=1)], dtype=np.float64)


@dataclass(frozen=True)
class KernelSpread:
    """The 1st and 99th percentile of off-diagonal kernel values on a sample of rows."""

    low: float
    high: float

    @property
    def is_near_zero(self) -> bool:
        """The kernel is numerically the identity: every row is alone."""
        return self.high < 1e-2

    @property
    def is_near_one(self) -> bool:
        """The kernel is numerically constant: all rows look the same."""
        return self.low > 0.99


def off_diagonal_values(prepared: Prepared, rng: np.random.Generator) -> NDArray[np.floating[Any]]:
    """The kernel's values between different rows of a seeded sample, shape (pairs,)."""
    n = prepared.features.shape[0]
    rows = np.sort(rng.choice(n, size=min(n, DEGENERACY_SAMPLE), replace=False))
    sample = prepared.features.take(rows, dtype=np.float64)
    return np.asarray(prepared.kernel.tile(sample, sample)[np.triu_indices(len(rows), k=1)])


def off_diagonal_spread(prepared: Prepared, rng: np.random.Generator) -> KernelSpread:
    """Look at the kernel's off-diagonal values on a seeded sample of rows."""
    values = off_diagonal_values(prepared, rng)
    low, high = len(values) // 100, len(values) - 1 - len(values) // 100
    values.partition([low, high])
    return KernelSpread(float(values[low]), float(values[high]))
