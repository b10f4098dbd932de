"""Kernels, the rules for their width, and the test for a kernel that carries no information."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import (
    Affine,
    ColumnSpreads,
    Features,
    Floats,
    Moments,
    moments,
    unit_rows,
)
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.errors import InputError, UsageError

KERNELS = ("rbf", "laplacian", "linear", "cosine", "polynomial", "tanimoto", "precomputed")
LINEAR = ("linear", "cosine", "precomputed")
"""Inner products of rows; of a precomputed kernel, of the coordinates that were found for it."""
STATIONARY = ("rbf", "laplacian")
"""Kernels of the difference of two rows alone: 1 on the diagonal, and everywhere between 0 and 1."""
WIDTH_RULES = ("scale", "1/d", "median")
POWER = "power"
"""The rule that looks at domains: it also chooses between the stationary kernels."""
STANDARDIZATIONS = ("none", "zscore", "l2")

# Above this squared length a float32 exponent is off by more than 1e-4.
FLOAT32_SAFE_SQUARED_LENGTH = 1e3
# Sums over all pairs of rows, of squares of this size, stay within float64's range.
LARGEST_SUM, SMALLEST_VARIANCE = 1e300, 1e-290
LARGEST_VALUE = 1e140
"""Kernel values whose squares can be summed. Squares of values below one over it would be lost, too."""
NEARLY_CONSTANT = 1e-2
"""Scatter per row of stationary kernels below which their values are too close to 1 for float32."""
DIGITS = 1e-5
"""What reports promise: no number is off by more than this share of the scatter that it is a part of."""
FEWEST_DIGITS = {"f": 3e-3, "d": 1e-9}
"""The least scatter, relative to the kernel's trace, that float32 and float64 give to the promised digits."""
SMALLEST_WIDTH, LARGEST_WIDTH = 1e-25, 1e9
"""Of gamma times the columns' total variance (laplacian: total deviation): beyond them, what exponents differ
by is lost to rounding."""
FARTHEST = 8.0
"""Deviations from zero that float32 takes off before rows are scaled to length one."""
LEAST_TURN, LEAST_FLOAT32_TURN = 1e-18, 1e-3
"""Total variances of rows of length one below which rounding shows, in float64 and in float32."""
ROUNDING = 1e-12
EPSILON = float(np.finfo(np.float64).eps)
LOWEST_EXPONENT = {"f": -42.0, "d": -345.0}
"""Exponents in float32 and float64 below which a kernel value, or its square, would be subnormal: processors
compute with such numbers tens of times slower, and beside the ones on the diagonal they are nothing."""
MEDIAN_SAMPLE = 1000
DEGENERACY_SAMPLE = 500


