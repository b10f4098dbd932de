"""Random tables: features of every kind of number, and columns of every kind of category."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Random = np.random.Generator
T = TypeVar("T")

HOSTILE = (
    "",
    " ",
    "a=b",
    "a,b",
    "a;b",
    "line\nbreak",
    "tab\t",
    "\x1b[31mred",
    "<script>alert(1)</script>",
    "'; DROP TABLE rows; --",
    '"quoted"',
    "{train}",
    "{{ 7 * 7 }}",
    "%s%n",
    "../../up",
    "NULL",
    "nan",
    "-1",
    "--force",
    "\u00e4\u00f6\u00fc",
    "\u65e5\u672c\u8a9e",
    "\U0001f642",
    "e\u0301",
    "\u202eabc",
    "\ufeffbom",
    "nul\x00",
    "x" * 400,
    "[bold]markup[/bold]",
    "*",
    "f?",
)


@dataclass(frozen=True)
class Table:
    """Features of n rows under names, and other columns by name.

    Attributes
    ----------
    pairs : whether these are no features but the `similarities` or `distances` of all rows from each other.
    """

    features: NDArray[Any]
    names: tuple[str, ...]
    columns: dict[str, list[Any]]
    pairs: str | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.features)


def pick(rng: Random, choices: Sequence[tuple[float, T]]) -> T:
    """One of the choices, with probabilities in proportion to their weights."""
    weights = np.array([weight for weight, _ in choices])
    return choices[int(rng.choice(len(choices), p=weights / weights.sum()))][1]


def one_of(rng: Random, choices: Sequence[T]) -> T:
    """One of the choices, all equally likely."""
    return choices[int(rng.integers(len(choices)))]


def make_table(rng: Random) -> Table:
    """A table of few rows: most are ordinary, some are at the edge of what a table can be."""
    n = int(
        pick(
            rng,
            [
                (0.02, 0),
                (0.03, 1),
                (0.04, 2),
                (0.05, 3),
                (0.2, rng.integers(4, 13)),
                (0.4, rng.integers(13, 61)),
                (0.22, rng.integers(61, 200)),
                (0.04, rng.integers(200, 500)),
            ],
        )
    )
    d = int(pick(rng, [(0.02, 0), (0.15, 1), (0.7, rng.integers(2, 7)), (0.1, rng.integers(7, 40))]))
    values = features(rng, n, d)
    if n > 3 and rng.random() < 0.15:  # identical rows
        values = values[np.sort(rng.integers(0, max(1, n // 3), n))]
    pairs = one_of(rng, ["similarities", "distances"]) if 1 < n < 120 and rng.random() < 0.03 else None
    if pairs:
        values = _of_pairs(rng, values, pairs)
        d = n
    columns: dict[str, list[Any]] = {}
    if rng.random() < 0.93:
        columns["label"] = categories(rng, n)
    if rng.random() < 0.6:
        columns["domain"] = categories(rng, n)
    if rng.random() < 0.4:
        columns["unit"] = [f"u{value}" for value in np.sort(rng.integers(0, max(1, n // 2), n))]
        columns["id"] = [f"row {row}" for row in range(n)]
        columns["site"] = rng.integers(0, 3, n).tolist()
        columns["age"] = rng.normal(40, 10, n).tolist()
    if rng.random() < 0.06:
        columns[one_of(rng, HOSTILE) or "odd"] = categories(rng, n)
    return Table(values, _names(rng, d), columns, pairs)


def _of_pairs(rng: Random, values: NDArray[Any], pairs: str) -> NDArray[Any]:
    """The matrix of all rows' similarities or distances, sometimes spoiled in one place."""
    with np.errstate(all="ignore"):
        x = values.astype("f8")
        apart = np.sqrt(((x[:, None, :] - x[None, :, :]) ** 2).sum(axis=2))
        made = apart if pairs == "distances" else np.exp(-(apart**2) / 2.0)
    if rng.random() < 0.15:
        row, column = rng.integers(0, len(made), 2)
        made[row, column] = one_of(rng, [np.nan, np.inf, -1.0, 0.5, 1e300])
    return made if rng.random() < 0.9 else made.astype("f4")


def _names(rng: Random, d: int) -> tuple[str, ...]:
    kind = pick(rng, [(0.86, "f"), (0.04, "hostile"), (0.05, "gaps"), (0.01, "same"), (0.04, "words")])
    if kind == "hostile":
        return tuple(f"{one_of(rng, HOSTILE)}{column}" for column in range(d))
    if kind == "gaps":
        return tuple(f"feat_{3 * column + 1}" for column in range(d))
    if kind == "same":
        return ("f0",) * d
    if kind == "words":
        return tuple(
            ["height", "width", "label2", "F0", "weight"][column % 5] + "x" * column for column in range(d)
        )
    return tuple(f"f{column}" for column in range(d))


