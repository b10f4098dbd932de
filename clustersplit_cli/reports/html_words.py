"""The words and tables of the HTML report, from the content of `report.json`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clustersplit_cli.reports.formatting import (
    human_count,
    human_number,
    human_percent,
    printable,
    worst_case,
)
from clustersplit_cli.reports.html_page import Tile
from clustersplit_cli.reports.portrait import Portrait

CELLS_SHOWN = 400
HEAT_ROWS, HEAT_COLUMNS = 60, 30
HARDLY = 1.1


@dataclass(frozen=True)
class CellRow:
    """One line of the constraint table."""

    name: str
    size: int
    wanted: str
    actual: int
    share: float
    satisfied: bool


@dataclass(frozen=True)
class CellTable:
    """The cells, those farthest from their target first; `hidden` more are not shown."""

    rows: tuple[CellRow, ...]
    n_off_target: int
    n_cells: int
    hidden: int


@dataclass(frozen=True)
class Share:
    """One square of the heat map: validation rows of all rows; `heat` is 0.5 at the holdout fraction."""

    actual: int
    size: int
    share: float
    heat: float


@dataclass(frozen=True)
class HeatMap:
    """Validation shares by two columns; None where no rows are."""

    row_word: str
    column_word: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Share | None, ...]], ...]
    hidden: int


def headline(report: Mapping[str, Any]) -> str:
    """Say in one sentence what the split is worth."""
    random = report["baselines"]["random"]["mmd_mean"]
    ratio = report["mmd"]["value"] / random if random else math.inf
    if not math.isfinite(ratio):
        differs = "Validation and training rows differ, and random splits do not"
    elif ratio < 1 / HARDLY:
        differs = "Validation differs from training less than a random split would"
    elif ratio < HARDLY:
        differs = "Validation differs from training hardly more than a random split would"
    else:
        differs = f"Validation differs from training {times(ratio)} times more than a random split would"
    return f"{differs}; {shares_in_words(report, 'validation has its share of all rows')}."


def times(ratio: float) -> str:
    """Write how many times larger something is."""
    return f"{ratio:.1f}" if ratio < 100 else human_count(round(ratio))


def tiles(report: Mapping[str, Any]) -> tuple[Tile, ...]:
    """The figures one would ask for first."""
    sizes, bound, random = report["sizes"], report["bound"], report["baselines"]["random"]
    total = sizes["train"] + sizes["val"]
    cells = report["constraints"]["cells"]
    kept = sum(cell["satisfied"] for cell in cells)
    found = [
        Tile(
            human_count(sizes["val"]),
            "validation rows",
            f"{human_percent(sizes['val'] / total)}; {human_count(sizes['train'])} are for training",
        ),
        Tile(
            human_number(report["mmd"]["value"], 3),
            "MMD between the sides",
            f"random splits: {human_number(random['mmd_mean'], 3)} ± {human_number(random['mmd_sd'], 2)}",
        ),
        Tile(
            f"{human_count(kept)} of {human_count(len(cells))}",
            "cells within bounds",
            "validation counts per cell",
        ),
    ]
    if (grade := report["graded"]) is not None:
        found.insert(2, _severity_tile(grade))
    elif bound is not None:
        percent = min(math.floor(100 * bound["fraction"] + 1e-9), 100)
        of = "" if bound["kernel"] == "exact" else ", for the Nyström kernel"
        at_most = f"no split exceeds {human_number(bound['mmd_upper'], 3)}{of}"
        share = Tile(f"≥ {percent}%", "of the best possible MMD", at_most)
        found.insert(2, Tile("optimal", "proven by the bound", at_most) if bound["proven_optimal"] else share)
    return tuple(found)


def _severity_tile(grade: Mapping[str, Any]) -> Tile:
    ends = f"{human_number(grade['random_mmd'], 3)} to {human_number(grade['best_mmd'], 3)}"
    reached = grade["severity"] if grade["severity_reached"] is None else grade["severity_reached"]
    return Tile(f"{max(reached, 0.0):.2g}", "severity, 0 random to 1 hardest", f"MMDs range from {ends}")


@dataclass(frozen=True)
class TargetCheck:
    """How far a target is from both sides, and whether validation is a worst case for it.

    `distances` are MMDs by what they are between; `facts` are sentences.
    """

    name: str
    passed: bool
    said: str
    why: str
    distances: tuple[tuple[str, float], ...]
    facts: tuple[str, ...]


def target_check(report: Mapping[str, Any]) -> TargetCheck | None:
    """Put the target of a split into words; None where there was none."""
    target = report["target"]
    if target is None:
        return None
    between, sides = report["mmd"]["value"], (target["mmd_train"], target["mmd_val"])
    said, why = worst_case(passed=target["valid"], between=between, farthest=max(sides), rows="the target is")
    n_rows = human_count(report["sizes"]["train"] + report["sizes"]["val"])
    facts = [
        f"The MMD between the target and all {n_rows} rows is {human_number(target['mmd'])} "
        f"(p {human_number(target['p_value'], 2)}, permutation test)."
    ]
    if target["severity"] is not None:
        facts.append(
            f"On the scale from random splits (0) to the hardest split found (1) that is a severity of "
            f"{human_number(target['severity'], 3)}."
        )
    if (weights := target["weights"]) is not None:
        facts.append(
            f"The weighted validation rows count as {human_number(weights['effective_size'], 4)} rows of "
            f"equal weight, with an MMD of {human_number(weights['mmd'])} to the target."
        )
    distances = (
        ("training and validation", between),
        ("training and target", sides[0]),
        ("validation and target", sides[1]),
    )
    name = f"{printable(target['name'])}, {human_count(target['n_rows'])} rows"
    return TargetCheck(name, target["valid"], said, why, distances, tuple(facts))


def grade_in_words(report: Mapping[str, Any]) -> str | None:
    """Say of a graded split what was asked for, and what that means."""
    grade = report["graded"]
    if grade is None:
        return None
    said = f"Severity {grade['severity']:.4g} was asked for"
    if grade["severity"] == 0:
        said += ": an ordinary stratified random split"
    return (
        f"{said}. The scale goes from random splits, MMD {human_number(grade['random_mmd'])}, to the best "
        f"one found, {human_number(grade['best_mmd'])}; MMD {human_number(grade['asked'])} was asked for and "
        f"{human_number(grade['reached'])} reached. The search shown is the one for the best split. A graded "
        "split is not locally optimal, so it has no certificate."
    )


def cells_by_distance(report: Mapping[str, Any]) -> CellTable:
    """Order the cells: out of bounds first, then by rows off target, then by how far rounding moved them."""
    holdout = _holdout(report)
    cells: Sequence[Mapping[str, Any]] = report["constraints"]["cells"]
    several = len(report["constraints"].get("families") or ()) > 1

    def distance(cell: Mapping[str, Any]) -> tuple[bool, int, float]:
        return (
            cell["satisfied"],
            -abs(cell["actual"] - cell["target"]),
            -abs(cell["actual"] - holdout * cell["size"]) / cell["size"],
        )

    rows = tuple(
        CellRow(
            name=cell_name(cell["cell"], with_words=several),
            size=cell["size"],
            wanted=str(cell["lower"])
            if cell["lower"] == cell["upper"]
            else f"{human_count(cell['lower'])} to {human_count(cell['upper'])}",
            actual=cell["actual"],
            share=cell["actual"] / cell["size"],
            satisfied=cell["satisfied"],
        )
        for cell in sorted(cells, key=distance)[:CELLS_SHOWN]
    )
    off = sum(cell["actual"] != cell["target"] for cell in cells)
    return CellTable(rows, off, len(cells), len(cells) - len(rows))


def cell_name(cell: Mapping[str, Any], *, with_words: bool = False) -> str:
    """Name a cell by its values, and by what they are values of where that is not the same for all."""
    names = [
        f"{printable(word)} {printable(str(value))}" if with_words else printable(str(value))
        for word, value in cell.items()
    ]
    return ", ".join(names) or "all rows"


def heat_map(report: Mapping[str, Any]) -> HeatMap | None:
    """Lay the cells out by their first column and the others; None if there is only one cell."""
    cells: Sequence[Mapping[str, Any]] = report["constraints"]["cells"]
    words = list(cells[0]["cell"])
    cells = [cell for cell in cells if list(cell["cell"]) == words]
    if not words or len(cells) < 2:
        return None
    table: dict[str, dict[str, Mapping[str, Any]]] = {}
    columns: dict[str, int] = {}
    for cell in cells:
        first, *rest = (printable(str(value)) for value in cell["cell"].values())
        column = ", ".join(rest) or "all"
        table.setdefault(first, {})[column] = cell
        columns[column] = columns.get(column, 0) + cell["size"]
    kept_columns = _largest(columns, HEAT_COLUMNS)
    kept_rows = _largest(
        {name: sum(c["size"] for c in row.values()) for name, row in table.items()}, HEAT_ROWS
    )
    holdout = _holdout(report)

    def square(cell: Mapping[str, Any] | None) -> Share | None:
        if cell is None:
            return None
        share = cell["actual"] / cell["size"]
        return Share(cell["actual"], cell["size"], share, min(share / (2 * holdout), 1.0))

    return HeatMap(
        row_word=printable(words[0]),
        column_word=", ".join(map(printable, words[1:])),
        columns=tuple(kept_columns),
        rows=tuple((row, tuple(square(table[row].get(name)) for name in kept_columns)) for row in kept_rows),
        hidden=len(table) * len(columns) - len(kept_rows) * len(kept_columns),
    )


def _largest(sizes: Mapping[str, int], count: int) -> list[str]:
    """The names of the `count` largest, in the order they came in."""
    kept = set(sorted(sizes, key=lambda name: -sizes[name])[:count])
    return [name for name in sizes if name in kept]


def options_in_words(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The options as they were resolved, without those that were not used."""

    def text(value: Any) -> str:
        return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)

    return [
        (name.replace("_", " "), printable(text(value)))
        for name, value in config.items()
        if value not in (None, [], False)
    ]