@dataclass(frozen=True)
class Kernel:
    """A kernel with its parameters resolved to numbers.

    Attributes
    ----------
    gamma : None for linear and cosine.
    degree : None for all but polynomial.
    origin : (d,) the point o that prepared rows are relative to, if its image is taken for the zero of the
        kernel's space: K(x, y) - K(x, o) - K(y, o) + K(o, o) in place of K(x, y). No scatter and no MMD
        changes, and what all values have in common takes no digits from what they differ by.
    """

    name: str
    gamma: float | None = None
    degree: int | None = None
    origin: NDArray[np.float64] | None = field(default=None, compare=False)

    @property
    def is_linear(self) -> bool:
        """Whether the kernel is an inner product of the prepared features themselves."""
        return self.name in LINEAR

    @property
    def is_nonnegative(self) -> bool:
        """Whether no kernel value can be negative."""
        return self.name == "tanimoto" or (self.is_stationary and self.origin is None)

    @property
    def is_stationary(self) -> bool:
        """Whether a value depends on the difference of the rows alone."""
        return self.name in STATIONARY

    def plain(self, rows: Floats) -> tuple[Kernel, Floats]:
        """The kernel with its own zero, and some prepared rows as it takes them."""
        if self.origin is None:
            return self, rows
        return replace(self, origin=None), rows + self.origin

    def tile(
        self,
        left: Floats,
        right: Floats,
        known: tuple[Floats, Floats] | None = None,
        out: Floats | None = None,
    ) -> Floats:
        """Kernel values between two blocks of *prepared* rows, shapes (a, d), (b, d) -> (a, b).

        Parameters
        ----------
        known : the `terms` of both blocks' rows, if they are at hand.
        out : where to put the values, which may be held in less precision than they are computed in.
        """
        # numpy walks over rows that do not follow each other through small buffers, at twice the time: only
        # the last step writes to such a place.
        is_direct = out is not None and out.dtype == left.dtype and (self.is_linear or out.flags.c_contiguous)
        terms = known or (self.terms(left), self.terms(right))
        if self.name == "laplacian":
            values = self.distance_exponents(left, right)
            return self.of_products(values, values if out is None else out, terms)
        values = np.matmul(left, right.T, out=out if is_direct else None)
        if self.name == "rbf":
            # Prepared rows carry sqrt(2 gamma): exp(-gamma |x - y|^2) = exp(x.y - |x|^2/2 - |y|^2/2).
            values -= terms[0][:, None]
            values -= terms[1][None, :]
        return self.of_products(values, values if out is None else out, terms)

    def distance_exponents(self, left: Floats, right: Floats) -> Floats:
        """What the exponential of a laplacian kernel is taken of: minus the sums of absolute differences.

        Prepared rows carry gamma. Differences are taken in float64, column by column, so none is lost.
        """
        from scipy.spatial.distance import cdist  # takes longer to import than a small split to make

        return np.asarray(np.negative(cdist(left, right, "cityblock")), dtype=left.dtype)

    def terms(self, rows: Floats) -> Floats:
        """What a value takes of each prepared row besides inner products; shape (a,)."""
        if self.name == "rbf":
            return half_squares(rows)
        if self.name == "laplacian":
            return np.asarray(np.abs(rows).sum(axis=1))
        if self.name == "tanimoto":
            return np.asarray(2.0 * half_squares(rows), rows.dtype)
        if self.origin is None:
            return np.zeros(len(rows), rows.dtype)
        assert self.gamma is not None
        return np.asarray(rows @ (self.gamma * self.origin).astype(rows.dtype))

    def of_products(self, products: Floats, out: Floats, terms: tuple[Floats, Floats]) -> Floats:
        """Put into `out` the kernel values of rows whose inner products, or exponents, are given.

        Parameters
        ----------
        products : inner products; for stationary kernels exponents. They are not kept.
        terms : of the rows and of the columns.
        """
        if self.is_stationary:
            lowest = max(LOWEST_EXPONENT[products.dtype.char], LOWEST_EXPONENT[out.dtype.char])
            np.clip(products, lowest, 0, out=products)
            if self.origin is None:
                np.exp(products, out=out)
            else:
                np.expm1(products, out=products)
                products -= np.expm1(-terms[0])[:, None]
                products -= np.expm1(-terms[1])[None, :]
                out[...] = products
        elif self.name == "polynomial":
            assert self.gamma is not None and self.degree is not None
            products *= self.gamma
            if self.origin is None:
                products += 1
                np.power(products, self.degree, out=out)
            else:
                out[...] = self._polynomial(products, terms[0][:, None], terms[1][None, :])
        elif self.name == "tanimoto":
            union = terms[0][:, None] + terms[1][None, :]
            union -= products
            products[union <= 0] = 1.0  # two rows of zeros are the same
            np.divide(products, np.where(union > 0, union, 1.0), out=out, casting="same_kind")
        elif out is not products:
            out[...] = products
        return out

    def _polynomial(self, products: Floats, left: Floats, right: Floats) -> Floats:
        """Polynomial kernel values around an origin o, without the difference of four large numbers.

        With c = gamma o.o + 1 and terms a and b, the kernel's base c + a + b + p is q + r, where
        q = (c + a)(c + b)/c and r = p - a b/c. So K(x, y) - K(x, o) - K(y, o) + K(o, o) is the sum of
        (q + r)^m - q^m and c^m ((1 + a/c)^m - 1) ((1 + b/c)^m - 1), which are kernels themselves.

        Parameters
        ----------
        products : gamma times inner products of rows relative to o.
        left, right : terms of rows and columns, of shapes that broadcast with the products.
        """
        assert self.gamma is not None and self.degree is not None and self.origin is not None
        c = self.gamma * float(self.origin @ self.origin) + 1.0
        a, b = left / c, right / c
        grown = _power_difference(c * (1.0 + a) * (1.0 + b), products - c * a * b, self.degree)
        half, one = c ** (self.degree / 2), np.ones((), products.dtype)
        alone = [half * _power_difference(one, of_rows, self.degree) for of_rows in (a, b)]
        grown += alone[0] * alone[1]
        return grown

    def diagonal(self, rows: Floats) -> NDArray[np.float64]:
        """Kernel values of prepared rows with themselves."""
        if self.is_nonnegative:
            return np.ones(len(rows))
        exact = rows.astype(np.float64, copy=False)
        if self.is_stationary:
            return np.asarray(-2.0 * np.expm1(-self.terms(exact)), dtype=np.float64)
        values = 2.0 * half_squares(exact)
        if self.name == "polynomial":
            assert self.gamma is not None and self.degree is not None
            if self.origin is None:
                values = (self.gamma * values + 1.0) ** self.degree
            else:
                terms = self.terms(exact)
                values = self._polynomial(self.gamma * values, terms, terms)
        return np.asarray(values, dtype=np.float64)