def features(rng: Random, n: int, d: int) -> NDArray[Any]:
    """A matrix of n rows and d columns."""
    dtype = pick(
        rng,
        [
            (0.42, "f4"),
            (0.38, "f8"),
            (0.04, "f2"),
            *((0.03, whole) for whole in ("i4", "i8", "u1", "u8", "?")),
        ],
    )
    kind = one_of(rng, list(KINDS)) if rng.random() < 0.45 else "normal"
    with np.errstate(all="ignore"):
        return np.asarray(KINDS[kind](rng, n, d)).astype(dtype)


def _clusters(rng: Random, n: int, d: int) -> NDArray[Any]:
    return rng.normal(scale=4.0, size=(4, d))[rng.integers(0, 4, n)] + rng.normal(size=(n, d))


def _scaled(scale: float) -> Callable[[Random, int, int], NDArray[Any]]:
    return lambda rng, n, d: rng.normal(size=(n, d)) * scale


def _with(value: float, share: float) -> Callable[[Random, int, int], NDArray[Any]]:
    return lambda rng, n, d: np.where(rng.random((n, d)) < share, value, rng.normal(size=(n, d)))


def _constant_columns(rng: Random, n: int, d: int) -> NDArray[Any]:
    return np.where(rng.random(d) < 0.5, 3.25, rng.normal(size=(n, d)))


def _unit_length(rng: Random, n: int, d: int) -> NDArray[Any]:
    values = rng.normal(size=(n, d))
    return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-9)


def _one_outlier(rng: Random, n: int, d: int) -> NDArray[Any]:
    values = rng.normal(size=(n, d))
    values[: min(n, 1)] = one_of(rng, [1e6, 1e20, 1e38, 1e150, 1e200, -1e308])
    return values


KINDS: dict[str, Callable[[Random, int, int], NDArray[Any]]] = {
    "normal": lambda rng, n, d: rng.normal(size=(n, d)),
    "clusters": _clusters,
    "integers": lambda rng, n, d: rng.integers(0, 4, (n, d)).astype(float),
    "zeros and ones": lambda rng, n, d: (rng.random((n, d)) < 0.3).astype(float),
    "constant": lambda rng, n, d: np.full((n, d), 1.5),
    "all zero": lambda rng, n, d: np.zeros((n, d)),
    "constant columns": _constant_columns,
    "scales of columns": lambda rng, n, d: rng.normal(size=(n, d)) * 10.0 ** rng.integers(-8, 8, d),
    "large": _scaled(1e30),
    "huge": _scaled(1e150),
    "enormous": _scaled(1e300),
    "small": _scaled(1e-30),
    "tiny": _scaled(1e-160),
    "subnormal": _scaled(1e-310),
    "offset": lambda rng, n, d: rng.normal(size=(n, d)) + 1e8,
    "far offset": lambda rng, n, d: rng.normal(size=(n, d)) + 1e15,
    "one outlier": _one_outlier,
    "some nan": _with(np.nan, 0.02),
    "many nan": _with(np.nan, 0.5),
    "some inf": _with(np.inf, 0.02),
    "minus inf": _with(-np.inf, 0.02),
    "unit length": _unit_length,
    "heavy tails": lambda rng, n, d: rng.standard_cauchy((n, d)),
}


def categories(rng: Random, n: int) -> list[Any]:
    """The values of one column of categories."""
    few = int(rng.integers(2, 5))
    codes, first = rng.integers(0, few, n), int(rng.integers(len(HOSTILE)))
    kinds: list[tuple[float, Callable[[], list[Any]]]] = [
        (0.42, lambda: [f"class {code}" for code in codes]),
        (0.14, codes.tolist),
        (0.03, (codes % 2 == 0).tolist),
        (0.02, (codes / 3.0).tolist),
        (0.03, codes.astype(float).tolist),
        (0.05, lambda: ["same"] * n),
        (0.03, lambda: [f"only {row}" for row in range(n)]),
        (0.05, lambda: ["rare" if row == 0 else "common" for row in range(n)]),
        (0.05, lambda: [HOSTILE[(first + int(code)) % len(HOSTILE)] for code in codes]),
        (0.03, lambda: [one_of(rng, HOSTILE) for _ in range(n)]),
        (
            0.05,
            lambda: [
                None if value < 0.2 else f"c{code}" for value, code in zip(rng.random(n), codes, strict=True)
            ],
        ),
        (0.01, lambda: [None] * n),
        (
            0.02,
            lambda: [float("nan") if value < 0.2 else value for value in np.round(rng.random(n), 1).tolist()],
        ),
        (0.02, lambda: [date(2026, 1, 1 + int(code)) for code in codes]),
        (0.02, lambda: [bytes([65 + int(code), 0xFF]) for code in codes]),
        (0.01, lambda: rng.normal(size=n).tolist()),
        (0.02, lambda: [2**63 - 1 - int(code) for code in codes]),
    ]
    return pick(rng, kinds)()
