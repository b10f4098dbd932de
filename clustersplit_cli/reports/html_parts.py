"""The words and tables of the HTML report of folds and named parts, from the content of `report.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clustersplit_cli.reports.formatting import human_count, human_number
from clustersplit_cli.reports.html_constraints import shares_in_words
from clustersplit_cli.reports.html_page import Tile
from clustersplit_cli.reports.html_words import CELLS_SHOWN, HARDLY, cell_name, times
from clustersplit_cli.reports.portrait import PartsPortrait


@dataclass(frozen=True)
class Square:
    """One square of the matrix of MMDs; `heat` is 1 for the largest."""

    value: float
    heat: float


@dataclass(frozen=True)
class MatrixRow:
    """One part: its MMD with each of the others (None: itself), and with all of them."""

    name: str
    squares: tuple[Square | None, ...]
    rest: Square
    remark: str


@dataclass(frozen=True)
class PartCount:
    """A cell's rows in one part."""

    actual: int
    target: int
    wanted: str
    satisfied: bool


@dataclass(frozen=True)
class PartCell:
    """A cell and its rows in every part."""

    name: str
    size: int
    counts: tuple[PartCount, ...]

    @property
    def satisfied(self) -> bool:
        """Whether all counts are within their bounds."""
        return all(count.satisfied for count in self.counts)


@dataclass(frozen=True)
class PartCells:
    """The cells, those farthest from their targets first; `hidden` more are not shown."""

    rows: tuple[PartCell, ...]
    hidden: int


def kind_of_part(report: Mapping[str, Any]) -> str:
    """What one part is called."""
    return "fold" if report["config"].get("k") is not None else "part"


def parts_headline(report: Mapping[str, Any]) -> str:
    """Say in one sentence what the parts are worth."""
    part, random = kind_of_part(report), report["baselines"]["random"]["mmd_mean"]
    ratio = report["mmd"]["value"] / random if random else math.inf
    subject = f"The {len(report['parts']['parts'])} {part}s differ from each other"
    if not math.isfinite(ratio):
        differs = f"{subject}, and random {part}s do not"
    elif ratio < 1 / HARDLY:
        differs = f"{subject} less than random {part}s would"
    elif ratio < HARDLY:
        differs = f"{subject} hardly more than random {part}s would"
    else:
        differs = f"{subject} {times(ratio)} times more than random {part}s would"
    kept = shares_in_words(report, f"every {part} has its share of all rows")
    return f"{differs}; {kept}{'' if 'share of all rows' in kept or 'miss' in kept else f' in every {part}'}."


def parts_tiles(report: Mapping[str, Any]) -> tuple[Tile, ...]:
    """The figures one would ask for first."""
    part, parts = kind_of_part(report), report["parts"]["parts"]
    sizes, rest = [each["size"] for each in parts], [each["mmd_rest"] for each in parts]
    random = report["baselines"]["random"]
    chance = f"{human_number(random['mmd_mean'], 3)} ± {human_number(random['mmd_sd'], 2)}"
    counts = report["constraints"]["cells"]
    least, most = min(sizes), max(sizes)
    if part == "fold":
        spread = human_count(least) if least == most else f"{human_count(least)} to {human_count(most)}"
        remark = f"of {spread} rows each"
    else:
        remark = ", ".join(f"{each['name']} {human_count(each['size'])}" for each in parts)
    far, near = max(parts, key=lambda each: each["mmd_rest"]), min(rest)
    return (
        Tile(str(len(parts)), f"{part}s", remark),
        Tile(
            human_number(report["mmd"]["value"], 3),
            f"MMD between {part}s",
            f"on average; random: {chance}",
        ),
        Tile(
            f"{human_number(near, 3)} to {human_number(max(rest), 3)}",
            f"MMD of one {part} to the rest",
            f"{far['name']} is farthest",
        ),
        Tile(
            f"{human_count(sum(each['satisfied'] for each in counts))} of {human_count(len(counts))}",
            "counts within bounds",
            f"of every cell in every {part}",
        ),
    )


def mmd_matrix(report: Mapping[str, Any], portrait: PartsPortrait) -> tuple[MatrixRow, ...]:
    """All MMDs between parts, and those with the rest, beside what random parts have."""
    parts, values = report["parts"]["parts"], report["parts"]["mmd"]
    largest = max((value for row in values for value in row), default=0.0) or 1.0
    farthest = max(each["mmd_rest"] for each in parts) or 1.0
    rows = []
    for place, (each, row) in enumerate(zip(parts, values, strict=True)):
        random = [rest[place] for rest in portrait.random_rest]
        mean = sum(random) / len(random)
        rows.append(
            MatrixRow(
                each["name"],
                tuple(
                    None if other == place else Square(value, value / largest)
                    for other, value in enumerate(row)
                ),
                Square(each["mmd_rest"], each["mmd_rest"] / farthest),
                f"random {human_number(mean, 2)}",
            )
        )
    return tuple(rows)


def part_cells(report: Mapping[str, Any]) -> PartCells:
    """Put a cell's counts in all parts on one line; out of bounds first, then by rows off target."""
    names = [part["name"] for part in report["parts"]["parts"]]
    by_cell: dict[tuple[tuple[str, str], ...], dict[str, Mapping[str, Any]]] = {}
    for each in report["constraints"]["cells"]:
        key = tuple((word, str(value)) for word, value in each["cell"].items())
        by_cell.setdefault(key, {})[each["part"]] = each
    cells = [
        PartCell(
            cell_name(counts[names[0]]["cell"]),
            counts[names[0]]["size"],
            tuple(_count(counts[name]) for name in names),
        )
        for counts in by_cell.values()
    ]
    cells.sort(key=lambda cell: (cell.satisfied, -_off(cell.counts)))
    return PartCells(tuple(cells[:CELLS_SHOWN]), max(len(cells) - CELLS_SHOWN, 0))


def _count(each: Mapping[str, Any]) -> PartCount:
    lower, upper = each["lower"], each["upper"]
    wanted = human_count(lower) if lower == upper else f"{human_count(lower)} to {human_count(upper)}"
    return PartCount(each["actual"], each["target"], wanted, each["satisfied"])


def _off(counts: Sequence[PartCount]) -> int:
    return sum(abs(count.actual - count.target) for count in counts)
