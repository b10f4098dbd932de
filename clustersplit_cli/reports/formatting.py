"""Numbers, sizes, times and file names in the form people read."""

from __future__ import annotations

import math
import os

from clustersplit_cli.errors import printable as one_line
from clustersplit_cli.errors import shortened

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def human_count(count: int) -> str:
    """Write a whole number with thousands separators.

    >>> human_count(9991)
    '9,991'
    """
    return f"{count:,}"


def human_number(value: float, digits: int = 4) -> str:
    """Write a number with `digits` significant digits, never losing whole ones.

    >>> [human_number(x) for x in (0.482134, 1234567.8, 2.5e-9, 1e12, 0.0)]
    ['0.4821', '1,234,568', '2.5e-09', '1e+12', '0']
    """
    if not math.isfinite(value):
        return "undefined"
    if value == 0:
        return "0"
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])  # after rounding: 9.99999 is 10.00
    if not -4 < exponent < 9:
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{power}"
    return f"{value:,.{max(digits - 1 - exponent, 0)}f}"


def human_percent(fraction: float) -> str:
    """Write a fraction as a percentage with one decimal.

    >>> human_percent(0.2004)
    '20.0%'
    """
    return f"{100 * fraction:.1f}%"


def human_bytes(count: int) -> str:
    """Write a number of bytes in decimal units with three significant digits.

    >>> [human_bytes(n) for n in (512, 399_280_324, 14_200_000_000, 999_999)]
    ['512 B', '399 MB', '14.2 GB', '1.00 MB']
    """
    if count < 1000:
        return f"{count} B"
    rounded = float(f"{count:.2e}")  # rounding first, so that 999,999 bytes are 1.00 MB
    power = min(int(math.log10(rounded) + 1e-9) // 3, len(_BYTE_UNITS) - 1)
    scaled = rounded / 1000**power
    decimals = 2 if scaled < 10 else 1 if scaled < 100 else 0
    return f"{scaled:,.{decimals}f} {_BYTE_UNITS[power]}"


def human_seconds(seconds: float) -> str:
    """Write a duration in the units one would say it in.

    >>> [human_seconds(t) for t in (0.0123, 1.26, 59.97, 192, 7_500)]
    ['12 ms', '1.3 s', '1 min 0 s', '3 min 12 s', '2 h 5 min']
    """
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min"


def worst_case(*, passed: bool, between: float | None, farthest: float | None, rows: str) -> tuple[str, str]:
    """Say whether validation is a worst case for some rows, and why.

    >>> worst_case(passed=False, between=0.281, farthest=0.32, rows="the evaluation rows are")[1]
    'the evaluation rows are farther (0.320) than validation is from training (0.281)'
    """
    apart = "" if between is None else f" ({human_number(between, 3)})"
    there = "" if farthest is None else f" ({human_number(farthest, 3)})"
    if passed:
        return (
            "worst-case check passed",
            f"validation is farther from training{apart} than {rows} from either{there}",
        )
    return "worst-case check failed", f"{rows} farther{there} than validation is from training{apart}"


def printable(text: str | os.PathLike[str]) -> str:
    r"""Escape what a terminal would act on or cannot show: control characters, undecodable bytes.

    >>> printable("two\nlines")
    'two\\nlines'
    """
    return one_line(shortened(os.fspath(text)))
