"""What the HTML report says about the constraints: cells, families, units, forced rows, the certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clustersplit_cli.reports.formatting import human_count, human_number, human_percent, printable

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