def _power_difference(base: Floats, step: Floats, degree: int) -> Floats:
    """Compute (base + step)^degree - base^degree to the digits that `step` has, by squaring."""
    raised, power, difference = base + step, base, step
    for bit in f"{degree:b}"[1:]:
        difference = difference * (2.0 * power + difference)
        power = power * power
        if bit == "1":
            difference = difference * raised + power * step
            power = power * base
    return np.array(difference)


def half_squares(rows: Floats) -> NDArray[np.floating[Any]]:
    """Half the squared length of each row."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows) / 2)


@dataclass(frozen=True)
class Prepared:
    """Features mapped so that the kernel's formula applies to them, and what was found on the way.

    `spreads` are those of the columns after standardizing.
    `moments` are those of the features before they were centred, where rows were looked at.
    `width` is gamma times the total variance (laplacian: total deviation); None where there is no gamma.
    """

    kernel: Kernel
    features: Features
    spreads: ColumnSpreads
    moments: Moments | None = None
    width: float | None = None

    def resolving(self, spread: KernelSpread | None) -> Prepared:
        """Take the centre of the rows for the zero of a stationary kernel whose values hardly differ.

        Parameters
        ----------
        spread : of a sample of rows; the same for every engine.
        """
        if spread is None or spread.scatter >= NEARLY_CONSTANT:
            return self
        origin = np.zeros(self.features.shape[1])
        features = Features(self.features.raw, self.features.steps, np.float64)
        return replace(self, kernel=replace(self.kernel, origin=origin), features=features)

    def carried_to(self, raw: Floats, n_fitted: int) -> Features:
        """Prepare more rows: in float64, if those that the width was not resolved on are far from the others.

        Parameters
        ----------
        raw : (n, d), of which the first `n_fitted` were prepared.

        Raises
        ------
        InputError
            When they are too far for the distances between them to have the promised digits.
        """
        features = Features(raw, self.features.steps, self.features.dtype)
        if n_fitted == len(raw):
            return features
        return replace(features, dtype=self.elsewhere(raw[n_fitted:]).dtype)

    def elsewhere(self, raw: Floats) -> Features:
        """Prepare rows that the width was not resolved on; precision and errors as in `carried_to`."""
        features = Features(raw, self.features.steps, self.features.dtype)
        if not self.kernel.is_stationary:
            return features
        others = replace(features, dtype=np.float64)
        with np.errstate(over="ignore"):
            exponents = [self.kernel.terms(others.block(*tile)).mean() for tile in others.row_tiles()]
            largest = float(np.mean(exponents))
        if not largest < LARGEST_WIDTH:
            raise InputError(
                f"rows outside the split are too far from it for gamma={self.kernel.gamma:.3g}: exponents of "
                f"{largest:.3g}, beyond {LARGEST_WIDTH:g}",
                hint="use --standardize zscore, a smaller --gamma, another --kernel, or leave those rows out",
            )
        return features if 8 * largest < FLOAT32_SAFE_SQUARED_LENGTH else replace(features, dtype=np.float64)

    def require_digits(self, scatter: float, trace: float, n: int) -> None:
        """Refuse a kernel whose rounding would show in the digits that reports promise.

        Parameters
        ----------
        scatter, trace : of the kernel of n rows.

        Raises
        ------
        InputError
            With the value, its limit and what to do.
        """
        held = "f" if self.features.raw.dtype.itemsize <= 4 and not self.kernel.is_linear else "d"
        rounding = FEWEST_DIGITS[held] * trace
        if self.kernel.is_stationary and self.width is not None:
            # Exponents are differences of numbers of this size.
            rounding = max(rounding, 8.0 * float(np.finfo(np.float64).eps) * self.width * n / DIGITS)
        if scatter >= rounding and np.isfinite(trace):
            return
        raise InputError(
            f"the {self.kernel.name} kernel's values differ by too little: their scatter is {scatter:.3g}, "
            f"and less than {rounding:.3g} is not known to the promised digits",
            hint="use --standardize zscore, another --gamma, or --kernel linear",
        )


def standardize(features: Features, how: str, workers: Workers) -> Features:
    """Apply `--standardize`: nothing, unit variance per column, or unit length per row."""
    if how == "zscore":
        found = moments(features, workers)
        return unit_variance(features, found)
    if how == "l2":
        return features.then(unit_rows)
    return features


def unit_variance(features: Features, found: Moments) -> Features:
    """Centre every column and divide it by its deviation."""
    # A constant column carries nothing: centring makes it zero, so its scale is irrelevant.
    scale = 1 / np.where(found.deviation > 0, found.deviation, 1)
    if found.rest is None or not np.any(np.abs(found.rest) * scale > ROUNDING):
        return features.then(Affine(found.mean, scale))
    # The mean of columns far from zero is rounded by more than what is left of them tolerates.
    return features.then(Affine(found.mean, 1.0)).then(Affine(found.rest, scale))


def prepare(
    features: Features,
    name: str,
    gamma: str | float,
    degree: int,
    workers: Workers,
    rng: np.random.Generator,
) -> Prepared:
    """Resolve the kernel's width and map the features for it.

    Kernels see centred features: distances and MMD do not change under a common shift, and rounding errors
    shrink. A polynomial kernel is told where the centre was.

    Raises
    ------
    InputError
        When all features are constant, or their squares or the kernel leave the range of float64.
    """
    if name == "cosine":
        _refuse_lost_directions(features, workers)
        features = features.then(unit_rows)
    found = moments(features, workers, by_row=name in LINEAR)
    prepared = prepare_with(features, found, features.shape[0], name, gamma, degree, rng)
    return prepared if found.squares is None else replace(prepared, moments=found)


def _refuse_lost_directions(features: Features, workers: Workers) -> None:
    """Refuse rows so close to the mean of all columns that centring leaves only rounding of them."""
    scaled = features.steps[-1] if features.steps else None
    if not isinstance(scaled, Affine):
        return

    def lost(tile: tuple[int, int]) -> NDArray[np.bool_]:
        length = np.linalg.norm(features.block(*tile, dtype=np.float64), axis=1)
        rounding = np.linalg.norm(features.raw[slice(*tile)] * (EPSILON * scaled.scale), axis=1)
        return np.asarray((length > 0) & (length * DIGITS < rounding))

    found = np.flatnonzero(np.concatenate(list(workers.map(lost, features.row_tiles()))))
    if len(found):
        raise InputError(
            f"{len(found)} rows have no direction beyond rounding errors: they are at the mean of "
            "all columns",
            hint="use --standardize zscore with another kernel than cosine",
        )


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
    spreads = ColumnSpreads.of(found.deviation, found.reach)
    width = None
    is_turned = unit_rows in features.steps
    fits_float32 = not is_turned or (total_variance > LEAST_FLOAT32_TURN and _start_near_zero(features))
    if is_turned and total_variance < LEAST_TURN:
        raise InputError(
            f"all rows point almost the same way: scaled to length one, their total variance is "
            f"{total_variance:.3g}, below {LEAST_TURN:g}",
            hint="use --standardize zscore with another kernel than cosine",
        )
    if name in LINEAR:
        kernel = Kernel(name)
        features = features.then(Affine(found.mean, 1.0))
        if not 1 / LARGEST_VALUE < total_variance < LARGEST_VALUE:
            raise _not_squared(found)
        in_range = fits_float32 and 1e-15 < total_variance < 1e30 and found.largest < 1e15
    elif name == "tanimoto":
        if found.lowest < 0:
            raise InputError(
                f"the tanimoto kernel compares counts, and a feature is {found.lowest:.3g}",
                hint="use features that are not negative, without --standardize zscore, or --kernel cosine",
            )
        kernel = Kernel(name)
        if not found.largest < LARGEST_VALUE**0.5:
            raise _not_squared(found)
        in_range = fits_float32 and not features.steps and 1e-6 < found.largest < 1e6
    else:
        is_laplacian = name == "laplacian"
        spread = float(found.deviation.sum()) if is_laplacian else total_variance
        factor = resolve_gamma(gamma, features, spread, rng, absolute=is_laplacian)
        width = factor * spread
        what = "total deviation" if is_laplacian else "total variance"
        _refuse_width(factor, spread, LARGEST_WIDTH if name in STATIONARY else np.inf, what)
        in_range = fits_float32
        if name in STATIONARY:
            kernel = Kernel(name, gamma=factor)
            scale = factor if is_laplacian else float(2 * np.sqrt(factor / 2))
            features = features.then(Affine(found.mean, scale))
            in_range &= 8 * width < FLOAT32_SAFE_SQUARED_LENGTH
        else:
            in_range &= not features.steps  # what they round is not the same for all rows
            with np.errstate(over="ignore"):
                largest = float((1 + factor * np.square(np.float64(found.largest)) * d) ** np.float64(degree))
            # Kernels of features of up to 32 bits are held in float32.
            if not largest < (1e30 if features.raw.dtype.itemsize <= 4 else LARGEST_VALUE):
                raise InputError(
                    f"the polynomial kernel of degree {degree} overflows on features of up to "
                    f"{found.largest:.3g}",
                    hint="use a smaller --degree or --gamma, or --standardize zscore",
                )
            in_range &= 1e-15 < found.largest < 1e15 and 1e-30 < factor < 1e30
    in_range &= all(step.suits_float32 for step in features.steps if isinstance(step, Affine))
    precision = np.float32 if features.raw.dtype.itemsize <= 4 and in_range else np.float64
    if name == "polynomial":
        # Rows in either precision are relative to the very same point.
        centre = found.mean.astype(precision).astype(np.float64)
        kernel = Kernel(name, gamma=factor, degree=degree, origin=centre)
        features = features.then(Affine(centre, 1.0))
    return Prepared(kernel, Features(features.raw, features.steps, precision), spreads, width=width)


def _start_near_zero(features: Features) -> bool:
    """Whether no centred column was far from zero, so that float32 gives rows their direction."""
    shifts = [
        step.shift * step.scale
        for step in features.steps
        if isinstance(step, Affine) and step.shift is not None
    ]
    return all(float(np.abs(shift).max(initial=0.0)) < FARTHEST for shift in shifts)


def _refuse_width(gamma: float, spread: float, largest: float, what: str) -> None:
    """Refuse a gamma with which distances between rows, or what exponents differ by, are lost to rounding."""
    width = gamma * spread
    if not SMALLEST_WIDTH <= width <= largest:
        is_small, limit = width < SMALLEST_WIDTH, SMALLEST_WIDTH if width < SMALLEST_WIDTH else largest
        raise UsageError(
            f"--gamma {gamma:g} is too {'small' if is_small else 'large'} for features of {what} "
            f"{spread:.3g}: their product is beyond {limit:g}",
            hint="try --gamma scale",
        )


def _refuse_unusable(found: Moments, n: int) -> None:
    """Refuse features that do not vary, or whose squares leave the range of float64."""
    if not found.deviation.any():
        raise InputError(
            "all features are constant, so every split has an MMD of zero",
            hint="choose other columns with --columns",
        )
    if not SMALLEST_VARIANCE < found.total_variance < LARGEST_SUM / n**2:
        raise _not_squared(found)


def _not_squared(found: Moments) -> InputError:
    size = "small" if found.total_variance < 1 else "large"
    return InputError(
        f"features are too {size} to square: the largest absolute value is {found.largest:.3g}",
        hint="use --standardize zscore, or rescale the features",
    )


_WITHOUT_DOMAINS = "use --gamma scale or median"


def parse_gamma(text: str) -> str | float:
    """Read `--gamma`: one of the rules, or a positive finite number."""
    if text in (*WIDTH_RULES, POWER):
        return text
    try:
        value = float(text)
    except ValueError:
        raise UsageError(
            f"--gamma '{text}' is neither a number nor one of {', '.join((*WIDTH_RULES, POWER))}",
            hint="for example --gamma scale or --gamma 0.01",
        ) from None
    if not (np.isfinite(value) and value > 0):
        raise UsageError(f"--gamma must be a positive finite number, got {text}", hint="try --gamma scale")
    return value


def resolve_gamma(
    gamma: str | float,
    features: Features,
    spread: float,
    rng: np.random.Generator,
    *,
    absolute: bool = False,
) -> float:
    """Turn a width rule into a number: `scale` is 1/spread, `median` 1/median distance.

    Parameters
    ----------
    spread : the sum of the columns' variances, or deviations.
    absolute : whether distances are sums of absolute differences; else of squared ones.
    """
    if isinstance(gamma, (int, float)):
        return float(gamma)
    if gamma == POWER:
        raise UsageError(
            "--gamma power looks at the domains of rows in memory that are to be split", hint=_WITHOUT_DOMAINS
        )
    if gamma == "scale":
        return 1.0 / spread
    if gamma == "1/d":
        return 1.0 / features.shape[1]
    distances = sampled_distances(features, MEDIAN_SAMPLE, rng, absolute=absolute)
    middle = float(np.median(distances))
    if middle <= 0:
        raise InputError(
            "--gamma median: more than half of the sampled rows are identical, so the median distance is 0",
            hint="use --gamma scale or a number",
        )
    return 1.0 / middle


def sampled_distances(
    features: Features, size: int, rng: np.random.Generator, *, absolute: bool = False
) -> NDArray[np.float64]:
    """Squared, or sums of absolute, differences of all pairs of a seeded sample of rows."""
    n = features.shape[0]
    rows = np.sort(rng.choice(n, size=min(n, size), replace=False))
    sample = features.take(rows, dtype=np.float64)
    sample -= sample.mean(axis=0)
    if absolute:
        from scipy.spatial.distance import pdist

        return np.asarray(pdist(sample, "cityblock"))
    half = half_squares(sample)
    lengths = half[:, None] + half[None, :]
    squared = 2 * (lengths - sample @ sample.T)
    squared[squared < ROUNDING * lengths] = 0.0  # equal rows
    return np.asarray(squared[np.triu_indices(len(rows), k=1)], dtype=np.float64)


@dataclass(frozen=True)
class KernelSpread:
    """The 1st and 99th percentile of off-diagonal kernel values on a sample of rows, and scatter per row."""

    low: float
    high: float
    scatter: float = 1.0

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
    kernel, sample = prepared.kernel.plain(sample)
    return np.asarray(kernel.tile(sample, sample)[np.triu_indices(len(rows), k=1)])


def off_diagonal_spread(prepared: Prepared, rng: np.random.Generator) -> KernelSpread:
    """Look at the kernel's off-diagonal values on a seeded sample of rows."""
    values = off_diagonal_values(prepared, rng)
    low, high = len(values) // 100, len(values) - 1 - len(values) // 100
    n = min(prepared.features.shape[0], DEGENERACY_SAMPLE)
    scatter = (1.0 - float(values.mean())) * (n - 1) / n
    values.partition([low, high])
    return KernelSpread(float(values[low]), float(values[high]), scatter)