def _holdout(report: Mapping[str, Any]) -> float:
    stated = report["config"].get("holdout")
    if stated is not None:
        return float(stated)
    return float(report["sizes"]["val"] / (report["sizes"]["train"] + report["sizes"]["val"]))


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
        remark = ", ".join(
            f"{each['name']} {human_count(each['size'])}{' at random' if each['drawn'] else ''}"
            for each in parts
        )
    far, near = max(parts, key=lambda each: each["mmd_rest"]), min(rest)
    grade = report["graded"]
    return (
        Tile(str(len(parts)), f"{part}s", remark),
        *(() if grade is None else (_severity_tile(grade),)),
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


def mmd_matrix(report: Mapping[str, Any], portrait: Portrait) -> tuple[MatrixRow, ...]:
    """All MMDs between parts, and those with the rest, beside what random parts have."""
    parts, values = report["parts"]["parts"], report["parts"]["mmd"]
    largest = max((value for row in values for value in row), default=0.0) or 1.0
    farthest = max(each["mmd_rest"] for each in parts) or 1.0
    rows = []
    for place, (each, row) in enumerate(zip(parts, values, strict=True)):
        random = [rest[place] for rest in portrait.random]
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


_SOLVERS = {"cbc": "CBC", "highs": "HiGHS", "threshold": "thresholds", "transport": "shortest paths"}
_DUPLICATES = "exact-duplicates"


def shares_in_words(report: Mapping[str, Any], whole: str) -> str:
    """Say whether every cell keeps its share, as the end of a sentence.

    Parameters
    ----------
    whole : what to say where there is only one cell, of all rows.
    """
    constraints = report["constraints"]
    cells = constraints["cells"]
    off = sum(not cell["satisfied"] for cell in cells)
    if off:
        return f"{human_count(off)} of {human_count(len(cells))} cells miss their share"
    slack = _tolerance(report)
    within = f" within {human_percent(slack)} of it" if slack else ""
    if slack and report["parts"] and constraints.get("units"):
        within = ", as far as whole units allow,"  # each cell has a tolerance of its own
    kinds = list(dict.fromkeys(_kind(cell["cell"]) for cell in cells))
    named = [kind for kind in kinds if kind]
    if not named:
        return f"{whole}{within}"
    return f"{' and '.join(named)} keeps its share{within}"


def _kind(cell: Mapping[str, Any]) -> str:
    """The cells of one family: every class in every domain."""
    names = ["class" if word == "label" else printable(word) for word in cell]
    return f"every {names[0]}" + "".join(f" in every {name}" for name in names[1:]) if names else ""


def _tolerance(report: Mapping[str, Any]) -> float:
    """The tolerance of cells without one of their own."""
    found = report["constraints"].get("tolerance")
    if found is not None:
        return float(found["general"])
    stated = report["config"].get("tolerance") or 0
    return float(stated) if isinstance(stated, (int, float)) else 0.0


def kept_in_words(report: Mapping[str, Any]) -> list[str]:
    """Sentences above the table of cells."""
    return list(_kept(report))


def _kept(report: Mapping[str, Any]) -> Iterator[str]:
    constraints = report["constraints"]
    cells = constraints["cells"]
    off = sum(cell["actual"] != cell["target"] for cell in cells)
    counts = "counts" if report["parts"] else "cells"
    if all(cell["satisfied"] for cell in cells):
        using = f"; {human_count(off)} use the tolerance" if off else ""
        yield f"All {human_count(len(cells))} {counts} are within their bounds{using}."
    else:
        yield f"Some {counts} are out of bounds: they are on top."
    families = constraints.get("families") or ()
    if len(families) > 1:
        named = "; ".join(map(printable, families))
        yield f"Each of {len(families)} families of cells keeps its shares: {named}."
    tolerance = constraints.get("tolerance")
    if tolerance is not None and tolerance["was_found"]:
        smallest = "the smallest that can be met" if tolerance["proven_smallest"] else "the smallest found"
        if report["parts"]:
            smallest += ", for the cells that need it"
        exactly = " (exact)" if tolerance["general"] == 0 else ""
        yield f"The tolerance is {human_number(tolerance['general'], 3)}{exactly}, {smallest}."
    units = constraints.get("units")
    if units is not None:
        yield _units_in_words(units)
    pinned = constraints.get("pinned")
    if pinned is not None:
        there = "all of them are there" if pinned["satisfied"] else "not all of them are there"
        yield (
            f"{human_count(pinned['train'])} rows are forced into training and {human_count(pinned['val'])} "
            f"into validation; {there}."
        )


def _units_in_words(units: Mapping[str, Any]) -> str:
    count, largest = human_count(units["count"]), human_count(units["largest"])
    if units["column"] == _DUPLICATES:
        what = f"Identical rows stay together: {count} different ones, up to {largest} times each"
    else:
        column = printable(units["column"])
        what = f"Rows with the same {column} stay together: {count} units of up to {largest} rows"
    if units["divided"]:
        return f"{what}; {human_count(units['divided'])} of them are divided."
    return f"{what}, none divided."


def certificate_in_words(report: Mapping[str, Any]) -> str | None:
    """Say who checked the assignment step, and what came of it."""
    proof = report["certificate"]
    if proof is None:
        return None
    whole = "integral" if proof["integral"] else "fractional"
    by = _SOLVERS.get(proof["backend"], proof["backend"])
    why = {
        "total_unimodularity": " by total unimodularity",
        "branch_and_bound": " by branch and bound",
    }.get(report["constraints"].get("integral_by") or "", "")
    gap = human_number(proof["gap"], 2)
    return f"Assignment step checked by {by}: {proof['status']}, gap {gap}, {whole}{why}."


def exact_kernel_limits(report: Mapping[str, Any]) -> tuple[float, float] | None:
    """Between what the MMD under the exact kernel lies, two standard errors either way."""
    estimate = report["mmd"]["subsample"]
    if estimate is None:
        return None
    square, reach = estimate["mmd_squared_unbiased"], 2 * estimate["standard_error"]
    return max(square - reach, 0.0) ** 0.5, max(square + reach, 0.0) ** 0.5
