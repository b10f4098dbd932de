"""Sums of floating-point arrays that do not depend on the order, or the grouping, of the terms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

DIGIT_BITS = 40
"""Bits per digit. Sums of 2^23 digits fit 64-bit integers."""


@dataclass
class ExactSum:
    """An exact sum of arrays of one shape.

    Every number is written in digits of 40 bits, which is exact, and digits are added as integers. So
    blocks may be summed anywhere and in any order, and the total is the same to the last bit.

    Attributes
    ----------
    shape : of the terms and of the total.
    digits : the sums of the digits by their place: a digit at place p counts 2^(40 p).
    """

    shape: tuple[int, ...]
    digits: dict[int, NDArray[np.int64]] = field(default_factory=dict)

    def add(self, values: NDArray[np.float64]) -> None:
        """Add one array; its values must be finite."""
        rest = np.array(values, dtype=np.float64, copy=True).reshape(self.shape)
        largest = float(np.abs(rest).max(initial=0.0))
        place = (int(np.frexp(largest)[1]) - 1) // DIGIT_BITS
        while rest.any():
            digit = np.trunc(np.ldexp(rest, -DIGIT_BITS * place))
            rest -= np.ldexp(digit, DIGIT_BITS * place)
            self._add_digit(place, digit.astype(np.int64))
            place -= 1

    def merge(self, other: ExactSum) -> None:
        """Add everything that another sum holds."""
        for place, digit in other.digits.items():
            self._add_digit(place, digit)

    def total(self) -> NDArray[np.float64]:
        """The sum, rounded once per digit, smallest digits first."""
        result = np.zeros(self.shape)
        for place in sorted(self.digits):
            result += np.ldexp(self.digits[place].astype(np.float64), DIGIT_BITS * place)
        return result

    def _add_digit(self, place: int, digit: NDArray[np.int64]) -> None:
        held = self.digits.get(place)
        self.digits[place] = digit if held is None else held + digit


def merged(sums: Iterable[ExactSum]) -> NDArray[np.float64]:
    """The total of several sums of one shape, at least one."""
    first, *others = sums
    together = ExactSum(first.shape, dict(first.digits))
    for other in others:
        together.merge(other)
    return together.total()
